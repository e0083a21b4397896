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

from fleet.lab.simulation import site
from fleet.lab.simulation.pci import pci_files
from fleet.lab.simulation.view import FOLDER, hardware_view

_HOST = Path(__file__).parent / "host"
CODE = "usr/lib/fleet-lab-gpu"
# Programs that the host runs whatever is installed; those of packages come with the packages.
_PROGRAMS = ("boot", "modules", "uname", "update-initramfs", "mokutil")
# The container's command: the hardware is shown before systemd starts, as on any machine.
BOOT_COMMAND = ("sh", "-c", f"/{CODE}/boot; exec /sbin/fleet-lab-boot")
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


def files(hardware: Mapping[str, Any], packages_key: str) -> dict[str, tuple[str, int]]:
    """Content and mode by path. ``packages_key``: armored key of the lab's kernel packages."""
    state = FOLDER.lstrip("/")
    found = {f"{CODE}/{name}": ((_HOST / name).read_text(), 0o755) for name in _PROGRAMS}
    found[f"{CODE}/functions"] = ((_HOST / "functions").read_text(), 0o644)
    found[f"{state}/hardware.json"] = (json.dumps(hardware, indent=2) + "\n", 0o644)
    found[f"{state}/hardware.view"] = (hardware_view(hardware), 0o644)
    found[f"{state}/faults.view"] = ("", 0o644)
    found |= {f"{state}/pci/{path}": (text, 0o444) for path, text in pci_files(hardware).items()}
    found["etc/systemd/system/fleet-lab-modules.service"] = (_UNIT, 0o644)
    found["etc/systemd/system/systemd-modules-load.service.d/fleet-lab.conf"] = (_MODULES_LOAD, 0o644)
    found["usr/share/keyrings/fleet-lab.asc"] = (packages_key, 0o644)
    line = f"deb [signed-by=/usr/share/keyrings/fleet-lab.asc] http://{site.NAME}/kernels /\n"
    found["etc/apt/sources.list.d/fleet-lab.list"] = (line, 0o644)
    return found


def recipe(hardware: Mapping[str, Any] | None, dress: str | None) -> str:
    """What a host's simulation is made from, hashed."""
    digest = hashlib.sha256(json.dumps([hardware, dress], sort_keys=True).encode())
    if hardware is not None:
        for path, content in sorted(files(hardware, "").items()):
            digest.update(f"{path} {content}".encode())
        digest.update("\n".join(set_up_script(hardware)).encode())
    return digest.hexdigest()[:12]


def set_up_script(hardware: Mapping[str, Any]) -> list[str]:
    """Lines of shell: divert kmod's programs and uname, install the kernel that "runs", load modules."""
    release = hardware["kernel"]["release"]
    return [
        f"divert() {{ {_DIVERT} }}",
        *(f"divert {name} modules" for name in _DIVERTED),
        "divert uname uname",
        f"ln -sf /{CODE}/update-initramfs /usr/sbin/update-initramfs",
        f"ln -sf /{CODE}/mokutil /usr/bin/mokutil",
        "systemctl daemon-reload",
        "systemctl enable --quiet fleet-lab-modules.service",
        f"apt-get update -q {_ONLY_THE_LABS} >/dev/null",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -qy linux-image-{release} >/dev/null",
        "rm -f /run/reboot-required /run/reboot-required.pkgs",
        "systemctl start fleet-lab-modules.service",
    ]


def dress_script(dress: str) -> list[str]:
    """Lines of shell that make a Debian say of itself that it is an Ubuntu."""
    version, codename, name = _UBUNTU[dress]
    text = (
        f'PRETTY_NAME="Ubuntu {version} LTS"\nNAME="Ubuntu"\nVERSION_ID="{version}"\n'
        f'VERSION="{version} LTS ({name})"\nVERSION_CODENAME={codename}\nID=ubuntu\nID_LIKE=debian\n'
        f"UBUNTU_CODENAME={codename}\n"
    )
    return [f"rm -f /etc/os-release; printf %s {shlex.quote(text)} > /etc/os-release"]


_UBUNTU = {
    "ubuntu2204": ("22.04", "jammy", "Jammy Jellyfish"),
    "ubuntu2404": ("24.04", "noble", "Noble Numbat"),
}
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
