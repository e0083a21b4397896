"""``image``: a container image in the local engine, pinned by digest or, less surely, by tag.

Pulled by digest and then tagged, so that a moved tag changes nothing. Credentials travel in a request
header and are never stored. The client is :mod:`fleet.agent.engine`.
"""

from __future__ import annotations

from fleet.agent import image_reference
from fleet.agent.engine import Engine, EngineCancelled, EngineError, EngineUnavailable
from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Resource,
    StepCancelled,
    StepFailed,
    difference,
)
from fleet.agent.resources.package import ENGINE_PACKAGES

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


PULL_DEADLINE_S = 3600.0


class Image(Resource):
    """See the module. ``args``: CONTRACT §2, plus ``pull_deadline_s``."""

    kind = "image"

    def read(self, host: Host, args: Json) -> Json:
        """{"tagged": id or None, "pinned": id of the image with the wanted digest or None, "digests"}."""
        reference, digest = wanted(args)
        try:
            tagged = host.docker.image(reference)
            pinned = None
            if digest is not None:
                if tagged is not None and has_digest(tagged, reference, digest):
                    pinned = tagged
                else:
                    name = image_reference.split_version(reference)[0]
                    pinned = host.docker.image("%s@%s" % (name, digest))
        except EngineError as error:
            raise engine_failure(error, "cannot ask for the image %s" % reference) from None
        return {
            "tagged": None if tagged is None else tagged["Id"],
            "pinned": None if pinned is None else pinned["Id"],
            "digests": [] if tagged is None else list(tagged.get("RepoDigests") or []),
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        reference, digest = wanted(args)
        if args.get("state", "present") == "absent":
            return [] if state["tagged"] is None else [difference(reference, state["tagged"], None)]
        before = ", ".join(state["digests"]) or state["tagged"]
        if digest is None:
            if state["tagged"] is not None:
                return []
            return [difference(reference, None, "%s (digest not pinned)" % reference)]
        if state["pinned"] is None:
            return [difference(reference, before, "%s@%s" % (reference, digest))]
        if state["tagged"] != state["pinned"]:
            return [difference("%s tag" % reference, before, digest)]
        return []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        reference, digest = wanted(args)
        docker: Engine = host.docker
        try:
            if args.get("state", "present") == "absent":
                docker.remove_image(reference)
                return None
            if self.read(host, args)["pinned"] is None:
                self._pull(host, args, report)
            if digest is not None:
                docker.tag("%s@%s" % (image_reference.split_version(reference)[0], digest), reference)
            image = docker.image(reference)
        except EngineCancelled:
            raise StepCancelled("pulling %s was cancelled" % reference) from None
        except EngineError as error:
            raise engine_failure(error, "image %s" % reference) from None
        return {"registered": {"id": (image or {}).get("Id"), "digest": digest, "pinned": digest is not None}}

    def _pull(self, host: Host, args: Json, report: Reporter) -> None:
        reference, digest = wanted(args)
        name = image_reference.split_version(reference)[0]
        source = reference if digest is None else "%s@%s" % (name, digest)
        auth = credentials(host, args)
        progress = PullProgress(report.progress)
        try:
            host.docker.pull(
                source,
                auth,
                deadline_s=float(args.get("pull_deadline_s") or PULL_DEADLINE_S),
                on_event=progress.event,
                cancelled=host.cancelled,
            )
        except EngineCancelled:
            raise
        except EngineError as error:
            raise pull_failure(error, host, args) from None
        if digest is not None:
            pulled = host.docker.image(source)
            if pulled is None or not has_digest(pulled, reference, digest):
                raise StepFailed(
                    "the registry sent another image than %s" % source,
                    "do not use this registry until that is explained; the pinned digest is right",
                )

    def provides(self, args: Json) -> Provides:
        return Provides() if args.get("state") == "absent" else Provides(images=[wanted(args)[0]])

    def requires(self, args: Json) -> Provides:
        return Provides(engine=True)

    def forecast(self, args: Json, provided: Provides) -> str:
        """An engine that is only now being installed has no images; one being started may have them."""
        new = any(provided.contains("packages", name) for name in ENGINE_PACKAGES)
        return WOULD_CHANGE if new and args.get("state", "present") != "absent" else KNOWN_AFTER_APPLY


def wanted(args: Json) -> Tuple[str, Optional[str]]:
    """(``name:tag``, digest or None). A digest inside the reference counts too."""
    name, separator, version = image_reference.split_version(args["reference"])
    digest = args.get("digest") or (version if separator == "@" else None)
    if separator != "@":
        return "%s:%s" % (name, version or "latest"), digest
    tagged = args["reference"].partition("@")[0]
    tag = image_reference.split_version(tagged)[2]
    return "%s:%s" % (name, tag or "latest"), digest


def has_digest(image: Json, reference: str, digest: str) -> bool:
    """Whether the local image was pulled as ``reference``'s repository at ``digest``."""
    name = image_reference.canonical_name(reference)
    for known in image.get("RepoDigests") or []:
        repository, _, found = known.partition("@")
        if found == digest and image_reference.canonical_name(repository) == name:
            return True
    return False


def credentials(host: Host, args: Json) -> Optional[Json]:
    auth = args.get("auth")
    if not auth:
        return None
    return {"username": host.secret(auth["username"]), "password": host.secret(auth["password"])}


class PullProgress:
    """Adds up the layers' progress: "812 MB of 1.2 GB". Says something at most for every percent."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._layers: Dict[str, Tuple[int, int]] = {}
        self._said: Tuple[str, int] = ("", -1)

    def event(self, event: Json) -> None:
        status, layer = event.get("status"), event.get("id")
        detail = event.get("progressDetail") or {}
        if not isinstance(layer, str):
            return
        if status == "Downloading" and isinstance(detail.get("total"), int):
            self._layers[layer] = (int(detail.get("current") or 0), detail["total"])
            self._tell("downloading")
        elif status in ("Download complete", "Pull complete") and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
            self._tell("downloading" if status == "Download complete" else "unpacking")

    def _tell(self, verb: str) -> None:
        done = sum(current for current, _ in self._layers.values())
        total = sum(size for _, size in self._layers.values())
        step = (verb, done * 100 // max(1, total))
        if step != self._said:
            self._said = step
            self._say("%s %s of %s" % (verb, size_text(done), size_text(total)))


def size_text(size: int) -> str:
    """Bytes in decimal units, as registries and docker print them: "812 MB", "1.2 GB"."""
    if size >= 1000**3:
        return "%.1f GB" % (size / 1000**3)
    return "%d MB" % (size // 1000**2) if size >= 1000**2 else "%d kB" % (size // 1000)


def engine_failure(error: EngineError, doing: str) -> StepFailed:
    """A StepFailed for an engine that does not answer or refuses."""
    if isinstance(error, EngineUnavailable):
        remedy = "systemctl status docker  # start it, or install it with the docker_engine module"
        if error.reason == "permission":
            remedy = "run this step as root"
        return StepFailed("%s: %s" % (doing, error.message), remedy)
    return StepFailed("%s: the engine says: %s" % (doing, error.message), "journalctl -u docker -n 50")


def pull_failure(error: EngineError, host: Host, args: Json) -> StepFailed:
    """What a failed pull means, and what to do about it."""
    reference, digest = wanted(args)
    registry = image_reference.registry_of(reference)
    text = error.message.lower()
    if isinstance(error, EngineUnavailable):
        return engine_failure(error, "pulling %s" % reference)
    if (
        "manifest unknown" in text
        or "manifest for" in text
        or "not found: manifest" in text
        or ("not found" in text and registry in text)
    ):
        return _not_in_registry(host, args)
    if "no space left on device" in text or "disk quota exceeded" in text:
        return _disk_full(host, reference)
    for signs, what, remedy in _pull_faults(registry):
        if any(sign in text for sign in signs):
            return StepFailed("pulling %s: %s" % (reference, what), remedy)
    pinned = "%s@%s" % (reference, digest) if digest else reference
    return StepFailed("pulling %s: %s" % (pinned, error.message), "docker pull %s  # on the host" % pinned)


def _pull_faults(registry: str) -> List[Tuple[Tuple[str, ...], str, str]]:
    return [
        (
            (
                "x509: certificate signed by unknown authority",
                "certificate is not trusted",
                "unknown authority",
            ),
            "the engine does not trust the certificate of %s" % registry,
            "put the registry's CA at /etc/docker/certs.d/%s/ca.crt" % registry,
        ),
        (
            ("x509:", "tls: failed to verify"),
            "the certificate of %s is not acceptable" % registry,
            "check the host's clock and the certificate's names: openssl s_client -connect %s" % registry,
        ),
        (
            ("server gave http response to https client",),
            "%s speaks plain HTTP" % registry,
            "give the registry TLS, or list it under insecure-registries in /etc/docker/daemon.json",
        ),
        (
            ("toomanyrequests", "too many requests", "rate limit"),
            "%s limits the number of pulls" % registry,
            "log in (auth), or pull from a mirror of your own; the limit ends by itself after some hours",
        ),
        (
            (
                "unauthorized",
                "access denied",
                "denied:",
                "no basic auth credentials",
                "authentication required",
            ),
            "%s refuses these credentials (or has no such repository)" % registry,
            "check the username and password of `auth`, and that they may read this repository",
        ),
        (
            (
                "no such host",
                "i/o timeout",
                "connection refused",
                "network is unreachable",
                "deadline exceeded",
            ),
            "%s cannot be reached from this host" % registry,
            "check DNS, proxy (the engine's own: docker info) and firewall",
        ),
    ]


def _disk_full(host: Host, reference: str) -> StepFailed:
    """The engine itself takes away what it had unpacked of this image; other images are not ours to remove."""
    import os

    path = _store(host)
    what = "disk_full: pulling %s filled %s, where the engine stores images" % (reference, path)
    remedy = "df -h %s; docker system df  # make room there" % path
    try:
        room = os.statvfs(host.path(path))
        on_root = os.stat(host.path(path)).st_dev == os.stat(host.path("/")).st_dev
    except OSError:
        return StepFailed(what, remedy)
    what += " (%s free now)" % size_text(room.f_bavail * room.f_frsize)
    if room.f_files and not room.f_favail:
        what, remedy = what + ", which has no inodes left", "df -i %s  # many small files take them" % path
    if on_root:
        what += "; it is part of /, so that packages and logs lack room as well"
    return StepFailed(what, remedy + "; or set data-root in docker_engine_settings to a larger disk")


def _store(host: Host) -> str:
    """Where the engine stores images: by its own word, else by daemon.json."""
    from fleet.agent.facts import engine as facts

    try:
        told = facts.from_answers({}, host.docker.info())["image_store_dir"]
    except EngineError:
        told = None
    return str(told or facts.configured_store(facts.read_daemon_json(host)))


def _not_in_registry(host: Host, args: Json) -> StepFailed:
    """The digest or tag is not there: say what the registry has for the tag, if it will tell."""
    reference, digest = wanted(args)
    try:
        answer = host.docker.distribution(reference, credentials(host, args))
        has = answer.get("Descriptor", {}).get("digest")
    except EngineError:
        has = None
    if digest is None:
        what = "the registry has no %s" % reference
        return StepFailed(what, "check the name and tag; docker manifest inspect %s" % reference)
    what = "the registry has no %s with digest %s" % (reference, digest)
    if has:
        what += "; its %s is %s" % (reference, has)
        return StepFailed(what, "pin that digest if it is the image you mean, or push the pinned one again")
    return StepFailed(what, "check the digest against where the image was built")


RESOURCE = Image()
