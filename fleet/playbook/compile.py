"""A play on one host: queries first, then a plan, segment by segment.

    compiler = HostCompiler(play, "gpu01", variables, run, options)
    while not compiler.done:
        answers = agent.query(compiler.queries(facts))
        segment = compiler.segment(facts, answers)
        compiler.feed(agent.run(segment.plan, segment.secrets))

A segment ends after a reboot, and before a task that needs a result of this segment on the controller. The
same inputs give the same plan, to the byte. How a segment is drafted: :mod:`fleet.playbook.draft`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fleet.agent import protocol
from fleet.core.secret import Secret, referenced
from fleet.modules import load
from fleet.modules.base import Answers, ControllerResult, Facts, Json
from fleet.playbook import registered
from fleet.playbook.conditions import Condition, agent_condition
from fleet.playbook.draft import Draft, State
from fleet.playbook.model import FLUSH, Play, Task
from fleet.playbook.options import RunOptions
from fleet.playbook.unit import Surroundings, Unit

if TYPE_CHECKING:
    from fleet.agent.protocol import Plan, Step

__all__ = ["CompiledSegment", "HostCompiler", "RunOptions"]

PLAN_FORMAT = 1
_MAY_BRING_REPOSITORIES = frozenset(
    ("apt", "apt_repository", "command", "copy", "file", "lineinfile", "package", "shell", "template")
)


@dataclass(frozen=True)
class CompiledSegment:
    """One segment: the plan with references, the secrets they mean, and what was said on the controller.

    ``last``: nothing of this play comes after it. A result that ``stops`` comes with an empty, last plan.
    """

    plan: Plan
    secrets: Mapping[str, Secret]
    controller_results: tuple[ControllerResult, ...]
    last: bool

    @cached_property
    def plan_hash(self) -> str:
        """The plan's hash, made once."""
        return protocol.plan_hash(self.plan)


class HostCompiler:
    """Compiles one play for one host. Not thread-safe; make one per host.

    ``variables`` are the inventory's, raw: templates and Secrets as they are. A run of several plays passes
    on ``first_segment`` (plans of one run are numbered through) and the ``state`` of the play before.
    """

    def __init__(
        self,
        play: Play,
        host_name: str,
        variables: Mapping[str, Any],
        run: str,
        options: RunOptions | None = None,
        *,
        first_segment: int = 1,
        last_play: bool = True,
        state: State | None = None,
    ) -> None:
        self._play = play
        self._host = host_name
        self._variables = variables
        self._run = run
        self._options = options or RunOptions()
        self._work = _work(play, self._options)
        self._next = 0
        self._segment = first_segment
        self._last_play = last_play
        self._waiting: dict[str, tuple[bool, list[tuple[Any, list[str]]]]] = {}
        self._draft: tuple[Facts, Draft] | None = None
        self.state = state or State()
        self.done = False

    @property
    def fact_groups(self) -> tuple[str, ...] | None:
        """The groups of facts this play is compiled over; None: all."""
        return self._play.fact_groups

    @property
    def next_segment(self) -> int:
        """The number the next plan gets."""
        return self._segment

    def queries(self, facts: Facts) -> list[Json]:
        """What the modules of the next segment must know of the host; may hold Secrets. Raises InputError."""
        around = self._surroundings(facts, None, None)
        asked: list[Json] = []
        through: Json | None = None
        for unit in self._drafted(facts).units:
            if unit.skipped is not None:
                continue
            questions = around.queries(unit)
            asked += [_through(through, query) for query in questions]
            through = unit.module.proxies(unit.args) or through
            if not questions and around.stops(unit):
                break  # a host that preflight refuses is asked nothing more
        return asked

    def segment(
        self, facts: Facts, answers: Answers, *, now_unix: float | None = None, ssh_client: str | None = None
    ) -> CompiledSegment:
        """The next segment. ``now_unix`` is the controller's clock when the facts arrived, ``ssh_client`` the
        address the host sees the connection come from. Raises InputError; nothing is lost then."""
        draft = self._drafted(facts)
        around = self._surroundings(facts, now_unix, ssh_client)
        made = _Making(around, answers)
        for unit in draft.units:
            if not made.add(unit):
                break
        end = self._end(draft, made)
        last = made.stopped or end >= len(self._work)
        plan: Plan = {
            "format": PLAN_FORMAT,
            "run": self._run,
            "host": self._host,
            "segment": self._segment,
            "last": last and (self._last_play or made.stopped),
            "steps": made.steps,
        }
        self._advance(made, end, last)
        return CompiledSegment(plan, made.secrets, tuple(made.results), last)

    def pins_refused(self, facts: Facts, answers: Answers) -> list[ControllerResult]:
        """The pins of the next segment's tasks that this host cannot have. Raises InputError.

        :meth:`segment` does first what comes before a stop; a pin that is gone is told before anything is done.
        Behind a task that may bring the host a repository only those count that were asked of one of their own.
        """
        around = self._surroundings(facts, None, None)
        found: list[ControllerResult] = []
        may_come = False
        for unit in self._drafted(facts).units:
            if unit.skipped is not None:
                continue
            judged = not unit.conditions and not unit.task.ignore_errors
            if judged and may_come:
                judged = any(query.get("repositories") for query in around.queries(unit))
            said = around.says(unit, answers) if judged else []
            found += [each for each in said if each.refuses_pin]
            if any(each.stops and not each.refuses_pin for each in said):
                break
            may_come = may_come or unit.module.name in _MAY_BRING_REPOSITORIES
        return found

    def feed(self, results: Iterable[Mapping[str, Any]]) -> None:
        """What became of the segment's steps: ``result`` records of a run, or results of a check pass."""
        by_step = {result["step"]: result for result in results if "step" in result and "status" in result}
        known = dict(self.state.registered)
        unknown = set(self.state.unknown)
        for name, (looped, parts) in self._waiting.items():
            found = [(item, [by_step[each] for each in ids if each in by_step]) for item, ids in parts]
            if any(step["status"] in registered.UNKNOWN for _, steps in found for step in steps):
                unknown.add(name)
                known.pop(name, None)
            else:
                known[name] = registered.of_task(found, looped)
                unknown.discard(name)
        self._waiting = {}
        self.state = replace(self.state, registered=known, unknown=frozenset(unknown))

    # --- inside ---------------------------------------------------------------------------------

    def _drafted(self, facts: Facts) -> Draft:
        """The draft over these facts; the same one for queries and for the segment."""
        if self._draft is not None and self._draft[0] is facts:
            return self._draft[1]
        draft = Draft(self._play, self._host, self._variables, self._options, facts, self.state)
        draft.end = self._next
        for index in range(self._next, len(self._work)):
            task, suffix = self._work[index]
            tasks = self._play.handlers if task.module == FLUSH else (task,)
            if any(draft.must_wait(each) for each in tasks):
                break
            before = len(draft.units)
            for each in tasks:
                draft.add(each, index, suffix)
            draft.end = index + 1
            goes_on = [unit for unit in draft.units[before:] if unit.skipped is None]
            if goes_on and _ends_segment(task):
                break
        self._draft = (facts, draft)
        return draft

    def _end(self, draft: Draft, made: _Making) -> int:
        return draft.end if made.cut_at is None else made.cut_at

    def _advance(self, made: _Making, end: int, last: bool) -> None:
        set_facts = dict(self.state.set_facts)
        known = dict(self.state.registered)
        for unit in made.units:
            if unit.task.module == "set_fact" and unit.skipped is None:
                set_facts.update(unit.args)
        by_name = {unit.task.register: unit.task for unit in made.units if unit.task.register is not None}
        for name, task in by_name.items():  # registered twice: the later task counts
            parts = [
                (unit.item, [step["id"] for step in unit.steps]) for unit in made.units if unit.task is task
            ]
            known.pop(name, None)
            self._waiting[name] = (task.loop is not None, parts)
        for name, (looped, parts) in list(self._waiting.items()):
            if not any(ids for _, ids in parts):
                known[name] = registered.of_task([(item, []) for item, _ in parts], looped)
                del self._waiting[name]
        self.state = replace(self.state, registered=known, set_facts=set_facts, held_back=made.held_back)
        self._next = end
        self._segment += 1
        self._draft = None
        self.done = last

    def _surroundings(self, facts: Facts, now_unix: float | None, ssh_client: str | None) -> Surroundings:
        return Surroundings(
            self._host,
            self._play.directory,
            self._options,
            facts,
            now_unix,
            ssh_client,
            self.state.held_back,
        )


class _Making:
    """Turns the units of a draft into steps, in order, until one says to stop."""

    def __init__(self, around: Surroundings, answers: Answers) -> None:
        self._around = around
        self._answers = answers
        self._ids: dict[str, list[str]] = {}  # registered name -> ids of its steps, for conditions
        self.units: list[Unit] = []
        self.steps: list[Step] = []
        self.results: list[ControllerResult] = []
        self.secrets: dict[str, Secret] = {}
        self.stopped = False
        self.cut_at: int | None = None

    @property
    def held_back(self) -> tuple[str, ...]:
        """The tasks that wait for leave so far, those of earlier segments first."""
        pending = (each.task for each in self.results if each.kind == "pending")
        return (*self._around.held_back, *pending)

    def add(self, unit: Unit) -> bool:
        """Make the unit's steps. False: the unit, or nothing after it, belongs to this segment."""
        if self.cut_at is not None and unit.index >= self.cut_at:
            return False
        if unit.skipped is not None:
            self.results.append(unit.skipped)
        else:
            said = replace(self._around, held_back=self.held_back).make(unit, self._answers)
            if unit.task.ignore_errors:
                said = [replace(each, stops=False) if each.kind == "failed" else each for each in said]
            if any(each.stops for each in said):
                self._stop(unit, said)
                return False
            self.results += said
            self._take(unit)
        if unit.task.register is not None:
            if not self.units or self.units[-1].task is not unit.task:
                self._ids[unit.task.register] = []  # registered again: the later task counts
            self._ids[unit.task.register].extend(step["id"] for step in unit.steps)
        self.units.append(unit)
        if any(step["resource"] == "reboot" for step in unit.steps):
            self.cut_at = unit.index + 1  # whatever module made it, the host may be down after this task
        return True

    def _stop(self, unit: Unit, said: list[ControllerResult]) -> None:
        """What comes before a stop is done first, in a segment of its own; then the stop is said.

        A task is cut off as a whole, so that no item of its loop is done twice.
        """
        before = [each for each in self.units if each.index < unit.index]
        if any(each.steps for each in before):
            dropped = {each.prefix for each in self.units if each.index >= unit.index}
            self.steps = [step for each in before for step in each.steps]
            kept = {step["id"] for step in self.steps}
            self.secrets = {
                key: value for key, value in self.secrets.items() if key.partition(":")[0] in kept
            }
            self.results = [each for each in self.results if each.id not in dropped]
            self.units = before
            self.cut_at = unit.index
        else:
            self.steps, self.secrets = [], {}
            self.results += said
            self.stopped = True

    def _take(self, unit: Unit) -> None:
        task = unit.task
        condition = self._condition(unit)
        for step in unit.steps:
            step["args"] = referenced(step["args"], f"{step['id']}:", self.secrets)
            if condition is not None:
                own = step.get("when")
                step["when"] = condition if own is None else {"all": [condition, own]}
            if unit.become_user is not None:
                step["become_user"] = unit.become_user
            if task.notify:
                step["notify"] = list(task.notify)
            if task.handler:
                step["handler"] = str(task.name)
            if task.ignore_errors:
                step["ignore_errors"] = True
            if task.register is not None:
                step["register"] = task.register
            if task.timeout_s is not None:
                step["deadline_s"] = task.timeout_s
        self.steps += unit.steps

    def _condition(self, unit: Unit) -> Condition | None:
        found = [agent_condition(text, self._ids) for text in unit.conditions]
        conditions = [each for each in found if each is not None]
        assert len(conditions) == len(found), f"{unit.prefix}: a condition the draft took cannot be compiled"
        if not conditions:
            return None
        return conditions[0] if len(conditions) == 1 else {"all": conditions}


def _through(proxies: Json | None, query: Json) -> Json:
    """The query, asked through the proxies of a task before it, if it leaves the host."""
    outwards = proxies is not None and query["kind"] == "package_versions"
    return {**query, "proxies": proxies} if outwards else query


def _work(play: Play, options: RunOptions) -> list[tuple[Task, str]]:
    """The selected tasks and flushes of handlers: before each reboot, where the play says so, at the end.

    The suffix tells the flushes' step ids apart; the last one has none, so that it stays the same when a
    flush is added before it.
    """
    flush = Task(0, None, FLUSH, play.position)
    work: list[Task] = []
    for task in play.tasks:
        if task.module == FLUSH:
            work.append(task)
        elif options.selects(task):
            if _ends_segment(task):
                work.append(flush)
            work.append(task)
    numbered: list[tuple[Task, str]] = []
    flushes = 0
    for task in work:
        flushes += task.module == FLUSH
        numbered.append((task, f"~{flushes}" if task.module == FLUSH else ""))
    return [*numbered, (flush, "")]


def _ends_segment(task: Task) -> bool:
    """Whether nothing may follow this task in its segment."""
    return task.module != FLUSH and load(task.module).ends_segment
