"""What if a host had another driver, image, toolkit or engine: the same rules, over the changed subject.

A :class:`Change` is what somebody asks (``--what-if driver=580.159.04,toolkit=1.19.1``), and what a remedy is made
of (:mod:`.remedy`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from fleet.audit.compatibility.observe import version_within
from fleet.audit.compatibility.question import FLAVOURS, offered
from fleet.audit.compatibility.rule import Asked
from fleet.audit.compatibility.subject import ABSENT, NOTHING, Missing, Subject
from fleet.audit.gpus import Choice, choices
from fleet.catalogue.catalogue import Catalogue, load
from fleet.catalogue.versions import Version, driver_version
from fleet.core.errors import InputError


@dataclass(frozen=True)
class Change:
    """What would be another; None: stays. Versions are text.

    ``fabric_manager`` and ``cdi`` (the driver that specifications are written for) go with a driver by themselves;
    alone they are a remedy for a host where they were left behind.
    """

    image: str | None = None
    toolkit: str | None = None
    docker: str | None = None
    driver: str | None = None
    modules: str | None = None
    fabric_manager: str | None = None
    cdi: str | None = None

    @classmethod
    def parse(cls, words: Iterable[str], catalogue: Catalogue | None = None) -> Change:
        """``driver=580.159.04,image=…``, in any number of pieces. Raises InputError, with a suggestion."""
        said: dict[str, str] = {}
        for word in (part.strip() for words_ in words for part in words_.split(",")):
            name, equals, value = word.partition("=")
            if not equals or not value:
                raise InputError(
                    f"--what-if {word!r} is not NAME=VALUE", remedy="such as --what-if driver=580.159.04"
                )
            if name not in ASKABLE:
                near = difflib.get_close_matches(name, ASKABLE, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise InputError(f"--what-if knows {', '.join(ASKABLE)}, not {name!r}{hint}")
            if name in said and said[name] != value:
                raise InputError(f"--what-if {name} is said twice: {said[name]} and {value}")
            said[name] = value
        return cls(**said).checked(catalogue or load())

    def checked(self, catalogue: Catalogue) -> Change:
        """Itself. Raises InputError for what is no version, no flavour and no image."""
        driver = catalogue.drivers.version(self.driver) if self.driver is not None else None
        for name in ("toolkit", "docker"):
            if getattr(self, name) is not None:
                _version(name, getattr(self, name))
        if self.modules not in (None, *FLAVOURS):
            raise InputError(f"{self.modules!r} is no flavour of the kernel modules: {' or '.join(FLAVOURS)}")
        if driver is not None and self.modules is not None:
            offered(driver, self.modules, catalogue)
        if self.image is not None:
            catalogue.images.look_up(self.image)
        return self

    def items(self) -> Iterator[tuple[str, str]]:
        """(name, value) of what would change."""
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None:
                yield one.name, value


ASKABLE = ("driver", "image", "toolkit", "docker", "modules")


def changed(subject: Subject, image: Asked, change: Change) -> tuple[Subject, Asked]:
    """The host and the image as they would be. Raises InputError where a value is none."""
    if change.image is not None:
        image = subject.catalogue.images.look_up(change.image)
    if change.toolkit is not None:
        subject = subject.with_toolkit(_version("toolkit", change.toolkit))
    if change.docker is not None:
        subject = subject.with_engine(_version("docker", change.docker))
    if change.driver is not None or change.modules is not None:
        subject = _with_driver(subject, change)
    if change.fabric_manager is not None:
        subject = replace(
            subject, fabric_manager=driver_version(change.fabric_manager), fabric_manager_active=True
        )
    if change.cdi is not None:
        subject = replace(subject, cdi=(driver_version(change.cdi),))
    return subject, image


def _with_driver(subject: Subject, change: Change) -> Subject:
    if change.driver is None:
        return replace(subject, modules=change.modules or subject.modules)
    version = driver_version(change.driver)
    return subject.with_driver(version, change.modules or flavour_for(subject, version))


def flavour_for(subject: Subject, version: Version) -> str | None:
    """The kernel modules that a driver would come with: as now where that serves, else what every GPU can use.

    None where nobody said which there are now, and where no flavour of this branch serves all GPUs.
    """
    if isinstance(subject.modules, Missing) and subject.driver not in (NOTHING, None):
        return None
    fitting = {flavour for branch, flavour in common_choices(subject) if branch == version.major}
    if subject.modules in fitting:
        return str(subject.modules)
    return next((flavour for flavour in FLAVOURS if flavour in fitting), None)


def common_choices(subject: Subject) -> frozenset[Choice]:
    """Branches and flavours that serve every GPU of a host that the catalogue knows."""
    sets = [choices(known, subject.catalogue) for _, known in subject.known_gpus()]
    return frozenset.intersection(*sets) if sets else frozenset()


def has(value: object) -> bool:
    """Whether a value of a subject is there: known, and not nothing."""
    return value is not None and value not in (ABSENT, NOTHING)


def _version(name: str, text: str) -> Version:
    found = version_within(text)
    if found is None:
        words = {"toolkit": "the container toolkit, such as 1.19.1", "docker": "Docker, such as 29.7.1"}
        raise InputError(f"{text!r} is not a version of {words[name]}")
    return found
