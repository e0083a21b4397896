"""The backend ``simulated`` of benchmarks, installed in the lab's torch image: rates come from the hardware file.

It is offered by the entry point group ``fleet.benchmark_backend`` and used where torch has no CUDA. Devices
are what the simulated nvidia-smi shows inside the container; rates are those of ``benchmarks.view``, made
lower by what the faults say and varied a little, the same for the same GPU each time. While one of its
processes measures, it holds a lock by which NVML shows the GPU at work (``fleet/lab/simulation/view.py``).

Runs in the image's Python, from its site-packages; imports fleet's agent only where it is asked for a backend.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

STATE = "/var/lib/fleet-lab-gpu"
LOAD = "/run/fleet-lab-gpu/load"
_VIEWS = ("hardware", "loaded", "settings", "fabric", "benchmarks", "faults")
# How far GPUs of a model differ from each other, and repetitions on one GPU: shares of the rate, each way.
_BETWEEN_GPUS, _BETWEEN_RUNS = 0.008, 0.003
# A measurement takes some real time, for those who look at the GPU meanwhile.
_LEAST_S, _MOST_S = 0.1, 0.5
_COMPUTE = ("matrix_product.", "resnet50.", "transformer.", "ddp.")


@dataclass(frozen=True)
class Gpu:
    """A GPU or MIG device as nvidia-smi names it.

    ``number``: which of the hardware's GPUs. ``share``: what a MIG device has of its compute and of its memory.
    """

    uuid: str
    name: str
    compute_capability: str
    memory_total_mib: int
    number: int
    share: tuple[float, float] = (1.0, 1.0)


def open_backend() -> Any:
    """The backend for the GPUs that this container was given; None where there is none."""
    gpus = visible_gpus()
    if not gpus:
        return None
    seam = importlib.import_module("fleet.agent.bench.torch_side.backend")
    units = importlib.import_module("fleet.agent.bench.torch_side.units")
    kind = type("SimulatedBackend", (Simulated, seam.Backend), {})
    return kind(gpus, units.seconds_at)


class Simulated:
    """What the seam asks of a backend, as far as it is not the seam's default."""

    name = "simulated"
    simulated = True
    collective = "gloo"
    full_size = False
    reference_size = 64

    def __init__(self, gpus: Sequence[Gpu], seconds_at: Callable[[str, float, float], float]) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._seconds_at = seconds_at
        self._locks: dict[int, IO[bytes]] = {}

    def devices(self) -> list[dict[str, Any]]:
        """The GPUs of this container, narrowed and ordered as CUDA_VISIBLE_DEVICES says."""
        chosen = [
            uuid for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid in self._gpus
        ]
        return [
            {
                "uuid": gpu.uuid,
                "name": gpu.name,
                "compute_capability": gpu.compute_capability,
                "memory_total_mib": gpu.memory_total_mib,
            }
            for gpu in (self._gpus[uuid] for uuid in chosen or self._gpus)
        ]

    def device(self, index: int) -> Any:
        """The CPU, for any index."""
        return importlib.import_module("torch").device("cpu")

    def measure(
        self,
        call: Callable[[], object],
        amount: float,
        test: str,
        repetitions: int,
        warm_up: int,
        gpus: Sequence[str],
    ) -> list[float]:
        """Seconds at the rate of the slowest of ``gpus``; none for a test that the model has no rate for."""
        call()
        taking_part = [self._gpus[uuid] for uuid in gpus if uuid in self._gpus]
        view = read_view()
        rates = [rate_of(view, gpu, test) for gpu in taking_part]
        if not rates or None in rates:
            return []
        while any(view.get(f"gpu.{gpu.number}.benchmark_hang") in (test, "1") for gpu in taking_part):
            time.sleep(1)
            view = read_view()
        known = [rate for rate in rates if rate is not None]
        slowest = max(known) if test.endswith("latency") else min(known)
        # The rate of DDP is one GPU's; what is counted is everybody's.
        rate = slowest * len(known) if test.startswith("ddp.") else slowest
        seed = f"{','.join(gpus)}/{test}"
        seconds = [
            self._seconds_at(test, amount, rate) * (1 + _BETWEEN_RUNS * _spread(f"{seed}/{run}"))
            for run in range(repetitions)
        ]
        self._work([gpu.number for gpu in taking_part], min(max(sum(seconds), _LEAST_S), _MOST_S))
        return seconds

    def peer_access(self, source: int, target: int) -> bool:
        """Where the model has a rate between GPUs, and no fault forbids it."""
        view, devices = read_view(), self.devices()
        pair = [self._gpus[devices[index]["uuid"]].number for index in (source, target)]
        return source != target and all(
            f"gpu.{number}.rate.peer.copy" in view and view.get(f"gpu.{number}.p2p", "0") == "0"
            for number in pair
        )

    def observed(self, test: str, tensor: Any, gpus: Sequence[str]) -> Any:
        """``tensor``, or with one bit of it changed on a GPU that computes wrongly (fault benchmark_wrong)."""
        view = read_view()
        wrong = [
            view.get(f"gpu.{self._gpus[uuid].number}.benchmark_wrong") for uuid in gpus if uuid in self._gpus
        ]
        if test not in wrong and "1" not in wrong:
            return tensor
        torch = importlib.import_module("torch")
        size = tensor.element_size()
        integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        changed = tensor.clone().contiguous()
        changed.view(integers).reshape(-1)[0] ^= 1 << (8 * size - 2)
        return changed

    def _work(self, numbers: Sequence[int], seconds: float) -> None:
        """Show the GPUs at work, from now until this process ends; take ``seconds`` for it."""
        folder = os.environ.get("FLEET_LAB_GPU_LOAD") or LOAD
        for number in numbers:
            if number in self._locks:
                continue
            with contextlib.suppress(OSError):
                stream = open(f"{folder}/gpu.{number}", "rb")  # noqa: SIM115 - it stays open
                fcntl.lockf(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._locks[number] = stream
        time.sleep(seconds)


def read_view(names: Sequence[str] = _VIEWS) -> dict[str, str]:
    """All keys of the view files; of a key given twice the last value counts."""
    folder = os.environ.get("FLEET_LAB_GPU_STATE") or STATE
    found: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(OSError), open(f"{folder}/{name}.view", encoding="utf-8") as stream:
            for line in stream:
                key, separator, value = line.rstrip("\n").partition("=")
                if separator:
                    found[key] = value
    return found


def rate_of(view: Mapping[str, str], gpu: Gpu, test: str) -> float | None:
    """The rate of ``gpu`` in ``test``'s unit; None where its model has none."""
    own = f"gpu.{gpu.number}."
    told = test.removesuffix(".without_synchronisation")
    try:
        rate = float(view[f"{own}rate.{told}"])
    except KeyError:
        return None
    share = _percent(view, f"{own}benchmark_percent") * _percent(view, f"{own}benchmark.{told}")
    share *= _hardware_share(view, own, told)
    share *= (
        gpu.share[0] if told.startswith(_COMPUTE) else gpu.share[1] if told.startswith("memory.") else 1.0
    )
    share *= 1 + _BETWEEN_GPUS * _spread(f"{gpu.uuid}/{told}")
    if told != test:
        share *= 1.06
    return rate / share if told.endswith("latency") else rate * share


def _hardware_share(view: Mapping[str, str], own: str, test: str) -> float:
    """What is left of the rate with the clocks and links that the faults leave."""
    if test.startswith(_COMPUTE):
        # Only a fault sets a clock that is not the idle one of hardware.view.
        clock = read_view(("faults",)).get(f"{own}clock_sm_mhz")
        top = float(view.get(f"{own}max_clock_sm_mhz", 0))
        return min(float(clock) / top, 1.0) if clock and top else 1.0
    if test.startswith("host_link."):
        width = float(view.get(f"{own}pcie.width", view.get(f"{own}pcie_width", 16)))
        top = int(view.get(f"{own}pcie_max_gen", 1))
        generation = int(view.get(f"{own}pcie.load_generation", view.get(f"{own}pcie.generation", top)))
        return width / float(view.get(f"{own}pcie_max_width", 16)) * 2.0 ** min(generation - top, 0)
    if test.startswith(("peer.", "nccl.")):
        links = int(view.get(f"{own}nvlink_links", 0))
        active = sum(view.get(f"{own}nvlink.{link}") != "0" for link in range(links))
        return max(active / links, 0.02) if links else 1.0
    return 1.0


def _percent(view: Mapping[str, str], key: str) -> float:
    return float(view.get(key) or 100) / 100


def _spread(seed: str) -> float:
    """A number from -1 to 1 that follows from ``seed``."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") / 2**31 - 1


def visible_gpus() -> list[Gpu]:
    """What nvidia-smi lists here: MIG devices in place of a GPU that is split, lost GPUs not at all."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    fields = "uuid,name,compute_cap,memory.total"
    query = [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    rows = _output(query).splitlines()
    listed = _output([program, "-L"])
    view = read_view()
    numbers = {
        value: int(key.split(".")[1]) for key, value in view.items() if re.fullmatch(r"gpu\.\d+\.uuid", key)
    }
    found: list[Gpu] = []
    for row in rows:
        parts = [part.strip() for part in row.split(",")]
        if len(parts) != 4 or parts[0] not in numbers:
            continue
        gpu = Gpu(parts[0], parts[1], parts[2], int(parts[3]), numbers[parts[0]])
        found += list(_mig_devices(view, gpu, listed)) or [gpu]
    return found


def _mig_devices(view: Mapping[str, str], gpu: Gpu, listed: str) -> Iterator[Gpu]:
    own = f"gpu.{gpu.number}."
    if view.get(f"{own}mig", "0") == "0":
        return
    for index in range(int(view.get(f"{own}mig_devices", 0))):
        uuid, profile = view.get(f"{own}mig.{index}.uuid", ""), view.get(f"{own}mig.{index}.profile", "")
        memory = int(view.get(f"{own}mig.{index}.memory_mib", 0))
        if uuid and uuid in listed:
            share = (int(profile[:1] or 7) / 7, memory / gpu.memory_total_mib)
            yield Gpu(uuid, f"{gpu.name} MIG {profile}", gpu.compute_capability, memory, gpu.number, share)


def _output(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout
