"""`fleet audit` on hosts with mixed GPUs: what it says is what then happens, and what it advises helps.

The witness is the hosts' simulated stack (:mod:`tests.e2e.mixed`), which shares no data with the catalogue. Hosts of
one part of inventories/lab-mixed.yaml are up at a time; tests of a part stand together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.snapshot import snapshot
from tests.e2e.harness import Fleet, processes
from tests.e2e.mixed import Mixed, Stack, audit, build_of, by_name, everywhere, mixed_lab, reference

pytestmark = [pytest.mark.lab, pytest.mark.slow]

IMAGE = "2.7.0-cuda12.8"
PASCAL_AND_BLACKWELL = ("mix01", "mix02", "mix03")
UPGRADED = ("mix05", "mix07", "mix08")
OLD_AND_UNKNOWN = ("mix04", "mix06")
#: What is said of each host and IMAGE: the verdict, and the rules that make it one.
EXPECTED: dict[str, tuple[str, set[str]]] = {
    "mix01": ("does_not_run", {"audit.image.arch"}),
    "mix02": ("runs", set()),
    "mix03": (
        "does_not_run",
        {"audit.mixed.impossible", "audit.image.arch", "audit.driver.modules_required_open"},
    ),
    "mix04": ("does_not_run", {"audit.driver.floor_cuda"}),
    "mix05": ("does_not_run", {"audit.driver.split", "audit.toolkit.absent"}),
    "mix06": ("unknown", {"audit.gpu.not_in_catalogue"}),
    "mix07": ("does_not_run", {"audit.fabric_manager.version", "audit.fabric_manager.absent"}),
    "mix08": ("runs_with_warnings", set()),
}
#: Words of the stack that a finding foretells, in the order in which one obstacle hides the next.
FORETOLD = {
    "audit.driver.split": "Driver/library version mismatch",
    "audit.toolkit.absent": "could not select device driver",
    "audit.driver.floor_cuda": "driver on your system is too old",
    "audit.fabric_manager.version": "system not yet initialized",
    "audit.image.arch": "no kernel image is available",
}


@pytest.fixture(scope="module")
def mixed(lab_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """The lab; each test brings up the hosts that it is about."""
    with mixed_lab(tmp_path_factory.mktemp("mixed")) as found:
        yield found


def decisive(host: dict[str, Any]) -> set[str]:
    """The rules that make the verdict of a host what it is."""
    return {one["id"] for one in host["findings"] if one["severity"] in ("error", "unknown")}


def pinned(build: str) -> str:
    return f"{reference(build)}@sha256:{'0' * 64}"


def check_consistency(mixed: Mixed, fleet: Fleet, names: tuple[str, ...], *more: str) -> None:
    """Verdicts of these hosts on IMAGE and ``more`` builds, and what their stack then does with each, agree."""
    builds = (IMAGE, *more)
    mixed.bring(*names)
    site = write_inventory(fleet.folder / "asked.yaml", mixed.lab, mixed.hosts, image=None)
    verdicts = {build: by_name(audit(fleet, str(site), "--image", pinned(build))[0]) for build in builds}
    for name in names:
        said = verdicts[IMAGE][name]
        assert (said["status"], decisive(said)) == EXPECTED[name], said["findings"]
    stacks = everywhere(lambda name: {build: mixed.stack(name, build) for build in builds}, names)
    for build, hosts in verdicts.items():
        for name in names:
            agree(hosts[name], stacks[name][build], build)


def agree(host: dict[str, Any], stack: Stack, build: str) -> None:
    """One verdict and one container. Of a host that is not known nothing is promised, and nothing is denied."""
    seen = f"{host['name']} with {build} is said: {host['status']}; it did {stack}"
    if host["status"] == "unknown":
        assert decisive(host) == {"audit.gpu.not_in_catalogue"}, seen
        return
    assert stack.runs == (host["status"] in ("runs", "runs_with_warnings")), seen
    if "audit.mixed.impossible" in decisive(host):  # the container is not given what no driver serves
        assert stack.computed < stack.on_the_bus, seen
        return
    reasons = [words for rule, words in FORETOLD.items() if rule in decisive(host)]
    assert bool(reasons) != stack.runs, seen
    assert not reasons or reasons[0] in stack.said, seen


@pytest.mark.parametrize(
    ("status", "rules", "stack"),
    [
        ("runs", [], Stack(1, 0, "No CUDA GPUs are available")),
        ("runs_with_warnings", [], Stack(2, 1, "computed 1")),
        ("does_not_run", ["audit.image.arch"], Stack(1, 1, "computed 1")),
        ("does_not_run", ["audit.image.arch"], Stack(1, 0, "driver/library version mismatch")),
        ("does_not_run", ["audit.mixed.impossible"], Stack(2, 2, "computed 2")),
        ("unknown", ["audit.facts.unknown"], Stack(1, 1, "computed 1")),
    ],
)
def test_the_consistency_check_notices_a_verdict_that_is_wrong(
    status: str, rules: list[str], stack: Stack
) -> None:
    findings = [{"id": rule, "severity": "unknown" if status == "unknown" else "error"} for rule in rules]
    with pytest.raises(AssertionError, match="is said"):
        agree({"name": "host", "status": status, "findings": findings}, stack, IMAGE)


def test_every_kind_of_verdict_appears() -> None:
    assert {status for status, _ in EXPECTED.values()} == {
        *("runs", "runs_with_warnings", "does_not_run", "unknown")
    }
    assert set(EXPECTED) == {*PASCAL_AND_BLACKWELL, *UPGRADED, *OLD_AND_UNKNOWN}


# -- a GTX 1080 Ti, an RTX 5090, and both in one host ---------------------------------------------------


def test_consistency_where_pascal_and_blackwell_meet(mixed: Mixed, fleet: Fleet) -> None:
    check_consistency(mixed, fleet, PASCAL_AND_BLACKWELL, "2.7.0-cuda12.6")


def test_each_gets_an_image_and_a_host_with_both_is_refused(mixed: Mixed, fleet: Fleet) -> None:
    """No image for all; one each, which then runs there and not on the other; the third host in one sentence."""
    mixed.bring(*PASCAL_AND_BLACKWELL)
    site = write_inventory(fleet.folder / "asked.yaml", mixed.lab, mixed.hosts, image=None)
    document, _ = audit(fleet, str(site), "--image", pinned(IMAGE), "--best-image", code=4)
    best = document["best_image"]
    assert best["one"] is None
    images = {tuple(group["hosts"]): group["image"] for group in best["groups"]}
    assert set(images) == {("mix01",), ("mix02",)}
    assert len(set(images.values())) == 2
    for (host,), image in images.items():
        other = next(name for name in ("mix01", "mix02") if name != host)
        assert mixed.stack(host, build_of(image)).runs, f"{host} does not run {image}"
        assert not mixed.stack(other, build_of(image)).runs, f"{other} runs {image} as well"
    (refused,) = best["refused"]
    assert refused["hosts"] == ["mix03"]
    assert "no driver serves all GPUs of this host" in refused["why"]
    assert all(name in refused["why"] for name in ("GTX 1080 Ti", "RTX 5090"))
    assert not refused["why"].rstrip(".").count(". "), refused["why"]
    assert "\n" not in refused["why"]


def test_an_audit_leaves_nothing_on_the_host(mixed: Mixed, fleet: Fleet) -> None:
    """By a listing of its files, packages, units, users and containers from outside, and of its processes."""
    mixed.bring(*PASCAL_AND_BLACKWELL)
    leaves_nothing(mixed, fleet, *PASCAL_AND_BLACKWELL)


def leaves_nothing(mixed: Mixed, fleet: Fleet, *names: str) -> dict[str, Any]:
    site = write_inventory(fleet.folder / "asked.yaml", mixed.lab, mixed.hosts, image=None)
    before = everywhere(lambda name: snapshot(mixed.lab, name), names)
    document, _ = audit(fleet, str(site), "--image", pinned(IMAGE), "--best-image")
    after = everywhere(lambda name: snapshot(mixed.lab, name), names)
    assert {name: before[name].differences(after[name]) for name in names} == {name: [] for name in names}
    for name in names:
        assert "fleet.agent" not in processes(mixed.lab, name)
        assert faults.shell(mixed.lab, name, "ls -d /var/lib/fleet /run/fleet 2>/dev/null || true") == ""
    return document


def test_the_image_that_the_audit_names_turns_the_verdict_green(mixed: Mixed, fleet: Fleet) -> None:
    """No change of a host helps a GPU for which the wanted image has no code: `provision` brings the other image."""
    mixed.bring(*PASCAL_AND_BLACKWELL)
    site = write_inventory(fleet.folder / "asked.yaml", mixed.lab, mixed.hosts, image=None)
    asked = (str(site), "--limit", "mix01", "--image", pinned(IMAGE))
    changes = steps_of(by_name(audit(fleet, *asked, code=4)[0])["mix01"])
    assert set(changes) == {"image"}
    build, driver = build_of(changes["image"]), loaded_driver(mixed, "mix01")
    site = mixed.inventory(fleet.folder, build, {})
    done = fleet("provision", str(site), "--limit", "mix01", "--tags", "image")
    assert done.code == 0, done.said
    turned_green(mixed, fleet, site, build, "mix01")
    assert loaded_driver(mixed, "mix01") == driver


# -- a split driver without toolkit, a fabric manager of another version, drivers older than CUDA 12.8 ---


def test_consistency_after_upgrades_that_were_left_half_made(mixed: Mixed, fleet: Fleet) -> None:
    check_consistency(mixed, fleet, UPGRADED, "2.9.1-cuda13.0")


def test_remedies_applied_with_provision_turn_verdicts_green(mixed: Mixed, fleet: Fleet) -> None:
    """Each host gets what the audit named for it and no more: the driver loaded and a toolkit, a fabric manager."""
    broken = ("mix05", "mix07")
    mixed.bring(*UPGRADED)
    site = write_inventory(fleet.folder / "asked.yaml", mixed.lab, mixed.hosts, image=None)
    before = by_name(audit(fleet, str(site), "--image", pinned(IMAGE), code=4)[0])
    changes = {name: steps_of(before[name]) for name in broken}
    loaded = {name: loaded_driver(mixed, name) for name in broken}
    wanted = faults.shell(mixed.lab, "mix05", "modinfo -F version nvidia").strip()
    toolkit = changes["mix05"].get("toolkit")
    assert changes == {
        "mix05": {"driver": wanted, "toolkit": toolkit},
        "mix07": {"fabric_manager": loaded["mix07"]},
    }
    own = {
        "mix05": {"nvidia_driver_version": wanted, "container_toolkit_version": toolkit},
        "mix07": {"nvidia_driver_version": changes["mix07"]["fabric_manager"]},
    }
    site = mixed.inventory(fleet.folder, IMAGE, own)
    done = fleet("provision", str(site), "--limit", "mix05:mix07")
    assert done.code == 0, done.said
    turned_green(mixed, fleet, site, IMAGE, *broken)
    assert {name: loaded_driver(mixed, name) for name in broken} == {**loaded, "mix05": wanted}


def steps_of(host: dict[str, Any]) -> dict[str, str]:
    """The smallest change that the audit names: to what, by what."""
    assert host["smallest_change"], host
    return {one["what"]: one["to"] for one in host["smallest_change"]["changes"]}


def loaded_driver(mixed: Mixed, host: str) -> str:
    """By the kernel's word."""
    return faults.shell(mixed.lab, host, "cat /sys/module/nvidia/version").strip()


def turned_green(mixed: Mixed, fleet: Fleet, site: Path, build: str, *names: str) -> None:
    """By the tag, and by what the hosts themselves found in the pinned image, it runs; and it does."""
    for words in (["--image", pinned(build)], []):
        document, done = audit(fleet, str(site), "--limit", ":".join(names), *words, code=0)
        assert set(by_name(document)) == set(names)
        assert {host["status"] for host in document["hosts"]} == {"runs_with_warnings"}, done.said
    for name, stack in everywhere(lambda name: mixed.stack(name, build), names).items():
        assert stack.runs, (name, stack)


# -- a driver from before CUDA 12, and a GPU that nobody knows -----------------------------------------


def test_consistency_with_an_old_driver_and_an_unknown_gpu(mixed: Mixed, fleet: Fleet) -> None:
    check_consistency(mixed, fleet, OLD_AND_UNKNOWN, "2.7.0-cuda11.8")


def test_an_audit_needs_no_root_and_leaves_nothing(mixed: Mixed, fleet: Fleet) -> None:
    """mix06 lets nobody in but a user without sudo, who may not ask the engine either."""
    mixed.bring(*OLD_AND_UNKNOWN)
    denied = faults.execute(mixed.lab, "mix06", "docker", "version", user="guest", check=False)
    assert denied.returncode != 0
    assert faults.execute(mixed.lab, "mix06", "sudo", "-n", "true", user="guest", check=False).returncode != 0
    host = by_name(leaves_nothing(mixed, fleet, "mix06"))["mix06"]
    assert (host["root"], host["error"], host["status"]) == (False, None, "unknown")
    assert [gpu["name"] for gpu in host["gpus"]] == ["A100-SXM4-80GB", "the GPU 10de:20ff"]
