"""Is there a driver that serves the GPUs of this host, and is it the wanted one?

GPUs are known by their PCI ids. Which branches and flavours of the kernel modules serve one is in
``fleet/catalogue/data/gpus.yaml``; where a finding rests on a value there that nobody verified, it says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.driver import WantedDriver, loaded_version, wanted_driver
from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import (
    HostGpu,
    at_odds,
    best_branch,
    choices,
    flavour_fits,
    host_gpus,
    newest_of,
    served_by,
)
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.catalogue import load
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.versions import Version

_NVIDIA = {"driver": {"source": "nvidia"}}
_GTX_1080_TI = {
    "gpus.0.device_id": "1b06",
    "gpus.0.subsystem_vendor_id": "1458",
    "gpus.0.subsystem_id": "3752",
}
_RTX_5090 = {"gpus.1.device_id": "2b85", "gpus.1.subsystem_vendor_id": "1462", "gpus.1.subsystem_id": "5301"}


@rule(
    "preflight.gpus",
    known_bad=Sample({"gpus": None, "gpus_reason": "permission"}, _NVIDIA, gpu=True),
)
def known(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where a driver is wanted, the host's GPUs and what drives them can be read."""
    if wanted_driver(wanted) is None:
        return
    needed = ["gpus", "driver"] if fact(facts, "gpus") else ["gpus"]
    for path in (path for path in needed if fact(facts, path) is None):
        yield self.unknown(facts, path)


@rule(
    "preflight.gpu_branch",
    known_bad=Sample(_GTX_1080_TI, {"driver": {"source": "nvidia", "branch": "590"}}, gpu=True),
)
def branch(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The wanted driver, by version or branch, serves every GPU of the host. Reads ``driver``."""
    driver, gpus = wanted_driver(wanted), host_gpus(facts)
    if driver is None or at_odds(gpus):
        return
    version = _asked_for(facts, driver)
    for gpu in gpus:
        if gpu.known is None:
            yield _not_in_catalogue(self, gpu, driver)
        elif not choices(gpu.known):
            yield _not_covered(self, gpu, gpu.known)
        elif version is not None:
            yield from _support(self, gpu, gpu.known, driver, version, best_branch(gpus))


def _asked_for(facts: Facts, driver: WantedDriver) -> Version | None:
    """The version to judge: the exact one, the best of a branch, or the one that was there before fleet."""
    if driver.exact is not None or driver.branch is not None:
        return driver.exact or newest_of(driver.branch or 0)
    return None if driver.installed_by_fleet else loaded_version(facts)


def _not_in_catalogue(self: Rule, gpu: HostGpu, driver: WantedDriver) -> Finding:
    return self.finding(
        f"{gpu.words} is not in the catalogue: whether {driver.words} serves it is not known",
        observed=gpu.device,
        limit="known",
        source="fleet/catalogue/data/gpus.yaml",
        remedy="name nvidia_driver_version and nvidia_driver_modules for this host, by the release notes",
        severity=Severity.WARNING,
    )


def _not_covered(self: Rule, gpu: HostGpu, known: Gpu) -> Finding:
    return self.finding(
        _with(f"{gpu.words} has no driver among NVIDIA's packages", _caveat(known)),
        observed=known.name,
        limit="a GPU that a branch serves",
        source=known.provenance.source("open_kernel_modules"),
        remedy="set nvidia_driver_source: preinstalled, or leave the host out with --limit '!HOST'",
    )


def _support(
    self: Rule, gpu: HostGpu, known: Gpu, driver: WantedDriver, version: Version, better: int | None
) -> Iterator[Finding]:
    support, family = known.support(version), known.architecture
    name = driver.words if driver.branch is not None else version.text
    if support == "dropped":
        what = (
            f"{gpu.words} is not served by {name}: {known.last_branch} is the last branch for {family.name}"
        )
        caveat, limit = family.provenance.caveat("last_branch"), f"up to {known.last_branch}"
    elif support == "too_old":
        what = (
            f"{gpu.words} is not served by {name}: {family.name} needs branch {family.first_branch} or newer"
        )
        caveat, limit = family.provenance.caveat("first_branch"), f"from {family.first_branch} on"
    elif support == "not_listed":
        floor = known.first_listed or known.min_driver or known.first_branch
        what = f"{gpu.words} is not listed for {name}; NVIDIA supports it from {floor} on"
        fields = ("first_listed", "min_driver", "first_branch")
        caveat = known.provenance.caveat(next(field for field in fields if getattr(known, field)))
        limit = f"from {floor} on"
    else:
        return
    remedy = f'set nvidia_driver_branch: "{better}"' if better else "leave the host out with --limit '!HOST'"
    if not driver.installed_by_fleet:
        remedy = f"set nvidia_driver_source: nvidia and {remedy.removeprefix('set ')}"
    yield self.finding(
        _with(what, caveat),
        observed=version.text if driver.exact or driver.branch is None else driver.branch,
        limit=limit,
        source=family.provenance.source("last_branch" if support == "dropped" else "first_branch"),
        remedy=remedy,
        severity=Severity.WARNING if support == "not_listed" else None,
    )


@rule(
    "preflight.gpu_flavour",
    known_bad=Sample(_GTX_1080_TI, {"driver": {"source": "nvidia", "modules": "open"}}, gpu=True),
)
def flavour(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The wanted flavour of the kernel modules runs every GPU, and the wanted branch has it. Reads ``driver``."""
    driver, gpus = wanted_driver(wanted), host_gpus(facts)
    if driver is None or driver.modules not in ("open", "proprietary") or at_odds(gpus):
        return
    other = "proprietary" if driver.modules == "open" else "open"
    for gpu in gpus:
        if gpu.known is not None and not flavour_fits(gpu.known, driver.modules):
            says = gpu.known.open_kernel_modules
            caveat = gpu.known.provenance.caveat("open_kernel_modules")
            yield self.finding(
                _with(f"{gpu.words} does not run with {driver.modules} kernel modules", caveat),
                observed=driver.modules,
                limit=f"open modules are {says}" if says else "a GPU that the driver packages cover",
                source=gpu.known.provenance.source("open_kernel_modules"),
                remedy="set nvidia_driver_modules: auto",
            )
    branch = load().drivers.branch(driver.branch) if driver.branch is not None else None
    if gpus and branch is not None and driver.modules not in branch.kernel_modules:
        yield self.finding(
            _with(
                f"branch {branch.number} has no {driver.modules} kernel modules",
                branch.provenance.caveat("kernel_modules"),
            ),
            observed=driver.modules,
            limit=list(branch.kernel_modules),
            source=branch.provenance.source("kernel_modules"),
            remedy=f"set nvidia_driver_modules: {other}, or another nvidia_driver_branch",
        )


@rule("preflight.mixed_gpus", known_bad=Sample({**_GTX_1080_TI, **_RTX_5090}, _NVIDIA, gpu=True))
def mixed(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """One branch and flavour of the driver serves all GPUs of the host. Reads ``driver``."""
    driver, gpus = wanted_driver(wanted), host_gpus(facts)
    odd = at_odds(gpus) if driver is not None else []
    if not odd:
        return
    known = [(gpu, gpu.known) for gpu in odd if gpu.known is not None]
    caveats = sorted({text for _, one in known if (text := _caveat(one))})
    yield self.finding(
        _with(
            "no driver serves all GPUs of this host: "
            + ", ".join(f"{gpu.words} takes {served_by(one)}" for gpu, one in known),
            "; ".join(caveats),
        ),
        observed=[one.name for _, one in known],
        limit="a branch and a flavour in common",
        source=known[0][1].architecture.provenance.source("last_branch"),
        remedy=f"take {odd[0].words} or {odd[1].words} out, or hand one on to virtual machines (vfio-pci)",
    )


def _caveat(gpu: Gpu) -> str:
    bounds = [name for name in ("first_branch", "last_branch") if getattr(gpu.architecture, name) is not None]
    texts = (
        gpu.architecture.provenance.caveat(*bounds),
        gpu.provenance.caveat("open_kernel_modules"),
    )
    return "; ".join(f"{gpu.name} {text}" for text in texts if text)


def _with(what: str, caveat: str) -> str:
    return f"{what} ({caveat})" if caveat else what
