"""NVML's answers as the values of a Device: numbers in the units of the field's name, and words.

Pure. An answer that means nothing (an empty text, a number without a word) gives None.
"""

from __future__ import annotations

from fleet.agent.gpu_probe.device import (
    ARCHITECTURES,
    BRANDS,
    CLOCKS_EVENT_REASONS,
    COMPUTE_MODES,
    FABRIC_STATES,
    HISTOGRAM_KEYS,
    INCORRECT_CONFIGURATIONS,
    RECOVERY_ACTIONS,
    VIRTUALIZATION_MODES,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    from fleet.agent.protocol import Json

MIB = 1024 * 1024


class Unknown(Exception):
    """NVML answered with a number that has no word here: a newer one than this fleet."""


UNKNOWN_PERFORMANCE_STATE = 32
_NO_NUMBER = (0xFFFFFFFF,)


def values(path: str, answer: Any, function: Any) -> Sequence[Any]:
    """The values of a question whose first path is ``path``, in the order of its paths; None: not told.

    Raises :class:`Unknown`.
    """
    convert = _CONVERTERS.get(path)
    if convert is not None:
        found = convert(answer)
        return found if isinstance(found, tuple) else (found,)
    if path == "memory_total_mib":
        return memory(answer, function)
    if path.endswith("_w"):
        numbers = answer if isinstance(answer, (list, tuple)) else [answer]
        return [watts(number) for number in numbers]
    return (text(answer),) if isinstance(answer, (bytes, str)) else (answer,)


def text(answer: Any) -> Optional[str]:
    """A text of NVML's, stripped; None where it is empty or says N/A."""
    if isinstance(answer, bytes):
        answer = answer.decode("utf-8", "replace")
    answer = answer.strip()
    return None if answer in ("", "N/A", "[N/A]") else answer


def memory(answer: Any, function: Any) -> Tuple[Any, ...]:
    """Total, used, free, reserved; the first version of the structure counts what is reserved as used."""
    reserved = answer.reserved // MIB if function == "nvmlDeviceGetMemoryInfo_v2" else None
    return answer.total // MIB, answer.used // MIB, answer.free // MIB, reserved


def watts(milliwatts: int) -> Optional[float]:
    """Watts; None of what stands for no value."""
    return None if milliwatts == 0xFFFFFFFF else milliwatts / 1000.0


def event_reasons(mask: int) -> List[str]:
    """The names of the bits of a mask of reasons, unknown bits as ``bit_0x400``; none is an empty list."""
    found = [name for bit, name in enumerate(CLOCKS_EVENT_REASONS) if mask >> bit & 1]
    rest = mask >> len(CLOCKS_EVENT_REASONS) << len(CLOCKS_EVENT_REASONS)
    while rest:
        lowest = rest & -rest
        found.append("bit_0x%x" % lowest)
        rest ^= lowest
    return found


def cpu_list(mask: Sequence[int]) -> Optional[str]:
    """``0-31,64-95`` of words of 64 bits, the lowest CPUs first; None of an empty mask."""
    bits = [index * 64 + bit for index, word in enumerate(mask) for bit in range(64) if word >> bit & 1]
    ranges: List[List[int]] = []
    for bit in bits:
        if ranges and ranges[-1][1] == bit - 1:
            ranges[-1][1] = bit
        else:
            ranges.append([bit, bit])
    return ",".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in ranges) or None


def pci(answer: Any) -> Tuple[Any, ...]:
    """Printed address, device id, subsystem's vendor and id; both numbers have the vendor in the low half."""
    device, subsystem = answer.pciDeviceId, answer.pciSubSystemId
    return (
        text(answer.busId),
        "%04x" % (device >> 16),
        "%04x" % (subsystem & 0xFFFF),
        "%04x" % (subsystem >> 16),
    )


def fabric(answer: Any) -> Tuple[Any, ...]:
    """State, status, cluster, clique, health; the first version of the structure has no health."""
    state = _word(FABRIC_STATES, answer.state)
    cluster = bytes(answer.clusterUuid).hex()
    known = state == "completed"
    uuid = "-".join((cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:]))
    mask = getattr(answer, "healthMask", None)
    return (
        state,
        int(answer.status),
        uuid if known else None,
        int(answer.cliqueId) if known else None,
        None if mask is None else health(int(mask)),
    )


def health(mask: int) -> Optional[Json]:
    """The health mask of fabric info: two bits per question (1 yes, 2 no), four for the configuration.

    None where the mask says nothing at all.
    """
    if mask == 0:
        return None
    answers = (None, True, False, None)
    return {
        "degraded_bandwidth": answers[mask & 3],
        "route_recovery": answers[mask >> 2 & 3],
        "route_unhealthy": answers[mask >> 4 & 3],
        "access_timeout_recovery": answers[mask >> 6 & 3],
        "incorrect_configuration": _configuration(mask >> 8 & 15),
    }


def _configuration(number: int) -> Optional[str]:
    if number < len(INCORRECT_CONFIGURATIONS):
        return INCORRECT_CONFIGURATIONS[number]
    return "unknown_%d" % number


def of_mig_device(key: str, answer: Any) -> Any:
    """A value of a MIG device. Its name is the GPU's with the profile at the end: ``… MIG 3g.40gb``."""
    if key == "memory_total_mib":
        return answer.total // MIB
    if key == "profile":
        _, mark, profile = (text(answer) or "").partition(" MIG ")
        return profile if mark else None
    return text(answer) if key == "uuid" else answer


def cuda_version(number: int) -> Optional[str]:
    """``12.8`` of 12080; None of 0, which is what a driver without CUDA says."""
    return "%d.%d" % (number // 1000, number % 1000 // 10) if number else None


def _word(known: Sequence[str], number: int) -> str:
    if 0 <= number < len(known):
        return known[number]
    raise Unknown("%d is not a number that this version of fleet has a word for" % number)


def _named(known: Dict[int, str], number: int) -> str:
    if number in known:
        return known[number]
    raise Unknown("%d is not a number that this version of fleet has a word for" % number)


def _pages(answer: Any) -> int:
    return len(answer)


def _flag(answer: Any) -> bool:
    return bool(answer)


def _mode(answer: Any) -> Tuple[str, ...]:
    return tuple("enabled" if one else "disabled" for one in answer)


_CONVERTERS: Dict[str, Callable[[Any], Any]] = {
    "brand": lambda answer: _word(BRANDS, answer) if answer else None,
    "architecture": lambda answer: None if answer in _NO_NUMBER else _named(ARCHITECTURES, answer),
    "compute_capability": lambda answer: "%d.%d" % tuple(answer),
    "printed_address": pci,
    "gsp_firmware_enabled": lambda answer: bool(answer[0]),
    "bar1_total_mib": lambda answer: (answer.bar1Total // MIB, answer.bar1Used // MIB),
    "performance_state": lambda answer: None if answer == UNKNOWN_PERFORMANCE_STATE else answer,
    "clocks_event_reasons": event_reasons,
    "gpu_utilization_percent": lambda answer: (answer.gpu, answer.memory),
    "ecc_mode": _mode,
    "ecc.sram_threshold_exceeded": lambda answer: bool(answer.bThresholdExceeded),
    "retired_pages.single_bit": _pages,
    "retired_pages.double_bit": _pages,
    "retired_pages.pending": _flag,
    "remapped_rows.corrected": lambda answer: (answer[0], answer[1], bool(answer[2]), bool(answer[3])),
    "remapped_rows.histogram": lambda answer: {key: getattr(answer, key) for key in HISTOGRAM_KEYS},
    "recovery_action": lambda answer: _word(RECOVERY_ACTIONS, answer),
    "fabric.state": fabric,
    "mig.mode": _mode,
    "cpu_affinity": cpu_list,
    "persistence_mode": _flag,
    "compute_mode": lambda answer: _word(COMPUTE_MODES, answer),
    "virtualization_mode": lambda answer: _word(VIRTUALIZATION_MODES, answer),
}
