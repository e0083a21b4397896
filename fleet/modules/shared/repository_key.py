"""How the key of a repository is come by: given by the site, or fetched by the host and checked.

The module of a repository knows its publisher's key (the catalogue: address and fingerprint). A site that has a
copy under an address of its own needs to say nothing of keys where the copy is signed as the original and has the
key at the same place. What is fetched is compared on the host with the fingerprint
(:mod:`fleet.agent.package_manager.signing_key`); here nothing is fetched.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from fleet.modules.base import ArgumentProblem, Context, Json

KEYS = ("key", "key_file", "key_url", "key_fingerprint", "trusted")


def key(site: Json, url: str | None, fingerprint: str, context: Context) -> Json | None:
    """``key`` of an ``apt_repository`` step; None for a repository that is taken without a signature.

    ``site`` is the ``repository`` mapping of a task, ``url`` where the key lies below the site's ``base_url`` (None
    where that is not known), ``fingerprint`` that of the publisher's key. Raises ArgumentProblem.
    """
    if site.get("key") or site.get("key_file"):
        wanted = site.get("key_fingerprint") or (None if site.get("trusted") else fingerprint)
        return given({**site, "key_fingerprint": wanted}, context)
    if site.get("trusted") and not site.get("key_url"):
        return None
    address = site.get("key_url") or url
    if address is None:
        message = (
            f"where the key of {site.get('base_url')} is cannot be told from that address; "
            "write key_url or key_file in repository"
        )
        raise ArgumentProblem(message, "repository")
    return {"url": str(address), "fingerprint": bare(str(site.get("key_fingerprint") or fingerprint))}


def given(args: Json, context: Context) -> dict[str, Any] | None:
    """The key of ``key``, ``key_file`` or ``key_url`` as the agent takes it; None where there is none.

    ASCII as it is, binary in base64.
    """
    fingerprint = args.get("key_fingerprint")
    pinned = bare(fingerprint) if fingerprint else None
    content = args.get("key")
    if content is None and args.get("key_file"):
        data = context.read_file(args["key_file"])
        armoured = data.lstrip().startswith(b"-----BEGIN PGP")
        content = data.decode("utf-8", "replace") if armoured else base64.b64encode(data).decode("ascii")
    if content is not None:
        return {"content": content, "fingerprint": pinned}
    if args.get("key_url"):
        return {"url": args["key_url"], "fingerprint": pinned}
    return None


def problems(site: Any, known: tuple[str, ...]) -> list[ArgumentProblem]:
    """What can be told of a ``repository`` mapping while the playbook is read. ``known``: its keys."""
    if not isinstance(site, dict):
        return []
    found = [f"repository has no {name}; it takes {', '.join(known)}" for name in site if name not in known]
    found += [message for _, message in key_problems(site)]
    return [ArgumentProblem(message, "repository") for message in found]


def key_problems(args: Json) -> list[tuple[str, str]]:
    """(argument, message) of what is wrong with keys, in a task or in its ``repository``."""
    found = []
    several = [name for name in ("key", "key_file", "key_url") if args.get(name)]
    if len(several) > 1:
        found.append((several[1], f"give {' or '.join(several)}, not both"))
    url = args.get("key_url")
    if isinstance(url, str) and _written(url) and not re.match(r"https?://[^/\s]", url):
        found.append(("key_url", f"key_url must be an http or https address, not {url}"))
    fingerprint = args.get("key_fingerprint")
    if fingerprint is not None and not isinstance(fingerprint, str):
        found.append(("key_fingerprint", "key_fingerprint must be 40 hex digits in quotes"))
    elif (
        isinstance(fingerprint, str)
        and _written(fingerprint)
        and not re.fullmatch("[0-9A-Fa-f]{40}", bare(fingerprint))
    ):
        found.append(("key_fingerprint", "key_fingerprint must be 40 hex digits"))
    return found


def bare(fingerprint: str) -> str:
    """A fingerprint without what it is grouped with, in capitals."""
    return fingerprint.replace(" ", "").replace(":", "").upper()


def _written(text: str) -> bool:
    return bool(text) and "{{" not in text
