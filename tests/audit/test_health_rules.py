"""Every health rule fires on its known-bad sample, is silent on healthy hosts of all models, and cannot go missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fleet.audit.health
from fleet.audit.findings import Finding, Severity
from fleet.audit.health import COMPONENTS, evaluate, rules
from fleet.audit.health.unknown import needs
from fleet.audit.rule import Rule
from tests.devices import HOSTS, absent
from tests.facts import health_facts, healthy_facts

E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741

# Deleting a rule, renaming one or making it milder must be a decision seen here.
EXPECTED = {
    "health.presence.unknown": E,
    "health.presence.count": E,
    "health.presence.missing": E,
    "health.presence.lost": E,
    "health.presence.reset_required": E,
    "health.presence.silent": E,
    "health.presence.unreadable": E,
    "health.presence.no_devices": E,
    "health.presence.gpu_error": E,
    "health.presence.timeout": E,
    "health.presence.error": E,
    "health.presence.recovery_action": E,
    "health.presence.vbios": W,
    "health.driver.not_loaded": E,
    "health.driver.library_mismatch": E,
    "health.driver.library_missing": E,
    "health.driver.tool_missing": E,
    "health.driver.unknown": W,
    "health.driver.library": E,
    "health.driver.disk": W,
    "health.driver.fabric_manager": E,
    "health.driver.fabric_manager_active": E,
    "health.xid.fault": E,
    "health.xid.noted": I,
    "health.xid.not_in_catalogue": W,
    "health.xid.fallen_off_bus": E,
    "health.xid.switch": E,
    "health.xid.log": W,
    "health.memory.uncorrected": E,
    "health.memory.sram_uncorrected": E,
    "health.memory.sram_threshold": E,
    "health.memory.corrected": W,
    "health.memory.change_pending": W,
    "health.memory.remap_pending": W,
    "health.memory.remap_failure": E,
    "health.memory.rows_remapped": E,
    "health.memory.banks_without_spares": W,
    "health.memory.retirement_pending": W,
    "health.memory.retired_pages": E,
    "health.pcie.width": W,
    "health.pcie.generation": W,
    "health.nvlink.inactive": E,
    "health.nvlink.errors": W,
    "health.fabric.state": E,
    "health.fabric.status": E,
    "health.fabric.health": E,
    "health.mig.change_pending": W,
    "health.mig.without_instance": W,
    "health.clocks.slowdown": E,
    "health.clocks.locked": I,
    "health.thermal.slowdown": E,
    "health.thermal.temperature": E,
    "health.power.brake": E,
    "health.power.limit": I,
    "health.power.implausible": I,
    "health.persistence.off": W,
    "health.processes.compute_mode": W,
    "health.processes.memory": W,
    "health.container.lost_gpu": E,
    "health.container.check": E,
    "health.interconnect.unknown": W,
    "health.interconnect.port": W,
    "health.interconnect.rate": W,
    "health.interconnect.errors": I,
    "health.interconnect.gpu_direct": W,
    "health.interconnect.acs": W,
    "health.interconnect.iommu": I,
    "health.age.stale": E,
    "health.unknown.value": W,
}
RULES = rules()


def sample_facts(rule: Rule) -> dict[str, Any]:
    return health_facts(rule.known_bad.model, rule.known_bad.facts)


def found(
    changes: dict[str, Any], model: str = "h100", wanted: dict[str, Any] | None = None
) -> list[Finding]:
    return evaluate(health_facts(model, changes), wanted or {})


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id.removeprefix("health.") for finding in findings]


def device(place: int = 0, **changes: Any) -> dict[str, Any]:
    """Changes to one device; ``__`` stands for a dot."""
    return {f"gpu_probe.devices.{place}.{name.replace('__', '.')}": value for name, value in changes.items()}


def test_exactly_these_rules_are_there() -> None:
    assert {rule.id: rule.severity for rule in RULES} == EXPECTED


def test_every_component_has_a_file_and_every_file_is_a_component() -> None:
    files = {path.stem for path in Path(fleet.audit.health.__file__).parent.glob("*.py")}
    assert files - {"__init__", "devices"} == set(COMPONENTS)
    assert all(rule.id.split(".")[1] in COMPONENTS for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_fires_on_its_known_bad_sample(rule: Rule) -> None:
    fired = rule.evaluate(sample_facts(rule), rule.known_bad.wanted)
    assert [finding.id for finding in fired] == [rule.id]
    assert fired[0].severity is rule.severity
    assert all((fired[0].what, fired[0].limit_source, fired[0].remedy))
    json.dumps(fired[0].as_json(), allow_nan=False)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_known_bad_sample_is_bad_for_that_one_reason(rule: Rule) -> None:
    fired = evaluate(sample_facts(rule), rule.known_bad.wanted)
    assert rule.id in [finding.id for finding in fired]
    assert {finding.id for finding in fired} == {rule.id}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_says_what_is_right_in_a_sentence(rule: Rule) -> None:
    assert rule.holds.endswith((".", "``."))
    assert len(rule.holds) < 200


@pytest.mark.parametrize("model", HOSTS)
def test_a_healthy_host_gives_no_finding(model: str) -> None:
    wanted = {"gpus": {"count": len(HOSTS[model])}}
    assert evaluate(health_facts(model), wanted) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_host_without_gpus_has_no_health_to_judge(rule: Rule) -> None:
    facts = healthy_facts({"gpu_probe": None, "gpu_probe_reason": "not_supported", "collected_at": None})
    assert rule.evaluate(facts, {}) == []


@pytest.mark.parametrize("path", needs())
@pytest.mark.parametrize("reason", ["error", "permission", "not_collected"])
def test_a_value_that_a_rule_needs_and_that_could_not_be_read_is_a_finding(path: str, reason: str) -> None:
    changes = {f"gpu_probe.devices.0.{path}": None}
    facts = health_facts("h100", changes)
    facts["gpu_probe"]["devices"][0]["absent"][path] = absent(reason, 999)
    (finding,) = evaluate(facts, {})
    assert (finding.id, finding.observed, finding.gpu) == ("health.unknown.value", None, HOSTS["h100"][0])
    assert path in finding.what


@pytest.mark.parametrize("path", needs())
def test_a_value_that_a_card_does_not_have_is_none(path: str) -> None:
    facts = health_facts("h100", {f"gpu_probe.devices.0.{path}": None})
    facts["gpu_probe"]["devices"][0]["absent"][path] = absent("not_supported", 3)
    assert evaluate(facts, {}) == []


def test_every_value_that_rules_look_at_is_among_those_that_must_be_known() -> None:
    """A rule that reads a value which no component needs would take its absence for health."""
    looked_at: set[str] = set()

    class Watched(dict[str, Any]):
        """A part of a device that notes what is read of it."""

        def __init__(self, value: dict[str, Any], path: str = "") -> None:
            super().__init__(value)
            self.path = path

        def get(self, name: str, default: Any = None) -> Any:
            value = super().get(name, default)
            if isinstance(value, dict) and name != "absent":
                return Watched(value, f"{self.path}{name}.")
            looked_at.add(self.path + name)
            return value

    facts = health_facts("h100", {"driver.holders": []})
    facts["gpu_probe"]["devices"] = [Watched(each) for each in facts["gpu_probe"]["devices"]]
    assert evaluate(facts, {"gpus": {"count": 8}}) == []
    identity = {
        "address",
        "status",
        "message",
        "uuid",
        "device_id",
        "subsystem_vendor_id",
        "subsystem_id",
        "absent",
    }
    # Read beside a value that must be known: a limit, or what makes a finding milder.
    beside = {
        "fabric.status", "fabric.health.degraded_bandwidth", "fabric.health.route_unhealthy",
        "fabric.health.access_timeout_recovery", "fabric.health.route_recovery",
        "fabric.health.incorrect_configuration",
        "gpu_utilization_percent", "implausible", "max_sm_clock_mhz", "pcie.sampled_under_load", "pcie.generation_max",
        "pcie.generation_max_gpu", "pcie.generation_max_host", "power_limit_default_w", "power_limit_enforced_w",
        "power_limit_w", "remapped_rows.histogram.low", "remapped_rows.histogram.none", "temperature_margin_c",
        "temperature_max_operating_c", "temperature_slowdown_c", "vbios_version",
    }  # fmt: skip
    assert looked_at - identity - beside <= set(needs())


class TestPresence:
    def test_counted_three_ways(self) -> None:
        facts = health_facts("h100")
        del facts["gpus"][3], facts["gpu_probe"]["devices"][3]
        (finding,) = evaluate(facts, {"gpus": {"count": 8}})
        assert finding.id == "health.presence.count"
        assert finding.what == "the PCI bus has 7 GPUs, NVML 7, the inventory says 8"
        assert finding.observed == {"pci": 7, "nvml": 7, "inventory": 8}
        assert evaluate(facts, {}) == []  # nobody said how many there should be

    @pytest.mark.parametrize("status", ["driver_not_loaded", "timeout", "driver_library_mismatch", "error"])
    def test_of_a_driver_that_does_not_answer_nobody_says_that_there_is_no_gpu(self, status: str) -> None:
        changes = {"gpu_probe.status": status, "gpu_probe.devices": []}
        counted = found(changes, wanted={"gpus": {"count": 9}})[0]
        assert counted.what == "the PCI bus has 8 GPUs, NVML unknown, the inventory says 9"
        assert counted.observed == {"pci": 8, "nvml": None, "inventory": 9}

    def test_a_gpu_that_nvml_leaves_out_counts_without_an_inventory(self) -> None:
        facts = health_facts("h100")
        del facts["gpu_probe"]["devices"][3]
        assert ids(evaluate(facts, {})) == ["presence.count"]

    def test_a_missing_gpu_is_named_by_address_and_slot_and_counted_once(self) -> None:
        facts = health_facts("h100")
        gone = facts["gpu_probe"]["devices"].pop(3)
        facts["gpu_probe"]["missing"] = [{"address": gone["address"], "slot": "6", "name": None}]
        (finding,) = evaluate(facts, {"gpus": {"count": 8}})
        assert (finding.id, finding.gpu) == ("health.presence.missing", "0000:61:00.0")
        assert "slot 6" in finding.what

    def test_of_a_lost_gpu_nothing_else_is_judged(self) -> None:
        gone = device(2, status="lost", message="GPU is lost", temperature_c=None, fabric__state=None)
        (finding,) = found(gone)
        assert (finding.id, finding.gpu) == ("health.presence.lost", "0000:52:00.0")

    def test_a_hung_gpu_is_named_and_said_once(self) -> None:
        changes = {**device(5, status="timeout"), "gpu_probe.status": "timeout"}
        (finding,) = found(changes)
        assert (finding.id, finding.gpu) == ("health.presence.silent", HOSTS["h100"][5])

    def test_gpus_handed_on_to_virtual_machines_do_not_count(self) -> None:
        facts = health_facts("h100", {"gpus.0.driver": "vfio-pci"})
        del facts["gpu_probe"]["devices"][0]
        assert evaluate(facts, {"gpus": {"count": 7}}) == []

    @pytest.mark.parametrize(
        ("status", "rule"),
        [
            ("driver_not_loaded", "driver.not_loaded"),
            ("driver_library_mismatch", "driver.library_mismatch"),
            ("library_missing", "driver.library_missing"),
            ("tool_missing", "driver.tool_missing"),
            ("no_devices", "presence.no_devices"),
            ("gpu_error", "presence.gpu_error"),
            ("container_lost_gpu", "container.lost_gpu"),
            ("timeout", "presence.timeout"),
            ("error", "presence.error"),
        ],
    )
    def test_each_way_not_to_answer_is_its_own_finding(self, status: str, rule: str) -> None:
        (finding,) = found({"gpu_probe.status": status, "gpu_probe.devices": []})
        assert finding.id == f"health.{rule}"
        assert finding.severity is E

    @pytest.mark.parametrize(
        "action", ["gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "bus_reset"]
    )
    def test_every_recovery_action_has_a_remedy(self, action: str) -> None:
        (finding,) = found(device(recovery_action=action))
        assert finding.id == "health.presence.recovery_action"
        assert "{" not in finding.remedy


class TestMemory:
    def test_pending_is_a_reset_and_failed_is_another_card(self) -> None:
        (pending,) = found(device(remapped_rows__pending=True, remapped_rows__uncorrected=4))
        (failed,) = found(device(remapped_rows__failure=True, remapped_rows__uncorrected=11))
        assert "gpu-reset" in pending.remedy
        assert "replaced" in failed.remedy
        assert (pending.severity, failed.severity) == (W, E)

    def test_a_page_that_waits_needs_a_reboot(self) -> None:
        (finding,) = found(device(retired_pages__pending=True), "t4")
        assert "reboot" in finding.remedy

    @pytest.mark.parametrize(("errors", "ill"), [(4, False), (5, True)])
    def test_sram_errors_over_a_life(self, errors: int, ill: bool) -> None:
        assert bool(found(device(ecc__aggregate_sram_uncorrected=errors))) is ill

    @pytest.mark.parametrize(("pages", "severity"), [(14, None), (15, W), (62, W), (63, E)])
    def test_retired_pages(self, pages: int, severity: Severity | None) -> None:
        severities = [finding.severity for finding in found(device(retired_pages__single_bit=pages), "t4")]
        assert severities == ([severity] if severity else [])

    def test_banks_that_are_low_are_told_and_no_fault(self) -> None:
        (finding,) = found(device(remapped_rows__histogram__low=3))
        assert finding.severity is I

    def test_a_change_of_ecc_or_mig_that_waits(self) -> None:
        facts = health_facts(
            "h100", {**device(1, ecc_mode_pending="disabled"), **device(2, mig__mode_pending="enabled")}
        )
        findings = [(finding.id, finding.gpu) for finding in evaluate(facts, {})]
        assert findings == [
            ("health.memory.change_pending", HOSTS["h100"][1]),
            ("health.mig.change_pending", HOSTS["h100"][2]),
        ]


class TestPcie:
    def test_a_low_generation_at_rest_says_nothing(self) -> None:
        assert found(device(pcie__generation=1)) == []

    def test_what_the_host_cannot_do_is_not_held_against_the_card(self) -> None:
        at_three = device(pcie__generation=3, pcie__generation_max_host=3, pcie__sampled_under_load=True)
        assert found(at_three) == []

    def test_a_benchmark_saw_the_link_under_load(self) -> None:
        uuid = health_facts("rtx4090")["gpu_probe"]["devices"][0]["uuid"]
        during = {
            "pcie_generation": 3,
            "pcie_width": 16,
            "clocks_event_reasons": [],
            "sm_clock_mhz_median": 3000,
        }
        record = {"gpus": [{"uuid": uuid, "state": "measured", "during": during}]}
        assert ids(found({"benchmark": record}, "rtx4090")) == ["pcie.generation"]

    def test_in_a_virtual_machine_the_slot_is_not_known(self) -> None:
        guest = device(virtualization_mode="passthrough", pcie__generation_max_host=None, pcie__width=8)
        (finding,) = found(guest, "t4")
        assert finding.severity is I


def nvl(active: int, count: int = 2) -> dict[str, Any]:
    """Hosts of H100 NVL: twelve of the chip's eighteen links are the board's."""
    facts = health_facts("h100", {"nvswitches": []})
    for gpu in (*facts["gpus"], *facts["gpu_probe"]["devices"]):
        gpu["device_id"] = "2321"
    facts["gpus"], facts["gpu_probe"]["devices"] = (
        facts["gpus"][:count],
        facts["gpu_probe"]["devices"][:count],
    )
    for gpu in facts["gpu_probe"]["devices"]:
        for link in gpu["nvlinks"]:
            link["active"] = link["link"] < active
    return facts


class TestNvlink:
    def test_an_h100_nvl_has_twelve_of_eighteen(self) -> None:
        assert evaluate(nvl(12), {}) == []
        (first, _) = evaluate(nvl(11), {})
        assert (first.id, first.limit, first.severity) == ("health.nvlink.inactive", 12, W)

    def test_cards_without_a_bridge_are_whole(self) -> None:
        assert evaluate(nvl(0), {}) == []

    @pytest.mark.parametrize(("switches", "severities"), [([], []), (None, [E])])
    def test_links_of_which_only_is_known_that_none_is_active(
        self, switches: list[Any] | None, severities: list[Severity]
    ) -> None:
        """nvidia-smi says "all links are inactive", and not how many: no fault of a card without a bridge."""
        changes = {"gpu_probe.devices.0.nvlinks": []} | ({} if switches is None else {"nvswitches": switches})
        assert [finding.severity for finding in found(changes)] == severities

    def test_the_inventory_knows_best(self) -> None:
        (first, _) = evaluate(nvl(0), {"gpus": {"nvlinks": 12}})
        assert (first.severity, first.limit_source) == (E, "gpu_nvlinks in the inventory")

    def test_a_card_that_the_catalogue_does_not_know_is_no_failure(self) -> None:
        unknown = {f"gpu_probe.devices.{place}.device_id": "ffff" for place in range(8)}
        assert found({**unknown, **device(0, nvlinks__3__active=False)}) == []

    def test_all_links_of_a_switched_board_count(self) -> None:
        changes = {f"gpu_probe.devices.0.nvlinks.{link}.active": False for link in range(18)}
        (finding,) = found(changes)
        assert (finding.what, finding.severity) == ("0 of 18 NVLinks are active", E)

    def test_crc_errors_count_by_rate(self) -> None:
        assert found(device(0, nvlinks__3__crc_flit_errors=86_400 * 99)) == []
        assert ids(found(device(0, nvlinks__3__crc_flit_errors=86_400 * 100))) == ["nvlink.errors"]


class TestFabric:
    def test_completed_with_an_error_is_not_well(self) -> None:
        assert ids(found(device(fabric__status=999))) == ["fabric.status"]

    def test_after_a_boot_it_trains_first(self) -> None:
        (finding,) = found({**device(fabric__state="in_progress"), "uptime_s": 60.0})
        assert finding.severity is W

    def test_a_wrong_configuration_has_a_name(self) -> None:
        (finding,) = found(device(fabric__health__incorrect_configuration="no_partition"))
        assert "no partition" in finding.what
        assert found(device(fabric__health__incorrect_configuration="none")) == []


class TestClocksThermalPower:
    def test_idle_and_a_power_cap_are_no_faults(self) -> None:
        assert found(device(clocks_event_reasons=["gpu_idle", "sw_power_cap"])) == []

    def test_a_hot_card_is_said_to_be_hot_and_nothing_more(self) -> None:
        hot = device(clocks_event_reasons=["hw_slowdown", "hw_thermal_slowdown"], temperature_c=92)
        (finding,) = found(hot)
        assert (finding.id, finding.severity) == ("health.thermal.slowdown", E)
        assert "92 °C" in finding.what

    def test_locked_clocks_are_told_by_draw_where_nobody_knows_utilisation(self) -> None:
        busy = device(
            clocks_event_reasons=[], gpu_utilization_percent=None, power_draw_w=310.0, sm_clock_mhz=1507
        )
        (finding,) = found(busy)
        assert (
            finding.what == "SM clock 1507 of 1980 MHz under load and no reason given: locked clocks likely"
        )
        assert finding.severity is I

    def test_a_reading_that_cannot_be_is_a_remark(self) -> None:
        (finding,) = found(
            device(power_draw_w=588.0, power_limit_w=35.0, implausible=["power_draw_w"]), "rtx4090"
        )
        assert finding.what.startswith("power_draw_w 588 of a limit of 35 W cannot be")

    def test_no_margin_left(self) -> None:
        assert ids(found(device(temperature_margin_c=0))) == ["thermal.temperature"]


class TestPersistence:
    @pytest.mark.parametrize(
        ("daemon", "words", "remedy"),
        [
            ({"active": False, "state": "inactive", "condition": "unmet"}, "was skipped, for a", "modules-load"),
            ({"active": False, "state": "failed", "condition": "met"}, "nvidia-persistenced failed", "journalctl"),
            ({"active": False, "state": "inactive", "condition": None}, "is not active", "enable --now"),
            ({"active": False}, "is not active", "enable --now"),
            ({"active": True}, "though nvidia-persistenced runs", "enable --now"),
        ],
    )  # fmt: skip
    def test_off_with_what_the_daemon_has_to_do_with_it(
        self, daemon: dict[str, Any], words: str, remedy: str
    ) -> None:
        (finding,) = found({**device(persistence_mode=False), "driver.persistence_daemon": daemon})
        assert (finding.id, finding.severity) == ("health.persistence.off", W)
        assert words in finding.what
        assert ("failed" in finding.what) == (daemon.get("state") == "failed")
        assert remedy in finding.remedy

    def test_right_after_a_boot_it_is_not_judged(self) -> None:
        assert found({**device(persistence_mode=False), "uptime_s": 30.0}) == []


def xid(code: int, **changes: Any) -> dict[str, Any]:
    return {
        "code": code, "address": "0000:52:00.0", "printed_address": "PCI:0000:52:00", "gpu_instance": None, "pid": None,
        "process": None, "first_at": None, "last_at": None, "count": 1, "text": "", "caused_by": None, "subcode": None,
        "fatal": None, "recovery_action": None, **changes,
    }  # fmt: skip


class TestXid:
    @pytest.mark.parametrize("code", [13, 31, 43])
    def test_a_programs_own_fault_takes_no_host_out(self, code: int) -> None:
        (finding,) = found({"kernel_log.xids": [xid(code, pid=7, process="python")]})
        assert (finding.id, finding.severity) == ("health.xid.noted", I)
        assert "python, pid 7" in finding.what

    @pytest.mark.parametrize(
        ("code", "severity"),
        [(48, E), (63, W), (64, E), (74, E), (79, E), (92, W), (94, W), (95, E), (119, E), (120, E)],
    )
    def test_as_bad_as_the_catalogue_says(self, code: int, severity: Severity) -> None:
        (finding,) = found({"kernel_log.xids": [xid(code, count=3)]})
        assert (finding.id, finding.severity, finding.gpu) == ("health.xid.fault", severity, "0000:52:00.0")
        assert "3 times" in finding.what

    def test_an_echo_is_not_counted_again(self) -> None:
        findings = found({"kernel_log.xids": [xid(79), xid(45, caused_by=79)]})
        assert ids(findings) == ["xid.fault"]

    def test_a_recovery_that_is_asked_for(self) -> None:
        assert ids(found({"kernel_log.xids": [xid(154, recovery_action=1)]})) == ["xid.fault"]
        assert ids(found({"kernel_log.xids": [xid(154, recovery_action=0)]})) == ["xid.noted"]

    def test_a_log_that_lost_its_beginning_is_told(self) -> None:
        (finding,) = found({"kernel_log.overwritten": True, "kernel_log.begins_at": "2026-11-30T09:00:00Z"})
        assert (finding.id, finding.severity) == ("health.xid.log", I)


class TestAge:
    @pytest.mark.parametrize(("after_s", "stale"), [(3600.0, False), (3601.0, True)])
    def test_a_report_is_believed_for_its_time(self, after_s: float, stale: bool) -> None:
        noon = 1_796_040_000.0
        assert bool(found({}, wanted={"now_unix": noon + after_s, "age_limit_s": 3600.0})) is stale

    def test_facts_without_a_time_are_stale(self) -> None:
        assert ids(found({"collected_at": None}, wanted={"now_unix": 1.0})) == ["age.stale"]


def test_a_partial_capture_is_not_blamed_for_what_was_not_asked() -> None:
    facts = health_facts("h100", device(temperature_c=None))
    facts["gpu_probe"]["devices"][0]["absent"]["temperature_c"] = absent("not_collected")
    assert evaluate(facts, {"partial": True}) == []
    facts["gpu_probe"]["devices"][0]["absent"]["temperature_c"] = absent("error", 999)
    assert ids(evaluate(facts, {"partial": True})) == ["unknown.value"]


def test_what_could_not_be_read_says_what_was_read_instead() -> None:
    facts = health_facts("rtx4090", device(fan_speed_percent=None))
    facts["gpu_probe"]["devices"][0]["absent"]["fan_speed_percent"] = absent("error", None, "ERR!")
    (finding,) = evaluate(facts, {})
    assert finding.what == "not known: fan_speed_percent (reading failed: ERR!)"


def test_same_facts_same_findings() -> None:
    facts = health_facts("h100", {**device(1, persistence_mode=False), **device(2, status="lost")})
    assert evaluate(facts, {}) == evaluate(facts, {})


def test_no_rule_believes_a_value_that_cannot_be() -> None:
    facts = health_facts("t4")
    device = facts["gpu_probe"]["devices"][0]
    device.update(temperature_c=255, gpu_utilization_percent=255, sm_clock_mhz=300, clocks_event_reasons=[])
    device["implausible"] = ["temperature_c", "gpu_utilization_percent"]
    assert {finding.id for finding in evaluate(facts, {})} == {"health.power.implausible"}
