"""Which GPUs are measured: all, some by index or UUID, MIG instances; and which cannot be."""

from __future__ import annotations

from typing import Any

from fleet.agent.bench import targets

from .doubles import device, uuid

BIG = {"uuid": "MIG-00000000-0000-5000-8000-000000000001", "profile": "3g.40gb"}
SMALL = {"uuid": "MIG-00000000-0000-5000-8000-000000000002", "profile": "1g.10gb"}


def on(*instances: dict[str, Any]) -> dict[str, Any]:
    return {"mode": "enabled", "devices": list(instances)}


def chosen(devices: list[Any], wanted: Any) -> list[tuple[str, Any, str, Any]]:
    return [
        (row["uuid"], row["mig_profile"], row["state"], row["reason"])
        for row in targets.rows(devices, wanted)
    ]


def test_all_some_and_a_number() -> None:
    devices = [device(0), device(1), device(2)]
    assert [row[0] for row in chosen(devices, "all")] == [uuid(0), uuid(1), uuid(2)]
    assert [row[0] for row in chosen(devices, ["0", uuid(2)])] == [uuid(0), uuid(2)]
    assert [row[0] for row in chosen(devices, 2)] == [uuid(0), uuid(1)]
    assert targets.unknown(devices, ["0", "7", "GPU-x"]) == ["7", "GPU-x"]
    assert targets.unknown(devices, "all") == []


def test_instances_of_mig_are_measured_each_by_its_own_name() -> None:
    devices = [device(0, mig=on(BIG, SMALL)), device(1)]
    assert chosen(devices, "all") == [
        (BIG["uuid"], "3g.40gb", "measured", None),
        (SMALL["uuid"], "1g.10gb", "measured", None),
        (uuid(1), None, "measured", None),
    ]
    assert chosen(devices, [SMALL["uuid"]]) == [(SMALL["uuid"], "1g.10gb", "measured", None)]


def test_mig_without_an_instance_is_not_measured_as_a_whole_gpu() -> None:
    assert chosen([device(0, mig=on())], "all") == [(uuid(0), None, "skipped", "mig_without_instance")]


def test_a_gpu_that_needs_recovery_is_left_alone() -> None:
    for changes in (
        {"recovery_action": "gpu_reset"},
        {"remapped_rows": {"pending": True}},
        {"status": "lost", "message": "GPU is lost"},
    ):
        found = targets.rows([device(0, **changes)], "all")
        assert (found[0]["state"], found[0]["reason"]) == ("skipped", "needs_recovery")
        assert "nvidia-smi -q -i 0000:1b:00.0" in found[0]["message"]
    assert chosen([device(0, recovery_action=None)], "all") == [(uuid(0), None, "measured", None)]


def test_the_state_before_is_that_of_the_probe() -> None:
    before = targets.rows([device(0, temperature_c=None)], "all")[0]["before"]
    assert before["sm_clock_mhz"] == 345
    assert before["temperature_c"] is None
    assert (before["ecc_mode"], before["mig_mode"]) == ("enabled", "disabled")


def test_the_links_that_are_up_are_counted_and_how_many_lead_to_a_switch() -> None:
    links = [{"active": True, "remote_type": "nvswitch"}] * 3 + [{"active": True, "remote_type": "gpu"}]
    links.append({"active": False, "remote_type": None})
    one, other = targets.rows([device(0, nvlinks=links), device(1)], "all")
    assert (one["nvlinks"], other["nvlinks"]) == ({"active": 4, "to_switch": 3}, None)
