"""The sets of ``nvidia_driver`` by apt itself: what its solver makes of them, on an index like NVIDIA's.

The index is the lab's, with its relations and without its files; the host is a dpkg status file. apt only simulates.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.package_manager import Request, apt_messages, dpkg_version, refusals
from fleet.lab.simulation.deb import Package as Deb
from tests.modules.test_nvidia_driver import (
    H100,
    MODULE,
    SYSTEMS,
    arguments,
    context,
    facts,
    offered,
    packages_step,
    versions_of,
    without_files,
)

__all__ = ["without_files"]
pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
KERNEL = "6.1.0-28-amd64"


def kernels() -> list[Deb]:
    """The kernel's headers and dkms, without files."""
    return [Deb(f"linux-headers-{KERNEL}", "6.1.90-1", "headers"), Deb("dkms", "9.0-1", "dkms")]


class Apt:
    """An apt of its own: one index, one status file, nothing of this machine."""

    def __init__(self, folder: Path, repository: list[Deb]) -> None:
        self._folder = folder
        self.by_name = {(one.name, one.version): one for one in repository}
        for name in ("lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (folder / name).mkdir(parents=True)
        index = "\n".join(
            f"{one.control()}Filename: {one.file_name}\nSize: 1\nSHA256: {'0' * 64}\n" for one in repository
        )
        (folder / "Packages").write_text(index)
        (folder / "sources.list").write_text(f"deb [trusted=yes] file:{folder} ./\n")
        (folder / "status").write_text("")
        self._run("update")

    def install(self, packages: Mapping[str, str]) -> None:
        """Make the status file say that these are installed."""
        known = [self.by_name.get(pair) or Deb(*pair, "foreign") for pair in packages.items()]
        (self._folder / "status").write_text(
            "\n".join(f"{one.control()}Status: install ok installed\n" for one in known)
        )

    def simulated(self, step: Mapping[str, Any], preferences: str) -> dict[str, str]:
        """What would be installed after the step; the step's own judgement must not refuse the transaction."""
        (self._folder / "etc/preferences.d/fleet.pref").write_text(preferences)
        wanted = {one["name"]: one.get("version") for one in step["names"]}
        words = [name if version is None else f"{name}={version}" for name, version in wanted.items()]
        text = self._run("-s", "-y", "--no-install-recommends", "install", "--", *words)
        transaction = apt_messages.parse_simulation(text)
        request = Request(wanted, also_allowed=tuple(step["also_allowed"]))
        assert refusals(transaction, request, dpkg_version.compare) == []
        self.removed = {name for name, _ in transaction.removes}
        return {name: after for name, _, after in transaction.installs}

    def _run(self, *words: str) -> str:
        settings = {
            "Dir::State::Lists": "lists", "Dir::Cache": "cache", "Dir::State::status": "status",
            "Dir::Etc::sourcelist": "sources.list", "Dir::Etc::sourceparts": "none", "Dir::Etc::main": "none",
            "Dir::Etc::parts": "none", "Dir::Etc::preferences": "none",
            "Dir::Etc::preferencesparts": "etc/preferences.d", "Dir::State::extended_states": "extended",
        }  # fmt: skip
        options = [word for key, path in settings.items() for word in ("-o", f"{key}={self._folder / path}")]
        architecture = ["-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64"]
        done = subprocess.run(
            ["apt-get", *options, *architecture, "-o", "APT::Sandbox::User=root", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def wanted(
    system: str, repository: list[Deb], version: str, installed: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """The step, and the preferences beside it."""
    args = arguments(version=version)
    seen = facts(system, H100, installed)
    asked = [one for one in MODULE.needs(args, seen, context()) if one["id"] == "versions"]
    answers = {"versions": versions_of(repository, asked[0]["names"])} if asked else {}
    step = packages_step(args, seen, answers)
    steps = MODULE.steps(args, seen, answers, context())
    preferences = next(one for one in steps if one["id"].endswith(".preferences"))["args"]["content"]
    return step, str(preferences)


def removed_later(system: str, repository: list[Deb], installed: Mapping[str, str]) -> set[str]:
    """What the last package step takes away."""
    args, seen = arguments(version="580.159.03"), facts(system, H100, installed)
    asked = next(one for one in MODULE.needs(args, seen, context()) if one["id"] == "versions")
    steps = MODULE.steps(args, seen, {"versions": versions_of(repository, asked["names"])}, context())
    found = [step["args"]["names"] for step in steps if step["id"].endswith(".leftovers")]
    return {one["name"] for names in found for one in names}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def repository(system: str) -> list[Deb]:
    return [*offered(system), *kernels()]


@pytest.fixture
def apt(tmp_path: Path, repository: list[Deb]) -> Apt:
    return Apt(tmp_path, repository)


def test_a_bare_host_gets_the_driver_whole(apt: Apt, system: str, repository: list[Deb]) -> None:
    for version in ("535.309.01", "580.105.08", "595.71.05"):
        step, preferences = wanted(system, repository, version, {})
        result = apt.simulated(step, preferences)
        assert {name: result[name] for name in result if "cuda" in name or "compute" in name}
        assert {at.partition("-")[0] for name, at in result.items() if "nvidia" in name} == {version}


def test_from_one_branch_to_another_nothing_of_the_old_one_is_left(
    apt: Apt, system: str, repository: list[Deb]
) -> None:
    step, preferences = wanted(system, repository, "550.163.01", {})
    first = apt.simulated(step, preferences)
    foreign = {"nvidia-container-toolkit": "1.18.2-1", "libnvidia-container1": "1.18.2-1"}
    apt.install({**first, **foreign})
    step, preferences = wanted(system, repository, "580.159.03", {**first, **foreign})
    after = {**first, **foreign, **apt.simulated(step, preferences)}
    for name in apt.removed | removed_later(system, repository, {**first, **foreign}):
        after.pop(name, None)
    assert foreign.items() <= after.items()
    versions = {
        at.partition("-")[0] for name, at in after.items() if "nvidia" in name and name not in foreign
    }
    assert versions == {"580.159.03"}
    apt.install(after)
    step, preferences = wanted(system, repository, "580.159.03", after)
    assert apt.simulated(step, preferences) == {}
