"""Which packages make the driver that is wanted, in exact versions: from what is installed and offered. Pure.

apt takes the newest candidate for every package that a request leaves out, and NVIDIA's packages depend on each
other in one exact version: so every package is named, in the version of the driver. What serves the cards is
:mod:`fleet.modules.driver.gpus`; the names are those of :mod:`fleet.catalogue.driver_packages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fleet.audit.facts import fact, releases
from fleet.catalogue.catalogue import load as load_catalogue
from fleet.catalogue.driver_packages import DriverSet, driver_sets, of_the_driver, prebuilt_modules, unwatched
from fleet.catalogue.operating_systems import PackageFamily
from fleet.catalogue.versions import Version, driver_version
from fleet.modules.base import Facts, Json
from fleet.modules.driver.gpus import (
    Card,
    Refused,
    branches_for,
    fabric,
    flavour_of,
    flavours,
    refuse_unknown,
    refuse_unserved,
)

Offered = Mapping[str, Sequence[str]]

_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d{1,3}){1,2})(?:-.*)?")
SUBNET_MANAGER = "nvlsm"  # of NVLink 5, in NVIDIA's repository
_ADD_COMPONENTS = (
    "add all of these components to the lines of the distribution's archive in this host's /etc/apt/sources.list or "
    "sources.list.d, then run again; or take NVIDIA's own packages: source: nvidia"
)
_VERSIONED_APART = (
    SUBNET_MANAGER,
    "infiniband-diags",
)  # what a fabric needs and what has versions of its own


class NotOffered(Refused):
    """No repository has what is wanted; the host may not have been asked yet."""


@dataclass(frozen=True)
class Parts:
    """What a driver of one version is made of: of each row one, ``optional`` where there, ``apart`` as it comes."""

    rows: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...]
    apart: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """The driver to have. ``driver``: (package, exact version), in the order of the catalogue; ``apart``: packages
    that have versions of their own; ``prebuilt``: packages that bring its kernel modules built, where they stay.
    """

    version: Version
    flavour: str
    packages: DriverSet
    driver: tuple[tuple[str, str], ...]
    apart: tuple[str, ...]
    prebuilt: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the driver's packages."""
        return tuple(name for name, _ in self.driver)

    @property
    def modules_version(self) -> str:
        """The exact version of what brings the kernel modules."""
        own = self.packages.modules[self.flavour].format(branch=self.version.major)
        return dict(self.driver).get(own) or self.driver[0][1]


def choose(args: Json, facts: Facts, found: Sequence[Card], offered: Offered | None) -> Choice:
    """The driver that the arguments mean on this host. ``offered``: package -> versions, newest first; None
    before the host was asked. Raises Refused where there can be none, NotOffered where no repository has it.
    """
    pinned = args["version"] is not None or args["branch"] is not None
    refuse_unknown(found, flavour=args["modules"], pinned=pinned)
    permitted = flavours(found, args["modules"])
    names_to_ask(args, facts, found)  # refuses what nobody packages, whatever is offered
    last: NotOffered | None = None
    for version in _versions(args, facts, found, permitted, offered):
        try:
            return _complete(args, facts, found, permitted, version, offered)
        except NotOffered as problem:
            last = last or problem
    raise _components_missing(args, facts, offered) or last or _nothing_offered(args, facts, offered)


def names_to_ask(args: Json, facts: Facts, found: Sequence[Card]) -> list[str]:
    """Every package whose versions must be known to choose; sorted."""
    names: set[str] = set()
    permitted = flavours(found, args["modules"])
    for number in _branches(args, facts, found, permitted):
        version = driver_version(args["version"] or f"{number}.0")
        packages = set_for(args, facts, number)
        for flavour in permitted:
            parts = _parts(args, facts, found, packages, version, flavour, ())
            names.update(parts.optional, *parts.rows)
            names.update(_asked_apart(parts, packages))
    return sorted(names)


def set_for(args: Json, facts: Facts, branch: int) -> DriverSet:
    """The set of package names for this host and branch. Raises Refused where none is known."""
    os_id, release = releases(facts)
    for one in driver_sets(args["source"], os_id):
        if one.covers(branch):
            return one
    raise Refused(
        f"the packages of a driver from {args['source']} are not known for {os_id or 'this system'} {release}",
        "install the driver by hand and set source: preinstalled",
    )


def kept_version(args: Json, facts: Facts) -> Version | None:
    """The version of the driver that is installed whole, from the wanted origin; None where there is none."""
    installed = _installed(facts)
    for version in _installed_versions(facts):
        try:
            packages = set_for(args, facts, version.major)
        except Refused:
            continue
        rows = _filled(packages.required, version.major)
        if not _resolved(rows, (), version, {name: [at] for name, at in installed.items()})[1]:
            return version
    return None


def newest_installed(facts: Facts) -> Version | None:
    """The newest version that a main package of any driver has here: installing an older one is a downgrade."""
    os_id = releases(facts)[0]
    installed = _installed(facts)
    newest: Version | None = None
    for version in _installed_versions(facts):
        for packages in (*driver_sets("nvidia", os_id), *driver_sets("distribution", os_id)):
            if not packages.covers(version.major):
                continue
            rows = _filled((*packages.required, tuple(packages.modules.values())), version.major)
            there = any(upstream(installed.get(name, "")) == version.text for row in rows for name in row)
            if there and (newest is None or version > newest):
                newest = version
    return newest


def may_also_change(facts: Facts, choice: Choice) -> list[str]:
    """Packages of a driver that is here already and that the transaction may replace or remove."""
    named = {*choice.names, *choice.apart, *choice.prebuilt}
    there = [name for name in of_the_driver(_installed(facts)) if name not in named]
    return [*sorted(there), *unwatched()] if there or newest_installed(facts) is not None else []


def to_remove(facts: Facts, choice: Choice) -> list[str]:
    """The other way to get kernel modules, where it is here too: prebuilt ones beside DKMS, or DKMS beside them."""
    installed = _installed(facts)
    if not choice.prebuilt:
        return sorted(prebuilt_modules(installed))
    own = _filled((tuple(choice.packages.modules.values()),), choice.version.major)
    return sorted(name for row in own for name in row if name in installed)


def leftovers(facts: Facts, choice: Choice) -> list[str]:
    """Packages named after another branch that the transaction may leave behind: nothing else replaces them."""
    installed = _installed(facts)
    found = []
    for name in of_the_driver(installed):
        version = upstream(installed[name])
        branch = version.partition(".")[0] if version is not None else None
        if branch not in (None, str(choice.version.major)) and re.search(rf"-{branch}(-|$)", name):
            found.append(name)
    return sorted(found)


def upstream(package_version: str) -> str | None:
    """The driver's version in a package's: 580.159.03 of ``580.159.03-0ubuntu1``; None where it is none."""
    match = _UPSTREAM.fullmatch(package_version)
    return match[1] if match else None


def family(facts: Facts) -> PackageFamily | None:
    """How NVIDIA names its packages for this host's release."""
    release = load_catalogue().systems.release(*releases(facts))
    return release.family if release is not None else None


# --- inside -------------------------------------------------------------------------------------


def _branches(args: Json, facts: Facts, found: Sequence[Card], permitted: Sequence[str]) -> list[int]:
    """Branches that may be chosen, the best first."""
    if args["version"] is not None:
        return [driver_version(args["version"]).major]
    kept = kept_version(args, facts)
    if args["branch"] is not None:
        return [int(args["branch"])]
    if kept is not None and _keeps(found, kept):
        return [kept.major]
    return [branch.number for branch in branches_for(found, permitted)]


def _versions(
    args: Json, facts: Facts, found: Sequence[Card], permitted: Sequence[str], offered: Offered | None
) -> list[Version]:
    """Versions that may be chosen, the best first. A pin is one; what is installed and serves stays."""
    if args["version"] is not None:
        version = driver_version(args["version"])
        refuse_unserved(found, version)
        return [version]
    branches = _branches(args, facts, found, permitted)
    kept = kept_version(args, facts)
    if args["branch"] is not None:
        refuse_unserved(found, _latest(branches[0]))
    if kept is not None and kept.major in branches and (args["branch"] is not None or _keeps(found, kept)):
        return [kept]
    found_versions: list[Version] = []
    for number in branches:
        packages = set_for(args, facts, number)
        anchors = {name for row in _filled(packages.required[:1], number) for name in row}
        texts = {upstream(at) for name in anchors for at in (offered or {}).get(name, ())}
        own = [driver_version(text) for text in texts if text is not None]
        found_versions += sorted((one for one in own if one.major == number), reverse=True)
    return found_versions


def _keeps(found: Sequence[Card], version: Version) -> bool:
    try:
        refuse_unserved(found, version)
    except Refused:
        return False
    return True


def _latest(number: int) -> Version:
    branch = load_catalogue().drivers.branch(number)
    return branch.latest if branch is not None else driver_version(f"{number}.999")


def _complete(
    args: Json,
    facts: Facts,
    found: Sequence[Card],
    permitted: Sequence[str],
    version: Version,
    offered: Offered | None,
) -> Choice:
    """The packages of one version: as they are installed, or else as they are offered. Raises NotOffered."""
    packages = set_for(args, facts, version.major)
    flavour = _flavour(packages, facts, permitted, version)
    prebuilt = _prebuilt_kept(packages, facts, version, flavour)
    parts = _parts(args, facts, found, packages, version, flavour, prebuilt)
    here = {name: [at] for name, at in _installed(facts).items()}
    chosen, missing = _resolved(parts.rows, parts.optional, version, here)
    if missing:
        there = {name: [*(offered or {}).get(name, ()), *here.get(name, ())] for name in _names(parts)}
        chosen, missing = _resolved(parts.rows, parts.optional, version, there)
        if not missing and offered is not None:
            _refuse_absent(_asked_apart(parts, packages), packages, facts, offered)
    if missing:
        raise _pin_refused(missing[0], version, offered or {}, packages)
    return Choice(version, flavour, packages, tuple(chosen), parts.apart, prebuilt)


def _flavour(packages: DriverSet, facts: Facts, permitted: Sequence[str], version: Version) -> str:
    installed = _installed(facts)
    kept = [
        flavour
        for flavour, name in packages.modules.items()
        if upstream(installed.get(name.format(branch=version.major), "")) == version.text
        or _prebuilt_kept(packages, facts, version, flavour)
    ]
    branch = load_catalogue().drivers.branch(version.major)
    if branch is None:  # newer than the catalogue
        return next((one for one in kept if one in permitted), permitted[0])
    return flavour_of(branch, permitted, kept[0] if len(kept) == 1 else None)


def _prebuilt_kept(packages: DriverSet, facts: Facts, version: Version, flavour: str) -> tuple[str, ...]:
    """Prebuilt modules of this very driver and flavour that are installed: then nothing is built here.

    They carry the kernel's version; the driver's is that of the libraries they came with.
    """
    start = packages.prebuilt.get(flavour)
    installed = _installed(facts)
    library = packages.required[0][0].format(branch=version.major)
    if start is None or upstream(installed.get(library, "")) != version.text:
        return ()
    others = [one for name, one in packages.prebuilt.items() if name != flavour]
    start = start.format(branch=version.major)
    longer = [
        one.format(branch=version.major) for one in others if len(one) > len(packages.prebuilt[flavour])
    ]
    names = [name for name in installed if name.startswith(start)]
    return tuple(sorted(name for name in names if not any(name.startswith(one) for one in longer)))


def _parts(
    args: Json,
    facts: Facts,
    found: Sequence[Card],
    packages: DriverSet,
    version: Version,
    flavour: str,
    prebuilt: Sequence[str],
) -> Parts:
    number = version.major
    rows = _filled(packages.required, number)
    optional = [name.format(branch=number) for name in packages.optional]
    apart = list(packages.support)
    if prebuilt:
        apart = [name for name in apart if name != "dkms"]
    else:
        rows += _filled(((packages.modules[flavour],),), number)
        optional += [name.format(branch=number) for name in packages.modules_optional.get(flavour, ())]
    if args["fabric_manager"] == "auto":
        for needs in fabric(found, facts):
            rows += tuple((name,) for name in _fabric_names(needs.needs, facts, packages, version))
            apart += [name for name in _VERSIONED_APART if name in needs.needs]
    return Parts(rows, tuple(optional), tuple(apart))


def _fabric_names(
    needs: Sequence[str], facts: Facts, packages: DriverSet, version: Version
) -> tuple[str, ...]:
    """Packages of fabric manager or IMEX, which carry exactly the driver's version."""
    known = family(facts)
    names: tuple[str, ...] = ()
    if "fabric_manager" in needs:
        own = packages.fabric_manager
        names = (known.fabric_manager(version) if known is not None else ()) if own is None else own
        names = tuple(name.format(branch=version.major) for name in names)
    elif "nvidia-imex" in needs and packages.fabric_manager is None:
        names = known.imex(version) if known is not None else ()
    if not names:
        raise Refused(
            f"this host's GPUs need {needs[0].replace('_', ' ')}, and source: {packages.origin} has no package of it",
            "source: nvidia has one; fabric_manager: absent leaves it to you",
        )
    return names


def _filled(rows: Iterable[Sequence[str]], branch: int) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(name.format(branch=branch) for name in row) for row in rows)


def _names(parts: Parts) -> list[str]:
    return [*(name for row in parts.rows for name in row), *parts.optional]


def _resolved(
    rows: Iterable[Sequence[str]], optional: Iterable[str], version: Version, there: Offered
) -> tuple[list[tuple[str, str]], list[tuple[str, ...]]]:
    """((package, its version) of every row and optional one that has this driver's version, rows without)."""
    chosen: dict[str, str] = {}
    missing: list[tuple[str, ...]] = []
    for row in rows:
        fitting = [(name, at) for name in row for at in there.get(name, ()) if upstream(at) == version.text]
        if fitting:
            chosen.setdefault(*fitting[0])
        else:
            missing.append(tuple(row))
    for name in optional:
        for at in there.get(name, ()):
            if upstream(at) == version.text:
                chosen.setdefault(name, at)
                break
    return list(chosen.items()), missing


def _installed(facts: Facts) -> Mapping[str, str]:
    return fact(facts, "packages.installed") or {}


def _installed_versions(facts: Facts) -> list[Version]:
    """Every driver version that a package of a driver has here, newest first."""
    installed = _installed(facts)
    texts = {upstream(str(installed[name])) for name in of_the_driver(installed)}
    return sorted((driver_version(text) for text in texts if text is not None), reverse=True)


def _asked_apart(parts: Parts, packages: DriverSet) -> list[str]:
    """Packages with versions of their own that not every host is offered which is offered the driver."""
    own = set(packages.support) - {"dkms"} if packages.components else set()
    return [name for name in parts.apart if name == SUBNET_MANAGER or name in own]


def _refuse_absent(names: Iterable[str], packages: DriverSet, facts: Facts, offered: Offered) -> None:
    for name in names:
        if offered.get(name) or name in _installed(facts):
            continue
        if name == SUBNET_MANAGER:
            raise NotOffered(
                f"pin_not_available: these GPUs' NVLink needs {SUBNET_MANAGER}, which is in no repository asked",
                f"let the repository carry {SUBNET_MANAGER}; fabric_manager: absent leaves the fabric to you",
            )
        raise NotOffered(
            f"components_missing: {name}, which goes with the driver, is not offered here; the driver's packages are "
            f"in the components {_listed(packages.components)} of the distribution's archive",
            _ADD_COMPONENTS,
        )


def _pin_refused(row: Sequence[str], version: Version, offered: Offered, packages: DriverSet) -> NotOffered:
    there = [at for name in row for at in offered.get(name, ())]
    shown = ", ".join(there[:5]) or "none at all"
    more = f" (it is in {_listed(packages.components)})" if packages.components and not there else ""
    return NotOffered(
        f"pin_not_available: {' or '.join(row)} {version} is in no repository asked; offered: {shown}",
        f"pin a version that is offered, or let the repository carry {row[0]} {version}{more}",
    )


def _nothing_offered(args: Json, facts: Facts, offered: Offered | None) -> NotOffered:
    wanted = f"branch {args['branch']}" if args["branch"] is not None else "a driver for these GPUs"
    texts = {upstream(at) for at in _main_offered(args, facts, offered or {})}
    known = sorted((driver_version(text) for text in texts if text is not None), reverse=True)
    shown = ", ".join(str(one) for one in known[:5]) or "none at all"
    return NotOffered(
        f"pin_not_available: {wanted} is in no repository asked; offered: {shown}",
        "choose a branch that is offered, or let the repository carry it",
    )


def _components_missing(args: Json, facts: Facts, offered: Offered | None) -> NotOffered | None:
    """A distribution has its driver in parts of its archive that not every host has among its sources. Which
    those are to be is for the host's owner to say, so they are named, and not added.
    """
    sets = driver_sets(args["source"], releases(facts)[0])
    known = list(dict.fromkeys(name for one in sets for name in one.components))
    if offered is None or not known or _main_offered(args, facts, offered):
        return None
    return NotOffered(
        f"components_missing: no NVIDIA driver is offered here; its packages are in the components {_listed(known)} "
        "of the distribution's archive",
        _ADD_COMPONENTS,
    )


def _main_offered(args: Json, facts: Facts, offered: Offered) -> list[str]:
    """The versions offered of what every driver has; other packages have versions of their own, or other homes."""
    rows = [row for one in driver_sets(args["source"], releases(facts)[0]) for row in one.required]
    names = [name.format(branch="*") for row in rows for name in row]
    found = [name for name in offered if any(fnmatchcase(name, pattern) for pattern in names)]
    return [version for name in found for version in offered[name]]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
