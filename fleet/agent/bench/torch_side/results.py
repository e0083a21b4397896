"""A result, and the lines a run prints: ``fleet:result {json}``, ``fleet:software {json}``, ``fleet:note text``,
and ``fleet:load {json}`` at both ends of a stretch in which GPUs are kept at work without a pause.

Every result has every key (schemas/benchmark.schema.json has their meaning). NaN and infinity never leave:
the value becomes null and the result ``invalid``, ``non_finite``. No torch here; :mod:`.timing` has the
statistics.
"""

from __future__ import annotations

import json
import math
import sys

from fleet.agent import strict_json
from fleet.agent.bench.torch_side.timing import summary
from fleet.agent.bench.torch_side.units import unit_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Optional

    Json = dict[str, Any]

RESULT, SOFTWARE, NOTE, LOAD = "fleet:result ", "fleet:software ", "fleet:note ", "fleet:load "
MESSAGE_LIMIT = 2000


def empty(test: str, gpus: Sequence[str], parameters: Optional[Json] = None) -> Json:
    """A result of ``test`` without a value; status and reason are still to be said."""
    return {
        "test": test,
        "gpus": list(gpus),
        "status": "failed",
        "reason": None,
        "message": None,
        "value": None,
        "unit": unit_of(test),
        "samples": 0,
        "minimum": None,
        "maximum": None,
        "spread_percent": None,
        "parameters": parameters or {},
        "correctness": None,
        "points": None,
        "clocks_event_reasons": None,
        "notes": [],
    }


def read(line: str) -> Optional[Json]:
    """The result in a line of a child; None for one that is none: cut off, or written amid what a library prints.

    Numbers are as the child says: what is not finite is found where the result is emitted.
    """
    try:
        found = strict_json.loads(line[len(RESULT) :], any_number=True)
    except ValueError:
        return None
    if not isinstance(found, dict) or not {"status", "reason", "message"} <= set(found):
        return None
    gpus = found.get("gpus")
    named = isinstance(found.get("test"), str) and isinstance(found["message"], (str, type(None)))
    return found if named and isinstance(gpus, list) and all(isinstance(one, str) for one in gpus) else None


def not_measured(test: str, gpus: Sequence[str], status: str, reason: str, message: str, **more: Any) -> Json:
    """A result that has no value, and why."""
    result = empty(test, gpus)
    result.update(status=status, reason=reason, message=message[:MESSAGE_LIMIT], **more)
    return result


def measured(
    test: str,
    gpus: Sequence[str],
    values: Sequence[float],
    parameters: Json,
    correctness: Optional[Json] = None,
    points: Optional[list[Json]] = None,
    notes: Sequence[str] = (),
) -> Json:
    """A result from ``values``, one per sample, in the test's unit.

    No samples: ``failed``, ``no_samples``. A sample that is not finite: ``invalid``, ``non_finite``.
    """
    result = empty(test, gpus, parameters)
    result.update(correctness=correctness, points=points, notes=list(notes))
    if not values:
        result.update(reason="no_samples", message="not one sample was taken")
    elif not all(math.isfinite(value) for value in values):
        result.update(status="invalid", reason="non_finite", message="a sample is not a finite number")
    else:
        result.update(status="measured", **summary(values))
    return result


def wrong(test: str, gpus: Sequence[str], parameters: Json, correctness: Json, message: str) -> Json:
    """The computed result is not what it must be: there is no rate then."""
    result = empty(test, gpus, parameters)
    result.update(reason="wrong_result", message=message, correctness=correctness)
    return result


def finite(value: Any) -> Any:
    """``value`` with null where a number in it is NaN or infinite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def emit(result: Json) -> None:
    """Print one result, now."""
    _print(RESULT + json.dumps(finite(result), allow_nan=False))


def emit_software(software: Json) -> None:
    """Print what is installed, once."""
    _print(SOFTWARE + json.dumps(finite(software), allow_nan=False))


def load(gpus: Sequence[str], on: bool) -> None:
    """Say that these GPUs are at work from here on, or no longer: for who samples how busy they are."""
    _print(LOAD + json.dumps({"gpus": list(gpus), "on": on}))


def note(text: str) -> None:
    """Print one line for whoever watches."""
    _print(NOTE + " ".join(text.split()))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
