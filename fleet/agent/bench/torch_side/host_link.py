"""``host_link.*``: copies between pinned host memory and the device.

GPUs of one host share root ports and the memory of the host, so they take turns: the lock file that
``FLEET_BENCH_LOCK`` names is held while copying. Where the file cannot be locked, that is a note of the result.
"""

from __future__ import annotations

import contextlib
import os

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import equal, wrong_words
from fleet.agent.bench.torch_side.memory import SMALL
from fleet.agent.bench.torch_side.timing import sampled, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

LOCK = "FLEET_BENCH_LOCK"
BYTES = 1 << 28
WORD_BYTES = 8


def host_link(bench: Bench, test: str) -> Json:
    """One way ("host_link.to_device", "host_link.from_device"), after a round trip has given back what it got."""
    import torch

    full, pin = bench.backend.full_size, bench.backend.pin_memory
    count = (BYTES if full else SMALL) // WORD_BYTES
    host = torch.empty(count, dtype=torch.int64, pin_memory=pin).random_()
    back = torch.zeros(count, dtype=torch.int64, pin_memory=pin)
    device = host.to(bench.device, copy=True)
    back.copy_(device)
    checked = equal(bench.backend.observed(test, back, bench.gpus), host)
    parameters: Json = {"bytes": BYTES, "pinned": pin, "counting": "bytes moved, one way"}
    if not checked["passed"]:
        return results.wrong(
            test, bench.gpus, parameters, checked, wrong_words(checked, "the round trip's start")
        )
    target, source = (device, host) if test.endswith("to_device") else (back, device)
    with turn(os.environ.get(LOCK)) as trouble:
        seconds = sampled(
            bench.backend,
            lambda: target.copy_(source, non_blocking=True),
            float(BYTES),
            test,
            bench.gpus,
            bench.budget_s,
        )
    notes = [trouble] if trouble else []
    samples = values(test, float(BYTES), seconds)
    return results.measured(test, bench.gpus, samples, parameters, checked, notes=notes)


@contextlib.contextmanager
def turn(path: Optional[str]) -> Iterator[Optional[str]]:
    """Hold the lock of ``path``; gives words where GPUs could not be made to take turns."""
    import fcntl

    if not path:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        yield "no turns between the GPUs: the lock %s cannot be opened (%s)" % (path, error.strerror)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield None
    finally:
        os.close(descriptor)
