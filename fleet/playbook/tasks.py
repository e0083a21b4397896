"""Reads tasks and blocks: finds the module, checks its arguments, and hands down what blocks say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.core.errors import Position
from fleet.core.secret import Secret
from fleet.core.template import is_template
from fleet.core.yaml import Kind, Node, as_read
from fleet.modules import ELSEWHERE, is_module, known_names, load, short_name
from fleet.modules.arguments import canonical_names, convert, missing_arguments, near, unknown_arguments
from fleet.modules.base import Argument, ArgumentProblem, Module
from fleet.playbook.model import FLUSH, Expression, Loop, Task
from fleet.playbook.reader import Reader
from fleet.playbook.words import BLOCK_KEYS, LOOP_CONTROL_KEYS, REFUSED, TASK_KEYS

_OLD_STYLE = re.compile(r"(?:^|\s)(creates|removes|chdir|executable|warn|stdin)=")
_TEXTUAL = frozenset(("text", "plain", "path", "list", "lines", "command", "mode"))


@dataclass(frozen=True)
class Inherited:
    """What a play or block says for all tasks in it."""

    when: tuple[Expression, ...] = ()
    tags: frozenset[str] = frozenset()
    become: bool | None = None
    become_user: Any = None
    vars: Mapping[str, Any] = field(default_factory=dict)
    notify: tuple[str, ...] = ()
    ignore_errors: bool = False


class TaskReader:
    """Reads the tasks of a playbook in order and numbers them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._number = 0

    def tasks(self, nodes: list[Node], inherited: Inherited, *, handler: bool = False) -> list[Task]:
        """Every task of a list, blocks opened."""
        found: list[Task] = []
        for node in nodes:
            if self._reader.mapping(node, "a task") is None:
                if node.kind is Kind.NULL:
                    self._reader.problem(node.position, "this task is empty")
            elif "block" in node.children:
                found.extend(self._block(node, inherited, handler))
            else:
                task = self._task(node, inherited, handler)
                if task is not None:
                    found.append(task)
        return found

    def _block(self, node: Node, inherited: Inherited, handler: bool) -> list[Task]:
        reader = self._reader
        reader.keys(node, BLOCK_KEYS, "a block")
        inner = self.inherit(node, inherited)
        return self.tasks(reader.items(node.children["block"], "block"), inner, handler=handler)

    def inherit(self, node: Node, outer: Inherited) -> Inherited:
        """What tasks in a play or block inherit: its own words over the outer ones'."""
        reader, keys = self._reader, node.children
        become = reader.boolean(keys.get("become"), "become")
        become_user = reader.raw(keys["become_user"]) if "become_user" in keys else outer.become_user
        ignore = reader.boolean(keys.get("ignore_errors"), "ignore_errors")
        return Inherited(
            when=outer.when + reader.expressions(keys.get("when"), "when"),
            tags=outer.tags | frozenset(reader.texts(keys.get("tags"), "tags")),
            become=outer.become if become is None else become,
            become_user=become_user,
            vars={**outer.vars, **reader.variables(keys.get("vars"), "vars")},
            notify=outer.notify + tuple(reader.texts(keys.get("notify"), "notify")),
            ignore_errors=outer.ignore_errors if ignore is None else ignore,
        )

    def _task(self, node: Node, inherited: Inherited, handler: bool) -> Task | None:
        reader = self._reader
        word = self._module_word(node)
        if word is None:
            return None
        self._number += 1
        own = self.inherit(node, inherited)
        keys = node.children
        base = Task(
            number=self._number,
            name=reader.raw(keys["name"]) if "name" in keys else None,
            module=short_name(word),
            position=node.key_position(word),
            when=own.when,
            loop=self._loop(keys.get("loop"), keys.get("loop_control")),
            notify=own.notify,
            tags=own.tags,
            become=own.become,
            become_user=own.become_user,
            register=reader.name(keys.get("register"), "register"),
            ignore_errors=own.ignore_errors,
            vars=own.vars,
            timeout_s=reader.number(keys.get("timeout"), "timeout", 1, 604_800),
            handler=handler,
            listen=tuple(reader.texts(keys.get("listen"), "listen")) if handler else (),
        )
        if word == "meta":
            return self._meta(keys["meta"], base)
        arguments, places = self._arguments(node, word, load(word), handler)
        return replace(base, arguments=arguments, places=places)

    def _module_word(self, node: Node) -> str | None:
        """The one key of a task that names a module; problems where there is none, or a second."""
        reader = self._reader
        words = [key for key in node.children if is_module(key) or key == "meta"]
        others = [key for key in node.children if key not in TASK_KEYS and key not in words]
        for key in others:
            self._unknown_key(node, key, bool(words))
        if len(words) > 1:
            message = f"a task does one thing; this one has {words[0]} and {words[1]}"
            reader.problem(node.key_position(words[1]), message)
            return None
        if not words and not others:
            reader.problem(node.position, "this task names no module")
        return words[0] if words else None

    def _unknown_key(self, node: Node, key: str, has_module: bool) -> None:
        place = node.key_position(key)
        short = short_name(key)
        if key in REFUSED:
            self._reader.problem(place, f"{key} is not supported: {REFUSED[key]}")
        elif short in ELSEWHERE:
            self._reader.problem(place, f"there is no module {key}: {ELSEWHERE[short]}")
        elif has_module:
            hint = near(key, TASK_KEYS) or f"; it takes {', '.join(sorted(TASK_KEYS))}"
            self._reader.problem(place, f"a task has no {key}{hint}")
        else:
            hint = near(short, [*known_names(), *TASK_KEYS])
            self._reader.problem(place, f"there is no module {key}{hint}")

    def _meta(self, node: Node, task: Task) -> Task | None:
        if node.text == FLUSH:
            return replace(task, module=FLUSH)
        self._reader.problem(node.position, f"of meta only {FLUSH} is supported")
        return None

    def _loop(self, node: Node | None, control: Node | None) -> Loop | None:
        reader = self._reader
        control = reader.mapping(control, "loop_control")
        if control is not None:
            reader.keys(control, LOOP_CONTROL_KEYS, "loop_control")
        if node is None:
            return None
        if node.kind not in (Kind.LIST, Kind.TEXT):
            reader.problem(node.position, f"loop must be a list, not {as_read(node)}")
            return None
        keys = control.children if control is not None else {}
        return Loop(
            over=reader.raw(node),
            position=node.position,
            variable=reader.name(keys.get("loop_var"), "loop_var") or "item",
            index=reader.name(keys.get("index_var"), "index_var"),
            label=reader.raw(keys["label"]) if "label" in keys else None,
        )

    # --- arguments ------------------------------------------------------------------------------

    def _arguments(
        self, node: Node, word: str, module: Module, handler: bool
    ) -> tuple[dict[str, Any], dict[str, Position]]:
        nodes = self._argument_nodes(node, word, module)
        if nodes is None:
            return {}, {}
        places = {name: child.position for name, child in nodes.items()}
        task_place = node.key_position(word)
        values: dict[str, Any] = {}
        for name, child in nodes.items():
            values[name] = self._value(child, _by_any_name(module.arguments, name))
        changed_when = node.children.get("changed_when")
        if changed_when is not None:
            self._changed_when(node, changed_when, module, values)
        found: list[ArgumentProblem] = []
        if not module.any_arguments:
            found += unknown_arguments(values, module.arguments, module.name)
        values, twice = canonical_names(values, module.arguments)
        renamed = {_own_name(module.arguments, name): place for name, place in places.items()}
        if not found and not twice:
            found += missing_arguments(values, module.arguments, module.name)
            found += literal_problems(values, module.arguments)
            found += module.check({key: value for key, value in values.items() if value is not None}, handler)
        for problem in [*found, *twice]:
            where = places.get(problem.argument or "") or renamed.get(problem.argument or "", task_place)
            self._reader.problem(where, problem.message)
        return values, renamed

    def _argument_nodes(self, node: Node, word: str, module: Module) -> dict[str, Node] | None:
        """The arguments as written, as a mapping or a free-form string, and what ``args:`` adds."""
        reader = self._reader
        body = node.children[word]
        found: dict[str, Node] = {}
        if body.kind is Kind.MAP:
            found.update(body.children)
        elif body.kind is Kind.NULL:
            pass
        elif body.kind is Kind.TEXT and module.free_form is not None:
            found[module.free_form] = body
            old = _OLD_STYLE.search(body.text)
            if old is not None:
                message = f"{old[1]}= inside the command is not read; write a mapping: cmd: … and {old[1]}: …"
                reader.problem(body.position, message)
        else:
            example = next(iter(module.arguments), "name")
            message = f"{word} takes a mapping ({example}: …), not {as_read(body)}"
            reader.problem(body.position, message)
            return None
        more = reader.mapping(node.children.get("args"), "args")
        for name, child in (more.children if more is not None else {}).items():
            if name in found:
                reader.problem(child.position, f"{name} is given twice, the second time in args")
            found[name] = child
        return found

    def _value(self, node: Node, argument: Argument | None) -> Any:
        """The raw value; numbers where text is wanted stay as they were written (``22.10``, ``0644``)."""
        if argument is not None and argument.type in _TEXTUAL:
            octal = argument.type != "mode" or node.text.startswith("0")
            if node.kind in (Kind.INT, Kind.FLOAT, Kind.BASE60) and octal:
                return node.text
            if node.kind is Kind.LIST and all(item.is_scalar and item.tag is None for item in node.items):
                self._reader.check_templates(node)
                return [
                    item.value if item.kind in (Kind.BOOL, Kind.NULL) else item.text for item in node.items
                ]
        if argument is not None and argument.type in ("expression", "expressions"):
            found = self._reader.expressions(node, "this")
            return (
                [each.text for each in found]
                if argument.type == "expressions"
                else found[0].text
                if found
                else None
            )
        return self._reader.raw(node)

    def _changed_when(self, node: Node, value: Node, module: Module, values: dict[str, Any]) -> None:
        if "changed_when" not in module.arguments:
            message = f"changed_when belongs to command and shell; {module.name} knows itself what it changed"
        elif value.kind is not Kind.BOOL:
            message = "changed_when must be true or false: conditions on output are not evaluated on hosts"
        else:
            values["changed_when"] = bool(value.value)
            return
        self._reader.problem(node.key_position("changed_when"), message)


def literal_problems(values: Mapping[str, Any], arguments: Mapping[str, Argument]) -> list[ArgumentProblem]:
    """What is wrong with the values that hold no template, and so can be judged before any host is known."""
    problems = []
    for name, value in values.items():
        argument = arguments.get(name)
        if argument is None or argument.refused or value is None or has_template(value):
            continue
        try:
            convert(name, value, argument)
        except ArgumentProblem as problem:
            problems.append(problem)
    return problems


def has_template(value: Any) -> bool:
    """Whether anything in a raw value still has to be rendered."""
    if isinstance(value, Mapping):
        return any(map(has_template, value.values()))
    if isinstance(value, list):
        return any(map(has_template, value))
    return is_template(value) or (isinstance(value, Secret) and type(value) is not Secret)


def _own_name(arguments: Mapping[str, Argument], name: str) -> str:
    return next((own for own, argument in arguments.items() if name in argument.aliases), name)


def _by_any_name(arguments: Mapping[str, Argument], name: str) -> Argument | None:
    return arguments.get(_own_name(arguments, name))
