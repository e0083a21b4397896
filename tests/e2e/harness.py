"""The hands of the end-to-end tests: fleet as a process, and the witnesses on a host that are not fleet."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleet.lab import faults
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finished:
    """What a fleet process said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything it printed."""
        return self.out + self.err


@dataclass
class Fleet:
    """Runs the ``fleet`` command with a state directory and a working directory of its own."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The process environment of every call."""
        state = str(self.folder / "state")
        return {**os.environ, "PYTHONPATH": str(ROOT), "FLEET_STATE_DIR": state, "NO_COLOR": "1", **self.env}

    def __call__(self, *words: str, stdin: str | None = None, deadline: float = 600) -> Finished:
        """Run to the end."""
        done = subprocess.run(
            self._argv(words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=deadline,
            cwd=self.folder,
            env=self.environment,
            check=False,
            stdin=subprocess.DEVNULL if stdin is None else None,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> Running:
        """Start and go on; output goes to files."""
        out = (self.folder / "out.txt").open("w+")
        err = (self.folder / "err.txt").open("w+")
        process = subprocess.Popen(
            self._argv(words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=self.folder,
            env=self.environment,
        )
        return Running(process, Path(out.name), Path(err.name))

    def reports(self) -> dict[str, dict[str, Any]]:
        """The newest run's reports by host."""
        runs = sorted((self.folder / "reports").iterdir(), key=lambda path: path.stat().st_mtime)
        return {path.stem: json.loads(path.read_text()) for path in sorted(runs[-1].glob("*.json"))}

    def _argv(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "fleet.cli", *words]


@dataclass
class Running:
    """A fleet process that is still at work."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def finish(self, deadline: float = 600) -> Finished:
        """Wait for the end."""
        code = self.process.wait(deadline)
        return Finished(code, self.out.read_text(), self.err.read_text())

    def kill(self) -> None:
        """SIGKILL: nothing gets to tidy up."""
        self.process.kill()
        self.process.wait(30)

    def interrupt(self) -> None:
        """What Ctrl-C sends."""
        self.process.send_signal(signal.SIGINT)

    def says(self, pattern: str) -> bool:
        """Whether the output so far matches."""
        return re.search(pattern, self.out.read_text() + self.err.read_text()) is not None


def playbook(folder: Path, tasks: list[dict[str, Any]], **play: Any) -> Path:
    """A playbook of ``tasks`` for all hosts."""
    path = folder / "book.yaml"
    path.write_text(yaml.safe_dump([{"hosts": "all", **play, "tasks": tasks}], sort_keys=False))
    return path


def count(word: str) -> dict[str, Any]:
    """A task that is never repeated by itself: it appends ``word`` to the witness file."""
    return {"name": f"count {word}", "command": {"argv": ["sh", "-c", f"echo {word} >> /var/tmp/counter"]}}


def counted(lab: Lab, host: str) -> list[str]:
    """The words in the witness file, in the order they were appended."""
    return faults.shell(lab, host, "cat /var/tmp/counter 2>/dev/null || true").split()


def slow_apt(lab: Lab, host: str, seconds: int = 6) -> None:
    """From now on every dpkg call of apt waits first, with /run/in-apt showing that it does."""
    hook = f'DPkg::Pre-Invoke {{"touch /run/in-apt; sleep {seconds}";}};'
    faults.execute(lab, host, "sh", "-c", "cat > /etc/apt/apt.conf.d/99slow", stdin=hook + "\n")


def in_apt(lab: Lab, host: str) -> None:
    """Wait until apt is in the middle of an installation."""
    wait_until(
        lambda: faults.execute(lab, host, "test", "-e", "/run/in-apt", check=False).returncode == 0,
        "apt is at work",
        deadline=180,
        host=host,
    )


def installations(lab: Lab, host: str, package: str) -> int:
    """How many transactions of apt's own history installed ``package``."""
    history = faults.shell(lab, host, "cat /var/log/apt/history.log 2>/dev/null || true")
    return sum(f"{package}:" in line for line in history.splitlines() if line.startswith("Install:"))


def dpkg_is_clean(lab: Lab, host: str) -> bool:
    """Whether dpkg itself finds nothing half-done."""
    return faults.execute(lab, host, "dpkg", "--audit").stdout.strip() == ""


def processes(lab: Lab, host: str) -> str:
    """The command lines of every process of the host."""
    return faults.shell(
        lab, host, "for p in /proc/[0-9]*; do cat $p/cmdline 2>/dev/null | tr '\\0' ' '; echo; done"
    )


def idle(lab: Lab, host: str) -> None:
    """Wait until no package manager and no worker of fleet runs on the host."""
    busy = re.compile(r"apt-get|/usr/bin/dpkg |fleet\.agent worker")
    wait_until(lambda: not busy.search(processes(lab, host)), "it is idle", deadline=120, host=host)


def lease(lab: Lab, host: str) -> str:
    """The lease file, empty where no run holds the host."""
    return faults.shell(lab, host, "cat /var/lib/fleet/lease.json 2>/dev/null || true").strip()
