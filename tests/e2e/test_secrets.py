"""No secret anywhere it must not be; and the same search finds one that was leaked on purpose.

Looked through: everything fleet printed at its loudest, log, store, reports, every file of fleet's on the
host, the host's system journal, and the command lines and environments of all processes of both sides,
sampled while the run is at work.
"""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from tests.e2e.harness import Fleet

pytestmark = pytest.mark.lab

SAMPLER = """
while [ -e /run/sampling ]; do
    for p in /proc/[0-9]*; do cat $p/cmdline $p/environ 2>/dev/null; done
    sleep 0.05
done
"""


@contextmanager
def sampled(lab: Lab, host: str, sink: list[str]) -> Iterator[None]:
    """Command lines and environments on the host and of this machine's fleet processes, many times a second."""
    faults.shell(lab, host, "touch /run/sampling")
    there = subprocess.Popen(
        ["docker", "exec", lab.place.container(host), "sh", "-c", SAMPLER], stdout=subprocess.PIPE
    )
    stop = threading.Event()
    here = threading.Thread(target=_sample_here, args=(stop, sink))
    here.start()
    reader = threading.Thread(target=lambda: sink.append(_bytes(there)))
    reader.start()
    try:
        yield
    finally:
        stop.set()
        faults.shell(lab, host, "rm -f /run/sampling")
        here.join()
        reader.join(60)
        there.wait(60)


def _bytes(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.read().decode("utf-8", "replace")


def _sample_here(stop: threading.Event, sink: list[str]) -> None:
    """The argument vectors of fleet's processes; the environment is the operator's own, where !secret env lives."""
    while not stop.wait(0.05):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    data = Path(f"/proc/{entry}/cmdline").read_bytes()
                except OSError:
                    continue
                if b"fleet" in data:
                    sink.append(data.decode("utf-8", "replace"))


def everything(fleet: Fleet, lab: Lab, host: str, said: str, samples: list[str]) -> dict[str, str]:
    """Every place a secret could be, as text by name."""
    places = {"output": said, "processes": "\n".join(samples)}
    for path in fleet.folder.rglob("*"):
        if path.is_file() and path.name not in ("site.yaml", "book.yaml"):
            places[str(path.relative_to(fleet.folder))] = path.read_bytes().decode("utf-8", "replace")
    places["host state"] = faults.shell(
        lab, host, "cat $(find /var/lib/fleet /run/fleet -type f) 2>/dev/null || true"
    )
    places["host journal"] = faults.shell(lab, host, "journalctl --no-pager -o export 2>/dev/null || true")
    return places


def spellings(value: str) -> list[str]:
    """Plain and base64, at each of the three offsets a longer text can put it."""
    found = [value]
    for lead in range(3):
        encoded = base64.b64encode(b"\0" * lead + value.encode()).decode()
        found.append(encoded[-(-lead * 8 // 6) : (lead + len(value)) * 8 // 6])
    return found


def leaks(places: dict[str, str], value: str) -> set[str]:
    """The places where ``value`` shows, in any spelling."""
    return {name for name, text in places.items() if any(one in text for one in spellings(value))}


def test_secrets_show_nowhere_and_a_leaked_one_is_found(
    lab: Lab, lab_host: Callable[..., HostDefinition], tmp_path: Path
) -> None:
    host = lab_host(login="sudo_password")
    token, control = (secrets.token_urlsafe(24) for _ in range(2))
    fleet = Fleet(tmp_path, env={"CANARY_TOKEN": token})
    images = yaml.safe_load((lab.state.directory / "variables.yaml").read_text())
    small = {"image": images["lab_tiny_image"], "image_digest": images["lab_tiny_digest"]}
    inventory = write_inventory(
        tmp_path / "site.yaml", lab, [host], lab_token="TOKEN", control=control, **small
    )
    inventory.write_text(
        inventory.read_text().replace("lab_token: TOKEN", "lab_token: !secret env CANARY_TOKEN")
    )
    book = tmp_path / "book.yaml"
    book.write_text(BOOK)
    samples: list[str] = []
    with sampled(lab, host.name, samples):
        done = fleet("run", str(inventory), str(book), "-vv", "--diff")
        assert done.code == 0, done.said
        provisioned = fleet("provision", str(inventory), "-vv", "--diff")
        assert provisioned.code == 0, provisioned.said
    places = everything(fleet, lab, host.name, done.said + provisioned.said, samples)
    sudo = (lab.state.directory / f"{host.name}.sudo_password").read_text().strip()
    registry = (lab.state.directory / "registry_password").read_text().strip()
    for name, value in {"token": token, "sudo": sudo, "registry": registry}.items():
        assert leaks(places, value) == set(), f"the {name} secret shows"
    written = faults.shell(lab, host.name, "cat /etc/lab-token /etc/lab-token.copy")
    assert written.count(token) == 2, "the secret did reach the host"
    found = leaks(places, control)
    assert {"output", "processes", "host state"} <= found, f"the search misses a leak: {found}"
    assert any(name.endswith(".db") for name in found)
    assert any(name.startswith("reports/") for name in found)
    assert base64.b64encode(control.encode()).decode() in places["output"]


BOOK = """
- hosts: all
  tasks:
    - name: a secret in a file
      copy: {dest: /etc/lab-token, content: "token={{ lab_token }}\\n", mode: "0600"}
    - name: a secret on standard input
      command:
        argv: [sh, -c, "cat > /etc/lab-token.copy; cat /etc/lab-token"]
        stdin: "copy={{ lab_token }}"
    - name: a leak made on purpose, plain and base64
      command: {argv: [sh, -c, "sleep 0.5; echo {{ control }}; printf %s {{ control }} | base64 -w0"]}
"""
