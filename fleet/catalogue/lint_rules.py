"""The rules of the catalogue that a schema cannot say: references, versions, dates, plausible figures.

A rule takes the merged files and yields faults; all are in :data:`RULES`. They are run by
:mod:`fleet.catalogue.lint` on data whose shape is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fleet.catalogue.advisories import Advisories, Component
from fleet.catalogue.entries import Entry, Files
from fleet.catalogue.gpus import pcie_gb_per_s
from fleet.catalogue.versions import driver_version, first_day, last_day, release
from fleet.core.errors import InputError

#: Share of the theoretical peak that a limit may lie at. Below, it would let a broken GPU pass; above, none can.
LEAST, MOST = 0.40, 1.00

#: Clock in GHz that a marketed fp32 rate may imply (two operations per lane and cycle): a wrong SM count or
#: rate falls outside.
CLOCKS = (0.7, 3.2)

#: Rate of each kind relative to fp32 that any GPU so far has had: a slipped digit falls outside.
RATIOS = {
    "tf32": (1.0, 18.0),
    "fp16_tensor": (1.5, 36.0),
    "bf16_tensor": (1.5, 36.0),
    "fp8_tensor": (3.0, 72.0),
    "int8_tensor": (1.5, 72.0),
}

#: GB/s of memory per GPU, from a GTX 1650 to what is announced.
BANDWIDTHS = (80, 20_000)


@dataclass(frozen=True)
class Fault:
    """One thing wrong: in which file (without ``.yaml``), section and entry (may be empty), and what."""

    file: str
    section: str
    entry: str
    message: str

    def __str__(self) -> str:
        where = f"{self.section} {self.entry}".strip()
        return f"{where}: {self.message}" if where else self.message


Rule = Callable[[Files], Iterator[Fault]]


def architectures(files: Files) -> Iterator[Fault]:
    """The branches named exist, first before last."""
    branches = _branches(files)
    for entry in files.section("gpus", "architectures"):
        for name in ("first_branch", "last_branch"):
            if entry.get(name) is not None and entry[name] not in branches:
                yield _gpu_fault(
                    entry, f"{name} {entry[name]}: there is no such branch in drivers.yaml", "architectures"
                )
        if (entry.get("first_branch") or 0) > (entry.get("last_branch") or 9999):
            yield _gpu_fault(entry, "its last branch is older than its first", "architectures")
        for capability in entry.get("fp32_lanes_per_sm", {}):
            if capability not in entry["compute_capabilities"]:
                yield _gpu_fault(
                    entry, f"fp32_lanes_per_sm: {capability} is not one of its capabilities", "architectures"
                )


def gpu_references(files: Files) -> Iterator[Fault]:
    """Architecture, compute capability and branches of every GPU exist and agree."""
    known = {entry.id: entry for entry in files.section("gpus", "architectures")}
    branches = _branches(files)
    for entry in files.section("gpus", "gpus"):
        architecture = known.get(entry["architecture"])
        if architecture is None:
            yield _gpu_fault(entry, f"there is no architecture {entry['architecture']}")
            continue
        if entry["compute_capability"] not in architecture["compute_capabilities"]:
            yield _gpu_fault(
                entry, f"{architecture.id} has no compute capability {entry['compute_capability']}"
            )
        yield from _gpu_drivers(entry, architecture, branches)
        yield from _gpu_modules(entry, architecture)


def _gpu_drivers(entry: Entry, architecture: Entry, branches: set[int]) -> Iterator[Fault]:
    first, floor, listed = entry.get("first_branch"), entry.get("min_driver"), entry.get("first_listed")
    mig = entry.get("mig", {}).get("min_driver")
    numbers = {"first_branch": first, "min_driver": floor, "first_listed": listed, "mig.min_driver": mig}
    for name, said in numbers.items():
        branch = said if isinstance(said, int) or said is None else driver_version(said).major
        if branch is not None and branch not in branches:
            yield _gpu_fault(entry, f"{name} {said}: there is no branch {branch} in drivers.yaml")
        if branch is not None and branch < (architecture.get("first_branch") or 0):
            yield _gpu_fault(
                entry, f"{name} {said}: {architecture.id} begins with {architecture['first_branch']}"
            )
    if floor is not None and driver_version(floor).major != first:
        yield _gpu_fault(entry, f"min_driver {floor} is not of first_branch {first}")
    if floor is not None and listed is not None and driver_version(listed) > driver_version(floor):
        yield _gpu_fault(entry, f"first_listed {listed} is newer than min_driver {floor}")


def _gpu_modules(entry: Entry, architecture: Entry) -> Iterator[Fault]:
    own, family = entry.get("open_kernel_modules"), architecture["open_kernel_modules"]
    if own is not None and family != "possible" and own != family:
        yield _gpu_fault(entry, f"open_kernel_modules {own}, but {family} for {architecture.id}")


def pci_ids(files: Files) -> Iterator[Fault]:
    """(device, subsystem) belongs to one GPU."""
    owners: dict[str, str] = {}
    for entry in files.section("gpus", "gpus"):
        for pci in entry["pci"]:
            other = owners.setdefault(pci, entry.id)
            if other != entry.id or entry["pci"].count(pci) > 1:
                yield _gpu_fault(entry, f"PCI id {pci} is also that of {other}")


def figures(files: Files) -> Iterator[Fault]:
    """Marketed rates are plausible for the number of SMs, and limits lie within 40 to 100 % of them."""
    lanes = {
        capability: count
        for entry in files.section("gpus", "architectures")
        for capability, count in entry.get("fp32_lanes_per_sm", {}).items()
    }
    for entry in files.section("gpus", "gpus"):
        yield from _rates(entry, lanes.get(entry["compute_capability"]))
        yield from _limits(entry)


def _rates(entry: Entry, lanes: int | None) -> Iterator[Fault]:
    peaks, bandwidth = entry.get("peaks", {}), entry.get("memory_bandwidth_gb_per_s")
    fp32, sm_count = peaks.get("fp32"), entry.get("sm_count")
    if bandwidth is not None and not BANDWIDTHS[0] <= bandwidth <= BANDWIDTHS[1]:
        yield _gpu_fault(entry, f"memory_bandwidth_gb_per_s {bandwidth} is not plausible")
    if fp32 is None:
        return
    if lanes is not None and sm_count is not None:
        clock = fp32 * 1000 / (2 * lanes * sm_count)
        if not CLOCKS[0] <= clock <= CLOCKS[1]:
            yield _gpu_fault(entry, f"fp32 {fp32} TFLOPS of {sm_count} SM would need {clock:.2f} GHz")
    for kind, (least, most) in RATIOS.items():
        # Blackwell Ultra and consumer cards before tensor cores have slow int8: only the upper bound is meant.
        low = 0.0 if kind == "int8_tensor" else least
        if kind in peaks and not low <= peaks[kind] / fp32 <= most:
            yield _gpu_fault(
                entry, f"peaks.{kind} {peaks[kind]} is {peaks[kind] / fp32:.1f} times fp32: not plausible"
            )


def _limits(entry: Entry) -> Iterator[Fault]:
    peaks = {**entry.get("peaks", {}), **_bandwidths(entry)}
    for kind, limit in entry.get("limits", {}).items():
        peak = peaks.get(kind)
        if peak is not None and not LEAST <= limit / peak <= MOST:
            yield _gpu_fault(
                entry,
                f"limits.{kind} {limit} is {limit / peak:.0%} of the peak {peak}: not within 40 to 100 %",
            )


def _bandwidths(entry: Entry) -> dict[str, float | None]:
    """GB/s in theory of what has a bandwidth, as :attr:`fleet.catalogue.gpus.Gpu.limits` names it."""
    generation, nvlink = entry.get("pcie_generation"), entry.get("nvlink")
    one_way = nvlink["gb_per_s"] / 2 if nvlink else None
    return {
        "memory_bandwidth_gb_per_s": entry.get("memory_bandwidth_gb_per_s"),
        "host_link_gb_per_s": pcie_gb_per_s(generation, 16) if generation else None,
        "peer_gb_per_s": one_way,
        "all_reduce_gb_per_s": one_way,
    }


def branches(files: Files) -> Iterator[Fault]:
    """Versions and dates of a branch are its own and in order."""
    for entry in files.section("drivers", "branches"):
        if not (entry.id.isdecimal() and len(entry.id) == 3):
            yield Fault("drivers", "branches", entry.id, "the id must be the number of the branch")
            continue
        fixes = [fix["version"] for fix in entry.get("security_fixes", ())]
        for version in (entry["latest"], *entry["versions"], *fixes):
            if driver_version(version).major != int(entry.id):
                yield Fault("drivers", "branches", entry.id, f"{version} is not a version of it")
        newest = max(map(driver_version, (*entry["versions"], *fixes)), default=None)
        if newest is not None and newest > driver_version(entry["latest"]):
            yield Fault("drivers", "branches", entry.id, f"latest {entry['latest']} is older than {newest}")
        first, end = entry.get("first_release"), entry.get("end_of_life")
        if first and end and _readable(first, end) and first_day(first) > last_day(end):
            yield Fault("drivers", "branches", entry.id, f"ends ({end}) before it begins ({first})")


def toolkits(files: Files) -> Iterator[Fault]:
    """Branch and driver of a toolkit exist and agree; its branch runs it natively."""
    known = {int(entry.id): entry for entry in files.section("drivers", "branches") if entry.id.isdecimal()}
    majors = {entry.id for entry in files.section("cuda", "majors")}
    for entry in files.section("cuda", "toolkits"):
        for message in _toolkit(entry, known, majors):
            yield Fault("cuda", "toolkits", entry.id, message)
    for entry in files.section("cuda", "forward_compatibility"):
        for number in entry["base_branches"]:
            if number not in known:
                yield Fault(
                    "cuda", "forward_compatibility", entry.id, f"there is no branch {number} in drivers.yaml"
                )


def _toolkit(entry: Entry, known: dict[int, Entry], majors: set[str]) -> Iterator[str]:
    try:
        version = release(entry.id)
    except InputError as error:
        yield error.what
        return
    if str(version.major) not in majors:
        yield f"there is no major {version.major}"
    branch, native = known.get(entry["branch"]), entry.get("native_driver")
    if branch is None:
        yield f"there is no branch {entry['branch']} in drivers.yaml"
        return
    if native is not None and driver_version(native).major != entry["branch"]:
        yield f"native_driver {native} is not of branch {entry['branch']}"
    if not version.begins_with(release(branch["max_cuda"])):
        yield f"branch {branch.id} is that of CUDA {branch['max_cuda']}"


def systems(files: Files) -> Iterator[Fault]:
    """Package families exist; a release belongs to one entry; package rows cover branches in order."""
    families = files.section("operating_systems", "package_families")
    names = {entry.id for entry in families}
    owners: dict[tuple[str, str], str] = {}
    for entry in files.section("operating_systems", "releases"):
        family = entry.get("package_family")
        if family is not None and family not in names:
            yield Fault("operating_systems", "releases", entry.id, f"there is no package family {family}")
        for distribution in entry["distributions"]:
            other = owners.setdefault((distribution, entry["version"]), entry.id)
            if other != entry.id:
                yield Fault(
                    "operating_systems",
                    "releases",
                    entry.id,
                    f"{other} is {distribution} {entry['version']} too",
                )
    for entry in families:
        for what in ("fabric_manager", "imex"):
            if _overlapping(entry.get(what, ())):
                yield Fault("operating_systems", "package_families", entry.id, f"{what}: rows overlap")


def driver_sets(files: Files) -> Iterator[Fault]:
    """Each branch of a distribution has one set of packages per origin."""
    rows: dict[tuple[str, str], list[Entry]] = {}
    for entry in files.section("driver_packages", "sets"):
        for distribution in entry["distributions"]:
            rows.setdefault((entry["origin"], distribution), []).append(entry)
    for (origin, distribution), entries in rows.items():
        if _overlapping([entry.get("branches", {}) for entry in entries]):
            what = f"another set of {origin} names the same branches for {distribution}"
            yield Fault("driver_packages", "sets", entries[-1].id, what)


def _overlapping(rows: Any) -> bool:
    spans = sorted((row.get("from", 0), row.get("to", 9999)) for row in rows)
    return any(high >= low for (_, high), (low, _) in pairwise(spans))


def dates(files: Files) -> Iterator[Fault]:
    """Every date is a day of the calendar."""
    for file, section in files.sections():
        for entry in files.section(file, section):
            for name in ("first_release", "end_of_life", "long_term_end", "date", "until"):
                if entry.get(name) is not None and not _readable(entry[name]):
                    yield Fault(file, section, entry.id, f"{name} {entry[name]} is not a day of the calendar")
            for fix in entry.get("security_fixes", ()):
                if not _readable(fix["date"]):
                    yield Fault(
                        file, section, entry.id, f"security_fixes: {fix['date']} is not a day of the calendar"
                    )


def floors(files: Files) -> Iterator[Fault]:
    """The versions called free of known weaknesses have every fix there is."""
    advisories = Advisories(files)
    components: dict[str, Component] = {"docker": "engine", "container_toolkit": "container_toolkit"}
    for file, component in components.items():
        for floor in files.section(file, "floors"):
            missing = [one.id for one in advisories.lacking(component, release(floor["version"]))]
            if floor.id == component and missing:
                yield Fault(
                    file, "floors", floor.id, f"{floor['version']} lacks the fix of {', '.join(missing)}"
                )


def fixes(files: Files) -> Iterator[Fault]:
    """An advisory names each branch once, and nothing is fixed before it is broken."""
    for one in Advisories(files).all:
        branches = [version.numbers[:2] for version in one.fixed_in]
        for before, after in pairwise(branches):
            if before == after:
                what = f"fixed_in: {'.'.join(map(str, after))} is there twice"
                yield Fault("advisories", "advisories", one.id, what)
        if one.first_affected is not None and one.first_affected >= one.fixed_in[0]:
            what = f"is fixed in {one.fixed_in[0]}, and first there in {one.first_affected}"
            yield Fault("advisories", "advisories", one.id, what)


def _readable(*texts: str) -> bool:
    try:
        for text in texts:
            last_day(text)
    except InputError:
        return False
    return True


def _branches(files: Files) -> set[int]:
    return {int(entry.id) for entry in files.section("drivers", "branches") if entry.id.isdecimal()}


def _gpu_fault(entry: Entry, message: str, section: str = "gpus") -> Fault:
    return Fault("gpus", section, entry.id, message)


RULES: tuple[Rule, ...] = (
    architectures,
    gpu_references,
    pci_ids,
    figures,
    branches,
    toolkits,
    systems,
    driver_sets,
    dates,
    floors,
    fixes,
)
