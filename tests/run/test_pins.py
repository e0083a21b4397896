"""A version that one host cannot have refuses the whole run, before any host is touched."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.protocol import plan_hash
from fleet.core.connection import ConnectionSettings
from fleet.core.errors import ExitCode, HostUnreachable
from fleet.core.events import Event
from fleet.inventory import load_inventory
from fleet.playbook.load import load_playbook
from fleet.playbook.options import RunOptions
from fleet.playbook.pins import may_be_pinned
from fleet.run.bus import EventBus
from fleet.run.control import Control
from fleet.run.engine import Engine, RunResult
from fleet.run.request import RunRequest
from tests.facts import healthy_facts

PIN, NEWER = "1.4.2-1", "1.4.9-1"
INVENTORY = "all: {hosts: {gpu01: {ansible_host: 192.0.2.1}, gpu02: {ansible_host: 192.0.2.2}}}\n"
PINNED = f"- hosts: all\n  tasks:\n    - group: {{name: ops}}\n    - package: {{name: tool={PIN}}}\n"


class Agent:
    """Of a host whose repositories offer some versions; ``asked`` are the requests it got."""

    seen_from = None
    alive = True

    def __init__(self, name: str, versions: list[str], asked: list[tuple[str, str]]) -> None:
        boot = f"00000000-0000-4000-8000-00000000000{name[-1]}"
        self.hello: Mapping[str, Any] = {"clock_unix": time.time(), "machine_id": name, "boot_id": boot}
        self.name, self.versions, self.asked = name, versions, asked

    def request(self, method: str, params: Any = None, **options: Any) -> Any:
        self.asked.append((self.name, method))
        if method == "facts":
            return healthy_facts()
        if method == "query":
            value = {"tool": self.versions}
            return {"answers": {one["id"]: {"ok": True, "value": value} for one in params["queries"]}}
        if method == "journal":
            return {"records": []}
        if method == "check":
            results = [{"step": step["id"], "status": "ok"} for step in params["plan"]["steps"]]
            return {"results": results, "hash": plan_hash(params["plan"])}
        raise AssertionError(f"{self.name} was touched: {method}")

    def pump(self, seconds: float) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        pass


class Site:
    """Two hosts; ``offered`` says what each one's repositories have. None: it does not answer."""

    def __init__(self, folder: Path, playbook: str, offered: Mapping[str, list[str] | None]) -> None:
        (folder / "site.yaml").write_text(INVENTORY)
        (folder / "play.yaml").write_text(playbook)
        self.inventory = load_inventory(folder / "site.yaml")
        self.playbook = load_playbook(folder / "play.yaml")
        self.offered = offered
        self.asked: list[tuple[str, str]] = []
        self.connections = 0
        self.applied: set[str] = set()
        self.events: list[Event] = []

    def connect(self, settings: ConnectionSettings) -> Agent:
        self.connections += 1
        versions = self.offered[settings.name]
        if versions is None:
            raise HostUnreachable("no answer", host=settings.name)
        return Agent(settings.name, versions, self.asked)

    def handle(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass

    def play(self, *, resuming: bool = False, **request: Any) -> RunResult:
        bus = EventBus("r1", [self], lambda text: text)
        settings = {name: host.connection() for name, host in self.inventory.hosts.items()}
        asked = RunRequest("site.yaml", "play.yaml", **request)
        ledger: Any = self
        engine = Engine(
            "r1",
            self.inventory,
            self.playbook,
            asked,
            self.connect,
            bus,
            ledger,
            Control(),
            settings=settings,
            resuming=resuming,
        )
        result = engine.play()
        bus.close()
        return result

    def saved(self, host: str) -> list[Any]:
        """As a ledger: what an earlier life of the run applied."""
        return [object()] if host in self.applied else []

    def methods(self, host: str) -> list[str]:
        return [method for name, method in self.asked if name == host]


def test_a_pin_that_is_gone_from_one_hosts_repositories_refuses_all(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [NEWER, PIN], "gpu02": [NEWER]})
    result = site.play()
    first, second = result.outcomes["gpu01"], result.outcomes["gpu02"]
    assert (first.status, second.status) == ("skipped", "failed")
    assert first.reason == (
        "not started: a version that is pinned cannot be had on gpu02; no host was changed"
    )
    assert second.reason == (
        f"pin_not_available: tool {PIN} is in no repository of this host; offered: {NEWER}"
    )
    assert site.methods("gpu01") == site.methods("gpu02") == ["facts", "query"]
    assert [event.host for event in site.events if event.kind == "controller_result"] == ["gpu02"]
    assert result.exit_code == ExitCode.FAILED


def test_batches_that_come_later_are_asked_first_too(tmp_path: Path) -> None:
    serial = PINNED.replace("  tasks", "  serial: 1\n  tasks")
    site = Site(tmp_path, serial, {"gpu01": [PIN], "gpu02": [NEWER]})
    assert site.play().outcomes["gpu01"].status == "skipped"
    assert "check" not in site.methods("gpu01")


def test_a_refused_run_that_is_resumed_is_refused_again(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [PIN], "gpu02": [NEWER]})
    assert site.play(resuming=True).outcomes["gpu01"].status == "skipped"


def test_a_run_that_had_begun_is_gone_on_with(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [PIN], "gpu02": [NEWER]})
    site.applied = {"gpu01"}
    outcomes = site.play(resuming=True).outcomes
    assert (outcomes["gpu01"].status, outcomes["gpu02"].status) == ("converged", "failed")


def test_where_every_host_can_have_it_the_run_goes_on(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [PIN], "gpu02": [NEWER, PIN]})
    assert {one.status for one in site.play().outcomes.values()} == {"converged"}


def test_a_host_that_does_not_answer_is_its_own_matter(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [PIN], "gpu02": None})
    outcomes = site.play().outcomes
    assert (outcomes["gpu01"].status, outcomes["gpu02"].status) == ("converged", "unreachable")


def test_a_host_alone_is_refused_before_what_comes_before_the_pin(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [PIN], "gpu02": [NEWER]})
    outcome = site.play(limit="gpu02").outcomes["gpu02"]
    assert (outcome.status, (outcome.reason or "")[:18]) == ("failed", "pin_not_available:")
    assert site.methods("gpu02") == ["facts", "query"]


def test_a_check_tells_of_every_host_what_it_finds(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED, {"gpu01": [PIN], "gpu02": [NEWER]})
    outcomes = site.play(check=True).outcomes
    assert (outcomes["gpu01"].status, outcomes["gpu02"].status) == ("converged", "failed")


def test_nobody_is_asked_twice_where_nothing_is_pinned(tmp_path: Path) -> None:
    site = Site(tmp_path, PINNED.replace(f"={PIN}", ""), {"gpu01": [], "gpu02": []})
    site.play()
    assert site.connections == 2


def test_a_repository_that_the_play_brings_may_have_it(tmp_path: Path) -> None:
    brings = PINNED.replace(
        "group: {name: ops}", "copy: {dest: /etc/apt/sources.list.d/x.list, content: deb}"
    )
    site = Site(tmp_path, brings, {"gpu01": [PIN], "gpu02": [NEWER]})
    site.play()
    assert "check" in site.methods("gpu02"), "it may be offered once that is there"


@pytest.mark.parametrize(
    ("task", "variables", "pinned"),
    [
        ("docker_engine: {version: '{{ v }}'}", {"v": None}, False),
        ("docker_engine: {version: '{{ v }}'}", {"v": "27.5.1"}, True),
        ("docker_engine: {version: '{{ v | default(omit) }}'}", {}, False),
        ("docker_engine: {version: '{{ facts.os.id }}'}", {}, True),
        ("docker_engine: {}", {}, False),
        ("nvidia_driver: {branch: '580', repository: {trusted: true}}", {}, False),
        ("package: {name: '{{ each }}'}", {"each": ["a", "b=1"]}, True),
        ("apt: {pkg: [a, b]}", {}, False),
    ],
)
def test_what_counts_as_a_pin(tmp_path: Path, task: str, variables: dict[str, Any], pinned: bool) -> None:
    (tmp_path / "play.yaml").write_text(f"- hosts: all\n  tasks:\n    - {task}\n")
    play = load_playbook(tmp_path / "play.yaml").plays[0]
    assert may_be_pinned(play, "gpu01", variables, RunOptions()) is pinned
