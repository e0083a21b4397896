"""The container check: the same GPUs inside and outside, by UUID; reasons for what goes wrong; not repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.container_check.seen import PROBE, SCRIPT, rows, versions
from fleet.agent.facts import checks
from fleet.agent.process import Result
from fleet.agent.resources import load
from fleet.agent.resources.base import StepFailed, StepPending
from fleet.agent.resources.container_check import NAME
from fleet.core.schema import validate

from .fake import FakeEngine

DIGEST = "sha256:" + "d" * 64
REFERENCE = "registry.example.net:5000/pytorch-cuda:v2.7"
BY_DIGEST = f"registry.example.net:5000/pytorch-cuda@{DIGEST}"
GO_ON = "fleet provision lab.yaml --limit gpu01 --disrupt"
ARGS: dict[str, Any] = {
    "reference": REFERENCE,
    "digest": DIGEST,
    "request": "auto",
    "gpus": "all",
    "addresses": ["0000:1b:00.0", "0000:43:00.0"],
    "go_on": None,
    "deadline_s": 30,
}
H100 = "NVIDIA H100 80GB HBM3"
GPUS = [
    f"0, GPU-00000000-0000-4000-8000-000000000000, 00000000:1B:00.0, {H100}, 580.159.03, 81559",
    f"1, GPU-00000000-0000-4000-8000-000000000001, 00000000:43:00.0, {H100}, 580.159.03, 81559",
]
VERSIONS = {
    "python": "3.11.2",
    "torch": "2.7.0+cu128",
    "cuda": "12.8",
    "cudnn": 90701,
    "nccl": "2.26.2",
    "arch_list": ["sm_75", "sm_90"],
    "cuda_available": True,
    "device_count": 2,
}
REFUSED = "failed to create task for container: OCI runtime create failed: "


class Box:
    """A host with two GPUs, and what containers on it print."""

    def __init__(self, engine: FakeEngine, host: Any, root: Path) -> None:
        self.engine = engine
        self.host = host
        self.root = root
        self.smi = Result(0, "\n".join(GPUS) + "\n", "")
        self.inside: list[str] | None = None  # lines of nvidia-smi in a container; None: what was asked for
        self.exit = 0
        self.python = "fleet:versions " + json.dumps(VERSIONS) + "\n"
        engine.images["i1"] = {"Id": "i1", "RepoDigests": [BY_DIGEST], "RepoTags": [REFERENCE]}
        engine.ends_with = self.printed
        self.write("usr/bin/nvidia-smi", "").chmod(0o755)
        self.write("proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555\n")
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580.159.03\n")
        host.run = self.run

    def write(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def run(self, argv: list[str], **options: Any) -> Result:
        assert argv[0] == "nvidia-smi"
        self.environment = options.get("env")
        return self.smi

    def printed(self, body: dict[str, Any]) -> str:
        request = body["HostConfig"]["DeviceRequests"][0]
        names = [name.partition("=")[2] or name for name in request.get("DeviceIDs") or ["all"]]
        lines = GPUS if names == ["all"] else [GPUS[int(name)] for name in names]
        shown = lines if self.inside is None else self.inside
        probed = self.python if body["Cmd"][3] else ""
        return "".join(line + "\n" for line in shown) + f"fleet:exit {self.exit}\n" + probed

    def differences(self, **changes: Any) -> list[dict[str, Any]]:
        self.host.invalidate()
        resource, args = load("container_check"), {**ARGS, **changes}
        return resource.diff(resource.read(self.host, args), args)

    def apply(self, report: Any, **changes: Any) -> Any:
        resource, args = load("container_check"), {**ARGS, **changes}
        return resource.apply(self.host, args, self.differences(**changes), report)

    def fails(self, report: Any, **changes: Any) -> StepFailed:
        with pytest.raises(StepFailed) as caught:
            self.apply(report, **changes)
        return caught.value

    def bodies(self) -> list[dict[str, Any]]:
        return [body for name, body in self.engine.created if name == NAME]

    @property
    def record(self) -> Any:
        return json.loads((self.root / "state/checks/container.json").read_text())


@pytest.fixture
def box(engine: FakeEngine, host: Any, root: Path) -> Box:
    return Box(engine, host, root)


def test_it_runs_the_digest_with_all_gpus_and_with_one(box: Box, report: Any) -> None:
    assert box.differences() == [{"path": "container check", "before": None, "after": "passed"}]
    box.apply(report)
    whole, one = box.bodies()
    assert whole["Image"] == one["Image"] == BY_DIGEST
    assert whole["HostConfig"]["DeviceRequests"] == [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    assert one["HostConfig"]["DeviceRequests"] == [
        {"Driver": "", "DeviceIDs": ["0"], "Capabilities": [["gpu"]]}
    ]
    assert "fleet.config_hash" in whole["Labels"]
    assert "NVIDIA_DISABLE_REQUIRE" not in json.dumps(whole)
    assert box.engine.containers == {}  # nothing is left of them


def test_what_was_seen_is_kept_and_nothing_is_run_again(box: Box, report: Any) -> None:
    registered = box.apply(report)["registered"]["container_check"]
    assert box.record == registered
    assert registered["passed"] is True
    assert registered["versions"] == VERSIONS
    assert registered["request"] == "gpus"
    assert [gpu["address"] for gpu in registered["gpus"]] == ["00000000:1B:00.0", "00000000:43:00.0"]
    assert registered["one_gpu"] == "GPU-00000000-0000-4000-8000-000000000000"
    assert box.differences() == []
    facts = {"schema": "fleet.facts/1", "collected_at": "2026-11-30T12:00:00Z", "simulated": False}
    assert validate({**facts, "errors": [], **checks.collect(box.host)}, "facts") == []


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("proc/sys/kernel/random/boot_id", "another\n", "boot"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.211.01\n",
            "driver",
        ),
        ("etc/docker/daemon.json", '{"runtimes": {}}', "daemon_json"),
        ("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n", "cdi"),
        ("usr/bin/nvidia-ctk", "1.20.0", "toolkit"),
    ],
)
def test_it_is_due_again_when_what_it_depends_on_changed(
    box: Box, report: Any, path: str, text: str, named: str
) -> None:
    box.apply(report)
    box.write(path, text).chmod(0o755)
    assert box.differences()[0]["before"] == f"passed with another {named}"


def test_another_engine_or_digest_makes_it_due_too(box: Box, report: Any) -> None:
    box.apply(report)
    box.engine.info = {"ServerVersion": "26.1.5"}
    assert box.differences()[0]["before"] == "passed with another engine"
    other = "sha256:" + "e" * 64
    box.engine.images["i2"] = {"Id": "i2", "RepoDigests": [BY_DIGEST.replace(DIGEST, other)], "RepoTags": []}
    assert "image" in box.differences(digest=other)[0]["before"]


def test_the_facts_say_where_no_check_was_made_and_where_its_record_is_broken(box: Box) -> None:
    found = checks.collect(box.host)
    assert (found["container_check"], found["container_check_reason"]) == (None, "not_collected")
    assert (found["benchmark"], found["benchmark_reason"]) == (None, "not_collected")
    box.write("state/checks/container.json", "[]")
    with pytest.raises(ValueError, match="no object"):
        checks.collect(box.host)
    assert box.differences()[0]["before"] is None  # and the check is made anew


def test_a_failure_is_kept_and_tried_again(box: Box, report: Any) -> None:
    box.engine.start_error = 'could not select device driver "" with capabilities: [[gpu]]'
    reason = box.fails(report).what
    assert (box.record["passed"], box.record["reason"]) == (False, reason)
    assert box.differences()[0]["before"] == f"failed: {reason}"
    box.engine.start_error = None
    box.apply(report)
    assert box.differences() == []


def test_cdi_is_asked_for_where_the_engine_and_a_specification_have_it(box: Box, report: Any) -> None:
    box.write("etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    box.engine.info = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
    box.apply(report)
    requests = [body["HostConfig"]["DeviceRequests"] for body in box.bodies()]
    assert requests[0] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]
    assert requests[1] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]


@pytest.mark.parametrize(
    ("message", "reason", "kept"),
    [
        (
            REFUSED
            + "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update"
            " your driver to a newer version, or use an earlier cuda container",
            "driver_too_old",
            "CUDA 12.8",
        ),
        ('could not select device driver "" with capabilities: [[gpu]]', "runtime_missing", ""),
        ("could not select device driver with capabilities: [[gpu]]", "runtime_missing", ""),
        ('could not select device driver "cdi" with capabilities: [[gpu]]', "runtime_missing", "CDI"),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            "runtime_missing",
            "nvidia.com/gpu=all",
        ),
        (
            REFUSED
            + "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch",
            "driver_library_mismatch",
            "",
        ),
        (
            REFUSED + "nvidia-container-cli: initialization error: nvml error: driver not loaded",
            "driver_not_loaded",
            "",
        ),
        ("no space left on device", "container_failed", "no space left"),
    ],
)
def test_a_start_that_is_refused_has_a_reason(
    box: Box, report: Any, message: str, reason: str, kept: str
) -> None:
    box.engine.start_error = message
    failure = box.fails(report)
    assert failure.what.startswith(reason + ": ")
    assert kept in failure.what
    assert failure.remedy
    assert box.engine.containers == {}


@pytest.mark.parametrize(("cuda", "driver"), [("12.4", "550.163.01"), ("13.0", "580.159.03")])
def test_an_image_for_a_newer_driver_is_not_even_started(
    box: Box, report: Any, cuda: str, driver: str
) -> None:
    environment = ["NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=tesla,driver>=535,driver<536"]
    box.engine.images["i1"]["Config"] = {"Env": environment}
    query = "\n".join(GPUS).replace("580.159.03", driver)
    table = f"| NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: {cuda} |"
    box.host.run = lambda argv, **options: Result(0, query if len(argv) > 1 else table, "")
    if cuda == "13.0":
        box.apply(report)
        assert len(box.bodies()) == 2
        return
    failure = box.fails(report)
    assert failure.what == (
        "driver_too_old: the image needs cuda>=12.8; this host has driver 550.163.01 with CUDA 12.4"
    )
    assert box.bodies() == []
    assert box.record["reason"] == failure.what


def test_an_engine_older_than_the_hook_waits_for_leave_where_others_use_the_host(
    box: Box, report: Any
) -> None:
    box.write("usr/bin/nvidia-container-runtime-hook", "").chmod(0o755)
    box.engine.start_error = 'could not select device driver "" with capabilities: [[gpu]]'
    with pytest.raises(StepPending, match="needs leave to restart Docker") as caught:
        box.apply(report, go_on=GO_ON)
    assert caught.value.remedy == GO_ON
    assert not isinstance(box.fails(report), StepPending)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "UserWarning: CUDA initialization: Error 804: forward compatibility was attempted on non supported HW",
            "compat_on_unsupported_gpu",
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
            "fabric_not_ready",
        ),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12040).",
            "driver_too_old",
        ),
        ("Error 35: CUDA driver version is insufficient for CUDA runtime version", "driver_too_old"),
        ("something else", "cuda_unavailable"),
    ],
)
def test_a_torch_that_finds_no_gpu_has_a_reason(box: Box, report: Any, said: str, reason: str) -> None:
    answer = {**VERSIONS, "cuda_available": False, "device_count": 0}
    box.python = f"{said}\nfleet:versions {json.dumps(answer)}\n"
    assert box.fails(report).what.startswith(reason + ": ")


def test_a_torch_without_cuda_fails_and_an_image_without_torch_does_not(box: Box, report: Any) -> None:
    box.python = "fleet:versions " + json.dumps({**VERSIONS, "cuda": None, "cuda_available": False}) + "\n"
    assert box.fails(report).what.startswith("no_cuda_in_image: torch 2.7.0+cu128")
    box.python = 'fleet:versions {"python": "3.11.2", "torch": null}\n'
    assert box.apply(report)["registered"]["container_check"]["versions"]["torch"] is None


def test_on_simulated_hardware_nothing_computes_and_the_record_says_so(box: Box, report: Any) -> None:
    box.write("etc/fleet-lab.json", "{}")
    box.python = "fleet:versions " + json.dumps({**VERSIONS, "cuda": None, "cuda_available": False}) + "\n"
    assert box.apply(report)["registered"]["container_check"]["simulated"] is True


def test_a_container_that_lost_its_gpus_is_not_a_fault_of_the_host(box: Box, report: Any) -> None:
    box.inside, box.exit = ["Failed to initialize NVML: Unknown Error"], 255
    failure = box.fails(report)
    assert failure.what.startswith("container_lost_gpu: ")
    assert "recreate the container" in (failure.remedy or "")
    assert "reboot" not in (failure.remedy or "")
    assert len(box.record["gpus"]) == 2  # the host's are as they were


def test_another_number_or_other_gpus_inside_is_a_failure_with_the_uuids(box: Box, report: Any) -> None:
    box.inside = GPUS[:1]
    failure = box.fails(report)
    assert failure.what.startswith("count_differs: the container sees 1 GPUs where 2 were given")
    assert "GPU-00000000-0000-4000-8000-000000000001" in failure.what
    box.inside = GPUS  # also where one was asked for
    assert "where 1 were given" in box.fails(report).what


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n",
         "driver_library_mismatch: the loaded driver and its libraries are of different versions (libraries: 570.124)"),
        (18, "Failed to initialize NVML: Driver/library version mismatch\n", "driver_library_mismatch: "),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the\n",
         "driver_not_loaded: "),
        (6, "No devices were found\n", "no_devices: "),
        (15, "Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.  Reboot the system\n",
         "gpu_error: GPU 0000:1A:00.0 does not answer"),
        (0, "Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error\n" + GPUS[0] + "\n",
         "gpu_error: GPU 000:BA:80.0 does not answer: Unknown Error"),
        (14, "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n", "nvidia_smi_failed: "),
    ],
)  # fmt: skip
def test_a_host_whose_nvidia_smi_fails_is_told_apart(
    box: Box, report: Any, code: int, text: str, reason: str
) -> None:
    box.smi = Result(code, text, "")
    assert box.fails(report).what.startswith(reason)
    assert box.bodies() == []


def test_a_gpu_of_the_bus_that_nvidia_smi_lacks_is_named(box: Box, report: Any) -> None:
    box.smi = Result(0, GPUS[0] + "\n", "")
    assert box.fails(report).what.startswith("gpu_missing: 0000:43:00.0 is on the PCI bus")


def test_no_nvidia_smi_on_the_host(box: Box, report: Any) -> None:
    (box.root / "usr/bin/nvidia-smi").unlink()
    assert box.fails(report).what.startswith("tool_missing: ")


def test_nvidia_smi_beside_the_usual_folders_gets_its_library(box: Box, report: Any) -> None:
    box.apply(report)
    assert box.environment is None
    (box.root / "usr/bin/nvidia-smi").unlink()
    box.write("usr/local/nvidia/bin/nvidia-smi", "").chmod(0o755)
    box.write("usr/local/nvidia/lib64/libnvidia-ml.so.1", "")
    box.apply(report)
    assert box.environment == {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}


def test_a_container_that_does_not_end_is_ended(box: Box, report: Any) -> None:
    box.engine.released.clear()
    try:
        assert box.fails(report, deadline_s=0.3).what.startswith("container_timeout: ")
    finally:
        box.engine.released.set()
    assert box.engine.containers == {}


def test_what_a_dead_worker_left_is_removed_and_a_strangers_is_not(box: Box, report: Any) -> None:
    box.engine.containers[NAME] = {"Config": {"Labels": {"fleet.config_hash": "x"}}, "State": {}}
    box.apply(report)
    stranger: dict[str, Any] = {"Config": {"Labels": {}, "Image": "mine"}, "State": {}}
    box.engine.containers[NAME] = stranger
    box.write("proc/sys/kernel/random/boot_id", "another\n")
    assert "fleet did not make it" in box.fails(report).what
    assert box.engine.containers[NAME] is stranger


def test_a_missing_image_is_named_by_its_digest(box: Box) -> None:
    box.engine.images.clear()
    with pytest.raises(StepFailed, match=DIGEST):
        box.differences()


def test_placeholders_and_sentences_between_rows() -> None:
    found = rows(
        "a sentence, with commas, and, more, of, it\n0, GPU-1, 00008ED0:00:00.0, [N/A], [N/A], [Unknown Error]\n"
    )
    assert found == [
        {
            "index": 0,
            "uuid": "GPU-1",
            "address": "00008ED0:00:00.0",
            "name": None,
            "driver_version": None,
            "memory_total_mib": None,
        }
    ]


def test_the_script_and_the_probe_run_where_there_is_no_torch(tmp_path: Path) -> None:
    import os
    import subprocess

    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    smi.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", SCRIPT, "sh", PROBE],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    first, code, *rest = done.stdout.splitlines()
    assert (first, code) == ("No devices were found", "fleet:exit 6")
    assert any(line.startswith("fleet:versions {") for line in rest)


@pytest.mark.parametrize(
    "content", ['{"at": 1e999}', '{"at": NaN}', '{"at": 1, "at": 2}', "[" * 100_000, "[]"]
)
def test_a_record_that_two_readers_would_read_otherwise_is_no_record(box: Box, content: str) -> None:
    place = Path(checks.path(box.host))
    place.parent.mkdir(parents=True)
    place.write_text(content)
    with pytest.raises(ValueError):
        checks.read(box.host)


@pytest.mark.parametrize("said", ["3", "[]", "null", '{"torch": NaN}', "[" * 100_000])
def test_versions_that_are_no_object_are_none(said: str) -> None:
    assert versions(f"fleet:versions {said}\n") == {}
    assert versions(f'fleet:versions {{"torch": "2"}}\nfleet:versions {said}\n') == {"torch": "2"}
