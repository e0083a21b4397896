"""An image that the catalogue does not have: asked once, of whom knows it best, and kept by its digest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.audit.compatibility.inspected import inspected
from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image, NoSuchTag, NotInCatalogue
from fleet.core.errors import HostFailed, ImageNotFound, InputError, RegistryUnreachable
from fleet.core.secret import MASK, Scrubber
from fleet.inventory import LoadOptions, load_inventory
from fleet.run.audit_sources import held_digest
from fleet.run.images import Inspector, inspect
from fleet.run.images.access import Access, access_of
from fleet.store import Store
from tests.registry import RegistryServer

CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
OWN = {
    "config": {
        "Env": ["PYTORCH_VERSION=2.7.0+cu128", "NVIDIA_REQUIRE_CUDA=cuda>=12.8", "SECRET=hunter2hunter2"]
    }
}
VERSIONS = {
    "python": "3.11.9",
    "torch": "2.7.0+cu128",
    "cuda": "12.8",
    "arch_list": ["sm_90"],
    "cudnn": 90701,
}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


@dataclass
class FakeHost:
    """What an audit knows of a host, as far as images go."""

    name: str = "gpu01"
    found: Image | None = None
    held: str | None = None
    access: Any = None
    answer: Any = None
    asked: list[str] = field(default_factory=list)

    @property
    def look(self) -> Any:
        return self._look if self.answer is not None else None

    def _look(self, reference: str) -> Any:
        self.asked.append(reference)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def store() -> AbstractContextManager[Store]:
    return Store()


def inspector(**changes: Any) -> Inspector:
    return Inspector(load().images, **{"store": store, "online": True, **changes})


def checked(reference: str, digest: str, **changes: Any) -> Image | None:
    check = {"reference": reference, "digest": digest, "versions": {**VERSIONS, **changes}}
    return inspected({"container_check": check})


def image(found: Any) -> Image:
    assert isinstance(found, Image)
    return found


def test_a_tag_of_the_catalogue_asks_nobody() -> None:
    host = FakeHost(answer={"exists": True})
    assert image(inspector()(CU128, [host])).origin == "catalogue"
    assert host.asked == []


def test_a_registry_is_asked_once_for_one_digest(registry: RegistryServer) -> None:
    digest = registry.push("ml/train", "1", OWN)
    registry.push("ml/train", "the-same", OWN)
    name = f"{registry.place}/ml/train"
    found = image(inspector()(f"{name}:1"))
    assert (found.origin, found.torch, found.cuda, found.digest) == ("inspected", "2.7.0", "12.8", digest)
    assert (found.require_cuda, found.arch_list, found.ptx) == ("cuda>=12.8", None, None)
    registry.asked.clear()
    assert image(inspector()(f"{name}@{digest}")).torch == "2.7.0"
    assert registry.asked == []
    assert image(inspector()(f"{name}:the-same")).torch == "2.7.0"
    assert registry.paths == ["HEAD manifests/the-same"]


def test_a_tag_that_moves_while_it_is_asked_for_is_what_it_was(registry: RegistryServer) -> None:
    before = registry.push("ml/train", "1", OWN)
    kind, body = registry.store["ml/train/manifests/1"]
    told = {"Content-Type": kind, "Docker-Content-Digest": before}

    def moves(path: str) -> tuple[int, dict[str, str], bytes] | None:
        registry.answer_with = lambda path: None
        registry.push("ml/train", "1", {"config": {"Env": ["PYTORCH_VERSION=2.6.0"]}})
        return 200, told, body

    registry.answer_with = moves
    found = image(inspector()(f"{registry.place}/ml/train:1"))
    assert (found.digest, found.torch) == (before, "2.7.0")


def test_of_an_environment_only_what_speaks_of_cuda_is_kept(registry: RegistryServer, tmp_path: Path) -> None:
    registry.push("ml/train", "1", OWN)
    inspector()(f"{registry.place}/ml/train:1")
    kept = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert b"cuda>=12.8" in kept
    assert b"hunter2" not in kept


def test_offline_only_what_is_known_counts(registry: RegistryServer) -> None:
    digest = registry.push("ml/train", "1", OWN)
    name = f"{registry.place}/ml/train"
    assert isinstance(inspector(online=False)(f"{name}@{digest}"), NotInCatalogue)
    assert registry.asked == []
    inspector()(f"{name}@{digest}")
    assert image(inspector(online=False)(f"{name}@{digest}")).torch == "2.7.0"


def test_what_a_hosts_container_check_found_holds_for_the_digest_and_is_kept(
    registry: RegistryServer,
) -> None:
    digest = registry.push("ml/train", "1", OWN)
    name = f"{registry.place}/ml/train"
    host = FakeHost(found=checked(f"{name}:1", digest))
    found = image(inspector()(f"{name}@{digest}", [FakeHost("gpu02"), host]))
    assert (found.arch_list, found.cudnn) == (("9.0",), "9.7.1")
    assert registry.asked == []
    again = image(inspector(online=False)(f"{name}@{digest}"))
    assert (again.arch_list, again.cudnn) == (("9.0",), "9.7.1")
    assert again.provenance.source("arch_list").endswith("gpu01")
    # Asked for expressly, the configuration is read as well.
    both = image(inspector(forced=True)(f"{name}@{digest}"))
    assert (both.arch_list, both.require_cuda) == (("9.0",), "cuda>=12.8")


def test_a_host_that_has_the_image_is_asked_before_its_registry() -> None:
    digest = "sha256:" + "c" * 64
    answer = {"exists": True, "environment": OWN["config"]["Env"], "labels": {}}
    host = FakeHost(held=digest, answer=answer)
    found = image(inspector()("127.0.0.1:1/ml/train:1", [host]))
    assert (found.torch, found.digest) == ("2.7.0", digest)
    assert host.asked == [f"127.0.0.1:1/ml/train@{digest}"]
    assert "the engine of gpu01" in found.provenance.source("torch")


def test_where_hosts_have_two_by_one_name_the_registry_decides(registry: RegistryServer) -> None:
    digest = registry.push("ml/train", "1", OWN)
    hosts = [FakeHost(name, held="sha256:" + one * 64) for name, one in (("gpu01", "c"), ("gpu02", "d"))]
    assert image(inspector()(f"{registry.place}/ml/train:1", hosts)).digest == digest


@pytest.mark.parametrize("reference", ["127.0.0.1:1/ml/train:1", "127.0.0.1:1/ml/train@sha256:" + "0" * 64])
def test_what_cannot_be_found_out_is_not_known_and_says_why(reference: str) -> None:
    found = inspector()(reference)
    assert isinstance(found, NotInCatalogue)
    assert found.why.endswith("127.0.0.1:1 cannot be reached: Connection refused")
    with pytest.raises(RegistryUnreachable):
        inspector(forced=True)(reference)


def test_a_host_that_does_not_answer_for_its_image_is_an_error_only_if_forced() -> None:
    host = FakeHost(held="sha256:" + "c" * 64, answer=HostFailed("the engine does not answer", host="gpu01"))
    found = inspector()("127.0.0.1:1/ml/train:1", [host])
    assert isinstance(found, NotInCatalogue)
    assert "the engine does not answer" in found.why


def test_forced_an_official_tag_is_held_against_what_is_there(registry: RegistryServer) -> None:
    access = Access(mirrors=(f"http://{registry.place}",), public_internet=False)
    host = FakeHost(access=lambda: access)
    registry.push("pytorch/pytorch", CU128.partition(":")[2], {"config": {"Env": ["PYTORCH_VERSION=2.7.0"]}})
    same = image(inspector(forced=True)(CU128, [host]))
    assert (same.origin, same.differs) == ("catalogue", ())
    registry.push("pytorch/pytorch", CU128.partition(":")[2], {"config": {"Env": ["PYTORCH_VERSION=2.6.0"]}})
    other = image(inspector(forced=True)(CU128, [host]))
    assert other.differs == (("torch", "2.7.0", "2.6.0"),)
    assert (other.torch, other.arch_list) == ("2.6.0", None)


def test_a_tag_that_cannot_exist_is_not_looked_for() -> None:
    wrong = CU128.replace("cudnn9", "cudnn8")
    assert isinstance(inspector(forced=True)(wrong), NoSuchTag)
    with pytest.raises(ImageNotFound, match="does not exist") as error:
        inspect(wrong, load().images)
    assert CU128 in str(error.value)


def test_inspect_by_name(registry: RegistryServer) -> None:
    registry.push("ml/train", "1", OWN)
    assert inspect(f"{registry.place}/ml/train:1", load().images).torch == "2.7.0"
    with pytest.raises(ImageNotFound, match="HTTP 404"):
        inspect(f"{registry.place}/ml/train:2", load().images)
    with pytest.raises(InputError, match="public_internet is false"):
        inspect("ghcr.io/x/y:1", load().images, access=Access(public_internet=False))


def test_of_an_older_readers_words_nothing_is_believed(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = registry.push("ml/train", "1", OWN)
    name = f"{registry.place}/ml/train@{digest}"
    inspector()(name)
    registry.asked.clear()
    monkeypatch.setattr("fleet.run.images.inspection.READER", 99)
    inspector()(name)
    assert len(registry.asked) == 2


# -- what the inventory says ------------------------------------------------------------------------

SITE = """\
all:
  vars:
    site: registry.site
    registry: "{{ site }}:5000"
    registry_username: ci
    registry_password: correct horse
    registry_ca_file: /etc/site/ca.crt
    public_internet: false
    docker_engine_settings:
      insecure-registries: [10.0.0.0/8]
      registry-mirrors: ["https://mirror.site"]
  hosts:
    gpu01:
"""


def test_access_is_by_the_variables_that_provision_reads(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    (host,) = load_inventory(str(tmp_path / "site.yaml"), options=LoadOptions()).select(None)
    access = access_of(host)
    assert (access.registry, access.username, access.ca_file) == (
        "registry.site:5000",
        "ci",
        Path("/etc/site/ca.crt"),
    )
    assert (access.insecure, access.mirrors) == (("10.0.0.0/8",), ("https://mirror.site",))
    assert access.public_internet is False
    assert access.password is not None
    assert (str(access.password), access.password.reveal()) == (MASK, "correct horse")


def test_the_registrys_password_is_masked_wherever_it_might_be_shown() -> None:
    scrubber = Scrubber()
    from fleet.core.secret import Secret

    access = Access("127.0.0.1:1", "ci", Secret("correct horse", "registry_password"))
    inspector(scrubber=scrubber)("127.0.0.1:1/x:1", [FakeHost(access=lambda: access)])
    assert scrubber("a correct horse") == f"a {MASK}"


# -- which digest a host has ------------------------------------------------------------------------


def holding(*images: dict[str, Any]) -> dict[str, Any]:
    return {"engine": {"images": list(images)}}


def test_the_digest_that_a_host_has_by_a_name() -> None:
    one = {"tags": [CU128, "own:1"], "digests": ["sha256:1"]}
    assert held_digest(holding(one), f"docker.io/{CU128}") == "sha256:1"
    assert held_digest(holding(one), CU128 + "-devel") is None
    assert held_digest(holding({**one, "digests": ["sha256:1", "sha256:2"]}), CU128) is None
    assert held_digest(holding({**one, "digests": []}), CU128) is None
    assert held_digest({"engine": None}, CU128) is None
    pinned = "sha256:" + "2" * 64
    two = {"tags": [], "digests": ["sha256:1", pinned]}
    assert held_digest(holding(one, two), f"{CU128}@{pinned}") == pinned
    assert held_digest(holding(one), f"{CU128}@{pinned}") is None
    assert held_digest(holding(one), None) is None
