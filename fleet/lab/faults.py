"""What happens to hosts in the wild, done to one lab host on purpose, and undone again.

None of it goes through fleet: these are the tests' own hands. Each function names the host's
container through :class:`fleet.lab.lab.Lab`.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping

from fleet.lab import hosts
from fleet.lab.definition import BASTION_OCTET
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from fleet.lab.simulation import deb
from fleet.lab.state import new_host_keys

# In each line the pid of a process, its parent's and its name (sshd's helpers begin with "sshd").
_PROCESSES = r"""
for directory in /proc/[0-9]*; do
    { read -r name < "$directory/comm"; } 2>/dev/null || continue
    parent=$(sed -n 's/^PPid:[^0-9]*//p' "$directory/status" 2>/dev/null) || continue
    echo "${directory#/proc/} $parent $name"
done
"""

# In place of every command: the command, with noise in what it prints.
_GARBAGE = """\
#!/usr/bin/env python3
import os, subprocess, sys

NOISE, left = bytes(range(256)) * 4 + b"\\n", @AFTER@
process = subprocess.Popen(["sh", "-c", os.environ.get("SSH_ORIGINAL_COMMAND", "exec sh")], stdout=subprocess.PIPE)
sent = left > 0
if not sent:
    os.write(1, NOISE)
while data := os.read(process.stdout.fileno(), 65536):
    if sent and len(data) >= left:
        data, sent = data[:left] + NOISE + data[left:], False
    left -= len(data)
    while data:
        data = data[os.write(1, data):]
sys.exit(process.wait() & 255)
"""


def execute(
    lab: Lab,
    host: str,
    *argv: str,
    stdin: str | None = None,
    check: bool = True,
    user: str | None = None,
    deadline: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` as root (or ``user``) inside ``host``, not by SSH: the witness that is not fleet."""
    options = ["--interactive", *(["--user", user] if user else [])]
    return lab.engine.docker(
        "exec", *options, lab.place.container(host), *argv, stdin=stdin, check=check, deadline=deadline
    )


def shell(lab: Lab, host: str, script: str, *, check: bool = True, deadline: float = 300) -> str:
    """Standard output of a shell script run as root inside ``host``."""
    return execute(lab, host, "sh", "-ec", script, check=check, deadline=deadline).stdout


def pid(lab: Lab, host: str) -> int:
    """Process id, on this machine, of the host's PID 1. ``/proc/PID/root`` is the host's file tree."""
    document = lab.engine.inspect("container", lab.place.container(host))
    return int(document["State"]["Pid"]) if document else 0


def boot_id(lab: Lab, host: str) -> str:
    """The host's boot id now."""
    return execute(lab, host, "cat", "/proc/sys/kernel/random/boot_id").stdout.strip()


def stop(lab: Lab, host: str, *, power: bool = False) -> None:
    """Shut the host down; ``power``: pull the plug instead (nothing gets to write its last words)."""
    if power:
        lab.engine.docker("kill", "--signal", "KILL", lab.place.container(host))
        # Docker restarts what was killed: a stop afterwards says that it is to stay off.
    lab.engine.docker("stop", "--time", "0" if power else "20", lab.place.container(host))


def start(lab: Lab, host: str) -> None:
    """Switch the host on, and wait until sshd runs."""
    lab.engine.docker("start", lab.place.container(host))
    hosts.wait_until_up(lab.place, host)


def reboot(lab: Lab, host: str) -> None:
    """``systemctl reboot`` on the host, and wait until it is back with another boot id."""
    before = boot_id(lab, host)
    execute(lab, host, "systemctl", "reboot", check=False)
    wait_until_rebooted(lab, host, before)


def wait_until_rebooted(lab: Lab, host: str, before: str, *, deadline: float = 120) -> None:
    """Wait until ``host`` runs with a boot id other than ``before`` and sshd is active."""

    def back() -> bool:
        found = execute(lab, host, "cat", "/proc/sys/kernel/random/boot_id", check=False)
        # Before the boot script has run, a starting container shows the outer kernel's own boot id.
        ready = execute(lab, host, "test", "-s", "/run/fleet-lab-boot-id", check=False)
        return ready.returncode == 0 and found.returncode == 0 and found.stdout.strip() not in ("", before)

    wait_until(back, f"it is back from a reboot (boot id was {before})", deadline=deadline, host=host)
    hosts.wait_until_up(lab.place, host)


@contextlib.contextmanager
def frozen_sshd(lab: Lab, host: str) -> Iterator[None]:
    """While it lasts, sshd and its sessions are stopped: connections stand, and nothing answers."""
    freeze_sshd(lab, host)
    try:
        yield
    finally:
        thaw_sshd(lab, host)


def freeze_sshd(lab: Lab, host: str) -> None:
    """Send SIGSTOP to every sshd process of ``host``."""
    _signal(lab, host, "STOP", _sshd(lab, host))


def thaw_sshd(lab: Lab, host: str) -> None:
    """Undo :func:`freeze_sshd`."""
    _signal(lab, host, "CONT", _sshd(lab, host))


def cut_connections(lab: Lab, host: str) -> int:
    """Kill the sshd processes of established sessions: peers see a reset. How many were killed."""
    sessions = _sshd(lab, host, sessions_only=True)
    _signal(lab, host, "KILL", sessions)
    return len(sessions)


@contextlib.contextmanager
def silent(lab: Lab, host: str) -> Iterator[None]:
    """While it lasts, nothing the host sends reaches whoever connects to it: a cable pulled out."""
    silence(lab, host)
    try:
        yield
    finally:
        unsilence(lab, host)


def silence(lab: Lab, host: str) -> None:
    """Drop what ``host`` sends to this machine (or to the bastion, for a host behind it)."""
    execute(lab, host, "ip", "route", "replace", "blackhole", f"{_peer(lab, host)}/32")
    execute(lab, host, "ip", "route", "flush", "cache", check=False)


def unsilence(lab: Lab, host: str) -> None:
    """Undo :func:`silence`."""
    execute(lab, host, "ip", "route", "del", "blackhole", f"{_peer(lab, host)}/32", check=False)


@contextlib.contextmanager
def changed_host_key(lab: Lab, host: str) -> Iterator[None]:
    """While it lasts, ``host`` has host keys that known_hosts does not, as a reinstalled machine would."""
    _install_host_keys(lab, host, new_host_keys(host))
    try:
        yield
    finally:
        _install_host_keys(lab, host, lab.state.host_keys(host, lab.member(host).address))


@contextlib.contextmanager
def garbage_on_channel(lab: Lab, host: str, *, after: int = 0) -> Iterator[None]:
    """While it lasts, every command run over SSH has bytes in its output that nobody sent.

    They come once ``after`` bytes of the command's own have gone through. Needs python3 on the host.
    """
    files = {
        "usr/lib/fleet-lab-garbage": hosts.File(_GARBAGE.replace("@AFTER@", str(after)), 0o755),
        "etc/ssh/sshd_config.d/garbage.conf": hosts.File("ForceCommand /usr/lib/fleet-lab-garbage\n"),
    }
    lab.place.put(lab.place.container(host), files)
    execute(lab, host, "systemctl", "restart", "ssh.service")
    try:
        yield
    finally:
        execute(lab, host, "rm", "-f", "/etc/ssh/sshd_config.d/garbage.conf")
        execute(lab, host, "systemctl", "restart", "ssh.service")


@contextlib.contextmanager
def slow_link(lab: Lab, host: str, *, kilobytes_per_second: int) -> Iterator[None]:
    """While it lasts, what ``host`` sends goes no faster. LabFailed where this machine's kernel has no tbf."""
    rate = f"{kilobytes_per_second * 8}kbit"
    shape = (
        "tc",
        "qdisc",
        "replace",
        "dev",
        "eth0",
        "root",
        "tbf",
        "rate",
        rate,
        "burst",
        "4kb",
        "latency",
        "1s",
    )
    execute(lab, host, *shape)
    try:
        yield
    finally:
        execute(lab, host, "tc", "qdisc", "del", "dev", "eth0", "root", check=False)


@contextlib.contextmanager
def small_disk(lab: Lab, host: str, path: str, *, megabytes: int) -> Iterator[None]:
    """While it lasts, ``path`` of ``host`` is a disk of its own, empty and that large.

    Under /var/lib/docker the engine is stopped before and, where it ran, started afterwards.
    """
    of_the_engine = path == "/var/lib/docker" or path.startswith("/var/lib/docker/")
    runs = of_the_engine and _runs(lab, host, "docker.service")

    def remount(command: str) -> None:
        if runs:
            execute(lab, host, "systemctl", "stop", "docker.socket", "docker.service")
        shell(lab, host, command)
        if runs:
            execute(lab, host, "systemctl", "start", "docker.service")

    remount(f"mkdir -p {path} && mount -t tmpfs -o size={megabytes}m fleet-lab-small {path}")
    try:
        yield
    finally:
        remount(f"umount {path}")


def interrupt_dpkg(lab: Lab, host: str) -> str:
    """Have dpkg killed in the middle of configuring a package; the package's name, which is left half-configured.

    ``dpkg --configure -a`` sets it right. Until then apt does nothing.
    """
    name = "fleet-lab-interrupted"
    kill = "[ -e /run/fleet-lab-interrupt ] || exit 0\nrm /run/fleet-lab-interrupt\nkill -KILL $PPID\n"
    package = deb.Package(name, "1.0-1", "is interrupted", scripts={"postinst": kill}, architecture="all")
    path = f"/root/{package.file_name}"
    lab.engine.docker(
        *("exec", "--interactive", lab.place.container(host), "sh", "-ec"),
        f"cat > {path}; touch /run/fleet-lab-interrupt; dpkg -i {path} || true; rm {path}",
        stdin=deb.build(package),
    )
    return name


def _runs(lab: Lab, host: str, unit: str) -> bool:
    return execute(lab, host, "systemctl", "is-active", "--quiet", unit, check=False).returncode == 0


def _install_host_keys(lab: Lab, host: str, keys: Mapping[str, str]) -> None:
    lab.place.put(lab.place.container(host), hosts.host_key_files(keys))
    # A restart returns when sshd listens again (a reload does not); sessions live through it.
    execute(lab, host, "systemctl", "restart", "ssh.service")


def _peer(lab: Lab, host: str) -> str:
    if lab.member(host).behind_bastion:
        return str(lab.definition.inner[BASTION_OCTET])
    return str(lab.definition.outer[1])


def _sshd(lab: Lab, host: str, *, sessions_only: bool = False) -> list[str]:
    """Pids, inside the host, of its sshd processes; the listener is the one systemd started."""
    found = []
    for line in shell(lab, host, _PROCESSES).splitlines():
        process, parent, name = line.split(maxsplit=2)
        if name.startswith("sshd") and not (sessions_only and parent == "1"):
            found.append(process)
    return found


def _signal(lab: Lab, host: str, signal: str, pids: list[str]) -> None:
    if pids:
        execute(lab, host, "sh", "-c", f"kill -s {signal} {' '.join(pids)} 2>/dev/null || true")
