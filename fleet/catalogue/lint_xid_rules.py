"""The rules of ``xids.yaml`` that a schema cannot say: codes that are one's own, references that lead somewhere.

Run by :mod:`fleet.catalogue.lint`, as those of :mod:`fleet.catalogue.lint_rules` are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fleet.catalogue.entries import Entry, Files
from fleet.catalogue.lint_rules import Fault, Rule
from fleet.catalogue.xids import codes_of


def xid_actions(files: Files) -> Iterator[Fault]:
    """Every action that an entry names is defined."""
    known = {entry.id for entry in files.section("xids", "actions")}
    for section in ("xids", "nvlink5", "sxids"):
        for entry in files.section("xids", section):
            for name in _actions(entry):
                if name not in known:
                    yield Fault("xids", section, entry.id, f"there is no action {name}")


def _actions(entry: Entry) -> Iterator[str]:
    for field in ("immediate", "investigatory"):
        said = entry.get(field)
        if said is not None:
            yield from said if isinstance(said, list) else [said]


def xid_meanings(files: Files) -> Iterator[Fault]:
    """A code in use has a meaning, one not in use has none; a mnemonic belongs to one code."""
    owners: dict[str, str] = {}
    for entry in files.section("xids", "xids"):
        if entry.get("unused", False) == ("meaning" in entry.fields):
            what = "has a meaning though it is unused" if entry.get("unused") else "has no meaning"
            yield Fault("xids", "xids", entry.id, what)
        other = owners.setdefault(entry["mnemonic"], entry.id)
        if other != entry.id:
            yield Fault("xids", "xids", entry.id, f"{entry['mnemonic']} is the mnemonic of {other} too")


def xid_architectures(files: Files) -> Iterator[Fault]:
    """Codes are restricted to architectures that exist."""
    known = {entry.id for entry in files.section("gpus", "architectures")}
    for entry in files.section("xids", "xids"):
        for name in entry.get("applies_to", ()):
            if name not in known:
                yield Fault("xids", "xids", entry.id, f"there is no architecture {name}")


def nvlink5_rows(files: Files) -> Iterator[Fault]:
    """A row's Xid exists; a unit has one row for each status."""
    known = {entry.id for entry in files.section("xids", "xids")}
    owners: dict[tuple[int, str, str], str] = {}
    for entry in files.section("xids", "nvlink5"):
        if str(entry["xid"]) not in known:
            yield Fault("xids", "nvlink5", entry.id, f"there is no Xid {entry['xid']}")
        for unit in entry["units"]:
            other = owners.setdefault((entry["xid"], unit, entry["status"]), entry.id)
            if other != entry.id:
                yield Fault("xids", "nvlink5", entry.id, f"{other} is {unit} with {entry['status']} too")


def sxid_codes(files: Files) -> Iterator[Fault]:
    """A code of a switch belongs to one entry."""
    entries = sorted(files.section("xids", "sxids"), key=lambda entry: codes_of(entry.id))
    for entry in entries:
        first, last = codes_of(entry.id)
        if first > last:
            yield Fault("xids", "sxids", entry.id, "ends before it begins")
    for before, after in pairwise(entries):
        if codes_of(after.id)[0] <= codes_of(before.id)[1]:
            yield Fault("xids", "sxids", after.id, f"overlaps {before.id}")


XID_RULES: tuple[Rule, ...] = (xid_actions, xid_meanings, xid_architectures, nvlink5_rows, sxid_codes)
