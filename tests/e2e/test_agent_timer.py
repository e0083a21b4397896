"""The agent's own unit on a real host: it refreshes the report, moves on with fleet, can do no harm, and goes.

systemd runs it here and not the test; the witnesses are its files, its journal, promtool, node_exporter and
a process in the very same sandbox.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.core.schema import validate
from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from fleet.lab.snapshot import snapshot
from tests.conftest import HostFactory
from tests.e2e.harness import Fleet, playbook

pytestmark = pytest.mark.lab

METRICS = "/srv/metrics"
CURRENT = "/var/lib/fleet/agent/current"
# Other at every reading, whoever reads.
MOVING = ("collected_at", "unix", "uptime_s", "lists_age_s", "free_bytes", "free_inodes", "lock_holder")
TRIAL = """\
import json, os, socket
def outcome(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
acts = {
    "port": lambda: socket.socket(socket.AF_INET),
    "port6": lambda: socket.socket(socket.AF_INET6),
    "a device": lambda: open("/dev/other"),
    "who holds a gpu": lambda: os.readlink("/proc/1/fd/0"),
    "settings": lambda: open("/etc/was-here", "w"),
    "kernel": lambda: open("/proc/sys/kernel/hostname", "r+"),
    "bundle": lambda: open("/var/lib/fleet/agent/was-here", "w"),
    "metrics": lambda: open("/srv/metrics/was-here", "w"),
}
found = {name: outcome(act) for name, act in acts.items()}
with open("/var/lib/fleet/trial.json", "w") as file:
    json.dump(found, file)
"""


class Scene:
    """A host, and fleet with a playbook of one task, ``agent``."""

    def __init__(self, lab: Lab, name: str, fleet: Fleet, inventory: Path) -> None:
        self.lab, self.host, self.fleet, self.inventory = lab, name, fleet, str(inventory)
        self.shell("mkdir " + METRICS)

    def play(self, *options: str, **args: Any) -> dict[str, dict[str, Any]]:
        """Have the agent as ``args`` say; the steps that ended otherwise than ok, by their part's name."""
        book = playbook(self.fleet.folder, [{"name": "The agent", "agent": args}, {"facts_report": None}])
        done = self.fleet("run", self.inventory, str(book), *options)
        assert done.code == 0, done.said
        steps = self.fleet.reports()[self.host]["steps"]
        return {step["id"].rpartition(".")[2]: step for step in steps if step["status"] != "ok"}

    def shell(self, script: str) -> str:
        return faults.shell(self.lab, self.host, script)

    def refresh(self) -> dict[str, Any]:
        """Start the oneshot by hand; the report, which is a valid one."""
        self.shell("systemctl start fleet-agent.service")
        report: dict[str, Any] = json.loads(self.shell("cat /var/lib/fleet/report.json"))
        assert validate(report, "agent-report") == []
        return report

    def journal(self) -> list[str]:
        """What the unit has said, without what systemd says of it."""
        entries = self.shell("journalctl -u fleet-agent.service -o json --no-pager").splitlines()
        found = [json.loads(entry) for entry in entries]
        return [entry["MESSAGE"] for entry in found if entry.get("_COMM") != "systemd"]


@pytest.fixture
def make_scene(lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path) -> Any:
    def make(release: str = "bookworm") -> Scene:
        host = lab_host(release=release)
        return Scene(lab, host.name, fleet, write_inventory(tmp_path / "site.yaml", lab, [host]))

    return make


def still(value: Any) -> Any:
    """Facts without what moves by itself."""
    if isinstance(value, dict):
        return {key: still(item) for key, item in value.items() if key not in MOVING}
    return [still(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("release", ["bullseye", "bookworm", "trixie"])
def test_it_comes_refreshes_stays_and_goes(make_scene: Any, release: str) -> None:
    scene = make_scene(release)
    before = snapshot(scene.lab, scene.host)
    wanted = {"textfile_directory": METRICS, "interval": "15m"}
    foreseen = scene.play("--check", **wanted)
    assert {part: step["status"] for part, step in foreseen.items()} == dict.fromkeys(
        ("service", "bundle", "timer"), "would_change"
    )
    assert before.differences(snapshot(scene.lab, scene.host)) == []
    assert set(scene.play(**wanted)) == set(foreseen)
    the_report_is_the_hosts(scene)
    assert scene.play(**wanted) == {}
    assert set(scene.play(state="absent")) == {"timer", "service", "bundle"}
    left = before.differences(snapshot(scene.lab, scene.host))
    assert [line for line in left if not line.startswith("file /var/lib/fleet")] == []
    names = scene.shell("ls /var/lib/fleet /var/lib/fleet/agent /var/lib/systemd/timers").split()
    assert not {"report.json", "current", "stamp-fleet-agent.timer"} & set(names)
    assert scene.play(state="absent") == {}


def the_report_is_the_hosts(scene: Scene) -> None:
    """Whole, marked, not distorted by the sandbox it was made in; and nobody complained."""
    report = scene.refresh()
    assert report["simulated"] is True
    assert report["bundle"] == scene.shell(f"readlink {CURRENT}").strip()
    assert report["textfile"] == f"{METRICS}/fleet.prom"
    outside = json.loads(scene.shell(f"cd {CURRENT}; python3 -S -E -m fleet.agent probe"))
    assert still(report["facts"]) == still(outside)
    assert report["facts"]["errors"] == []
    metrics = scene.shell(f"cat {METRICS}/fleet.prom").splitlines()
    assert "fleet_simulated 1" in metrics
    assert scene.shell(f"ls {METRICS}").split() == ["fleet.prom"]
    assert scene.journal() == []
    assert scene.shell("systemctl is-enabled fleet-agent.timer; systemctl is-active fleet-agent.timer").split() == [
        "enabled",
        "active",
    ]  # fmt: skip
    next_run = scene.shell("systemctl show -P NextElapseUSecRealtime fleet-agent.timer 2>/dev/null || true")
    assert "n/a" not in next_run


def test_a_newer_fleet_moves_the_unit_on_and_only_that_changes(make_scene: Any) -> None:
    scene = make_scene()
    scene.play()
    new = scene.shell(f"readlink {CURRENT}").strip()
    old = "0" * 64  # an earlier fleet's, by the look of it
    scene.shell(
        f"cd /var/lib/fleet/agent; cp -a {new} {old}; ln -sfn {old} current; "
        f"sed -i 's/^__version__.*/__version__ = \"0.0.1\"/' {old}/fleet/__init__.py"
    )
    assert scene.refresh()["fleet_version"] == "0.0.1"
    (step,) = scene.play().values()
    (change,) = step["diff"]
    assert (change["path"], change["before"]) == ("bundle", f"0.0.1 ({old[:12]})")
    assert new[:12] in change["after"]
    assert scene.refresh()["bundle"] == new


def test_metrics_follow_their_directory(make_scene: Any) -> None:
    scene = make_scene()
    scene.play(textfile_directory=METRICS)
    scene.refresh()
    changed = scene.play(textfile_directory="/srv/other")
    assert {entry["path"] for entry in changed["bundle"]["diff"]} == {"leftover"}
    scene.refresh()
    assert scene.shell(f"ls {METRICS} /srv/other").split() == ["/srv/metrics:", "/srv/other:", "fleet.prom"]


@pytest.mark.slow
def test_the_timer_itself_runs_it_soon_after_it_was_put_there(make_scene: Any) -> None:
    scene = make_scene()
    scene.play(interval="5m")
    wait_until(
        lambda: scene.shell("ls /var/lib/fleet").split().count("report.json") == 1,
        "the timer has run the agent",
        deadline=240,
        host=scene.host,
    )


def test_what_runs_in_the_unit_can_open_no_port_and_no_device_and_write_nothing_else(make_scene: Any) -> None:
    scene = make_scene()
    scene.play(textfile_directory=METRICS)
    folder = "/run/systemd/system/fleet-agent.service.d"
    scene.shell(f"mknod /dev/other c 10 200; mkdir -p {folder}")
    faults.execute(scene.lab, scene.host, "sh", "-c", "cat > /opt/trial.py", stdin=TRIAL)
    trial = "[Service]\nExecStart=\nExecStart=/usr/bin/python3 /opt/trial.py\n"
    faults.execute(scene.lab, scene.host, "sh", "-c", f"cat > {folder}/trial.conf", stdin=trial)
    scene.shell("systemctl daemon-reload; systemctl start fleet-agent.service")
    assert json.loads(scene.shell("cat /var/lib/fleet/trial.json")) == {
        "port": "OSError",
        "port6": "OSError",
        "a device": "PermissionError",
        "who holds a gpu": "done",
        "settings": "OSError",
        "kernel": "OSError",
        "bundle": "OSError",
        "metrics": "done",
    }


def test_node_exporter_serves_its_metrics_and_promtool_has_nothing_to_say(make_scene: Any) -> None:
    scene = make_scene()
    scene.shell(
        "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; "
        "apt-get -qq install -y --no-install-recommends prometheus prometheus-node-exporter >/dev/null"
    )
    folder = "/var/lib/prometheus/node-exporter"
    scene.play(textfile_directory=folder)
    scene.refresh()
    scene.shell(f"promtool check metrics < {folder}/fleet.prom")
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9100/metrics').read().decode())"
    served = faults.execute(scene.lab, scene.host, "python3", "-c", fetch).stdout.splitlines()
    assert "fleet_simulated 1" in served
    assert "node_textfile_scrape_error 0" in served
