"""``fleet provision --check`` on a bare Debian foresees every step: the shipped playbook, the agent's check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.check import CheckPass
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.resources import agent_bundle, load
from fleet.core.secret import Secret
from fleet.inventory import load_inventory
from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from tests.agent.resources.fakes import Systemd
from tests.agent.resources.test_check_pass import CheckHost
from tests.facts import healthy_facts, healthy_gpu_facts

ROOT = Path(__file__).parents[2]
PROVISION = ROOT / "playbooks" / "provision.yaml"


@pytest.mark.parametrize(("release", "codename"), [("11", "bullseye"), ("12", "bookworm"), ("13", "trixie")])
@pytest.mark.parametrize("settings", [{}, {"log-driver": "local"}])
def test_nothing_is_known_only_after_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, codename: str, settings: dict[str, Any]
) -> None:
    # What the agent of a connection knows of itself; here there is none.
    monkeypatch.setattr(agent_bundle, "running_digest", lambda: "0" * 64)
    (tmp_path / "ca.crt").write_text("x")
    variables = {
        "docker_engine_settings": settings,
        "registry": "registry.example:5000",
        "registry_ca_file": str(tmp_path / "ca.crt"),
        "registry_username": "u",
        "registry_password": Secret("p", "registry password"),
        "image": "registry.example:5000/pytorch:2",
    }
    bare = {
        "os.version_id": release,
        "os.codename": codename,
        "engine.present": False,
        "engine.daemon_json": {"exists": False, "parsed": None, "error": None},
        "packages.installed": {},
    }
    facts = healthy_facts(bare)
    compiler = HostCompiler(load_playbook(PROVISION).plays[0], "gpu01", variables, "7f3a")
    segment = compiler.segment(facts, {}, now_unix=facts["clock"]["unix"])
    root = tmp_path / "root"
    root.mkdir()
    host = CheckHost(root, secrets={key: secret.reveal() for key, secret in segment.secrets.items()})
    Systemd(host)
    host.write("/var/lib/dpkg/status", "")
    host.write("/usr/bin/apt-get", "", 0o755)
    pending = Pending(Paths(host.state_dir, host.runtime_dir))
    results = CheckPass(segment.plan, host, load=load, pending=pending, outcomes={}).run()
    said = {result["step"].partition(".")[2]: result["status"] for result in results}
    as_found = {"docker_engine.service": "ok", "registry_login.login": "ok"}
    assert said == {**dict.fromkeys(said, "would_change"), **as_found}
    assert len(said) == (12 if settings else 10)


@pytest.mark.parametrize("name", ["minimal", "example"])
def test_shipped_inventories_get_gpu_hosts_all_the_way_without_a_key_in_them(name: str) -> None:
    inventory = load_inventory(ROOT / "inventories" / f"{name}.yaml")
    host = next(one for one in inventory.hosts if one.startswith(("gpu", "dgx")))
    given = inventory.hosts[host].variables
    taken = ("public_internet", "nvidia_driver_repository", "container_toolkit_repository")
    variables = {key: given[key] for key in taken if key in given}
    bare = {
        "os.id": "debian", "os.version_id": "12", "os.codename": "bookworm", "packages.installed": {},
        "engine.present": False, "engine.daemon_json": {"exists": False, "parsed": None, "error": None},
        "driver.loaded": None, "driver.modules": {}, "driver.library_version": None, "nvswitches": [],
    }  # fmt: skip
    compiler = HostCompiler(load_playbook(PROVISION).plays[0], host, variables, "7f3a")
    asked = [
        one for query in compiler.queries(healthy_gpu_facts(bare)) for one in query.get("repositories", ())
    ]
    assert [one["key"]["url"].rpartition("/")[2] for one in asked] == ["3bf863cc.pub"]
    assert {len(one["key"]["fingerprint"]) for one in asked} == {40}
