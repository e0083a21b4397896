"""Which machines have said hello: two inventory names for one machine must not both be worked on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.core.errors import HostBlocked


@dataclass(frozen=True)
class _Machine:
    name: str
    machine_id: str | None
    boot_id: str | None
    host_keys: frozenset[str]

    def is_same_as(self, other: _Machine) -> bool:
        """One running kernel has one boot id; clones of one image share a machine id but no host keys."""
        if self.boot_id and self.boot_id == other.boot_id:
            return True
        same_id = bool(self.machine_id) and self.machine_id == other.machine_id
        return same_id and bool(self.host_keys & other.host_keys)


class MachineRegistry:
    """The machines of this run. The second name of a machine is refused, naming both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machines: dict[str, _Machine] = {}

    def claim(self, name: str, hello: Mapping[str, Any]) -> None:
        """Record that ``name`` is the machine that said ``hello``, or raise HostBlocked."""
        machine = _Machine(
            name,
            hello.get("machine_id"),
            hello.get("boot_id"),
            frozenset(hello.get("host_key_fingerprints") or ()),
        )
        with self._lock:
            for other in self._machines.values():
                if other.name != name and machine.is_same_as(other):
                    raise HostBlocked(
                        f"{name} and {other.name} are one machine (machine id {machine.machine_id}); "
                        f"{other.name} came first, so {name} was left alone",
                        rule="run.one-machine",
                        host=name,
                        remedy=f"remove {name} or {other.name} from the inventory",
                    )
            self._machines[name] = machine


def is_this_machine(hello: Mapping[str, Any]) -> bool:
    """True when the host that said ``hello`` is the machine fleet itself runs on."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine_id = Path("/etc/machine-id").read_text().strip()
    except OSError:
        return False
    return hello.get("boot_id") == boot_id and hello.get("machine_id") == machine_id
