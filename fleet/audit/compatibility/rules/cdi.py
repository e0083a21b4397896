"""CDI: does its specification fit the driver? Who notices an image that it is too old for: :mod:`.require_cuda`."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.findings import Finding
from fleet.catalogue.versions import Version


@rule(
    "audit.cdi.stale",
    known_bad=KnownBad({"container_toolkit.cdi.specifications.0.driver_version": "570.211.01"}),
)
def stale(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The CDI specifications of the GPUs were written for the driver that is loaded."""
    driver, written = case.subject.driver, case.subject.cdi
    if not case.in_container or not isinstance(driver, Version) or not isinstance(written, tuple):
        return
    others = [version for version in written if version != driver]
    if others:
        yield self.finding(
            f"the CDI specification is of driver {', '.join(map(str, others))}, and {driver} is loaded: containers"
            " would get libraries that are not there",
            observed=[version.text for version in others],
            limit=driver.text,
            source="a CDI specification names the driver's files by their versions",
            remedy="systemctl restart nvidia-cdi-refresh, or nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )
