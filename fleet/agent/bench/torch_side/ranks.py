"""A rank: one process of several that talk to each other, over NCCL or what the backend names.

They meet in a file on this host, so no port is taken; sockets, where NCCL and gloo need some, are on the
loopback interface. A rank whose test fails cannot go on with the others, since they no longer do the same
things: it prints the failure and ends with :data:`FAILED`, and the parent starts new ranks for what is left.
"""

from __future__ import annotations

import os

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.failures import OUTSIDE, NotRunnable, explained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]
    RankTest = Callable[["Bench", "Rank", str], Json]

FAILED = 3
# The parent's own limit on silence ends a hang first; this one is for a parent that is stopped itself.
_TIMEOUT_FACTOR = 3


class Rank:
    """``number`` of ``count`` ranks that share a rendezvous. A context: joins, and leaves again."""

    def __init__(self, bench: Bench, number: int, count: int, store: str, silence_s: float) -> None:
        self.bench = bench
        self.number = number
        self.count = count
        self._store = store
        self._silence_s = silence_s

    def join(self) -> None:
        """Meet the others. Raises what torch raises."""
        import datetime

        import torch.distributed

        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")
        torch.distributed.init_process_group(
            self.bench.backend.collective,
            init_method="file://" + self._store,
            rank=self.number,
            world_size=self.count,
            timeout=datetime.timedelta(seconds=_TIMEOUT_FACTOR * self._silence_s),
        )

    def leave(self) -> None:
        """Part from the others, all of whom are done."""
        import torch.distributed

        torch.distributed.barrier()
        torch.distributed.destroy_process_group()

    def largest(self, numbers: Iterable[float]) -> list[float]:
        """The largest of each of ``numbers`` over all ranks."""
        import torch
        import torch.distributed

        tensor = torch.tensor(list(numbers), dtype=torch.float64, device=self.bench.device)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX)
        found: list[float] = tensor.tolist()
        return found

    def agree(self, seconds: float) -> float:
        """One estimate for all ranks."""
        return self.largest([seconds])[0]

    def everywhere(self, passed: bool) -> bool:
        """Whether it holds on every rank."""
        return self.largest([0.0 if passed else 1.0])[0] == 0.0


def run_rank(rank: Rank, tests: Iterable[tuple[str, RankTest]]) -> int:
    """Join, run the tests in step with the others, leave; the exit code. Rank 0 prints the results."""
    names = list(tests)
    bench = rank.bench
    name = names[0][0]
    try:
        rank.join()
        for name, test in names:
            if rank.number == 0:
                bench.note("%s over %d GPUs" % (name, rank.count))
            try:
                result = test(bench, rank, name)
            except NotRunnable as error:  # every rank finds it, before it talks to the others
                result = results.not_measured(name, bench.gpus, *explained(error))
            if rank.number == 0:
                results.emit(result)
            bench.backend.release()
        rank.leave()
    except OUTSIDE as error:
        status, reason, message = explained(error)
        message = "rank %d: %s" % (rank.number, message)
        results.emit(results.not_measured(name, bench.gpus, status, reason, message))
        return FAILED
    return 0
