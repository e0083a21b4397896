#!/usr/bin/env python3
"""The yardstick for fleet's benchmarks: the same work in bare torch loops. Imports nothing of fleet.

For a machine with one NVIDIA GPU or several. Prints one JSON object: the best bf16 product in TFLOPS, the
device's copy in GB/s (read and write counted) and, with two GPUs or more, the bus bandwidth of an all_reduce of
1 GiB in GB/s. Each is a median of calls timed by CUDA events. docs/real-gpu.md says what fleet promises
against these figures.

    bare_loops.py [--repetitions 20]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing

SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (16384, 8192, 4096), (16384, 16384, 8192))
COPY_BYTES = 2 << 30
REDUCED_BYTES = 1 << 30


def seconds_per_call(call: Any, repetitions: int, warm_up: int = 5) -> list[float]:
    """Each call's time on the device, in seconds."""
    for _ in range(warm_up):
        call()
    torch.cuda.synchronize()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repetitions)]
    for start, end in marks:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1000 for start, end in marks]


def product_tflops(repetitions: int) -> dict[str, Any]:
    """The fastest of some shapes and of both layouts of the second matrix."""
    best: dict[str, Any] = {"tflops": 0.0}
    for m, n, k in SHAPES:
        for by_columns in (False, True):
            a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
            b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
            if by_columns:
                b = b.t().contiguous().t()
            out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
            seconds = statistics.median(
                seconds_per_call(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), repetitions)
            )
            rate = 2 * m * n * k / seconds / 1e12
            if rate > best["tflops"]:
                best = {"tflops": rate, "shape": [m, n, k], "by_columns": by_columns}
    return best


def copy_gb_s(repetitions: int) -> float:
    """Device to device, read and write counted."""
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    seconds = statistics.median(seconds_per_call(lambda: target.copy_(source), repetitions))
    return 2 * COPY_BYTES / seconds / 1e9


def reduce_rank(rank: int, ranks: int, port: int, repetitions: int, answers: Any) -> None:
    """One rank of the all_reduce; puts its samples on ``answers``."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    torch.cuda.set_device(rank)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("nccl", init_method=address, rank=rank, world_size=ranks)
    buffer = torch.randn(REDUCED_BYTES // 4, device="cuda") * 2.0**-60
    samples = seconds_per_call(lambda: torch.distributed.all_reduce(buffer), repetitions)
    answers.put(samples)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def all_reduce_bus_gb_s(repetitions: int) -> float:
    """Bus bandwidth (2(n-1)/n of size over time) over all GPUs; a sample is the slowest rank's."""
    ranks = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    workers = [
        context.Process(target=reduce_rank, args=(rank, ranks, port, repetitions, answers))
        for rank in range(ranks)
    ]
    for worker in workers:
        worker.start()
    per_rank = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    seconds = statistics.median(max(samples) for samples in zip(*per_rank, strict=True))
    return REDUCED_BYTES / seconds * 2 * (ranks - 1) / ranks / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description="Bare torch loops, as a yardstick for fleet's benchmarks.")
    parser.add_argument("--repetitions", type=int, default=20)
    repetitions = parser.parse_args().repetitions
    count = torch.cuda.device_count()
    if count == 0:
        sys.exit("no CUDA device: these loops need an NVIDIA GPU and a torch built with CUDA")
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "gpus": [torch.cuda.get_device_name(index) for index in range(count)],
        "product_bf16": product_tflops(repetitions),
        "copy_gb_s": copy_gb_s(repetitions),
    }
    torch.cuda.empty_cache()
    if count > 1:
        found["all_reduce_1_gib_bus_gb_s"] = all_reduce_bus_gb_s(repetitions)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
