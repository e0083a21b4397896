"""An image in a registry, looked into without pulling it: manifest and configuration, a few kilobytes.

Every byte is held against the digest that names it. What is asked of whom is in :mod:`.access`, how in :mod:`.http`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fleet.catalogue.references import Reference
from fleet.core.errors import ImageError, ImageNotFound, RegistryUnreachable
from fleet.run.images.access import Access
from fleet.run.images.http import Answer, Registry

Json = Mapping[str, Any]
T = TypeVar("T")

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))
#: Of an image for several processors: the first of these that it has.
ARCHITECTURES = ("amd64", "arm64")


@dataclass(frozen=True)
class Seen:
    """What a registry has. ``digest`` is what the reference means, ``manifest`` that of the one processor looked at.

    ``configuration`` is the image's: ``config`` with ``Env`` and ``Labels``, ``architecture``.
    """

    place: str
    digest: str
    manifest: str
    configuration: Json


class Source:
    """One image by its reference, at the first endpoint that has it."""

    def __init__(self, named: Reference, access: Access) -> None:
        self.named = named
        self._registries = [Registry(endpoint, access) for endpoint in access.endpoints(named)]

    def digest(self) -> str:
        """What the reference means now, without counting as a pull; the digest itself where it has one."""
        if self.named.digest is not None:
            return self.named.digest
        return self._first(self._digest)

    def look(self) -> Seen:
        """Manifest and configuration. Raises ImageError."""
        return self._first(self._look)

    def _first(self, ask: Callable[[Registry], T]) -> T:
        """The first answer; where none has the image, the last registry's own word on it."""
        errors: list[ImageError] = []
        for registry in self._registries:
            try:
                return ask(registry)
            except ImageError as error:
                errors.append(error)
                if not registry.endpoint.mirror and not isinstance(error, RegistryUnreachable):
                    break  # it has answered: what is left is the same registry, by plain HTTP
        raise _worst(errors, self._registries)

    def _digest(self, registry: Registry) -> str:
        answer = registry.get(self._path("manifests", self._version), ACCEPT, method="HEAD")
        told = answer.headers.get("docker-content-digest", "")
        if answer.status == 200 and told.startswith("sha256:"):
            return told
        return digest_of(self._manifest(registry, self._version).body)

    def _look(self, registry: Registry) -> Seen:
        answer = self._manifest(registry, self._version)
        digest = digest_of(answer.body)
        self._hold(registry, answer.body, self.named.digest)
        manifest, document = digest, _object(registry, answer)
        if "manifests" in document:
            manifest = self._one_of(registry, document)
            answer = self._manifest(registry, manifest)
            self._hold(registry, answer.body, manifest)
            document = _object(registry, answer)
        told = document.get("config")
        if not isinstance(told, Mapping) or not isinstance(told.get("digest"), str):
            raise ImageError(
                f"{self.named} in {registry.place} has a manifest of an old kind, without a configuration",
                remedy="push it again with a current Docker, or let a host that has it look",
            )
        blob = self._got(registry, self._path("blobs", told["digest"]), "*/*")
        self._hold(registry, blob.body, told["digest"])
        return Seen(registry.place, digest, manifest, _object(registry, blob))

    @property
    def _version(self) -> str:
        return self.named.digest or self.named.tag or "latest"

    def _path(self, kind: str, name: str) -> str:
        repository = self.named.repository
        if not self.named.registry and "/" not in repository:
            repository = f"library/{repository}"
        return f"{repository}/{kind}/{name}"

    def _manifest(self, registry: Registry, version: str) -> Answer:
        return self._got(registry, self._path("manifests", version), ACCEPT)

    def _got(self, registry: Registry, path: str, accept: str) -> Answer:
        answer = registry.get(path, accept)
        if answer.status == 404:
            raise ImageNotFound(
                f"{registry.place} has no {self.named} ({answer.words()})",
                remedy="check its name and tag, or digest, against where it was pushed",
            )
        if answer.status != 200:
            raise RegistryUnreachable(
                f"{registry.place} does not answer as an image registry: {answer.words()}",
                remedy="check the registry's name and port",
            )
        return answer

    def _one_of(self, registry: Registry, index: Json) -> str:
        """The manifest of the processor to look at. Attestations stand beside, for no processor."""
        there: dict[str, str] = {}
        for one in index["manifests"] if isinstance(index["manifests"], list) else ():
            platform = one.get("platform") if isinstance(one, Mapping) else None
            if isinstance(platform, Mapping) and platform.get("os") == "linux":
                there.setdefault(str(platform.get("architecture")), str(one.get("digest")))
        found = next((there[name] for name in ARCHITECTURES if name in there), None)
        if found is None:
            raise ImageNotFound(
                f"{self.named} in {registry.place} is for {', '.join(sorted(there)) or 'nothing that is Linux'},"
                " and not for x86-64 or aarch64",
                remedy="name an image for the hosts' processors",
            )
        return found

    def _hold(self, registry: Registry, body: bytes, wanted: str | None) -> None:
        if wanted is not None and digest_of(body) != wanted:
            raise ImageError(
                f"what {registry.place} gives as {wanted} of {self.named} has another digest, {digest_of(body)}",
                remedy="it is not what was asked for: look at the registry, and at proxies on the way",
            )


def digest_of(body: bytes) -> str:
    """``sha256:`` and the hash of the bytes."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _object(registry: Registry, answer: Answer) -> Json:
    document = answer.document()
    if not isinstance(document, Mapping):
        raise RegistryUnreachable(
            f"{registry.place} does not answer as an image registry: no JSON object",
            remedy="check the registry's name and port, and proxies on the way",
        )
    return document


def _worst(errors: list[ImageError], registries: list[Registry]) -> ImageError:
    """The error that says most: the origin's, or why the first way of two to the same registry failed."""
    told = [one for one in errors if not isinstance(one, RegistryUnreachable)] or errors[-1:]
    error = told[-1]
    mirrors = [one.place for one in registries[: len(errors)] if one.endpoint.mirror]
    if mirrors and not registries[len(errors) - 1].endpoint.mirror:
        error.what = f"{error.what}; nor is it to be had from the mirror {', '.join(mirrors)}"
    return error
