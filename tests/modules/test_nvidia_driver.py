"""``nvidia_driver`` beyond its golden files: arguments, second runs, and whole sets on a repository's own relations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.resources.package import Package
from fleet.catalogue.catalogue import load as load_catalogue
from fleet.catalogue.versions import driver_version
from fleet.lab.simulation import packages as laboratory
from fleet.lab.simulation.deb import Package as Deb
from fleet.modules import load
from fleet.modules.arguments import converted
from fleet.modules.base import ArgumentProblem, Context
from fleet.modules.driver.gpus import Card, Refused, branches_for
from fleet.modules.driver.packages import upstream
from tests.facts import healthy_gpu_facts

MODULE = load("nvidia_driver")
KEY = {"repository": {"trusted": True}}
SYSTEMS = {
    "debian11": ("debian", "11"),
    "debian12": ("debian", "12"),
    "debian13": ("debian", "13"),
    "ubuntu2204": ("ubuntu", "22.04"),
    "ubuntu2404": ("ubuntu", "24.04"),
}
H100 = {"device_id": "2330", "subsystem_vendor_id": "10de", "subsystem_id": "16c1"}
V100 = {"device_id": "1db1", "subsystem_vendor_id": "10de", "subsystem_id": "1212"}


def context(**more: Any) -> Context:
    return Context(prefix="7.nvidia_driver", task="driver", **more)


def facts(
    system: str, card: Mapping[str, str], installed: Mapping[str, str], *, switches: bool = True
) -> dict[str, Any]:
    """A host of that system with one card; nothing is loaded."""
    os_id, version = SYSTEMS[system]
    gpu = {"address": "0000:1b:00.0", "vendor_id": "10de", "class": "0302", "driver": None, **card}
    changes = {
        "os.id": os_id, "os.version_id": version, "gpus": [gpu], "packages.installed": dict(installed),
        "driver.loaded": None, "driver.modules": {}, "driver.library_version": None,
    }  # fmt: skip
    if not switches:
        changes["nvswitches"] = []
    return healthy_gpu_facts(changes)


def arguments(**given: Any) -> dict[str, Any]:
    assert not MODULE.check({**KEY, **given}, False)
    return converted({**KEY, **given}, MODULE.arguments, MODULE.name)


def packages_step(args: dict[str, Any], seen: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    assert [one.text for one in MODULE.results(args, seen, answers, context()) if one.stops] == []
    steps = MODULE.steps(args, seen, answers, context())
    return next(dict(step["args"]) for step in steps if step["id"].endswith(".packages"))


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"version": "580.159.03", "branch": "580"}, "give version or branch, not both"),
        ({"version": "580"}, 'version must be a driver version such as "580.159.03", not 580'),
        ({"version": 550.12}, "write it in quotes"),
        ({"branch": "580.159.03"}, 'branch must be the number of a branch such as "580"'),
        ({"repository": {"trusted": True, "uri": "http://x"}}, "repository has no uri; it takes base_url"),
    ],
)
def test_arguments_that_cannot_be(given: dict[str, Any], message: str) -> None:
    problems = MODULE.check({**KEY, **given}, False)
    assert len(problems) == 1
    assert message in problems[0].message


def test_templates_are_left_to_their_values() -> None:
    assert not MODULE.check({"version": "{{ v }}", "repository": "{{ r }}", "source": "distribution"}, False)
    assert not MODULE.check({"source": "{{ source }}", "repository": {}}, False)


def test_without_internet_the_site_must_name_its_copy() -> None:
    seen = facts("debian12", H100, {})
    with pytest.raises(ArgumentProblem, match="public_internet is false here; name the site's copy"):
        MODULE.needs(arguments(), seen, context(public_internet=False))


def test_a_card_that_no_lasting_branch_serves_is_named() -> None:
    known = replace(load_catalogue().gpus.find("t4"), first_listed=driver_version("999.1"))
    with pytest.raises(Refused, match="no long-term or production branch of the driver serves T4"):
        branches_for([Card("0000:3b:00.0", "1eb8", known)], ("open", "proprietary"))


# --- what a repository holds --------------------------------------------------------------------


def offered(system: str) -> list[Deb]:
    """Every driver package of a repository with many branches, and their relations; files are not looked at."""
    return [
        one
        for driver in laboratory.DRIVERS
        for one in laboratory.driver_packages(system, driver, Path("/nonexistent"))
    ]


@pytest.fixture(autouse=True)
def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages without their contents: only names, versions and relations matter here."""
    for name in ("nvml", "cuda", "smi", "persistenced", "fabric_manager"):
        monkeypatch.setattr(laboratory.contents, name, lambda *_: {})


def versions_of(repository: list[Deb], names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in names}
    for one in reversed(repository):
        if one.name in found:
            found[one.name].append(one.version)
    return found


def unmet(repository: list[Deb], named: Mapping[str, str | None]) -> Iterator[str]:
    """Exact dependencies of the named packages that neither they nor a dependency of one version satisfy."""
    by_name = {(one.name, one.version): one for one in repository}
    names = {one.name for one in repository}
    chosen = [by_name[name, version] for name, version in named.items() if version and name in names]
    provided = {virtual for one in chosen for virtual in one.relations.get("Provides", ())}
    for one in chosen:
        for relation in one.relations.get("Depends", ()):
            name, _, version = relation.partition(" (= ")
            if name == "dkms" or name in provided or named.get(name) == version.rstrip(")"):
                continue
            only_one = sum(each.name == name for each in repository) == 1
            if not only_one:
                yield f"{one.name} {one.version} needs {relation}"


def clashes(repository: list[Deb], named: Mapping[str, str | None]) -> Iterator[str]:
    chosen = [one for one in repository if named.get(one.name) == one.version]
    for one in chosen:
        for enemy in one.relations.get("Conflicts", ()):
            for other in chosen:
                if other is not one and enemy in (other.name, *other.relations.get("Provides", ())):
                    yield f"{one.name} conflicts with {other.name} by {enemy}"


@pytest.mark.parametrize("driver", laboratory.DRIVERS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_whole_set_is_named_and_goes_together(system: str, driver: str) -> None:
    repository = offered(system)
    args, seen = arguments(version=driver), facts(system, H100, {})
    asked = next(one for one in MODULE.needs(args, seen, context()) if one["id"] == "versions")
    step = packages_step(args, seen, {"versions": versions_of(repository, asked["names"])})
    named = {one["name"]: one.get("version") for one in step["names"]}
    assert list(unmet(repository, named)) == []
    assert list(clashes(repository, named)) == []
    assert {upstream(version) for version in named.values() if version} == {driver}
    assert any(name.startswith("nvidia-fabricmanager") for name in named)


@pytest.mark.parametrize("card", [H100, V100], ids=["h100", "v100"])
@pytest.mark.parametrize("wanted", [{"version": "580.105.08"}, {"branch": "580"}, {}], ids=str)
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_second_run_asks_nothing_and_wants_the_same(
    system: str, wanted: dict[str, str], card: dict[str, str]
) -> None:
    repository = offered(system)
    args, bare = arguments(**wanted), facts(system, card, {}, switches=card is H100)
    asked = next(one for one in MODULE.needs(args, bare, context()) if one["id"] == "versions")
    first = packages_step(args, bare, {"versions": versions_of(repository, asked["names"])})
    installed = {one["name"]: one.get("version", "1") for one in first["names"]}
    # Dependencies that were not named are there, too.
    installed |= {
        one.name: one.version for one in repository if "firmware" in one.name and "580.1" in one.name
    }
    there = facts(system, card, installed, switches=card is H100)
    assert MODULE.needs(args, there, context()) == []
    second = packages_step(args, there, {})
    assert second["names"] == first["names"]
    held = {one["name"] for one in first["names"] if one.get("hold", True)}
    state = {
        "packages": {
            name: {"state": "installed", "version": version, "held": name in held}
            for name, version in installed.items()
        }
    }
    assert Package().diff(state, second) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_upgrade_names_every_package_of_the_old_branch_and_no_foreign_one(system: str) -> None:
    repository = offered(system)
    seen = facts(system, H100, {})
    args = arguments(version="550.163.01")
    asked = next(one for one in MODULE.needs(args, seen, context()) if one["id"] == "versions")
    old = packages_step(args, seen, {"versions": versions_of(repository, asked["names"])})
    installed = {one["name"]: one["version"] for one in old["names"] if "version" in one}
    foreign = {
        "nvidia-container-toolkit": "1.18.2-1",
        "libnvidia-container1": "1.18.2-1",
        "nvidia-cuda-toolkit": "11",
    }
    later = arguments(version="580.159.03")
    there = facts(system, H100, {**installed, **foreign, "dkms": "3"})
    asked = next(one for one in MODULE.needs(later, there, context()) if one["id"] == "versions")
    step = packages_step(later, there, {"versions": versions_of(repository, asked["names"])})
    covered = {one["name"] for one in step["names"]} | set(step["also_allowed"])
    assert set(installed) <= covered
    assert not set(foreign) & covered


def test_what_may_change_besides_the_driver_is_what_the_task_says() -> None:
    args = arguments(source="distribution", also_allowed=["perl-base"])
    seen = facts("debian12", {"device_id": "1eb8"}, {}, switches=False)
    asked = next(one for one in MODULE.needs(args, seen, context()) if one["id"] == "versions")
    answers = {"versions": {name: ["535.309.01-1"] for name in asked["names"]}}
    assert packages_step(args, seen, answers)["also_allowed"] == ["perl-base"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.159.03-1", "580.159.03"),
        ("535.261.03-1~deb12u1", "535.261.03"),
        ("580.126.20-0ubuntu0.24.04.1", "580.126.20"),
        ("3:580.159.03-1.el9", "580.159.03"),
        ("550.120-1", "550.120"),
        ("1.18.2-1", None),
        ("20220217-3~deb12u1", None),
    ],
)
def test_the_drivers_version_in_a_packages(text: str, version: str | None) -> None:
    assert upstream(text) == version
