"""The next segment of one host, before its queries are answered: which tasks, with which arguments.

A :class:`Draft` grows task by task until something must be known that only the host can tell: the result of a
task in this same segment. :mod:`fleet.playbook.compile` makes steps of it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.audit.facts import fact
from fleet.core.errors import InputError, Problem
from fleet.core.template import Templar
from fleet.modules import load
from fleet.modules.base import ControllerResult, Facts
from fleet.modules.debug import masked
from fleet.playbook import registered
from fleet.playbook.conditions import agent_condition
from fleet.playbook.facts import fact_variables
from fleet.playbook.model import Expression, Play, Task
from fleet.playbook.names import expression_names, reached, value_names
from fleet.playbook.options import RunOptions
from fleet.playbook.unit import OMIT, Unit, render_arguments, title, truth, with_near_names

_SINGLE_STEP = frozenset(("command", "shell"))
REBOOT_REQUIRED = "reboot_required"


@dataclass(frozen=True)
class State:
    """What earlier segments left: registered results, variables set, results a check pass cannot know, and
    the tasks that wait for leave (``held_back``)."""

    registered: Mapping[str, Any] = field(default_factory=dict)
    set_facts: Mapping[str, Any] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    held_back: tuple[str, ...] = ()


class Draft:
    """Collects the units of one segment over one set of facts."""

    def __init__(
        self,
        play: Play,
        host: str,
        variables: Mapping[str, Any],
        options: RunOptions,
        facts: Facts,
        state: State,
    ) -> None:
        self.units: list[Unit] = []
        self.end = 0  # place in the work of the play where the next segment starts
        self._options = options
        known = fact_variables(facts)
        self._reboot_required = fact(facts, "reboot_required.required")
        # Looked up from left to right. The inventory's variables stay a mapping of their own: a value there is
        # built, and a secret fetched, only when it is used.
        self._low = (play.vars, variables, {"inventory_hostname": host}, play.defaults, known)
        self._high: dict[str, Any] = {**state.set_facts, **state.registered}
        self._top = {**options.extra_vars, "facts": known["facts"], "omit": OMIT}
        self._unknown = set(state.unknown)
        self._open: dict[str, list[str]] = {}  # registered in this segment -> as many ids as it has steps

    # --- variables ------------------------------------------------------------------------------

    def _variables(self, task: Task, more: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        high = dict(self._high)  # as it is now: a later task may set what this one must not see
        fresh = {REBOOT_REQUIRED: self._reboot_required} if self._facts_are_fresh() else {}
        layers: tuple[Mapping[str, Any], ...] = (self._top, more or {}, high, task.vars, *self._low, fresh)
        return ChainMap(*layers)  # type: ignore[arg-type]  # it is never written to

    def _facts_are_fresh(self) -> bool:
        """Whether no step comes before the next task: then the host would say what the facts say."""
        known = self._reboot_required is not None
        return known and all(unit.skipped is not None or unit.module.decides for unit in self.units)

    def _reached(self, value: Any, variables: Mapping[str, Any]) -> set[str]:
        return reached(value_names(value), variables)

    # --- what has to wait -----------------------------------------------------------------------

    def must_wait(self, task: Task) -> bool:
        """Whether the task needs on the controller what only the steps before it will tell."""
        variables = self._variables(task)
        decides = load(task.module).decides
        if not self._open and not decides:
            return False
        templar = Templar(variables, tests=registered.TESTS)
        early = [each for each in task.when if not _uses_loop(task, self._names(each, variables))]
        if self._first_false(early, templar, variables) is not None:
            return False  # it is skipped in any case
        raw = [_templates(task), task.loop.over if task.loop else None]
        if self._reached(raw, variables) & self._open.keys():
            return True
        on_host = [each for each in task.when if self._on_host(each, variables)]
        return any(decides or agent_condition(each.text, self._open) is None for each in on_host)

    def _names(self, expression: Expression, variables: Mapping[str, Any]) -> set[str]:
        return reached(expression_names(expression.text), variables)

    def _on_host(self, expression: Expression, variables: Mapping[str, Any]) -> bool:
        names = expression_names(expression.text)
        if REBOOT_REQUIRED in names and REBOOT_REQUIRED not in variables:
            return agent_condition(expression.text, self._open) is not None
        return bool(reached(names, variables) & self._open.keys())

    # --- adding tasks ---------------------------------------------------------------------------

    def add(self, task: Task, index: int, suffix: str = "") -> None:
        """Add a task's units: one, or one per loop item, or one that says why it is left out."""
        variables = self._variables(task)
        templar = Templar(variables, tests=registered.TESTS)
        if self._not_known(task, index, suffix, variables, templar):
            return
        early = [each for each in task.when if not _uses_loop(task, expression_names(each.text))]
        false = self._first_false(early, templar, variables)
        if false is not None:
            self._skip(task, index, suffix, templar, false)
            return
        if task.loop is None:
            self._add_unit(task, index, f"{task.number}{suffix}", templar, variables, looped=False)
        else:
            self._add_loop(task, index, suffix, templar)
        self._note_register(task)

    def _add_loop(self, task: Task, index: int, suffix: str, templar: Templar) -> None:
        assert task.loop is not None
        loop = task.loop
        items = self._guarded(lambda: templar.render(loop.over, loop.position), templar.variables)
        if not isinstance(items, list):
            shown = (
                "text" if isinstance(items, str) else "a mapping" if isinstance(items, dict) else repr(items)
            )
            raise InputError([Problem(task.loop.position, f"loop must give a list, not {shown}")])
        for number, item in enumerate(items):
            more = {task.loop.variable: item}
            if task.loop.index is not None:
                more[task.loop.index] = number
            variables = self._variables(task, more)
            own = Templar(variables, tests=registered.TESTS)
            prefix = f"{task.number}{suffix}#{number + 1}"
            self._add_unit(task, index, prefix, own, variables, looped=True, item=item)

    def _add_unit(
        self, task: Task, index: int, prefix: str, templar: Templar, variables: Mapping[str, Any],
        *, looped: bool, item: Any = None,
    ) -> None:  # fmt: skip
        name = title(task, templar)
        if looped:
            name = f"{name} ({self._label(task, templar, item)})"
        unit = Unit(task, load(task.module), f"{prefix}.{task.module}", name, {}, templar, index, item=item)
        false = self._first_false(task.when, templar, variables)
        if false is not None:
            unit.skipped = ControllerResult("skipped", name, f"when: {false}", id=unit.prefix)
        else:
            unit.conditions = [each.text for each in task.when if self._on_host(each, variables)]
            unit.args = self._guarded(lambda: render_arguments(task, templar), variables)
            unit.become_user = self._become_user(task, templar, variables)
            if task.module == "set_fact":
                self._high.update(unit.args)
        self.units.append(unit)

    def _label(self, task: Task, templar: Templar, item: Any) -> str:
        assert task.loop is not None
        shown = item if task.loop.label is None else templar.render(task.loop.label, task.loop.position)
        text = " ".join(str(masked(shown)).split())
        return text if len(text) <= 60 else f"{text[:59]}…"

    def _become_user(self, task: Task, templar: Templar, variables: Mapping[str, Any]) -> str | None:
        """None for root. ``become: false`` is the user who logs in."""
        if task.become is False:
            user = templar.render(variables.get("ansible_user"), task.position)
        else:
            user = templar.render(task.become_user, task.position)
        return None if user in (None, "", "root") else str(user)

    def _skip(
        self, task: Task, index: int, suffix: str, templar: Templar, why: str, kind: str = "skipped"
    ) -> None:
        name = title(task, templar)
        prefix = f"{task.number}{suffix}.{task.module}"
        text = f"when: {why}" if kind == "skipped" else why
        result = ControllerResult(kind, name, text, id=prefix)
        self.units.append(Unit(task, load(task.module), prefix, name, {}, templar, index, skipped=result))
        if task.register is not None and kind == "skipped":
            self._high[task.register] = registered.skipped()

    def _not_known(
        self, task: Task, index: int, suffix: str, variables: Mapping[str, Any], templar: Templar
    ) -> bool:
        """In check mode: whether the task needs what only a real run would tell. It is then said to."""
        if not self._unknown:
            return False
        used = [_templates(task), task.loop.over if task.loop else None]
        names = self._reached(used, variables)
        names |= reached(frozenset().union(*(expression_names(each.text) for each in task.when)), variables)
        hidden = sorted(names & self._unknown)
        if hidden:
            why = f"the result {hidden[0]} is known only after a real run"
            self._skip(task, index, suffix, templar, why, "known_after_apply")
            if task.register is not None:
                self._unknown.add(task.register)
        return bool(hidden)

    def _note_register(self, task: Task) -> None:
        """A result that the host will give is open from here on; one that is known now is a variable."""
        name = task.register
        if name is None:
            return
        self._high.pop(name, None)
        self._open.pop(name, None)
        units = [unit for unit in self.units if unit.task is task]
        if all(unit.skipped is not None for unit in units):
            parts: list[tuple[Any, list[Any]]] = [(unit.item, []) for unit in units]
            self._high[name] = registered.of_task(parts, task.loop is not None)
        else:
            single = task.module in _SINGLE_STEP and task.loop is None
            self._open[name] = ["?"] if single else ["?", "?"]

    # --- conditions -----------------------------------------------------------------------------

    def _first_false(self, when: Any, templar: Templar, variables: Mapping[str, Any]) -> str | None:
        """The text of the first condition that is false on the controller, or None."""
        for expression in when:
            if self._on_host(expression, variables):
                continue
            if not truth(self._evaluate(expression, templar, variables)):
                return str(expression.text)
        return None

    def _evaluate(self, expression: Expression, templar: Templar, variables: Mapping[str, Any]) -> object:
        return self._guarded(lambda: templar.expression(expression.text, expression.position), variables)

    def _guarded(self, action: Any, variables: Mapping[str, Any]) -> Any:
        try:
            return action()
        except InputError as error:
            raise with_near_names(error, variables) from error.__cause__


def _templates(task: Task) -> list[Any]:
    """Every raw value of a task that is rendered; expressions among the arguments count as templates."""
    values: list[Any] = [task.vars, task.become_user]
    arguments = load(task.module).arguments
    for name, raw in task.arguments.items():
        kind = arguments[name].type if name in arguments else "any"
        if kind.startswith("expression"):
            values += ["{{ " + text + " }}" for text in (raw if isinstance(raw, list) else [raw])]
        else:
            values.append(raw)
    return values


def _uses_loop(task: Task, names: Any) -> bool:
    return task.loop is not None and bool({task.loop.variable, task.loop.index} & set(names))
