"""Images in Debian's docker-registry, looked into: the one of the lab's image, started without its TLS and login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.catalogue.references import Reference
from fleet.core.errors import ImageNotFound
from fleet.lab.engine import wait_until
from fleet.lab.images import http_answers
from fleet.lab.lab import Lab
from fleet.run.images.access import Access
from fleet.run.images.registry import Source
from tests.conftest import INVENTORY

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def made(lab_tools: None) -> Lab:
    """A lab that is not up: of it only the image of the registry is needed."""
    found = Lab.load(INVENTORY)
    found.images.build([], registry=True)
    return found


@pytest.fixture
def place(made: Lab) -> Iterator[str]:
    docker = made.engine.docker
    container = docker(
        "run", "--detach", "--rm", "--publish", "127.0.0.1::5000", made.images.registry()
    ).stdout.strip()
    try:
        address = docker("port", container, "5000/tcp").stdout.split()[0]
        wait_until(lambda: http_answers(address), "it answers", host="registry")
        yield address
    finally:
        docker("rm", "--force", container)


def test_the_lab_image_is_known_by_manifest_and_configuration(made: Lab, place: str) -> None:
    source = Source(Reference.parse(f"{place}/pytorch-cuda:2.7-lab"), Access())
    pushed = made.images.digests()["pytorch-cuda:2.7-lab"]
    seen = source.look()
    assert source.digest() == seen.digest == pushed
    assert any(one.startswith("PYTORCH_VERSION=") for one in seen.configuration["config"]["Env"])


def test_what_it_does_not_have_is_not_found(place: str) -> None:
    with pytest.raises(ImageNotFound, match=r"(MANIFEST|NAME)_UNKNOWN"):
        Source(Reference.parse(f"{place}/nothing:1"), Access()).look()
