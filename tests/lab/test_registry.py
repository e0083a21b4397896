"""The lab's registry: TLS by its own authority, a login, and an image with a real torch in it."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Callable

import pytest
import yaml

from fleet.lab import faults
from fleet.lab.definition import REGISTRY_NAME, REGISTRY_OCTET, REGISTRY_PORT, HostDefinition
from fleet.lab.lab import Lab

pytestmark = pytest.mark.lab
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class _Connection(http.client.HTTPSConnection):
    """HTTPS to ``registry.lab``, whose name only the lab's hosts can resolve."""

    def __init__(self, lab: Lab) -> None:
        trusted = ssl.create_default_context(cafile=str(lab.state.directory / "ca.crt"))
        super().__init__(REGISTRY_NAME, REGISTRY_PORT, timeout=10, context=trusted)
        self._trusted = trusted
        self._address = str(lab.definition.outer[REGISTRY_OCTET])

    def connect(self) -> None:
        plain = socket.create_connection((self._address, REGISTRY_PORT), timeout=10)
        self.sock = self._trusted.wrap_socket(plain, server_hostname=REGISTRY_NAME)


def ask(lab: Lab, path: str, password: str | None) -> http.client.HTTPResponse:
    connection = _Connection(lab)
    headers = {"Accept": MANIFEST}
    if password is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"lab:{password}".encode()).decode()
    connection.request("HEAD", path, headers=headers)
    response = connection.getresponse()
    connection.close()
    return response


def test_it_wants_a_login(lab: Lab) -> None:
    password = (lab.state.directory / "registry_password").read_text().strip()
    assert ask(lab, "/v2/", None).status == 401
    assert ask(lab, "/v2/", "wrong").status == 401
    assert ask(lab, "/v2/", password).status == 200


def test_the_digests_inventories_read_are_those_it_has(lab: Lab) -> None:
    password = (lab.state.directory / "registry_password").read_text().strip()
    variables = yaml.safe_load((lab.state.directory / "variables.yaml").read_text())
    response = ask(lab, "/v2/pytorch-cuda/manifests/2.7-lab", password)
    assert response.status == 200
    assert response.headers["Docker-Content-Digest"] == variables["lab_pytorch_digest"]


def test_its_certificate_is_not_trusted_without_the_labs_authority(lab: Lab) -> None:
    address = (str(lab.definition.outer[REGISTRY_OCTET]), REGISTRY_PORT)
    with socket.create_connection(address, timeout=10) as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname=REGISTRY_NAME)


@pytest.mark.slow
def test_a_host_pulls_the_image_by_digest_and_computes_with_it(
    lab: Lab, lab_host: Callable[..., HostDefinition]
) -> None:
    """Each host has an engine of its own; torch in the image is real, on the CPU."""
    host = lab_host(packages=("docker.io",))
    folder = f"/etc/docker/certs.d/{REGISTRY_NAME}:{REGISTRY_PORT}"
    authority = (lab.state.directory / "ca.crt").read_text()
    faults.execute(lab, host.name, "sh", "-ec", f"mkdir -p {folder}; cat > {folder}/ca.crt", stdin=authority)
    variables = yaml.safe_load((lab.state.directory / "variables.yaml").read_text())
    pinned = f"{REGISTRY_NAME}:{REGISTRY_PORT}/pytorch-cuda@{variables['lab_pytorch_digest']}"
    refused = faults.execute(lab, host.name, "docker", "pull", pinned, check=False)
    assert "no basic auth credentials" in refused.stderr
    password = (lab.state.directory / "registry_password").read_text().strip()
    login = ("docker", "login", "--username", "lab", "--password-stdin", f"{REGISTRY_NAME}:{REGISTRY_PORT}")
    faults.execute(lab, host.name, *login, stdin=password)
    faults.execute(lab, host.name, "docker", "pull", "--quiet", pinned)
    program = "import torch; a = torch.eye(64) * 2; print(int((a @ a).trace()), torch.cuda.is_available())"
    done = faults.execute(lab, host.name, "docker", "run", "--rm", pinned, "python3", "-c", program)
    assert done.stdout == "256 False\n"


def test_a_test_can_push_an_image_of_its_own(lab: Lab) -> None:
    digest = lab.push(lab.images.ensure_tiny(), "of-a-test:1")
    password = (lab.state.directory / "registry_password").read_text().strip()
    response = ask(lab, "/v2/of-a-test/manifests/1", password)
    assert response.headers["Docker-Content-Digest"] == digest
