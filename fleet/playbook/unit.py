"""One task on one host, or one item of its loop: conditions decided, arguments rendered, steps made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.core.errors import InputError, Position, Problem
from fleet.core.secret import Secret
from fleet.core.template import Templar
from fleet.modules import load
from fleet.modules.arguments import canonical_names, converted, near
from fleet.modules.base import Answers, ArgumentProblem, Context, ControllerResult, Facts, Json, Module
from fleet.playbook.files import find_file
from fleet.playbook.labels import label
from fleet.playbook.model import Task
from fleet.playbook.options import RunOptions

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_UNDEFINED = re.compile(r"'(\w+)' is undefined\Z")
OMIT = "\x00fleet omit\x00"  # what {{ omit }} renders to; an argument with this value is left out


@dataclass
class Unit:
    """A task ready for its module, or one that is left out (``skipped`` says why).

    ``prefix`` starts its step ids; ``index`` is its place in the play's work; ``item`` is the loop's, if any;
    ``conditions`` are those the host evaluates.
    """

    task: Task
    module: Module
    prefix: str
    title: str
    args: Json
    templar: Templar
    index: int
    item: Any = None
    conditions: list[str] = field(default_factory=list)
    become_user: str | None = None
    skipped: ControllerResult | None = None
    steps: list[Step] = field(default_factory=list)


def render_arguments(task: Task, templar: Templar) -> Json:
    """The task's arguments with their final values. Raises InputError at the argument that is wrong."""
    module = load(task.module)
    values: Json = {}
    for name, raw in task.arguments.items():
        argument = module.arguments.get(name)
        kind = argument.type if argument is not None else "any"
        value = _render(raw, kind, templar, task.place(name))
        if not _omitted(value):
            values[name] = value
    values, _ = canonical_names(values, module.arguments)
    if module.any_arguments:
        return values
    try:
        args = converted(values, module.arguments, module.name)
    except ArgumentProblem as problem:
        raise at(task, problem) from None
    if not any(argument.type.startswith("expression") for argument in module.arguments.values()):
        given = {name: value for name, value in values.items() if value is not None}
        problems = module.check(given, task.handler)
        if problems:
            raise InputError([Problem(task.place(each.argument), each.message) for each in problems])
    return args


def _omitted(value: Any) -> bool:
    """Whether this is ``omit``; a template that also names a secret makes a secret of it."""
    return (value.reveal() if isinstance(value, Secret) else value) == OMIT


def _render(raw: Any, kind: str, templar: Templar, position: Position) -> Any:
    if kind == "expression":
        return templar.expression(raw, position)
    if kind == "expressions":
        return [(text, truth(templar.expression(text, position))) for text in raw]
    return templar.render(raw, position)


def at(task: Task, problem: ArgumentProblem) -> InputError:
    """The problem as an error with a position, and with the variable that the argument is."""
    variable = _VARIABLE.fullmatch(str(task.arguments.get(problem.argument or "")))
    known_as = f" (the variable {variable[1]})" if variable else ""
    return InputError([Problem(task.place(problem.argument), problem.message + known_as)])


def truth(value: object) -> bool:
    """Whether a condition's value counts as true. Texts count by what they say."""
    if isinstance(value, Secret):
        value = value.reveal()
    if isinstance(value, str):
        return value.strip().lower() not in ("", "false", "no", "off", "0", "none", "n", "f")
    return bool(value)


def title(task: Task, templar: Templar) -> str:
    """The task's name for people; a name that cannot be rendered is shown as written."""
    if not task.name:
        return task.module
    try:
        return str(templar.render(task.name, task.position))
    except InputError:
        return str(task.name)


@dataclass(frozen=True)
class Surroundings:
    """What all units of one host share: options, files, clock, and who asks."""

    host: str
    directory: Path
    options: RunOptions
    facts: Facts
    now_unix: float | None = None
    ssh_client: str | None = None
    held_back: tuple[str, ...] = ()

    def context(self, unit: Unit) -> Context:
        """What the unit's module may know."""
        return Context(
            prefix=unit.prefix,
            task=unit.title,
            in_handler=unit.task.handler,
            disrupt=self.options.disrupt,
            public_internet=unit.templar.variables.get("public_internet", True) is not False,
            now_unix=self.now_unix,
            ssh_client=self.ssh_client,
            rerun=self.options.command.replace("{host}", self.host),
            held_back=self.held_back,
            read_file=lambda name: self._found("files", name).read_bytes(),
            render_template=lambda name: self._template(name, unit),
        )

    def queries(self, unit: Unit) -> list[Json]:
        """The unit's queries, each with an id of its own."""
        try:
            asked = unit.module.needs(unit.args, self.facts, self.context(unit))
        except ArgumentProblem as problem:
            raise at(unit.task, problem) from None
        return [{**query, "id": f"{unit.prefix}.{query['id']}"} for query in asked]

    def stops(self, unit: Unit) -> bool:
        """Whether the unit ends this host's play, as far as that is known without answers."""
        try:
            return any(
                each.stops for each in unit.module.results(unit.args, self.facts, {}, self.context(unit))
            )
        except ArgumentProblem as problem:
            raise at(unit.task, problem) from None

    def says(self, unit: Unit, answers: Answers) -> list[ControllerResult]:
        """What the unit's module says on the controller, its questions answered."""
        context = self.context(unit)
        own, failed = _own_answers(unit, answers, context)
        if failed is not None:
            return [failed]
        try:
            return unit.module.results(unit.args, self.facts, own, context)
        except ArgumentProblem as problem:
            raise at(unit.task, problem) from None

    def make(self, unit: Unit, answers: Answers) -> list[ControllerResult]:
        """Let the module make the unit's steps; returns what it says on the controller."""
        results = self.says(unit, answers)
        context = self.context(unit)
        own, _ = _own_answers(unit, answers, context)
        try:
            if not any(result.stops for result in results):
                unit.steps = unit.module.steps(unit.args, self.facts, own, context)
                label(unit.steps, named=bool(unit.task.name or unit.task.loop))
        except ArgumentProblem as problem:
            raise at(unit.task, problem) from None
        return results

    def _found(self, kind: str, name: str) -> Path:
        path = find_file(kind, name, (self.directory, *self.options.search))
        if path is None:
            raise ArgumentProblem(f"{name} is not in {kind}/ next to the playbook", "src")
        return path

    def _template(self, name: str, unit: Unit) -> str | Secret:
        path = self._found("templates", name)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ArgumentProblem(f"{name} is not UTF-8 text", "src") from None
        rendered = unit.templar.render(text, Position(str(path), 1, 1))
        return rendered if isinstance(rendered, Secret) else str(rendered)


def _own_answers(unit: Unit, answers: Answers, context: Context) -> tuple[Json, ControllerResult | None]:
    """The unit's answers by its own ids; or why one of its questions could not be answered."""
    own: Json = {}
    start = f"{unit.prefix}."
    for query_id, answer in answers.items():
        if query_id.startswith(start):
            if not answer.get("ok"):
                why = answer.get("error")
                text = f"the host could not answer what {unit.module.name} must know first: {why}"
                return {}, context.result("failed", text, remedy=answer.get("remedy"), stops=True)
            own[query_id[len(start) :]] = answer.get("value")
    return own, None


def with_near_names(error: InputError, variables: Mapping[str, Any]) -> InputError:
    """The error, with the nearest variable added where a name in it is not defined."""
    problems = []
    for problem in error.problems:
        missing = _UNDEFINED.search(problem.message)
        hint = near(missing[1], variables) if missing and "did you mean" not in problem.message else ""
        problems.append(Problem(problem.position, problem.message + hint))
    return InputError(problems)
