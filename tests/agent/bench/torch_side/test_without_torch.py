"""The program beside a torch that is missing, has no CUDA, cannot start it, or never answers."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.bench.torch_side.conftest import MODULE, ROOT, request, with_python

GPU = "GPU-00000000-0000-4000-8000-000000000000"
MISSING = "raise ImportError('No module named torch')\n"
WITHOUT_CUDA = """\
__version__ = "2.5.1+cpu"
class version:
    cuda = None
"""
BLIND = """\
__version__ = "2.5.1+cu124"
class version:
    cuda = "12.4"
class backends:
    class cudnn:
        @staticmethod
        def version(): return 90100
class cuda:
    @staticmethod
    def get_arch_list(): return ["sm_80", "sm_90"]
    @staticmethod
    def get_device_capability(index): return (7, 0)
    @staticmethod
    def init(): raise RuntimeError({text!r})
"""
SILENT = """\
import os, signal
with open(os.environ["PID_FILE"], "w") as file:
    file.write(str(os.getpid()))
signal.pause()
"""


def torch_that(folder: Path, source: str) -> Path:
    """A folder with a module named torch that does as ``source`` says."""
    (folder / "torch.py").write_text(source)
    return folder


@pytest.mark.parametrize(
    ("source", "reason"), [(MISSING, "torch_missing"), (WITHOUT_CUDA, "torch_cpu_build")]
)
def test_no_gpu_result_comes_from_a_torch_that_cannot_drive_one(
    tmp_path: Path, source: str, reason: str
) -> None:
    printed = with_python(torch_that(tmp_path, source), request("compute", [GPU]), {})
    assert printed.code == 0, printed.errors
    assert printed.of("matrix_product.bf16")["gpus"] == [GPU]
    assert {one["status"] for one in printed.results} == {"not_runnable"}
    assert {one["reason"] for one in printed.results} == {reason}
    assert all(one["value"] is None for one in printed.results)


def test_the_cpu_test_says_that_torch_is_missing(tmp_path: Path) -> None:
    printed = with_python(torch_that(tmp_path, MISSING), request("cpu", []), {})
    assert printed.of("cpu.matrix_product")["reason"] == "torch_missing"
    assert printed.software[0]["torch"] is None


def test_a_cuda_that_cannot_start_is_a_failure_in_its_own_words(tmp_path: Path) -> None:
    site = torch_that(tmp_path, BLIND.format(text="Error 802: system not yet initialized"))
    printed = with_python(site, request("training", [GPU]), {})
    result = printed.of("resnet50.amp_channels_last")
    assert (result["status"], result["reason"]) == ("failed", "cuda_init_failed")
    assert "802" in result["message"]


def test_a_torch_without_code_for_the_gpu_names_both(tmp_path: Path) -> None:
    text = "CUDA error: no kernel image is available for execution on the device"
    printed = with_python(torch_that(tmp_path, BLIND.format(text=text)), request("compute", [GPU]), {})
    result = printed.of("memory.copy")
    assert (result["status"], result["reason"]) == ("not_runnable", "arch_mismatch")
    assert "sm_80 sm_90" in result["message"]
    assert "sm_70" in result["message"]


def test_collectives_of_one_gpu_are_skipped(tmp_path: Path) -> None:
    printed = with_python(torch_that(tmp_path, MISSING), request("ddp", [GPU]), {})
    assert printed.of("ddp.resnet50")["reason"] == "one_gpu"


@pytest.mark.parametrize(
    "argument", ["{", "[]", json.dumps({"group": "no", "suite": "quick"}), json.dumps({"group": "cpu"})]
)
def test_a_bad_request_is_refused_with_what_it_should_be(tmp_path: Path, argument: str) -> None:
    printed = with_python(tmp_path, argument, {})
    assert printed.code == 2
    assert "collectives" in printed.errors
    assert printed.results == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_parent(tmp_path: Path, end: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    torch_that(tmp_path, SILENT)
    environment = {
        **os.environ,
        "PID_FILE": str(pid_file),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, request("compute", [GPU])], env=environment
    ) as parent:
        child = os.pidfd_open(int(pid_file.read_text()))
        try:
            parent.send_signal(end)
            parent.wait(timeout=60)
            ended, _, _ = select.select([child], [], [], 60)
        finally:
            os.close(child)
    assert ended, "the child is still there"
    assert parent.returncode == (-signal.SIGKILL if end == signal.SIGKILL else 143)


def test_a_child_that_is_killed_costs_the_test_it_was_in(tmp_path: Path) -> None:
    suicidal = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    printed = with_python(
        torch_that(tmp_path, suicidal), request("compute", [GPU], tests=["memory.copy"]), {}
    )
    result = printed.of("memory.copy")
    assert (result["status"], result["value"]) == ("failed", None)
    assert "SIGSEGV" in result["message"]
