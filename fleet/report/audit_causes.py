"""What many hosts of an audit have in common, put together: one cause on 200 hosts is one entry.

Reads the hosts of a document of schemas/audit.schema.json; :mod:`fleet.report.audit` shows what is found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]

SEVERITIES = ("error", "unknown", "warning", "info")
#: The states a host can be in, worst first.
STATES = (
    "failed", "unreachable", "does_not_run", "unknown", "stale", "no_report", "runs_with_warnings", "runs", "no_gpu",
)  # fmt: skip
_SHOWN_VALUES = 3


def causes(hosts: Sequence[Mapping[str, Any]]) -> list[Json]:
    """One entry per cause, worst and widest first.

    ``hosts`` are those of an audit document. Findings of one rule with one smallest change are one cause; where their
    texts differ in single words (versions), these are told together.
    """
    groups: dict[tuple[str, ...], list[_Member]] = {}
    for alike in _kinds(hosts):
        change = change_words(alike[0]["smallest_change"])
        products = {gpu["address"]: gpu["name"] for gpu in alike[0]["gpus"]}
        for finding in alike[0]["findings"]:
            way_out = change if finding["severity"] in ("error", "unknown") else ""
            shape = str(len(finding["what"].split()))
            key = (finding["severity"], finding["id"], way_out, shape)
            member = (alike, finding, way_out, products.get(finding["gpu"]) if finding["gpu"] else None)
            groups.setdefault(key, []).append(member)
    return sorted((_cause(members) for members in groups.values()), key=_rank)


#: Hosts that are alike, a finding on them, the change that clears it, the product that it is about.
_Member = tuple[Sequence[Mapping[str, Any]], Mapping[str, Any], str, str | None]


def _kinds(hosts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Hosts of which the same is said: they share the very lists, so thousands are gone through once."""
    kinds: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for host in hosts:
        kinds.setdefault((id(host["findings"]), id(host["smallest_change"])), []).append(host)
    return list(kinds.values())


def _rank(cause: Mapping[str, Any]) -> tuple[int, int, str, str]:
    return SEVERITIES.index(cause["severity"]), -len(cause["hosts"]), cause["id"], cause["what"]


def _cause(members: Sequence[_Member]) -> Json:
    first = members[0][1]
    return {
        "id": first["id"],
        "severity": first["severity"],
        "what": merged([finding["what"] for _, finding, _, _ in members]),
        "limit_source": first["limit_source"],
        "change": members[0][2] or None,
        "remedy": merged_or_first([finding["remedy"] for _, finding, _, _ in members]),
        "gpus": sorted({product for _, _, _, product in members if product}),
        "hosts": list(dict.fromkeys(host["name"] for alike, _, _, _ in members for host in alike)),
    }


def merged(texts: Iterable[str]) -> str:
    """One text for several with as many words: words that differ stand together, in order: ``515.65.01/515.86.01``."""
    different = sorted(set(texts))
    if len(different) == 1:
        return different[0]
    columns = zip(*(text.split() for text in different), strict=True)
    return " ".join(_together(dict.fromkeys(column)) for column in columns)


def merged_or_first(texts: Sequence[str]) -> str:
    """As :func:`merged`; the first where they do not have as many words."""
    return merged(texts) if len({len(text.split()) for text in texts}) == 1 else texts[0]


def _together(words: Iterable[str]) -> str:
    values = sorted(words, key=_natural)
    if len(values) == 1:
        return values[0]
    bare = [value.rstrip(",;:.)") for value in values]
    if len(bare) > _SHOWN_VALUES:
        return f"{bare[0]}…{values[-1]}"
    return "/".join([*bare[:-1], values[-1]])


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def counts(hosts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Hosts by state, worst first."""
    found = Counter(host["status"] for host in hosts)
    return {state: found[state] for state in STATES if found[state]}


def change_words(remedy: Mapping[str, Any] | None) -> str:
    """``image 2.7.0-cuda12.6-cudnn9-runtime, driver 580.159.04 (long term support until 2028-06)``; else empty."""
    return ", ".join(change["words"] for change in remedy["changes"]) if remedy else ""
