"""Xids and SXids: what a code in the kernel log means, how bad it is, what to do. Data in ``data/xids.yaml``.

The lines are parsed on the host (:mod:`fleet.agent.facts.xid_lines`), which knows no code but by its number.
``load().xids.of(79)`` never fails: a code that is not in the catalogue has the severity ``unknown``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.core.errors import InputError

#: ``depends``: on the recovery action that the message names (154). ``unknown``: NVIDIA publishes no action,
#: or the code is not in the catalogue.
Severity = Literal["info", "warn", "critical", "depends", "unknown"]
Fatality = Literal["fatal", "link_fatal", "nonfatal"]

#: The architecture with which NVIDIA's catalogue begins.
FIRST_ARCHITECTURE = "ampere"

# 145, [pid=…, name=…,] RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 …): of the words in parentheses
# the first tells where, the second what.
_NVLINK5_TEXT = re.compile(
    r"Xid.{1,60}?: (?P<code>14[4-9]|150), .{0,80}?"
    r"\b(?P<unit>[A-Z][A-Z0-9_]+(?:/[A-Z0-9_]+)?)\s+(?:Link )?(?:Non-?)?[Ff]atal\b"
    r".{0,80}?\(0x[0-9a-fA-F]+,? 0x(?P<status>[0-9a-fA-F]{1,8})\b"
)


@dataclass(frozen=True)
class Action:
    """What to do: NVIDIA's name for it (``RESET_GPU``), and words."""

    id: str
    text: str
    provenance: Provenance


@dataclass(frozen=True)
class Xid:
    """One code. ``immediate`` is what to do at once, ``investigatory`` what if it comes back; None: not published.

    ``application_fault``: usually the job's own, so no reason to take the host out. ``applies_to``:
    architectures, empty where it is every one from Ampere on. ``unused``: NVIDIA lists it as not in use.
    """

    code: int
    mnemonic: str
    meaning: str
    severity: Severity
    immediate: Action | None
    investigatory: Action | None
    application_fault: bool
    applies_to: tuple[str, ...]
    unused: bool
    note: str
    provenance: Provenance | None

    @property
    def known(self) -> bool:
        """Whether the catalogue has it."""
        return self.provenance is not None

    @property
    def source(self) -> str:
        """Where its meaning is from; empty for a code that is not in the catalogue."""
        return self.provenance.source("meaning") if self.provenance else ""

    @property
    def verified(self) -> bool:
        """Whether its meaning and severity were verified."""
        return self.provenance is not None and not self.provenance.caveat("meaning", "severity")


@dataclass(frozen=True)
class SXid:
    """Codes ``first`` to ``last`` of an NVSwitch. ``fatal``: where the message itself does not say."""

    first: int
    last: int
    name: str
    fatal: bool
    immediate: Action
    note: str
    provenance: Provenance

    @property
    def codes(self) -> str:
        """``20034``, or ``23001-23017``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class RecoveryAction:
    """What a GPU needs to work again, by NVML's number and the name facts have for it."""

    number: int
    name: str
    text: str
    provenance: Provenance


@dataclass(frozen=True)
class NvLink5:
    """What one status of one unit means, in Xids 144 to 150. ``status`` 0: the unit has only one."""

    xid: int
    units: tuple[str, ...]
    status: int
    fatality: Fatality
    immediate: Action
    investigatory: tuple[Action, ...]
    note: str
    provenance: Provenance


class Xids:
    """All codes of a catalogue."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.actions = {
            entry.id: Action(entry.id, entry["text"], entry.provenance)
            for entry in files.section("xids", "actions")
        }

    @cached_property
    def all(self) -> tuple[Xid, ...]:
        """Every Xid, by code."""
        found = (self._xid(entry) for entry in self._files.section("xids", "xids"))
        return tuple(sorted(found, key=lambda one: one.code))

    @cached_property
    def switches(self) -> tuple[SXid, ...]:
        """Every SXid, by code."""
        found = (self._sxid(entry) for entry in self._files.section("xids", "sxids"))
        return tuple(sorted(found, key=lambda one: one.first))

    @cached_property
    def recovery_actions(self) -> dict[int, RecoveryAction]:
        """NVML's recovery actions by number."""
        return {
            int(entry.id): RecoveryAction(int(entry.id), entry["name"], entry["text"], entry.provenance)
            for entry in self._files.section("xids", "recovery_actions")
        }

    @cached_property
    def units(self) -> tuple[NvLink5, ...]:
        """What the units of NVLink 5 report."""
        return tuple(self._nvlink5(entry) for entry in self._files.section("xids", "nvlink5"))

    def of(self, code: int, architecture: str | None = None) -> Xid:
        """What an Xid means, on GPUs of an architecture (``volta``) where that is known to differ.

        One that is not in the catalogue comes with the severity ``unknown``.
        """
        if architecture is not None and architecture in self._older and code in self._before_ampere:
            return self._before_ampere[code]
        return self._by_code.get(code) or _unknown(code)

    def sxid(self, code: int) -> SXid | None:
        """What an SXid means; None for one that is not in the catalogue."""
        return next((one for one in self.switches if one.first <= code <= one.last), None)

    def decode(self, xid: int, unit: str, status: int) -> tuple[NvLink5, ...]:
        """What a unit of NVLink 5 reports with a status: the row of just this number, else one for every bit."""
        rows = [one for one in self.units if one.xid == xid and unit in one.units]
        exact = tuple(one for one in rows if one.status == status)
        return exact or tuple(one for one in rows if _single_bit(one.status) and one.status & status)

    def decode_text(self, text: str) -> tuple[NvLink5, ...]:
        """:meth:`decode` of a message as ``kernel_log.xids`` has it; empty where it is not one of these."""
        match = _NVLINK5_TEXT.search(text)
        if match is None:
            return ()
        code, status = int(match["code"]), int(match["status"], 16)
        decoded = (self.decode(code, unit, status) for unit in match["unit"].split("/"))
        return next((found for found in decoded if found), ())

    def severity_of(self, event: Mapping[str, Any], architecture: str | None = None) -> Severity:
        """How bad an entry of ``kernel_log.xids`` is, by its message where that says more than its code.

        NVLink 5 says itself what is fatal; 154 is as bad as the recovery action it asks for (0: none).
        """
        if event.get("recovery_action") is not None:
            return "critical" if event["recovery_action"] else "info"
        if event.get("fatal") is False:
            decoded = self.decode_text(event["text"])
            ignored = decoded and all(one.immediate.id == "IGNORE" for one in decoded)
            return "info" if ignored else "warn"
        return self.of(event["code"], architecture).severity

    def find(self, text: str) -> Xid:
        """The Xid of a number (``79``, ``Xid 79``) or mnemonic. Raises InputError with near ones."""
        wanted = text.strip().upper().removeprefix("XID").strip()
        for one in self.all:
            if wanted in (str(one.code), one.mnemonic):
                return one
        known = [one.mnemonic for one in self.all]
        parts = [name for name in known if wanted and not wanted.isdecimal() and wanted in name]
        raise _not_there("Xid", text, parts[:3] or difflib.get_close_matches(wanted, known), "xid")

    def find_sxid(self, text: str) -> SXid:
        """The SXids that a number (``20034``) or range belongs to. Raises InputError with near ones."""
        wanted = text.strip().upper().removeprefix("SXID").strip()
        found = self.sxid(int(wanted)) if wanted.isdecimal() else None
        found = found or next((one for one in self.switches if one.codes == wanted), None)
        if found is not None:
            return found
        known = [one.codes for one in self.switches]
        raise _not_there("SXid", text, difflib.get_close_matches(wanted, known), "sxid")

    # -- from entries ---------------------------------------------------------------------------------------

    @cached_property
    def _by_code(self) -> dict[int, Xid]:
        return {one.code: one for one in self.all}

    @cached_property
    def _before_ampere(self) -> dict[int, Xid]:
        entries = self._files.section("xids", "xids")
        return {
            int(entry.id): self._xid(entry, entry["before_ampere"]["meaning"])
            for entry in entries
            if entry.get("before_ampere")
        }

    @cached_property
    def _older(self) -> frozenset[str]:
        """The architectures before the catalogue's first; gpus.yaml lists them in order."""
        names = [entry.id for entry in self._files.section("gpus", "architectures")]
        return frozenset(names[: names.index(FIRST_ARCHITECTURE)])

    def _xid(self, entry: Entry, meaning: str | None = None) -> Xid:
        return Xid(
            code=int(entry.id),
            mnemonic=entry["mnemonic"],
            meaning=meaning or entry.get("meaning", "not in use"),
            severity=cast(Severity, entry["severity"]),
            immediate=self._action(entry.get("immediate")),
            investigatory=self._action(entry.get("investigatory")),
            application_fault=entry.get("application_fault", False),
            applies_to=tuple(entry.get("applies_to", ())),
            unused=entry.get("unused", False),
            note=entry.get("note", ""),
            provenance=entry.provenance,
        )

    def _sxid(self, entry: Entry) -> SXid:
        first, last = codes_of(entry.id)
        action = self.actions[entry["immediate"]]
        return SXid(
            first, last, entry["name"], entry["fatal"], action, entry.get("note", ""), entry.provenance
        )

    def _nvlink5(self, entry: Entry) -> NvLink5:
        return NvLink5(
            xid=entry["xid"],
            units=tuple(entry["units"]),
            status=int(entry["status"], 16),
            fatality=cast(Fatality, entry["fatality"]),
            immediate=self.actions[entry["immediate"]],
            investigatory=tuple(self.actions[name] for name in entry["investigatory"]),
            note=entry.get("note", ""),
            provenance=entry.provenance,
        )

    def _action(self, name: str | None) -> Action | None:
        return self.actions[name] if name is not None else None


def codes_of(text: str) -> tuple[int, int]:
    """First and last of ``20034`` or ``23001-23017``."""
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _single_bit(status: int) -> bool:
    return status.bit_count() == 1


def _unknown(code: int) -> Xid:
    return Xid(code, "", "not in the catalogue", "unknown", None, None, False, (), False, "", None)


def _not_there(what: str, text: str, near: Iterable[str], word: str) -> InputError:
    names = " or ".join(near)
    hint = f"; did you mean {names}?" if names else ""
    return InputError(
        f"there is no {what} {text} in the catalogue{hint}", remedy=f"fleet catalogue show {word}"
    )
