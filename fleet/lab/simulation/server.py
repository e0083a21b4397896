"""The lab's package server: a container that serves the folder that :mod:`.site` makes, and mirrors Debian.

It stands on the networks of the lab as ``packages.lab``, so that a host without the internet can reach
it and nothing else. What it serves lies in the lab's state directory, where a test may change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from fleet.lab.definition import PACKAGES_OCTET, HostDefinition
from fleet.lab.engine import LABEL, wait_until
from fleet.lab.hosts import File, Place
from fleet.lab.simulation import docker_repository, site

HOST = "packages"
_WHERE = "/srv/packages"
_CACHE = "/srv/mirror"
_PROGRAM = Path(__file__).parent / "host/package-server"


def ensure(place: Place, progress: Callable[[str], None]) -> None:
    """Have the site made and served; what is there already stays."""
    folder = place.state.directory / "packages"
    site.build(folder / "www", folder / "keys", folder / "native", progress)
    if systems := place.definition.docker_systems:
        made_from = f"{place.images.base('trixie')} {place.images.base('bookworm')}"
        docker_repository.build(
            folder / "www/docker", folder / "keys", systems, made_from, place.images.download, progress
        )
    name = place.container(HOST)
    existing = place.engine.inspect("container", name)
    if existing is not None and existing["Config"]["Labels"].get(f"{LABEL}.recipe") != recipe(place):
        place.engine.docker("rm", "--force", name)
        existing = None
    if existing is None:
        _create(place)
        progress(f"{HOST}: up at http://{site.NAME}/")
    elif existing["State"]["Status"] != "running":
        place.engine.docker("start", name)
    probe = "import urllib.request as u; u.urlopen('http://127.0.0.1/kernels/InRelease')"
    wait_until(
        lambda: place.engine.docker("exec", name, "python3", "-c", probe, check=False).returncode == 0,
        "it answers",
        host=HOST,
    )


def recipe(place: Place) -> str:
    """What the server's container is made from."""
    program = hashlib.sha256(_PROGRAM.read_bytes()).hexdigest()[:12]
    return f"{place.images.host(_server())} {' '.join(_command(place))} {program}"


def _server() -> HostDefinition:
    """The plainest host's image has what it takes: a Python."""
    return HostDefinition(HOST, "")


def _command(place: Place) -> tuple[str, ...]:
    machine = place.images.machine
    mirrors = (f"debian={machine.mirror}", f"debian-security={machine.security}")
    return ("/usr/lib/fleet-lab/package-server", _WHERE, _CACHE, *mirrors)


def requests(place: Place) -> list[str]:
    """What was fetched from elsewhere through this server: ``mirror ADDRESS URL`` and ``proxy ADDRESS URL`` lines."""
    done = place.engine.docker("exec", place.container(HOST), "cat", f"{_CACHE}/log", check=False)
    return done.stdout.splitlines()


def _create(place: Place) -> None:
    engine, definition, name = place.engine, place.definition, place.container(HOST)
    place.images.build([_server()], registry=False)
    options = ["--name", name, "--hostname", HOST, "--restart", "unless-stopped", "--stop-signal", "KILL"]
    options += ["--network", place.network("outer"), "--ip", str(definition.outer[PACKAGES_OCTET])]
    options += ["--volume", f"{place.state.directory}/packages/www:{_WHERE}:ro"]
    options += place.labels(HOST, recipe(place))
    engine.docker("create", *options, place.images.host(_server()), *_command(place))
    place.put(name, {"usr/lib/fleet-lab/package-server": File(_PROGRAM.read_text(), 0o755)})
    if definition.bastion or definition.registry:
        inner = str(definition.inner[PACKAGES_OCTET])
        engine.docker("network", "connect", "--ip", inner, place.network("inner"), name)
    engine.docker("start", name)
