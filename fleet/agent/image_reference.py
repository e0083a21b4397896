"""References of container images, and credentials for their registries, in the engine's own formats."""

from __future__ import annotations

import base64
import json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Tuple

    from fleet.agent.protocol import Json


def split_version(reference: str) -> Tuple[str, str, str]:
    """("registry/name", "@" or ":" or "", digest or tag or ""). A tag before a digest is dropped."""
    name, at, digest = reference.partition("@")
    head, colon, tag = name.rpartition(":")
    has_tag = bool(colon) and "/" not in tag
    if at:
        return (head if has_tag else name), "@", digest
    return (head, ":", tag) if has_tag else (name, "", "")


def registry_of(reference: str) -> str:
    """The registry a reference is pulled from; "docker.io" when it names none."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return "docker.io"


def canonical_name(reference: str) -> str:
    """The repository in full, for comparing: ``torch`` -> ``docker.io/library/torch``."""
    name = split_version(reference)[0]
    if registry_of(name) != "docker.io":
        return name
    name = name[len("docker.io/") :] if name.startswith("docker.io/") else name
    return "docker.io/" + (name if "/" in name else "library/" + name)


def registry_auth(reference: str, auth: Json) -> str:
    """The X-Registry-Auth header: base64url of JSON."""
    registry = registry_of(reference)
    server = "https://index.docker.io/v1/" if registry == "docker.io" else registry
    body = {"username": auth["username"], "password": auth["password"], "serveraddress": server}
    return base64.urlsafe_b64encode(json.dumps(body).encode("utf-8")).decode("ascii")
