"""apt's source lists: reading both formats, finding what makes apt unusable, writing deb822.

Pure, except :func:`read_all`. Used by the ``apt_repository`` resource, the ``packages`` facts (so that a
broken list is known before anything is installed) and the private apt root of :mod:`fleet.agent.queries`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


DIRECTORY = "/etc/apt/sources.list.d"
MAIN = "/etc/apt/sources.list"
LISTS = "/var/lib/apt/lists"

_DEB822_KEYS = {"types", "uris", "suites", "components", "signed-by", "enabled", "architectures", "trusted"}


class Source:
    """One (type, URI, suite) of a list file, with what apt compares: ``signed_by`` as written, or ""."""

    __slots__ = ("components", "file", "kind", "line", "signed_by", "suite", "uri")

    def __init__(
        self, file: str, line: int, kind: str, uri: str, suite: str, components: List[str], signed_by: str
    ) -> None:
        self.file = file
        self.line = line
        self.kind = kind
        self.uri = uri
        self.suite = suite
        self.components = components
        self.signed_by = signed_by

    @property
    def identity(self) -> Tuple[str, str]:
        """What apt takes for one repository: URI without a trailing slash, and suite."""
        return self.uri.rstrip("/"), self.suite.strip("/") or "/"


class Unreadable(ValueError):
    """A list file apt cannot use. ``str()`` names file and line."""


def read_all(host: Host) -> Dict[str, str]:
    """path -> text of every list file that apt reads, by path."""
    paths = [MAIN]
    try:
        names = sorted(os.listdir(host.path(DIRECTORY)))
    except OSError:
        names = []
    paths += [DIRECTORY + "/" + name for name in names if name.endswith((".list", ".sources"))]
    files: Dict[str, str] = {}
    for path in paths:
        try:
            with open(host.path(path), encoding="utf-8", errors="replace") as stream:
                files[path] = stream.read()
        except OSError:
            continue
    return files


def parse(path: str, text: str) -> List[Source]:
    """The enabled sources of one file. Raises :class:`Unreadable` with the line at fault."""
    head = text.lstrip()[:200].lower()
    if head.startswith(("# unsupported distribution!", "<!doctype", "<html")):
        # Repository servers answer so, with status 200, and scripts store it as a list.
        raise Unreadable("%s:1: holds a server's error page, not a list of sources" % path)
    return _parse_deb822(path, text) if path.endswith(".sources") else _parse_one_line(path, text)


def _parse_one_line(path: str, text: str) -> List[Source]:
    sources: List[Source] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        kind, _, rest = line.partition(" ")
        options = ""
        rest = rest.strip()
        if rest.startswith("["):
            options, bracket, rest = rest[1:].partition("]")
            if not bracket:
                raise Unreadable("%s:%d: an option list without its ]" % (path, number))
        words = rest.split()
        if kind not in ("deb", "deb-src") or len(words) < 2:
            raise Unreadable("%s:%d: not a source (expected: deb URI suite component…)" % (path, number))
        if words[0].startswith("cdrom:"):
            continue
        signed_by = ""
        for option in options.split():
            key, _, value = option.partition("=")
            if key.lower() == "signed-by":
                signed_by = value
        sources.append(Source(path, number, kind, words[0], words[1], words[2:], signed_by))
    return sources


def _parse_deb822(path: str, text: str) -> List[Source]:
    sources: List[Source] = []
    for number, fields in deb822_stanzas(path, text):
        if fields.get("enabled", "yes").strip().lower() in ("no", "false", "0", "off"):
            continue
        for key in ("types", "uris", "suites"):
            if not fields.get(key, "").split():
                raise Unreadable("%s:%d: a stanza without %s" % (path, number, key.capitalize()))
        for kind in fields["types"].split():
            for uri in fields["uris"].split():
                for suite in fields["suites"].split():
                    components = fields.get("components", "").split()
                    signed_by = " ".join(fields.get("signed-by", "").split())
                    sources.append(Source(path, number, kind, uri, suite, components, signed_by))
    return sources


def deb822_stanzas(path: str, text: str) -> List[Tuple[int, Dict[str, str]]]:
    """(line of its start, lower-case field -> value) of each stanza."""
    stanzas: List[Tuple[int, Dict[str, str]]] = []
    fields: Dict[str, str] = {}
    start, key = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                stanzas.append((start, fields))
            fields, key = {}, ""
        elif line[0] in " \t":
            if not key:
                raise Unreadable("%s:%d: a continuation line without a field" % (path, number))
            fields[key] += "\n" + line.strip()
        else:
            name, colon, value = line.partition(":")
            if not colon:
                raise Unreadable("%s:%d: not a field (expected: Name: value)" % (path, number))
            start = start if fields else number
            key = name.strip().lower()
            fields[key] = value.strip()
    return stanzas


def problems(files: Dict[str, str]) -> List[str]:
    """What makes apt fail for every package: lists it cannot read, and one repository with two keys."""
    found: List[str] = []
    seen: Dict[Any, Source] = {}
    for path in files:
        try:
            sources = parse(path, files[path])
        except Unreadable as error:
            found.append(str(error))
            continue
        for source in sources:
            other = seen.setdefault(source.identity, source)
            if other.signed_by != source.signed_by:
                found.append(
                    "conflicting Signed-By for %s %s: %s has %s, %s has %s"
                    % (
                        source.uri,
                        source.suite,
                        other.file,
                        other.signed_by or "none",
                        source.file,
                        source.signed_by or "none",
                    )
                )
    return list(dict.fromkeys(found))


def conflicts(files: Dict[str, str], mine: List[Source], ignored: List[str]) -> List[Source]:
    """Sources of other files that clash with ``mine``: same repository, and another key or shared parts."""
    clashing: List[Source] = []
    wanted = {source.identity: source for source in mine}
    for path in files:
        if path in ignored:
            continue
        try:
            sources = parse(path, files[path])
        except Unreadable:
            continue  # reported by apt itself, and by the facts
        for source in sources:
            same = wanted.get(source.identity)
            if same is None or source.kind != "deb":
                continue
            shared = not source.components or set(source.components) & set(same.components)
            if shared or source.signed_by != same.signed_by:
                clashing.append(source)
    return clashing


def render(repository: Json, signed_by: Optional[str]) -> str:
    """The ``.sources`` file for the arguments of ``apt_repository``; fields in the usual order."""
    fields = [
        ("Types", "deb"),
        ("URIs", " ".join(repository["uris"])),
        ("Suites", " ".join(repository["suites"])),
        ("Components", " ".join(repository.get("components") or [])),
        ("Architectures", " ".join(repository.get("architectures") or [])),
        ("Signed-By", signed_by or ""),
        ("Trusted", "yes" if repository.get("trusted") else ""),
    ]
    options = repository.get("options") or {}
    fields += [(name, str(options[name])) for name in sorted(options)]
    lines = ["%s: %s" % (name, value) for name, value in fields if value]
    return "# Written by fleet; changes are overwritten.\n" + "\n".join(lines) + "\n"


def list_prefix(uri: str, suite: str) -> str:
    """How apt's files under /var/lib/apt/lists start for this repository (URItoFileName of libapt)."""
    rest = uri.split(":", 1)[1] if ":" in uri else uri
    rest = rest[2:] if rest.startswith("//") else rest
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2]
    full = host + slash + path
    full = full if full.endswith("/") else full + "/"
    # A suite that ends in "/" is a path below the URI: a flat repository.
    full += suite.strip("/") if suite.endswith("/") else "dists/" + suite
    full = full if full.endswith("/") else full + "/"
    quoted = "".join("%%%02x" % ord(c) if c in '\\|{}[]<>"^~_=!@#$%&*' else c for c in full)
    return quoted.replace("/", "_")


def lists_present(host: Host, repository: Json) -> bool:
    """Whether apt holds the release file of every (URI, suite) of the repository."""
    try:
        names = os.listdir(host.path(LISTS))
    except OSError:
        return False
    for uri in repository["uris"]:
        for suite in repository["suites"]:
            prefix = list_prefix(uri, suite)
            if not any(name in (prefix + "InRelease", prefix + "Release") for name in names):
                return False
    return True


def forget_lists(host: Host, repository: Json) -> None:
    """Remove the release files, so that an interrupted change of the source is refreshed later."""
    for uri in repository["uris"]:
        for suite in repository["suites"]:
            prefix = list_prefix(uri, suite)
            for ending in ("InRelease", "Release", "Release.gpg"):
                try:
                    os.unlink(host.path(LISTS + "/" + prefix + ending))
                except FileNotFoundError:
                    continue
