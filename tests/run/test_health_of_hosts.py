"""Health of hosts, asked live, from captures and from the store; and at the end of a run."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import BecomeFailed, ConnectFailed, ExitCode, InputError
from fleet.core.schema import validate
from fleet.core.secret import Scrubber
from fleet.inventory import LoadOptions
from fleet.run import health
from fleet.run.asking import Asked, not_permitted
from fleet.run.health import captured, document, last_known, live
from fleet.store import Store
from tests.devices import absent, healthy_probe
from tests.facts import health_facts

NOW = 1_796_040_000.0  # when the facts of the tests were collected
PLAIN = LoadOptions()


class FakeAgent:
    """Answers with facts; ``uid`` is whom it runs as."""

    def __init__(self, facts: dict[str, Any], uid: int) -> None:
        self.hello = {"uid": uid}
        self.asked: list[str] = []
        self._facts = facts

    def request(self, method: str, params: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        self.asked.append(method)
        return self._facts

    def close(self) -> None:
        pass


class FakeConnector:
    """Hosts by name: facts, or the error that connecting raises. ``sudo``: whether becoming root works."""

    hosts: dict[str, Any]
    sudo = True
    agents: list[FakeAgent]

    def __init__(self, scrubber: Scrubber, *, accept_new: bool) -> None:
        self.agents = type(self).agents

    def connect(self, settings: ConnectionSettings) -> FakeAgent:
        known = self.hosts[settings.name]
        if isinstance(known, Exception):
            raise known
        if settings.become.enabled and not self.sudo:
            raise BecomeFailed("sudo needs a password to become root")
        self.agents.append(FakeAgent(known, 0 if settings.become.enabled else 1000))
        return self.agents[-1]

    def close(self) -> None:
        pass


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> type[FakeConnector]:
    fake = type("Fake", (FakeConnector,), {"hosts": {}, "agents": []})
    monkeypatch.setattr("fleet.run.live.Connector", fake)
    return fake


def inventory(folder: Path, text: str = "", names: tuple[str, ...] = ("gpu01", "gpu02")) -> str:
    file = folder / "site.yaml"
    hosts = "".join(f"    {name}: {{ansible_host: 192.0.2.1, ansible_become: true}}\n" for name in names)
    file.write_text(f"all:\n{text}  hosts:\n{hosts}", encoding="utf-8")
    return str(file)


def asked(folder: Path, text: str = "", **more: Any) -> Asked:
    return Asked(inventory(folder, text), **more)


class TestLive:
    def test_reads_facts_and_nothing_else(self, tmp_path: Path, connector: type[FakeConnector]) -> None:
        connector.hosts = {"gpu01": health_facts("h100"), "gpu02": health_facts("rtx4090")}
        found = live(asked(tmp_path), PLAIN, Scrubber())
        assert [(host.name, host.status, host.root) for host in found] == [
            ("gpu01", "healthy", True),
            ("gpu02", "healthy", True),
        ]
        assert [agent.asked for agent in connector.agents] == [["facts"], ["facts"]]

    def test_without_root_it_goes_as_far_as_it_can_and_says_so(
        self, tmp_path: Path, connector: type[FakeConnector]
    ) -> None:
        connector.sudo = False
        facts = health_facts("h100", {"kernel_log": None, "kernel_log_reason": "permission"})
        connector.hosts = {"gpu01": facts}
        (host,) = live(asked(tmp_path, limit="gpu01"), PLAIN, Scrubber())
        assert (host.root, host.status) == (False, "warning")
        assert [finding.id for finding in host.findings] == ["health.xid.log"]
        assert host.notes == [
            "asked without root: sudo needs a password to become root",
            "not permitted to read: kernel_log",
        ]

    def test_what_the_inventory_expects(self, tmp_path: Path, connector: type[FakeConnector]) -> None:
        connector.hosts = {"gpu01": health_facts("h100")}
        (host,) = live(asked(tmp_path, "  vars: {gpu_count: 9}\n", limit="gpu01"), PLAIN, Scrubber())
        assert [finding.id for finding in host.findings] == ["health.presence.count"]

    def test_an_expectation_that_is_no_number_has_its_place(
        self, tmp_path: Path, connector: type[FakeConnector]
    ) -> None:
        with pytest.raises(InputError) as caught:
            live(asked(tmp_path, '  vars: {gpu_count: "eight"}\n'), PLAIN, Scrubber())
        assert "site.yaml:2:" in str(caught.value.problems[0].position)
        assert connector.agents == []

    def test_a_host_that_does_not_answer_leaves_the_others(
        self, tmp_path: Path, connector: type[FakeConnector]
    ) -> None:
        lost = health_facts("h100", {"gpu_probe.devices.2.status": "lost"})
        connector.hosts = {"gpu01": ConnectFailed("no answer", remedy="look at sshd"), "gpu02": lost}
        made = document(live(asked(tmp_path), PLAIN, Scrubber()), source="live", inventory="site.yaml")
        assert made["counts"] == {"unreachable": 1, "error": 1}
        assert made["exit_code"] == ExitCode.UNREACHABLE
        assert validate(made, "health") == []


class TestDocument:
    @pytest.mark.parametrize(
        ("changes", "fail_on", "code"),
        [
            ({}, "warning", 0),
            ({"gpu_probe.devices.0.pcie.width": 8}, "error", 0),
            ({"gpu_probe.devices.0.pcie.width": 8}, "warning", 4),
            ({"gpu_probe.devices.0.status": "lost"}, "error", 4),
        ],
    )
    def test_exit_codes(
        self, changes: dict[str, Any], fail_on: str, code: int, tmp_path: Path, connector: type[FakeConnector]
    ) -> None:
        connector.hosts = {"gpu01": health_facts("h100", changes)}
        hosts = live(asked(tmp_path, limit="gpu01"), PLAIN, Scrubber())
        made = document(hosts, source="live", inventory="site.yaml", fail_on=fail_on)
        assert made["exit_code"] == code
        assert validate(made, "health") == []

    def test_gpus_that_nvml_tells_nothing_of_are_listed_all_the_same(
        self, tmp_path: Path, connector: type[FakeConnector]
    ) -> None:
        changes = {"gpu_probe.status": "driver_not_loaded", "gpu_probe.devices": []}
        connector.hosts = {"gpu01": health_facts("h100", changes)}
        hosts = live(asked(tmp_path, limit="gpu01"), PLAIN, Scrubber())
        made = document(hosts, source="live", inventory=None)
        assert {gpu["status"] for gpu in made["hosts"]["gpu01"]["gpus"]} == {"unknown"}
        assert validate(made, "health") == []

    def test_a_gpu_is_named_by_address(self, tmp_path: Path, connector: type[FakeConnector]) -> None:
        connector.hosts = {"gpu01": health_facts("h100", {"gpu_probe.devices.0.status": "lost"})}
        hosts = live(asked(tmp_path, limit="gpu01"), PLAIN, Scrubber())
        made = document(hosts, source="live", inventory=None)
        assert made["hosts"]["gpu01"]["findings"][0]["gpu"] == "0000:1b:00.0"
        assert made["causes"][0]["hosts"] == {"gpu01": ["0000:1b:00.0"]}


def report(facts: dict[str, Any] | None, run: str, host: str) -> dict[str, Any]:
    return {"schema": "fleet.report/1", "run": run, "host": host, "facts": facts}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def keep(store: Store, run: str, host: str, facts: dict[str, Any] | None) -> None:
    store.create_run(
        run,
        playbook="p",
        inventory="i",
        operator="o",
        controller="c",
        hosts=[host],
        check=False,
        arguments={},
    )
    store.put_report(run, host, report(facts, run, host))


class TestLastReports:
    def test_the_newest_with_facts_counts(
        self, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fleet.run.health.time.time", lambda: NOW + 60)
        keep(store, "a" * 12, "gpu01", health_facts("h100", {"gpu_probe.devices.0.status": "lost"}))
        keep(store, "b" * 12, "gpu01", health_facts("h100"))
        keep(store, "c" * 12, "gpu01", None)
        found = last_known(asked(tmp_path), PLAIN, store)
        assert [(host.name, host.status, host.run) for host in found] == [
            ("gpu01", "healthy", "b" * 12),
            ("gpu02", "no_report", None),
        ]
        made = document(found, source="reports", inventory="site.yaml", now=lambda: NOW + 60)
        assert made["hosts"]["gpu01"]["age_s"] == 60.0
        assert made["exit_code"] == ExitCode.FINDINGS  # of gpu02 nothing is known
        assert validate(made, "health") == []

    def test_an_old_one_is_stale_and_not_healthy(
        self, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fleet.run.health.time.time", lambda: NOW + 7200)
        keep(store, "a" * 12, "gpu01", health_facts("h100"))
        (host,) = last_known(asked(tmp_path, limit="gpu01"), PLAIN, store)
        assert host.status == "stale"
        assert host.exit_code("error") is ExitCode.FINDINGS


class TestCaptures:
    def test_a_file_is_judged_as_a_host_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        probe = healthy_probe("h100", {"devices.0.status": "lost", "devices.1.temperature_c": None})
        probe["devices"][1]["absent"]["temperature_c"] = absent("not_collected")
        captures: Any = types.ModuleType("fleet.audit.captures")
        captures.load = lambda path: probe
        monkeypatch.setitem(sys.modules, "fleet.audit.captures", captures)
        (host,) = captured([tmp_path / "gpu07.xml"])
        assert [finding.id for finding in host.findings] == ["health.presence.lost"]
        assert host.notes[-1] == "not in the capture: temperature_c"
        assert validate(document([host], source="captures", inventory=None), "health") == []


def test_what_was_not_permitted_is_found_at_any_depth() -> None:
    facts = {"a_reason": "permission", "driver": {"holders_reason": "permission", "b_reason": "error"}}
    assert sorted(not_permitted(facts)) == ["a", "driver.holders"]


def test_a_host_in_no_state_is_not_healthy() -> None:
    assert health.HostHealth("gpu01").status == "no_report"
    assert replace(health.HostHealth("gpu01"), facts={}).status == "healthy"
