"""What runs containers, and its weaknesses, for people and programs, as :mod:`~fleet.catalogue.present` has others."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Any

from fleet.catalogue.advisories import Advisory, Component
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.entries import Entry
from fleet.catalogue.present import DOUBT, Kind, Line, Row, about, doubt, mark
from fleet.catalogue.runtimes import PLACES, Runtime, RuntimeBranch
from fleet.catalogue.versions import Version, release
from fleet.core.errors import InputError

#: Words for where alone a weakness is there.
EXPOSURES = {
    None: "everywhere",
    "builds": "where images are built from sources one does not trust",
    "kubernetes": "on nodes of Kubernetes",
    "not_docker": "where it is not Docker that runs the containers",
    "not_cdi": "where CDI is not used",
}


def _branch_rows(runtime: Runtime, catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            one.id,
            str(one.latest or "-"),
            one.end_of_life or "-",
            _support(one, today),
            _safe_words(catalogue, runtime, one),
            mark(one.provenance),
        )
        for one in catalogue.runtimes.branches[runtime]
    ]


def _support(branch: RuntimeBranch, today: date) -> str:
    return "ended" if branch.ended(today) else "supported"


def _safe(catalogue: Catalogue, component: Component, branch: RuntimeBranch) -> Version | None:
    """The first version of a branch with every fix; else that with every fix of which it is sure that it is missing
    before; None where the branch did not get them.
    """
    fixes = {fix for one in catalogue.advisories.of(component) for fix in one.fixed_in}
    own = sorted({fix for fix in fixes if fix.begins_with(branch.version)} | {branch.version})
    lacking = {version: catalogue.advisories.lacking(component, version) for version in own}
    whole = [version for version in own if not lacking[version]]
    nearly = [version for version in own if not any(one.sure for one in lacking[version])]
    return next(iter((*whole, *nearly)), None)


def _safe_words(catalogue: Catalogue, component: Component, branch: RuntimeBranch) -> str:
    safe = _safe(catalogue, component, branch)
    if safe is None:
        return "none"
    return f"{safe}{DOUBT if catalogue.advisories.lacking(component, safe) else ''}"


def _branch_key(runtime: Runtime, catalogue: Catalogue, name: str) -> str:
    return catalogue.runtimes.find(runtime, name).id


def _branch_lines(runtime: Runtime, catalogue: Catalogue, name: str, today: date) -> list[Line]:
    branch = catalogue.runtimes.find(runtime, name)
    known = branch.provenance
    end = f" (end of life {branch.end_of_life}{doubt(known, 'end_of_life')})" if branch.end_of_life else ""
    lines: list[Line] = [
        ("branch", branch.id + (", long term" if branch.long_term else "")),
        ("support", _support(branch, today) + end),
    ]
    if branch.latest:
        lines.append(("latest", f"{branch.latest}{doubt(known, 'latest')}"))
    lines.append(("every fix from", _safe_words(catalogue, runtime, branch)))
    if len(release(name).numbers) > len(branch.version.numbers):
        lines.append(("version", name))
        lines += [("lacks", _told(one)) for one in catalogue.advisories.lacking(runtime, release(name))]
    return [*lines, *about(known, branch.note)]


def _branch_derived(runtime: Runtime, catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    branch = catalogue.runtimes.find(runtime, name)
    safe = _safe(catalogue, runtime, branch)
    return {"support": _support(branch, today), "every_fix_from": str(safe) if safe else None}


def _told(advisory: Advisory) -> str:
    """``CVE-2025-31133 (fixed in 1.2.8, 1.3.3, 1.4.0)``."""
    fixes = ", ".join(map(str, advisory.fixed_in))
    unsure = "" if advisory.sure else ", perhaps elsewhere too"
    where = f"; only {EXPOSURES[advisory.exposure]}" if advisory.exposure else ""
    return f"{advisory.id} (fixed in {fixes}{unsure}{where})"


def _toolkits(catalogue: Catalogue) -> list[Entry]:
    """Releases of the container toolkit, newest first."""
    entries = catalogue.files.section("container_toolkit", "releases")
    return sorted(entries, key=lambda one: release(one.id), reverse=True)


def _toolkit_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            one.id,
            one.get("date", "-"),
            str(len(catalogue.advisories.lacking("container_toolkit", release(one.id)))),
            one.get("note", ""),
            mark(one.provenance),
        )
        for one in _toolkits(catalogue)
    ]


def _toolkit(catalogue: Catalogue, name: str) -> Entry:
    wanted = release(name)
    found = next((one for one in _toolkits(catalogue) if release(one.id) == wanted), None)
    if found is not None:
        return found
    near = min(
        _toolkits(catalogue),
        key=lambda one: [abs(a - b) for a, b in zip(_three(one.id), _three(name), strict=True)],
    )
    raise InputError(
        f"there is no container toolkit {name} in the catalogue; did you mean {near.id}?",
        remedy="fleet catalogue show toolkit",
    )


def _three(text: str) -> tuple[int, int, int]:
    first, second, third, *_ = (*release(text).numbers, 0, 0)
    return first, second, third


def _toolkit_key(catalogue: Catalogue, name: str) -> str:
    return _toolkit(catalogue, name).id


def _toolkit_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    entry = _toolkit(catalogue, name)
    lacking = catalogue.advisories.lacking("container_toolkit", release(entry.id))
    return [
        ("toolkit", " of ".join(filter(None, (entry.id, entry.get("date"))))),
        *(("lacks", _told(one)) for one in lacking),
        *about(entry.provenance, entry.get("note", "")),
    ]


def _toolkit_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    return {"lacks": [one.id for one in catalogue.advisories.lacking("container_toolkit", release(name))]}


def _advisory_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            one.id,
            one.component.replace("_", " "),
            " ".join(map(str, one.fixed_in)),
            f"{one.cvss:g}" if one.cvss else "-",
            EXPOSURES[one.exposure],
            mark(one.provenance),
        )
        for one in catalogue.advisories.all
    ]


def _advisory_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.advisories.find(name).id


def _advisory_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    one = catalogue.advisories.find(name)
    lines: list[Line] = [
        ("weakness", one.id),
        ("of", one.component.replace("_", " ")),
        ("fixed in", ", ".join(map(str, one.fixed_in)) + doubt(one.provenance, "fixed_in")),
        ("since", str(one.first_affected or "always, as far as is known")),
        ("is there", EXPOSURES[one.exposure] + doubt(one.provenance, "exposure")),
    ]
    if one.cvss:
        lines.append(("CVSS", f"{one.cvss:g}{doubt(one.provenance, 'cvss')}"))
    return [*lines, *about(one.provenance, one.note)]


def _nothing(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    return {}


def _branch_kind(word: str, runtime: Runtime) -> Kind:
    return Kind(
        word,
        ("branch", "latest", "end", "support", "every fix from", "verified"),
        partial(_branch_rows, runtime),
        partial(_branch_key, runtime),
        partial(_branch_lines, runtime),
        partial(_branch_derived, runtime),
        PLACES[runtime],
    )


KINDS = {
    kind.word: kind
    for kind in (
        _branch_kind("docker", "engine"),
        _branch_kind("containerd", "containerd"),
        _branch_kind("runc", "runc"),
        Kind(
            "toolkit",
            ("toolkit", "date", "fixes it lacks", "note", "verified"),
            _toolkit_rows,
            _toolkit_key,
            _toolkit_lines,
            _toolkit_derived,
            ("container_toolkit", "releases"),
        ),
        Kind(
            "advisory",
            ("advisory", "of", "fixed in", "CVSS", "is there", "verified"),
            _advisory_rows,
            _advisory_key,
            _advisory_lines,
            _nothing,
            ("advisories", "advisories"),
        ),
    )
}
