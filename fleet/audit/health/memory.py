"""Memory errors: ECC counters, rows that were remapped (Ampere and later), pages that were retired (before).

A card without ECC, or with only one of the two repairs, has null there and gives nothing. A row that waits to be
remapped needs a reset, a page that waits to be retired a reboot, and a remapping that failed another card.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = (
    "ecc_mode", "ecc_mode_pending", "ecc.volatile_corrected", "ecc.volatile_uncorrected",
    "ecc.aggregate_sram_uncorrected", "ecc.sram_threshold_exceeded",
    "remapped_rows.pending", "remapped_rows.failure", "remapped_rows.uncorrected", "remapped_rows.histogram",
    "retired_pages.pending", "retired_pages.single_bit", "retired_pages.double_bit",
)  # fmt: skip

#: Corrected errors since the driver was loaded: of device memory, as Azure's node check has it.
CORRECTED_MOST = 20_000_000
_CORRECTED_SOURCE = "azurehpc-health-checks: check_gpu_ecc 20000000"
#: Uncorrected errors of SRAM over the card's life, above which a card is usually exchanged.
SRAM_MOST = 4
_SRAM_SOURCE = "stas00/ml-engineering: more than 4 aggregate SRAM uncorrectable errors usually mean RMA"
#: All rows that a GPU can remap.
ROWS_MOST = 512
_ROWS_SOURCE = (
    "NVIDIA GPU memory error management: at most 512 rows; azurehpc-health-checks has the same limit"
)
#: Retired pages: where DCGM warns, and where its field diagnosis fails the card.
PAGES_WARN, PAGES_MOST = 15, 63
_PAGES_SOURCE = "NVIDIA DCGM: DCGM_LIMIT_MAX_RETIRED_PAGES_SOFT_LIMIT 15, DCGM_LIMIT_MAX_RETIRED_PAGES 63"
_RMA = "NVIDIA GPU memory error management: RMA criteria"

_REPLACE = "take the GPU out of service and have it replaced: nvidia-bug-report.sh has what NVIDIA asks for"
_RESET = "drain the host, then nvidia-smi --gpu-reset (with NVSwitch: all GPUs at once), or reboot"


@rule(
    "health.memory.uncorrected",
    known_bad=Sample({"gpu_probe.devices.1.ecc.volatile_uncorrected": 1}, model="h100"),
)
def uncorrected(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No memory error was uncorrectable since the driver was loaded."""
    for device, address in answering(facts):
        errors = fact(device, "ecc.volatile_uncorrected")
        if errors:
            yield self.finding(
                f"{errors} uncorrectable memory errors since the driver was loaded",
                observed=errors,
                limit=0,
                source="facebookresearch/gcm: ecc uncorrected 0",
                remedy=f"results of jobs that ran there may be wrong; {_RESET}; where it recurs, replace the GPU",
                gpu=address,
            )


@rule(
    "health.memory.sram_uncorrected",
    known_bad=Sample({"gpu_probe.devices.1.ecc.aggregate_sram_uncorrected": 5}, model="h100"),
)
def sram_uncorrected(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """SRAM had no more uncorrectable errors over the card's life than a good card has."""
    for device, address in answering(facts):
        errors = fact(device, "ecc.aggregate_sram_uncorrected")
        if errors is not None and errors > SRAM_MOST:
            yield self.finding(
                f"{errors} uncorrectable SRAM errors over its life",
                observed=errors,
                limit=SRAM_MOST,
                source=_SRAM_SOURCE,
                remedy=_REPLACE,
                gpu=address,
            )


@rule(
    "health.memory.sram_threshold",
    known_bad=Sample({"gpu_probe.devices.1.ecc.sram_threshold_exceeded": True}, model="h100"),
)
def sram_threshold(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The GPU itself does not say that its SRAM had too many errors."""
    for device, address in answering(facts):
        if fact(device, "ecc.sram_threshold_exceeded"):
            yield self.finding(
                "the GPU says that its SRAM exceeded the threshold of uncorrectable errors",
                observed=True,
                limit=False,
                source=_RMA,
                remedy=_REPLACE,
                gpu=address,
            )


@rule(
    "health.memory.corrected",
    known_bad=Sample({"gpu_probe.devices.1.ecc.volatile_corrected": CORRECTED_MOST + 1}, model="h100"),
    severity=Severity.WARNING,
)
def corrected(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Not so many memory errors had to be corrected that the memory must be called worn."""
    for device, address in answering(facts):
        errors = fact(device, "ecc.volatile_corrected")
        if errors is not None and errors > CORRECTED_MOST:
            yield self.finding(
                f"{errors} corrected memory errors since the driver was loaded",
                observed=errors,
                limit=CORRECTED_MOST,
                source=_CORRECTED_SOURCE,
                remedy="run dcgmi diag -r 3 with the host drained; replace the GPU where memory fails it",
                gpu=address,
            )


@rule(
    "health.memory.change_pending",
    known_bad=Sample({"gpu_probe.devices.1.ecc_mode_pending": "disabled"}, model="h100"),
    severity=Severity.WARNING,
)
def change_pending(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The next reboot does not change the ECC mode, and with it memory size and speed."""
    for device, address in answering(facts):
        now, then = device.get("ecc_mode"), device.get("ecc_mode_pending")
        if now is not None and then is not None and now != then:
            yield self.finding(
                f"ECC is {now} and will be {then} after the next reboot or reset",
                observed=then,
                limit=now,
                source="NVML, current and pending ECC mode",
                remedy=f"reboot when drained, or take it back: nvidia-smi -i {address} -e {_switch(now)}",
                gpu=address,
            )


def _switch(mode: object) -> int:
    return 1 if mode == "enabled" else 0


@rule(
    "health.memory.remap_pending",
    known_bad=Sample({"gpu_probe.devices.1.remapped_rows.pending": True}, model="h100"),
    severity=Severity.WARNING,
)
def remap_pending(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No row of memory waits to be remapped."""
    for device, address in answering(facts):
        if fact(device, "remapped_rows.pending"):
            rows = fact(device, "remapped_rows.uncorrected")
            yield self.finding(
                "a row of memory waits to be remapped"
                + (f" ({rows} rows after uncorrectable errors)" if rows else ""),
                observed="pending",
                limit="none pending",
                source="NVIDIA GPU memory error management: a reset remaps it",
                remedy=f"no benchmark before; {_RESET}",
                gpu=address,
            )


@rule(
    "health.memory.remap_failure",
    known_bad=Sample({"gpu_probe.devices.1.remapped_rows.failure": True}, model="h100"),
)
def remap_failure(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No row of memory failed to be remapped."""
    for device, address in answering(facts):
        if fact(device, "remapped_rows.failure"):
            yield self.finding(
                "remapping a row of memory failed: bad memory stays in use",
                observed="failed",
                limit="no failure",
                source=_RMA,
                remedy=_REPLACE,
                gpu=address,
            )


@rule(
    "health.memory.rows_remapped",
    known_bad=Sample({"gpu_probe.devices.1.remapped_rows.uncorrected": ROWS_MOST}, model="h100"),
)
def rows_remapped(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The GPU has rows left to remap bad ones to."""
    for device, address in answering(facts):
        rows = fact(device, "remapped_rows.uncorrected")
        if rows is not None and rows >= ROWS_MOST:
            yield self.finding(
                f"{rows} rows of memory were remapped: there is no further one",
                observed=rows,
                limit=f"below {ROWS_MOST}",
                source=_ROWS_SOURCE,
                remedy=_REPLACE,
                gpu=address,
            )


@rule(
    "health.memory.banks_without_spares",
    known_bad=Sample({"gpu_probe.devices.1.remapped_rows.histogram.none": 2}, model="h100"),
    severity=Severity.WARNING,
)
def banks_without_spares(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every bank of memory has spare rows left: none has run out of them, few are low."""
    for device, address in answering(facts):
        banks = fact(device, "remapped_rows.histogram") or {}
        none, low = banks.get("none") or 0, banks.get("low") or 0
        if none or low:
            yield self.finding(
                f"{none} banks of memory have no spare row left"
                if none
                else f"{low} banks of memory have few spare rows",
                observed=dict(banks),
                limit={"none": 0, "low": 0},
                source="NVIDIA GPU memory error management: row remapping availability",
                remedy="the next uncorrectable error there cannot be repaired: plan the GPU's replacement"
                if none
                else "watch it",
                severity=None if none else Severity.INFO,
                gpu=address,
            )


@rule(
    "health.memory.retirement_pending",
    known_bad=Sample({"gpu_probe.devices.1.retired_pages.pending": True}, model="t4"),
    severity=Severity.WARNING,
)
def retirement_pending(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No page of memory waits to be retired."""
    for device, address in answering(facts):
        if fact(device, "retired_pages.pending"):
            yield self.finding(
                "a page of memory waits to be retired",
                observed="pending",
                limit="none pending",
                source="NVIDIA dynamic page retirement: a reboot retires it",
                remedy="reboot the host when it is drained",
                gpu=address,
            )


@rule(
    "health.memory.retired_pages",
    known_bad=Sample({"gpu_probe.devices.1.retired_pages.double_bit": PAGES_MOST}, model="t4"),
)
def retired_pages(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Not so many pages of memory were retired that the card must be called worn."""
    for device, address in answering(facts):
        counts = [fact(device, f"retired_pages.{kind}") for kind in ("single_bit", "double_bit")]
        pages = sum(count for count in counts if count is not None)
        if pages >= PAGES_WARN:
            yield self.finding(
                f"{pages} pages of memory are retired",
                observed=pages,
                limit=f"below {PAGES_MOST if pages >= PAGES_MOST else PAGES_WARN}",
                source=_PAGES_SOURCE,
                remedy=_REPLACE if pages >= PAGES_MOST else "watch it; plan the GPU's replacement",
                severity=None if pages >= PAGES_MOST else Severity.WARNING,
                gpu=address,
            )
