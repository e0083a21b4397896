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
