"""An audit as people read it: the outcome first, then causes with the smallest change, then what else is to be known.

Everything is taken from the document of schemas/audit.schema.json, which :mod:`fleet.run.audit` makes; the same
document is what ``--json`` prints and what :mod:`fleet.report.audit_markdown` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from fleet.report.audit_causes import change_words
from fleet.report.style import BAD, DIM, GOOD, STRONG, WARN, Line, Span, line
from fleet.report.words import plural, printable, ranges, wrapped

RUNNING = ("runs", "runs_with_warnings")
ROLES = {
    "error": BAD, "failed": BAD, "unreachable": BAD, "does_not_run": BAD, "unknown": BAD, "no_report": BAD,
    "stale": BAD, "warning": WARN, "runs_with_warnings": WARN, "info": DIM, "runs": GOOD, "no_gpu": DIM,
}  # fmt: skip
_LEAD = 8
_CHANGE_WIDTH = 44


def lines(
    document: Mapping[str, Any],
    *,
    now: datetime,
    width: int = 100,
    hosts: bool = False,
    verbose: bool = False,
) -> list[Line]:
    """Outcome, causes, warnings, the best image, hosts of which nothing is known; with ``hosts`` each of them.

    ``verbose`` adds remarks, remedies of warnings and where limits come from.
    """
    shown: list[Line] = [outcome(document)]
    told = document["causes"]
    if len(document["hosts"]) == 1:  # how many, and which, is said already
        told = [{**cause, "hosts": []} for cause in told]
    bad = [cause for cause in told if cause["severity"] in ("error", "unknown")]
    mild = [cause for cause in told if cause["severity"] == "warning"]
    remarks = [cause for cause in told if cause["severity"] == "info"]
    shown += [[], *_bad(bad, width, verbose=verbose)] if bad else []
    shown += [[], *_mild("warnings", mild, width, verbose=verbose)] if mild else []
    shown += [[], *_mild("remarks", remarks, width, verbose=True)] if remarks and verbose else []
    silent = _silent(document["hosts"], width)
    shown += [[], *silent] if silent else []
    shown += [[], *_notes(document["hosts"], width)] if verbose and _notes(document["hosts"], width) else []
    if document["best_image"] is not None:
        shown += [[], *_best(document["best_image"], width)]
    if (hosts or verbose) and len(document["hosts"]) > 1:  # of one host all is said above
        shown += [[], *_hosts(document["hosts"], width, verbose=verbose)]
    ending = _ending(document, remarks, now, hosts=hosts, verbose=verbose)
    return [*shown, [], *ending] if len(shown) > 1 or len(ending) > 1 else [*shown, *ending]


def outcome(document: Mapping[str, Any]) -> list[Span]:
    """``IMAGE on site.yaml: runs on 186 of 200 hosts``; hosts without GPUs are not counted among them."""
    hosts, number = document["hosts"], document["counts"]
    bare = number.get("no_gpu", 0)
    total, running = len(hosts) - bare, sum(number.get(state, 0) for state in RUNNING)
    role = GOOD if number.get("runs") == total else WARN if running == total else BAD
    head = Span(printable(f"{title(document)}: "))
    if len(hosts) == 1:
        state = hosts[0]["status"]
        words = _STATE_WORDS[state] if hosts[0]["image"] else _ALONE_WORDS.get(state, _STATE_WORDS[state])
        return [head, Span(words, role)]
    rest = f" ({plural(bare, 'host')} without GPUs)" if bare else ""
    verb = "runs on" if any(host["image"] for host in hosts) else "nothing against any image on"
    if running == total:
        return [head, Span(f"{verb} all {plural(total, 'host')}", role), Span(rest)]
    return [head, Span(f"{verb} {running} of {plural(total, 'host')}", role), Span(rest)]


def title(document: Mapping[str, Any]) -> str:
    """What is asked, in words: the image, where, and what is supposed to be another."""
    hosts = document["hosts"]
    images = {host["image"] for host in hosts if host["image"]}
    own = "the image of each host" if len(images) > 1 else next(iter(images), "no image in particular")
    where = hosts[0]["name"] if len(hosts) == 1 else document["inventory"] or plural(len(hosts), "host")
    supposed = ", ".join(f"{name} {value}" for name, value in (document["what_if"] or {}).items())
    supposed = f", supposing {supposed}" if supposed else ""
    return f"{document['image'] or own} on {where}{supposed}"


_STATE_WORDS = {
    "runs": "runs",
    "runs_with_warnings": "runs, with warnings",
    "does_not_run": "does not run",
    "unknown": "not known whether it runs",
    "no_report": "no report",
    "stale": "stale: its report is too old",
    "no_gpu": "no GPU",
    "unreachable": "unreachable",
    "failed": "failed",
}


#: Of a host that no image was asked for.
_ALONE_WORDS = {
    "runs": "nothing against it",
    "runs_with_warnings": "nothing against it but warnings",
    "does_not_run": "no image would run",
    "unknown": "not known whether any image would run",
}


def _bad(found: Sequence[Mapping[str, Any]], width: int, *, verbose: bool) -> list[Line]:
    """The table of what keeps the image from running: how many hosts, what, and the smallest change."""
    changes = [cause["change"] or cause["remedy"] for cause in found]
    changes = [
        "as above" if one == before else one for one, before in zip(changes, ["", *changes], strict=False)
    ]
    beside = min(_CHANGE_WIDTH, max(len("smallest change"), *map(len, changes)))
    room = width - _LEAD - 2 - beside
    if room < 40:  # too narrow for columns: the change goes below
        beside, room = 0, max(width - _LEAD, 24)
    number = "hosts" if found[0]["hosts"] else ""
    head = f"{number:>{_LEAD - 2}}  {'finding':<{room}}" + ("  smallest change" if beside else "")
    shown: list[Line] = [line(Span(head.rstrip(), DIM))]
    for cause, change in zip(found, changes, strict=True):
        shown += _bad_rows(cause, change, room, beside)
        if verbose:
            shown += _indented(f"{cause['id']} · limit: {cause['limit_source']}", width, DIM)
    return shown


def _bad_rows(cause: Mapping[str, Any], change: str, room: int, beside: int) -> list[Line]:
    left = [(part, STRONG) for part in _wrapped(_what(cause), room)]
    left += [(f"  {part}", "") for part in _wrapped(_where(cause), room - 2) if part]
    right = _wrapped(printable(change), beside) if beside else []
    if not beside:
        left += [(f"  {part}", "") for part in _wrapped(f"smallest change: {printable(change)}", room - 2)]
    rows: list[Line] = []
    for index in range(max(len(left), len(right))):
        text, role = left[index] if index < len(left) else ("", "")
        number = _number(cause) if index == 0 else " " * _LEAD
        aside = f"{' ' * (room - len(text))}  {right[index]}" if index < len(right) else ""
        rows.append(line(number, Span(text, role), aside))
    return rows


def _mild(name: str, found: Sequence[Mapping[str, Any]], width: int, *, verbose: bool) -> list[Line]:
    shown: list[Line] = [line(Span(f"  {name}", DIM))]
    for cause in found:
        words = _wrapped(_what(cause), width - _LEAD)
        role = ROLES[cause["severity"]]
        shown.append(line(_number(cause), Span(words[0], role)))
        shown += [line(" " * _LEAD, Span(part, role)) for part in words[1:]]
        if verbose:
            shown += _indented(_where(cause), width) if cause["hosts"] else []
            shown += _indented(f"remedy: {cause['remedy']}", width)
            shown += _indented(f"{cause['id']} · limit: {cause['limit_source']}", width, DIM)
    return shown


def _number(cause: Mapping[str, Any]) -> str:
    """How many hosts, before a line."""
    return f"{len(cause['hosts']) or '':>{_LEAD - 2}}  "


def _what(cause: Mapping[str, Any]) -> str:
    unknown = "not known: " if cause["severity"] == "unknown" else ""
    return printable(f"{unknown}{cause['what']}")


def _where(cause: Mapping[str, Any]) -> str:
    """``GTX 1080 Ti: lab[01:09]``; the hosts alone where the finding names the products itself."""
    names = ranges(cause["hosts"])
    products = [one for one in cause["gpus"] if one not in cause["what"]]
    return printable(f"{', '.join(products)}: {names}" if products else names)


def _indented(text: str, width: int, role: str = "") -> list[Line]:
    return [
        line(" " * (_LEAD + 2), Span(part, role)) for part in _wrapped(printable(text), width - _LEAD - 2)
    ]


def _silent(hosts: Iterable[Mapping[str, Any]], width: int) -> list[Line]:
    """Hosts of which nothing is known, by reason."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for host in hosts:
        if host["error"] is not None:
            key = (host["status"], host["error"], host["error_remedy"] or "")
            same.setdefault(key, []).append(host["name"])
    shown: list[Line] = []
    for (status, what, remedy), names in same.items():
        words = printable(f"{ranges(names)}: {what}")
        first, *more = _wrapped(words, width - 15)
        shown.append(line("  ", Span(f"{status.replace('_', ' '):<13}", ROLES[status]), first))
        shown += [line(" " * 15, part) for part in more]
        shown += (
            [line(" " * 15, part) for part in _wrapped(f"remedy: {remedy}", width - 15)] if remedy else []
        )
    return shown


def _notes(hosts: Iterable[Mapping[str, Any]], width: int) -> list[Line]:
    same: dict[str, list[str]] = {}
    for host in hosts:
        for note in host["notes"]:
            same.setdefault(note, []).append(host["name"])
    texts = [printable(f"{ranges(names)}: {note}") for note, names in same.items()]
    return [line("  ", Span(part, DIM)) for text in texts for part in _wrapped(text, width - 2)]


def _best(best: Mapping[str, Any], width: int) -> list[Line]:
    """The newest official image for all, or one per group, and those that none serves."""
    groups, refused = best["groups"], best["refused"]
    served = sum(len(group["hosts"]) for group in groups)
    if not groups and not refused:
        return [line(Span("  no host with GPUs is known: no image can be named", WARN))]
    shown: list[Line] = []
    if best["one"] is not None:
        every = f"all {served} hosts" if served > 1 else printable(groups[0]["hosts"][0])
        shown.append(line(f"  one image for {every}: ", Span(best["one"], GOOD)))
    elif served == 0 and sum(len(one["hosts"]) for one in refused) == 1:
        return [line("  ", Span(part, BAD)) for part in _wrapped(printable(refused[0]["why"]), width - 2)]
    else:
        total = served + sum(len(one["hosts"]) for one in refused)
        what = f"  no image runs on all {total} hosts" + ("; one per group:" if groups else "")
        shown.append(line(Span(what, WARN)))
        for group in groups:
            shown.append(line(f"{len(group['hosts']):>{_LEAD - 2}}  ", Span(group["image"], STRONG)))
            shown += _indented(ranges(group["hosts"]), width)
    for one in refused:
        first, *more = _wrapped(printable(f"{ranges(one['hosts'])}: {one['why']}"), width - _LEAD - 2)
        shown.append(line(f"{len(one['hosts']):>{_LEAD - 2}}  ", Span("none ", BAD), first))
        shown += [line(" " * (_LEAD + 2), part) for part in more]
    return shown


def _hosts(hosts: Sequence[Mapping[str, Any]], width: int, *, verbose: bool) -> list[Line]:
    """Every host with its verdict, and what is said of it and of each GPU."""
    names = max(len(host["name"]) for host in hosts)
    shown: list[Line] = []
    for host in hosts:
        status = Span(f"{_STATE_WORDS[host['status']]:<25}", ROLES[host["status"]])
        facts = "  ".join(host["summary"])
        shown.append(line(f"  {printable(host['name']):<{names}}  ", status, "  ", printable(facts)))
        for text, role in _said(host, verbose=verbose):
            parts = _wrapped(text, width - names - 6)
            shown += [line(" " * (names + 4), Span(part, role)) for part in parts]
    return shown


def _said(host: Mapping[str, Any], *, verbose: bool) -> list[tuple[str, str]]:
    """What keeps the image from running there and the way out; of warnings the names, or with ``verbose`` all."""
    places: dict[tuple[str, str], list[str]] = {}
    mild = []
    for finding in host["findings"]:
        if finding["severity"] in ("error", "unknown") or (verbose and finding["severity"] == "warning"):
            at = places.setdefault((_what(finding), finding["severity"]), [])
            at += [finding["gpu"]] if finding["gpu"] else []
        elif finding["severity"] == "warning":
            mild.append(finding["id"].removeprefix("audit."))
    texts = [
        (printable(f"{', '.join(at)}{(at and ': ') or ''}{what}"), ROLES[severity])
        for (what, severity), at in places.items()
    ]
    texts += [(f"warnings: {', '.join(dict.fromkeys(mild))}", WARN)] if mild else []
    change = change_words(host["smallest_change"])
    if change:
        texts.append((f"smallest change: {printable(change)}", ""))
        texts += [
            (f"and then: {printable(one['what'])}", WARN) for one in host["smallest_change"]["would_break"]
        ]
    return [*texts, (printable(host["error"]), BAD)] if host["error"] else texts


def _ending(
    document: Mapping[str, Any],
    remarks: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    hosts: bool,
    verbose: bool,
) -> list[Line]:
    """How old the reports are, what can be asked further, and the exit code."""
    shown: list[Line] = []
    reports = document["reports"]
    if reports is not None and reports["oldest"] is not None:
        shown.append(line(Span(f"  {report_words(reports, now)}", DIM)))
    hints = []
    if len(document["hosts"]) > 1 and not hosts and document["exit_code"]:
        hints.append("each host: --hosts")
    if document["best_image"] is None and document["image"] and _refusing(document):
        hints.append("an image that runs: --best-image")
    if remarks and not verbose:
        hints.append(f"{plural(len(remarks), 'remark')}: -v")
    shown += [line(Span(f"  {'; '.join(hints)}", DIM))] if hints else []
    simulated = " · simulated" if any(host["simulated"] for host in document["hosts"]) else ""
    return [*shown, line(f"exit {document['exit_code']}{simulated}")]


def _refusing(document: Mapping[str, Any]) -> bool:
    return any(document["counts"].get(state) for state in ("does_not_run", "unknown"))


def report_words(reports: Mapping[str, Any], now: datetime) -> str:
    """``reports from 2026-11-28 06:00 to 2026-11-30 12:00 UTC; the oldest is 2 days old``."""
    oldest, newest = (str(reports[name])[:16].replace("T", " ") for name in ("oldest", "newest"))
    when = f"reports of {oldest}" if oldest == newest else f"reports from {oldest} to {newest}"
    return f"{when} UTC; the oldest is {age_words(str(reports['oldest']), now)} old"


def age_words(collected_at: str, now: datetime) -> str:
    """How old, coarsely, so that asking again says the same: ``under an hour``, ``5 hours``, ``2 days``."""
    age = now - datetime.fromisoformat(collected_at.replace("Z", "+00:00"))
    if age < timedelta(hours=1):
        return "under an hour"
    hours = int(age.total_seconds() // 3600)
    return plural(hours, "hour") if hours < 48 else plural(hours // 24, "day")


def _wrapped(text: str, width: int) -> list[str]:
    """As :func:`.words.wrapped`; one empty line of no text."""
    return wrapped(text, width) or [""]
