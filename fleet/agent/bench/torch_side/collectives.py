"""``nccl.*`` and ``peer.copy``: how fast GPUs of one host exchange data.

Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md there): the algorithm's bandwidth (size over time)
times 2(n-1)/n for all_reduce and (n-1)/n for all_gather and reduce_scatter; the size is that of the whole
buffer. Each size is checked for its result, exactly, before it is timed; a sample is the slowest rank's.
"""

from __future__ import annotations

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import equal, wrong_words
from fleet.agent.bench.torch_side.failures import NotRunnable
from fleet.agent.bench.torch_side.memory import computed_bytes
from fleet.agent.bench.torch_side.plan import bus_factor, collective_sizes
from fleet.agent.bench.torch_side.timing import median, sampled, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fleet.agent.bench.torch_side.ranks import Rank
    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

ELEMENT_BYTES = 4
LATENCY_CALLS = 20
PEER_BYTES = 1 << 28
# Repeated sums grow; from here seventy of eight ranks stay finite in float32.
SMALL_NUMBER = 2.0**-100
LIMIT = 20
SMALL_SIZE_LIMIT = 50
_PATTERN = 1021
# Buffers of the whole size that checking and timing one operation need at most.
COPIES = 8
# Elements per rank where the backend computes on small sizes.
SMALL_COUNT = 4096


def collective(bench: Bench, rank: Rank, test: str) -> Json:
    """The bus bandwidth of one operation over all sizes; ``value`` is that of the largest."""
    operation = test.partition(".")[2]
    points: list[Json] = []
    parameters = _parameters(rank, operation)
    samples: list[float] = []
    for size in _sizes(bench, rank):
        checked, seconds, size_bytes = _at_size(bench, rank, test, size)
        parameters["size_bytes"] = size_bytes
        if not checked["passed"]:
            words = "%s of %d bytes: %s" % (operation, size_bytes, wrong_words(checked, "the ranks' sum"))
            return results.wrong(test, bench.gpus, parameters, checked, words)
        samples = values(test, size_bytes * bus_factor(operation, rank.count), seconds)
        if samples:
            points.append(_point(size_bytes, operation, rank.count, seconds))
        if rank.number == 0:
            bench.note("%s of %d bytes is done" % (operation, size_bytes))
    return results.measured(test, bench.gpus, samples, parameters, checked, points=points)


def latency(bench: Bench, rank: Rank, test: str) -> Json:
    """Microseconds of an all_reduce of 8 bytes, one after the other."""
    call, check = prepared("all_reduce", 8 // ELEMENT_BYTES, bench, rank)
    checked = _checked(bench, rank, test, check)
    parameters = {**_parameters(rank, "all_reduce"), "size_bytes": 8, "calls_per_sample": LATENCY_CALLS}
    if not checked["passed"]:
        return results.wrong(test, bench.gpus, parameters, checked, wrong_words(checked, "the ranks' sum"))

    def calls() -> None:
        for _ in range(LATENCY_CALLS):
            call()

    seconds = _sampled(bench, rank, test, calls, float(LATENCY_CALLS), SMALL_SIZE_LIMIT)
    return results.measured(
        test, bench.gpus, values(test, float(LATENCY_CALLS), seconds), parameters, checked
    )


def _sizes(bench: Bench, rank: Rank) -> list[int]:
    """Those of the suite that fit, with the check's copies, the memory of every GPU."""
    room = -rank.largest([-bench.backend.free_bytes(bench.index) / COPIES])[0]
    fitting = [size for size in collective_sizes(bench.suite) if size <= room]
    if not fitting:
        raise NotRunnable("out_of_memory", "a GPU has no free memory")
    return fitting


def _at_size(bench: Bench, rank: Rank, test: str, size: int) -> tuple[Json, list[float], int]:
    """Checked, then timed: (correctness, seconds per call, bytes of the whole buffer)."""
    operation = test.partition(".")[2]
    count = max(1, size // ELEMENT_BYTES // rank.count) * rank.count
    computed = count if bench.backend.full_size else min(count, SMALL_COUNT * rank.count)
    call, check = prepared(operation, computed, bench, rank)
    checked = _checked(bench, rank, test, check)
    size_bytes = count * ELEMENT_BYTES
    if not checked["passed"]:
        return checked, [], size_bytes
    amount = size_bytes * bus_factor(operation, rank.count)
    limit = LIMIT if size >= 1 << 20 else SMALL_SIZE_LIMIT
    return checked, _sampled(bench, rank, test, call, amount, limit), size_bytes


def _sampled(
    bench: Bench, rank: Rank, test: str, call: Callable[[], object], amount: float, limit: int
) -> list[float]:
    """Seconds per call, of the slowest rank each."""
    seconds = sampled(bench.backend, call, amount, test, bench.gpus, bench.budget_s, limit, rank.agree)
    return rank.largest(seconds) if seconds else []


def _checked(bench: Bench, rank: Rank, test: str, check: Callable[[], tuple[Any, Any]]) -> Json:
    """The operation's result, which must be exact, on every rank."""
    found, expected = check()
    own = [bench.gpus[rank.number]]
    checked = equal(bench.backend.observed(test, found, own), expected)
    if checked["passed"] and not rank.everywhere(True):
        return {**checked, "passed": False, "max_relative_error": None}
    if not checked["passed"]:
        rank.everywhere(False)
    return checked


def prepared(
    operation: str, count: int, bench: Bench, rank: Rank
) -> tuple[Callable[[], object], Callable[[], tuple[Any, Any]]]:
    """The operation on float32 buffers of ``count`` elements, as a call to time and one that answers
    ``(found, expected)``."""
    import torch
    from torch import distributed

    chunk = count // rank.count
    sent = torch.randn(count, device=bench.device) * SMALL_NUMBER
    part = slice(rank.number * chunk, (rank.number + 1) * chunk)
    total = rank.count * (rank.count + 1) // 2
    piece = torch.empty(chunk, device=bench.device)
    gather = _named(distributed, "all_gather_single", "all_gather_into_tensor")
    scatter = _named(distributed, "reduce_scatter_single", "reduce_scatter_tensor")

    def numbers() -> Any:
        return torch.arange(count, dtype=torch.int32, device=bench.device)

    def pattern() -> Any:
        return (numbers() % _PATTERN).to(torch.float32)

    if operation == "all_reduce":

        def reduced() -> tuple[Any, Any]:
            found = pattern() * (rank.number + 1)
            distributed.all_reduce(found)
            return found, pattern() * total

        return lambda: distributed.all_reduce(sent), reduced
    if operation == "all_gather":

        def gathered() -> tuple[Any, Any]:
            whole = pattern() + numbers() // chunk
            found = torch.empty_like(whole)
            gather(found, whole[part].clone())
            return found, whole

        return lambda: gather(sent, piece), gathered

    def scattered() -> tuple[Any, Any]:
        found = torch.empty_like(piece)
        scatter(found, pattern() * (rank.number + 1))
        return found, (pattern() * total)[part]

    return lambda: scatter(piece, sent), scattered


def _named(module: Any, newer: str, older: str) -> Any:
    """The function under its name since torch 2.13, or the one it had before."""
    return getattr(module, newer, None) or getattr(module, older)


def _point(size_bytes: int, operation: str, ranks: int, seconds: list[float]) -> Json:
    time_s = median(seconds)
    algorithm = size_bytes / time_s / 1e9
    return {
        "size_bytes": size_bytes,
        "time_us": time_s * 1e6,
        "bus_gb_s": algorithm * bus_factor(operation, ranks),
        "algorithm_gb_s": algorithm,
    }


def _parameters(rank: Rank, operation: str) -> Json:
    return {
        "ranks": rank.count,
        "dtype": "fp32",
        "operation": operation,
        "backend": rank.bench.backend.collective,
        "counting": "bus bandwidth: size/time * %s"
        % ("2(n-1)/n" if operation == "all_reduce" else "(n-1)/n"),
    }


def peer_copy(bench: Bench, test: str) -> Json:
    """One GPU's memory to another's, without the host between: ``bench.gpus`` is source and target.

    Raises NotRunnable (``peer_access_unavailable``).
    """
    import torch

    backend = bench.backend
    order = [device["uuid"] for device in backend.devices()]
    source, target = (order.index(uuid) for uuid in bench.gpus)
    if not backend.peer_access(source, target):
        words = "%s cannot reach the memory of %s itself; copies between them go through the host"
        raise NotRunnable("peer_access_unavailable", words % tuple(bench.gpus))
    size = computed_bytes(bench, PEER_BYTES)
    sent = torch.randint(-128, 128, (size,), dtype=torch.int8, device=backend.device(source))
    got = torch.zeros(size, dtype=torch.int8, device=backend.device(target))
    got.copy_(sent)
    checked = equal(backend.observed(test, got, bench.gpus).cpu(), sent.cpu())
    parameters: Json = {"bytes": PEER_BYTES, "counting": "bytes moved, one way"}
    if not checked["passed"]:
        return results.wrong(test, bench.gpus, parameters, checked, wrong_words(checked, "its source"))
    amount = float(PEER_BYTES)
    seconds = sampled(
        backend, lambda: got.copy_(sent, non_blocking=True), amount, test, bench.gpus, bench.budget_s, LIMIT
    )
    return results.measured(test, bench.gpus, values(test, amount, seconds), parameters, checked)
