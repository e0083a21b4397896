"""NVLink: as many links as the board has, and links that do not have to repeat themselves.

How many there are is the board's, not the chip's: an H100 NVL has 12 of 18. The inventory's ``gpu_nvlinks`` says it for
a host, else the catalogue by PCI ids; of a GPU that neither knows nothing is expected. Cards that a bridge joins may
have none, and so may a GPU that is alone in its host. With MIG on the driver does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import Device, answering, catalogued, devices
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("nvlinks",)
#: CRC errors count once there are so many a second; one replay or recovery counts by itself.
CRC_PER_SECOND = 100.0
_ERRORS_SOURCE = "NVIDIA DCGM: DCGM_LIMIT_MAX_NVLINK_ERROR 1, DCGM_LIMIT_MAX_NVLINK_CRC_ERROR 100 a second"
_REMEDY = (
    "look for Xid 74 and SXids in dmesg; drain and reset all GPUs; then replace bridge, baseboard or GPU"
)


@rule(
    "health.nvlink.inactive", known_bad=Sample({"gpu_probe.devices.4.nvlinks.7.active": False}, model="h100")
)
def inactive(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every NVLink that the board has is active. Reads ``gpus.nvlinks``."""
    for device, address in answering(facts):
        links = device.get("nvlinks")
        expected, source = _expected(facts, device, wanted)
        if links is None or expected is None or any(link.get("active") is None for link in links):
            continue
        active = [link["link"] for link in links if link["active"]]
        if len(active) >= expected or (not active and not _must(facts, device, wanted)):
            continue
        down = [link["link"] for link in links if not link["active"]]
        yield self.finding(
            f"{len(active)} of {expected} NVLinks are active{_which(down, len(links), expected)}",
            observed=len(active),
            limit=expected,
            source=source,
            remedy=_REMEDY,
            severity=None if _must(facts, device, wanted) else Severity.WARNING,
            gpu=address,
        )


def _expected(facts: Facts, device: Device, wanted: Wanted) -> tuple[int | None, str]:
    said = (wanted.get("gpus") or {}).get("nvlinks")
    if said is not None:
        return int(said), "gpu_nvlinks in the inventory"
    known = catalogued(facts, device)
    if known is None or known.nvlink is None:
        return None, ""
    return known.nvlink.links, f"{known.name}: {known.provenance.source('nvlink')}"


def _must(facts: Facts, device: Device, wanted: Wanted) -> bool:
    """Whether a link that is down is a fault for sure: the inventory says so, or all lead to NVSwitches."""
    return (wanted.get("gpus") or {}).get("nvlinks") is not None or _switched(facts, device)


def _switched(facts: Facts, device: Device) -> bool:
    known = catalogued(facts, device)
    bridged = known is not None and known.nvlink is not None and known.nvlink.bridge
    return not bridged and len(devices(facts)) > 1 and bool(fact(facts, "nvswitches"))


def _which(down: list[int], links: int, expected: int) -> str:
    """The links that are down, where every link of the chip is one of the board's."""
    return f": {', '.join(map(str, down))} down" if down and links == expected and len(down) < links else ""


@rule(
    "health.nvlink.errors",
    known_bad=Sample({"gpu_probe.devices.4.nvlinks.7.replay_errors": 1}, model="h100"),
    severity=Severity.WARNING,
)
def errors(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No NVLink had to replay or to recover, and CRC errors are rare."""
    up_s = fact(facts, "uptime_s")
    for device, address in answering(facts):
        bad: dict[int, dict[str, int]] = {}
        for link in device.get("nvlinks") or []:
            counts = {name: link.get(name) or 0 for name in ("replay_errors", "recovery_errors")}
            crc = {name: link.get(name) or 0 for name in ("crc_flit_errors", "crc_data_errors")}
            often = {name: count for name, count in crc.items() if up_s and count / up_s >= CRC_PER_SECOND}
            if any(counts.values()) or often:
                bad[link["link"]] = {name: count for name, count in {**counts, **often}.items() if count}
        if bad:
            said = "; ".join(f"link {number}: {_words(counts)}" for number, counts in bad.items())
            yield self.finding(
                f"NVLink errors: {said}",
                observed={str(number): counts for number, counts in bad.items()},
                limit={"replay_errors": 0, "recovery_errors": 0, "crc_errors_per_s": CRC_PER_SECOND},
                source=_ERRORS_SOURCE,
                remedy=_REMEDY,
                gpu=address,
            )


def _words(counts: dict[str, int]) -> str:
    return ", ".join(
        f"{count} {name.removesuffix('_errors').replace('_', ' ')}" for name, count in counts.items()
    )
