"""From a run's reports to judged benchmarks: records, what the inventory wants, baselines; and saving these.

:func:`judged` reads only; :func:`save` keeps baselines. What runs the benchmarks is ``playbooks/bench.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.audit.benchmarks import Baseline, Verdict, judge
from fleet.audit.benchmarks.subject import Subject, baseline_key, subjects
from fleet.audit.benchmarks.verdict import FAIL, INVALID
from fleet.audit.benchmarks.watch import missing_gpus
from fleet.catalogue.catalogue import load
from fleet.core.errors import ExitCode
from fleet.core.ids import utc_now
from fleet.core.schema import faults
from fleet.inventory import Inventory
from fleet.report.benchmarks.benched import Benched, HostBench
from fleet.store import BaselineRow, RunRow, Store

#: Inventory variables that say what is wanted of a host.
COUNT, MODEL = "gpu_count", "training_model"


def judged(row: RunRow, store: Store, inventory: Inventory, *, compare: bool = False) -> Benched:
    """The benchmarks of the run ``row``, all hosts judged together. ``compare``: with baselines, too."""
    reports = store.reports(row.run)
    states = {state.host: state for state in store.hosts(row.run)}
    wanted = {name: _wanted(inventory, name) for name in row.hosts}
    records, hosts = {}, {}
    for name in row.hosts:
        report = reports.get(name) or {}
        status = str(report.get("status") or (states[name].state if name in states else "not reached"))
        record, why = _record(report) if status == "converged" else (None, None)
        if record is not None:
            records[name] = record
        reason = why or report.get("reason") or (None if record else "there is no NVIDIA GPU to measure")
        missing = missing_gpus(wanted[name]) if record is None and status == "converged" and not why else ()
        hosts[name] = HostBench(
            name, "failed" if why else status, reason, report.get("remedy"), record, tuple(missing)
        )
    earlier = store.baselines() if compare else []
    verdicts = judge(records, load(), map(_baseline, earlier), wanted)
    for name, said in verdicts.items():
        hosts[name] = _with(hosts[name], said)
    suites = sorted({record["suite"] for record in records.values()})
    return Benched(
        row.run,
        row.inventory,
        suites[0] if len(suites) == 1 else None,
        hosts,
        ExitCode(row.exit_code or 0),
        _remarks(hosts, earlier) if compare else (),
    )


def _with(host: HostBench, verdicts: Sequence[Verdict]) -> HostBench:
    return HostBench(host.host, host.status, host.reason, host.remedy, host.record, tuple(verdicts))


def _record(report: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
    """(the record in a report, why there is none that can be used)."""
    record = report.get("benchmark")
    if record is None:
        return None, None
    wrong = faults(record, "benchmark", tolerant=True)
    if wrong:
        return None, f"its record does not follow schema benchmark: {wrong[0]}"
    return record, None


def _wanted(inventory: Inventory, name: str) -> dict[str, Any]:
    """What the inventory says of a host's GPUs; a host that has left the inventory wants nothing."""
    if name not in inventory.hosts:
        return {}
    variables = inventory.hosts[name].variables
    wanted: dict[str, Any] = {}
    count, model = variables.get(COUNT), variables.get(MODEL)
    if isinstance(count, int) and not isinstance(count, bool):
        wanted["gpus"] = {"count": count}
    if isinstance(model, Mapping):
        wanted["model"] = dict(model)
    return wanted


def _baseline(row: BaselineRow) -> Baseline:
    return Baseline(row.host, row.gpu, row.test, row.key, row.value, row.record)


def _remarks(hosts: Mapping[str, HostBench], earlier: Sequence[BaselineRow]) -> tuple[str, ...]:
    """Which measured hosts have no baseline."""
    known = {row.host for row in earlier}
    without = sorted(name for name, host in hosts.items() if host.record is not None and name not in known)
    if not without:
        return ()
    return (f"no baseline of {', '.join(without)}: fleet bench INVENTORY --save-baseline keeps one",)


def save(benched: Benched, store: Store) -> tuple[int, int]:
    """Keep every valid result as the baseline of its GPU; (how many, how many left out as failed or invalid)."""
    gpus, at = load().gpus, utc_now()
    rows, left_out = [], 0
    for host in benched.hosts.values():
        if host.record is None:
            continue
        for subject, verdict in zip(subjects(host.host, host.record, gpus), host.verdicts, strict=False):
            if verdict.verdict in (FAIL, INVALID):
                left_out += 1
            elif subject.value and subject.gpus and subject.test != "burn":
                rows.append(_row(subject, verdict, benched.run, at))
    store.save_baselines(rows)
    return len(rows), left_out


def _row(subject: Subject, verdict: Verdict, run: str, at: str) -> BaselineRow:
    record = subject.record
    conditions = {
        "driver": record["key"].get("driver"),
        "image": (record["image"] or {}).get("digest"),
        "torch": (record["software"] or {}).get("torch"),
        "suite": record["suite"],
        "simulated": record["simulated"],
        "measured_at": record["ended_at"],
        "verdict": verdict.verdict,
        "spread_percent": subject.result["spread_percent"],
    }
    assert subject.value is not None
    return BaselineRow(
        subject.host,
        subject.gpu,
        subject.test,
        baseline_key(subject),
        subject.value,
        verdict.unit,
        run,
        at,
        conditions,
    )
