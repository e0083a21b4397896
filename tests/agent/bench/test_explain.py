"""Texts of failed benchmarks: each has the reason that asks for the right repair."""

from __future__ import annotations

import pytest

from fleet.agent.bench import explain

WATCHDOG = (
    "[rank3]:[E1130 12:00:01.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=120000) ran for "
    "120041 milliseconds before timing out."
)
PEERS = """\
gpu07:4411:4500 [2] NCCL INFO P2P is disabled between connected GPUs 3 and 2. You can repress this message with X.
gpu07:4411:4500 [2] NCCL INFO Could not enable P2P between dev 2(=67000) and dev 3(=68000)
gpu07:4412:4501 [3] NCCL INFO P2P is disabled between connected GPUs 2 and 3. You can repress this message with X.
gpu07:4412:4501 [3] NCCL INFO P2P is disabled between connected GPUs 0 and 3. You can repress this message with X.
"""
OLD_IMAGE = """\
UserWarning:
NVIDIA L4 with CUDA capability sm_89 is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities sm_37 sm_60 sm_70.

RuntimeError: CUDA error: no kernel image is available for execution on the device
"""


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (WATCHDOG, "collective_timeout", "ALLREDUCE did not end: it ran for 120041 ms"),
        (OLD_IMAGE, "arch_mismatch", "(sm_89); it has code for sm_37 sm_60 sm_70"),
        ("CUDA error: no kernel image is available for execution on the device", "arch_mismatch", "no code"),
        ("RuntimeError: Error 802: system not yet initialized", "cuda_init_failed", "error 802"),
        ("RuntimeError: CUDA error: initialization error", "cuda_init_failed", "error 3,"),
        ("RuntimeError: No CUDA GPUs are available", "cuda_init_failed", "finds no GPU"),
        ("AssertionError: Torch not compiled with CUDA enabled", "torch_cpu_build", "without CUDA"),
        ("ModuleNotFoundError: No module named 'torch'", "torch_missing", "no torch"),
        (
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed: No space left on device",
            "shm_too_small",
            "the disk is not full",
        ),
        (
            "Last error:\nError while creating shared memory segment /dev/shm/nccl-ZZ (size 33030528)",
            "shm_too_small",
            "33030528 bytes",
        ),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. ",
            "shm_too_small",
            "load data",
        ),
        (
            "This might be caused by insufficient shared memory (shm).",
            "shm_too_small",
            "load data",
        ),
        (
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
            "no_compiler",
            "C compiler",
        ),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "libcuda_link_missing", "libcuda.so"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "out_of_memory",
            "not enough",
        ),
        ("Failed to initialize NVML: Unknown Error", "container_failed", "lost its access"),
    ],
)
def test_a_text_has_its_reason(text: str, reason: str, words: str) -> None:
    found = explain.explained("some line before\n" + text + "\nand one after")
    assert found is not None
    assert found.reason == reason
    assert words in found.words
    assert found.remedy


def test_a_full_disk_is_not_shared_memory() -> None:
    assert explain.explained("OSError: [Errno 28] No space left on device: '/var/tmp/x'") is None
    assert explain.explained("all well") is None


def test_each_pair_without_peer_access_is_noted_once() -> None:
    assert explain.peer_pairs(PEERS) == [(0, 3), (2, 3)]
    assert explain.peer_notes(PEERS)[1].startswith("GPUs 2 and 3 cannot reach each other's memory")


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ("8.9", ["sm_37", "sm_60", "sm_70"], False),
        ("8.9", ["sm_80", "sm_86", "sm_90"], True),  # code of the same major version, not above
        ("7.0", ["sm_75", "sm_80", "compute_120"], False),
        ("12.0", ["sm_90", "compute_90"], True),  # PTX is compiled anew
        ("10.0", ["sm_90a"], False),
        ("9.0", ["sm_90a"], True),
        ("10.3", ["sm_100f"], True),
        ("10.3", ["sm_100a"], False),
        ("9.0", [], False),
    ],
)
def test_which_code_runs_on_which_gpu(capability: str, architectures: list[str], runs: bool) -> None:
    assert explain.runs_on(capability, architectures) is runs


def test_a_torch_that_serves_no_gpu_says_why() -> None:
    def reason(*said: object) -> str | None:
        found = explain.torch_failure(*said)  # type: ignore[arg-type]
        return found.reason if found is not None else None

    assert reason("2.6.0+cpu", None, False, 4) == "torch_cpu_build"
    assert reason(None, None, False, 4) == "torch_missing"
    assert (
        reason("2.6.0+cu124", "12.4", False, 4, "Error 802: system not yet initialized") == "cuda_init_failed"
    )
    assert reason("2.6.0+cu124", "12.4", False, 4) == "cuda_init_failed"
    assert reason("2.6.0+cu124", "12.4", False, 0) == "no_gpus"
    assert reason("2.6.0+cu124", "12.4", True, 4) is None


def test_free_shared_memory_is_read_in_both_units() -> None:
    megabytes = "Filesystem     1M-blocks  Used Available Use% Mounted on\nshm 64 0 64 0% /dev/shm\n"
    kilobytes = "Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 0 65536 0% /dev/shm\n"
    assert explain.free_shared_memory(megabytes) == explain.free_shared_memory(kilobytes) == 64 << 20
    assert explain.free_shared_memory("df: no such file") is None
