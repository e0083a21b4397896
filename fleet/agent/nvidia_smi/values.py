"""One value as nvidia-smi prints it: converted exactly, or the reason why there is none.

Words stand in the place of values, which ones depends on the driver, the GPU, MIG and rights; in CSV they
are in brackets. :func:`read` gives a value or an :class:`Absent`, never an exception, never NaN.
"""

from __future__ import annotations

import re

from fleet.agent.gpu_probe import device as words

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Callable, Dict, Optional


class Absent:
    """Why there is no value: ``reason`` of ``ABSENT_REASONS``; ``text``: what was printed, without brackets."""

    __slots__ = ("reason", "text")

    def __init__(self, reason: str, text: Optional[str] = None) -> None:
        self.reason = reason
        self.text = text


_PLACEHOLDERS = {
    "n/a": "not_supported",
    "not supported": "not_supported",
    "not available": "not_supported",
    "not active in this mode": "not_supported",
    "function not found": "not_supported",
    "requested functionality has been deprecated": "not_supported",
    "insufficient permissions": "permission",
    "no permissions": "permission",
    "not permitted": "permission",
    "gpu is lost": "gpu_lost",
    "gpu requires reset": "error",
    "unknown error": "error",
    "unknown": "error",
    "err!": "error",
    "timeout": "error",
    "not found": "error",
}
_NUMBER = re.compile(r"(-?\d+)(?:\.(\d+))?\s*([A-Za-z%/()]*)")
# What one of the unit is in the unit of the kind, as (multiplier, divisor). "" is --format=nounits.
_UNITS = {
    "count": {"": (1, 1), "bank(s)": (1, 1)},
    "mib": {"": (1, 1), "MiB": (1, 1), "MB": (1, 1), "GiB": (1024, 1), "KiB": (1, 1024)},
    "mhz": {"": (1, 1), "MHz": (1, 1), "GHz": (1000, 1)},
    "w": {"": (1, 1), "W": (1, 1), "mW": (1, 1000), "kW": (1000, 1)},
    "celsius": {"": (1, 1), "C": (1, 1)},
    "percent": {"": (1, 1), "%": (1, 1)},
    "generation": {"": (1, 1)},
    "width": {"": (1, 1), "x": (1, 1)},
}
_LARGEST_COUNT = 2**63  # a counter of all ones is the driver's "not known"
_TEXT_LENGTH = 200


def placeholder(text: str) -> Optional[Absent]:
    """The :class:`Absent` that ``text`` stands for; None where it may be a value."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1].strip()
        if bare.lower() not in _PLACEHOLDERS:
            return Absent(
                "error", bare[:_TEXT_LENGTH]
            )  # a word of another driver: no value, whatever it says
    if not bare:
        return Absent("not_collected", None)
    reason = _PLACEHOLDERS.get(bare.lower())
    return Absent(reason, bare) if reason is not None else None


def read(kind: str, text: str) -> Any:
    """The value of one text, or an :class:`Absent`. ``kind`` names a converter of this module."""
    absent = placeholder(text)
    if absent is not None:
        return absent
    try:
        value = _number(kind, text.strip()) if kind in _UNITS else _CONVERTERS[kind](text.strip())
    except ValueError:
        value = None
    return Absent("error", text.strip()[:_TEXT_LENGTH]) if value is None else value


def _number(kind: str, text: str) -> Any:
    """A whole number, or for watts a float; None where it is no such number, or cannot be one."""
    match = _NUMBER.fullmatch(text)
    factors = _UNITS[kind].get(match.group(3)) if match else None
    if match is None or factors is None:
        return None
    digits = match.group(2) or ""
    scaled = int(match.group(1) + digits) * factors[0]
    divisor = factors[1] * 10 ** len(digits)
    if kind == "w":
        return scaled / divisor
    if scaled % divisor:
        return None
    whole = scaled // divisor
    if kind in ("generation", "width") and whole <= 0:
        return None
    return None if (kind == "count" and not 0 <= whole < _LARGEST_COUNT) else whole


def _word(text: str) -> str:
    return re.sub(r"[\s/-]+", "_", text.lower())


def _one_of(known: Any, **other: str) -> Callable[[str], Optional[str]]:
    """A converter to one of the contract's words; ``other`` maps further spellings to them."""

    def convert(text: str) -> Optional[str]:
        word = other.get(_word(text), _word(text))
        return word if word in known else None

    return convert


def _flag(yes: str, no: str) -> Callable[[str], Optional[bool]]:
    """A converter of words (separated by bars) that mean true and false; anything else is no value."""

    def convert(text: str) -> Optional[bool]:
        lower = text.lower()
        return True if lower in yes.split("|") else False if lower in no.split("|") else None

    return convert


def _pci_id(first: int, last: int) -> Callable[[str], Optional[str]]:
    """A converter of ``0x233510DE``: the device before, the vendor behind."""

    def convert(text: str) -> Optional[str]:
        digits = text.lower()
        digits = digits[2:] if digits.startswith("0x") else digits
        return digits[first:last] if re.fullmatch(r"[0-9a-f]{8}", digits) else None

    return convert


def _nvidia_device(text: str) -> Optional[str]:
    return _pci_id(0, 4)(text) if _pci_id(4, 8)(text) == "10de" else None


def _performance_state(text: str) -> Optional[int]:
    return int(text[1:]) if re.fullmatch(r"P\d{1,2}", text) else None


def _matching(pattern: str) -> Callable[[str], Optional[str]]:
    return lambda text: text if re.fullmatch(pattern, text) else None


def _version(text: str) -> Optional[str]:
    """Driver 610 prints a remark behind the version in a field of an old name, or a sentence in its place."""
    match = re.match(r"\d+(?:\.\d+)+(?=\s|$)", text)
    return match.group() if match else None


def _fabric_status(text: str) -> Optional[int]:
    """nvidia-smi prints NVML's name of the error (``Success``)."""
    if text == "Success":
        return 0
    return int(text) if text.isdigit() else None


_CONVERTERS: Dict[str, Callable[[str], Any]] = {
    "text": lambda text: text[:_TEXT_LENGTH],
    "version": _version,
    "uuid": _matching(r"(?:GPU|MIG)-[0-9A-Za-z/-]+"),
    "capability": _matching(r"\d+\.\d+"),
    "hexadecimal": lambda text: int(text, 16),
    "brand": _one_of(words.BRANDS),
    "architecture": _one_of(words.ARCHITECTURES.values(), ada_lovelace="ada"),
    "nvidia_device": _nvidia_device,
    "pci_device": _pci_id(0, 4),
    "pci_vendor": _pci_id(4, 8),
    "performance_state": _performance_state,
    "mode": _one_of(("enabled", "disabled"), on="enabled", off="disabled"),
    "enabled": _flag("enabled|on", "disabled|off"),
    "yes": _flag("yes|1|true|active", "no|0|false|not active"),
    "degraded": _flag("degraded", "full"),
    "firmware": lambda text: bool(text),
    "compute_mode": _one_of(words.COMPUTE_MODES, **{"e._process": "exclusive_process"}),
    "virtualization_mode": _one_of(words.VIRTUALIZATION_MODES, pass_through="passthrough"),
    "recovery_action": _one_of(words.RECOVERY_ACTIONS, reset="gpu_reset", reboot="node_reboot"),
    "fabric_state": _one_of(words.FABRIC_STATES),
    "fabric_status": _fabric_status,
    "incorrect_configuration": _one_of([word for word in words.INCORRECT_CONFIGURATIONS if word]),
}
