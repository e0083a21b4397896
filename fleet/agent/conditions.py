"""The closed set of conditions a step may have on the host, with three answers: true, false, unknown.

``{"changed": step}``, ``{"exit_code": {"step": step, "in": [0, 2]}}``, ``{"reboot_required": true}``,
``{"all": […]}``, ``{"any": […]}``, ``{"not": …}``. The worker never meets unknown (None); the check
pass does, when an earlier step's outcome is known only after apply.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

KINDS = ("changed", "exit_code", "reboot_required", "all", "any", "not")


class BadCondition(ValueError):
    """A condition outside the closed set, or about a step that does not come earlier in the run."""


class Outcome:
    """What is known of an earlier step: ``changed`` may be None (unknown).

    ``exit_code`` is None when the step ran no command; then no exit code matches. Where the step has
    yet to run, ``exit_code_known`` is False.
    """

    __slots__ = ("changed", "exit_code", "exit_code_known")

    def __init__(
        self, changed: Optional[bool], exit_code: Optional[int] = None, exit_code_known: bool = True
    ) -> None:
        self.changed = changed
        self.exit_code = exit_code
        self.exit_code_known = exit_code_known


def evaluate(
    condition: Any, outcomes: dict[str, Outcome], reboot_required: Callable[[], Optional[bool]]
) -> Optional[bool]:
    """True, False, or None where it depends on what is not known yet. Raises :class:`BadCondition`."""
    kind, operand = parse(condition)
    if kind == "changed":
        return _outcome(operand, outcomes).changed
    if kind == "exit_code":
        outcome = _outcome(operand["step"], outcomes)
        return outcome.exit_code in operand["in"] if outcome.exit_code_known else None
    if kind == "reboot_required":
        required = reboot_required()
        return None if required is None else required is operand
    if kind == "not":
        answer = evaluate(operand, outcomes, reboot_required)
        return None if answer is None else not answer
    answers = [evaluate(part, outcomes, reboot_required) for part in operand]
    decisive = kind == "any"  # one true decides any, one false decides all
    if decisive in answers:
        return decisive
    return None if None in answers else not decisive


def parse(condition: Any) -> tuple[str, Any]:
    """The kind and operand of a condition whose outermost shape is right. Raises :class:`BadCondition`."""
    if not isinstance(condition, dict) or len(condition) != 1:
        raise BadCondition(
            "a condition is an object with one key of %s, not %r" % (", ".join(KINDS), condition)
        )
    kind, operand = next(iter(condition.items()))
    right = {
        "changed": isinstance(operand, str),
        "exit_code": isinstance(operand, dict)
        and isinstance(operand.get("step"), str)
        and isinstance(operand.get("in"), list),
        "reboot_required": isinstance(operand, bool),
        "all": isinstance(operand, list),
        "any": isinstance(operand, list),
        "not": isinstance(operand, dict),
    }
    if not right.get(kind, False):
        raise BadCondition("not a condition: %r" % (condition,))
    return kind, operand


def steps_named(condition: Any) -> list[str]:
    """The steps a condition asks about. Raises :class:`BadCondition` for a wrong shape anywhere in it."""
    kind, operand = parse(condition)
    if kind == "changed":
        return [operand]
    if kind == "exit_code":
        return [operand["step"]]
    if kind == "reboot_required":
        return []
    parts = [operand] if kind == "not" else operand
    return [step for part in parts for step in steps_named(part)]


def _outcome(step: str, outcomes: dict[str, Outcome]) -> Outcome:
    try:
        return outcomes[step]
    except KeyError:
        raise BadCondition("a condition asks about step %r, which does not come before it" % step) from None
