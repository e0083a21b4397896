"""Puts the questions of :mod:`.questions` to one GPU and turns the answers into the values of a Device.

Runs in the child only. Whatever NVML refuses leaves null and an entry in ``absent`` with its number.
"""

from __future__ import annotations

import ctypes
from functools import partial

from fleet.agent.gpu_probe import questions, words
from fleet.agent.gpu_probe.binding import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    Refused,
    reason_of,
)
from fleet.agent.gpu_probe.device import (
    MIG_DEVICE_KEYS,
    NVLINK_KEYS,
    NVLINK_REMOTE_TYPES,
    NVLINK_VERSIONS,
    empty_device,
    set_absent,
    set_value,
)
from fleet.agent.pci_address import normalised_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence, Tuple

    from fleet.agent.gpu_probe.binding import Binding
    from fleet.agent.protocol import Json

NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # NVML_VALUE_NOT_AVAILABLE and the like
MIB = 1024 * 1024
CPU_WORDS = 64  # of 64 CPUs each

# What NVML gives of each GPU that answers at all; when one of these fails for no known reason, the GPU is
# not well.
VITAL = ("uuid", "memory_total_mib", "temperature_c")
UTILIZATION = ("gpu_utilization_percent", "memory_utilization_percent")


def read_device(nvml: Binding, handle: Any, address: str) -> Json:
    """The Device behind ``handle``, but for what the parent joins."""
    device = empty_device(address, "not_collected")
    codes: List[Tuple[int, str]] = []
    for paths, functions, arguments in questions.QUESTIONS:
        answer = Answer(nvml, handle, functions, arguments)
        try:
            values = words.values(paths[0], answer.value(), answer.function)
        except Refused as refused:
            codes.append((refused.code, str(answer.function)))
            for path in paths:
                _refuse(nvml, device, path, refused.code, bool(arguments))
            continue
        except words.Unknown as unknown:
            for path in paths:
                set_absent(device, path, "error", text=str(unknown))
            continue
        for path, value in zip(paths, values):  # noqa: B905 - strict came with Python 3.10
            if value is None and answer.newer_refused_with is not None:  # the older structure has it not
                _refuse(nvml, device, path, answer.newer_refused_with, bool(arguments))
            else:
                _set(device, path, value)
    _read_fan_out(nvml, handle, device)
    _judge(device, codes)
    return device


def _set(device: Json, path: str, value: Any) -> None:
    if value is None or (isinstance(value, int) and value in NOT_AVAILABLE):
        set_absent(device, path, "not_supported")
        return
    set_value(device, path, value)
    if isinstance(value, dict):
        for key in value:
            if value[key] is None:
                set_absent(device, "%s.%s" % (path, key), "not_supported")


def _refuse(nvml: Binding, device: Json, path: str, code: int, has_arguments: bool = False) -> None:
    reason = reason_of(code, has_arguments)
    text = None if reason == "not_supported" else nvml.error_text(code)
    set_absent(device, path, reason, code, text)


def _judge(device: Json, codes: Sequence[Tuple[int, str]]) -> None:
    """The device's status, by what its questions came back with."""
    for code, status, text in (
        (GPU_IS_LOST, "lost", "NVML says that this GPU is lost: it does not answer on the bus any more"),
        (RESET_REQUIRED, "reset_required", "NVML says that this GPU must be reset before it can be used"),
    ):
        functions = [function for found, function in codes if found == code]
        if functions:
            device["status"], device["message"] = status, "%s (%s)" % (text, functions[0])
            return
    for path in VITAL:
        entry = device["absent"].get(path)
        if entry is not None and entry["reason"] == "error":
            device["status"] = "error"
            device["message"] = "NVML cannot tell %s: %s" % (path, entry["text"])
            return


class Answer:
    """One question put to one GPU; ``function`` is the one that was asked last.

    ``newer_refused_with``: NVML's error for a newer one, which the library has not got.
    """

    def __init__(
        self, nvml: Binding, handle: Any, functions: Sequence[Any], arguments: Sequence[int]
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._functions = functions
        self._arguments = arguments
        self.function = functions[0]
        self.newer_refused_with: Optional[int] = None

    def value(self) -> Any:
        return self._nvml.newest([self._attempt(function) for function in self._functions])

    def _attempt(self, function: Any) -> Callable[[], Any]:
        def attempt() -> Any:
            self.function = function
            try:
                return self._ask(function)
            except Refused as refused:
                self.newer_refused_with = refused.code
                raise

        return attempt

    def _ask(self, function: Any) -> Any:
        if isinstance(function, int):
            return self._nvml.field(self._handle, function)
        special = _SPECIAL.get(function)
        if special is not None:
            return special(self._nvml, self._handle)
        return self._nvml.call(function, self._handle, *self._arguments)


def _memory_v2(nvml: Binding, handle: Any) -> Any:
    return nvml.call("nvmlDeviceGetMemoryInfo", handle, nvml.module.nvmlMemory_v2)


def _fabric(nvml: Binding, handle: Any) -> Any:
    return nvml.newest(
        [
            lambda: _filled(
                nvml, "nvmlDeviceGetGpuFabricInfoV", handle, nvml.module.c_nvmlGpuFabricInfo_v3_t()
            ),
            lambda: _filled(
                nvml, "nvmlDeviceGetGpuFabricInfoV", handle, nvml.module.c_nvmlGpuFabricInfo_v2_t()
            ),
        ]
    )


def _old_fabric(nvml: Binding, handle: Any) -> Any:
    return _filled(nvml, "nvmlDeviceGetGpuFabricInfo", handle, nvml.module.c_nvmlGpuFabricInfo_t())


def _sram(nvml: Binding, handle: Any) -> Any:
    return _filled(
        nvml, "nvmlDeviceGetSramEccErrorStatus", handle, nvml.module.c_nvmlEccSramErrorStatus_v1_t()
    )


def _filled(nvml: Binding, function: str, handle: Any, structure: Any) -> Any:
    nvml.call(function, handle, ctypes.byref(structure))
    return structure


# Functions that the binding spells another way, or that fill a structure.
_SPECIAL: Any = {
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetGpuFabricInfo": _old_fabric,
    "nvmlDeviceGetSramEccErrorStatus": _sram,
    "nvmlDeviceGetCpuAffinity": lambda nvml, handle: nvml.call("nvmlDeviceGetCpuAffinity", handle, CPU_WORDS),
}


# -- more than one value per question ---------------------------------------------------------------


def _read_fan_out(nvml: Binding, handle: Any, device: Json) -> None:
    _read_nvlinks(nvml, handle, device)
    _read_processes(nvml, handle, device)
    if device["mig"]["mode"] == "enabled":
        for path in UTILIZATION:  # NVML has none for the whole of a GPU that is cut in parts
            entry = device["absent"].get(path, {})
            set_absent(device, path, "mig", entry.get("nvml_error"))
        _read_mig_devices(nvml, handle, device)


def _read_nvlinks(nvml: Binding, handle: Any, device: Json) -> None:
    first = FUNCTION_NOT_FOUND
    links: List[Json] = []
    for number in range(questions.NVLINK_MAX_LINKS):
        code = None
        try:
            active = bool(nvml.call(questions.NVLINK_STATE, handle, number))
        except Refused as refused:
            code = refused.code
            first = code if number == 0 else first
            if code in (INVALID_ARGUMENT, FUNCTION_NOT_FOUND):
                break  # the library knows fewer
            if code == NOT_SUPPORTED:
                continue  # the GPU has fewer
        link: Json = dict.fromkeys(NVLINK_KEYS)
        link["link"] = number
        if code is None:
            link["active"] = active
        links.append(link)
        device["nvlinks"] = links
        if code is not None:
            _refuse(nvml, device, "nvlinks.%d.active" % number, code)
    if not links:
        _refuse(nvml, device, "nvlinks", first, has_arguments=True)
        return
    device["absent"].pop("nvlinks", None)
    speeds = _nvlink_speeds(nvml, handle, links)
    for link, speed in zip(links, speeds):  # noqa: B905
        _read_nvlink(nvml, handle, device, link, speed)


def _read_nvlink(nvml: Binding, handle: Any, device: Json, link: Json, speed: Callable[[], Any]) -> None:
    def fill(key: str, ask: Callable[[], Any]) -> None:
        path = "nvlinks.%d.%s" % (link["link"], key)
        try:
            _set(device, path, ask())
        except Refused as refused:
            _refuse(nvml, device, path, refused.code, has_arguments=True)

    fill("speed_mb_s", speed)
    for key, functions, arguments in questions.NVLINK:
        fill(key, partial(_of_link, nvml, handle, key, functions[0], (link["link"], *arguments)))


def _of_link(nvml: Binding, handle: Any, key: str, function: str, arguments: Sequence[int]) -> Any:
    value = nvml.call(function, handle, *arguments)
    if key == "remote_type":
        return NVLINK_REMOTE_TYPES.get(value, "unknown")
    if key == "version":
        return NVLINK_VERSIONS[value] if value < len(NVLINK_VERSIONS) else None
    if key != "remote_address":
        return value
    text = words.text(value.busId)
    # A switch that has no address of its own: all ones.
    return None if not text or text.upper().startswith("FFFFFFFF") else normalised_address(text)


def _nvlink_speeds(nvml: Binding, handle: Any, links: Sequence[Json]) -> Sequence[Callable[[], Any]]:
    """What gives each link's speed: the newest field that answers, of three generations of them."""
    numbers = [link["link"] for link in links]
    wanted = [(questions.NVLINK_GET_SPEED, number) for number in numbers]
    old = [(_old_speed_field(number), 0) for number in numbers]
    try:
        by_scope = nvml.fields(handle, wanted)
        by_link = nvml.fields(handle, old)
    except Refused as refused:
        code = refused.code

        def refuse() -> Any:
            raise Refused(code)

        return [refuse] * len(numbers)

    def either(new: Callable[[], Any], other: Callable[[], Any]) -> Callable[[], Any]:
        def read() -> Any:
            try:
                return new()
            except Refused as refused:
                try:
                    return other()
                except Refused:
                    raise refused from None

        return read

    return [either(new, other) for new, other in zip(by_scope, by_link)]  # noqa: B905


def _old_speed_field(link: int) -> int:
    if link < 6:
        return questions.NVLINK_SPEED_MBPS_L0 + link
    return questions.NVLINK_SPEED_MBPS_L6 + link - 6 if link < 12 else questions.NVLINK_SPEED_MBPS_COMMON


def _read_processes(nvml: Binding, handle: Any, device: Json) -> None:
    """The processes of all kinds; null only where no kind could be asked."""
    found: List[Json] = []
    refused_with: List[int] = []
    for kind, functions in questions.PROCESSES:
        asked = Answer(nvml, handle, functions, ())
        try:
            for process in asked.value():
                found.append({"pid": process.pid, "kind": kind, "memory_used_bytes": process.usedGpuMemory})
        except Refused as refused:
            refused_with.append(refused.code)
    if len(refused_with) == len(questions.PROCESSES):
        _refuse(nvml, device, "processes", refused_with[0])
        return
    device["absent"].pop("processes", None)
    device["processes"] = _merged(found)
    for process in device["processes"]:
        used = process.pop("memory_used_bytes")
        _set(device, "processes.%d.memory_used_mib" % process["pid"], None if used is None else used // MIB)


def _merged(found: Sequence[Json]) -> List[Json]:
    """One entry per process: MPS clients are listed as compute processes too, and some draw and compute."""
    by_pid: Json = {}
    for process in found:
        known = by_pid.setdefault(process["pid"], process)
        if process["kind"] == "mps":
            known["kind"] = "mps"
        if known["memory_used_bytes"] is None:
            known["memory_used_bytes"] = process["memory_used_bytes"]
    return [by_pid[pid] for pid in sorted(by_pid)]


def _read_mig_devices(nvml: Binding, handle: Any, device: Json) -> None:
    """The instances that can be seen; where some cannot, ``absent`` has an entry beside the list."""
    devices: List[Json] = device["mig"]["devices"]
    for index in range(device["mig"]["max_devices"] or 0):
        try:
            part = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        except Refused as refused:
            if refused.code != NOT_FOUND:  # else no such instance: there are as many as were made
                reason, text = reason_of(refused.code), nvml.error_text(refused.code)
                device["absent"]["mig.devices"] = {
                    "reason": reason,
                    "nvml_error": refused.code,
                    "text": text,
                }
            continue
        devices.append(dict.fromkeys(MIG_DEVICE_KEYS))
        for key, function in questions.MIG_DEVICE:
            path = "mig.devices.%d.%s" % (len(devices) - 1, key)
            try:
                _set(device, path, words.of_mig_device(key, nvml.call(function, part)))
            except Refused as refused:
                _refuse(nvml, device, path, refused.code)
