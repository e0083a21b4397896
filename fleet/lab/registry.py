"""The lab's image registry: TLS by the lab's own authority, login required, two images in it.

Hosts reach it as ``registry.lab:5000``; this machine through a loopback port, to push what a test
wants there.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import bcrypt

from fleet.lab.definition import REGISTRY_NAME, REGISTRY_OCTET, REGISTRY_PORT
from fleet.lab.engine import wait_until
from fleet.lab.hosts import File, Place
from fleet.lab.images import REGISTRY_CONFIG, http_answers, push

HOST = "registry"
USER = "lab"
PASSWORD_FILE = "registry_password"  # noqa: S105 - the name of a file

_CONFIG = f"""\
version: 0.1
storage:
  filesystem: {{rootdirectory: /srv/registry}}
  delete: {{enabled: true}}
auth:
  htpasswd: {{realm: fleet lab, path: /etc/docker/registry/htpasswd}}
http:
  addr: ":{REGISTRY_PORT}"
  tls: {{certificate: /etc/docker/registry/registry.crt, key: /etc/docker/registry/registry.key}}
"""


def recipe(place: Place) -> str:
    """What the registry's container is made from."""
    return f"{place.images.registry()} {_CONFIG}"


def create(place: Place) -> None:
    """Create and start the registry on both networks of the lab."""
    engine, definition, name = place.engine, place.definition, place.container(HOST)
    options = ["--name", name, "--hostname", HOST, "--restart", "unless-stopped"]
    options += ["--network", place.network("outer"), "--ip", str(definition.outer[REGISTRY_OCTET])]
    options += ["--publish", f"127.0.0.1::{REGISTRY_PORT}", *place.labels(HOST, recipe(place))]
    engine.docker("create", *options, place.images.registry())
    inner = str(definition.inner[REGISTRY_OCTET])
    engine.docker("network", "connect", "--ip", inner, place.network("inner"), name)
    password = place.state.password(PASSWORD_FILE)
    certificates = place.state.certificates()
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(5)).decode()
    folder = REGISTRY_CONFIG.rpartition("/")[0].lstrip("/")
    files = {
        REGISTRY_CONFIG.lstrip("/"): File(_CONFIG),
        f"{folder}/htpasswd": File(f"{USER}:{hashed}\n", 0o600),
        f"{folder}/registry.crt": File(certificates["registry.crt"]),
        f"{folder}/registry.key": File(certificates["registry.key"], 0o600),
    }
    place.put(name, files)
    engine.docker("start", name)


def loopback_address(place: Place) -> str:
    """``127.0.0.1:PORT``, where this machine reaches the registry."""
    return place.engine.docker("port", place.container(HOST), f"{REGISTRY_PORT}/tcp").stdout.split()[0]


def wait_until_answers(place: Place) -> None:
    """Wait for the registry's first answer."""
    address = loopback_address(place)
    wait_until(lambda: http_answers(address, tls=True), "it answers", host=HOST)


def push_image(place: Place, local: str, name: str) -> str:
    """Push the local image ``local`` as ``registry.lab:5000/NAME``; its digest there."""
    address = loopback_address(place)
    credentials = f"{USER}:{place.state.password(PASSWORD_FILE)}".encode()
    login = {"auths": {address: {"auth": base64.b64encode(credentials).decode()}}}
    place.state.write("docker/config.json", json.dumps(login))
    return push(place.engine, local, f"{address}/{name}", Path(place.state.directory / "docker"))


def reference(name: str) -> str:
    """``pytorch-cuda:2.7-lab`` as hosts call it."""
    return f"{REGISTRY_NAME}:{REGISTRY_PORT}/{name}"
