"""Kinds of checks that were shipped elsewhere and could never fire: each fires here, on what it is about.

The limits of benchmarks that a slip made harmless are held by the catalogue's lint (tests/catalogue/test_lint.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.nvidia_smi import csv, text
from fleet.audit.findings import Severity
from fleet.audit.health import evaluate
from fleet.catalogue.catalogue import load
from fleet.core.errors import InputError
from tests.audit.test_health_rules import device, found, ids, xid
from tests.facts import health_facts


def test_two_vbios_of_one_product_are_told_with_the_gpu_that_differs() -> None:
    (finding,) = found(device(3, vbios_version="96.00.61.00.01"))
    assert finding.id == "health.presence.vbios"
    assert "96.00.61.00.01 on 0000:61:00.0" in finding.what
    assert found(device(3, vbios_version=None)) == []  # one that could not be read is no other version


@pytest.mark.parametrize(("rows", "severity"), [(511, None), (512, Severity.ERROR), (900, Severity.ERROR)])
def test_the_limit_of_remapped_rows_is_applied(rows: int, severity: Severity | None) -> None:
    severities = [finding.severity for finding in found(device(remapped_rows__uncorrected=rows))]
    assert severities == ([severity] if severity else [])


def test_throttling_fails_and_is_not_only_logged() -> None:
    (finding,) = found(device(clocks_event_reasons=["hw_thermal_slowdown"]))
    assert (finding.id, finding.severity) == ("health.thermal.slowdown", Severity.ERROR)


def test_a_kernel_log_that_cannot_be_read_is_not_one_without_xids() -> None:
    assert ids(found({"kernel_log": None, "kernel_log_reason": "error"})) == ["xid.log"]


@pytest.mark.parametrize("code", [94, 95])
def test_contained_and_uncontained_memory_errors_are_in_the_list(code: int) -> None:
    assert ids(found({"kernel_log.xids": [xid(code)]})) == ["xid.fault"]


def test_network_ports_are_looked_at_and_their_absence_is_told() -> None:
    assert ids(found({"interconnect": None, "interconnect_reason": "error"})) == ["interconnect.unknown"]


@pytest.mark.parametrize("says", ["Yes", "1"])
def test_a_pending_remap_counts_in_both_spellings(says: str) -> None:
    """One query of nvidia-smi says Yes where another says 1."""
    header = ["gpu_bus_id", "remapped_rows.uncorrected", "remapped_rows.pending", "remapped_rows.failure"]
    header[1] = "remapped_rows.uncorrectable"
    failure = "No" if says == "Yes" else "0"
    printed = f"00000000:1B:00.0, 4, {says}, {failure}\n"
    (rows,) = [one["remapped_rows"] for one in csv.parse_remapped_rows(header, printed)["devices"]]
    assert fires(rows) == ["memory.remap_pending"]


def test_a_pending_remap_counts_in_the_long_text() -> None:
    printed = (
        "GPU 00000000:1B:00.0\n    Remapped Rows\n        Uncorrectable Error : 4\n"
        "        Pending : Yes\n        Remapping Failure Occurred : No\n"
    )
    assert fires(text.parse(printed)["devices"][0]["remapped_rows"]) == ["memory.remap_pending"]


def fires(rows: dict[str, Any]) -> list[str]:
    facts = health_facts("h100")
    known = facts["gpu_probe"]["devices"][0]["remapped_rows"]
    known.update({name: rows[name] for name in ("uncorrected", "pending", "failure")})
    return ids(evaluate(facts, {}))


def test_a_gpu_at_rest_has_utilisation_zero_and_is_not_left_out() -> None:
    document = csv.parse_query(["index", "utilization.gpu"], "0, 0 %\n1, 90 %\n")
    assert [one["gpu_utilization_percent"] for one in document["devices"]] == [0, 90]


@pytest.mark.parametrize("count", [1, 7, 9])
def test_what_is_expected_is_held_against_what_is_there(count: int) -> None:
    assert "presence.count" in ids(found({}, wanted={"gpus": {"count": count}}))


def test_no_product_is_known_by_a_part_of_its_name() -> None:
    """ "RTX A1000" holds "A100": links are expected of the second only, which is known by its PCI id."""
    gpus = load().gpus
    with pytest.raises(InputError):
        gpus.find("NVIDIA RTX A1000")
    facts = health_facts("h100")
    for one in (*facts["gpus"], *facts["gpu_probe"]["devices"]):
        one.update(device_id="ffff", name="NVIDIA RTX A1000")
    facts["gpu_probe"]["devices"][0]["nvlinks"][3]["active"] = False
    assert evaluate(facts, {}) == []
