"""The agent as a host has it: from an archive in memory, and unpacked; both bring the binding along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from fleet.transport.bundle import Bundle
from tests.agent.gpu_probe.conftest import GpuHost

# As the stage of fleet.transport.stage does it: no environment, no site-packages.
FROM_MEMORY = """\
import os, sys
data = open(sys.argv[1], "rb").read()
number = os.memfd_create("fleet")
os.write(number, data)
place = "/proc/self/fd/%d" % number
"""
FROM_FOLDER = "import sys; place = sys.argv[1]\n"
PROBE = """\
sys.path.insert(0, place)
import json
from fleet.agent.gpu_probe import document
from fleet.agent.host import Host
assert "pynvml" not in sys.modules
found = document.probe(Host(sys.argv[2]), json.loads(sys.argv[3]))
assert "pynvml" not in sys.modules and "ctypes" not in sys.modules
print(json.dumps(found))
"""


def run(script: str, place: Path, host: GpuHost) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, place, host.root, json.dumps(host.gpus)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.of_agent()


def test_it_probes_from_memory_with_the_binding_it_brings(
    gpu_host: GpuHost, bundle: Bundle, tmp_path: Path
) -> None:
    archive = tmp_path / "bundle.zip"
    archive.write_bytes(bundle.data)
    found = run(FROM_MEMORY + PROBE, archive, gpu_host)
    assert (found["status"], len(found["devices"])) == ("ok", 2)
    assert found["binding"]


def test_it_probes_from_the_unpacked_folder(gpu_host: GpuHost, bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(BytesIO(bundle.data)) as archive:
        archive.extractall(folder)
    found = run(FROM_FOLDER + PROBE, folder, gpu_host)
    assert (found["status"], len(found["devices"])) == ("ok", 2)
    assert found["binding"] in (folder / "pynvml_version.py").read_text()
    assert not os.path.exists(folder / "core")


def test_the_binding_travels_with_its_licence(bundle: Bundle) -> None:
    with zipfile.ZipFile(BytesIO(bundle.data)) as archive:
        head = archive.read("pynvml.py")[:2000].decode()
    assert "Redistributions of source code must retain the above copyright" in head
    assert bundle.sha256 == Bundle.of_agent().sha256
