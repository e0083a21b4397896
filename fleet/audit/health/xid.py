"""Xids and SXids of the kernel log since the boot, with what the catalogue makes of each.

An Xid that a program causes (13, 31, 43) does not take a host out of service; 79 does. One that follows from another is
part of it. A log that could not be read, or that begins later than the boot, is no proof that there was none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import bound, catalogued
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.catalogue import load

NEEDS: tuple[str, ...] = ()
_SEVERITIES = {"critical": Severity.ERROR, "warn": Severity.WARNING, "info": Severity.INFO}


@dataclass(frozen=True)
class Meaning:
    """What the catalogue makes of one entry of the log. ``severity``: info, warn, critical, depends or unknown."""

    words: str
    severity: str
    action: str
    source: str
    application: bool


def _meaning(facts: Facts, entry: Mapping[str, Any]) -> Meaning:
    catalogue = load().xids
    known = catalogue.of(entry["code"], _architecture(facts, entry))
    number = entry.get("recovery_action")
    asked = catalogue.recovery_actions.get(number) if number is not None else None
    steps = [asked] if asked else [known.immediate, known.investigatory]
    actions = dict.fromkeys(step.text for step in steps if step is not None)
    return Meaning(
        known.meaning or "not in the catalogue",
        str(catalogue.severity_of(entry, _architecture(facts, entry))),
        "; if it comes back: ".join(actions)
        or "no action is published: ask NVIDIA with nvidia-bug-report.sh",
        known.source or "fleet/catalogue/data/xids.yaml",
        known.application_fault,
    )


def _architecture(facts: Facts, entry: Mapping[str, Any]) -> str | None:
    """That of the GPU at the entry's address: some codes meant something else before Ampere."""
    for gpu in bound(facts):
        if gpu.get("address") == entry.get("address"):
            known = catalogued(facts, gpu)
            return known.architecture.id if known is not None else None
    return None


def _xids(facts: Facts) -> list[Mapping[str, Any]]:
    return list(fact(facts, "kernel_log.xids") or [])


def _often(entry: Mapping[str, Any]) -> str:
    """``, 3 times, last at 2026-11-30T11:58:00Z``."""
    count, last = entry.get("count") or 1, entry.get("last_at")
    return (f", {count} times" if count > 1 else "") + (f", last at {last}" if last else "")


def _gpu(entry: Mapping[str, Any]) -> str | None:
    return str(entry["address"]) if entry.get("address") else None


def _xid_sample(code: int, **changes: Any) -> Sample:
    entry = {
        "code": code, "address": "0000:52:00.0", "printed_address": "PCI:0000:52:00", "gpu_instance": None,
        "pid": None, "process": None, "first_at": None, "last_at": None, "count": 1, "text": "", "caused_by": None,
        "subcode": None, "fatal": None, "recovery_action": None, **changes,
    }  # fmt: skip
    log = {
        "source": "kmsg",
        "begins_at": None,
        "overwritten": False,
        "xids": [entry],
        "sxids": [],
        "fallen_off_bus": [],
    }
    return Sample({"kernel_log": log}, model="h100")


@rule("health.xid.fault", known_bad=_xid_sample(79, text="GPU has fallen off the bus."))
def fault(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The driver reported no fault of a GPU (Xid) since the boot, other than those that a program caused."""
    for entry in _xids(facts):
        meaning = _meaning(facts, entry)
        severity = _SEVERITIES.get(meaning.severity)
        if meaning.application or entry.get("caused_by") is not None:
            continue
        if severity in (Severity.ERROR, Severity.WARNING):
            yield self.finding(
                f"Xid {entry['code']}: {meaning.words}{_often(entry)}",
                observed=entry["code"],
                limit="none",
                source=meaning.source,
                remedy=meaning.action,
                severity=severity,
                gpu=_gpu(entry),
            )


def _follows(facts: Facts, entry: Mapping[str, Any]) -> bool:
    """Whether it is an echo of another one that is in the log for the same GPU."""
    cause, address = entry.get("caused_by"), entry.get("address")
    return cause is not None and any(
        other["code"] == cause and other.get("address") == address for other in _xids(facts)
    )


@rule("health.xid.noted", known_bad=_xid_sample(13), severity=Severity.INFO)
def noted(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Xids that a program causes, or that only inform, are told and take no host out of service."""
    for entry in _xids(facts):
        meaning, follows = _meaning(facts, entry), entry.get("caused_by")
        if _follows(facts, entry) or not (meaning.application or meaning.severity == "info" or follows):
            continue
        who = (
            f" ({entry['process']}, pid {entry['pid']})" if entry.get("process") and entry.get("pid") else ""
        )
        after = f", caused by Xid {follows}" if follows is not None else ""
        yield self.finding(
            f"Xid {entry['code']}: {meaning.words}{who}{after}{_often(entry)}",
            observed=entry["code"],
            limit=None,
            source=meaning.source,
            remedy=meaning.action,
            gpu=_gpu(entry),
        )


@rule("health.xid.not_in_catalogue", known_bad=_xid_sample(9999), severity=Severity.WARNING)
def not_in_catalogue(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """What every Xid of the log means is known."""
    for entry in _xids(facts):
        meaning = _meaning(facts, entry)
        if meaning.severity in ("unknown", "depends") and entry.get("caused_by") is None:
            yield self.finding(
                f"Xid {entry['code']}: {meaning.words}{_often(entry)}",
                observed=entry["code"],
                limit="an Xid whose action is published",
                source=meaning.source,
                remedy=meaning.action,
                gpu=_gpu(entry),
            )


@rule(
    "health.xid.fallen_off_bus",
    known_bad=Sample(
        {
            "kernel_log.fallen_off_bus": [
                {"address": "0000:52:00.0", "at": None, "text": "GPU has fallen off the bus."}
            ]
        },
        model="h100",
    ),
)
def fallen_off_bus(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The driver said of no GPU that it has fallen off the bus: not always with an Xid."""
    for entry in fact(facts, "kernel_log.fallen_off_bus") or []:
        at = f", at {entry['at']}" if entry.get("at") else ""
        yield self.finding(
            f"the GPU has fallen off the bus, by the kernel log and without an Xid{at}",
            observed="fallen off the bus",
            limit="none",
            source="NVIDIA/NVSentinel issue 155: not every GPU that is lost has an Xid",
            remedy="drain the host, power it off and on; where it is lost again, reseat or replace it",
            gpu=_gpu(entry),
        )


def _sxid_sample() -> Sample:
    entry = {
        "code": 20034, "switch": "nvidia-nvswitch0", "address": "0000:07:00.0", "fatal": True, "link": 30,
        "first_at": None, "last_at": None, "count": 1, "text": "Fatal, Link 30 LTSSM Fault Up",
    }  # fmt: skip
    log = {
        "source": "kmsg",
        "begins_at": None,
        "overwritten": False,
        "xids": [],
        "sxids": [entry],
        "fallen_off_bus": [],
    }
    return Sample({"kernel_log": log}, model="h100")


@rule("health.xid.switch", known_bad=_sxid_sample())
def switch(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No NVSwitch reported a fatal error (SXid) since the boot."""
    for entry in fact(facts, "kernel_log.sxids") or []:
        known, fatal = load().xids.sxid(entry["code"]), entry.get("fatal")
        if fatal is None and known is not None:
            fatal = known.fatal
        name = f" ({known.name})" if known is not None else ""
        link = f", link {entry['link']}" if entry.get("link") is not None else ""
        word = {True: "fatal", False: "not fatal"}.get(fatal, "whether it is fatal is not known")
        yield self.finding(
            f"SXid {entry['code']}{name} of {entry.get('switch') or entry.get('address')}{link}: "
            f"{word}{_often(entry)}",
            observed=entry["code"],
            limit="none fatal",
            source=known.provenance.source("fatal")
            if known is not None
            else "fleet/catalogue/data/xids.yaml",
            remedy=known.immediate.text
            if known is not None
            else "drain, reset all GPUs and switches, or reboot",
            severity=None if fatal else Severity.INFO if fatal is False else Severity.WARNING,
        )


@rule(
    "health.xid.log",
    known_bad=Sample({"kernel_log": None, "kernel_log_reason": "permission"}, model="h100"),
    severity=Severity.WARNING,
)
def log(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The kernel log can be read, from the boot on: where it cannot, nothing is known of Xids."""
    if not bound(facts):
        return
    if fact(facts, "kernel_log") is None:
        reason = fact(facts, "kernel_log_reason")
        remedy = "run fleet where it may become root" if reason == "permission" else "read it there: dmesg"
        found = self.unknown(facts, "kernel_log", consequence="; so Xids are not seen", remedy=remedy)
        yield found if reason != "not_supported" else replace(found, severity=Severity.INFO)
    elif fact(facts, "kernel_log.overwritten"):
        begins = fact(facts, "kernel_log.begins_at")
        yield self.finding(
            f"the kernel log begins at {begins or 'some time after the boot'}: Xids before that are not seen",
            observed=begins,
            limit="the boot",
            source="the kernel's ring buffer overwrites its oldest lines",
            remedy="keep the journal on disk (Storage=persistent), or boot with a larger log_buf_len",
            severity=Severity.INFO,
        )
