"""Results of steps, as the variable that ``register:`` names: Ansible's words for the same things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.agent.protocol import CHANGED, FAILED, INTERRUPTED, KNOWN_AFTER_APPLY, SKIPPED, WOULD_CHANGE
from fleet.playbook.facts import unsafe

Result = Mapping[str, Any]
UNKNOWN = frozenset((WOULD_CHANGE, KNOWN_AFTER_APPLY))  # what a check pass says of a step that was not run


def skipped() -> dict[str, Any]:
    """The result of a task that was not run at all."""
    return {"changed": False, "failed": False, "skipped": True}


def of_task(parts: Sequence[tuple[Any, Sequence[Result]]], looped: bool) -> dict[str, Any]:
    """The variable of a task: one result per loop item in ``results``, or the only one."""
    results = [{**of_steps(steps), "item": item} if looped else of_steps(steps) for item, steps in parts]
    if not looped:
        return results[0] if results else skipped()
    return {
        "results": results,
        "changed": any(each["changed"] for each in results),
        "failed": any(each["failed"] for each in results),
        "skipped": all(each["skipped"] for each in results),
    }


def of_steps(steps: Sequence[Result]) -> dict[str, Any]:
    """One result from the steps a task (or one item of its loop) became; output is that of the last."""
    if not steps:
        return skipped()
    statuses = [step.get("status") for step in steps]
    last = steps[-1]
    value: dict[str, Any] = {
        "changed": CHANGED in statuses,
        "failed": FAILED in statuses or INTERRUPTED in statuses,
        "skipped": all(status == SKIPPED for status in statuses),
    }
    if last.get("exit_code") is not None:
        value["rc"] = last["exit_code"]
    for stream in ("stdout", "stderr"):
        text = last.get(stream)
        if text is not None:
            value[stream] = unsafe(text.rstrip("\n"))
            value[f"{stream}_lines"] = unsafe(text.splitlines())
    if last.get("reason"):
        value["msg"] = unsafe(last["reason"])
    value.update(unsafe(last.get("registered") or {}))
    return value


def _flag(name: str) -> Any:
    def test(value: Any) -> bool:
        from jinja2 import Undefined

        if isinstance(value, Undefined):
            str(value)  # raises, naming the variable
        if not isinstance(value, Mapping):
            raise ValueError(f"only the result of a task can be {name}")
        return bool(value.get(name))

    return test


_changed, _failed, _skipped = _flag("changed"), _flag("failed"), _flag("skipped")


def _succeeded(value: Any) -> bool:
    return not _failed(value)


# Tests on registered results. One mapping for the whole process: compiled templates are cached by it.
TESTS = {
    "changed": _changed,
    "failed": _failed,
    "skipped": _skipped,
    "success": _succeeded,
    "succeeded": _succeeded,
}
