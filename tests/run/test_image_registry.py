"""An image in a registry is looked into by a few kilobytes, with the login and trust that the inventory declares."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fleet.catalogue.references import Reference
from fleet.core.errors import (
    ExitCode,
    ImageDenied,
    ImageError,
    ImageNotFound,
    InputError,
    RegistryUnreachable,
)
from fleet.core.secret import Secret
from fleet.run.images.access import Access, Endpoint
from fleet.run.images.http import Registry
from fleet.run.images.registry import Seen, Source
from tests.registry import PASSWORD, USER, RegistryServer

CONFIGURATION = {"architecture": "amd64", "config": {"Env": ["PYTORCH_VERSION=2.7.0"]}}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def own(server: RegistryServer, password: str = PASSWORD) -> Access:
    return Access(registry=server.place, username=USER, password=Secret(password, "registry"))


def look(server: RegistryServer, name: str = "ml/train:1", access: Access | None = None) -> Seen:
    return Source(Reference.parse(f"{server.place}/{name}"), access or Access()).look()


def test_manifest_and_configuration_are_all_that_is_asked_for(registry: RegistryServer) -> None:
    digest = registry.push("ml/train", "1", CONFIGURATION)
    seen = look(registry)
    assert (seen.place, seen.digest, seen.manifest) == (registry.place, digest, digest)
    assert seen.configuration == CONFIGURATION
    assert [path.partition("/")[0] for path in registry.paths] == ["GET manifests", "GET blobs"]


def test_what_a_tag_means_is_asked_without_a_pull(registry: RegistryServer) -> None:
    digest = registry.push("ml/train", "1", CONFIGURATION)
    source = Source(Reference.parse(f"{registry.place}/ml/train:1"), Access())
    assert source.digest() == digest
    assert registry.paths == ["HEAD manifests/1"]
    registry.digest_header = False
    assert source.digest() == digest


def test_of_several_processors_one_is_looked_at_and_attestations_are_none(registry: RegistryServer) -> None:
    index = registry.push("ml/train", "1", CONFIGURATION, ("arm64", "amd64"))
    seen = look(registry)
    assert seen.digest == index
    assert b'"for": "amd64"' in registry.store[f"ml/train/manifests/{seen.manifest}"][1]
    registry.push("ml/train", "2", CONFIGURATION, ("s390x",))
    with pytest.raises(ImageNotFound, match="is for s390x, and not for x86-64 or aarch64"):
        look(registry, "ml/train:2")


@pytest.mark.parametrize("login", ["basic", "token", "anonymous_token"])
def test_it_logs_in_as_the_registry_asks_once(login: str) -> None:
    with RegistryServer(login) as server:
        server.push("ml/train", "1", CONFIGURATION)
        access = Access() if login == "anonymous_token" else own(server)
        assert look(server, access=access).configuration == CONFIGURATION
        refused = [one for one in server.asked if one[1].startswith("/v2/") and one[2] is None]
        assert len(refused) == 1


@pytest.mark.parametrize("login", ["basic", "token"])
def test_without_the_right_login_it_says_what_to_declare(login: str) -> None:
    with RegistryServer(login) as server:
        server.push("ml/train", "1", CONFIGURATION)
        with pytest.raises(ImageDenied, match="shows ml/train not to everybody") as error:
            look(server)
        assert error.value.remedy == "name registry, registry_username and registry_password in the inventory"
        with pytest.raises(ImageDenied, match="takes these credentials not for ml/train") as error:
            look(server, access=own(server, "wrong"))
        assert error.value.exit_code is ExitCode.FAILED


def test_credentials_are_for_their_registry_alone(registry: RegistryServer) -> None:
    registry.push("ml/train", "1", CONFIGURATION)
    registry.login = "basic"
    elsewhere = Access(registry="registry.example.net", username=USER, password=Secret(PASSWORD, "registry"))
    with pytest.raises(ImageDenied):
        look(registry, access=elsewhere)
    assert {sent for _, _, sent in registry.asked} == {None}


def test_where_a_blob_lies_elsewhere_nobody_there_sees_the_login(registry: RegistryServer) -> None:
    with RegistryServer("basic") as server:
        server.push("ml/train", "1", CONFIGURATION)
        registry.push("ml/train", "1", CONFIGURATION)
        server.blobs_at = f"http://{registry.place}"
        assert look(server, access=own(server)).configuration == CONFIGURATION
    assert [(method, sent) for method, _, sent in registry.asked] == [("GET", None)]


def test_a_service_that_gives_tokens_without_tls_gets_nothing(tls: Path) -> None:
    with RegistryServer("token", tls) as server, RegistryServer("token") as listener:
        server.realm = f"http://{listener.place}/token"
        access = Access(server.place, USER, Secret(PASSWORD, "registry"), tls)
        with pytest.raises(RegistryUnreachable, match="which is not HTTPS"):
            Registry(Endpoint(f"https://{server.place}", own=True), access).get("ml/train/manifests/1")
        assert listener.asked == []


def test_what_is_not_there_is_said_with_the_registrys_words(registry: RegistryServer) -> None:
    with pytest.raises(ImageNotFound) as error:
        look(registry, "ml/nothing:7")
    assert error.value.what == (
        f"{registry.place} has no {registry.place}/ml/nothing:7 (HTTP 404 MANIFEST_UNKNOWN: manifest unknown)"
    )
    assert error.value.exit_code is ExitCode.BAD_INPUT


def test_where_tls_is_answered_nothing_is_sent_in_plain(tls: Path) -> None:
    with RegistryServer("basic", tls) as server:
        with pytest.raises(ImageDenied):
            look(server, access=own(server, "wrong"))
        assert len(server.asked) == server.connections == 2  # without the login, then with it


def test_bytes_that_are_not_those_of_the_digest_are_refused(registry: RegistryServer) -> None:
    digest = registry.push("ml/train", "1", CONFIGURATION)
    kind, body = registry.store[f"ml/train/manifests/{digest}"]
    registry.store[f"ml/train/manifests/{digest}"] = (kind, body + b" ")
    with pytest.raises(ImageError, match="has another digest"):
        look(registry, f"ml/train@{digest}")
    registry.push("ml/train", "2", CONFIGURATION)
    blob = next(path for path in registry.store if "/blobs/" in path)
    registry.store[blob] = ("application/json", b"{}")
    with pytest.raises(ImageError, match="has another digest"):
        look(registry, "ml/train:2")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((429, {}, b""), "limits how often it may be asked"),
        ((503, {}, b""), "does not work: HTTP 503"),
        ((200, {}, b"<html>"), "does not answer as an image registry"),
        ((302, {"Location": "ftp://127.0.0.1/x"}, b""), "cannot be reached"),
        ((200, {}, b" " * (9 << 20)), "more than 8 MiB"),
    ],
)
def test_an_answer_that_is_no_registrys_is_no_image(
    registry: RegistryServer, reply: tuple[int, dict[str, str], bytes], words: str
) -> None:
    registry.answer_with = lambda path: reply
    with pytest.raises(RegistryUnreachable, match=words) as error:
        look(registry)
    assert error.value.exit_code is ExitCode.UNREACHABLE
    assert error.value.remedy


def test_nobody_there(registry: RegistryServer) -> None:
    registry.__exit__()
    with pytest.raises(RegistryUnreachable, match=r"cannot be reached: Connection refused"):
        look(registry)


def test_a_manifest_without_a_configuration_is_of_an_old_kind(registry: RegistryServer) -> None:
    registry.answer_with = lambda path: (200, {}, b'{"schemaVersion": 1, "history": []}')
    with pytest.raises(ImageError, match="manifest of an old kind"):
        look(registry)


# -- trust ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that is its own authority, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test's registry")])
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=9))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "registry.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_certificate_is_held_against_the_authority_that_is_declared(tls: Path, tmp_path: Path) -> None:
    with RegistryServer(certificate=tls) as server:
        server.push("ml/train", "1", CONFIGURATION)
        endpoint = Endpoint(f"https://{server.place}", own=True)
        trusted = Registry(endpoint, Access(server.place, ca_file=tls))
        assert trusted.get("ml/train/manifests/1").status == 200
        with pytest.raises(RegistryUnreachable, match="is not trusted") as error:
            Registry(endpoint, Access(server.place)).get("ml/train/manifests/1")
        assert "registry_ca_file" in str(error.value)
        with pytest.raises(InputError, match="registry_ca_file"):
            Registry(endpoint, Access(server.place, ca_file=tmp_path / "none.crt"))


def test_plain_http_is_spoken_where_the_inventory_says_so_and_else_not(registry: RegistryServer) -> None:
    registry.push("ml/train", "1", CONFIGURATION)
    with pytest.raises(RegistryUnreachable, match="does not speak TLS") as error:
        Registry(Endpoint(f"https://{registry.place}"), Access()).get("ml/train/manifests/1")
    assert "insecure-registries" in str(error.value)
    assert look(registry).place == registry.place


# -- where to ask -----------------------------------------------------------------------------------


def urls(access: Access, reference: str) -> list[str]:
    return [one.url for one in access.endpoints(Reference.parse(reference))]


def test_docker_hub_is_asked_after_its_mirrors_and_others_directly() -> None:
    access = Access(mirrors=("https://mirror.example.net/",))
    assert urls(access, "pytorch/pytorch:1") == ["https://mirror.example.net", "https://registry-1.docker.io"]
    assert urls(access, "ghcr.io/pytorch/pytorch:1") == ["https://ghcr.io"]


def test_a_declared_registry_is_asked_without_tls_only_after_tls() -> None:
    access = Access(insecure=("registry.site:5000", "10.0.0.0/8"))
    for name in ("registry.site:5000", "10.1.2.3:5000", "localhost:5000", "127.0.0.1"):
        assert urls(access, f"{name}/x:1") == [f"https://{name}", f"http://{name}"]
    assert urls(access, "192.0.2.1:5000/x:1") == ["https://192.0.2.1:5000"]


def test_a_closed_site_asks_its_own_registries_alone() -> None:
    closed = Access(registry="registry.site:5000", public_internet=False, mirrors=("https://mirror.site",))
    assert urls(closed, "registry.site:5000/x:1") == ["https://registry.site:5000"]
    assert urls(closed, "pytorch/pytorch:1") == ["https://mirror.site"]
    with pytest.raises(InputError, match=r"ghcr\.io is not asked, because public_internet is false"):
        urls(closed, "ghcr.io/x/y:1")


def test_a_mirror_without_a_scheme_is_bad_input() -> None:
    with pytest.raises(InputError, match="has no http:// or https://"):
        urls(Access(mirrors=("mirror.example.net",)), "pytorch/pytorch:1")


def test_the_next_mirror_is_asked_where_one_does_not_have_it(registry: RegistryServer) -> None:
    with RegistryServer() as second:
        second.push("pytorch/pytorch", "own", CONFIGURATION)
        mirrors = (f"http://{registry.place}", f"http://{second.place}")
        access = Access(mirrors=mirrors, public_internet=False)
        seen = Source(Reference.parse("pytorch/pytorch:own"), access).look()
    assert seen.place == second.place
    assert registry.paths == ["GET manifests/own"]
