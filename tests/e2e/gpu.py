"""Lab hosts with GPUs, and what they themselves say of GPUs and drivers: the witnesses of the GPU tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from fleet.lab.simulation.view import FOLDER

BRANCH = "580"
OLD_DRIVER = "550.163.01"
# What fleet leaves on a host besides holds, so that others keep the versions.
KEEPS_VERSIONS = ("/etc/apt/apt.conf.d/52fleet-nvidia", "/etc/apt/preferences.d/fleet-nvidia.pref")


def gpu_inventory(folder: Path, lab: Lab, hosts: list[HostDefinition], **more: Any) -> Path:
    """An inventory of ``hosts`` that takes driver and toolkit from the lab's packages, branch 580."""
    state = lab.state.directory
    fingerprints = json_variables(lab)
    driver = {
        "base_url": "http://packages.lab/compute/cuda/repos",
        "key_file": str(state / "nvidia_driver.asc"),
        "key_fingerprint": fingerprints["lab_nvidia_driver_key_fingerprint"],
    }
    toolkit = {
        "base_url": "http://packages.lab/libnvidia-container/stable/deb",
        "key_file": str(state / "container_toolkit.asc"),
        "key_fingerprint": fingerprints["lab_container_toolkit_key_fingerprint"],
    }
    variables = {
        "nvidia_driver_branch": BRANCH,
        "nvidia_driver_repository": driver,
        "container_toolkit_repository": toolkit,
        **more,
    }
    return write_inventory(folder / "site.yaml", lab, hosts, **variables)


def json_variables(lab: Lab) -> dict[str, Any]:
    """The variables that the lab wrote when it came up."""
    found: dict[str, Any] = yaml.safe_load((lab.state.directory / "variables.yaml").read_text())
    return found


def hardware_uuids(lab: Lab, host: str) -> list[str]:
    """UUIDs of the GPUs the host was given, in the order of its bus."""
    document = json.loads(faults.execute(lab, host, "cat", f"{FOLDER}/hardware.json").stdout)
    return [gpu["uuid"] for gpu in document["gpus"]]


def listed(text: str) -> list[str]:
    """The UUIDs that ``nvidia-smi -L`` printed."""
    return re.findall(r"\(UUID: (GPU-[0-9a-f-]{36})\)", text)


def seen_by_host(lab: Lab, host: str) -> list[str]:
    """UUIDs that the host's own nvidia-smi lists."""
    return listed(faults.execute(lab, host, "nvidia-smi", "-L").stdout)


def seen_in_container(lab: Lab, host: str, image: str, *request: str) -> list[str]:
    """UUIDs that nvidia-smi lists in a container of ``image``; ``request``: docker run's own options."""
    run = ("docker", "run", "--rm", "--network", "none", *request, image, "nvidia-smi", "-L")
    return listed(faults.execute(lab, host, *run).stdout)


def versions(lab: Lab, host: str) -> dict[str, str]:
    """The driver's version as each part of the host has it, by other ways than fleet's."""
    script = r"""
    echo "loaded $(grep -oE -m 1 '[0-9]{3}\.[0-9]+(\.[0-9]+)?' /proc/driver/nvidia/version)"
    echo "disk $(modinfo -F version nvidia)"
    echo "library $(readlink -f /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 | sed 's/.*\.so\.//')"
    echo "smi $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u | tr '\n' ' ')"
    """
    lines = faults.shell(lab, host, script).splitlines()
    return dict(line.strip().split(" ", 1) for line in lines if " " in line.strip())


def set_versions(lab: Lab, host: str) -> dict[str, str]:
    """Installed packages of the driver, toolkit and fabric manager by dpkg's word: name to version."""
    script = (
        "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' '*nvidia*' 'libcuda1' 2>/dev/null"
        " | awk '$3 == \"installed\" { print $1, $2 }'"
    )
    return dict(line.split() for line in faults.shell(lab, host, script).splitlines())


def process_start(lab: Lab, host: str, pid: int) -> str:
    """When a process started, in clock ticks of the machine; empty where it is gone."""
    said = faults.execute(lab, host, "cat", f"/proc/{pid}/stat", check=False)
    return said.stdout.rpartition(")")[2].split()[19] if said.returncode == 0 else ""


def unit_pid(lab: Lab, host: str, unit: str) -> int:
    """The main process of a unit; 0 where it does not run."""
    said = faults.execute(lab, host, "systemctl", "show", "--property", "MainPID", "--value", unit)
    return int(said.stdout.strip() or 0)


def services_run(lab: Lab, host: str) -> None:
    """The services of a host with NVSwitches run, by systemd's word, once a boot has come to its end."""
    # A unit that has nothing to do with GPUs may have failed: then this is not 0, and the boot is over, too.
    faults.execute(lab, host, "systemctl", "is-system-running", "--wait", check=False)
    units = ("nvidia-fabricmanager", "nvidia-persistenced")
    said = faults.execute(lab, host, "systemctl", "is-active", *units, check=False).stdout.split()
    if said != ["active"] * len(units):
        raise AssertionError(faults.execute(lab, host, "systemctl", "status", *units, check=False).stdout)


def installed(lab: Lab, host: str, package: str) -> bool:
    """Whether dpkg has ``package`` installed."""
    asked = ("dpkg-query", "-W", "-f", "${db:Status-Status}", package)
    return faults.execute(lab, host, *asked, check=False).stdout == "installed"
