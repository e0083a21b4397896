"""``fleet provision`` of a site without the internet, and of a group behind a proxy: what left the hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.lab import closed, faults
from fleet.lab.access import write_inventory
from fleet.lab.definition import PACKAGES_OCTET
from fleet.lab.lab import Lab
from fleet.lab.simulation import server
from fleet.lab.snapshot import snapshot
from tests.conftest import LabFactory
from tests.e2e import gpu
from tests.e2e.harness import Fleet

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LAB = """\
all:
  vars:
    lab_subnet: 172.28.68.0/25
    lab_inner_subnet: 172.28.68.128/25
    lab_registry: true
    lab_release: bookworm
    lab_public_internet: false
  hosts:
    shut: {ansible_host: 172.28.68.11, lab_gpus: {model: t4, count: 1}}
    proxied: {ansible_host: 172.28.68.12}
"""
PROXY = "http://packages.lab:3128"


@pytest.fixture(scope="module")
def site(own_lab: LabFactory) -> Lab:
    """A GPU host that reaches the site's own servers only, and one whose archive is behind a proxy."""
    return own_lab("closed-site", _LAB)


def archive(lab: Lab) -> str:
    """The package server by its address: what the proxy takes for some other server of the world."""
    return f"http://{lab.definition.outer[PACKAGES_OCTET]}/debian"


def inventory(folder: Path, lab: Lab, **more: Any) -> Path:
    """Two groups with ways of their own: mirrors for ``shut``, a proxy for ``proxied``."""
    tiny = gpu.json_variables(lab)
    behind = {
        "http_proxy": PROXY,
        "no_proxy": [".lab"],
        "image": tiny["lab_tiny_image"],
        "image_digest": tiny["lab_tiny_digest"],
        "docker_engine_settings": {"insecure-registries": ["plain.invalid"]},
    }
    groups = {
        "closed": {"hosts": {"shut": None}},
        "behind_proxy": {"hosts": {"proxied": None}, "vars": {**behind, **more}},
    }
    return gpu.gpu_inventory(folder, lab, list(lab.definition.hosts), groups=groups, public_internet=False)


def fetched(lab: Lab, host: str) -> list[str]:
    """``mirror URL`` and ``proxy URL`` of what this host had fetched from elsewhere, by the server's own log."""
    address = lab.member(host).address
    words = [line.split() for line in server.requests(lab.place)]
    return [f"{how} {url}" for how, who, url in words if who == address]


def test_without_a_mirror_of_its_own_nothing_of_the_site_is_touched(
    site: Lab, fleet: Fleet, tmp_path: Path
) -> None:
    before = snapshot(site, "shut")
    tried, asked = closed.attempts(site, "shut"), fetched(site, "shut")
    path = write_inventory(
        tmp_path / "site.yaml", site, [site.member("shut")], public_internet=False, nvidia_driver_branch="580"
    )
    done = fleet("provision", str(path))
    assert done.code == 2, done.said
    assert "public_internet is false here" in done.said
    assert "nvidia_driver_repository" in done.said
    assert before.differences(snapshot(site, "shut")) == []
    assert (closed.attempts(site, "shut"), fetched(site, "shut")) == (tried, asked)


def test_a_host_without_the_internet_converges_and_tries_nothing_else(
    site: Lab, fleet: Fleet, tmp_path: Path
) -> None:
    tried = closed.attempts(site, "shut")
    path = str(inventory(tmp_path, site))
    done = fleet("provision", path, "--limit", "shut")
    assert done.code == 0, done.said
    report = fleet.reports()["shut"]
    assert report["status"] == "converged"
    again = fleet("provision", path, "--limit", "shut")
    assert (again.code, "changed=0" in again.out) == (0, True), again.said
    assert closed.attempts(site, "shut") == tried
    assert any(line.startswith("mirror ") for line in fetched(site, "shut"))
    uuids = gpu.hardware_uuids(site, "shut")
    image = gpu.json_variables(site)["lab_pytorch_image"]
    assert gpu.seen_in_container(site, "shut", image, "--gpus", "all") == uuids


def test_a_group_behind_a_proxy_fetches_and_pulls_through_it(site: Lab, fleet: Fleet, tmp_path: Path) -> None:
    faults.shell(
        site, "proxied", f"sed -i 's,http://packages.lab/debian ,{archive(site)} ,' /etc/apt/sources.list"
    )
    path = str(inventory(tmp_path, site))
    done = fleet("provision", path, "--limit", "proxied")
    assert done.code == 0, done.said
    apt = fetched(site, "proxied")
    assert any(line.startswith(f"proxy {archive(site)}/pool/main/d/docker.io/docker.io_") for line in apt)
    assert any(line.startswith("mirror ") and "debian-security" in line for line in apt), "exempt: in .lab"
    assert not any(line.startswith("mirror ") and "/pool/main/d/docker.io/" in line for line in apt)
    again = fleet("provision", path, "--limit", "proxied")
    assert (again.code, "changed=0" in again.out) == (0, True), again.said

    faults.execute(site, "proxied", "docker", "pull", "plain.invalid/thing:1", check=False)
    assert "proxy http://plain.invalid/v2/" in fetched(site, "proxied")
    assert closed.attempts(site, "proxied") == 0


def test_a_proxy_that_leaves_the_inventory_leaves_the_host(site: Lab, fleet: Fleet, tmp_path: Path) -> None:
    """With leave only, where somebody's container runs: the engine has to be restarted."""
    gone = str(inventory(tmp_path, site, http_proxy=None))
    words = ("provision", gone, "--limit", "proxied", "--tags", "docker")
    image = gpu.json_variables(site)["lab_tiny_image"]
    faults.execute(site, "proxied", "docker", "run", "-d", "--name", "theirs", image, "sleep", "3600")
    engine = gpu.unit_pid(site, "proxied", "docker")
    waits = fleet(*words)
    assert (waits.code, "theirs" in waits.out) == (5, True), waits.said
    assert gpu.unit_pid(site, "proxied", "docker") == engine
    assert PROXY in engine_environment(site)
    done = fleet(*words, "--disrupt")
    assert done.code == 0, done.said
    faults.execute(site, "proxied", "docker", "rm", "-f", "theirs")
    left = faults.shell(
        site, "proxied", "ls /etc/apt/apt.conf.d /etc/apt /etc/systemd/system/docker.service.d"
    )
    assert "fleet" not in left
    assert "proxy" not in engine_environment(site).lower()


def test_a_password_in_the_proxys_address_is_roots_alone(site: Lab, fleet: Fleet, tmp_path: Path) -> None:
    secret = "s3cret-of-the-proxy"
    path = str(inventory(tmp_path, site, http_proxy=f"http://fleet:{secret}@packages.lab:3128"))
    done = fleet("provision", path, "--limit", "proxied", "--diff", "--tags", "docker")
    assert done.code == 0, done.said
    assert secret in engine_environment(site)
    assert secret not in faults.execute(site, "proxied", "systemctl", "show", "docker").stdout
    assert secret not in done.said
    kept = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert kept.count(secret) == 1, "in the inventory, and nowhere else"
    readable = f"find / -xdev -type f -perm /077 -exec grep -lF {secret} {{}} + 2>/dev/null || true"
    assert faults.shell(site, "proxied", readable).split() == []


def engine_environment(lab: Lab) -> str:
    """The environment of the engine's process."""
    return faults.shell(lab, "proxied", "tr '\\0' '\\n' < /proc/$(pidof dockerd)/environ")
