"""Is this a distribution and release that fleet provisions?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact, releases
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.operating_systems import operating_system, supported_text


@rule(
    "preflight.os",
    gate=True,
    reads=("os.id", "os.version_id"),
    known_bad=Sample({"os.id": "rocky", "os.version_id": "9.4", "os.name": "Rocky Linux 9.4"}),
)
def supported(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The distribution and release are in the catalogue as supported."""
    os_id, version = releases(facts)
    known = operating_system(os_id)
    if known is not None and known.status == "supported" and known.covers(version):
        return
    name = fact(facts, "os.name") or f"{os_id} {version}"
    later = known is not None and known.status == "later" and known.covers(version)
    yield self.finding(
        f"{name} is planned but not supported yet" if later else f"{name} is not supported{_derived(facts)}",
        observed=f"{os_id} {version}",
        limit=supported_text(),
        source="fleet/catalogue/data/operating_systems.yaml",
        remedy=f"use one of: {supported_text()}; or leave the host out with --limit '!HOST'",
    )


def _derived(facts: Facts) -> str:
    """Said of a derivative, which is not taken for what it derives from: its packages may be others."""
    like = [str(one) for one in fact(facts, "os.like") or []]
    parent = next((known for one in like if (known := operating_system(one))), None)
    if parent is None or operating_system(str(fact(facts, "os.id"))) is not None:
        return ""
    base = fact(facts, "os.base_codename")
    return f"; it derives from {parent.name}{f' {base}' if base else ''}, and fleet does not guess from that"
