"""A repository's signing key, fetched by this host and taken only if it is the one that is pinned.

The address is not trusted, and neither is the way to it: whatever comes is parsed, every primary key in it must
have the pinned fingerprint, and what is kept is written anew from what was parsed (:func:`openpgp.canonical`).
The way out is apt's: its proxies and certificate authorities, then the proxies of ``/etc/environment``.
"""

from __future__ import annotations

from fleet.agent.package_manager import openpgp
from fleet.agent.resources.base import StepCancelled, StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Sequence, Tuple
    from urllib.parse import SplitResult

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


LIMIT = 64 << 10  # bytes; the largest of NVIDIA's and Docker's keys has 4 kB
DEADLINE_S = 60.0  # for all of it: name resolution, redirects, the last byte
ANSWER_S = 20.0  # for one answer of the server
OTHER_WAY = "or give the key itself: key_file"


def fetched(host: Host, repository: Json, apt_options: Sequence[str] = ()) -> bytes:
    """The binary key at ``repository["key"]["url"]``. Raises StepFailed for one that cannot be had or is another.

    ``apt_options``: those of a private apt root, whose proxies are other ones than the host's."""
    key = repository["key"]
    url = str(host.secret(key["url"]))
    data = download(host, url, "the key of repository %s" % repository["name"], apt_options=apt_options)
    shown = _shown(url)
    try:
        found = openpgp.canonical(_binary(data))
    except openpgp.BadKey as error:
        raise StepFailed(
            "what %s answers is not the key of repository %s: %s%s"
            % (shown, repository["name"], error, "; it is a web page" if _is_page(data) else ""),
            "see what is there (a login page of a proxy?); name the key's address with key_url, %s"
            % OTHER_WAY,
        ) from None
    wanted = pins(key)
    strangers = [one for one in openpgp.fingerprints(found) if one not in wanted]
    if strangers:
        raise StepFailed(
            "the key of repository %s at %s has fingerprint %s, but %s is pinned; it was not taken"
            % (repository["name"], shown, ", ".join(strangers), ", ".join(wanted)),
            "compare both with what the publisher says. A mirror that signs its packages itself has a key of its own: "
            "pin that one with key_fingerprint, and name it with key_url or key_file",
        )
    return found


def held(data: bytes, key: Json) -> bool:
    """Whether the contents of a key file of this host are the pinned key and nothing else."""
    found = fingerprints(data)
    return bool(found) and set(found) <= set(pins(key))


def fingerprints(data: bytes) -> List[str]:
    """Those of the primary keys in a key file, armoured or binary; ``[]`` where it is no key."""
    try:
        return openpgp.fingerprints(_binary(data))
    except openpgp.BadKey:
        return []


def pins(key: Json) -> List[str]:
    """The pinned fingerprints, in the form compared. Raises StepFailed where there is none."""
    pinned = key.get("fingerprint")
    wanted = [openpgp.normalise(item) for item in ([pinned] if isinstance(pinned, str) else pinned or [])]
    if not wanted:
        raise StepFailed(
            "a key is fetched by its address only where its fingerprint is pinned", "write key_fingerprint"
        )
    return wanted


def _binary(data: bytes) -> bytes:
    if b"-----BEGIN PGP" in data:
        return openpgp.dearmor(data.decode("utf-8", "replace"))
    return data


def _is_page(data: bytes) -> bool:
    return data.lstrip()[:1] == b"<"


# --- fetching


def download(
    host: Host, url: str, what: str, deadline_s: float = DEADLINE_S, *, apt_options: Sequence[str] = ()
) -> bytes:
    """At most :data:`LIMIT` bytes from an http or https address. Raises StepFailed that shows the address.

    In a thread, because neither name resolution nor a server that trickles has an end of its own.
    """
    import threading
    import time

    way = _way(host, url, apt_options)
    box: Dict[str, Any] = {}

    def work() -> None:
        try:
            box["data"] = _get(url, *way)
        except (OSError, UnicodeError) as error:  # URLError is an OSError; a name may not be one of DNS
            box["error"] = error
        except BaseException as error:  # a bug: raised again where somebody sees it
            box["bug"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ends = time.monotonic() + deadline_s
    if host.step_ends is not None:
        ends = min(ends, host.step_ends)
    while thread.is_alive():
        thread.join(min(0.2, max(0.0, ends - time.monotonic())))
        if host.cancelled():
            raise StepCancelled("cancelled while fetching %s" % what)
        if thread.is_alive() and time.monotonic() >= ends:
            raise _unreachable(url, what, "no whole answer within %g s" % deadline_s)
    if "bug" in box:
        raise box["bug"]
    if "error" in box:
        raise _failure(url, what, box["error"])
    data: bytes = box["data"]
    if len(data) > LIMIT:
        raise StepFailed(
            "download_refused: what %s answers is larger than %d kB, so it is not %s"
            % (_shown(url), LIMIT >> 10, what),
            "name the key's address with key_url, %s" % OTHER_WAY,
        )
    return data


def _get(url: str, proxy: Optional[str], authority: Optional[str]) -> bytes:
    """One byte more than :data:`LIMIT` at most."""
    import http.client
    import urllib.request

    parts = _parts(url)
    handlers: List[Any] = [
        urllib.request.ProxyHandler({parts.scheme: proxy} if proxy else {}),
        _redirects(parts.scheme),
    ]
    if parts.scheme == "https" or authority:
        import ssl

        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority)))
    bare = parts._replace(netloc=_server(parts), fragment="").geturl()
    request = urllib.request.Request(
        bare, headers={"User-Agent": "fleet"}
    )  # some servers refuse Python's own name
    if parts.username:
        request.add_unredirected_header("Authorization", _basic(parts))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            data: bytes = answer.read(LIMIT + 1)
    except http.client.HTTPException as error:
        raise OSError("not an answer of HTTP: %s" % (str(error) or type(error).__name__)) from None
    return data


def _redirects(scheme: str) -> Any:
    """Follows redirects, but from https never back to http."""
    import urllib.request

    class Redirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, request: Any, answer: Any, *details: Any) -> Any:
            target = details[-1]
            if not target.startswith("https:" if scheme == "https" else ("http:", "https:")):
                raise OSError("it redirects to %s, which is not followed from %s" % (_shown(target), scheme))
            return super().redirect_request(request, answer, *details)

    return Redirects()


def _failure(url: str, what: str, error: Exception) -> StepFailed:
    import ssl
    import urllib.error

    if isinstance(error, urllib.error.HTTPError):
        if error.code in (404, 410):
            return StepFailed(
                "download_not_found: %s is not at %s (HTTP %d)" % (what, _shown(url), error.code),
                "check the repository's base_url; name the key's address with key_url, %s" % OTHER_WAY,
            )
        return StepFailed(
            "download_refused: %s answers HTTP %d (%s) for %s"
            % (_shown(url), error.code, error.reason, what),
            "check address, login and proxy; name the key's address with key_url, %s" % OTHER_WAY,
        )
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLError):
        return StepFailed(
            "download_failed: %s: the server's certificate is not accepted (%s)" % (_shown(url), reason),
            "install ca-certificates, or the authority of that server there; check the clock (timedatectl)",
        )
    return _unreachable(url, what, str(reason))


def _unreachable(url: str, what: str, why: str) -> StepFailed:
    return StepFailed(
        "download_failed: %s cannot be fetched from %s: %s" % (what, _shown(url), why),
        "check DNS, proxy and firewall between this host and that server, %s" % OTHER_WAY,
    )


# --- addresses


def _parts(url: str) -> SplitResult:
    import urllib.parse

    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that are none
        usable = False
    if not usable:
        raise StepFailed(
            "a key cannot be fetched from %s: it takes an http or https address" % _shown(url),
            "name the key's address with key_url, %s" % OTHER_WAY,
        )
    return parts


def _server(parts: SplitResult) -> str:
    """Name and port, without what may be a login."""
    return parts.netloc.rpartition("@")[2]


def _basic(parts: SplitResult) -> str:
    import base64
    import urllib.parse

    login = "%s:%s" % (urllib.parse.unquote(parts.username or ""), urllib.parse.unquote(parts.password or ""))
    return "Basic " + base64.b64encode(login.encode("utf-8")).decode("ascii")


def _shown(url: str) -> str:
    """The address without what may be a login."""
    before, slashes, rest = url.partition("://")
    server, slash, path = rest.partition("/")
    return before + slashes + server.rpartition("@")[2] + slash + path


# --- the way out


def _way(host: Host, url: str, apt_options: Sequence[str]) -> Tuple[Optional[str], Optional[str]]:
    """(proxy or None, file of certificate authorities or None) for an address, as apt would go."""
    parts = _parts(url)
    apt = _AptSettings(host, parts, apt_options)
    authority = apt.of_server("cainfo") or apt.general("cainfo")
    return _proxy(host, parts, apt), host.path(authority) if authority else None


class _AptSettings:
    """apt's ``Acquire`` settings for one address. https takes over what is set for http only."""

    def __init__(self, host: Host, parts: SplitResult, options: Sequence[str]) -> None:
        self._schemes = tuple(dict.fromkeys((parts.scheme, "http")))
        self._server = str(parts.hostname)
        self._settings: Dict[str, str] = {}
        result = host.run(["apt-config", *options, "dump"], deadline_s=20.0)
        for line in result.stdout.splitlines() if result.ok else []:
            key, space, value = line.partition(" ")
            if space and value.startswith('"') and value.endswith('";'):
                self._settings[key.lower()] = value[1:-2]

    def of_server(self, key: str) -> Optional[str]:
        """What is set for this server by name; ``key`` in lower case."""
        return self._first(
            "acquire::%s::" + key + "::" + self._server, "acquire::%s::" + self._server + "::" + key
        )

    def general(self, key: str) -> Optional[str]:
        """What is set for every server."""
        return self._first("acquire::%s::" + key)

    def _first(self, *patterns: str) -> Optional[str]:
        names = [pattern % scheme for scheme in self._schemes for pattern in patterns]
        return next((self._settings[name] for name in names if self._settings.get(name)), None)


def _proxy(host: Host, parts: SplitResult, apt: _AptSettings) -> Optional[str]:
    """In apt's order: that of the server, what the site's program says, that of all, the environment's."""
    found = apt.of_server("proxy")
    detector = apt.general("proxy-auto-detect") or apt.general("proxyautodetect")
    if not found and detector:
        said = host.run([detector, "%s://%s/" % (parts.scheme, _server(parts))], deadline_s=20.0)
        found = said.stdout.strip() if said.ok else None
    found = found or apt.general("proxy")
    if found:
        return None if found.upper() == "DIRECT" else _usable(found)
    return _of_environment(host, parts)


def _of_environment(host: Host, parts: SplitResult) -> Optional[str]:
    """``http_proxy``, ``https_proxy`` and ``no_proxy`` of /etc/environment, which is what logins get."""
    values: Dict[str, str] = {}
    try:
        with open(host.path("/etc/environment"), encoding="utf-8", errors="replace") as stream:
            lines = stream.read(LIMIT).splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.strip().partition("=")
        values[name.replace("export ", "").strip().lower()] = value.strip().strip("\"'")
    found = values.get(parts.scheme + "_proxy")
    exempt = [entry.strip().lstrip(".").lower() for entry in values.get("no_proxy", "").split(",")]
    return _usable(found) if found and not _is_among(parts, [entry for entry in exempt if entry]) else None


def _is_among(parts: SplitResult, names: List[str]) -> bool:
    """Whether a server is one of ``names`` or in a domain of them; ``*`` is every server."""
    server, name = _server(parts).lower(), str(parts.hostname)
    return any(one in ("*", server, name) or name.endswith("." + one) for one in names)


def _usable(proxy: str) -> str:
    scheme, slashes, _ = proxy.partition("://")
    if slashes and scheme != "http":
        raise StepFailed(
            "this host's proxy is %s, and fleet fetches keys through http proxies only" % _shown(proxy),
            "give the key itself: key_file",
        )
    return proxy if slashes else "http://" + proxy
