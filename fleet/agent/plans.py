"""Plans as they arrive and as they lie on the disk: checked once, by one function.

A plan that passes :func:`check_plan` has the shape that :mod:`fleet.agent.segment` and
:mod:`fleet.agent.check` rely on; whether its resources know their arguments is theirs to say.
"""

from __future__ import annotations

from fleet.agent.conditions import BadCondition, steps_named
from fleet.agent.paths import make_private_folder, read_bytes, valid_run, write_durably
from fleet.agent.protocol import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Optional

    from fleet.agent.paths import Paths
    from fleet.agent.protocol import Plan

FORMAT = 1
DEADLINE_S = 1800.0  # of a step that names none

# Field of a step -> the types it may have where it is there.
_FIELDS: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "task": (str,),
    "resource": (str,),
    "args": (dict,),
    "when": (dict, type(None)),
    "become_user": (str, type(None)),
    "deadline_s": (int, float),
    "notify": (list,),
    "handler": (str, type(None)),
    "disruptive": (bool,),
    "ignore_errors": (bool,),
    "register": (str, type(None)),
}
_REQUIRED = ("id", "resource", "args")


class BadPlan(ValueError):
    """A plan that is not one; the message says what and in which step."""


def check_plan(plan: Any, known_steps: Collection[str] = ()) -> Plan:
    """``plan`` itself when it is well formed; ``known_steps`` ended in earlier segments of the run."""
    if not isinstance(plan, dict):
        raise BadPlan("a plan is an object, not %s" % type(plan).__name__)
    if plan.get("format") != FORMAT:
        raise BadPlan(
            "plan format %r is not known to this agent, which speaks %d" % (plan.get("format"), FORMAT)
        )
    if not valid_run(plan.get("run")):
        raise BadPlan("not the id of a run: %r" % (plan.get("run"),))
    segment = plan.get("segment")
    if not isinstance(segment, int) or isinstance(segment, bool) or segment < 0:
        raise BadPlan("segment is a whole number from 0, not %r" % (segment,))
    if not isinstance(plan.get("last"), bool) or not isinstance(plan.get("steps"), list):
        raise BadPlan("a plan has last (true or false) and steps (a list)")
    seen = set(known_steps)
    here: set[str] = set()
    for step in plan["steps"]:
        _check_step(step, seen)
        if step["id"] in here:
            raise BadPlan("two steps of the plan have the id %r" % step["id"])
        here.add(step["id"])
        seen.add(step["id"])
    return plan  # type: ignore[return-value]


def _check_step(step: Any, earlier: Collection[str]) -> None:
    if not isinstance(step, dict):
        raise BadPlan("a step is an object, not %r" % (step,))
    name = step.get("id")
    for field in _REQUIRED:
        if field not in step:
            raise BadPlan("step %r has no %s" % (name, field))
    for field, types in _FIELDS.items():
        if field in step and not isinstance(step[field], types):
            raise BadPlan("step %r: %s is a %s" % (name, field, type(step[field]).__name__))
    if not all(isinstance(handler, str) for handler in step.get("notify") or ()):
        raise BadPlan("step %r: notify is a list of names" % name)
    if not step.get("deadline_s", DEADLINE_S) > 0:
        raise BadPlan("step %r: deadline_s must be above 0" % name)
    if step.get("when") is not None:
        try:
            missing = [other for other in steps_named(step["when"]) if other not in earlier]
        except BadCondition as error:
            raise BadPlan("step %r: %s" % (name, error)) from None
        if missing:
            raise BadPlan("step %r depends on %s, which do not come before it" % (name, ", ".join(missing)))


def save_plan(paths: Paths, plan: Plan) -> None:
    """Write the plan being worked on, durably. It holds references, no secrets."""
    make_private_folder(paths.run(plan["run"]))
    write_durably(
        paths.plan(plan["run"], plan["segment"]), canonical(plan).encode("utf-8", "surrogatepass") + b"\n"
    )


def load_plan(paths: Paths, run: str, segment: int) -> Optional[Plan]:
    """The plan saved for a segment; None where there is none, BadPlan where it does not parse."""
    raw = read_bytes(paths.plan(run, segment))
    if raw is None:
        return None
    from fleet.agent import strict_json

    try:
        plan = strict_json.loads(raw.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise BadPlan("%s is not JSON: %s" % (paths.plan(run, segment), error)) from None
    if not isinstance(plan, dict):
        raise BadPlan("%s is not a plan" % paths.plan(run, segment))
    return plan  # type: ignore[return-value]
