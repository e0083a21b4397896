"""What is true of this host: the facts document (schemas/facts.schema.json), group by group.

One module per group, each with ``KEYS`` (the parts of the document it fills) and ``collect(host)``; most of
a module is pure parse functions. Everything is read from files and sockets, so that all groups together cost
a few milliseconds. A process is started only for what no file tells: ``rpm`` where dnf rules, ``modinfo`` for
a kernel module that is not a plain file, ``mokutil`` on a machine that hides its list of keys, ``journalctl``
or ``dmesg`` where the kernel log itself may not be read, and to ask NVML where there are NVIDIA GPUs
(:mod:`fleet.agent.gpu_probe`).
"""

from __future__ import annotations

import importlib
import os
import time

from fleet.agent.protocol import SIMULATED_MARKER

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterable, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


SCHEMA = "fleet.facts/1"

GROUPS = (
    "identity",
    "os_release",
    "kernel",
    "python",
    "clock",
    "memory",
    "packages",
    "gpus",
    "driver",
    "gpu_probe",
    "kernel_log",
    "interconnect",
    "container_toolkit",
    "engine",
    "disks",
    "network",
    "services",
    "sessions",
    "checks",
)


# What each group fills; a test holds it to the modules' own KEYS. Here, so that a group that is not wanted
# need not be imported.
KEYS_OF = {
    "identity": ("identity", "controller_here"),
    "os_release": ("os",),
    "kernel": ("kernel",),
    "python": ("python",),
    "clock": ("clock", "uptime_s"),
    "memory": ("memory_bytes", "cpus"),
    "packages": ("packages", "reboot_required"),
    "gpus": ("gpus", "nvswitches"),
    "driver": ("driver", "secure_boot"),
    "gpu_probe": ("gpu_probe",),
    "kernel_log": ("kernel_log",),
    "interconnect": ("interconnect",),
    "container_toolkit": ("container_toolkit",),
    "engine": ("engine",),
    "disks": ("disks", "paths"),
    "network": ("network",),
    "services": ("systemd", "kubelet", "slurmd", "gpu_operator"),
    "sessions": ("desktop_sessions",),
    "checks": ("container_check", "benchmark"),
}


def collect(host: Host, groups: Optional[Iterable[str]] = None) -> Json:
    """The facts document; with ``groups`` only those parts of it. Raises ValueError for an unknown group.

    Parts that were not asked for are null, for the reason ``not_collected``. A group that cannot be read
    leaves its parts null with a reason too, and an entry in ``errors``.
    """
    wanted = list(GROUPS) if groups is None else list(groups)
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown:
        raise ValueError("unknown groups of facts: %s (known: %s)" % (", ".join(unknown), ", ".join(GROUPS)))
    document: Json = {
        "schema": SCHEMA,
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "simulated": os.path.exists(host.path(SIMULATED_MARKER)),
        "errors": [],
    }
    for name in wanted:
        module = importlib.import_module("fleet.agent.facts." + name)
        try:
            document.update(module.collect(host))
        except (OSError, ValueError) as error:
            document["errors"].append({"group": name, "message": str(error) or type(error).__name__})
            for key in module.KEYS:
                document[key] = None
                document[key + "_reason"] = reason_of(error)
    for name in GROUPS:
        if name not in wanted:
            for key in KEYS_OF[name]:
                document[key] = None
                document[key + "_reason"] = "not_collected"
    _join(host, document)
    return document


def _join(host: Host, document: Json) -> None:
    """What one group can say better once another was read."""
    _join_rpm(document)
    # Where the running engine stores images is known to it alone; the disk group only guessed.
    engine, paths = document.get("engine"), document.get("paths")
    if not engine or not paths or not engine.get("root_dir"):
        return
    from fleet.agent.facts import disks

    where = engine["image_store_dir"] or engine["root_dir"]
    if paths["engine_root"]["path"] != where:
        paths["engine_root"] = disks.describe(host, where)


def _join_rpm(document: Json) -> None:
    """Versions by package, where dnf rules: rpm was asked once, by the packages group."""
    packages = document.get("packages")
    if not packages or packages["manager"] != "dnf":
        return
    if document.get("container_toolkit"):
        from fleet.agent.facts import container_toolkit

        document["container_toolkit"].update(container_toolkit.from_packages(packages["installed"]))
    if document.get("driver"):
        from fleet.agent.facts import driver

        document["driver"]["fabric_manager"]["version"] = driver.fabric_manager_version(packages["installed"])
    if document.get("interconnect"):
        from fleet.agent.facts import interconnect

        interconnect.complete(document["interconnect"], packages["installed"])


def reason_of(error: BaseException) -> str:
    """The ``_reason`` of a value that could not be read because of ``error``."""
    if isinstance(error, PermissionError):
        return "permission"
    if isinstance(error, FileNotFoundError):
        return "not_supported"
    return "error"


def read_text(host: Host, path: str, limit: int = 1 << 20) -> str:
    """A text file of the host, at most ``limit`` bytes, stripped. Raises OSError."""
    with open(host.path(path), "rb") as stream:
        return stream.read(limit).decode("utf-8", "replace").strip()


def text_or_empty(host: Host, path: str, limit: int = 1 << 20) -> str:
    """:func:`read_text`; "" where the file is absent or cannot be read."""
    try:
        return read_text(host, path, limit)
    except OSError:
        return ""
