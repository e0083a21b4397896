"""The plain table of ``nvidia-smi``, where the machine formats are not to be had: few values, names cut short."""

from __future__ import annotations

import re

from fleet.agent.gpu_probe import device as shape
from fleet.agent.nvidia_smi import fields, fill
from fleet.agent.nvidia_smi.lookup import put
from fleet.agent.nvidia_smi.tree import Node
from fleet.agent.nvidia_smi.values import Absent, read

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional

    from fleet.agent.protocol import Json


_FIRST = re.compile(
    r"\|\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|ERR!)\s*"
    r"\|\s*(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s+\S+\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_SECOND = re.compile(
    r"\|\s*(?P<fan>N/A|ERR!|\d+%)\s*(?P<temperature>N/A|ERR!|\d+C)\s+(?P<state>N/A|ERR!|P\d+)"
    r"\s+(?P<draw>[^\s/|]+|N/A)\s*/\s*(?P<limit>[^\s|]+)\s*"
    r"\|\s*(?P<used>[^\s/|]+)\s*/\s*(?P<total>[^\s|]+)\s*\|\s*(?P<utilization>N/A|ERR!|\d+%)\s+(?P<mode>[^|]*?)\s*\|"
)
_THIRD = re.compile(r"\|\s*\|\s*\|\s*(?P<mig>Enabled|Disabled|N/A|ERR!)\*?\s*\|\s*$")
_VERSIONS = re.compile(r"(Driver Version|KMD Version|CUDA Version|CUDA UMD Version):\s*(\S+)")
_CELLS = (
    ("fan_speed_percent", "percent", "fan"),
    ("temperature_c", "celsius", "temperature"),
    ("performance_state", "performance_state", "state"),
    ("power_draw_w", "w", "draw"),
    ("power_limit_enforced_w", "w", "limit"),
    ("memory_used_mib", "mib", "used"),
    ("memory_total_mib", "mib", "total"),
    ("gpu_utilization_percent", "percent", "utilization"),
    ("compute_mode", "compute_mode", "mode"),
)


def parse(text: str) -> Json:
    """The probe document of the table. A GPU's first line without its second is a GPU of status ``error``."""
    lines = text.splitlines()
    devices: List[Json] = []
    whole = True
    for number, line in enumerate(lines):
        first = _FIRST.match(line)
        if first is not None:
            second = _SECOND.match(lines[number + 1]) if number + 1 < len(lines) else None
            third = _THIRD.match(lines[number + 2]) if number + 2 < len(lines) else None
            devices.append(_device(first, second, third))
            whole = whole and second is not None
    beside = "\n".join(line for line in lines if not line.startswith(("|", "+")))
    top = Node("")
    for name, version in _VERSIONS.findall(text):
        top.add(name, version)
    return fill.document(devices, beside, top=top, form=fields.TEXT, whole=whole)


def _device(first: Any, second: Optional[Any], third: Optional[Any]) -> Json:
    found = fill.device(Node(""), fields.TEXT, first.group("address"))
    put(found, "index", int(first.group("index")))
    put(found, "name", read("text", first.group("name")))
    put(found, "persistence_mode", read("enabled", first.group("persistence")))
    _put_ecc(found, first.group("ecc"))
    if third is not None:
        put(found, "mig.mode", read("mode", third.group("mig")))
    if second is None:
        fill.break_off(found)
        return found
    for path, kind, name in _CELLS:
        put(found, path, read(kind, second.group(name)))
    fill.judge(found)
    return found


def _put_ecc(found: Json, cell: str) -> None:
    """``Volatile Uncorr. ECC``: a count where ECC is on, else Off; with MIG it says On."""
    count = read("count", cell)
    if not isinstance(count, Absent):
        shape.set_value(found, "ecc_mode", "enabled")
        shape.set_value(found, "ecc.volatile_uncorrected", count)
        return
    mode = read("mode", cell)
    put(found, "ecc_mode", mode)
    if isinstance(mode, Absent):
        put(found, "ecc.volatile_uncorrected", mode)
