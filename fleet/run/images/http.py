"""One registry over HTTP, as little as reading a manifest and a configuration takes: requests, login, redirects.

Written to https://distribution.github.io/distribution/spec/api/ and .../auth/token/. Credentials go to the registry
they are for, to the token service that it names, and to nobody whom either redirects to.
"""

from __future__ import annotations

import base64
import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any

from fleet.agent import strict_json
from fleet.core.errors import ImageDenied, InputError, RegistryUnreachable
from fleet.run.images.access import Access, Endpoint

TIMEOUT_S = 15.0
#: No manifest and no configuration is larger; a layer is never asked for.
LARGEST = 8 << 20

_CHALLENGE = re.compile(r"\s*(?P<scheme>Basic|Bearer)\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_PARAMETER = re.compile(r'(?P<name>[a-z_]+)\s*=\s*"(?P<value>[^"]*)"', re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """What the registry said; ``headers`` by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return strict_json.loads(self.body.decode("utf-8"))
        except ValueError:
            return None

    def words(self) -> str:
        """The registry's own words for an error, with its status."""
        document = self.document()
        errors = document.get("errors") if isinstance(document, dict) else None
        first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
        said = ": ".join(str(first[key]) for key in ("code", "message") if first.get(key))
        return f"HTTP {self.status}" + (f" {said}" if said else "")


class Registry:
    """Requests to one endpoint; a token that was given once is used for all of them."""

    def __init__(self, endpoint: Endpoint, access: Access, *, timeout_s: float = TIMEOUT_S) -> None:
        self.endpoint = endpoint
        self.place = endpoint.url.partition("//")[2]
        self._timeout_s = timeout_s
        self._credentials = _basic(access) if endpoint.own else None
        self._authorization: str | None = None
        self._opener = _opener(endpoint, access)

    def get(self, path: str, accept: str = "*/*", *, method: str = "GET") -> Answer:
        """Ask ``/v2/PATH``, and log in where that is asked for.

        Raises ImageDenied and RegistryUnreachable; an answer such as 404 is the caller's to judge.
        """
        url = f"{self.endpoint.url}/v2/{path}"
        answer = self._once(url, self._authorization, accept, method)
        if answer.status == 401:
            self._authorization = self._log_in(answer, path)
            answer = self._once(url, self._authorization, accept, method)
        if answer.status in (401, 403):
            raise self._denied(answer, path)
        if answer.status == 429:
            raise RegistryUnreachable(
                f"{self.place} limits how often it may be asked ({answer.words()})",
                remedy="give registry_username and registry_password, or wait some hours: the limit ends by itself",
            )
        if answer.status >= 500:
            raise RegistryUnreachable(
                f"{self.place} does not work: {answer.words()}", remedy="ask whoever runs it, then try again"
            )
        return answer

    # -- logging in ----------------------------------------------------------------------------------

    def _log_in(self, answer: Answer, path: str) -> str | None:
        """What to send as Authorization, by the registry's challenge."""
        match = _CHALLENGE.match(answer.headers.get("www-authenticate", ""))
        if match is None:
            raise self._denied(answer, path)
        if match["scheme"].lower() == "basic":
            if self._credentials is None:
                raise self._denied(answer, path)
            return self._credentials
        said = {found["name"].lower(): found["value"] for found in _PARAMETER.finditer(match["rest"])}
        return f"Bearer {self._token(said, path)}"

    def _token(self, said: Mapping[str, str], path: str) -> str:
        """A token of the service that the challenge names, for what it names."""
        realm = said.get("realm", "")
        if not realm.startswith("https://") and not (
            realm.startswith("http://")
            and (not self.endpoint.verify or self.endpoint.url.startswith("http://"))
        ):
            raise RegistryUnreachable(
                f"{self.place} sends us to {realm or 'no address'} to log in, which is not HTTPS",
                remedy="mend the registry's token realm; fleet sends no credentials there",
            )
        query = {key: said[key] for key in ("service", "scope") if key in said}
        url = f"{realm}{'&' if '?' in realm else '?'}{urllib.parse.urlencode(query)}" if query else realm
        answer = self._once(url, self._credentials, "application/json", "GET")
        document = answer.document()
        token = (
            (document.get("token") or document.get("access_token")) if isinstance(document, dict) else None
        )
        if answer.status in (401, 403):
            raise self._denied(answer, path)
        if answer.status != 200 or not isinstance(token, str):
            raise RegistryUnreachable(
                f"{realm}, where {self.place} sends us to log in, gives no token: {answer.words()}",
                remedy="ask whoever runs the registry",
            )
        return token

    def _denied(self, answer: Answer, path: str) -> ImageDenied:
        repository = re.split(r"/(?:manifests|blobs)/", path)[0]
        if self._credentials is not None:
            what = f"{self.place} takes these credentials not for {repository}, or has no such repository"
            remedy = "check registry_username and registry_password, and that they may read it"
        else:
            what = f"{self.place} shows {repository} not to everybody, or has no such repository"
            remedy = "name registry, registry_username and registry_password in the inventory"
        return ImageDenied(f"{what} ({answer.words()})", remedy=remedy)

    # -- one request ---------------------------------------------------------------------------------

    def _once(self, url: str, authorization: str | None, accept: str, method: str) -> Answer:
        request = urllib.request.Request(  # noqa: S310 - the opener has HTTP and HTTPS only
            url, method=method, headers={"Accept": accept, "User-Agent": "fleet"}
        )
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return _answer(response.status, response.headers, response)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.headers, error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error, url) from error

    def _unreachable(self, error: Exception, url: str) -> RegistryUnreachable:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        place = urllib.parse.urlsplit(url).netloc
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RegistryUnreachable(
                f"the certificate of {place} is not trusted: {cause.verify_message}",
                remedy="name its authority: registry_ca_file in the inventory",
            )
        if isinstance(cause, ssl.SSLError):
            return RegistryUnreachable(
                f"{place} does not speak TLS: {cause.reason or cause}",
                remedy="list it under insecure-registries in docker_engine_settings, if it is to be plain HTTP",
            )
        words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return RegistryUnreachable(
            f"{place} cannot be reached: {words}",
            remedy="check its name, the network and https_proxy on this machine, or let a host look: --inspect with an"
            " INVENTORY of hosts that have the image",
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to HTTPS, and from plain HTTP anywhere. Authorization is never carried along."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        allowed = ("https",) if req.type == "https" else ("https", "http")
        if urllib.parse.urlsplit(newurl).scheme not in allowed:
            raise urllib.error.URLError(f"redirected to {newurl}, which is not HTTPS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _opener(endpoint: Endpoint, access: Access) -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only, by the proxies of the environment."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=_context(endpoint, access)),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _context(endpoint: Endpoint, access: Access) -> ssl.SSLContext:
    if not endpoint.verify:
        return ssl._create_unverified_context()  # noqa: S323 - declared insecure, by the inventory
    context = ssl.create_default_context()
    if endpoint.own and access.ca_file is not None:
        try:
            context.load_verify_locations(access.ca_file)
        except OSError as error:  # an SSLError is one
            raise InputError(
                f"registry_ca_file {access.ca_file} cannot be used: {error.strerror or error}",
                remedy="a file of certificates in PEM, on this machine, by its absolute path",
            ) from error
    return context


def _basic(access: Access) -> str | None:
    if access.username is None or access.password is None:
        return None
    pair = f"{access.username}:{access.password.reveal()}".encode()
    return f"Basic {base64.b64encode(pair).decode('ascii')}"


def _answer(status: int, headers: Message, body: IO[bytes] | Any) -> Answer:
    raw = body.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise ValueError(f"an answer of more than {LARGEST >> 20} MiB")
    return Answer(status, {name.lower(): value for name, value in headers.items()}, raw)
