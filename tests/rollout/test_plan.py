"""The plan: who goes in which order, who does not and why, before anything moves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.core.errors import InputError
from fleet.rollout.members import Member
from fleet.rollout.plan import Preview, make_plan
from fleet.rollout.stages import stages_of
from tests.rollout.world import OLD, members, some, strategy

READY = Preview(OLD, reboot=True, way_back=True)


def ready(fleet: list[Member], **others: Preview) -> dict[str, Preview]:
    return {one.name: others.get(one.name, READY) for one in fleet}


def test_canary_shares_of_all_and_the_rest() -> None:
    stages = stages_of(strategy(canary=None, batches="1,10%,50%"), some(64))
    assert [(stage.name, len(stage.hosts), stage.gate) for stage in stages] == [
        ("canary", 1, True),
        ("batch", 6, False),
        ("batch", 32, False),
        ("batch", 25, False),
    ]


@pytest.mark.parametrize(
    ("hosts", "changes", "sizes"),
    [
        (1, {"canary": 1}, [1]),
        (2, {"canary": None}, [1, 1]),
        (5, {"batches": "50%"}, [2, 3]),
        (3, {"batches": "1%,1%,1%,1%"}, [1, 1, 1]),
        (7, {"canary": 2, "as_drained": True}, [2, 5]),
        (4, {"batches": "100%"}, [4]),
    ],
)
def test_sizes_of_stages(hosts: int, changes: dict[str, object], sizes: list[int]) -> None:
    assert [len(stage.hosts) for stage in stages_of(strategy(**changes), some(hosts))] == sizes


def test_a_batch_goes_over_the_domains_and_never_splits_a_unit() -> None:
    fleet = members("a1@r1", "a2@r1", "a3@r1", "b1@r2", "b2@r2", "b3@r2")
    assert stages_of(strategy(batches="2"), fleet)[0].hosts == ("a1", "b1")
    racks = members("a1/u", "a2/u", "a3/u", "b1/v", "b2/v", "b3/v")
    assert [stage.hosts for stage in stages_of(strategy(batches="1"), racks)] == [
        ("a1", "a2", "a3"),
        ("b1", "b2", "b3"),
    ]


def test_the_host_that_others_are_reached_by_comes_last() -> None:
    fleet = some(4)
    fleet[0] = replace(fleet[0], last=True)
    assert stages_of(strategy(canary=1), fleet)[-1].hosts[-1] == "gpu001"


def test_what_keeps_a_host_out_is_said_with_its_remedy() -> None:
    fleet = some(6)
    plan = make_plan(
        strategy(),
        fleet,
        {
            "gpu001": READY,
            "gpu002": Preview(OLD, way_back=True, blocked="MIG layout in use", remedy="--as-drained waits"),
            "gpu003": Preview(OLD, way_back=False),
            "gpu004": Preview(OLD),
            "gpu005": Preview("580.159.04", current=True),
        },
    )
    assert [(one.host, one.why, one.remedy) for one in plan.left_out] == [
        ("gpu002", "MIG layout in use", "--as-drained waits"),
        (
            "gpu003",
            "its previous packages are neither cached nor in a repository",
            "--no-rollback to include it",
        ),
        (
            "gpu004",
            "it is not known whether its previous packages can still be had",
            "--no-rollback to include it",
        ),
        ("gpu006", "nothing is known of it", "see that it can be reached, and plan again"),
    ]
    assert [stage.hosts for stage in plan.stages] == [("gpu001",)]
    assert plan.current == ("gpu005",)
    assert [one.name for one in plan.members if one.takes_part] == ["gpu001"]


def test_without_rollback_hosts_without_a_way_back_go_and_are_named() -> None:
    plan = make_plan(strategy(no_rollback=True), some(2), {"gpu001": READY, "gpu002": Preview(OLD)})
    assert [stage.hosts for stage in plan.stages] == [("gpu001", "gpu002")]
    assert plan.no_way_back == ("gpu002",)


def test_one_host_that_may_not_move_keeps_its_unit_back() -> None:
    fleet = members("a1/u", "a2/u", "b")
    plan = make_plan(
        strategy(max_unavailable=2), fleet, ready(fleet, a2=Preview(blocked="clock", way_back=True))
    )
    assert [one.host for one in plan.left_out] == ["a1", "a2"]
    assert "a2 is left out" in plan.left_out[0].why


def test_a_host_that_has_the_version_does_not_keep_its_unit_back() -> None:
    fleet = members("a1/u", "a2/u")
    plan = make_plan(strategy(max_unavailable=2), fleet, ready(fleet, a2=Preview(current=True)))
    assert [stage.hosts for stage in plan.stages] == [("a1",)]


def test_reboots_and_versions_are_counted_and_unknown_is_told_apart() -> None:
    fleet = some(4)
    others = {"gpu003": Preview("570.211.01", reboot=False, way_back=True), "gpu004": Preview(way_back=True)}
    plan = make_plan(strategy(max_unavailable="50%", max_failures="25%"), fleet, ready(fleet, **others))
    assert plan.reboots == {True: 2, False: 1, None: 1}
    assert plan.versions == {OLD: 2, "570.211.01": 1, None: 1}
    assert (plan.max_unavailable, plan.may_fail, plan.stages[0].at_once) == (2, 1, 2)
    document = json.loads(json.dumps(plan.as_json()))
    assert document["reboots"] == {"yes": 2, "no": 1, "unknown": 1}
    assert document["strategy"]["max_unavailable"] == "50%"


def test_when_all_have_the_version_the_plan_is_empty() -> None:
    assert make_plan(strategy(), some(2), dict.fromkeys(["gpu001", "gpu002"], Preview(current=True))).empty


def test_a_canary_larger_than_what_is_left_is_refused() -> None:
    with pytest.raises(InputError, match="canary: 2 hosts, but only 1 are to be upgraded"):
        make_plan(strategy(canary=2), some(2), {"gpu001": READY})
