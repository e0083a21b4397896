"""What is worth saying of a host in a few words: its facts, and how much changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.report.view import HostView
from fleet.report.words import plural, printable

_GOOD = frozenset({"ok", "changed"})


def facts_summary(host: HostView) -> list[str]:
    """Short phrases, most telling first: ``simulated``, ``docker 26.1.5``, ``image ok``."""
    words = ["simulated"] if host.simulated else []
    engine = (host.facts or {}).get("engine")
    if isinstance(engine, Mapping) and engine.get("present") and engine.get("version"):
        words.append(f"docker {printable(str(engine['version']))}")
    if state := _module_state(host, "image"):
        words.append(f"image {state}")
    return words


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
        "summary": facts_summary(host),
        "report": host.report_path,
    }
