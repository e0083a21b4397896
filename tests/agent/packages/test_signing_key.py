"""Keys that hosts fetch: taken for their fingerprint only, whatever the server, the way or the bytes try."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fleet.agent import queries
from fleet.agent.package_manager import openpgp, signing_key
from fleet.agent.process import Result
from fleet.agent.resources import load
from fleet.agent.resources.base import StepCancelled, StepFailed
from tests.agent.packages.key_server import KeyServer
from tests.agent.packages.test_apt_repository import FINGERPRINT, KEY, LISTS, apply, differences, repository

BINARY = openpgp.dearmor(KEY)
OTHER = BINARY[:-1] + bytes([BINARY[-1] ^ 1])  # another key: its fingerprint is of all its bytes
OTHER_FINGERPRINT = openpgp.fingerprints(OTHER)[0]
STORED = openpgp.canonical(BINARY)
KEYRING = "/etc/apt/keyrings/example.gpg"
PAGE = "<!DOCTYPE html><html><title>Sign in</title></html>"


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer().running() as running:
        yield running


@pytest.fixture
def ready(host: Any) -> Any:
    """A host whose apt fetches the example's lists and has no settings of its own."""

    def update(argv: Any) -> Result:
        host.write(LISTS + "repo.example.net_ubuntu2404_x86%5f64_InRelease", "")
        return Result(0)

    host.on("apt-get", "update", answer=update)
    host.on("apt-config", answer=Result(0))
    return host


def by_address(url: Any, fingerprint: Any = FINGERPRINT) -> dict[str, Any]:
    return repository(key={"url": url, "fingerprint": fingerprint})


def armour(data: bytes, kind: str = "PUBLIC KEY BLOCK") -> str:
    return f"-----BEGIN PGP {kind}-----\n\n{base64.b64encode(data).decode()}\n-----END PGP {kind}-----\n"


# --- the resource


@pytest.mark.parametrize("body", [KEY, BINARY], ids=["armoured", "binary"])
def test_looking_fetches_nothing_and_applying_fetches_once(
    ready: Any, report: Any, server: KeyServer, body: bytes | str
) -> None:
    args = by_address(server.serve("/key", body))
    assert differences(ready, args)[0] == {"path": KEYRING, "before": None, "after": f"key {FINGERPRINT}"}
    assert server.requests == []
    apply(ready, report, args)
    assert Path(ready.path(KEYRING)).read_bytes() == STORED
    assert os.stat(ready.path(KEYRING)).st_mode & 0o777 == 0o644
    assert (
        f"Signed-By: {KEYRING}\n" in Path(ready.path("/etc/apt/sources.list.d/example.sources")).read_text()
    )
    assert differences(ready, args) == []
    assert server.paths() == ["/key"]


def test_a_key_that_was_given_before_stays_as_it_is(ready: Any, report: Any, server: KeyServer) -> None:
    apply(ready, report, repository())
    assert differences(ready, by_address(server.url + "/nothing")) == []
    assert server.requests == []


def test_another_key_on_the_host_is_shown_and_replaced(ready: Any, report: Any, server: KeyServer) -> None:
    ready.write(KEYRING, openpgp.canonical(OTHER))
    args = by_address(server.serve("/key", KEY))
    found = differences(ready, args)[0]
    assert found == {"path": KEYRING, "before": f"key {OTHER_FINGERPRINT}", "after": f"key {FINGERPRINT}"}
    apply(ready, report, args)
    assert Path(ready.path(KEYRING)).read_bytes() == STORED


def test_a_mode_is_put_right_without_fetching(ready: Any, report: Any, server: KeyServer) -> None:
    args = by_address(server.serve("/key", KEY))
    apply(ready, report, args)
    os.chmod(ready.path(KEYRING), 0o600)
    assert [one["path"] for one in differences(ready, args)] == [KEYRING + " mode"]
    apply(ready, report, args)
    assert differences(ready, args) == []
    assert server.paths() == ["/key"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            armour(OTHER),
            f"has fingerprint {OTHER_FINGERPRINT}, but {FINGERPRINT} is pinned; it was not taken",
        ),
        (KEY + armour(OTHER), f"has fingerprint {OTHER_FINGERPRINT}, but {FINGERPRINT} is pinned"),
        (BINARY + OTHER, f"has fingerprint {OTHER_FINGERPRINT}, but {FINGERPRINT} is pinned"),
        (PAGE, "is not the key of repository example: .*; it is a web page"),
        ("", "is not the key of repository example"),
        (armour(b"\xc5" + BINARY[1:]), "there is a secret key in it"),
        (KEY[:150], "no complete PGP public key block"),
        (b"\xc6" * ((64 << 10) + 1), "download_refused: .* larger than 64 kB"),
    ],
    ids=["another", "one-more-block", "one-more-packet", "page", "empty", "secret", "cut", "large"],
)
def test_what_is_not_exactly_that_key_is_not_taken_and_nothing_is_written(
    ready: Any, report: Any, server: KeyServer, body: bytes | str, words: str
) -> None:
    old = ready.write(
        "/etc/apt/sources.list.d/old.list", "deb https://repo.example.net/ubuntu2404/x86_64/ /\n"
    )
    args = {**by_address(server.serve("/key", body)), "replaces": ["/etc/apt/sources.list.d/old.list"]}
    with pytest.raises(StepFailed, match=words) as caught:
        apply(ready, report, args)
    assert "key_file" in str(caught.value.remedy)
    assert not os.path.exists(ready.path("/etc/apt/keyrings"))
    assert os.listdir(ready.path("/etc/apt/sources.list.d")) == ["old.list"]
    assert old.exists()


def test_bytes_that_another_reader_would_take_for_another_key_are_not_kept(
    ready: Any, report: Any, server: KeyServer
) -> None:
    """apt takes the first block of whatever name for the key; only what was checked may reach it."""
    disguised = armour(OTHER, "MESSAGE") + KEY + "trailing words\n"
    apply(ready, report, by_address(server.serve("/key", disguised)))
    assert Path(ready.path(KEYRING)).read_bytes() == STORED


def test_a_key_is_never_fetched_without_a_fingerprint(ready: Any, server: KeyServer) -> None:
    with pytest.raises(StepFailed, match="only where its fingerprint is pinned"):
        differences(ready, by_address(server.serve("/key", KEY), fingerprint=None))
    assert server.requests == []


def test_a_missing_key_is_told_with_its_address(ready: Any, report: Any, server: KeyServer) -> None:
    args = by_address(server.url + "/debian12/x86_64/3bf863cc.pub")
    with pytest.raises(StepFailed) as caught:
        apply(ready, report, args)
    assert caught.value.what == (
        "download_not_found: the key of repository example is not at "
        f"{server.url}/debian12/x86_64/3bf863cc.pub (HTTP 404)"
    )
    assert "key_url" in str(caught.value.remedy)


def test_versions_are_asked_with_a_key_that_was_fetched_for_it(ready: Any, server: KeyServer) -> None:
    seen: dict[str, bytes] = {}

    def update(argv: Any) -> Result:
        sources = next(word.partition("=")[2] for word in argv if word.startswith("Dir::Etc::sourceparts="))
        text = Path(sources, "example.sources").read_text()
        seen["key"] = Path(text.partition("Signed-By: ")[2].strip()).read_bytes()
        return Result(0)

    ready.on("apt-get", "update", answer=update)
    ready.on("apt-cache", answer=Result(0, " x | 1.0 | https://x noble/main amd64 Packages\n"))
    query = {"id": "v", "kind": "package_versions", "names": ["x"]}
    args = by_address(server.serve("/key", KEY))
    assert queries.answer(ready, [{**query, "repositories": [args]}]) == {
        "v": {"ok": True, "value": {"x": ["1.0"]}}
    }
    assert seen["key"] == STORED
    assert not os.path.exists(ready.path("/etc/apt/keyrings"))
    wrong = queries.answer(ready, [{**query, "repositories": [by_address(server.url + "/none")]}])["v"]
    assert wrong["error"].startswith("download_not_found: ")
    assert "key_url" in wrong["remedy"]
    assert os.listdir(ready.runtime_dir) == []


def test_a_key_of_the_host_serves_for_asking_too(ready: Any, server: KeyServer) -> None:
    ready.write(KEYRING, STORED)
    ready.on("apt-cache", answer=Result(0))
    query = {"id": "v", "kind": "package_versions", "names": ["x"], "repositories": [by_address(server.url)]}
    assert queries.answer(ready, [query])["v"]["ok"]
    assert server.requests == []


# --- the way


def get(host: Any, url: str, **options: Any) -> bytes:
    return signing_key.download(host, url, "the key", **options)


def test_redirects_are_followed_and_a_login_stays_behind(ready: Any, server: KeyServer) -> None:
    server.serve("/new", b"here")
    server.serve("/old", b"", 302, Location="/new")
    address = server.url.replace("//", "//anna:s%20cret@") + "/old"
    assert get(ready, address) == b"here"
    (_, first), (_, second) = server.requests
    assert first["Authorization"] == "Basic " + base64.b64encode(b"anna:s cret").decode()
    assert "Authorization" not in second
    with pytest.raises(StepFailed) as caught:
        get(ready, address + "-not")
    assert "s%20cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "target", "followed"),
    [
        ("https", "https://b.example.net/k", True),
        ("https", "http://b.example.net/k", False),
        ("http", "https://b.example.net/k", True),
        ("http", "ftp://b.example.net/k", False),
    ],
)
def test_where_redirects_may_lead(scheme: str, target: str, followed: bool) -> None:
    import urllib.request

    request = urllib.request.Request(f"{scheme}://a.example.net/k")
    redirects = signing_key._redirects(scheme)
    if followed:
        assert redirects.redirect_request(request, None, 302, "Found", {}, target).full_url == target
    else:
        with pytest.raises(OSError, match="which is not followed from"):
            redirects.redirect_request(request, None, 302, "Found", {}, target)


def test_a_server_without_end_is_left_at_the_deadline(ready: Any, server: KeyServer) -> None:
    with pytest.raises(StepFailed, match=r"no whole answer within 0\.05 s"):
        get(ready, server.stall("/key"), deadline_s=0.05)


def test_a_cancelled_run_waits_for_no_server(ready: Any, server: KeyServer) -> None:
    ready._cancelled = lambda: True
    with pytest.raises(StepCancelled):
        get(ready, server.stall("/key"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/key", "download_failed: the key cannot be fetched from http://127.0.0.1:1/key"),
        ("ftp://repo.example.net/key", "it takes an http or https address"),
        ("file:///etc/shadow", "it takes an http or https address"),
        ("http://[::1/key", "it takes an http or https address"),
        ("http://repo.example.net:x/key", "it takes an http or https address"),
        ("http://" + "a" * 70 + "/key", "download_failed"),
    ],
)
def test_addresses_that_cannot_be(ready: Any, url: str, words: str) -> None:
    with pytest.raises(StepFailed, match=words):
        get(ready, url)


def test_a_server_that_refuses_is_quoted(ready: Any, server: KeyServer) -> None:
    url = server.serve("/key", b"", 403)
    with pytest.raises(StepFailed, match=r"download_refused: .*/key answers HTTP 403"):
        get(ready, url)


def test_a_circle_of_redirects_ends(ready: Any, server: KeyServer) -> None:
    url = server.serve("/key", b"", 302, Location="/key")
    with pytest.raises(StepFailed, match="download_refused"):
        get(ready, url)


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ('Acquire::http::Proxy "{proxy}";', ""),
        ('Acquire::http::Proxy::repo.example.net "{proxy}";\nAcquire::http::Proxy "DIRECT";', ""),
        ('Acquire::http::Proxy "{proxy}";', "http_proxy=http://127.0.0.1:1"),
        ("", "# set by hand\nexport HTTP_PROXY='{proxy}'\nno_proxy=example.com,.internal"),
        (
            'Acquire::http::Proxy-Auto-Detect "/usr/bin/site-proxy";\nAcquire::http::Proxy "http://127.0.0.1:1";',
            "",
        ),
    ],
)
def test_the_way_out_is_apts_and_then_the_environments(
    ready: Any, server: KeyServer, settings: str, environment: str
) -> None:
    ready.on("apt-config", "dump", answer=Result(0, settings.format(proxy=server.url) + "\n"))
    ready.on("/usr/bin/site-proxy", "http://repo.example.net/", answer=Result(0, server.url + "\n"))
    ready.write("/etc/environment", environment.format(proxy=server.url) + "\n")
    server.serve("http://repo.example.net/key", b"by proxy")
    assert get(ready, "http://repo.example.net/key") == b"by proxy"


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ('Acquire::http::Proxy::127.0.0.1 "DIRECT";\nAcquire::http::Proxy "http://127.0.0.1:1";', ""),
        ('Acquire::http::Proxy "DIRECT";', "http_proxy=http://127.0.0.1:1"),
        ("", "http_proxy=http://127.0.0.1:1\nno_proxy=localhost, 127.0.0.1"),
        ("", "https_proxy=http://127.0.0.1:1"),
    ],
)
def test_and_direct_where_they_say_so(ready: Any, server: KeyServer, settings: str, environment: str) -> None:
    ready.on("apt-config", "dump", answer=Result(0, settings + "\n"))
    ready.write("/etc/environment", environment)
    assert get(ready, server.serve("/key", b"direct")) == b"direct"


def test_a_proxy_that_is_none_of_http_is_told(ready: Any) -> None:
    ready.on(
        "apt-config",
        "dump",
        answer=Result(0, 'Acquire::http::Proxy "socks5h://u:p@proxy.example.net:1080";\n'),
    )
    with pytest.raises(StepFailed, match=r"proxy is socks5h://proxy\.example\.net:1080, and fleet"):
        get(ready, "https://repo.example.net/key")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Certificate and private key of 127.0.0.1, vouched for by nobody else; the first of the two is its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path = tmp_path / "server.pem"
    path.write_bytes(made.public_bytes(pem) + private)
    return path


def test_https_is_verified_by_the_authority_that_apt_has(ready: Any, certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with KeyServer(tls).running() as server:
        url = server.serve("/key", b"verified")
        with pytest.raises(StepFailed, match="certificate is not accepted") as caught:
            get(ready, url)
        assert "ca-certificates" in str(caught.value.remedy)
        ready.write("/etc/ssl/site.pem", certificate.read_bytes())
        ready.on("apt-config", "dump", answer=Result(0, 'Acquire::https::CaInfo "/etc/ssl/site.pem";\n'))
        assert get(ready, url) == b"verified"
        server.serve("/elsewhere", b"", 302, Location="http://127.0.0.1:1/key")
        with pytest.raises(
            StepFailed, match=r"redirects to http://127\.0\.0\.1:1/key, which is not followed from https"
        ):
            get(ready, server.url + "/elsewhere")


def test_a_secret_address_is_not_shown(ready: Any, report: Any, server: KeyServer) -> None:
    ready.secrets["s1"] = server.serve("/key", KEY)
    args = by_address({"$secret": "s1"})
    assert server.url not in str(differences(ready, args))
    apply(ready, report, args)
    assert load("apt_repository").diff(load("apt_repository").read(ready, args), args) == []
