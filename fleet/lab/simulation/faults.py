"""Faults of simulated GPUs, packages and boots, switched on and off while the host runs.

A fault is a key of ``faults.view`` on the host (:mod:`.view`): :func:`switch` writes it. Any key of the
hardware may be overridden the same way. What only faults have:

=========================  ======================================================================
gpu.N.state                lost, unknown_error, reset_required, missing (at the next boot: off the bus)
gpu.N.hang, hang           1: calls about that GPU, or all, never return
gpu.N.processes            ``PID:MIB,…``: processes on it, as long as these pids live
gpu.N.nvlink.L             0: that link is down
gpu.N.remap_pending        1; likewise remap_failure, ecc_volatile_uncorrected, retired_pending …
gpu.N.recovery_action      1 reset, 2 reboot, 3 drain, 4 drain and reset
gpu.N.fabric_state         1 not started, 2 in progress, 3 completed; else as the fabric manager has it
init.error                 an NVML error number from initialisation
module_load_error          modprobe refuses with this text
module_holders             so many unnamed holders of the module (it cannot be unloaded)
dkms_build                 fail: no module can be built
secure_boot, mok_enrolled  Secure Boot on, and whether the modules' key is enrolled
boot_kernel                the next boot starts this kernel
boot                       never: the next boot does not come up
=========================  ======================================================================
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleet.core.errors import InputError
from fleet.lab.faults import execute
from fleet.lab.lab import Lab
from fleet.lab.simulation import site
from fleet.lab.simulation.repository import Key, resign
from fleet.lab.simulation.view import FOLDER

_FILE = f"{FOLDER}/faults.view"


def switch(lab: Lab, host: str, faults: Mapping[str, object]) -> None:
    """Have exactly ``faults`` on ``host``; an empty mapping ends all. They outlast a reboot."""
    for key, value in faults.items():
        if "\n" in f"{key}{value}" or "=" in key:
            raise InputError(f"a fault is a key and a value of one line each, not {key!r}: {value!r}")
    text = "".join(f"{key}={value}\n" for key, value in faults.items())
    # Written in place: containers have this very file mounted.
    script = f"cat > {_FILE} && /usr/lib/fleet-lab-gpu/modules refresh"
    execute(lab, host, "sh", "-ec", script, stdin=text)


@contextlib.contextmanager
def switched(lab: Lab, host: str, faults: Mapping[str, object]) -> Iterator[None]:
    """While it lasts, ``host`` has ``faults``."""
    switch(lab, host, faults)
    try:
        yield
    finally:
        switch(lab, host, {})


@contextlib.contextmanager
def package_lock_held(lab: Lab, host: str) -> Iterator[int]:
    """While it lasts, somebody on ``host`` holds dpkg's lock; yields the pid of the holder.

    The holder is a unit of systemd's with a Python in it, as unattended-upgrades is. Needs python3.
    """
    unit = f"fleet-lab-lock-{secrets.token_hex(3)}"
    script = (
        "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        " open('/run/fleet-lab-locked', 'w').close(); time.sleep(86400)"
    )
    execute(lab, host, "systemd-run", "--quiet", f"--unit={unit}", "python3", "-c", script)
    wait = "until [ -e /run/fleet-lab-locked ]; do sleep 0.05; done; rm /run/fleet-lab-locked"
    execute(lab, host, "sh", "-c", f"{wait}; systemctl show --property MainPID --value {unit}")
    try:
        yield int(execute(lab, host, "systemctl", "show", "-p", "MainPID", "--value", unit).stdout)
    finally:
        execute(lab, host, "systemctl", "stop", unit, check=False)


def cuda_repository(lab: Lab, distribution: str) -> Path:
    """The folder served as the CUDA repository of ``distribution`` (``debian12``)."""
    return lab.state.directory / "packages/www/compute/cuda/repos" / distribution / "x86_64"


@contextlib.contextmanager
def rotated_key(lab: Lab, distribution: str) -> Iterator[str]:
    """While it lasts, that repository is signed by a key that no host has; yields its fingerprint."""
    keys = lab.state.directory / "packages/keys"
    release = cuda_repository(lab, distribution) / "Release"
    other = Key.make(keys / "rotated", "cudatools (new)")
    resign(release, other)
    try:
        yield other.fingerprint
    finally:
        resign(release, Key.make(keys / "cuda", "cudatools"))


@contextlib.contextmanager
def vanished_package(lab: Lab, distribution: str, package: str) -> Iterator[None]:
    """While it lasts, that repository has no version of ``package``."""
    repository = cuda_repository(lab, distribution)
    names = ("Packages", "Packages.gz", "Release", "Release.gpg", "InRelease")
    before = {name: (repository / name).read_bytes() for name in names}
    site.withdraw(repository, Key.make(lab.state.directory / "packages/keys/cuda", "cudatools"), package)
    try:
        yield
    finally:
        for name, content in before.items():
            (repository / name).write_bytes(content)
