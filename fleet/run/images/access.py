"""How a registry may be asked: what the inventory says of it, for one host.

The same variables that ``fleet provision`` reads: ``registry`` with ``registry_username``, ``registry_password`` and
``registry_ca_file``, ``public_internet``, and of ``docker_engine_settings`` ``insecure-registries`` and
``registry-mirrors``, with the meaning that Docker gives them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.catalogue.references import Reference
from fleet.core.errors import InputError
from fleet.core.secret import Secret
from fleet.inventory import Host

#: Where Docker Hub's registry answers.
DOCKER_HUB = "registry-1.docker.io"


@dataclass(frozen=True)
class Endpoint:
    """One address to ask. ``verify``: its certificate. ``own``: whether the inventory's credentials are for it."""

    url: str
    verify: bool = True
    own: bool = False
    mirror: bool = False


@dataclass(frozen=True)
class Access:
    """What is declared. ``registry`` is the one that user, password and authority are for."""

    registry: str | None = None
    username: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    insecure: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    public_internet: bool = True

    def endpoints(self, named: Reference) -> list[Endpoint]:
        """Where to ask for an image, in this order: the next one where one does not have it, or does not answer.

        Raises InputError where ``public_internet: false`` leaves none.
        """
        registry = named.registry
        if not registry:
            found = [self._endpoint(mirror, mirror=True) for mirror in self.mirrors]
            found += (
                [Endpoint(f"https://{DOCKER_HUB}", own=self._is_own("docker.io"))]
                if self.public_internet
                else []
            )
        elif self._insecure(registry):
            own = self._is_own(registry)
            found = [
                Endpoint(f"{scheme}://{registry}", verify=False, own=own) for scheme in ("https", "http")
            ]
        elif self.public_internet or self._is_own(registry):
            found = [Endpoint(f"https://{registry}", own=self._is_own(registry))]
        else:
            found = []
        if not found:
            raise InputError(
                f"{named}: {registry or 'Docker Hub'} is not asked, because public_internet is false",
                remedy="name the site's own: registry, or registry-mirrors in docker_engine_settings",
            )
        return found

    def _endpoint(self, url: str, *, mirror: bool = False) -> Endpoint:
        """An address as ``registry-mirrors`` has it: with its scheme, perhaps with a path."""
        if not url.startswith(("http://", "https://")):
            raise InputError(
                f"{url!r} of registry-mirrors has no http:// or https:// before it",
                remedy="write it as for Docker: https://mirror.example.net",
            )
        place = url.partition("//")[2].rstrip("/")
        return Endpoint(
            url.rstrip("/"), not self._insecure(place.partition("/")[0]), self._is_own(place), mirror=mirror
        )

    def _is_own(self, registry: str) -> bool:
        names = {"docker.io", "index.docker.io", DOCKER_HUB}
        own = (self.registry or "").removeprefix("https://").rstrip("/").removesuffix("/v1")
        return bool(own) and (own == registry or {own, registry} <= names)

    def _insecure(self, registry: str) -> bool:
        """Declared to be without certificate, or on this machine itself: Docker trusts that, too."""
        name = registry.rpartition(":")[0] if ":" in registry and not registry.endswith("]") else registry
        if registry in self.insecure or name in self.insecure or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or any(address in net for net in _networks(self.insecure))


def _networks(names: tuple[str, ...]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for name in names:
        if "/" in name:
            try:
                found.append(ipaddress.ip_network(name, strict=False))
            except ValueError:
                continue  # what it is, Docker will say
    return found


def access_of(host: Host) -> Access:
    """What the inventory says for this host. Raises InputError for what is of another kind."""

    def said(name: str) -> Any:
        value = host.variables.get(name)
        return host.templar.render(value) if value is not None else None

    settings = said("docker_engine_settings") or {}
    if not isinstance(settings, Mapping):
        raise InputError(f"{host.name}: docker_engine_settings is no mapping", remedy="keys of daemon.json")
    password = said("registry_password")
    ca_file = said("registry_ca_file")
    username = said("registry_username")
    return Access(
        registry=_text(said("registry")),
        username=username.reveal() if isinstance(username, Secret) else _text(username),
        password=password
        if isinstance(password, Secret) or password is None
        else Secret(str(password), "registry"),
        ca_file=Path(str(ca_file)) if ca_file else None,
        insecure=_texts(settings.get("insecure-registries")),
        mirrors=_texts(settings.get("registry-mirrors")),
        public_internet=said("public_internet") is not False,
    )


def _text(value: Any) -> str | None:
    """A text; docs/inventory.md also shows ``registry`` as a site's own mapping, which is none of fleet's."""
    return str(value) if value and not isinstance(value, (Mapping, list)) else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
