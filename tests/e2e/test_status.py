"""``fleet status`` on real hosts: what an ordinary user sees, what root sees, and that nothing is written there."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.core.schema import validate
from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import switch, xid
from tests.conftest import LabFactory
from tests.e2e.harness import Fleet, processes

pytestmark = pytest.mark.lab

_LAB = """\
all:
  vars: {lab_subnet: 172.28.70.0/25, lab_inner_subnet: 172.28.70.128/25, lab_release: bookworm}
  hosts:
    busy:
      ansible_host: 172.28.70.11
      ansible_user: ops
      lab_login: sudo_nopasswd
      lab_gpus: {model: h100-sxm, count: 2}
      lab_driver: "580.159.03"
      lab_foreign_containers: [train-anna]
    plain: {ansible_host: 172.28.70.12}
"""
TENANT = "train-anna"
# What sshd, logind, PAM and the journal themselves write at any login.
_OF_LOGINS = (
    "/run/systemd",
    "/run/user",
    "/run/utmp",
    "/run/motd.dynamic",
    "/run/log",
    "/run/sshd",
    "/run/dbus",
)
_LISTING = (
    "find /var/lib/fleet /tmp /var/tmp /run /etc /home /root {but} -printf '{what}' 2>/dev/null || true"
)
_WHAT = r"%p %y %m %U:%G %s %T@\n"


@pytest.fixture(scope="module")
def site(own_lab: LabFactory) -> Lab:
    """A host whose container works on the first GPU, reached as an ordinary user; and one without GPUs."""
    lab = own_lab("status", _LAB)
    switch(lab, "busy", tenant_at_work(lab))
    return lab


@pytest.fixture
def inventory(site: Lab, tmp_path: Path) -> str:
    return str(write_inventory(tmp_path / "site.yaml", site, list(site.definition.hosts)))


def container_pid(lab: Lab) -> int:
    inspect = ("docker", "inspect", "--format", "{{.State.Pid}}", TENANT)
    return int(faults.execute(lab, "busy", *inspect).stdout)


def tenant_at_work(lab: Lab) -> dict[str, object]:
    """The container's first process computes on GPU 0."""
    return {"gpu.0.processes": f"{container_pid(lab)}:40960", "gpu.0.utilization_gpu": 97}


def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    assert validate(found, "status") == []
    return {host["host"]: host for host in found["hosts"]}


def listing(lab: Lab, host: str) -> set[str]:
    """Every file and folder with its times: also what was written and taken away again shows in its folder's."""
    but = " ".join(f"-path {path} -prune -o" for path in _OF_LOGINS)
    lines = faults.shell(lab, host, _LISTING.format(but=but, what=_WHAT)).splitlines()
    return {line for line in lines if not line.startswith("/run d ")}  # what lies in it comes and goes


def agent_is_gone(lab: Lab, host: str) -> bool:
    """No process is left of the agent, which runs from memory: its command line unpacks it."""
    return "zlib.decompress" not in processes(lab, host)


def asked_sudo(lab: Lab) -> str:
    """Everything sudo has told the host's journal."""
    return faults.shell(lab, "busy", "journalctl _COMM=sudo -o cat --no-pager")


@pytest.fixture
def untouched(site: Lab) -> Iterator[None]:
    """Nothing was written on the hosts by the end of the test, and nobody is left there."""
    hosts = [host.name for host in site.definition.hosts]
    before = {host: listing(site, host) for host in hosts}
    assert all(any(line.startswith("/etc/passwd f ") for line in lines) for lines in before.values())
    yield
    for host in hosts:
        assert before[host] ^ listing(site, host) == set()
        wait_until(functools.partial(agent_is_gone, site, host), "the agent is gone", host=host)


@pytest.mark.usefixtures("untouched")
def test_an_ordinary_user_sees_every_gpu_and_who_is_on_it(site: Lab, inventory: str, fleet: Fleet) -> None:
    sudo = asked_sudo(site)
    done = fleet("status", inventory, "--json")
    assert done.code == 0, done.said
    hosts = document(done.out)
    busy = hosts["busy"]
    assert (busy["state"], busy["driver"], busy["simulated"]) == ("ok", "580.159.03", True)
    first, second = busy["gpus"]
    assert [gpu["state"] for gpu in busy["gpus"]] == ["ok", "ok"]
    assert (first["utilization_percent"], second["utilization_percent"]) == (97, 0)
    (tenant,) = first["tenants"]
    assert (tenant["pid"], tenant["user"], tenant["memory_used_mib"]) == (container_pid(site), "root", 40960)
    assert tenant["container"] != TENANT
    assert second["tenants"] == []
    assert (hosts["plain"]["state"], hosts["plain"]["gpus"]) == ("no_gpus", [])
    assert asked_sudo(site) == sudo


@pytest.mark.usefixtures("untouched")
def test_as_root_it_names_the_container(site: Lab, inventory: str, fleet: Fleet) -> None:
    done = fleet("status", inventory, "--become")
    assert done.code == 0, done.said
    assert done.out.splitlines()[0] == "2 hosts · 2 GPUs · 1 in use"
    (row,) = [line for line in done.out.splitlines() if TENANT in line]
    assert f"root · {TENANT} (container)" in row
    assert row.startswith("busy (simulated)")
    assert " 97% " in row
    assert "no NVIDIA GPU on its PCI bus" in done.out


@pytest.mark.usefixtures("untouched")
def test_a_watch_goes_on_until_it_is_interrupted(inventory: str, fleet: Fleet) -> None:
    running = fleet.start("status", inventory, "--watch", "0.2", "--json")
    wait_until(lambda: running.out.read_text().count("\n") >= 3, "it has looked three times")
    running.interrupt()
    done = running.finish(60)
    assert (done.code, done.err) == (0, "")
    looks = [document(line)["busy"] for line in done.out.splitlines()]
    assert [look["state"] for look in looks] == ["ok"] * len(looks)


def test_a_lost_gpu_is_shown_with_what_the_kernel_said(site: Lab, inventory: str, fleet: Fleet) -> None:
    xid(site, "busy", 79, 1)
    switch(site, "busy", {**tenant_at_work(site), "gpu.1.state": "lost"})
    done = fleet("status", inventory, "--become")
    assert done.code == 0, done.said
    assert done.out.splitlines()[0] == "2 hosts · 2 GPUs · 1 in use · 1 not well"
    (row,) = [line for line in done.out.splitlines() if "Xid" in line]
    assert re.search(r"lost since \d{4}-\d\d-\d\d \d\d:\d\d \(Xid 79\): it does not answer", row)
    assert "H100 80GB HBM3" in row
    assert TENANT in done.out
    as_user = document(fleet("status", inventory, "--json").out)["busy"]
    assert [gpu["state"] for gpu in as_user["gpus"]] == ["ok", "lost"]


def test_a_host_that_is_down_costs_only_its_own_row(site: Lab, inventory: str, tmp_path: Path) -> None:
    """Last: the host stays down. Table and document are asked for at once: each waits for an answer first."""
    faults.stop(site, "plain", power=True)
    (tmp_path / "json").mkdir()
    as_json = Fleet(tmp_path / "json").start("status", inventory, "--json")
    done = Fleet(tmp_path)("status", inventory)
    assert done.code == 3, done.said
    assert done.out.splitlines()[0] == "2 hosts · 2 GPUs · 1 in use · 1 not well · 1 unreachable"
    (row,) = [line for line in done.out.splitlines() if line.startswith("plain")]
    assert "172.28.70.12" in row
    assert " 97% " in done.out
    document_said = as_json.finish(120)
    assert document_said.code == 3
    hosts = document(document_said.out)
    assert {name: host["state"] for name, host in hosts.items()} == {
        "busy": "gpu_error",
        "plain": "unreachable",
    }
    assert [gpu["state"] for gpu in hosts["busy"]["gpus"]] == ["ok", "lost"]
