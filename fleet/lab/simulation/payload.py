"""What is put on a lab host to make it a simulated GPU host.

:func:`files` lie there before its first start; :func:`set_up_script` runs once when it is up. Both are
used by :mod:`fleet.lab.hosts`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.lab.definition import HostDefinition
from fleet.lab.simulation import packages, site
from fleet.lab.simulation.pci import pci_files, slot_files
from fleet.lab.simulation.view import FOLDER, benchmarks_view, hardware_view

_HOST = Path(__file__).parent / "host"
CODE = "usr/lib/fleet-lab-gpu"
# Programs that the host runs whatever is installed; those of packages come with the packages.
_PROGRAMS = ("boot", "modules", "uname", "update-initramfs", "lsinitramfs", "mokutil", "dmesg")
# Run before systemd starts: the hardware is shown, as on any machine.
BOOT = f"{CODE}/boot"
REAL_BOOT = f"{CODE}/real-boot"
_DIVERTED = ("modprobe", "rmmod", "insmod", "lsmod", "modinfo", "depmod")

_UNIT = """\
[Unit]
Description=Load the kernel modules of this machine's hardware
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target systemd-modules-load.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/fleet-lab-gpu/modules boot

[Install]
WantedBy=sysinit.target
"""
_MODULES_LOAD = "[Service]\nExecStart=\nExecStart=/usr/lib/fleet-lab-gpu/modules configured\n"


def distribution(release: str, dress: str | None) -> str:
    """What NVIDIA calls the system of a host: ``debian12``, or what it is dressed as."""
    return dress or packages.DEBIANS[release]


def files(hardware: Mapping[str, Any], packages_key: str, distribution: str) -> dict[str, tuple[str, int]]:
    """Content and mode by path. ``packages_key``: armored key of the lab's kernel packages."""
    state = FOLDER.lstrip("/")
    found = {f"{CODE}/{name}": ((_HOST / name).read_text(), 0o755) for name in _PROGRAMS}
    found[f"{CODE}/functions"] = ((_HOST / "functions").read_text(), 0o644)
    found[f"{state}/hardware.json"] = (json.dumps(hardware, indent=2) + "\n", 0o644)
    found[f"{state}/hardware.view"] = (hardware_view(hardware), 0o644)
    found[f"{state}/benchmarks.view"] = (benchmarks_view(hardware), 0o644)
    found[f"{state}/faults.view"] = ("", 0o644)
    found |= {f"{state}/pci/{path}": (text, 0o444) for path, text in pci_files(hardware).items()}
    found |= {f"{state}/slots/{path}": (text, 0o444) for path, text in slot_files(hardware).items()}
    found["etc/systemd/system/fleet-lab-modules.service"] = (_UNIT, 0o644)
    found["etc/systemd/system/systemd-modules-load.service.d/fleet-lab.conf"] = (_MODULES_LOAD, 0o644)
    found["usr/share/keyrings/fleet-lab.asc"] = (packages_key, 0o644)
    source = f"deb [signed-by=/usr/share/keyrings/fleet-lab.asc] http://{site.NAME}/kernels"
    lines = f"{source} /\n{source}/{distribution} /\n"
    found["etc/apt/sources.list.d/fleet-lab.list"] = (lines, 0o644)
    return found


def real_files(hardware: Mapping[str, Any], sources: str) -> dict[str, tuple[str, int]]:
    """The same for a host with real packages: the PCI bus, and ``sources`` with what Debian's drivers are in."""
    state = FOLDER.lstrip("/")
    found = {f"{CODE}/{name}": ((_HOST / name).read_text(), 0o755) for name in ("real-boot", "uname")}
    found |= {f"{state}/pci/{path}": (text, 0o444) for path, text in pci_files(hardware).items()}
    found["etc/apt/sources.list.d/non-free.list"] = (sources, 0o644)
    return found


def real_set_up_script() -> list[str]:
    """Lines of shell: Debian's newest kernel is installed, and from now on the one that runs, as far as told."""
    return [
        f"divert() {{ {_DIVERT} }}",
        "apt-get update -q >/dev/null",
        "DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends linux-image-amd64 >/dev/null",
        "divert uname uname",
        f"/{REAL_BOOT} kernel",
        "rm -f /run/reboot-required /run/reboot-required.pkgs",
    ]


def recipe(host: HostDefinition) -> str:
    """What a host's simulation is made from, hashed."""
    digest = hashlib.sha256(json.dumps([host.hardware, host.dress], sort_keys=True).encode())
    system = distribution(host.release, host.dress)
    if host.dress is not None:
        digest.update("\n".join(dress_script(host.dress)).encode())
    if host.hardware is not None and host.real_modules:
        digest.update(f"{sorted(real_files(host.hardware, '').items())} {real_set_up_script()}".encode())
    elif host.hardware is not None:
        for path, content in sorted(files(host.hardware, "", system).items()):
            digest.update(f"{path} {content}".encode())
        digest.update("\n".join(set_up_script(host.hardware)).encode())
    digest.update("\n".join(driver_script(host)).encode())
    if host.toolkit is not None:
        digest.update("\n".join(toolkit_script(host.toolkit)).encode())
    return digest.hexdigest()[:12]


def set_up_script(hardware: Mapping[str, Any]) -> list[str]:
    """Lines of shell: divert kmod's programs and uname, install the kernel that "runs", load modules."""
    release = hardware["kernel"]["release"]
    return [
        f"divert() {{ {_DIVERT} }}",
        *(f"divert {name} modules" for name in _DIVERTED),
        "divert uname uname",
        "divert dmesg dmesg",
        f"ln -sf /{CODE}/update-initramfs /usr/sbin/update-initramfs",
        f"ln -sf /{CODE}/lsinitramfs /usr/bin/lsinitramfs",
        f"ln -sf /{CODE}/mokutil /usr/bin/mokutil",
        "systemctl daemon-reload",
        "systemctl enable --quiet fleet-lab-modules.service",
        f"apt-get update -q {_ONLY_THE_LABS} >/dev/null",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -qy linux-image-{release} fleet-lab-gpu >/dev/null",
        "rm -f /run/reboot-required /run/reboot-required.pkgs",
        "systemctl start fleet-lab-modules.service",
        "systemctl enable --now --quiet fleet-lab-references.service",
    ]


def driver_script(host: HostDefinition) -> list[str]:
    """Lines of shell: the driver as somebody installed it by hand, with NVIDIA's repository; it is loaded.

    After that, where the host is to have it so: a newer one is installed and not loaded.
    """
    if host.hardware is None or host.driver is None:
        return []
    system = distribution(host.release, host.dress)
    switches = bool(host.hardware.get("nvswitches"))
    keyring = f"http://{site.NAME}/compute/cuda/repos/{system}/x86_64/cuda-keyring_1.1-1_all.deb"
    only_nvidias = _ONLY_THE_LABS.replace("fleet-lab.list", f"cuda-{system}-x86_64.list")

    def named(driver: str) -> str:
        modules, manager = host.driver_modules, host.fabric_manager
        return " ".join(
            packages.installed_by_hand(system, driver, switches=switches, flavour=modules, manager=manager)
        )

    lines = [
        f"/usr/lib/apt/apt-helper download-file {keyring} /root/cuda-keyring.deb >/dev/null",
        "dpkg -i /root/cuda-keyring.deb >/dev/null; rm /root/cuda-keyring.deb",
        f"apt-get update -q {only_nvidias} >/dev/null",
        f'{_INSTALL} "linux-headers-$(uname -r)" {named(host.driver)} >/dev/null',
        "modprobe -r nouveau; modprobe nvidia-drm; modprobe nvidia-uvm",
        "systemctl restart nvidia-persistenced.service",
    ]
    if switches:
        # One of another version than the driver's refuses to start.
        refuses = " || true" if host.fabric_manager not in (None, host.driver) else ""
        lines.append(f"systemctl enable --now --quiet nvidia-fabricmanager.service{refuses}")
    if host.driver_upgraded is not None:
        lines.append(f"{_INSTALL} {named(host.driver_upgraded)} >/dev/null")
    return lines


def toolkit_script(toolkit: str) -> list[str]:
    """Lines of shell: NVIDIA's container toolkit as somebody installed it by hand, and the engine knows of it."""
    source = f"http://{site.NAME}/libnvidia-container"
    key, listed = "/usr/share/keyrings/nvidia-container-toolkit.asc", "nvidia-container-toolkit.list"
    line = f"deb [signed-by={key}] {source}/stable/deb/amd64 /"
    only_the_toolkits = _ONLY_THE_LABS.replace("fleet-lab.list", listed)
    return [
        f"/usr/lib/apt/apt-helper download-file {source}/gpgkey {key} >/dev/null",
        f"chmod 644 {key}; echo '{line}' > /etc/apt/sources.list.d/{listed}",
        f"apt-get update -q {only_the_toolkits} >/dev/null",
        f"{_INSTALL} {' '.join(packages.toolkit_by_hand(toolkit))} >/dev/null",
        "systemctl try-restart docker.service",
    ]


def dress_script(dress: str) -> list[str]:
    """Lines of shell that make a Debian say of itself that it is an Ubuntu."""
    version, codename, name = _UBUNTU[dress]
    text = (
        f'PRETTY_NAME="Ubuntu {version} LTS"\nNAME="Ubuntu"\nVERSION_ID="{version}"\n'
        f'VERSION="{version} LTS ({name})"\nVERSION_CODENAME={codename}\nID=ubuntu\nID_LIKE=debian\n'
        f"UBUNTU_CODENAME={codename}\n"
    )
    release = (
        f"DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={version}\nDISTRIB_CODENAME={codename}\n"
        f'DISTRIB_DESCRIPTION="Ubuntu {version} LTS"\n'
    )
    return [
        f"rm -f /etc/os-release; printf %s {shlex.quote(text)} > /etc/os-release",
        f"printf %s {shlex.quote(release)} > /etc/lsb-release",
    ]


def unattended_upgrades(distribution: str) -> dict[str, tuple[str, int]]:
    """Settings with which unattended-upgrades takes everything, NVIDIA's packages included."""
    vendor = "Ubuntu" if distribution.startswith("ubuntu") else "Debian"
    patterns = (
        f"origin={vendor}",
        "origin=Debian",
        "origin=NVIDIA",
        "site=nvidia.github.io",
        f"site={site.NAME}",
    )
    periodic = 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
    allowed = "".join(f'    "{pattern}";\n' for pattern in patterns)
    origins = f"Unattended-Upgrade::Origins-Pattern {{\n{allowed}}};\n"
    return {
        "etc/apt/apt.conf.d/20auto-upgrades": (periodic, 0o644),
        "etc/apt/apt.conf.d/51unattended-upgrades-site": (origins, 0o644),
    }


_UBUNTU = {
    "ubuntu2204": ("22.04", "jammy", "Jammy Jellyfish"),
    "ubuntu2404": ("24.04", "noble", "Noble Numbat"),
}
_INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -qy"
_ONLY_THE_LABS = (
    "-o Dir::Etc::sourcelist=sources.list.d/fleet-lab.list -o Dir::Etc::sourceparts=- "
    "-o APT::Get::List-Cleanup=0"
)
# The package that owns a program knows it by the path before or after the merge of /usr.
_DIVERT = f"""
    for path in /usr/sbin/$1 /sbin/$1 /usr/bin/$1 /bin/$1; do
        dpkg-query -S $path >/dev/null 2>&1 || continue
        [ -e /{CODE}/$1.real ] && return 0
        dpkg-divert --quiet --local --rename --divert /{CODE}/$1.real --add $path
        ln -s /{CODE}/$2 $path
        return 0
    done
"""
