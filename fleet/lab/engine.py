"""The Docker Engine of this machine, through its command line: the only way the lab acts on anything.

Every object the lab makes carries the label ``fleet.lab=<name>``, so that ``down`` finds all of it
and never anything else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.core.errors import FleetError, RefusedError

LABEL = "fleet.lab"
Progress = Callable[[str], None]
Json = dict[str, Any]


class LabFailed(FleetError):
    """A command the lab needs did not do its work; its last words are in the message."""


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
    deadline: float = 900,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` on this machine and return what it said.

    Raises :class:`LabFailed` where it exits other than 0 (unless ``check`` is false) or is not
    done in ``deadline`` seconds.
    """
    words = [str(word) for word in argv]
    payload = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            words,
            input=payload if payload is not None else b"",
            capture_output=True,
            env={**os.environ, **(environment or {})},
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise LabFailed(
            f"{words[0]} {' '.join(words[1:3])} … is not done after {deadline:.0f} s"
        ) from expired
    result = subprocess.CompletedProcess(
        words, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    if check and result.returncode != 0:
        last = "\n    ".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-8:])
        raise LabFailed(f"`{' '.join(words[:6])} …` ended with {result.returncode}:\n    {last}")
    return result


def wait_until(
    condition: Callable[[], bool], what: str, *, deadline: float = 120, host: str | None = None
) -> None:
    """Ask ``condition`` every 0.1 s until it holds; LabFailed naming ``what`` after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise LabFailed(f"waited {deadline:.0f} s in vain until {what}", host=host)
        time.sleep(0.1)


class Engine:
    """Docker on this machine. Methods raise :class:`LabFailed` with Docker's own words."""

    def docker(
        self,
        *argv: str | Path,
        stdin: str | bytes | None = None,
        environment: Mapping[str, str] | None = None,
        deadline: float = 900,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """``docker argv…``."""
        return run(["docker", *argv], stdin=stdin, environment=environment, deadline=deadline, check=check)

    def require(self) -> None:
        """Refuse (exit 2) where no engine answers, saying how to have one."""
        if shutil.which("docker") is None:
            raise RefusedError(
                "the lab needs Docker, and there is no `docker` on this machine",
                remedy="run ./scripts/setup as root, or install docker.io",
            )
        done = self.docker("version", "--format", "{{.Server.Version}}", check=False, deadline=30)
        if done.returncode != 0:
            raise RefusedError(
                f"the lab needs a Docker Engine, and none answers: {done.stderr.strip().splitlines()[-1]}",
                remedy="run ./scripts/setup as root (it installs and starts one), or start yours",
            )

    def inspect(self, kind: str, name: str) -> Json | None:
        """``docker KIND inspect NAME``; None where there is no such object."""
        done = self.docker(kind, "inspect", name, check=False, deadline=60)
        if done.returncode != 0:
            return None
        documents: list[Json] = json.loads(done.stdout)
        return documents[0] if documents else None

    def names(self, kind: str, lab: str) -> list[str]:
        """Names of the containers, volumes or networks (``kind``) of one lab."""
        column = "{{.Names}}" if kind == "container" else "{{.Name}}"
        all_of_them = ["--all"] if kind == "container" else []
        done = self.docker(
            kind, "ls", *all_of_them, "--filter", f"label={LABEL}={lab}", "--format", column, deadline=60
        )
        return done.stdout.split()

    def all_names(self) -> list[str]:
        """Names of the running containers of every lab of this machine."""
        listed = self.docker(
            "container", "ls", "--filter", f"label={LABEL}", "--format", "{{.Names}}", deadline=60
        )
        return listed.stdout.split()

    def image_id(self, tag: str) -> str | None:
        """The id of a local image, or None."""
        found = self.inspect("image", tag)
        return str(found["Id"]) if found else None


def bounding_capabilities() -> set[str]:
    """Capabilities this process may hand to a container, from CapBnd of ``/proc/self/status``.

    ``docker run --privileged`` fails as a whole where one capability is missing from the bounding
    set, so the lab asks for those that are there one by one.
    """
    status = Path("/proc/self/status").read_text()
    bits = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:")), 16)
    return {name for name, bit in _CAPABILITY_BITS.items() if bits >> bit & 1}


# linux/capability.h; only those a host with systemd and an engine inside has a use for.
_CAPABILITY_BITS = {
    "DAC_READ_SEARCH": 2,
    "NET_BROADCAST": 11,
    "NET_ADMIN": 12,
    "IPC_LOCK": 14,
    "SYS_MODULE": 16,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SYS_BOOT": 22,
    "SYS_NICE": 23,
    "SYS_RESOURCE": 24,
    "SYS_TIME": 25,
    "LEASE": 28,
    "AUDIT_CONTROL": 30,
    "MAC_ADMIN": 33,
    "SYSLOG": 34,
}


def default_mtu() -> int:
    """MTU of the interface that holds the default route (1500 where there is none).

    A bridge with a larger one loses large packets wherever path-MTU discovery is filtered.
    """
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[1] == "00000000":
            return int(Path(f"/sys/class/net/{columns[0]}/mtu").read_text())
    return 1500
