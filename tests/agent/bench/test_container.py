"""One group in a container, at a fake engine: its options, its output, its deadline, what is left behind."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bench import container, explain, source
from fleet.agent.bench.container import Containers
from fleet.agent.bench.ending import CANCELLED, DEADLINE, ENDED
from fleet.agent.bench.output import Output
from fleet.agent.bench.source import Folders
from fleet.agent.host import Host
from fleet.transport.bundle import Bundle
from tests.agent.engine.fake import FakeEngine

from .doubles import device, result_line, uuid

DIGEST = "sha256:" + "d" * 64
REFERENCE = "registry.example.net:5000/pytorch-cuda:v2.7"
BY_DIGEST = f"registry.example.net:5000/pytorch-cuda@{DIGEST}"
ARGS = {"reference": REFERENCE, "digest": DIGEST, "request": "auto"}
GROUP = {"group": "compute", "gpu_uuids": [uuid(0)], "deadline_s": 60, "needs_shm_bytes": 0}
REQUEST = {"group": "compute", "suite": "quick", "gpu_uuids": [uuid(0)], "parameters": {}}
ROW = {**device(0), "mig_profile": None}


@pytest.fixture
def folders(host: Host) -> Iterator[Folders]:
    with Folders(host) as made:
        yield made


@pytest.fixture
def containers(engine: FakeEngine, host: Host, folders: Folders) -> Containers:
    engine.images["i1"] = {"Id": "i1", "RepoDigests": [BY_DIGEST], "RepoTags": [REFERENCE]}
    engine.ends_with = lambda body: result_line("memory.copy", [uuid(0)])
    return Containers(host, ARGS, folders)


def run(containers: Containers, deadline_s: float = 30.0, **group: Any) -> tuple[Any, Output]:
    output = Output(lambda text: None)
    return containers.run({**GROUP, **group}, REQUEST, [ROW], deadline_s, output), output


def test_the_container_has_its_gpus_shared_memory_sources_and_no_network(
    engine: FakeEngine, containers: Containers, folders: Folders
) -> None:
    ending, output = run(containers, needs_shm_bytes=3 << 30)
    assert (ending.how, ending.code, len(output.results)) == (ENDED, 0, 1)
    ((name, body),) = engine.created
    assert name.startswith("fleet-benchmark-compute-")
    options = body["HostConfig"]
    assert body["Image"] == BY_DIGEST
    assert options["NetworkMode"] == "none"
    assert options["ShmSize"] >= 3 << 30
    assert options["DeviceRequests"] == [{"Driver": "", "DeviceIDs": [uuid(0)], "Capabilities": [["gpu"]]}]
    assert {"Name": "memlock", "Soft": -1, "Hard": -1} in options["Ulimits"]
    code, shared = options["Mounts"]
    assert (code["Source"], code["ReadOnly"]) == (folders.code, True)
    assert f"FLEET_BENCH_LOCK={shared['Target']}/lock" in body["Env"]
    assert json.loads(body["Cmd"][3]) == REQUEST
    assert body["Cmd"][4] == str(3 << 20)
    assert engine.containers == {}


def test_shared_memory_is_never_less_than_a_gigabyte(engine: FakeEngine, containers: Containers) -> None:
    run(containers)
    assert engine.created[0][1]["HostConfig"]["ShmSize"] == 1 << 30


def test_cdi_names_a_gpu_as_the_specification_does(
    engine: FakeEngine, containers: Containers, host: Host, root: Path, folders: Folders
) -> None:
    engine.info = {"CDISpecDirs": ["/etc/cdi"]}
    (root / "etc/cdi").mkdir(parents=True)
    text = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n"
    for listed, name in (("", "0"), (f"- name: {uuid(0)}\n", uuid(0))):
        (root / "etc/cdi/nvidia.yaml").write_text(text + listed)
        run(Containers(host, ARGS, folders))
        request = engine.created[-1][1]["HostConfig"]["DeviceRequests"]
        assert request == [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={name}"]}]


def test_at_the_deadline_it_is_removed_and_what_it_printed_is_kept(
    engine: FakeEngine, containers: Containers
) -> None:
    engine.hangs = True
    ending, output = run(containers, deadline_s=0.5)
    assert ending.how == DEADLINE
    assert [one["test"] for one in output.results] == ["memory.copy"]
    assert engine.containers == {}
    name = engine.created[0][0]
    assert ("DELETE", f"/containers/{name}", {"force": "1"}) in engine.requests


def test_a_cancelled_run_kills_the_container(engine: FakeEngine, root: Path, folders: Folders) -> None:
    asked = iter([False] * 2)
    host = Host(str(root), cancelled=lambda: next(asked, True))
    engine.images["i1"] = {"Id": "i1", "RepoDigests": [BY_DIGEST], "RepoTags": [REFERENCE]}
    engine.ends_with = lambda body: result_line("memory.copy", [uuid(0)])
    engine.hangs = True
    ending, _ = run(Containers(host, ARGS, folders))
    assert ending.how == CANCELLED
    assert engine.containers == {}


def test_what_a_dead_worker_left_is_removed_and_nothing_else(
    engine: FakeEngine, containers: Containers, host: Host, folders: Folders
) -> None:
    def left(labels: dict[str, str]) -> dict[str, Any]:
        return {"Id": "x", "Image": "i1", "Config": {"Labels": labels}, "State": {"Running": True}}

    own = {"fleet.config_hash": "benchmark", "fleet.benchmark": container.token_prefix(host)}
    engine.containers["fleet-benchmark-ddp-1234"] = left(own)
    engine.containers["of-another-agent"] = left({**own, "fleet.benchmark": "0" * 16})
    engine.containers["jupyter-anna"] = left({"fleet.config_hash": "0" * 64})
    engine.containers["train"] = left({})
    Containers(host, ARGS, folders)
    assert sorted(engine.containers) == ["jupyter-anna", "of-another-agent", "train"]


def test_a_refusal_of_the_engine_is_the_ending_of_the_group(
    engine: FakeEngine, containers: Containers
) -> None:
    engine.start_error = 'could not select device driver "" with capabilities: [[gpu]]'
    ending, _ = run(containers)
    assert ending.refused == engine.start_error
    assert engine.containers == {}


def script(
    tmp_path: Path, free_kib: int, needed_kib: int, python: str | None
) -> subprocess.CompletedProcess[str]:
    """Run the container's script with a df and a Python of our own."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    df = "#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted on\n"
    (tools / "df").write_text(df + f"echo shm {free_kib} 0 {free_kib} 0% /dev/shm\n")
    if python is not None:
        (tools / "python3").write_text(python)
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for name in ("tail", "sh"):
        if not (tools / name).exists():
            os.symlink(f"/usr/bin/{name}", tools / name)
    words = ["/bin/sh", "-c", container.SCRIPT, "sh", '{"a b": 1}', str(needed_kib)]
    return subprocess.run(words, env={"PATH": str(tools)}, capture_output=True, text=True, check=False)


def test_too_little_shared_memory_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = script(tmp_path, 65536, 1 << 20, "#!/bin/sh\necho started\n")
    output = Output(lambda text: None)
    output.feed(done.stdout)
    found = container.said(output)
    assert found is not None
    assert (found.reason, found.words) == ("shm_too_small", "the container has 65536 KiB of shared memory")
    assert "started" not in done.stdout
    assert done.returncode == 4


def test_the_first_python_with_torch_gets_the_request_whole(tmp_path: Path) -> None:
    python = '#!/bin/sh\n[ "$1" = -c ] && exit 0\necho "$@"\n'
    done = script(tmp_path, 1 << 20, 1 << 20, python)
    assert done.stdout == '-m fleet.agent.bench.torch_side {"a b": 1}\n'


def test_an_image_without_torch_says_so(tmp_path: Path) -> None:
    done = script(tmp_path, 1 << 20, 0, "#!/bin/sh\nexit 1\n")
    output = Output(lambda text: None)
    output.feed(done.stdout)
    found = container.said(output)
    assert found is not None
    assert (found.reason, done.returncode) == ("torch_missing", 3)
    assert found.reason == explain.torch_failure(None, None, False, 1).reason  # type: ignore[union-attr]


def test_the_sources_are_readable_by_everybody_and_removed_at_the_end(host: Host) -> None:
    with Folders(host) as folders:
        code = Path(folders.code)
        assert (code / "fleet/agent/bench/torch_side/plan.py").is_file()
        assert not (code / "fleet/modules").exists()
        for path in (code, code / "fleet/agent", code / "fleet/__init__.py"):
            assert path.stat().st_mode & 0o004
        words = ["python3", "-S", "-E", "-c", "import fleet.agent.bench.torch_side.plan"]
        assert subprocess.run(words, cwd=code, check=False).returncode == 0
    assert not code.exists()


def test_the_sources_come_out_of_the_zip_that_a_session_runs_from(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(Bundle.of_agent().data)
    monkeypatch.setattr(source, "running_from", lambda: str(bundle))
    with Folders(host) as folders:
        words = ["python3", "-S", "-E", "-c", "import fleet.agent.bench.torch_side.plan"]
        assert subprocess.run(words, cwd=folders.code, check=False).returncode == 0
