"""What codes in the kernel log mean: which take a GPU out of use, which are the job's own, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.agent.facts.xid_lines import NVLINK5, xid_of
from fleet.catalogue.catalogue import load
from fleet.core.errors import InputError

XIDS = load().xids


@pytest.mark.parametrize("code", [46, 48, 64, 74, 79, 95, 119, 120, 140])
def test_faults_of_the_hardware_are_critical(code: int) -> None:
    xid = XIDS.of(code)
    assert xid.severity == "critical"
    assert not xid.application_fault
    assert xid.immediate is not None
    assert xid.source
    assert xid.verified


@pytest.mark.parametrize("code", [13, 31, 32, 69])
def test_faults_of_the_job_are_no_reason_to_take_the_gpu_out(code: int) -> None:
    xid = XIDS.of(code)
    assert xid.application_fault
    assert xid.severity == "warn"
    assert xid.immediate is not None
    assert xid.immediate.id == "RESTART_APP"


@pytest.mark.parametrize(
    ("code", "severity", "action"),
    [
        (43, "info", "IGNORE"),
        (45, "info", "WORKFLOW_XID_45"),
        (63, "warn", "IGNORE"),
        (79, "critical", "RESTART_BM"),
        (92, "warn", "IGNORE"),
        (94, "warn", "RESTART_APP"),
        (109, "critical", "RESET_GPU"),
        (121, "info", "IGNORE"),
        (154, "depends", "XID_154"),
    ],
)
def test_severity_and_action(code: int, severity: str, action: str) -> None:
    xid = XIDS.of(code)
    assert xid.immediate is not None
    assert (xid.severity, xid.immediate.id) == (severity, action)


def test_a_code_that_nobody_knows_is_unknown_and_not_harmless() -> None:
    xid = XIDS.of(4711)
    assert not xid.known
    assert (xid.severity, xid.immediate, xid.source, xid.verified) == ("unknown", None, "", False)
    assert XIDS.of(175).known
    assert XIDS.of(175).severity == "unknown"


def test_codes_that_are_not_in_use_say_so() -> None:
    assert XIDS.of(1).unused
    assert XIDS.of(1).meaning == "not in use"
    assert not XIDS.of(79).unused


def test_older_gpus_mean_something_else_by_some_codes() -> None:
    assert "page" in XIDS.of(63, "volta").meaning
    assert "page" in XIDS.of(63, "kepler").meaning
    for architecture in (None, "ampere", "hopper", "blackwell_rtx", "nobody's"):
        assert "row" in XIDS.of(63, architecture).meaning
    assert XIDS.of(79, "volta") == XIDS.of(79)


def test_codes_of_some_architectures_only() -> None:
    assert XIDS.of(74).applies_to == ("ampere", "hopper")
    assert XIDS.of(149).applies_to == ("blackwell", "blackwell_ultra")
    assert XIDS.of(79).applies_to == ()


# -- messages that say more than their code -----------------------------------------------------------------


REMAP = "NVRM: Xid (PCI:0000:04:00): 145, RLW_REMAP {} XC0 i0 Link 00 (0x00000004 {} 0x00000000)"
LINK = "NVRM: Xid (PCI:0018:01:00): 149, pid=1, name=a, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)"


def test_a_unit_of_nvlink_5_is_decoded_by_its_second_word() -> None:
    (row,) = XIDS.decode_text(REMAP.format("Nonfatal", "0x00000001"))
    assert (row.units, row.fatality, row.immediate.id) == (("RLW_REMAP",), "nonfatal", "XID_154_EVAL")
    (row,) = XIDS.decode_text(REMAP.format("Fatal", "0x00000040"))
    assert (row.fatality, row.immediate.id) == ("fatal", "RESET_GPU")
    (row,) = XIDS.decode_text(LINK)
    assert (row.fatality, row.immediate.id) == ("link_fatal", "RESET_GPU")
    assert "INVESTIGATE_PEER_DEVICE" in [action.id for action in row.investigatory]


def test_a_status_may_have_several_bits_but_numbers_of_events_are_no_bits() -> None:
    assert [row.status for row in XIDS.decode(146, "TLW_RX", 0x5)] == [0x1, 0x4]
    assert [row.status for row in XIDS.decode(149, "NETIR_MFDE_EVENT", 0x5)] == [0x5]
    assert [row.status for row in XIDS.decode(149, "NETIR_BER_EVENT", 0x3)] == [0x3]


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:04:00): 145, NEW_UNIT Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)",
        "NVRM: Xid (PCI:0000:04:00): 145, RLW_REMAP Nonfatal",
        "NVRM: Xid (PCI:0000:04:00): 79, GPU has fallen off the bus.",
        "",
    ],
)
def test_what_cannot_be_decoded_is_not_guessed(text: str) -> None:
    assert XIDS.decode_text(text) == ()


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        (REMAP.format("Nonfatal", "0x00000001"), "warn"),
        (REMAP.format("Nonfatal", "0x00000100"), "info"),
        (REMAP.format("Fatal", "0x00000040"), "critical"),
        (LINK, "critical"),
        ("NVRM: Xid (PCI:0000:04:00): 145, NEW_UNIT Nonfatal XC0 (0x4 0x1)", "warn"),
        (
            "NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)",
            "critical",
        ),
        (
            "NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from 0x1 (Reset) to 0x0 (None)",
            "info",
        ),
        ("NVRM: Xid (PCI:0000:04:00): 154, in words nobody knows", "depends"),
        ("NVRM: Xid (PCI:0000:04:00): 79, GPU has fallen off the bus.", "critical"),
        ("NVRM: Xid (PCI:0000:04:00): 13, Graphics Exception", "warn"),
        ("NVRM: Xid (PCI:0000:04:00): 4711, new", "unknown"),
    ],
)
def test_how_bad_a_line_is(line: str, severity: str) -> None:
    event = xid_of(line)
    assert event is not None
    assert XIDS.severity_of(event) == severity


def test_facts_name_units_for_the_codes_that_have_rows() -> None:
    assert {row.xid for row in XIDS.units} == set(NVLINK5)


# -- switches and recovery ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "fatal", "action"),
    [
        (20034, True, "RESET_GPU"),
        (23001, True, "RESET_FABRIC"),
        (23017, True, "RESET_FABRIC"),
        (22013, False, "IGNORE"),
        (11022, False, "IGNORE"),
        (28003, True, "CHECK_THERMALS"),
        (28004, False, "IGNORE"),
    ],
)
def test_codes_of_switches(code: int, fatal: bool, action: str) -> None:
    sxid = XIDS.sxid(code)
    assert sxid is not None
    assert (sxid.fatal, sxid.immediate.id) == (fatal, action)


def test_a_code_of_a_switch_that_nobody_knows() -> None:
    assert XIDS.sxid(23018) is None


def test_recovery_actions_have_the_numbers_of_nvml() -> None:
    names = [XIDS.recovery_actions[number].name for number in range(8)]
    assert names[:5] == ["none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"]
    assert names[5:] == ["recover_imex_domain", "bus_reset", "system_reboot"]


def test_find_takes_numbers_and_mnemonics() -> None:
    for text in ("79", "Xid 79", "xid79", "robust_channel_gpu_has_fallen_off_the_bus"):
        assert XIDS.find(text).code == 79
    assert XIDS.find_sxid("SXid 23002").codes == "23001-23017"
    assert XIDS.find_sxid("23001-23017").first == 23001
    with pytest.raises(InputError, match="did you mean GSP_RPC_TIMEOUT"):
        XIDS.find("gsp_rpc")
    with pytest.raises(InputError, match="no SXid 99999"):
        XIDS.find_sxid("99999")


def test_a_site_may_think_otherwise(tmp_path: Path) -> None:
    (tmp_path / "xids.yaml").write_text(
        'xids:\n  - {id: "31", severity: critical, source: our own incident of spring, verified: true}\n'
        '  - {id: "900", mnemonic: OURS, meaning: a test, severity: info, source: our own lab, verified: false}\n'
    )
    xids = load(tmp_path).xids
    assert xids.of(31).severity == "critical"
    assert xids.of(31).application_fault
    assert xids.of(900).meaning == "a test"
    assert not xids.of(900).verified
