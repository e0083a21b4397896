"""Starts a worker so that it outlives the connection: a transient systemd unit, or a double fork.

Under logind's KillUserProcesses a mere setsid child dies at logout; a unit of the system manager lives.
``KillMode=process``: stopping or killing the worker must leave apt and dpkg, its children, alone.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.machine import Machine

_PROPERTIES = (
    "KillMode=process",
    "TimeoutStopSec=30",
    "OOMScoreAdjust=-500",
    "UMask=0077",
    "LimitCORE=0",  # the worker holds secrets in memory
)
_VARIABLES = ("FLEET_AGENT_STATE_DIR", "FLEET_AGENT_RUNTIME_DIR")


class NotStarted(Exception):
    """The worker could not be started; the message says what was said."""


def unit_name(run: str, attempt: int) -> str:
    """The name of the transient unit of one attempt at one run."""
    return "fleet-%s-%d.service" % (run, attempt)


def unit_command(command: list[str], unit: str, folder: str, environment: dict[str, str]) -> list[str]:
    """The systemd-run command line that starts ``command`` in ``folder`` as ``unit``."""
    words = ["systemd-run", "--quiet", "--collect", "--no-block", "--unit=" + unit]
    words.append("--description=fleet worker (%s)" % unit)
    words.extend("--property=" + text for text in _PROPERTIES)
    words.append("--property=WorkingDirectory=" + folder)
    words.extend("--setenv=%s=%s" % (name, environment[name]) for name in _VARIABLES if environment.get(name))
    return words + command


def unit_ended(shown: str) -> bool:
    """Whether ``systemctl show`` says that a unit has run; one whose start job still waits has not."""
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return properties.get("ActiveState") in ("inactive", "failed") and properties.get("Job", "") in ("", "0")


class Started:
    """A worker that was started: in ``unit``, or as the process ``pid``; the other is None."""

    def __init__(self, unit: Optional[str], pid: Optional[int]) -> None:
        self.unit = unit
        self.pid = pid

    def gone(self) -> bool:
        """Whether it has ended already."""
        if self.pid is not None:
            return not os.path.exists("/proc/%d" % self.pid)
        import subprocess

        command = ["systemctl", "show", "--property=ActiveState", "--property=Job", "--", str(self.unit)]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        said = subprocess.run(command, timeout=30, check=False, **options).stdout  # type: ignore[call-overload]
        return unit_ended(said.decode("utf-8", "replace"))


def start_worker(machine: Machine, run: str, attempt: int, folder: str, log: str) -> Started:
    """Start the worker, as a unit or (where process 1 is not systemd) by a double fork. Raises NotStarted."""
    command = [*machine.worker_command(), "--run", run, "--attempt", str(attempt)]
    if not machine.systemd():
        return Started(None, _double_fork(command, folder, log))
    import subprocess

    unit = unit_name(run, attempt)
    try:
        process = subprocess.run(
            unit_command(command, unit, folder, dict(os.environ)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotStarted("systemd-run: %s" % error) from None
    if process.returncode != 0:
        said = process.stdout[-500:].decode("utf-8", "replace").strip()
        raise NotStarted("systemd-run: exit code %d: %s" % (process.returncode, said))
    return Started(unit, None)


def _double_fork(command: list[str], folder: str, log: str) -> int:
    """Start ``command`` as a grandchild in its own session, its output in ``log``; its process id."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        said = os.read(reader, 32)
        os.close(reader)
        return int(said or b"0")
    try:
        os.setsid()
        grandchild = os.fork()
        if grandchild:
            os.write(writer, b"%d" % grandchild)
            os._exit(0)
        os.chdir(folder)
        source = os.open(os.devnull, os.O_RDONLY)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.closerange(3, 256)
        os.execv(command[0], command)
    finally:
        os._exit(127)
