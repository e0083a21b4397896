"""What could not be read is not healthy: one place for every value that some rule of a GPU needs.

Each component names those values in ``NEEDS``. A value that a card does not have (``not_supported``), or that MIG
hides, is not missing; one whose reading failed, was not permitted or was not tried is.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import Device, absent_reason, answering
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS: tuple[str, ...] = ()
_NO_FAULT = ("not_supported", "mig")
_WORDS = {
    "error": "reading failed",
    "permission": "reading it was not permitted",
    "not_collected": "not collected",
    "gpu_lost": "the GPU was lost meanwhile",
}
_REMEDIES = {
    "permission": "run fleet where it may become root, or as root on the host",
    "not_collected": "ask the host itself: fleet health INVENTORY",
}
_SHOWN = 4
_FAILED = {
    "gpu_probe.devices.0.fan_speed_percent": None,
    "gpu_probe.devices.0.absent.fan_speed_percent": {
        "reason": "error",
        "nvml_error": 999,
        "text": "Unknown Error",
    },
}


@rule("health.unknown.value", known_bad=Sample(_FAILED, model="rtx4090"), severity=Severity.WARNING)
def value(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every value that a rule needs of a GPU is known, or the GPU does not have it. Reads ``partial``.

    Of facts that are partial from the start, such as a saved query of nvidia-smi, what was not asked for is not missed.
    """
    for device, address in answering(facts):
        for reason, paths in unknown_paths(device).items():
            if reason == "not_collected" and wanted.get("partial"):
                continue
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            yield self.finding(
                f"not known: {', '.join(paths[:_SHOWN])}{more} ({_WORDS.get(reason, reason)}{_said(device, paths[0])})",
                observed=None,
                limit="known",
                source="unknown is not healthy",
                remedy=_REMEDIES.get(reason, "look again; where it stays so, run nvidia-smi -q on the host"),
                gpu=address,
            )


def unknown_paths(device: Device) -> dict[str, list[str]]:
    """What rules need and nobody knows, by reason."""
    found: dict[str, list[str]] = {}
    for path in needs():
        if fact(device, path) is None:
            reason = absent_reason(device, path) or "not_collected"
            if reason not in _NO_FAULT:
                found.setdefault(reason, []).append(path)
    return found


def _said(device: Device, path: str) -> str:
    """What NVML or nvidia-smi said instead of the value."""
    entry = (device.get("absent") or {}).get(path) or {}
    code, text = entry.get("nvml_error"), entry.get("text")
    return f": {text}" if text else f": NVML error {code}" if code is not None else ""


@cache
def needs() -> tuple[str, ...]:
    """The paths of all components, each once."""
    from fleet.audit.health import COMPONENTS

    modules = (importlib.import_module(f"fleet.audit.health.{name}") for name in COMPONENTS)
    return tuple(dict.fromkeys(path for module in modules for path in module.NEEDS))
