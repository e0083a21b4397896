"""Names of container images, taken apart: registry, repository, tag, digest. Reads nothing and knows no image."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.core.errors import InputError

#: Docker's own registry under every name it goes by; a reference without one means it.
DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")

_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.?)+(?::[0-9]{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Reference:
    """One reference. ``registry`` is empty for Docker Hub; ``tag`` is None where only a digest was given."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository

    @property
    def moves(self) -> bool:
        """Whether it is another image tomorrow: ``latest``, and no digest that would pin it."""
        return self.tag == "latest" and self.digest is None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """``[REGISTRY/]REPOSITORY[:TAG][@sha256:…]``; no tag and no digest mean ``latest``, as for Docker.

        Raises InputError for what no registry would take.
        """
        rest, at, digest = text.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise _bad(text, f"{digest!r} is not sha256: and 64 hex digits")
        head, slash, last = rest.rpartition("/")
        last, colon, tag = last.partition(":")
        if colon and not _TAG.fullmatch(tag):
            raise _bad(text, f"{tag!r} is not a tag")
        registry, repository = _split(f"{head}{slash}{last}")
        if registry and not _REGISTRY.fullmatch(registry):
            raise _bad(text, f"{registry!r} is not a registry")
        for part in repository.split("/"):
            if not _PART.fullmatch(part):
                raise _bad(text, f"{part!r} is not a part of a repository's name: lower case, digits, . _ -")
        return cls(registry, repository, tag or (None if digest else "latest"), digest or None)


def _split(name: str) -> tuple[str, str]:
    """Registry and repository: the first part is a registry where it has a dot or a port, or is localhost."""
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        return "", name.removeprefix("library/")
    if first.lower() in DOCKER_HUB:
        return "", rest.removeprefix("library/")
    return first, rest


def _bad(text: str, why: str) -> InputError:
    return InputError(
        f"{text!r} is not the name of an image: {why}",
        remedy="[REGISTRY/]REPOSITORY[:TAG][@sha256:...], such as pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime",
    )
