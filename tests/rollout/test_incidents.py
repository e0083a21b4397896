"""Upgrade incidents from the field, as far as the rollout decides them; what the host must see for itself is elsewhere.

The numbers are those of the collection of cases (kind C).
"""

from __future__ import annotations

import pytest

from fleet.core.errors import RefusedError
from fleet.rollout.plan import Preview, make_plan
from fleet.rollout.record import Outcome, Phase
from fleet.rollout.states import State
from fleet.rollout.strategy import OnFailure
from tests.rollout.world import OLD, Bench, some, strategy


@pytest.mark.parametrize("policy", OnFailure)
def test_c01_a_host_on_which_somebody_works_past_the_deadline_is_neither_changed_nor_restarted(
    policy: OnFailure,
) -> None:
    bench = Bench(some(2), strategy(on_failure=policy))
    bench.will("gpu001", State.DRAINING, Outcome.SKIPPED, "python3 (pid 1496, user alice) uses GPU 0")
    assert bench.play() is Phase.ENDED
    began = [state for host, state in bench.hosts.began if host == "gpu001"]
    assert began == [State.PREFLIGHT, State.BASELINE, State.FETCHING, State.DRAINING, State.RETURNING]
    assert bench.rollout.hosts["gpu001"].turned == "python3 (pid 1496, user alice) uses GPU 0"
    assert bench.states() == {"gpu001": "skipped", "gpu002": "done"}


def test_c02_a_host_whose_fabric_manager_differs_is_not_given_back() -> None:
    bench = Bench(some(1), strategy())
    bench.will("gpu001", State.VERIFYING, Outcome.FAILED, "fabric manager 550.127.05, driver 550.120")
    assert bench.play() is Phase.PAUSED
    assert bench.hosts.drained == {"gpu001"}
    assert "550.127.05" in str(bench.rollout.hosts["gpu001"].turned)


@pytest.mark.parametrize("policy", OnFailure)
def test_c04_c05_a_restart_that_is_refused_or_comes_up_wrong_is_not_tried_again(policy: OnFailure) -> None:
    bench = Bench(some(2), strategy(on_failure=policy))
    bench.will("gpu001", State.RESTARTING, Outcome.FAILED, "the kernel that would boot has no nvidia module")
    bench.play()
    assert bench.hosts.began.count(("gpu001", State.RESTARTING)) == 1
    assert not [host for host, _ in bench.hosts.began if host == "gpu002"]


@pytest.mark.parametrize("state", [State.PREFLIGHT, State.FETCHING])
def test_c06_what_preflight_refuses_is_in_service_and_untouched(state: State) -> None:
    bench = Bench(some(2), strategy())
    bench.will("gpu001", state, Outcome.BLOCKED, "Secure Boot is on and no key is enrolled")
    assert bench.play() is Phase.ENDED
    assert bench.states() == {"gpu001": "blocked", "gpu002": "done"}
    assert bench.hosts.transactions["gpu001"] == []
    assert list(bench.rollout.counted) == []


@pytest.mark.parametrize("policy", [OnFailure.PAUSE, OnFailure.STOP])
def test_c07_a_module_that_does_not_build_stops_the_run_without_a_reboot(policy: OnFailure) -> None:
    bench = Bench(some(4), strategy(batches="1,1", on_failure=policy))
    bench.will(
        "gpu001", State.INSTALLING, Outcome.FAILED, "dkms_build_failed: gcc-12 is needed, cc is 11.4.0"
    )
    assert bench.play() in (Phase.PAUSED, Phase.ENDED)
    began = {state for host, state in bench.hosts.began if host == "gpu001"}
    assert not began & {State.RESTARTING, State.ROLLBACK_INSTALLING}
    assert {host for host, _ in bench.hosts.began} == {"gpu001"}, "the next batch is not started"
    assert "dkms_build_failed" in str(bench.rollout.hosts["gpu001"].turned)


@pytest.mark.parametrize("policy", OnFailure)
def test_c08_a_reboot_that_never_returns_is_counted_named_and_the_last(policy: OnFailure) -> None:
    bench = Bench(some(6), strategy(batches="2,2", max_unavailable=2, on_failure=policy))
    bench.will("gpu002", State.RESTARTING, Outcome.UNREACHABLE, "host_unreachable_after_reboot")
    bench.play()
    record = bench.rollout.hosts["gpu002"]
    assert (record.counted, record.last, record.state) == ("unreachable", "restarting", State.FAILED)
    assert {host for host, _ in bench.hosts.began} == {"gpu001", "gpu002"}, "no further batch"
    assert "gpu002" in str(bench.rollout.control.reason)


def test_c12_a_pin_that_is_gone_refuses_the_whole_run_and_shows_what_is_offered() -> None:
    pin, offered = "580.126.09-0ubuntu0.24.04.1", "580.126.20-0ubuntu0.24.04.1"
    fine = Preview(OLD, way_back=True)
    previews = {
        "gpu001": Preview("580.126.09", current=True),
        "gpu002": fine,
        "gpu003": Preview(
            OLD, way_back=True, missing=f"{pin} is not in its repositories; offered: {offered}"
        ),
    }
    with pytest.raises(RefusedError) as refused:
        make_plan(strategy(), some(3), previews)
    assert "none was changed" in str(refused.value)
    assert pin in str(refused.value)
    assert offered in str(refused.value)
    plan = make_plan(strategy(), some(3), {**previews, "gpu003": fine})
    assert plan.current == ("gpu001",)
    assert plan.left_out == ()
    assert [stage.hosts for stage in plan.stages] == [("gpu002", "gpu003")]
