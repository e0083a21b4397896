"""What is known of the health of hosts: asked live, taken from captures, or from the last reports in the store.

All three give a :class:`HostHealth` per host; :func:`document` makes one document of them
(schemas/health.schema.json), and :mod:`fleet.report.health` shows that. Nothing is written on a host and no lease is
taken. A host where fleet may not become root is asked as the user who logs in, and what could not be read so is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.audit.findings import Finding, Severity
from fleet.audit.health import evaluate
from fleet.audit.health.age import LIMIT_S, age_s
from fleet.audit.health.devices import answering, bound, devices
from fleet.audit.health.unknown import unknown_paths
from fleet.core.errors import ExitCode, FleetError, InputError, Problem, overall
from fleet.core.ids import utc_now
from fleet.core.secret import Scrubber
from fleet.inventory import Host, LoadOptions
from fleet.report.health import causes, counts
from fleet.report.summary import facts_words
from fleet.run.asking import Asked, chosen_hosts, unread
from fleet.store import Store

if TYPE_CHECKING:
    from fleet.run.live import Reading

SCHEMA = "fleet.health/1"
HEALTHY, WARNING, ERROR = "healthy", "warning", "error"
STALE, NO_REPORT, UNREACHABLE, FAILED = "stale", "no_report", "unreachable", "failed"
#: The groups of facts that health rules read, beside those that say who the host is.
FACT_GROUPS = (
    "identity", "clock", "packages", "gpus", "driver", "gpu_probe", "kernel_log", "interconnect", "engine", "checks",
)  # fmt: skip

Facts = Mapping[str, Any]


@dataclass
class HostHealth:
    """One host. ``facts`` is None where nothing is known; ``notes`` say what could not be read and why."""

    name: str
    facts: Facts | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    root: bool | None = None
    run: str | None = None
    error: FleetError | None = None

    @property
    def status(self) -> str:
        """One word: the worst that is known of it."""
        if self.error is not None:
            return UNREACHABLE if self.error.exit_code is ExitCode.UNREACHABLE else FAILED
        if self.facts is None:
            return NO_REPORT
        severities = {finding.severity for finding in self.findings}
        if any(finding.id == "health.age.stale" for finding in self.findings):
            return STALE
        return (
            ERROR if Severity.ERROR in severities else WARNING if Severity.WARNING in severities else HEALTHY
        )

    def exit_code(self, fail_on: str) -> ExitCode:
        """What it contributes to fleet's exit code: nothing known is not healthy."""
        if self.error is not None:
            return self.error.exit_code
        bad = (ERROR, STALE, NO_REPORT, *([WARNING] if fail_on == WARNING else []))
        return ExitCode.FINDINGS if self.status in bad else ExitCode.DONE

    def as_json(self, now_unix: float) -> dict[str, Any]:
        """For the document."""
        facts = self.facts or {}
        age = age_s(facts, now_unix)
        return {
            "status": self.status,
            "simulated": facts.get("simulated"),
            "collected_at": facts.get("collected_at"),
            "age_s": round(age, 1) if age is not None else None,
            "run": self.run,
            "root": self.root,
            "summary": facts_words(facts),
            "gpus": _gpus_json(facts),
            "findings": [finding.as_json() for finding in self.findings],
            "notes": self.notes,
            "error": self.error.what if self.error else None,
            "remedy": self.error.remedy if self.error else None,
        }


def _gpus_json(facts: Facts) -> list[dict[str, Any]]:
    """Every GPU that NVML or the PCI bus names, by address; ``unknown`` where NVML did not tell of it."""
    found = {str(device["address"]): device for device in devices(facts)}
    for gpu in bound(facts):
        found.setdefault(str(gpu["address"]), {**gpu, "index": gpu.get("minor"), "status": "unknown"})
    names = ("address", "index", "uuid", "name", "status")
    return [{name: found[address].get(name) for name in names} for address in sorted(found)]


# -- asked live -------------------------------------------------------------------------------------


def live(asked: Asked, load: LoadOptions, scrubber: Scrubber) -> list[HostHealth]:
    """Read the facts of every host now, and judge them. Raises InputError before any host is asked."""
    hosts = chosen_hosts(asked, load)
    wanted = {host.name: expected(host) for host in hosts}
    from fleet.run.live import read_once  # SSH: no other source needs it

    readings = read_once(hosts, FACT_GROUPS, scrubber, asked.how)
    return [_told(reading, wanted[name]) for name, reading in readings.items()]


def expected(host: Host) -> dict[str, Any]:
    """``{"gpus": {"count", "nvlinks"}}`` from the inventory's gpu_count and gpu_nvlinks. Raises InputError."""
    said: dict[str, int] = {}
    for name in ("count", "nvlinks"):
        value = host.variables.get(f"gpu_{name}")
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            problem = Problem(
                host.origin(f"gpu_{name}").position, f"gpu_{name} must be a number, not {value!r}"
            )
            raise InputError([problem])
        said[name] = value
    return {"gpus": said}


def _told(reading: Reading, wanted: Mapping[str, Any]) -> HostHealth:
    health = HostHealth(reading.host, root=reading.as_root, error=reading.error)
    if reading.note is not None:
        health.notes.append(reading.note)
    return health if reading.facts is None else _judged(health, reading.facts, wanted)


def _judged(health: HostHealth, facts: Facts, wanted: Mapping[str, Any]) -> HostHealth:
    health.facts = facts
    health.findings = evaluate(facts, wanted)
    health.notes += unread(facts)
    return health


# -- from files, from the store ---------------------------------------------------------------------


def captured(files: Sequence[Path]) -> list[HostHealth]:
    """Judge what nvidia-smi printed into files. Raises InputError for one that it did not print."""
    from fleet.audit.captures import load  # brings every parser of nvidia-smi's output

    return [_captured(file, load(file)) for file in files]


def _captured(file: Path, probe: Mapping[str, Any]) -> HostHealth:
    facts = {"gpu_probe": probe}
    health = HostHealth(str(file), facts, evaluate(facts, {"partial": True}))
    absent = {
        path for device, _ in answering(facts) for path in unknown_paths(device).get("not_collected", ())
    }
    health.notes.append("of a capture only: kernel log, driver files and containers are not judged")
    if absent:
        health.notes.append(f"not in the capture: {', '.join(sorted(absent))}")
    return health


def last_known(
    asked: Asked, load: LoadOptions, store: Store, age_limit_s: float = LIMIT_S
) -> list[HostHealth]:
    """Judge the newest report of every host. One that is older than ``age_limit_s`` is stale."""
    hosts = chosen_hosts(asked, load)
    found = {name: (run, facts) for name, run, facts in store.newest_facts(host.name for host in hosts)}
    now: dict[str, Any] = {"now_unix": time.time(), "age_limit_s": age_limit_s}
    known: list[HostHealth] = []
    for host in hosts:
        health = HostHealth(host.name)
        if host.name in found:
            run, facts = found[host.name]
            health.run = run
            _judged(health, facts, {**expected(host), **now})
        known.append(health)
    return known


# -- the document -----------------------------------------------------------------------------------


def document(
    hosts: Sequence[HostHealth],
    *,
    source: str,
    inventory: str | None,
    fail_on: str = ERROR,
    now: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """All of it, as ``--json`` prints it. ``source``: live, reports or captures."""
    at = now()
    shown = {host.name: host.as_json(at) for host in hosts}
    return {
        "schema": SCHEMA,
        "checked_at": utc_now(),
        "source": source,
        "inventory": inventory,
        "fail_on": fail_on,
        "exit_code": int(overall(host.exit_code(fail_on) for host in hosts)),
        "counts": counts(shown),
        "causes": causes(shown),
        "hosts": shown,
    }
