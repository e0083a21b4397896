"""``fleet provision`` on the lab of inventories/lab.yaml: check, converge, second run, other people's work."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from fleet.core.schema import validate
from fleet.lab import faults
from fleet.lab.lab import Lab
from fleet.lab.snapshot import snapshot
from tests.conftest import INVENTORY
from tests.e2e import gpu
from tests.e2e.harness import Fleet

pytestmark = pytest.mark.lab

HOSTS = ("gpu01", "gpu02", "gpu03", "gpu04")
FOREIGN = "jupyter-anna"
USED = "gpu02"
WITH_CDI = "gpu03"


@pytest.fixture(scope="module")
def bare_lab(lab: Lab) -> Lab:
    """The lab with every host as it was first made."""
    for host in HOSTS:
        lab.renew(host)
    return lab


def foreign_state(lab: Lab) -> dict[str, Any]:
    """What would change if somebody had touched the foreign container or its engine's settings."""
    found = json.loads(faults.execute(lab, "gpu02", "docker", "inspect", FOREIGN).stdout)[0]
    settings = json.loads(faults.execute(lab, "gpu02", "cat", "/etc/docker/daemon.json").stdout)
    return {
        "started": found["State"]["StartedAt"],
        "pid": found["State"]["Pid"],
        "restarts": found["RestartCount"],
        "daemon.json": settings,
    }


def statuses(fleet: Fleet) -> dict[tuple[str, str], str]:
    """(host, step) to status, from the newest reports."""
    return {
        (host, step["id"]): step["status"]
        for host, report in fleet.reports().items()
        for step in report["steps"]
    }


def test_check_then_provision_then_nothing_left(bare_lab: Lab, tmp_path: Path) -> None:
    """The whole promise on four different hosts, in the order an operator would see it."""
    fleet = Fleet(tmp_path)
    foreign = foreign_state(bare_lab)
    foreseen = check_changes_nothing(bare_lab, fleet)
    done = fleet("provision", str(INVENTORY))
    assert done.code == 5, done.said
    happened = statuses(fleet)
    the_check_told_the_truth(foreseen, happened)
    reports_are_valid(fleet, pending={USED})
    assert foreign_state(bare_lab) == foreign
    assert FOREIGN in done.out
    goes_on_with_leave(bare_lab, fleet, done.out)
    images_are_the_pinned_ones(bare_lab, fleet)
    containers_see_the_hosts_gpus(bare_lab)
    again = fleet("provision", str(INVENTORY))
    assert again.code == 0, again.said
    assert "changed=0" in again.out
    assert set(statuses(fleet).values()) <= {"ok", "skipped"}
    reports_are_valid(fleet)


def goes_on_with_leave(lab: Lab, fleet: Fleet, said: str) -> None:
    """The command that the pending host names, word for word, converges it."""
    settings = foreign_state(lab)["daemon.json"]
    (command,) = [line.partition("go on: fleet ")[2] for line in said.splitlines() if "go on: fleet " in line]
    words = shlex.split(command)
    assert words[-3:] == ["--limit", USED, "--disrupt"]
    done = fleet(*words)
    assert done.code == 0, done.said
    now = foreign_state(lab)["daemon.json"]
    assert {key: now[key] for key in settings} == settings, "what stood in daemon.json stays"


def containers_see_the_hosts_gpus(lab: Lab) -> None:
    """docker itself, the lab's hardware file and the host's nvidia-smi agree on every GPU."""
    for host in HOSTS:
        uuids = gpu.hardware_uuids(lab, host)
        assert uuids
        assert gpu.seen_by_host(lab, host) == uuids
        image = pinned_image(lab, host)
        everything, first = (
            (("--device", "nvidia.com/gpu=all"), ("--device", "nvidia.com/gpu=0"))
            if host == WITH_CDI
            else (("--gpus", "all"), ("--gpus", "device=0"))
        )
        assert gpu.seen_in_container(lab, host, image, *everything) == uuids
        assert gpu.seen_in_container(lab, host, image, *first) == uuids[:1]
        (version,) = set(gpu.versions(lab, host).values())
        assert version.startswith(f"{gpu.BRANCH}.")


def check_changes_nothing(lab: Lab, fleet: Fleet) -> dict[tuple[str, str], str]:
    before = {host: snapshot(lab, host) for host in HOSTS}
    done = fleet("provision", str(INVENTORY), "--check", "--diff")
    assert done.code == 5, done.said
    for host in HOSTS:
        assert before[host].differences(snapshot(lab, host)) == []
    return statuses(fleet)


def the_check_told_the_truth(
    foreseen: dict[tuple[str, str], str], happened: dict[tuple[str, str], str]
) -> None:
    would_change = {step for step, status in foreseen.items() if status == "would_change"}
    unknown = {step for step, status in foreseen.items() if status == "known_after_apply"}
    changed = {step for step, status in happened.items() if status == "changed"}
    assert would_change <= changed, f"foreseen, but did not happen: {would_change - changed}"
    assert changed <= would_change | unknown, f"happened unforeseen: {changed - would_change - unknown}"
    # What the driver's modules, its services and a container say follows from packages that are not there yet.
    bounded = {step for step in unknown if step[1].split(".")[1] not in ("nvidia_driver", "container_check")}
    assert len(bounded) <= 0.1 * len(foreseen), f"not foreseen: {sorted(bounded)} of {len(foreseen)}"


def reports_are_valid(fleet: Fleet, pending: Collection[str] = ()) -> None:
    reports = fleet.reports()
    assert set(reports) == set(HOSTS)
    for host, report in reports.items():
        assert validate(report, "report") == []
        assert report["status"] == ("pending" if host in pending else "converged")
        assert report["simulated"] is True
        assert report["facts"]["engine"]["responding"] is True


def images_are_the_pinned_ones(lab: Lab, fleet: Fleet) -> None:
    """Each engine's own word on what it holds, and the image's own torch."""
    pinned = (lab.state.directory / "variables.yaml").read_text()
    for host in HOSTS:
        listed = faults.execute(
            lab, host, "docker", "image", "ls", "--digests", "--format", "{{.Repository}} {{.Digest}}"
        ).stdout
        digests = [line.split()[1] for line in listed.splitlines() if "pytorch-cuda" in line]
        assert digests
        assert all(digest in pinned for digest in digests)
    code = "import torch; print(float((torch.ones(8, 8) @ torch.ones(8, 8)).sum()))"
    answer = faults.execute(
        lab,
        "gpu01",
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        pinned_image(lab, "gpu01"),
        "python3",
        "-c",
        code,
    )
    assert answer.stdout.strip() == "512.0"


def pinned_image(lab: Lab, host: str) -> str:
    listed = faults.execute(
        lab, host, "docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"
    ).stdout.split()
    return next(name for name in listed if "pytorch-cuda" in name)


def test_a_wrong_digest_is_refused(
    lab: Lab, lab_host: Callable[..., Any], fleet: Fleet, tmp_path: Path
) -> None:
    wrong = "sha256:" + "0" * 64
    done = fleet("provision", str(INVENTORY), "--limit", "gpu02", "-e", f"image_digest={wrong}")
    assert done.code == 1, done.said
    assert wrong[:19] in done.said


def test_reports_of_a_run_can_be_asked_for_later(lab: Lab, fleet: Fleet) -> None:
    fleet("provision", str(INVENTORY), "--limit", "gpu01")
    listed = json.loads(fleet("runs", "--json").out)
    shown = fleet("report", listed[0]["run"][:6], "gpu01", "--json")
    document = json.loads(shown.out)
    assert "gpu01" in json.dumps(document)
    assert Counter(fleet.reports()["gpu01"]["counts"])["changed"] == 0
