"""The package resource on real hosts of the lab: one of each Debian release."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fleet.lab.lab import Lab

pytestmark = pytest.mark.lab

REPOSITORY = Path(__file__).parents[3]


def inside(name: str, *argv: str, data: bytes | None = None) -> str:
    """Run a command in a lab host; its standard output."""
    words = ["docker", "exec", "-i", name, *argv]
    done = subprocess.run(words, input=data, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(params=["bullseye", "bookworm", "trixie"])
def seen(request: pytest.FixtureRequest, lab: Lab) -> Iterator[dict[str, Any]]:
    """What lab_script.py saw on a host of that release."""
    fitting = [host for host in lab.members if host.release == request.param and host.python == "full"]
    name = lab.place.container(fitting[0].name)
    folder = f"/root/.fleet-test-{uuid.uuid4().hex[:8]}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(REPOSITORY / "fleet/__init__.py", "fleet/__init__.py")
        for path in sorted((REPOSITORY / "fleet/agent").rglob("*.py")):
            archive.add(path, path.relative_to(REPOSITORY).as_posix())
        archive.add(Path(__file__).with_name("lab_script.py"), "lab_script.py")
    inside(name, "sh", "-c", f"mkdir {folder} && tar -x -C {folder}", data=packed.getvalue())
    try:
        yield json.loads(inside(name, "python3", "-S", "-E", f"{folder}/lab_script.py", folder))
    finally:
        inside(name, "rm", "-rf", folder)


def test_real_packages(seen: dict[str, Any]) -> None:
    assert seen["install"] == [2, []]
    assert seen["again"] == [0, []]
    assert seen["dpkg_after_install"] == "hold installed"
    assert "tree in version 99 (offered: " in seen["no_such_version"][1]
    assert seen["free"] == [1, []]
    assert seen["remove"] == [1, []]
    assert seen["dpkg_after_remove"] in ("", "unknown ok not-installed", "unknown not-installed")
    holder, words = seen["locked"]
    assert f"(pid {holder})" in words
    words, audit, left = seen["cancelled"]
    assert "cancelled" in words
    assert audit == ""
    assert left == []
    assert seen["clean"][1] == []
    assert seen["versions"]["value"]["tree"]
    assert seen["lists_unchanged"]
    schema = json.loads((REPOSITORY / "schemas/facts.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(seen["facts"])
    assert seen["facts"]["errors"] == []
    assert seen["facts"]["simulated"] is True
    assert seen["facts"]["systemd"]["present"] is True
