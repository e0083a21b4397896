"""What is put on a lab host to make it a simulated GPU host.

:func:`files` lie there before its first start; :func:`set_up_script` runs once when it is up. Both are
used by :mod:`fleet.lab.hosts`.
"""

from __future__ import annotations

import json
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


def files(hardware: Mapping[str, Any], packages_key: str | None) -> dict[str, tuple[str, int]]:
    """Content and mode by path. ``packages_key``: armored key of the lab's kernel packages, if served."""
    state = FOLDER.lstrip("/")
    found = {f"{CODE}/{name}": ((_HOST / name).read_text(), 0o755) for name in _PROGRAMS}
    found[f"{CODE}/functions"] = ((_HOST / "functions").read_text(), 0o644)
    found[f"{state}/hardware.json"] = (json.dumps(hardware, indent=2) + "\n", 0o644)
    found[f"{state}/hardware.view"] = (hardware_view(hardware), 0o644)
    found[f"{state}/faults.view"] = ("", 0o644)
    found |= {f"{state}/pci/{path}": (text, 0o444) for path, text in pci_files(hardware).items()}
    found["etc/systemd/system/fleet-lab-modules.service"] = (_UNIT, 0o644)
    found["etc/systemd/system/systemd-modules-load.service.d/fleet-lab.conf"] = (_MODULES_LOAD, 0o644)
    if packages_key:
        found["usr/share/keyrings/fleet-lab.asc"] = (packages_key, 0o644)
        line = f"deb [signed-by=/usr/share/keyrings/fleet-lab.asc] http://{site.NAME}/kernels /\n"
        found["etc/apt/sources.list.d/fleet-lab.list"] = (line, 0o644)
    return found


def set_up_script(hardware: Mapping[str, Any], *, with_kernel: bool) -> list[str]:
    """Lines of shell: divert kmod's programs and uname, install the kernel that "runs", load modules."""
    lines = [f"divert() {{ {_DIVERT} }}"]
    lines += [f"divert {name} modules" for name in _DIVERTED]
    lines += [
        "divert uname uname",
        f"ln -sf /{CODE}/update-initramfs /usr/sbin/update-initramfs",
        f"ln -sf /{CODE}/mokutil /usr/bin/mokutil",
        "systemctl enable --quiet fleet-lab-modules.service",
    ]
    if with_kernel:
        release = hardware["kernel"]["release"]
        lines += [
            f"apt-get update -q {_ONLY_THE_LABS} >/dev/null",
            f"DEBIAN_FRONTEND=noninteractive apt-get install -qy linux-image-{release} >/dev/null",
            "rm -f /run/reboot-required /run/reboot-required.pkgs",
        ]
    return [*lines, "systemctl start fleet-lab-modules.service"]


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
