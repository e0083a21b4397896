"""Whether a host already has what a play would bring, as far as facts tell before any module is asked.

Being used is no fault of a host: where nothing is to be done, jobs, kubelet and users change nothing. What is still
to be done there although it looks settled is done without disturbing anybody, or waits for leave: each module
asks :func:`fleet.audit.leave.reasons_against` before anything disruptive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.audit.driver import as_wanted, loaded_version, upstream, wanted_driver
from fleet.audit.facts import Facts, fact
from fleet.audit.gpus import has_gpus
from fleet.audit.rule import Wanted

ENGINES = {"distribution": ("docker.io", "moby-engine"), "docker": ("docker-ce",)}


def settled(facts: Facts, wanted: Wanted) -> bool:
    """Whether engine, image, driver and container toolkit are there as the playbook asks for them."""
    return (
        _engine(facts, wanted)
        and _image(facts, wanted)
        and _driver(facts, wanted)
        and _toolkit(facts, wanted)
    )


def has_image(facts: Facts, digest: str) -> bool:
    """Whether an image of this digest is on the host."""
    images = fact(facts, "engine.images") or []
    return any(digest in (image.get("digests") or []) for image in images)


def toolkit_differs(facts: Facts, wanted: Wanted) -> bool:
    """Whether the container toolkit is to be installed: it is wanted, and is not there in the wanted version."""
    said: Mapping[str, Any] = wanted.get("container_toolkit") or {}
    if not said or not has_gpus(facts) or said.get("source") == "preinstalled":
        return False
    found = fact(facts, "container_toolkit.version")
    return found is None or str(said.get("version") or found).partition("-")[0] != found


def _engine(facts: Facts, wanted: Wanted) -> bool:
    installed = fact(facts, "packages.installed") or {}
    if wanted.get("source") == "preinstalled":
        return bool(fact(facts, "engine.responding"))
    names = ENGINES.get(str(wanted.get("source") or "distribution"), ())
    return bool(fact(facts, "engine.responding")) and any(name in installed for name in names)


def _image(facts: Facts, wanted: Wanted) -> bool:
    digest = wanted.get("image_digest")
    return not digest or has_image(facts, str(digest))


def _driver(facts: Facts, wanted: Wanted) -> bool:
    driver = wanted_driver(wanted)
    if driver is None or not has_gpus(facts):
        return True
    library = upstream(str(fact(facts, "driver.library_version") or ""))
    return as_wanted(facts, driver) and library in (None, loaded_version(facts))


def _toolkit(facts: Facts, wanted: Wanted) -> bool:
    return not toolkit_differs(facts, wanted)
