"""One group in a container of this machine's own engine: real limits, a real mount, nothing left behind.

The image is the lab's, with a torch for the CPU; where a program of the test's own runs in place of the torch side, an
empty package stands before that torch, since it takes seconds to import.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bench.container import OWNER, Containers, said, token_prefix
from fleet.agent.bench.ending import DEADLINE, ENDED
from fleet.agent.bench.output import Output
from fleet.agent.bench.source import Folders
from fleet.agent.bench.torch_side import plan
from fleet.agent.engine import Engine, EngineError
from fleet.agent.host import Host

from .doubles import result_line, uuid

pytestmark = pytest.mark.lab

GROUP = {"group": "cpu", "gpu_uuids": [], "deadline_s": 60, "needs_shm_bytes": 0}
REPORTS = """
import json, os, resource, sys
inside = {
    "request": json.loads(sys.argv[1]),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY,
    "network": sorted(os.listdir("/sys/class/net")),
}
open(os.environ["FLEET_BENCH_LOCK"], "w").close()
try:
    open("/fleet-agent/written", "w")
except OSError as error:
    inside["written"] = error.strerror
print("fleet:note " + json.dumps(inside), flush=True)
"""
PRINTED = result_line("memory.copy", [uuid(0)])
HANGS = f"import sys, time\nsys.stdout.write({PRINTED!r})\nsys.stdout.flush()\ntime.sleep(600)"


def image(docker: Engine) -> str:
    """The lab's image with torch, where it is here."""
    for found in docker.images():
        for name in found.get("RepoTags") or []:
            if name.startswith("fleet-lab/pytorch:"):
                return str(name)
    pytest.skip("the lab's image with torch is not here: fleet lab up makes it")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host("/", state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "runtime"))


@pytest.fixture
def folders(host: Host) -> Iterator[Folders]:
    with Folders(host) as made:
        yield made


@pytest.fixture
def containers(host: Host, folders: Folders) -> Containers:
    try:
        reference = image(host.docker)
    except EngineError as error:
        pytest.skip(f"no engine here: {error}")
    args = {"reference": reference, "digest": None, "request": "gpus"}
    return Containers(host, args, folders)


def run(
    containers: Containers, folders: Folders, program: str, deadline_s: float, **group: Any
) -> tuple[Any, Output, list[str]]:
    told: list[str] = []
    code = Path(folders.code)
    (code / "torch").mkdir(exist_ok=True)
    (code / "torch/__init__.py").write_text("")
    (code / "fleet/agent/bench/torch_side/__main__.py").write_text(program)
    output = Output(told.append)
    return containers.run({**GROUP, **group}, {"group": "cpu"}, [], deadline_s, output), output, told


def test_the_torch_side_measures_in_the_image(host: Host, containers: Containers) -> None:
    output = Output(lambda text: None)
    request = plan.request("cpu", "quick", [], {"deadline_s": 60})
    ending = containers.run(GROUP, request, [], 120.0, output)
    assert (ending.how, ending.code) == (ENDED, 0), (ending.refused, output.text)
    assert [(one["test"], one["status"]) for one in output.results] == [("cpu.matrix_product", "measured")]
    assert output.software is not None
    assert output.software["torch"]
    assert gone(host)


def gone(host: Host) -> bool:
    host.invalidate()
    labels = [found.get("Labels") or {} for found in host.docker.containers()]
    return all(each.get(OWNER) != token_prefix(host) for each in labels)


def test_inside_are_its_limits_its_sources_and_no_network(
    host: Host, containers: Containers, folders: Folders
) -> None:
    ending, output, told = run(containers, folders, REPORTS, 60.0, needs_shm_bytes=1 << 30)
    assert (ending.how, ending.code) == (ENDED, 0), (ending.refused, output.text)
    inside = json.loads(told[0])
    assert inside["request"] == {"group": "cpu"}
    assert inside["shm"] >= 1 << 30
    assert inside["memlock"] is (ending.note is None)  # an engine in a container may not raise it
    assert inside["network"] == ["lo"]
    assert inside["written"] == "Read-only file system"
    assert (Path(folders.shared) / "lock").exists()
    assert gone(host)


def test_one_that_hangs_is_killed_at_its_deadline_and_what_it_printed_is_kept(
    host: Host, containers: Containers, folders: Folders
) -> None:
    ending, output, _ = run(containers, folders, HANGS, 4.0)
    assert ending.how == DEADLINE
    assert [one["test"] for one in output.results] == ["memory.copy"]
    assert gone(host)


def test_too_little_shared_memory_is_found_inside(
    host: Host, containers: Containers, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = containers.configuration

    def small(*args: Any) -> dict[str, Any]:
        body = whole(*args)
        body["HostConfig"]["ShmSize"] = 64 << 20
        return body

    monkeypatch.setattr(containers, "configuration", small)
    ending, output, _ = run(containers, folders, REPORTS, 60.0, needs_shm_bytes=1 << 30)
    found = said(output)
    assert (ending.code, found and found.reason) == (4, "shm_too_small")
    assert gone(host)
