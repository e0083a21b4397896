"""Faults of simulated GPUs, packages and boots, switched on and off while the host runs.

A fault is a key of ``faults.view`` on the host (:mod:`.view`): :func:`switch` writes it. Any key of the
hardware may be overridden the same way. What only faults have:

===========================  ====================================================================
gpu.N.state                  lost, unknown_error, reset_required, missing (at the next boot: off the bus)
gpu.N.hang, hang             1: calls about that GPU, or all, never return
gpu.N.hang_in, hang_in       name of one NVML function (``nvmlDeviceGetUtilizationRates``) that never returns,
                             for that GPU or for all; nvidia-smi hangs where it asks for everything
gpu.N.processes              ``PID:MIB,…``: processes on it, as long as these pids live; likewise
                             graphics_processes, mps_processes
gpu.N.pcie.width             lanes in use; in sysfs too. pcie.width_max; pcie_replays
gpu.N.pcie.generation        always, idle or not; in sysfs too. pcie.generation_max: what GPU and host can
gpu.N.pcie.load_generation   what it reaches under load (a simulated benchmark); else the highest
gpu.N.nvlink.L               0: that link is down; nvlink.L.replay_errors, recovery_errors, crc_flit_errors,
                             crc_data_errors: its counters
gpu.N.p2p                    NVML's number of the peer-to-peer status with any other; topology likewise
gpu.N.ecc_…                  (volatile|aggregate)_(corrected|uncorrected): of memory; …_sram_… and …_dram_…
                             of one place (``ecc_volatile_sram_uncorrected``); ecc_sram_threshold_exceeded
gpu.N.retired_…              single, double: counts; pending 1
gpu.N.remap_…                corrected, uncorrected, high, partial, low, none: counts; pending, failure: 1
gpu.N.recovery_action        1 reset, 2 reboot, 3 drain, 4 drain and reset, 5 IMEX, 6 bus reset, 7 system
gpu.N.fabric_state           1 not started, 2 in progress, 3 completed; else as the fabric manager has it
gpu.N.fabric_status          NVML's error number of a fabric that is completed
gpu.N.fabric_…               degraded_bandwidth, route_recovery, route_unhealthy, access_timeout_recovery: 1;
                             incorrect_configuration: NVML's number (2 to 8); health: the whole mask; summary
gpu.N.clocks_event_reasons   NVML's mask, in decimal (8 hw_slowdown, 32 sw_thermal, 64 hw_thermal, 4 power cap)
gpu.N.clock_sm_mhz           likewise graphics, memory, video; max_clock_…
gpu.N.temperature_celsius    memory_temperature_celsius, temperature_margin_celsius, power_draw_mw,
                             utilization_gpu, utilization_memory, memory_used_mib, fan_percent: under load too
gpu.N.benchmark_percent      what of its rates the GPU reaches, in every benchmark
gpu.N.benchmark.TEST         the same for one test (``gpu.3.benchmark.memory.copy=60``); clocks and links that
                             are lower by a fault lower the rates that depend on them too
gpu.N.benchmark_wrong        a test (or 1: any) in which one bit of what it computes is wrong
gpu.N.benchmark_hang         a test (or 1: any) that does not end until the fault is over
init.error                   an NVML error number from initialisation
module_load_error            modprobe refuses with this text
module_holders               so many unnamed holders of the module (it cannot be unloaded)
nouveau_holders              the same for nouveau; 1: the console is on the card, as it is with a screen
module_load                  hang: modprobe goes on until the fault is over
dkms_build                   fail: no module can be built; hang: a build goes on until the fault is over
secure_boot, mok_enrolled    Secure Boot on, and whether the modules' key is enrolled
mok_confirm                  1: somebody is at the console at the next boot, to confirm a key that was imported
gpu.N.mig_…                  MIG devices: :func:`mig`
boot_kernel                  the next boot starts this kernel
boot                         never: the next boot does not come up
===========================  ====================================================================

An empty value of a key of the hardware is "not supported". :func:`xid` and :func:`sxid` write into the kernel log.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleet.core.errors import InputError
from fleet.lab.faults import execute
from fleet.lab.lab import Lab
from fleet.lab.simulation import kernel_log, site
from fleet.lab.simulation.hardware import mig_devices
from fleet.lab.simulation.repository import Key, resign
from fleet.lab.simulation.view import FOLDER, mig_view

_FILE = f"{FOLDER}/faults.view"
_FUNCTIONS = ". /usr/lib/fleet-lab-gpu/functions"


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


def mig(lab: Lab, host: str, gpu: int, profiles: Sequence[str]) -> list[str]:
    """Split a GPU into MIG devices (``["3g.40gb", "1g.10gb"]``; none: MIG off); their UUIDs. Outlasts a reboot."""
    devices = mig_devices(f"{lab.name}/{host}/{gpu}", profiles)
    lines = {"mig": int(bool(devices)), "mig_pending": int(bool(devices)), **dict(mig_view(devices))}
    text = "".join(f"gpu.{gpu}.{key}={value}\n" for key, value in lines.items())
    _change(lab, host, f"^gpu\\.{gpu}\\.mig", text)
    return [str(device["uuid"]) for device in devices]


def xid(
    lab: Lab,
    host: str,
    code: int,
    gpu: int = 0,
    text: str | None = None,
    *,
    pid: int | None = None,
    process: str | None = None,
    gpu_instance: int | None = None,
    caused_by: int | None = None,
) -> None:
    """The driver on ``host`` logs an Xid of GPU number ``gpu``, as :func:`.kernel_log.xid_lines` has it.

    It stays until the next boot. The GPU itself is well, unless :func:`switch` says otherwise.
    """
    script = f'{_FUNCTIONS}; for k in pci_address uuid serial; do echo "$k=$(value gpu.{gpu}.$k)"; done'
    found = execute(lab, host, "sh", "-ec", script).stdout.splitlines()
    known = dict(line.split("=", 1) for line in found)
    if not known.get("pci_address"):
        raise InputError(f"{host} has no GPU number {gpu}")
    lines = kernel_log.xid_lines(
        code, known, text, pid=pid, process=process, gpu_instance=gpu_instance, caused_by=caused_by
    )
    write_kernel_log(lab, host, lines)


def sxid(
    lab: Lab,
    host: str,
    code: int,
    switch: int = 0,
    text: str | None = None,
    *,
    link: int | None = None,
    fatal: bool = False,
) -> None:
    """The same for an NVSwitch; see :func:`.kernel_log.sxid_lines`."""
    address = execute(
        lab, host, "sh", "-ec", f"{_FUNCTIONS}; value nvswitch.{switch}.pci_address"
    ).stdout.strip()
    if not address:
        raise InputError(f"{host} has no NVSwitch number {switch}")
    write_kernel_log(
        lab, host, kernel_log.sxid_lines(code, address, text, switch=switch, link=link, fatal=fatal)
    )


def write_kernel_log(lab: Lab, host: str, lines: Sequence[str]) -> None:
    """More records in the kernel log of ``host``, of the priority that the driver's errors have."""
    script = f'{_FUNCTIONS}; while read -r line; do kernel_log 3 "$line"; done'
    execute(lab, host, "sh", "-ec", script, stdin=kernel_log.framed(lines))


@contextlib.contextmanager
def process_on_gpu(
    lab: Lab, host: str, gpus: Sequence[int] = (0,), *, user: str = "root", mib: int = 1024
) -> Iterator[int]:
    """While it lasts, a process of ``user`` has these GPUs open, and nvidia-smi lists it; yields its pid.

    The driver must be loaded. The process is a unit of systemd's, called ``training`` and a number.
    """
    unit = f"training-{secrets.token_hex(3)}"
    opened = " ".join(f"{number + 3}</dev/nvidia{gpu}" for number, gpu in enumerate(gpus))
    command = f"exec 9</dev/nvidiactl {opened}; exec sleep infinity"
    run = ("systemd-run", "--quiet", f"--unit={unit}", f"--uid={user}", "bash", "-c", command)
    execute(lab, host, *run)
    pid = int(execute(lab, host, "systemctl", "show", "-p", "MainPID", "--value", unit).stdout)
    opens = f"until ls -l /proc/{pid}/fd | grep -q /dev/nvidiactl; do sleep 0.05; done"
    execute(lab, host, "sh", "-ec", opens)
    _change(lab, host, "^$", "".join(f"gpu.{gpu}.processes={pid}:{mib}\n" for gpu in gpus))
    try:
        yield pid
    finally:
        execute(lab, host, "systemctl", "stop", unit, check=False)
        _change(lab, host, f"processes={pid}:", "")


def _change(lab: Lab, host: str, gone: str, added: str) -> None:
    """Take the lines that match ``gone`` out of the faults, and put ``added`` at their end."""
    new = f"{_FILE}.new"
    # Written in place, as in :func:`switch`.
    script = f"sed '/{gone}/d' {_FILE} > {new}; cat >> {new}; cat {new} > {_FILE}; rm {new}"
    execute(lab, host, "sh", "-ec", f"{script}; /usr/lib/fleet-lab-gpu/modules refresh", stdin=added)


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
