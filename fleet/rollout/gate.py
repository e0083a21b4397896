"""Whether the rollout as a whole goes on: the failure budget, the gate behind the canary, the soak, and the end.

Called by :class:`fleet.rollout.rollout.Rollout` while it decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleet.rollout.record import Phase
from fleet.rollout.states import State
from fleet.rollout.strategy import OnFailure

if TYPE_CHECKING:
    from fleet.rollout.rollout import Rollout

_SHOWN = 5
DONE, STOPPED, CANCELLED = "done", "stopped", "cancelled"


def review(rollout: Rollout) -> None:
    """Stop or pause where the budget is spent; end where nothing is left to be done."""
    control = rollout.control
    if control.phase is Phase.RUNNING:
        failed = len(rollout.counted) - control.forgiven
        of_canary = rollout.stages[control.stage].gate and failed > 0
        if of_canary or failed > rollout.may_fail:
            _spent(rollout, list(rollout.counted)[control.forgiven :], of_canary)
    control = rollout.control
    if control.phase is Phase.RUNNING and rollout.is_over:
        rollout.set(phase=Phase.ENDED, outcome=DONE, reason=None)
    elif control.phase in (Phase.STOPPING, Phase.CANCELLING) and not rollout.in_hand:
        outcome = STOPPED if control.phase is Phase.STOPPING else CANCELLED
        rollout.set(phase=Phase.ENDED, outcome=outcome)


def _spent(rollout: Rollout, failed: list[str], of_canary: bool) -> None:
    last = rollout.hosts[failed[-1]]
    if of_canary:
        reason = f"{failed[-1]} of the canary failed at {last.last}: {last.turned}"
    else:
        reason = f"{len(failed)} hosts did not come through, and {rollout.may_fail} may ({_named(failed)})"
    paused = rollout.strategy.on_failure is OnFailure.PAUSE
    rollout.turn(Phase.PAUSED if paused else Phase.STOPPING, reason)


def advance(rollout: Rollout) -> None:
    """Enter the next stage when this one is over, has proven what it should, and has soaked."""
    review(rollout)
    while rollout.control.phase is Phase.RUNNING and rollout.stage_is_over:
        control, stage = rollout.control, rollout.stages[rollout.control.stage]
        accepted = control.accepted >= control.stage
        if stage.gate and not accepted and (why := _unproven(rollout, stage.hosts)):
            rollout.turn(Phase.PAUSED, why)
            return
        if _soaking(rollout):
            return
        fallen = [host for host in stage.hosts if host in rollout.limits.down]
        if fallen and not accepted:
            rollout.turn(Phase.PAUSED, f"down since they were upgraded: {_named(fallen)}")
            return
        if stage.gate and rollout.strategy.confirm and not accepted:
            rollout.turn(Phase.PAUSED, "the canary is well; the next stage waits for your word")
            return
        rollout.enter_stage(control.stage + 1)


def _unproven(rollout: Rollout, hosts: Iterable[str]) -> str | None:
    states = {host: rollout.hosts[host].state for host in hosts}
    short = [host for host, state in states.items() if state not in (State.DONE, State.CURRENT)]
    if short:
        record = rollout.hosts[short[0]]
        return f"the canary proves nothing: {short[0]} is {record.state.value} ({record.turned})"
    if State.DONE not in states.values():
        return "the canary proves nothing: all of it had the wanted version already"
    return None


def _soaking(rollout: Rollout) -> bool:
    soak_s = rollout.strategy.soak_s
    if not soak_s:
        return False
    now = rollout.now.timestamp()
    if rollout.control.soak_until is None:
        rollout.set(soak_until=now + soak_s)
        return True
    return now < rollout.control.soak_until


def notice_stuck(rollout: Rollout) -> None:
    """Pause where nothing is in hand and nothing can begin for a reason that only the operator can remove.

    A host that others have down may come back, and a window opens: then it waits.
    """
    control = rollout.control
    if control.phase is not Phase.RUNNING or rollout.in_hand or rollout.stage_is_over or rollout.limits.down:
        return
    if all(rollout.window_open(unit) for unit in rollout.waiting_units):
        out = [host for host in rollout.hosts if rollout.limits.out(host)]
        rollout.turn(Phase.PAUSED, f"as many hosts as may be are out of service already: {_named(out)}")


def waits_for(rollout: Rollout) -> str | None:
    """Why hosts wait though they need not wait for any in hand; None where that is not so."""
    control = rollout.control
    if control.phase in (Phase.PAUSED, Phase.ENDED):
        return control.reason
    if control.phase is not Phase.RUNNING or rollout.in_hand:
        return None
    if control.soak_until is not None:
        return f"the {rollout.stages[control.stage].name} soaks"
    if any(not rollout.window_open(unit) for unit in rollout.waiting_units):
        return "the maintenance window is closed"
    out = [member.name for member in rollout.members if rollout.limits.out(member.name)]
    return f"as many hosts as may be are out of service: {_named(out)}" if out else None


def _named(hosts: list[str]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more
