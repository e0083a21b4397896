"""Questions answered before a plan is made: pure reads with arguments (docs/protocol.md, ``query``).

``package_versions`` asks a *private* apt root made under the runtime directory: repositories that are not
configured yet can be asked what they offer, and nothing of the host's own apt changes.
"""

from __future__ import annotations

import os

from fleet.agent.protocol import Json
from fleet.agent.resources.base import Silent, StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host


CONTENT_LIMIT = 1 << 20
HASH_LIMIT = 256 << 20

# What packages hang on "apt-get update" (packagekit, command-not-found …) has no business with a private root.
UPDATE_HOOKS = ("APT::Update::Pre-Invoke", "APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success")


def answer(host: Host, queries: List[Json]) -> Dict[str, Json]:
    """query id -> {"ok": true, "value"} or {"ok": false, "error"}; one failure does not spoil the others."""
    answers: Dict[str, Json] = {}
    for query in queries:
        try:
            answers[query["id"]] = {"ok": True, "value": _answer(host, query)}
        except StepFailed as error:
            failure: Json = {"ok": False, "error": error.what}
            if error.remedy:
                failure["remedy"] = error.remedy
            answers[query["id"]] = failure
        except OSError as error:
            answers[query["id"]] = {"ok": False, "error": str(error)}
    return answers


def _answer(host: Host, query: Json) -> Any:
    kind = query["kind"]
    if kind == "package_versions":
        proxies = query.get("proxies")
        return package_versions(host, query["names"], query.get("repositories") or [], proxies)
    if kind == "path":
        return path(host, query["path"])
    if kind == "file_is":
        return file_is(host, query["path"], query["content"])
    if kind == "file_content":
        return file_content(host, query["path"], int(query.get("limit") or CONTENT_LIMIT))
    if kind == "registry_digest":
        return registry_digest(host, query)
    if kind == "image_configuration":
        return image_configuration(host, query["reference"])
    raise StepFailed("unknown kind of query %r" % kind, "use a controller of this agent's version")


# --- files


def path(host: Host, name: str) -> Json:
    """{"exists", "kind", "mode", "owner", "group", "size", "sha256"}; sha256 of regular files to 256 MiB."""
    import stat

    real = host.path(name)
    try:
        status = os.lstat(real)
    except (FileNotFoundError, NotADirectoryError):
        nothing = dict.fromkeys(("kind", "mode", "owner", "group", "size", "sha256"))
        return dict(nothing, exists=False)
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((word for test, word in kinds if test(status.st_mode)), "other")
    return {
        "exists": True,
        "kind": kind,
        "mode": "%04o" % stat.S_IMODE(status.st_mode),
        "owner": host.user_name(status.st_uid),
        "group": host.group_name(status.st_gid),
        "size": status.st_size,
        "sha256": _sha256(real) if kind == "file" and status.st_size <= HASH_LIMIT else None,
    }


def file_is(host: Host, name: str, content: Any) -> Json:
    """{"same"}: whether the file holds this text, a secret perhaps. False, too, where there is no file."""
    from fleet.agent.files import read_bytes

    return {"same": read_bytes(host, name) == str(host.secret(content)).encode("utf-8", "surrogateescape")}


def _sha256(real: str) -> str:
    import hashlib

    digest = hashlib.sha256()
    with open(real, "rb") as stream:
        while True:
            piece = stream.read(1 << 20)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)


def file_content(host: Host, name: str, limit: int) -> Json:
    """{"exists", "content", "truncated"}; undecodable bytes come as surrogate escapes."""
    try:
        with open(host.path(name), "rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        return {"exists": False, "content": None, "truncated": False}
    text = data[:limit].decode("utf-8", "surrogateescape")
    return {"exists": True, "content": text, "truncated": len(data) > limit}


# --- registries


def registry_digest(host: Host, query: Json) -> Json:
    """{"digest"} that the registry has for a reference, asked through the engine; null with a reason when
    there is no engine to ask. The engine's own trust is used, so ``ca`` must be in /etc/docker/certs.d."""
    from fleet.agent.engine import EngineError, EngineUnavailable
    from fleet.agent.resources.image import credentials, pull_failure

    try:
        found = host.docker.distribution(query["reference"], credentials(host, query))
    except EngineUnavailable as error:
        return {"digest": None, "digest_reason": "not_supported", "message": error.message}
    except EngineError as error:
        raise pull_failure(error, host, query) from None
    return {"digest": (found.get("Descriptor") or {}).get("digest")}


# What build files of CUDA images leave in the environment; the rest of it is the image's own business.
IMAGE_VARIABLES = ("CUDA_", "CUDNN_", "NCCL_", "NVIDIA_", "NV_", "PYTORCH_", "_CUDA_COMPAT_")
IMAGE_LABELS = ("org.opencontainers.image.ref.name", "org.opencontainers.image.version")


def image_configuration(host: Host, reference: str) -> Json:
    """What the engine has by this name, without starting it: {"exists", "id", "digests" it was pulled by,
    "architecture", "environment" and "labels" that speak of CUDA}."""
    from fleet.agent.engine import EngineError
    from fleet.agent.resources.image import engine_failure

    try:
        found = host.docker.image(reference)
    except EngineError as error:
        raise engine_failure(error, "cannot ask for the image %s" % reference) from None
    if found is None:
        return {"exists": False}
    said = found.get("Config") or {}
    labels = said.get("Labels") or {}
    return {
        "exists": True,
        "id": found.get("Id"),
        "digests": sorted({str(name).partition("@")[2] for name in found.get("RepoDigests") or []}),
        "architecture": found.get("Architecture"),
        "environment": [text for text in said.get("Env") or [] if text.startswith(IMAGE_VARIABLES)],
        "labels": {name: labels[name] for name in IMAGE_LABELS if name in labels},
    }


# --- packages


def package_versions(
    host: Host, names: List[str], repositories: List[Json], proxies: Optional[Json] = None
) -> Dict[str, List[str]]:
    """name -> versions offered, newest first; [] for a name that nobody offers.

    With ``repositories`` (arguments of ``apt_repository``) only those are asked; without, the host's own
    sources: its lists as they are when at most a day old and they have every name, else refreshed privately.
    ``proxies``: ``http``, ``https``, ``no_proxy``, in place of what the host's own apt is set to.
    """
    from fleet.agent.facts import packages as facts

    manager = facts.manager_of(host)
    if manager != "apt":
        raise StepFailed(
            "the versions that a repository offers can only be asked of apt, and this host has %s"
            % (manager or "no package manager"),
            "leave the version open, or use a Debian or Ubuntu host",
        )
    if not repositories:
        import time

        age = facts.lists_age_s(host, time.time())
        if age is not None and age <= 24 * 3600:
            found = _versions(host, names, [])
            if all(found.values()):  # else they may be those of some sources only
                return found
    with PrivateApt(host) as private:
        if proxies:
            private.go_through(proxies, repositories)
        private.configure(repositories)
        private.refresh()
        return _versions(host, names, private.options())


def _versions(host: Host, names: List[str], options: List[str]) -> Dict[str, List[str]]:
    from fleet.agent.package_manager import apt_messages, dpkg_version

    result = host.run(["apt-cache", *options, "madison", "--", *names], deadline_s=120.0)
    problem = apt_messages.explain(result.stderr)
    if problem is not None and problem["reason"] in ("signed_by_conflict", "malformed_source"):
        raise StepFailed(problem["what"], problem["remedy"], result)
    found = apt_messages.parse_madison(result.stdout)
    return {name: dpkg_version.sort_newest_first(found.get(name, [])) for name in names}


class PrivateApt:
    """An apt root of our own: sources, keys, lists and caches in one directory that is removed at the end.

    The host's preferences, proxies and credentials (auth.conf.d) still apply; its dpkg status is only read.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._directory = ""
        self._conf = ""
        self._own_sources = False

    def __enter__(self) -> PrivateApt:
        import tempfile

        os.makedirs(self._host.runtime_dir, mode=0o700, exist_ok=True)
        # The runtime directory is 0700, so apt's own user _apt cannot download here: apt stays root.
        self._directory = tempfile.mkdtemp(prefix="apt-", dir=self._host.runtime_dir)
        for name in ("sources", "keys", "lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self._directory, name))
        # Only a file can clear a list of settings, and one given by -c is read after the host's own.
        self._conf = os.path.join(self._directory, "apt.conf")
        with open(self._conf, "w", encoding="ascii") as stream:
            stream.write("".join("#clear %s;\n" % hook for hook in UPDATE_HOOKS))
        return self

    def __exit__(self, *details: object) -> None:
        import shutil

        shutil.rmtree(self._directory, ignore_errors=True)

    def go_through(self, proxies: Json, repositories: List[Json]) -> None:
        """Have apt use these proxies; the servers of ``no_proxy`` are spelled out, as apt wants them."""
        from fleet.agent.package_manager import apt_proxies, apt_sources

        named = [self._host.secret(uri) for one in repositories for uri in one.get("uris") or ()]
        keys = [one["key"] for one in repositories if one.get("key")]
        named += [self._host.secret(key["url"]) for key in keys if key.get("url")]
        texts = named if repositories else apt_sources.read_all(self._host).values()
        servers = apt_proxies.servers(" ".join(texts))
        ways = {name: self._host.secret(proxies.get(name)) for name in ("http", "https")}
        text = apt_proxies.settings(ways, proxies.get("no_proxy") or (), servers)
        with open(self._conf, "a", encoding="utf-8") as stream:
            stream.write(text)

    def configure(self, repositories: List[Json]) -> None:
        """Write the sources; without any, the host's own are used."""
        from fleet.agent.package_manager import apt_sources
        from fleet.agent.resources import apt_repository

        for repository in repositories:
            signed_by = None
            if repository.get("key"):
                content, ending = apt_repository.key_content(self._host, repository, ["-c", self._conf])
                signed_by = os.path.join(self._directory, "keys", "%s.%s" % (repository["name"], ending))
                with open(signed_by, "wb") as stream:
                    stream.write(content)
            source = os.path.join(self._directory, "sources", repository["name"] + ".sources")
            resolved = dict(repository, uris=[self._host.secret(uri) for uri in repository["uris"]])
            with open(source, "w", encoding="utf-8") as text_stream:
                text_stream.write(apt_sources.render(resolved, signed_by))
        self._own_sources = bool(repositories)

    def options(self) -> List[str]:
        """The options that turn any apt command to this root."""
        settings = {
            "Dir::State::Lists": os.path.join(self._directory, "lists"),
            "Dir::Cache": os.path.join(self._directory, "cache"),
            "APT::Sandbox::User": "root",
        }
        if self._own_sources:
            settings["Dir::Etc::sourcelist"] = "/dev/null"
            settings["Dir::Etc::sourceparts"] = os.path.join(self._directory, "sources")
        words = [word for name in settings for word in ("-o", "%s=%s" % (name, settings[name]))]
        return ["-c", self._conf, *words]

    def refresh(self) -> None:
        from fleet.agent.package_manager.apt import Apt

        Apt(self._host).refresh(self.options(), Silent(), wait=False)
