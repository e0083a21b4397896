"""The child's side of :mod:`.sampler`: a few moving values of every GPU, again and again, as JSON lines."""

from __future__ import annotations

import time

from fleet.agent.gpu_probe import questions, readers, words
from fleet.agent.gpu_probe.binding import Refused
from fleet.agent.pci_address import normalised_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

    from fleet.agent.gpu_probe.binding import Binding
    from fleet.agent.protocol import Json

# Key of a sample -> path of a Device whose question gives it.
PATHS = {
    "sm_clock_mhz": "sm_clock_mhz",
    "memory_clock_mhz": "memory_clock_mhz",
    "power_draw_w": "power_draw_w",
    "temperature_c": "temperature_c",
    "memory_temperature_c": "memory_temperature_c",
    "clocks_event_reasons": "clocks_event_reasons",
    "gpu_utilization_percent": "gpu_utilization_percent",
    "memory_used_mib": "memory_used_mib",
    "pcie_generation": "pcie.generation",
    "pcie_width": "pcie.width",
}


def sample(nvml: Binding, interval_s: float, line: Callable[..., None]) -> None:
    """Write a ``sample`` line per GPU every ``interval_s`` seconds, until this process is ended.

    Sampling keeps its pace: where NVML is slower than the interval, it goes on at once.
    """
    handles = _handles(nvml)
    due = time.monotonic()
    while True:
        for address, handle in handles.items():
            at = time.monotonic()
            line("sample", sample=dict(values(nvml, handle), at=at, address=address))
        due = max(due + interval_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def values(nvml: Binding, handle: Any) -> Json:
    """One sample: a value that NVML refuses is null; why, the probe's document says."""
    found: Json = {}
    for key, path in PATHS.items():
        paths, functions, arguments = _QUESTIONS[path]
        answer = readers.Answer(nvml, handle, functions, arguments)
        try:
            value = words.values(paths[0], answer.value(), answer.function)[paths.index(path)]
        except Refused:
            value = None
        found[key] = None if isinstance(value, int) and value in readers.NOT_AVAILABLE else value
    found["processes"] = _pids(nvml, handle)
    return found


def _pids(nvml: Binding, handle: Any) -> Any:
    pids: List[int] = []
    refused = 0
    for _, functions in questions.PROCESSES:
        try:
            pids += [process.pid for process in readers.Answer(nvml, handle, functions, ()).value()]
        except Refused:
            refused += 1
    return None if refused == len(questions.PROCESSES) else sorted(set(pids))


def _handles(nvml: Binding) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for index in range(nvml.call("nvmlDeviceGetCount")):
        try:
            handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
            address = words.text(nvml.call("nvmlDeviceGetPciInfo", handle).busId)
        except Refused:
            continue  # a broken GPU; the others are sampled
        if address is not None:
            found[normalised_address(address)] = handle
    return found


_QUESTIONS: Dict[str, Tuple[Any, ...]] = {
    path: question for question in questions.QUESTIONS for path in question[0] if path in PATHS.values()
}
