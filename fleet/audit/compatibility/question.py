"""A subject out of an offline question: only what was given is there, all else is absent.

Beside what :meth:`Subject.from_question` names: ``runc``, ``fabric_manager``, ``cdi`` (versions, the last that of the
driver a specification was written for), ``architecture``, ``podman``, ``hook``, ``nvswitches``, and every other field
of the subject by its own name. ``none`` as a version says that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fleet.audit.compatibility.observe import program, version_within
from fleet.audit.compatibility.subject import ABSENT, NOTHING, Known, Missing, Program, Subject, SubjectGpu
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.versions import Version, driver_version
from fleet.core.errors import InputError

#: What says that there is none, in place of a version.
NONE = ("none", "absent")
FLAVOURS = ("open", "proprietary")


def asked(
    catalogue: Catalogue,
    gpu: str | Sequence[str],
    driver: str | None,
    modules: str | None,
    os: str | None,
    docker: str | None,
    toolkit: str | None,
    more: Mapping[str, object],
) -> Subject:
    """The subject. Raises InputError for a name or a version that is none."""
    names = [gpu] if isinstance(gpu, str) else list(gpu)
    if modules not in (None, *FLAVOURS):
        raise InputError(f"{modules!r} is no flavour of the kernel modules: {' or '.join(FLAVOURS)}")
    known: dict[str, Any] = {
        "gpus": _gpus(names, catalogue) if names else ABSENT,
        "driver": _driver(driver, catalogue),
        "modules": modules or ABSENT,
        "os": _system(os, catalogue),
        "engine": _program("Docker", docker),
        "toolkit": _toolkit(toolkit),
    }
    if isinstance(known["driver"], Version) and modules is not None:
        offered(known["driver"], modules, catalogue)
    return Subject(**known, **_more(more, catalogue), catalogue=catalogue)


def offered(driver: Version, modules: str, catalogue: Catalogue) -> None:
    """Raises InputError where a driver's branch does not come with a flavour of the kernel modules."""
    branch = catalogue.drivers.branch_of(driver)
    if branch is None or modules in branch.kernel_modules:
        return
    raise InputError(
        f"driver {driver} has no {modules} kernel modules: branch {branch.number} comes with"
        f" {' or '.join(branch.kernel_modules)} ones alone",
        remedy=f"--modules {branch.kernel_modules[0]}, or a driver of another branch:"
        " fleet catalogue show driver",
    )


def _gpus(names: Sequence[str], catalogue: Catalogue) -> tuple[SubjectGpu, ...]:
    products = {one.id: one for one in map(catalogue.gpus.find, names)}
    return tuple(SubjectGpu.of(one, one.pci[0].device) for one in products.values())


def _driver(text: str | None, catalogue: Catalogue) -> Known:
    if text is None:
        return ABSENT
    return NOTHING if text in NONE else catalogue.drivers.version(text)


def _system(text: str | None, catalogue: Catalogue) -> tuple[str, str] | Missing:
    if text is None:
        return ABSENT
    found = catalogue.systems.find(text)
    return found.distributions[0], found.version


def _program(name: str, text: str | None) -> Program | Missing:
    if text is None:
        return ABSENT
    if text in NONE:
        return NOTHING
    found = program(text)
    if found is None:
        raise InputError(f"{text!r} is not a version of {name}, such as 29.7.1")
    return found


def _toolkit(text: str | None) -> Known:
    if text is None:
        return ABSENT
    found = NOTHING if text in NONE else version_within(text)
    if found is None:
        raise InputError(f"{text!r} is not a version of the container toolkit, such as 1.19.1")
    return found


def _more(more: Mapping[str, object], catalogue: Catalogue) -> dict[str, Any]:
    names = {one.name for one in fields(Subject)}
    found: dict[str, Any] = {}
    for name, value in more.items():
        if name not in names:
            raise InputError(f"{name} is nothing that an offline question can say")
        if value is None:
            continue
        if name == "fabric_manager":
            found |= {"fabric_manager": _driver(str(value), catalogue), "nvswitches": True}
        elif name == "runc":
            found["runc"] = _program("runc", str(value))
        elif name == "cdi":
            found["cdi"] = _specifications(str(value))
        else:
            found[name] = tuple(value) if isinstance(value, list) else value
    return found


def _specifications(text: str) -> tuple[Version, ...] | Missing:
    return NOTHING if text in NONE else (driver_version(text),)
