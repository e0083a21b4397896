"""Xids and SXids for people and programs, as :mod:`fleet.catalogue.present` has the other kinds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.entries import Provenance
from fleet.catalogue.present import Kind, Line, Row, about, doubt, mark
from fleet.catalogue.xids import Action, NvLink5, Xid


def _xid_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            str(one.code),
            one.severity,
            one.immediate.id if one.immediate else "-",
            _whose(one),
            one.meaning,
            mark(_provenance(one)),
        )
        for one in catalogue.xids.all
        if not one.unused
    ]


def _whose(xid: Xid) -> str:
    return "job" if xid.application_fault else "-"


def _provenance(xid: Xid) -> Provenance:
    """Of an Xid of the catalogue: only those that are not in it have none."""
    if xid.provenance is None:
        raise ValueError(f"Xid {xid.code} is not in the catalogue")
    return xid.provenance


def _xid_key(catalogue: Catalogue, name: str) -> str:
    return str(catalogue.xids.find(name).code)


def _xid_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    xid = catalogue.xids.find(name)
    known = _provenance(xid)
    lines: list[Line] = [
        ("Xid", f"{xid.code}, {xid.mnemonic}"),
        ("meaning", xid.meaning + doubt(known, "meaning")),
        ("severity", xid.severity),
    ]
    older = catalogue.xids.of(xid.code, "volta")
    if older != xid:
        lines.append(("before Ampere", older.meaning + doubt(known, "before_ampere")))
    if xid.application_fault:
        lines.append(("whose fault", "usually the job's own"))
    if xid.applies_to:
        lines.append(("GPUs", ", ".join(catalogue.gpus.architectures[one].name for one in xid.applies_to)))
    lines += [*_action_line("do", xid.immediate), *_action_line("if it comes back", xid.investigatory)]
    lines += [_unit_line(one) for one in catalogue.xids.units if one.xid == xid.code]
    if xid.severity == "depends":
        actions = sorted(catalogue.xids.recovery_actions.items())
        lines += [(f"action {number}", f"{one.name}: {one.text}") for number, one in actions]
    return [*lines, *about(known, xid.note)]


def _action_line(label: str, action: Action | None) -> Iterator[Line]:
    if action is not None:
        yield label, f"{action.text} ({action.id}){doubt(action.provenance, 'text')}"


def _unit_line(row: NvLink5) -> Line:
    units = "/".join(row.units)
    words = row.fatality.replace("_", " ") + doubt(row.provenance, "fatality")
    return f"{units} 0x{row.status:x}", f"{words}: {row.immediate.text} ({row.immediate.id})"


def _sxid_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            one.codes,
            "fatal" if one.fatal else "no",
            one.immediate.id,
            one.name,
            mark(one.provenance),
        )
        for one in catalogue.xids.switches
    ]


def _sxid_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.xids.find_sxid(name).codes


def _sxid_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    sxid = catalogue.xids.find_sxid(name)
    return [
        ("SXid", sxid.codes),
        ("meaning", sxid.name + doubt(sxid.provenance, "name")),
        ("fatal", ("yes" if sxid.fatal else "no") + ", where the message itself does not say"),
        *_action_line("do", sxid.immediate),
        *about(sxid.provenance, sxid.note),
    ]


def _xid_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    xid = catalogue.xids.find(name)
    return {
        "code": xid.code,
        "meaning": xid.meaning,
        "unused": xid.unused,
        "application_fault": xid.application_fault,
        "immediate_text": xid.immediate.text if xid.immediate else None,
        "investigatory_text": xid.investigatory.text if xid.investigatory else None,
    }


def _sxid_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    sxid = catalogue.xids.find_sxid(name)
    return {"first": sxid.first, "last": sxid.last, "immediate_text": sxid.immediate.text}


KINDS = {
    kind.word: kind
    for kind in (
        Kind(
            "xid",
            ("Xid", "severity", "do", "whose", "meaning", "verified"),
            _xid_rows,
            _xid_key,
            _xid_lines,
            _xid_derived,
            ("xids", "xids"),
        ),
        Kind(
            "sxid",
            ("SXid", "fatal", "do", "meaning", "verified"),
            _sxid_rows,
            _sxid_key,
            _sxid_lines,
            _sxid_derived,
            ("xids", "sxids"),
        ),
    )
}
