"""CDI specifications: which devices they name, for which driver they were made.

JSON, or the YAML that nvidia-ctk writes: there is no YAML in the standard library, and of this one only
three keys at known places are wanted. Used by :mod:`.container_toolkit`, by containers that want GPUs, and by
:mod:`fleet.agent.driver.cdi`.
"""

from __future__ import annotations

import re

from fleet.agent import strict_json
from fleet.agent.facts import links, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Sequence, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


#: Where engines look, and where tools write.
FOLDERS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
GPUS = "nvidia.com/gpu"
# Compiled where it is used: many hosts have no specification.
_LIBRARY = r"lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)\b"


def specifications(host: Host, folders: Sequence[str] = FOLDERS) -> List[Json]:
    """[{"path", "kind", "devices", "driver_version"}] of every specification of NVIDIA's in ``folders``; a
    file that cannot be read as one is left out."""
    found: List[Json] = []
    seen = set()
    for folder in folders:
        for name in links.names_in(host, folder):
            path = folder + "/" + name
            if not name.endswith((".yaml", ".yml", ".json")) or links.resolve(host, path) in seen:
                continue
            seen.add(links.resolve(host, path))
            try:
                part = parse(read_text(host, links.resolve(host, path), 1 << 22))
            except (OSError, ValueError):
                continue
            if part["kind"] is None or str(part["kind"]).startswith("nvidia.com/"):
                found.append({"path": path, **part})
    return found


def of_gpus(host: Host) -> List[Json]:
    """Those that name whole GPUs or MIG instances, by which an engine gives them to containers."""
    return [one for one in specifications(host) if one["kind"] == GPUS]


def parse(text: str) -> Json:
    """{"kind", "devices", "driver_version"}. Raises ValueError for broken JSON."""
    kind, devices = _from_json(text) if text.lstrip().startswith("{") else _from_yaml(text)
    library = re.search(_LIBRARY, text)
    return {"kind": kind, "devices": devices, "driver_version": library.group(1) if library else None}


def _from_json(text: str) -> Tuple[Optional[str], List[str]]:
    document = strict_json.loads(text)
    devices = document.get("devices")
    listed = devices if isinstance(devices, list) else []
    return document.get("kind"), [str(one.get("name")) for one in listed if isinstance(one, dict)]


def _from_yaml(text: str) -> Tuple[Optional[str], List[str]]:
    """A device's name is a key of a list item directly below ``devices``, beside or under its dash."""
    kind: Optional[str] = None
    devices: List[str] = []
    section, dash = "", None
    for line in text.splitlines():
        bare = line.lstrip(" ")
        indent = len(line) - len(bare)
        if not bare or bare.startswith(("#", "---")):
            continue
        if indent == 0 and not bare.startswith("- "):
            section, _, value = bare.partition(":")
            dash = None
            if section == "kind":
                kind = _scalar(value)
            continue
        if section != "devices":
            continue
        if bare.startswith("- ") and (dash is None or indent <= dash):
            dash, bare, indent = indent, bare[2:].lstrip(" "), indent + 2
        if dash is not None and indent == dash + 2 and bare.startswith("name:"):
            devices.append(_scalar(bare[len("name:") :]))
    return kind, devices


def _scalar(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text
