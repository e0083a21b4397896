"""What every resource is: read the state, say the difference, make it so.

A resource has no state of its own. The check pass calls :meth:`Resource.read` and
:meth:`Resource.diff`; the worker then calls :meth:`Resource.apply` and reads again: a difference that
remains is a failed step, whatever a tool's exit code said. :class:`Provides` is what the check pass
carries forward, so that a step that needs what an earlier step would bring is not judged by a world
in which that step never ran.
"""

from __future__ import annotations

from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE, Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Optional, Protocol, Sequence, Tuple

    from fleet.agent.host import Host
    from fleet.agent.process import Result

    Difference = Dict[str, Any]  # {"path": what differs, "before": value, "after": value}
else:  # the typing module costs start-up time
    Protocol = object
    Difference = dict

MASK = "********"


class StepFailed(Exception):
    """A step cannot be done: ``what`` happened, and what the operator can do (``remedy``).

    ``exit_code``, ``stdout`` and ``stderr`` are those of the command that failed, if one did.
    """

    def __init__(self, what: str, remedy: Optional[str] = None, result: Optional[Result] = None) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.exit_code = result.exit_code if result is not None else None
        self.stdout = result.stdout if result is not None else None
        self.stderr = result.stderr if result is not None else None


class StepCancelled(StepFailed):
    """The run was cancelled while this step's command ran."""


class StepPending(StepFailed):
    """Nothing is broken, but going on needs somebody's leave; ``remedy`` is the command that gives it."""


class RebootRequested(Exception):
    """Raised by ``reboot``'s apply: the worker journals it, then takes the host down."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__("reboot requested")
        self.deadline_s = deadline_s


class Reporter(Protocol):
    """Where a running step says what it does. Texts are scrubbed of secrets by the worker."""

    def output(self, text: str, stream: str = "stdout") -> None:
        """Output of a command as it comes, in pieces that need not be whole lines."""

    def progress(self, text: str) -> None:
        """One line that says how far the step is."""


class Silent:
    """A reporter that says nothing."""

    def output(self, text: str, stream: str = "stdout") -> None:
        """See :class:`Reporter`."""

    def progress(self, text: str) -> None:
        """See :class:`Reporter`."""


class Provides:
    """Names of things by category, as sets: ``Provides(packages=["docker.io"], engine=True)``.

    Used both for what a step brings and for what it needs. Of the units that a package brings, its own
    scripts leave those in ``started`` enabled and running, and those in ``idle`` not running; ``switched``
    are units that a step turns on or off.
    """

    CATEGORIES = (
        "packages", "files", "directories", "units", "users", "groups", "commands", "images", "modules",
        "started", "idle", "switched",
    )  # fmt: skip
    __slots__ = ("engine", "sets")

    def __init__(self, engine: bool = False, **names: Iterable[str]) -> None:
        unknown = set(names).difference(self.CATEGORIES)
        if unknown:
            raise TypeError("no such category of things: %s" % ", ".join(sorted(unknown)))
        self.engine = engine
        self.sets = {category: set(values) for category, values in names.items() if values}

    def __bool__(self) -> bool:
        return self.engine or any(self.sets.values())

    def __iter__(self) -> Iterator[Tuple[str, str]]:
        """Pairs of (category, name), sorted; the engine is ("engine", "docker")."""
        pairs = [(category, name) for category, values in self.sets.items() for name in values]
        return iter(sorted(pairs + ([("engine", "docker")] if self.engine else [])))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provides) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Provides(%s)" % ", ".join("%s:%s" % pair for pair in self)

    def get(self, category: str) -> Iterable[str]:
        """The names of one category."""
        return self.sets.get(category, ())

    def add(self, category: str, name: str) -> None:
        """Add one thing."""
        if category == "engine":
            self.engine = True
        else:
            self.sets.setdefault(category, set()).add(name)

    def merge(self, other: Provides) -> None:
        """Add everything of ``other``."""
        self.engine = self.engine or other.engine
        for category, values in other.sets.items():
            self.sets.setdefault(category, set()).update(values)

    def contains(self, category: str, name: str) -> bool:
        """Whether this one thing is among them."""
        if category == "engine":
            return self.engine
        return name in self.sets.get(category, ())

    def common(self, other: Provides) -> Provides:
        """What is in both."""
        both = Provides(engine=self.engine and other.engine)
        for category, values in self.sets.items():
            shared = values & other.sets.get(category, set())
            if shared:
                both.sets[category] = shared
        return both


class Resource:
    """One kind of thing that can be made true. Subclasses override; instances hold no state."""

    kind = ""
    repeatable = True
    converges = True

    def read(self, host: Host, args: Json) -> Json:
        """The state now: no side effects, cheap. Raises StepFailed when it cannot be told."""
        raise NotImplementedError

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """What differs between ``state`` and what ``args`` ask for; ``[]`` when nothing does. Pure.

        Contents of secrets are shown as :data:`MASK`.
        """
        raise NotImplementedError

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Make it so. Returns extras of the result (exit_code, stdout, stderr, registered) or None.

        An extra ``"changed": False`` makes the step ok instead of changed (a command that only looks).

        Raises StepFailed. May be called again after an interruption at any point.
        """
        raise NotImplementedError

    def provides(self, args: Json) -> Provides:
        """What will be there once this step has been applied."""
        return Provides()

    def requires(self, args: Json) -> Provides:
        """What must be there for this step's state to be read or decided."""
        return Provides()

    def forecast(self, args: Json, provided: Provides) -> str:
        """What to say of a step that requires something absent now which an earlier step would bring.

        ``provided`` is what the earlier steps that would change bring. Either ``would_change`` (the
        thing itself cannot be there yet), ``ok`` (they leave it as wanted) or ``known_after_apply``.
        """
        return KNOWN_AFTER_APPLY

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """What the check pass says instead of ok or would_change, or None.

        Asked of every step whose state could be read. ``provided`` is what earlier steps that would
        change bring. What follows from :meth:`provides` and :meth:`requires` alone is judged by
        :mod:`fleet.agent.forecast`; this is for what only the kind knows, such as a guard command that
        may see another world when its turn comes.
        """
        return None

    def looks_at(self, args: Json) -> Provides:
        """What :meth:`read` will ask of the host; give it to :meth:`Host.expect` for all steps first,
        and units are asked for in one call."""
        return Provides()

    def may_repeat(self, args: Json) -> bool:
        """Whether an apply that was interrupted may be done again. The worker asks this, per step."""
        return self.repeatable

    def rereads(self, args: Json) -> bool:
        """Whether a difference after apply is a failure. The worker asks this, per step."""
        return self.converges


def would_change_if(condition: bool) -> str:
    """The two possible forecasts, by a condition."""
    return WOULD_CHANGE if condition else KNOWN_AFTER_APPLY


def is_secret(value: Any) -> bool:
    """Whether an argument is a reference to a secret."""
    return isinstance(value, dict) and set(value) == {"$secret"}


def difference(path: str, before: Any, after: Any) -> Difference:
    """One entry of a diff."""
    return {"path": path, "before": before, "after": after}


def expect(
    result: Result, doing: str, remedy: Optional[str] = None, codes: Sequence[Optional[int]] = (0,)
) -> Result:
    """``result`` when its command ended with one of ``codes``; else StepFailed or StepCancelled.

    ``doing`` completes "… failed": what was being done, in the operator's words.
    """
    if result.exit_code in codes and not (result.timed_out or result.cancelled):
        return result
    if result.cancelled:
        raise StepCancelled("%s was cancelled (%s)" % (doing, result.ending()), remedy, result)
    said = last_words(result)
    raise StepFailed(
        "%s failed: %s%s" % (doing, result.ending(), ": " + said if said else ""), remedy, result
    )


def last_words(result: Result, lines: int = 3) -> str:
    """The last lines of what a command said, on standard error if it said anything there."""
    text = result.stderr.strip() or result.stdout.strip()
    from fleet.agent.process import last_lines

    return last_lines(text.splitlines(), lines)
