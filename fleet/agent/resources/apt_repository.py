"""``apt_repository``: one apt source with its own key, and its lists fetched.

Written as deb822 (``/etc/apt/sources.list.d/NAME.sources``) with the key in ``/etc/apt/keyrings``; the
key's fingerprint is checked here, without gpg. A key that is given by its address is fetched when it is applied,
never while looking, and only where the pinned one is not there already
(:mod:`fleet.agent.package_manager.signing_key`). Only this source's lists are refreshed, so a fault of another
repository does not stop this one. Formats: :mod:`fleet.agent.package_manager.apt_sources`.
"""

from __future__ import annotations

import os

from fleet.agent.files import make_folders, read_bytes
from fleet.agent.package_manager import apt_sources, openpgp
from fleet.agent.protocol import Json
from fleet.agent.resources.base import MASK, Difference, Provides, Resource, StepFailed, difference, is_secret

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


KEYRINGS = "/etc/apt/keyrings"
_MODE = 0o644


class AptRepository(Resource):
    """See the module. ``key`` is ``{"content", "fingerprint"}`` or ``{"url", "fingerprint"}``; ``replaces`` are
    paths of list files this one takes the place of."""

    kind = "apt_repository"

    def read(self, host: Host, args: Json) -> Json:
        """{"sources", "key", "stale" (files that should be gone), "lists"}: the two files as "wanted",
        "absent" or "different" with their texts. Refuses a wrong key and a clash with another list."""
        wanted = wanted_files(host, args)
        present = args.get("state", "present") != "absent"
        if present:
            self._refuse_clash(host, args, wanted[sources_path(args)])
        stale = [path for path in args.get("replaces") or [] if os.path.lexists(host.path(path))]
        stale += [
            path for path in _all_paths(args) if path not in wanted and os.path.lexists(host.path(path))
        ]
        return {
            "files": {path: _file_state(host.path(path), wanted[path]) for path in wanted},
            "stale": sorted(stale),
            "lists": present and apt_sources.lists_present(host, _resolved(host, args)),
        }

    def _refuse_clash(self, host: Host, args: Json, wanted: Optional[bytes]) -> None:
        path = sources_path(args)
        mine = apt_sources.parse(path, (wanted or b"").decode("utf-8"))
        ignored = [path, *(args.get("replaces") or [])]
        clashing = apt_sources.conflicts(apt_sources.read_all(host), mine, ignored)
        if clashing:
            first = clashing[0]
            raise StepFailed(
                "%s:%d already configures %s %s; apt refuses one repository with two keys"
                % (first.file, first.line, first.uri, first.suite),
                "remove that entry, or let fleet replace the file with  replaces: [%s]" % first.file,
            )

    def diff(self, state: Json, args: Json) -> List[Difference]:
        if args.get("state", "present") == "absent":
            return [difference(path, "present", None) for path in state["stale"]]
        hidden = any(is_secret(uri) for uri in args["uris"])
        differences: List[Difference] = []
        for path, found in state["files"].items():
            if found["same"]:
                continue
            if found["mode"] is not None and found["content_same"]:
                differences.append(difference(path + " mode", found["mode"], "0644"))
            elif path.endswith(".sources"):
                before, after = found["before"], found["after"]
                differences.append(
                    difference(path, MASK if hidden and before else before, MASK if hidden else after)
                )
            else:
                differences.append(difference(path, found["before"], _key_name(args)))
        differences += [difference(path, "present", None) for path in state["stale"]]
        if not state["lists"]:
            differences.append(difference("package lists of %s" % args["name"], None, "fetched"))
        return differences

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        state = self.read(host, args)
        wanted = _with_key(
            host, args, wanted_files(host, args), report
        )  # first: where it fails nothing is touched
        repository = _resolved(host, args)
        for path in state["stale"]:
            _remove(host.path(path))
        if args.get("state", "present") == "absent":
            apt_sources.forget_lists(host, repository)
            return None
        if all(found["same"] for found in state["files"].values()):
            self._refresh(host, args, report)
            return None
        before = {path: read_bytes(host, path) for path in state["files"]}
        apt_sources.forget_lists(host, repository)
        for path in sorted(wanted):  # the key (keyrings) before the source that names it
            _write(host.path(path), wanted[path])
        try:
            self._refresh(host, args, report)
        except StepFailed:
            # A source that cannot be fetched would make every later apt-get update on this host fail.
            for path, content in before.items():
                if content is None:
                    _remove(host.path(path))
                else:
                    _write(host.path(path), content)
            raise
        return None

    def _refresh(self, host: Host, args: Json, report: Reporter) -> None:
        from fleet.agent.package_manager.apt import Apt

        options = ["Dir::Etc::sourcelist=%s" % host.path(sources_path(args)), "Dir::Etc::sourceparts=-"]
        options.append("APT::Get::List-Cleanup=0")
        Apt(host).refresh([word for option in options for word in ("-o", option)], report)

    def provides(self, args: Json) -> Provides:
        if args.get("state", "present") == "absent":
            return Provides()
        return Provides(files=[path for path in _all_paths(args) if path.endswith(".sources")])


def sources_path(args: Json) -> str:
    return "%s/%s.sources" % (apt_sources.DIRECTORY, args["name"])


def _all_paths(args: Json) -> List[str]:
    """Every file a repository of this name may have."""
    keys = ["%s/%s.%s" % (KEYRINGS, args["name"], ending) for ending in ("asc", "gpg")]
    return [sources_path(args), *keys]


def _resolved(host: Host, args: Json) -> Json:
    """The arguments with secrets filled in: addresses may carry credentials."""
    return dict(args, uris=[host.secret(uri) for uri in args["uris"]] if args.get("uris") else [])


def wanted_files(host: Host, args: Json) -> Dict[str, Optional[bytes]]:
    """path -> content of the files the repository should have; ``{}`` when it should be absent.

    The content is None for a key that has to be fetched first. Raises StepFailed when the key is not the one
    whose fingerprint is pinned.
    """
    if args.get("state", "present") == "absent":
        return {}
    files: Dict[str, Optional[bytes]] = {}
    signed_by = None
    if args.get("key"):
        content, ending = known_key(host, args)
        signed_by = "%s/%s.%s" % (KEYRINGS, args["name"], ending)
        files[signed_by] = content
    files[sources_path(args)] = apt_sources.render(_resolved(host, args), signed_by).encode("utf-8")
    return files


def known_key(host: Host, args: Json) -> Tuple[Optional[bytes], str]:
    """(bytes of the key file, "asc" or "gpg") as far as can be told without fetching anything.

    Of a key given by its address: what this host has, if that is the pinned one; else None. Raises StepFailed.
    """
    key = args["key"]
    if not key.get("url"):
        return checked_key(str(host.secret(key["content"])), key.get("fingerprint"), args)
    from fleet.agent.package_manager import signing_key

    signing_key.pins(key)
    for ending in ("gpg", "asc"):
        data = read_bytes(host, "%s/%s.%s" % (KEYRINGS, args["name"], ending))
        if data is not None and signing_key.held(data, key):
            return data, ending
    return None, "gpg"


def key_content(host: Host, args: Json, apt_options: Sequence[str] = ()) -> Tuple[bytes, str]:
    """(bytes of the key file, "asc" or "gpg"), fetched where it is not there. Raises StepFailed."""
    content, ending = known_key(host, args)
    if content is None:
        from fleet.agent.package_manager import signing_key

        content = signing_key.fetched(host, args, apt_options)
    return content, ending


def _with_key(
    host: Host, args: Json, files: Dict[str, Optional[bytes]], report: Reporter
) -> Dict[str, bytes]:
    """``files`` with the one that has to be fetched."""
    complete: Dict[str, bytes] = {}
    for path, content in files.items():
        if content is None:
            from fleet.agent.package_manager import signing_key

            report.progress("fetching the key of repository %s" % args["name"])
            content = signing_key.fetched(host, args)
        complete[path] = content
    return complete


def checked_key(content: str, pinned: Any, args: Json) -> Tuple[bytes, str]:
    """(bytes to store, "asc" or "gpg"), once every key in it is one that was pinned."""
    try:
        data, armored = openpgp.key_bytes(content)
        found = openpgp.fingerprints(data)
    except openpgp.BadKey as error:
        raise StepFailed(
            "the key of repository %s cannot be used: %s" % (args["name"], error),
            "give the repository's public key as published (ASCII armor, or the binary file in base64)",
        ) from None
    wanted = [openpgp.normalise(item) for item in ([pinned] if isinstance(pinned, str) else pinned or [])]
    strangers = [fingerprint for fingerprint in found if fingerprint not in wanted]
    if wanted and strangers:
        raise StepFailed(
            "the key of repository %s has fingerprint %s, but %s is pinned"
            % (args["name"], ", ".join(strangers), ", ".join(wanted)),
            "compare both with what the publisher says; pin the new one only if it is theirs",
        )
    text = content if content.endswith("\n") else content + "\n"
    return (text.encode("utf-8"), "asc") if armored else (data, "gpg")


def _key_name(args: Json) -> str:
    pinned = (args.get("key") or {}).get("fingerprint")
    return "key %s" % (pinned if isinstance(pinned, str) else ", ".join(pinned or [])) if pinned else "key"


def _file_state(path: str, content: Optional[bytes]) -> Json:
    """{"same", "content_same", "mode": "0644" or None when absent, "before", "after"} (texts).

    ``content`` None is one that is not known yet. What was before is said of a key by its fingerprints.
    """
    after = None if content is None else content.decode("utf-8", "replace")
    try:
        with open(path, "rb") as stream:
            now = stream.read()
            mode = os.fstat(stream.fileno()).st_mode & 0o7777
    except FileNotFoundError:
        return {"same": False, "content_same": False, "mode": None, "before": None, "after": after}
    equal = now == content
    return {
        "same": equal and mode == _MODE,
        "content_same": equal,
        "mode": "%04o" % mode,
        "before": now.decode("utf-8", "replace") if path.endswith(".sources") else _words_for_key(now),
        "after": after,
    }


def _words_for_key(data: bytes) -> str:
    from fleet.agent.package_manager import signing_key

    found = signing_key.fingerprints(data)
    return "key %s" % ", ".join(found) if found else "not a key"


def _write(path: str, content: bytes) -> None:
    """Atomically, readable by apt's unprivileged download user."""
    make_folders(os.path.dirname(path))
    temporary = "%s.fleet-new" % path  # apt ignores names with an unknown ending
    with open(temporary, "wb") as stream:
        stream.write(content)
        os.fchmod(stream.fileno(), _MODE)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


RESOURCE = AptRepository()
