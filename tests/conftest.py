"""Fixtures every test can use: the lab's real hosts, hosts made for one test, a check for leaks.

Tests of the lab are marked ``lab``. Where no lab can be had they are skipped, except under
``./scripts/test``, which sets FLEET_LAB_REQUIRED: there a lab that cannot be had is a failure.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fleet.core.errors import RefusedError
from fleet.lab.definition import HostDefinition, load_definition
from fleet.lab.lab import Lab

# How long one example takes says nothing on a machine that is shared.
settings.register_profile("fleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fleet")

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / "inventories" / "lab.yaml"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def lab_tools() -> None:
    """A machine that can run a lab; skips (or fails, see above) where it cannot."""
    lab = Lab.load(INVENTORY)
    try:
        lab.engine.require()
    except RefusedError as error:
        if os.environ.get("FLEET_LAB_REQUIRED"):
            raise
        pytest.skip(f"no lab: {error.what}")


@pytest.fixture(scope="session")
def lab(lab_tools: None) -> Lab:
    """The lab of ``inventories/lab.yaml``, up. It is left up: the next session starts at once."""
    found = Lab.load(INVENTORY)
    found.up()
    _remove_orphans(found)
    return found


def _remove_orphans(lab: Lab) -> None:
    """Hosts that :func:`lab_host` made for a test process that is no more."""
    for container in lab.engine.names("container", lab.name):
        made_for_a_test = re.search(r"-(extra-(\d+)-\d+)$", container)
        if made_for_a_test and not Path(f"/proc/{made_for_a_test.group(2)}").exists():
            lab.remove_host(made_for_a_test.group(1))


HostFactory = Callable[..., HostDefinition]
LabFactory = Callable[[str, str], Lab]


@pytest.fixture
def lab_host(lab: Lab) -> Iterator[HostFactory]:
    """``lab_host(release="trixie", login="sudo_password", …)``: a host of its own for one test.

    Takes the fields of :class:`HostDefinition`; its name and address are chosen. How fleet reaches it
    is ``connection_variables(lab, host)``. It is removed when the test ends.
    """
    with _hosts_made(lab) as make:
        yield make


@pytest.fixture(scope="module")
def module_host(lab: Lab) -> Iterator[HostFactory]:
    """As ``lab_host``, for hosts that the tests of one module leave as they find them."""
    with _hosts_made(lab) as make:
        yield make


@contextlib.contextmanager
def _hosts_made(lab: Lab) -> Iterator[HostFactory]:
    """A factory of hosts, which are removed in the end."""
    made: list[str] = []

    def make(**fields: Any) -> HostDefinition:
        name = fields.pop("name", None) or f"extra-{os.getpid()}-{next(_numbers)}"
        if fields.get("login", "root") != "root":
            fields.setdefault("user", "ops")
        made.append(name)
        return lab.add_host(HostDefinition(name=name, address="", **fields))

    try:
        yield make
    finally:
        for name in made:
            lab.remove_host(name)


@pytest.fixture(scope="module")
def own_lab(lab_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFactory]:
    """``own_lab("pins", YAML)``: a lab beside the one of inventories/lab.yaml, up, with networks of its own.

    It is taken down after the module's last test, also where it came up half only.
    """
    made: list[Lab] = []

    def make(name: str, inventory: str) -> Lab:
        path = tmp_path_factory.mktemp(name) / f"{name}.yaml"
        path.write_text(inventory)
        made.append(Lab(load_definition(path)))
        made[-1].up()
        return made[-1]

    yield make
    for lab in made:
        lab.down()


@pytest.fixture
def fresh_host(lab: Lab) -> Callable[[str], str]:
    """``fresh_host("gpu01")``: that host of the lab, made anew; its name."""

    def renew(name: str) -> str:
        lab.renew(name)
        return name

    return renew


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves threads or file descriptors behind."""
    gc.collect()
    threads = set(threading.enumerate())
    descriptors = _descriptors()
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=10)  # one that was told to end is given the time to
    left = [thread.name for thread in set(threading.enumerate()) - threads if thread.is_alive()]
    assert not left, f"threads left running: {left}"
    gc.collect()
    opened = {number: target for number, target in _descriptors().items() if number not in descriptors}
    assert not opened, f"file descriptors left open: {opened}"


def _descriptors() -> dict[str, str]:
    """Open file descriptors of this process: {number: what it is}."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that listed the directory
            continue
    return found
