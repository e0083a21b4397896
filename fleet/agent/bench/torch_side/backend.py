"""The seam between the tests and what they run on: CUDA, or a backend that an installed distribution offers.

Every test is written once against :class:`Backend`. :class:`Cuda` measures. Where torch is a build without
CUDA, a distribution may offer another one by the entry point group ``fleet.benchmark_backend``: a callable
without arguments that returns a :class:`Backend`, or None where there is nothing for it to drive. Without
either there are no GPU results: a GPU's test never runs on the CPU under the GPU's name.

A backend that is not CUDA computes for real, on small sizes (``full_size`` false); only the seconds come from
its ``measure``. Who writes one needs ``name``, ``devices``, ``device`` and ``measure``; :mod:`.units` turns a
rate into seconds (``seconds_at``). ``tests/agent/bench/torch_side/fixed_rates.py`` is a complete example.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Optional

    Json = dict[str, Any]

ENTRY_POINTS = "fleet.benchmark_backend"
VISIBLE = "CUDA_VISIBLE_DEVICES"


class NoBackend(Exception):
    """There is nothing to measure on. ``status`` and ``reason`` are words of a result."""

    def __init__(self, status: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Backend:
    """What a test asks of the machine. The defaults are those of a backend that computes on the CPU."""

    name = "none"
    simulated = True
    # The torch.distributed backend of collectives and DDP.
    collective = "gloo"
    # Whether work has its real size; otherwise it is small, and parameters name the nominal size.
    full_size = False
    # Edge of the matrices on which results are compared with float64 before anything is timed.
    reference_size = 128
    pin_memory = False

    def devices(self) -> list[Json]:
        """``[{"uuid", "name", "compute_capability": "9.0", "memory_total_mib"}]``, in the order of ``device``."""
        raise NotImplementedError

    def device(self, index: int) -> Any:
        """The ``torch.device`` that tensors of GPU ``index`` are on."""
        raise NotImplementedError

    def measure(
        self,
        call: Callable[[], object],
        amount: float,
        test: str,
        repetitions: int,
        warm_up: int,
        gpus: Sequence[str],
    ) -> list[float]:
        """Seconds of each of ``repetitions`` runs of ``call``, each of which does ``amount`` of work.

        ``amount``: operations, bytes, images or tokens by the test's unit; bytes over the bus for ``nccl.*``
        (the algorithm's times the bus factor); for latencies the number of operations in the call. ``gpus``
        are the uuids the test runs on (source and target of ``peer.copy``; every rank's for ``nccl.*`` and
        ``ddp.*``). A backend that gives fixed rates runs ``call`` once, so that its code is run, and answers
        ``seconds_at(test, amount, value)``. An empty list: it has no figure for this test.

        Besides the ids of results it is asked for ``ddp.resnet50.without_synchronisation`` (images).
        """
        raise NotImplementedError

    def use(self, index: int) -> None:
        """Make GPU ``index`` the current one of this process."""

    def synchronise(self) -> None:
        """Wait until everything that was started is done."""

    def release(self) -> None:
        """Give back the memory that nothing uses any more, before the next test."""
        import gc

        gc.collect()

    def seed(self, number: int) -> None:
        """Make random numbers repeatable."""
        import torch

        torch.manual_seed(number)

    def peer_access(self, source: int, target: int) -> bool:
        """Whether GPU ``source`` can write to the memory of ``target`` itself."""
        return source != target

    def cache_bytes(self, index: int) -> int:
        """Size of the second-level cache, which inputs are rotated past."""
        return 0

    def free_bytes(self, index: int) -> int:
        """Device memory that can be had now."""
        return int(self.devices()[index]["memory_total_mib"]) * 1024 * 1024

    def observed(self, test: str, tensor: Any, gpus: Sequence[str]) -> Any:
        """What is seen of a result before it is compared; a backend that simulates faults changes bits here."""
        return tensor


class Cuda(Backend):
    """torch's CUDA devices. Devices are counted as CUDA_VISIBLE_DEVICES lists them (uuids)."""

    name = "cuda"
    simulated = False
    collective = "nccl"
    full_size = True
    reference_size = 1024
    pin_memory = True

    def __init__(self, gpu_uuids: Sequence[str]) -> None:
        import torch

        self._torch = torch
        self._uuids = list(gpu_uuids)
        count = torch.cuda.device_count()
        if count < len(self._uuids):
            raise NoBackend(
                "failed",
                "cuda_init_failed",
                "CUDA sees %d of the %d devices asked for (%s)" % (count, len(self._uuids), ", ".join(self._uuids)),
            )

    def devices(self) -> list[Json]:
        found = []
        for index, uuid in enumerate(self._uuids):
            properties = self._torch.cuda.get_device_properties(index)
            found.append(
                {
                    "uuid": uuid,
                    "name": properties.name,
                    "compute_capability": "%d.%d" % (properties.major, properties.minor),
                    "memory_total_mib": properties.total_memory // (1024 * 1024),
                }
            )
        return found

    def device(self, index: int) -> Any:
        return self._torch.device("cuda", index)

    def measure(
        self,
        call: Callable[[], object],
        amount: float,
        test: str,
        repetitions: int,
        warm_up: int,
        gpus: Sequence[str],
    ) -> list[float]:
        """Timed by events on the current device's stream: launches are queued, so Python costs nothing."""
        cuda = self._torch.cuda
        for _ in range(warm_up):
            call()
        cuda.synchronize()
        marks = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(repetitions)]
        for start, end in marks:
            start.record()
            call()
            end.record()
        cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in marks]

    def use(self, index: int) -> None:
        self._torch.cuda.set_device(index)

    def synchronise(self) -> None:
        self._torch.cuda.synchronize()

    def release(self) -> None:
        super().release()
        self._torch.cuda.empty_cache()

    def peer_access(self, source: int, target: int) -> bool:
        return bool(self._torch.cuda.can_device_access_peer(source, target))

    def cache_bytes(self, index: int) -> int:
        """From the properties; a torch whose properties have no such field: larger than any up to 2026."""
        properties = self._torch.cuda.get_device_properties(index)
        return int(getattr(properties, "L2_cache_size", 0) or getattr(properties, "l2_cache_size", 0)) or 128 << 20

    def free_bytes(self, index: int) -> int:
        return int(self._torch.cuda.mem_get_info(index)[0])


def see_only(gpu_uuids: Sequence[str]) -> None:
    """Let CUDA see these devices, in this order. Before torch is imported; has no effect on other backends."""
    os.environ[VISIBLE] = ",".join(gpu_uuids)


def open_backend(gpu_uuids: Sequence[str]) -> Backend:
    """The backend for these GPUs. Raises :class:`NoBackend` (reasons torch_missing, torch_cpu_build,
    cuda_init_failed, no_gpus, arch_mismatch)."""
    try:
        import torch
    except ImportError as error:
        raise NoBackend("not_runnable", "torch_missing", "this Python has no torch: %s" % error) from error
    if torch.version.cuda is None:
        return _offered(torch.__version__)
    try:
        torch.cuda.init()
        backend = Cuda(gpu_uuids)
        for index in range(len(gpu_uuids)):
            (torch.ones(8, device=backend.device(index)) * 2).sum().item()
    except (RuntimeError, AssertionError) as error:
        from fleet.agent.bench.torch_side.failures import of_start

        raise of_start(error, torch) from error
    return backend


def _offered(version: str) -> Backend:
    """What an installed distribution offers for a torch without CUDA."""
    import importlib.metadata

    points: Any = importlib.metadata.entry_points()
    # Python 3.9 answers a dictionary of lists here, and newer ones an object with `select`.
    chosen = points.select(group=ENTRY_POINTS) if hasattr(points, "select") else points.get(ENTRY_POINTS, ())
    for point in chosen:
        backend: Optional[Backend] = point.load()()
        if backend is not None:
            return backend
    raise NoBackend(
        "not_runnable",
        "torch_cpu_build",
        "torch %s is a build without CUDA; take an image whose torch has it" % version,
    )
