"""An audit as Markdown, for a ticket or a wiki: the same document as the table and ``--json`` have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fleet.report.audit import outcome, report_words, title
from fleet.report.audit_causes import change_words
from fleet.report.style import text_of
from fleet.report.words import printable, ranges

_SEVERITY = {"error": "error", "unknown": "not known", "warning": "warning", "info": "remark"}


def markdown(document: Mapping[str, Any], *, now: datetime) -> str:
    """The whole page."""
    parts = [
        [f"# {_cell(title(document))}", "", f"**{_cell(text_of(outcome(document)))}**", ""],
        list(_about(document, now)),
        list(_causes(document["causes"])),
        list(_best(document["best_image"])),
        list(_hosts(document["hosts"])),
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _about(document: Mapping[str, Any], now: datetime) -> Iterator[str]:
    yield f"- as of {document['as_of']}, exit {document['exit_code']} (`--fail-on {document['fail_on']}`)"
    if document["reports"] is not None and document["reports"]["oldest"] is not None:
        yield f"- {report_words(document['reports'], now)}"
    if any(host["simulated"] for host in document["hosts"]):
        yield "- **simulated hardware**"
    yield ""


def _causes(causes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not causes:
        return
    yield from ("## Findings", "", "| hosts | | finding | where | smallest change | limit from |")
    yield "|---:|---|---|---|---|---|"
    for cause in causes:
        where = ranges(cause["hosts"])
        where = f"{', '.join(cause['gpus'])}: {where}" if cause["gpus"] else where
        cells = (
            str(len(cause["hosts"])),
            _SEVERITY[cause["severity"]],
            f"{cause['what']} (`{cause['id']}`)",
            where,
            cause["change"] or cause["remedy"],
            cause["limit_source"],
        )
        yield _row(cells)
    yield ""


def _best(best: Mapping[str, Any] | None) -> Iterator[str]:
    if best is None:
        return
    yield from ("## Best image", "")
    if best["one"] is not None:
        yield f"One image for all: `{best['one']}`"
        yield ""
        return
    yield from ("| hosts | image | which |", "|---:|---|---|")
    for group in best["groups"]:
        yield _row((str(len(group["hosts"])), f"`{group['image']}`", ranges(group["hosts"])))
    for one in best["refused"]:
        yield _row((str(len(one["hosts"])), f"none: {one['why']}", ranges(one["hosts"])))
    yield ""


def _hosts(hosts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line per host; of many alike, a line for all of them."""
    yield from ("## Hosts", "", "| hosts | verdict | what they have | smallest change |", "|---|---|---|---|")
    alike: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        change = change_words(host["smallest_change"]) or host["error"] or ""
        key = (host["status"].replace("_", " "), ", ".join(host["summary"]), change)
        alike.setdefault(key, []).append(host["name"])
    for (status, summary, change), names in alike.items():
        yield _row((ranges(names), status, summary, change))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that breaks no table and starts no HTML: hosts may say anything."""
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
