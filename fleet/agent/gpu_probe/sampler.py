"""Samples all GPUs while something else runs: clocks, power, heat, use, link, processes.

A child asks NVML at an interval and writes into a file in memory, so that what it has seen stays when it
hangs. Its side is :mod:`.sampling`.
"""

from __future__ import annotations

import json
import os
import threading
import time

from fleet.agent.facts import driver as driver_facts
from fleet.agent.gpu_probe.parent import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


class Sampler:
    """Samples between ``with`` and the end of it; ``samples`` can be read in between and afterwards.

    The child ends with the thread that started it. Where NVML cannot be used there are no samples, and
    ``problem`` says why.
    """

    def __init__(self, host: Host, interval_s: float) -> None:
        self._host = host
        self._interval_s = interval_s
        self._child: Optional[Child] = None
        self._file: Optional[int] = None
        self._samples: List[Json] = []
        self._problem: Optional[str] = None
        self._offset = 0
        self._reading = threading.Lock()  # who watches may be another thread
        self._started = 0.0

    def __enter__(self) -> Sampler:
        if driver_facts.loaded(self._host, driver_facts.loaded_modules(self._host)) is None:
            # NVML would start nvidia-modprobe, which loads the module.
            self._problem = "no NVIDIA kernel module is loaded"
            return self
        path = driver_facts.library_path(self._host)
        options = {
            "library": self._host.path(path) if path is not None else None,
            "by_name": self._host.root == "/",
            "interval_s": self._interval_s,
        }
        self._file = os.memfd_create("samples", os.MFD_CLOEXEC)
        self._started = time.monotonic()
        try:
            self._child = Child(options, self._file)
        except OSError as error:
            self._problem = "the process that asks NVML cannot be started: %s" % error
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def stop(self) -> None:
        """End the child, also one that hangs. May be called again."""
        if self._child is not None:
            self._child.close()
            self._child = None
        self._read()
        with self._reading:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    @property
    def samples(self) -> List[Json]:
        """The samples so far, oldest first; ``at_s`` counts from the start, a value that NVML refused is null.

        [{"at_s", "address", "sm_clock_mhz", "memory_clock_mhz", "power_draw_w", "temperature_c",
        "memory_temperature_c", "clocks_event_reasons", "gpu_utilization_percent", "memory_used_mib",
        "pcie_generation", "pcie_width", "processes": [pids]}]
        """
        self._read()
        return list(self._samples)

    @property
    def problem(self) -> Optional[str]:
        """Why there are no samples, or no more of them; None while all is well."""
        self._read()
        if self._problem is None and self._child is not None:
            ending = self._child.ending()
            if ending is not None:
                self._read()
                self._problem = self._problem or "the process that asks NVML ended: %s" % ending
        return self._problem

    def _read(self) -> None:
        with self._reading:
            if self._file is not None:
                self._read_on(self._file)

    def _read_on(self, file: int) -> None:
        data = bytearray()
        while True:
            part = os.pread(file, 1 << 20, self._offset + len(data))
            if not part:
                break
            data += part
        whole = data[: data.rfind(b"\n") + 1]  # the child may be in the middle of a line
        self._offset += len(whole)
        for line in map(json.loads, bytes(whole).splitlines()):
            if line["kind"] == "failed":
                self._problem = "NVML cannot be used: %s" % line["text"]
            elif line["kind"] == "sample":
                self._samples.append(self._sample(line["sample"]))

    def _sample(self, sample: Json) -> Json:
        values = {key: value for key, value in sample.items() if key != "at"}
        return dict({"at_s": round(sample["at"] - self._started, 3)}, **values)
