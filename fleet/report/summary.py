"""What is worth saying of a host in a few words: its facts, and how much changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fleet.report.view import HostView
from fleet.report.words import plural, printable

_GOOD = frozenset({"ok", "changed"})


def facts_summary(host: HostView) -> list[str]:
    """Short phrases, most telling first: ``simulated``, ``8× H100 80GB HBM3``, ``driver 580.159.04 open``,
    ``docker 26.1.5``, ``image ok``, ``container check ok``."""
    words = ["simulated"] if host.simulated else []
    words += facts_words(host.facts or {})
    for module, name in (("image", "image"), ("container_check", "container check")):
        if state := _module_state(host, module):
            words.append(f"{name} {state}")
    return words


def facts_words(facts: Mapping[str, Any]) -> list[str]:
    """What facts alone tell: GPUs, driver, engine."""
    probe = facts.get("gpu_probe") or {}
    words = _gpus(facts.get("gpus") if facts.get("gpus") is not None else probe.get("devices"))
    words += _driver(facts.get("driver") or {"loaded": {"version": probe.get("driver_version")}})
    engine = facts.get("engine")
    if isinstance(engine, Mapping) and engine.get("present") and engine.get("version"):
        words.append(f"docker {printable(str(engine['version']))}")
    return words


def _gpus(gpus: Any) -> list[str]:
    """``8× H100 80GB HBM3``, one phrase per model; ``2 GPUs`` where the driver does not name them yet."""
    if not isinstance(gpus, list):
        return []
    named = Counter(printable(str(gpu.get("name"))) for gpu in gpus if gpu.get("name"))
    words = [f"{count}× {name.removeprefix('NVIDIA ')}" for name, count in named.items()]
    unnamed = len(gpus) - named.total()
    return [*words, plural(unnamed, "GPU")] if unnamed else words


def _driver(driver: Any) -> list[str]:
    """``driver 580.159.04 open``: the one that is loaded."""
    loaded = driver.get("loaded") if isinstance(driver, Mapping) else None
    if not isinstance(loaded, Mapping):
        return []
    said = " ".join(str(loaded[key]) for key in ("version", "flavour") if loaded.get(key))
    return [f"driver {printable(said)}"] if said else []


def _module_state(host: HostView, module: str) -> str | None:
    """``ok`` when every step of ``module`` is as wanted; None when there is none or not all are known.

    Step ids are ``<task number>.<module>.<part>``.
    """
    found = [step for step in host.steps.values() if module in step.id.split(".")[1:2]]
    if not found or not all((step.status or step.checked) in _GOOD for step in found):
        return None
    return "ok"


def check_words(counts: Mapping[str, int]) -> tuple[str, str]:
    """(status, amount) of a host in check mode: (``would change``, ``3 steps, 2 known after apply``)."""
    would, unknown = counts.get("would_change", 0), counts.get("known_after_apply", 0)
    if not would and not unknown:
        return "as wanted", ""
    parts = [plural(would, "step")] if would else []
    if unknown:
        parts.append(f"{unknown} known after apply")
    return ("would change" if would else "unknown"), ", ".join(parts)


def outcome(host: HostView, *, check: bool) -> dict[str, Any]:
    """One host in the run document (schemas/run.schema.json)."""
    unknown = [{"step": step.id, "task": step.task, "reason": step.reason} for step in host.unknown]
    return {
        "status": host.status,
        "simulated": host.simulated,
        "reason": host.reason,
        "remedy": host.remedy,
        "counts": host.counts,
        "known_after_apply": unknown if check else [],
        "warnings": host.warnings,
        "health": [{"severity": severity, "text": words} for severity, words in host.health],
        "summary": facts_summary(host),
        "report": host.report_path,
    }
