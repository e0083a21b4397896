"""Findings about health as people read them: the outcome first, then causes, each with where it is and what to do.

:func:`causes` puts together what many hosts have in common, so that one cause on 200 hosts is one line; :func:`lines`
shows a document of schemas/health.schema.json. :func:`summary` is the same of one host, for the recap of a run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.report.columns import Cell, Column, table
from fleet.report.style import BAD, DIM, GOOD, STRONG, WARN, Line, Span, line
from fleet.report.words import duration, plural, printable, ranges, wrapped

Json = dict[str, Any]

PREFIX = "health."
_SEVERITIES = ("error", "warning", "info")
_ROLES = {
    "error": BAD, "failed": BAD, "unreachable": BAD, "stale": BAD, "no_report": BAD, "warning": WARN, "info": DIM,
    "healthy": GOOD,
}  # fmt: skip
#: The states a host can be in, worst first.
STATES = ("failed", "unreachable", "error", "stale", "no_report", "warning", "healthy")
_SHOWN_PLACES = 6
_LEAD = 9

# What may differ from GPU to GPU within one cause: a time, a PCI address, a number that is no part of a version.
_VARYING = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z)"
    r"|(?P<address>\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b)"
    r"|(?P<number>(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-]|\.\d))"
)


def causes(hosts: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    """One entry per cause, worst and widest first.

    ``hosts`` are those of a health document. A cause: ``{"id", "severity", "what", "remedy", "limit_source", "gpus",
    "hosts": {name: [addresses]}}``; texts that differ only in numbers, times and addresses are one cause.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Mapping[str, Any]]]] = {}
    for name, host in hosts.items():
        for finding in host["findings"]:
            key = (finding["severity"], finding["id"], alike(finding["what"]), alike(finding["remedy"]))
            groups.setdefault(key, []).append((name, finding))
    found = [_cause(members) for members in groups.values()]
    return sorted(found, key=lambda cause: (_SEVERITIES.index(cause["severity"]), -len(cause["hosts"])))


def _cause(members: Sequence[tuple[str, Mapping[str, Any]]]) -> Json:
    places: dict[str, list[str]] = {}
    for name, finding in members:
        addresses = places.setdefault(name, [])
        if finding.get("gpu"):
            addresses.append(finding["gpu"])
    first = members[0][1]
    return {
        "id": first["id"],
        "severity": first["severity"],
        "what": _merged([finding["what"] for _, finding in members]),
        "remedy": _merged([finding["remedy"] for _, finding in members]),
        "limit_source": first["limit_source"],
        "gpus": sum(len(set(addresses)) for addresses in places.values()),
        "hosts": {name: sorted(set(addresses)) for name, addresses in places.items()},
    }


def alike(text: str) -> str:
    """``text`` with what may differ within one cause left open."""
    return _VARYING.sub(lambda match: f"<{match.lastgroup}>", text)


def _merged(texts: Sequence[str]) -> str:
    """One text for several that are alike: numbers as a range, the latest time, no address."""
    first = texts[0]
    if len(set(texts)) == 1:
        return first
    values = [[match[0] for match in _VARYING.finditer(text)] for text in texts]
    columns = iter(zip(*values, strict=True))
    return _VARYING.sub(lambda match: _one(str(match.lastgroup), next(columns)), first)


def _one(kind: str, values: Sequence[str]) -> str:
    if len(set(values)) == 1:
        return values[0]
    if kind == "number":
        return f"{min(values, key=float)}–{max(values, key=float)}"
    return max(values) if kind == "time" else "ADDRESS"


def lines(document: Mapping[str, Any], *, width: int = 100, verbose: bool = False) -> list[Line]:
    """The outcome, the causes, what is not known; with ``verbose`` also notes, and every GPU."""
    shown: list[Line] = [outcome(document)]
    told = [cause for cause in document["causes"] if verbose or cause["severity"] != "info"]
    for cause in told:
        shown += [[], *_cause_lines(cause, document["hosts"], width, verbose=verbose)]
    others = [*_silent(document["hosts"], width), *_notes(document["hosts"], width)]
    shown += [[], *others] if others else []
    shown += [[], *_gpus(document["hosts"])] if verbose else []
    hidden = sum(cause["severity"] == "info" for cause in document["causes"])
    if hidden and not verbose:
        shown += [[], line(Span(f"{plural(hidden, 'remark')} not shown: -v", DIM))]
    return shown


def outcome(document: Mapping[str, Any]) -> list[Span]:
    """``2 of 8 hosts are not healthy: 1 error, 1 unreachable · 64 GPUs · exit 4``."""
    hosts, counts = document["hosts"], document["counts"]
    healthy, total = counts.get("healthy", 0), len(hosts)
    gpus = sum(len(host["gpus"]) for host in hosts.values())
    if healthy == total:
        words = f"{next(iter(hosts))} is healthy" if total == 1 else f"all {total} hosts are healthy"
        said = [Span(words, GOOD)]
    else:
        states = ", ".join(
            f"{counts[state]} {state.replace('_', ' ')}" for state in STATES[:-1] if counts.get(state)
        )
        one = next(iter(hosts)) if total == 1 else ""
        words = f"{one} is not healthy" if one else f"{total - healthy} of {total} hosts are not healthy"
        said = [Span(f"{words}: {states}", WARN if set(counts) <= {"healthy", "warning"} else BAD)]
    simulated = any(host["simulated"] for host in hosts.values())
    rest = [plural(gpus, "GPU"), *(["simulated"] if simulated else [])]
    ages = [host["age_s"] for host in hosts.values() if host["age_s"] is not None]
    if document["source"] == "reports" and ages:
        rest.append(f"oldest report {duration(max(ages))} old")
    if document["exit_code"]:
        rest.append(f"exit {document['exit_code']}")
    return [*said, Span(f" · {' · '.join(rest)}")]


def _cause_lines(
    cause: Mapping[str, Any], hosts: Mapping[str, Any], width: int, *, verbose: bool
) -> list[Line]:
    head = f"{cause['id'].removeprefix(PREFIX)}: {printable(cause['what'])}"
    first, *more = wrapped(head, width - _LEAD)
    severity = Span(f"{cause['severity']:<{_LEAD}}", _ROLES[cause["severity"]])
    shown: list[Line] = [line(severity, Span(first, STRONG)), *(line(" " * _LEAD, part) for part in more)]
    for words in _where(cause, hosts):
        shown += [line(" " * (_LEAD + 2), part) for part in wrapped(words, width - _LEAD - 2)]
    shown += [
        line(" " * _LEAD, part) for part in wrapped(f"remedy: {printable(cause['remedy'])}", width - _LEAD)
    ]
    if verbose:
        shown.append(line(" " * _LEAD, Span(f"limit: {cause['limit_source']}", DIM)))
    return shown


def _where(cause: Mapping[str, Any], hosts: Mapping[str, Any]) -> list[str]:
    """``gpu[01:08]: every GPU``, ``gpu09: 0000:1b:00.0``; past a few such, all together."""
    same: dict[str, list[str]] = {}
    for name, addresses in cause["hosts"].items():
        same.setdefault(_addresses(addresses, hosts[name]), []).append(name)
    places = [f"{ranges(names)}{words and f': {words}'}" for words, names in same.items()]
    if len(places) <= _SHOWN_PLACES:
        return places
    return [f"{plural(cause['gpus'], 'GPU')} on {ranges(cause['hosts'])}"]


def _addresses(addresses: Sequence[str], host: Mapping[str, Any]) -> str:
    if len(addresses) > 1 and len(addresses) == len(host["gpus"]):
        return f"every GPU ({len(addresses)})"
    return ", ".join(addresses)


def _silent(hosts: Mapping[str, Any], width: int) -> list[Line]:
    """Hosts of which nothing is known, by reason."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for name, host in hosts.items():
        if host["error"] is not None or host["status"] == "no_report":
            what = host["error"] or "no report of it in the store"
            remedy = host["remedy"] or ("fleet provision INVENTORY" if host["error"] is None else "")
            same.setdefault((host["status"], what, remedy), []).append(name)
    shown: list[Line] = []
    for (status, what, remedy), names in same.items():
        head = Span(f"{status.replace('_', ' ')}  ", _ROLES[status])
        shown.append(line(head, Span(ranges(names), STRONG), f": {printable(what)}"))
        shown += (
            [line(" " * _LEAD, part) for part in wrapped(f"remedy: {remedy}", width - _LEAD)]
            if remedy
            else []
        )
    return shown


def _notes(hosts: Mapping[str, Any], width: int) -> list[Line]:
    same: dict[str, list[str]] = {}
    for name, host in hosts.items():
        for note in host["notes"]:
            same.setdefault(note, []).append(name)
    alone = len(hosts) == 1
    words = [
        printable(note) if alone else f"{ranges(names)}: {printable(note)}" for note, names in same.items()
    ]
    return [line(Span(part, DIM)) for each in words for part in wrapped(each, width)]


def _gpus(hosts: Mapping[str, Any]) -> list[Line]:
    """Every host and GPU with the worst that is said of it."""
    columns = (Column(), Column(right=True), Column(), Column(), Column())
    gpus = table(columns, [_gpu_cells(gpu, host) for host in hosts.values() for gpu in host["gpus"]])
    shown: list[Line] = []
    for name, host in hosts.items():
        status = Span(host["status"].replace("_", " "), _ROLES[host["status"]])
        rest = filter(None, [*host["summary"], host["collected_at"]])
        shown.append(line(f"{name}  ", status, "  ", "  ".join(rest)))
        shown += [gpus.pop(0) for _ in host["gpus"]]
    return shown


def _gpu_cells(gpu: Mapping[str, Any], host: Mapping[str, Any]) -> list[Cell]:
    own = [finding for finding in host["findings"] if finding.get("gpu") == gpu["address"]]
    said = ", ".join(finding["id"].removeprefix(PREFIX) for finding in own)
    said = said or ("healthy" if gpu["status"] == "ok" else gpu["status"])
    index = "-" if gpu["index"] is None else str(gpu["index"])
    name = printable(str(gpu["name"] or "?"))
    return [Cell("  "), Cell(index), Cell(gpu["address"]), Cell(name), Cell(said, _worst(own))]


def _worst(findings: Iterable[Mapping[str, Any]]) -> str:
    worst = min((_SEVERITIES.index(finding["severity"]) for finding in findings), default=None)
    return _ROLES["healthy" if worst is None else _SEVERITIES[worst]]


def summary(findings: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(severity, words) of one host's health findings, a line per cause, without remarks: for a recap."""
    health = [finding for finding in findings if str(finding["id"]).startswith(PREFIX)]
    found = causes({"": {"findings": health}})
    return [(cause["severity"], _short(cause)) for cause in found if cause["severity"] != "info"]


def _short(cause: Mapping[str, Any]) -> str:
    addresses = cause["hosts"][""]
    where = (
        f" ({addresses[0] if len(addresses) == 1 else plural(len(addresses), 'GPU')})" if addresses else ""
    )
    return printable(f"{cause['id'].removeprefix(PREFIX)}: {cause['what']}{where}")


def counts(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Hosts by state, worst first."""
    found = Counter(host["status"] for host in hosts.values())
    return {state: found[state] for state in STATES if found[state]}
