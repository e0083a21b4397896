"""The report of each host: what the run did there and what is true there, as one validated document.

:class:`HostReportBuilder` subscribes to the run and collects. When a host is over the engine asks for
its document, writes it with :func:`write_report`, and only then publishes ``host_ended`` with the path;
so the status comes from the engine and not from an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fleet
from fleet.core.documents import Scrub, json_text, lines_text, write_whole
from fleet.core.events import Event
from fleet.core.ids import utc_now
from fleet.core.schema import validate
from fleet.report.view import HostView, RunView, StepView

SCHEMA = "fleet.report/1"


@dataclass(frozen=True)
class Ending:
    """How the engine says a host ended."""

    status: str
    reason: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Written:
    """Where a report went, and what is wrong with it; ``problems`` makes the host a failed one."""

    path: Path
    problems: tuple[str, ...] = ()


class HostReportBuilder:
    """A Subscriber that can say, for every host, what its report is. ``controller`` is this machine."""

    def __init__(self, controller: str) -> None:
        self._view = RunView()
        self._controller = controller

    def handle(self, event: Event) -> None:
        """Take in one event."""
        self._view.handle(event)

    def close(self) -> None:
        """Nothing is held back."""

    def counts(self, host: str) -> dict[str, int]:
        """Steps per status so far."""
        steps = self._steps(self._host(host))
        begun = self._begun(steps)
        found = Counter(_status(step, check=self._view.check, begun=begun) for step in steps)
        found.pop("not_reached", None)
        return dict(found)

    def document(self, host: str, ending: Ending, *, ended_at: str | None = None) -> dict[str, Any]:
        """The report of ``host`` as schemas/report.schema.json has it; not validated here."""
        view = self._host(host)
        steps = self._steps(view)
        begun = self._begun(steps)
        ended = ended_at or utc_now()
        return {
            "schema": SCHEMA,
            "run": self._view.run,
            "host": host,
            "simulated": view.simulated,
            "check": self._view.check,
            "status": ending.status,
            "reason": ending.reason,
            "remedy": ending.remedy,
            "started_at": view.started_at or self._view.started_at or ended,
            "ended_at": ended,
            "counts": self.counts(host),
            "steps": [_step(step, check=self._view.check, begun=begun) for step in steps],
            "findings": view.findings,
            "facts": view.facts,
            "container_check": (view.facts or {}).get("container_check"),
            "benchmark": (view.facts or {}).get("benchmark"),
            "fleet_version": fleet.__version__,
            "controller": self._controller,
        }

    def _steps(self, view: HostView) -> list[StepView]:
        """Planned steps; in check mode also the tasks that could not be planned yet."""
        return [*view.steps.values(), *(view.postponed.values() if self._view.check else ())]

    @staticmethod
    def _begun(steps: Iterable[StepView]) -> frozenset[int]:
        """The segments that were carried out, wholly or in part."""
        return frozenset(step.segment for step in steps if step.status is not None)

    def _host(self, host: str) -> HostView:
        return self._view.hosts.get(host) or HostView(host)


def write_report(folder: Path, document: Mapping[str, Any], scrub: Scrub | None = None) -> Written:
    """Validate ``document`` and write it to ``folder/HOST.json``, whole or not at all.

    An invalid one is kept as ``HOST.invalid.json`` beside the reasons, which are returned too: the
    caller counts the host as failed. Raises OSError when the folder cannot be written.
    """
    host = file_name(str(document.get("host", "")))
    folder.mkdir(parents=True, exist_ok=True)
    problems = _problems(document)
    if not problems:
        path = folder / f"{host}.json"
        # Not synced: the store keeps the document as well, and twenty hosts would wait for one disk.
        write_whole(path, lines_text(document, scrub), sync=False)
        return Written(path)
    path = folder / f"{host}.invalid.json"
    evidence = {"problems": problems, "document": document}
    write_whole(path, json_text(_finite(evidence), scrub, indent=2) + "\n")
    return Written(path, tuple(problems))


def file_name(host: str) -> str:
    """A host's name as a file name: what could leave the folder or hide is percent-encoded."""
    safe = "".join(one if one.isalnum() or one in "-_.:@[]" else f"%{ord(one):02X}" for one in host)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe or "%00"


def _problems(document: Mapping[str, Any]) -> list[str]:
    try:
        json_text(document)
    except ValueError:
        return ["$: holds NaN or infinity, which JSON does not have"]
    return validate(dict(document), "report")


def _finite(value: Any) -> Any:
    """``value`` with NaN and infinities spelt as strings, so that evidence can be written at all."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


def _status(step: StepView, *, check: bool, begun: frozenset[int]) -> str:
    """What became of a step. Outside check mode a foreseen change that never came was not reached, and neither
    was a step of a segment that ended before it: what the check pass found of it was said of another moment.
    """
    if step.status is not None:
        return step.status
    if not check and step.segment in begun:
        return "not_reached"
    if check or step.checked in ("ok", "skipped", "failed"):
        return step.checked or "not_reached"
    return "not_reached"


def _step(step: StepView, *, check: bool, begun: frozenset[int]) -> dict[str, Any]:
    return {
        "id": step.id,
        "task": step.task,
        "segment": step.segment,
        "status": _status(step, check=check, begun=begun),
        "reason": step.reason,
        "duration_s": step.duration_s,
        "exit_code": step.exit_code,
        "diff": step.diff,
    }
