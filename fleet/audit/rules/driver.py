"""Do the parts of NVIDIA's driver on this host agree, and may the package manager replace them?

Module in memory, module on disk, library, fabric manager and packages are read separately; each disagreement is
a finding. Where the driver task installs a driver it puts most of them right, so that they are warnings; where the
driver is preinstalled nobody would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleet.audit.driver import (
    WantedDriver,
    as_wanted,
    by_branch,
    counts,
    goes_with_driver,
    is_driver_package,
    loaded_version,
    module_version,
    next_kernel,
    parts,
    running_kernel,
    upstream,
    wanted_driver,
)
from fleet.audit.facts import Facts, fact, releases
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import fabric_manager_needs, has_gpus
from fleet.audit.leave import gpu_user_words, gpu_users
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.catalogue import load
from fleet.catalogue.versions import Version

_NVIDIA = {"driver": {"source": "nvidia"}}
_PREINSTALLED = {"driver": {"source": "preinstalled"}}
_SHOWN = 5

#: The packages whose change breaks running programs: the libraries, and the modules.
_CORE = (
    "libnvidia-compute", "libnvidia-ml1", "libcuda1", "nvidia-dkms", "nvidia-kernel-dkms",
    "nvidia-kernel-open-dkms", "nvidia-open-kernel-dkms",
)  # fmt: skip


@rule(
    "preflight.runfile_driver",
    known_bad=Sample(
        {
            "driver.runfile": {
                "present": True,
                "version": "570.124.06",
                "evidence": "/usr/bin/nvidia-uninstall",
            }
        },
        _NVIDIA,
        gpu=True,
    ),
)
def runfile(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No driver was installed by NVIDIA's runfile where packages are to bring one. Reads ``driver``."""
    found, driver = fact(facts, "driver.runfile") or {}, wanted_driver(wanted)
    if not has_gpus(facts) or driver is None or not driver.installed_by_fleet or not found.get("present"):
        return
    version, evidence = found.get("version"), found.get("evidence")
    yield self.finding(
        f"a driver{f' {version}' if version else ''} of NVIDIA's runfile is installed"
        f"{f' ({evidence})' if evidence else ''}: its files would lie over those of the packages",
        observed=version or "present",
        limit="packages only",
        source="NVIDIA's driver installation guide: remove a runfile installation before packages",
        remedy=f"when nobody uses the GPUs: {_uninstall(facts)}; or keep it: set nvidia_driver_source: preinstalled",
    )


def _uninstall(facts: Facts) -> str:
    """The command, by what the runfile left: its uninstaller, its installer, or nothing but the file itself."""
    evidence, version = fact(facts, "driver.runfile.evidence"), fact(facts, "driver.runfile.version")
    if evidence == "/usr/bin/nvidia-uninstall":
        return "nvidia-uninstall --silent"
    if evidence == "/usr/bin/nvidia-installer":
        return "nvidia-installer --uninstall --silent"
    name = f"NVIDIA-Linux-{fact(facts, 'kernel.architecture')}-{version or 'VERSION'}.run"
    return f"sh {name} --uninstall --silent"


@rule(
    "preflight.driver_versions",
    known_bad=Sample(
        {
            "driver.library_version": "580.159.04",
            "driver.kernels.0.modules.0.version": "580.159.04",
            "driver.changed_by": {
                "command": "/usr/bin/unattended-upgrade",
                "at": "2026-11-24T06:50:54",
                "packages": [{"name": "libnvidia-ml1", "before": "580.159.03-1", "after": "580.159.04-1"}],
            },
        },
        _PREINSTALLED,
        gpu=True,
    ),
)
def versions(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Module in memory, module on disk and library are of one version. Reads ``driver``.

    Programs that run go on; new ones and containers fail.
    """
    there = parts(facts)
    loaded, disk, library = there.loaded, there.disk, there.library
    if not has_gpus(facts) or loaded is None or there.agree:
        return
    driver = wanted_driver(wanted)
    what = (
        f"the driver's parts disagree: loaded {loaded}, on disk {disk or 'none'}, library {library or 'none'}"
    )
    if driver is not None and driver.exact is not None and library not in (None, driver.exact):
        what += f"; wanted is {driver.exact}"
    heals = _reboot_heals(facts, library)
    what += f"{_cause(facts)}; a reboot {'heals it' if heals else 'alone does not heal it'}"
    yield self.finding(
        what,
        observed={
            "loaded": loaded.text,
            "disk": disk and disk.text,
            "library": library and library.text,
            "reboot_heals": heals,
            "in_use": bool(gpu_users(facts) or gpu_users(facts) is None),
        },
        limit="one version",
        source="Failed to initialize NVML: Driver/library version mismatch",
        remedy=_reload(facts, library),
        severity=None if driver is not None and not driver.installed_by_fleet else Severity.WARNING,
    )


def _cause(facts: Facts) -> str:
    changed = fact(facts, "driver.changed_by")
    return f"; changed by {changed['command']} at {changed['at']}" if changed else ""


def _reboot_heals(facts: Facts, library: Version | None) -> bool:
    """Whether the kernel that boots next has the module that goes with the library."""
    kernel = next_kernel(facts) or running_kernel(facts)
    return library is not None and module_version(kernel) == library


def _reload(facts: Facts, library: Version | None) -> str:
    """What brings the parts together again, and who would notice."""
    users = gpu_users(facts) or []
    busy = (
        f", after these are done: {'; '.join(gpu_user_words(facts, one) for one in users[:_SHOWN])}"
        if users
        else ""
    )
    kernel = next_kernel(facts) or running_kernel(facts)
    if _reboot_heals(facts, library):
        return f"systemctl reboot{busy}"
    release = kernel.get("release") or fact(facts, "kernel.release")
    built = [one for one in fact(facts, "driver.dkms") or [] if upstream(str(one["version"])) == library]
    name = built[0]["module"] if built else "nvidia"
    command = f"dkms install {name}/{library} -k {release} --force && systemctl reboot"
    return f"{command} (a reboot alone does not help: the module for {release} is another){busy}"


@rule(
    "preflight.mixed_branches",
    known_bad=Sample(
        {
            "packages.installed": {
                "libnvidia-compute-550": "550.163.01-0ubuntu0.24.04.2",
                "libnvidia-compute-580": "580.159.03-0ubuntu1",
            },
            "packages.states": {"nvidia-dkms-580-open": "half-configured"},
        },
        _PREINSTALLED,
        gpu=True,
    ),
)
def mixed(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The driver's packages are of one branch, and all of them are configured. Reads ``driver``.

    Most packages of a broken set say that they are installed, so that one of them alone tells nothing.
    """
    if not has_gpus(facts):
        return
    broken = _broken(facts)
    installed = {**dict.fromkeys(broken, ""), **(fact(facts, "packages.installed") or {})}
    branches = by_branch(facts, installed)
    if not broken and len(branches) < 2:
        return
    driver = wanted_driver(wanted)
    said = []
    if len(branches) > 1:
        said.append(
            "packages of the driver's branches " + " and ".join(map(str, sorted(branches))) + " are mixed"
        )
    if broken:
        states = ", ".join(f"{name} ({state})" for name, state in broken.items())
        said.append(f"packages of the driver are not fully installed: {states}")
    beside = [name for name in fact(facts, "packages.held") or [] if goes_with_driver(name)]
    held = [name for name in beside if counts(facts, name) or not is_driver_package(name)]
    if held and len(branches) > 1:
        said.append(f"on hold: {_listed(held)}")
    said += _two_sources(facts, broken)
    yield self.finding(
        "; ".join(said),
        observed={"branches": sorted(branches), "states": dict(broken)},
        limit="one branch, every package installed",
        source="dpkg's status file",
        remedy=_one_branch(facts, driver, branches, bool(broken)),
        severity=None
        if driver is not None and not driver.installed_by_fleet and broken
        else Severity.WARNING,
    )


def _broken(facts: Facts) -> Mapping[str, str]:
    states: Mapping[str, str] = fact(facts, "packages.states") or {}
    beside = ("nvidia-", "libnvidia-", "cuda-drivers")
    names = [name for name in states if is_driver_package(name) or name.startswith(beside)]
    return {name: states[name] for name in sorted(names) if "container" not in name}


def _two_sources(facts: Facts, broken: Mapping[str, str]) -> list[str]:
    names = [*broken, *(fact(facts, "packages.installed") or {})]
    prebuilt = [name for name in names if name.startswith("linux-modules-nvidia-") and counts(facts, name)]
    built = [name for name in names if name.startswith(("nvidia-dkms", "nvidia-kernel")) and "dkms" in name]
    return [f"two sources of the module: {prebuilt[0]} and {built[0]}"] if prebuilt and built else []


def _one_branch(
    facts: Facts, driver: WantedDriver | None, branches: Mapping[int, list[str]], broken: bool
) -> str:
    loaded = loaded_version(facts)
    kept = (driver.branch if driver else None) or (loaded.major if loaded else max(branches, default=0))
    others = [name for branch, names in branches.items() if branch != kept for name in names]
    commands = ["dpkg --configure -a"] if broken else []
    if others and len(branches) > 1:
        held = set(others) & set(fact(facts, "packages.held") or [])
        flag = "--allow-change-held-packages " if held else ""
        commands.append(f"apt-get purge {flag}{' '.join(others)}")
    return " && ".join(commands)


@rule(
    "preflight.fabric_manager",
    known_bad=Sample(
        {"driver.fabric_manager": {"version": "580.126.09", "active": False}}, _PREINSTALLED, gpu=True
    ),
)
def fabric(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where there are NVSwitches, the fabric manager runs and has the very version of the driver. Reads ``driver``.

    nvidia-smi looks healthy without it, and every CUDA program fails with error 802.
    """
    loaded, needs = loaded_version(facts), fabric_manager_needs(facts)
    if loaded is None or needs is None:
        return
    manager = fact(facts, "driver.fabric_manager") or {}
    version = upstream(str(manager.get("version") or ""))
    if version == loaded and manager.get("active"):
        return
    driver = wanted_driver(wanted)
    if version is None:
        what = f"there is no fabric manager beside driver {loaded}, and this host has NVSwitches"
    elif version != loaded:
        what = f"fabric manager {version} beside driver {loaded}: it does not start with another version"
    else:
        what = f"the fabric manager {version} is not running"
    yield self.finding(
        what + ("" if needs.provenance.verified else f" (not verified: {needs.id})"),
        observed=version.text if version else None,
        limit=loaded.text,
        source=needs.provenance.source("version_match"),
        remedy=_install_fabric(facts, loaded, version, bool(manager.get("active"))),
        severity=None if driver is not None and not driver.installed_by_fleet else Severity.WARNING,
    )


def _install_fabric(facts: Facts, driver: Version, version: Version | None, active: bool) -> str:
    """The commands. A fabric manager that runs is not restarted under a loaded driver: that takes a reboot."""
    names = _packages(facts, driver)
    held = set(names) & set(fact(facts, "packages.held") or [])
    flags = " --allow-change-held-packages" * bool(held) + " --allow-downgrades" * bool(
        version and version > driver
    )
    pins = " ".join(f"'{name}={driver}*'" for name in names)
    install = f"apt-get install{flags} {pins} && " if version != driver else ""
    return install + ("systemctl reboot" if active else "systemctl enable --now nvidia-fabricmanager")


def _packages(facts: Facts, driver: Version) -> tuple[str, ...]:
    release = load().systems.release(*releases(facts))
    family = release.family if release is not None else None
    return (family.fabric_manager(driver) if family is not None else ()) or ("nvidia-fabricmanager",)


@rule(
    "preflight.driver_hold",
    severity=Severity.WARNING,
    known_bad=Sample({"packages.held": []}, _PREINSTALLED, gpu=True),
)
def hold(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The packages of the loaded driver are on hold, so that no upgrade replaces them under running programs."""
    loaded, driver = loaded_version(facts), wanted_driver(wanted)
    if not has_gpus(facts) or loaded is None:
        return
    if driver is not None and driver.installed_by_fleet and not as_wanted(facts, driver):
        return  # the driver task is about to replace them, and holds what it installs
    held = fact(facts, "packages.held") or []
    installed: Mapping[str, str] = fact(facts, "packages.installed") or {}
    library = upstream(str(fact(facts, "driver.library_version") or ""))  # another, where one was upgraded
    loose = [
        name
        for name in sorted(installed)
        if name.startswith(_CORE) and upstream(installed[name]) in (loaded, library) and name not in held
    ]
    if not loose:
        return
    who = "unattended-upgrades" if "unattended-upgrades" in installed else "the next apt-get upgrade"
    yield self.finding(
        f"{who} may replace the driver under running programs: {_listed(loose)} not on hold",
        observed=loose,
        limit="on hold",
        source="running programs keep the old library, new ones fail until the module is loaded anew",
        remedy=f"apt-mark hold {' '.join(loose)}",
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
