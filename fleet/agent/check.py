"""The check pass: what every step of a plan would do, reading only. Nothing is written, ever.

Promise: would_change ⊆ changed ⊆ would_change ∪ known_after_apply, for what steps declare that they
provide (see :mod:`fleet.agent.forecast`). The worker's counterpart is :mod:`fleet.agent.segment`.
"""

from __future__ import annotations

import os

from fleet.agent.conditions import Outcome, evaluate
from fleet.agent.forecast import Forecast
from fleet.agent.protocol import FAILED, KNOWN_AFTER_APPLY, OK, SKIPPED, WOULD_CHANGE
from fleet.agent.resources import UnknownKind
from fleet.agent.resources.base import StepFailed, StepPending
from fleet.agent.step_host import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleet.agent.pending import Pending
    from fleet.agent.protocol import CheckResult, Json, Plan, Step
    from fleet.agent.resources.base import Resource
    from fleet.agent.step_host import StepHost

REBOOT_REQUIRED_FILES = ("/run/reboot-required", "/var/run/reboot-required")
_DEADLINE_S = 60.0  # for reading one step's state


def reboot_required(host: StepHost) -> bool:
    """Whether the distribution's own mark says that a reboot is due."""
    return any(os.path.exists(host.path(path)) for path in REBOOT_REQUIRED_FILES)


class CheckPass:
    """Goes through the steps of one plan in order. ``outcomes`` are those of earlier segments."""

    def __init__(
        self,
        plan: Plan,
        host: StepHost,
        *,
        load: Callable[[str], Resource],
        pending: Pending,
        outcomes: dict[str, Outcome],
    ) -> None:
        self._steps = plan["steps"]
        self._host = host
        self._load = load
        self._pending = pending
        self._outcomes = dict(outcomes)
        self._forecast = Forecast()
        self._notified: dict[str, Optional[bool]] = {}  # handler -> True, or None for perhaps
        self._change_ahead = False  # some step before this one would, or may, change something

    def run(self) -> list[CheckResult]:
        """One result per step, in order."""
        self._announce()
        results = []
        for step in self._steps:
            result = self._judge(step)
            self._remember(step, result)
            results.append(result)
        return results

    def _announce(self) -> None:
        """Tell the host what will be read, so that it asks systemd once for all units."""
        for step in self._steps:
            try:
                resource = self._load(step["resource"])
                self._host.expect(resource.looks_at(step["args"]))
            except (StepFailed, UnknownKind):
                continue  # said again, and reported, when the step is judged

    def _judge(self, step: Step) -> CheckResult:
        wanted = self._wanted(step)
        if wanted is False:
            return _result(step, SKIPPED, reason="its condition is false")
        if wanted is None:
            return _result(step, KNOWN_AFTER_APPLY, reason="its condition depends on an earlier step")
        short = dict(step, deadline_s=min(_DEADLINE_S, step.get("deadline_s") or _DEADLINE_S))
        try:
            with Limits(self._host, short, alarm=True):  # type: ignore[arg-type]
                return self._compare(step)
        except StepPending as error:
            return _result(step, KNOWN_AFTER_APPLY, reason=error.what, remedy=error.remedy)
        except StepFailed as error:
            if self._forecast.opaque:
                return _result(step, KNOWN_AFTER_APPLY, reason="cannot be told yet: %s" % error.what)
            return _result(step, FAILED, reason=error.what, remedy=error.remedy)
        except (OSError, UnknownKind) as error:
            return _result(step, FAILED, reason=str(error))

    def _wanted(self, step: Step) -> Optional[bool]:
        """Whether the step would be done: its condition, and for a handler its notification."""
        answers: list[Optional[bool]] = []
        if step.get("when") is not None:
            answers.append(evaluate(step["when"], self._outcomes, self._reboot_required))
        handler = step.get("handler")
        if handler is not None:
            answers.append(handler in self._pending or self._notified.get(handler, False))
        if False in answers:
            return False
        return None if None in answers else True

    def _reboot_required(self) -> Optional[bool]:
        if reboot_required(self._host):
            return True
        return None if self._change_ahead else False

    def _compare(self, step: Step) -> CheckResult:
        resource, args = self._load(step["resource"]), step["args"]
        handler = step.get("handler") is not None
        judged = self._forecast.before_reading(self._host, resource, args, handler=handler)
        if judged is not None:
            return _result(step, judged[0], reason=judged[1])
        differences = resource.diff(resource.read(self._host, args), args)
        outlook = resource.outlook(args, differences, self._forecast.everything())
        if outlook is not None:
            return _result(step, outlook, diff=differences or None)
        if differences:
            return _result(step, WOULD_CHANGE, diff=differences)
        judged = self._forecast.when_equal(resource, args)
        if judged is not None:
            return _result(step, judged[0], reason=judged[1])
        return _result(step, OK)

    def _remember(self, step: Step, result: CheckResult) -> None:
        """Carry forward what this step's result means for those after it."""
        status = result["status"]
        if status == KNOWN_AFTER_APPLY or status == WOULD_CHANGE:
            certain = status == WOULD_CHANGE
            self._outcomes[step["id"]] = Outcome(True if certain else None, exit_code_known=False)
            self._change_ahead = True
            self._forecast.add(self._provides(step), certain=certain)
            for handler in step.get("notify") or ():
                if self._notified.get(handler) is not True:
                    self._notified[handler] = True if certain else None
        elif status == FAILED:
            self._outcomes[step["id"]] = Outcome(None, exit_code_known=False)
        else:
            self._outcomes[step["id"]] = Outcome(False)

    def _provides(self, step: Step) -> Any:
        from fleet.agent.resources.base import Provides

        try:
            return self._load(step["resource"]).provides(step["args"])
        except (StepFailed, UnknownKind):
            return Provides()


def _result(
    step: Step,
    status: str,
    *,
    diff: Optional[list[Json]] = None,
    reason: Optional[str] = None,
    remedy: Optional[str] = None,
) -> CheckResult:
    result: Json = {"step": step["id"], "status": status, "diff": diff, "reason": reason}
    if remedy is not None:
        result["remedy"] = remedy
    return result  # type: ignore[return-value]
