"""What every module is made of: its arguments, the context it compiles in, and what it may answer.

A module is a file of :mod:`fleet.modules` named after the word in a playbook. It is pure: from arguments,
facts and the answers to its queries it makes steps (for the host) and results (said on the controller).
Read next: :mod:`fleet.modules.arguments`, then any small module such as :mod:`fleet.modules.group`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.audit.findings import Finding
from fleet.core.secret import Secret

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

Json = dict[str, Any]
Facts = Mapping[str, Any]
Answers = Mapping[str, Any]

# The reason of a result that refuses a host for a version that no repository offers.
PIN_NOT_AVAILABLE = "pin_not_available"

# How long a step may take, in seconds, where the module says nothing of its own.
DEADLINE_S = 60.0
PACKAGE_DEADLINE_S = 1800.0
IMAGE_DEADLINE_S = 3600.0
COMMAND_DEADLINE_S = 3600.0
SERVICE_DEADLINE_S = 180.0


class ArgumentProblem(ValueError):
    """An argument that cannot be used; the compiler adds file, line and column.

    ``argument`` is the name of the argument, or None where it concerns the task as a whole.
    """

    def __init__(self, message: str, argument: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.argument = argument


@dataclass(frozen=True)
class Argument:
    """One argument of a module.

    ``type`` is a name of :data:`fleet.modules.arguments.TYPES`. ``choices`` are words a text may be.
    ``refused`` makes it an argument known from Ansible that fleet does not take, and says what to write.
    """

    type: str = "text"
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    description: str = ""
    refused: str | None = None


@dataclass(frozen=True)
class ControllerResult:
    """What a task says on the controller instead of, or beside, steps on the host.

    ``kind``: ``message``, ``ok``, ``skipped``, ``finding`` (a warning or information), ``blocked`` (preflight
    refuses the host), ``failed``, ``pending`` (waits for leave), ``known_after_apply`` and ``facts_report``.
    ``stops`` ends this host's play here: nothing after this task is done. ``wanted``, of ``facts_report``: what health
    rules may expect of the host.
    """

    kind: str
    task: str
    text: str
    id: str = ""
    remedy: str | None = None
    finding: Finding | None = None
    stops: bool = False
    wanted: Mapping[str, Any] | None = None

    @property
    def refuses_pin(self) -> bool:
        """Whether it stops the host because a version that is pinned cannot be had."""
        return self.stops and self.text.startswith(f"{PIN_NOT_AVAILABLE}:")

    def as_json(self) -> Json:
        """The result as events and reports carry it; absent parts are left out."""
        document: Json = {"id": self.id, "kind": self.kind, "task": self.task, "text": self.text}
        if self.remedy is not None:
            document["remedy"] = self.remedy
        if self.finding is not None:
            document["finding"] = self.finding.as_json()
        return document


def _no_file(name: str) -> bytes:
    raise ArgumentProblem(f"{name} cannot be read here", "src")


def _no_template(name: str) -> str | Secret:
    raise ArgumentProblem(f"{name} cannot be read here", "src")


@dataclass(frozen=True)
class Context:
    """What a module may know beside its arguments: who it is, and what the operator allowed.

    ``prefix`` starts every step id (``7.copy``). ``read_file`` and ``render_template`` give files next to the
    playbook. ``now_unix`` is the controller's clock when the facts arrived; ``ssh_client`` the address from
    which the host sees the connection come. ``rerun`` is the command that repeats this run for this host.
    ``held_back``: names of the tasks before this one that wait for leave on this host.
    """

    prefix: str
    task: str
    in_handler: bool = False
    disrupt: bool = False
    public_internet: bool = True
    now_unix: float | None = None
    ssh_client: str | None = None
    rerun: str = "fleet run INVENTORY PLAYBOOK --limit HOST"
    held_back: tuple[str, ...] = ()
    read_file: Callable[[str], bytes] = _no_file
    render_template: Callable[[str], str | Secret] = _no_template

    def step(
        self,
        part: str,
        resource: str,
        args: Json,
        *,
        deadline_s: float = DEADLINE_S,
        disruptive: bool = False,
    ) -> Step:
        """One step. ``part`` makes its id unique within the task and stays the same from run to run."""
        step: Step = {
            "id": f"{self.prefix}.{part}",
            "task": self.task,
            "resource": resource,
            "args": args,
            "deadline_s": deadline_s,
        }
        if disruptive:
            step["disruptive"] = True
        return step

    def result(self, kind: str, text: str, **more: Any) -> ControllerResult:
        """A result of this task; see :class:`ControllerResult`."""
        return ControllerResult(kind, self.task, text, id=self.prefix, **more)

    @property
    def disrupt_command(self) -> str:
        """The command that gives leave and goes on."""
        return f"{self.rerun} --disrupt"


NeedsFunction = Callable[[Json, Facts, Context], "list[Json]"]
StepsFunction = Callable[[Json, Facts, Answers, Context], "list[Step]"]
ResultsFunction = Callable[[Json, Facts, Answers, Context], "list[ControllerResult]"]
CheckFunction = Callable[[Json, bool], "list[ArgumentProblem]"]
ProxiesFunction = Callable[[Json], "Json | None"]


def no_needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """A module that asks nothing."""
    return []


def no_steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """A module that does nothing on the host."""
    return []


def no_results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """A module that says nothing on the controller."""
    return []


def no_check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A module whose arguments need no looking at together."""
    return []


def no_proxies(args: Json) -> Json | None:
    """A module that leads nobody out."""
    return None


@dataclass(frozen=True)
class Module:
    """A module, loaded. ``free_form`` is the argument a plain string is (command, shell).
    ``proxies``: what later tasks' questions about repositories are asked through, since they are asked before
    anything is written on the host.
    ``reads_facts``: it decides by more facts than those of its host's identity and packages.

    ``decides``: it acts or judges on the controller, so its conditions must be decided there, too.
    """

    name: str
    arguments: Mapping[str, Argument]
    needs: NeedsFunction = no_needs
    steps: StepsFunction = no_steps
    results: ResultsFunction = no_results
    check: CheckFunction = no_check
    proxies: ProxiesFunction = no_proxies
    free_form: str | None = None
    ends_segment: bool = False
    any_arguments: bool = False
    reads_facts: bool = False
    decides: bool = False


def given(args: Json, names: Sequence[str]) -> Json:
    """Those of ``names`` that have a value, for steps whose absent arguments mean *leave alone*."""
    return {name: args[name] for name in names if args.get(name) is not None}


OWNERSHIP = {
    "mode": Argument("mode", description='permissions as four octal digits in quotes, "0644"'),
    "owner": Argument(description="user that owns it"),
    "group": Argument(description="group that owns it"),
}
