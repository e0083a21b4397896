"""``nvidia-smi nvlink --status``: each GPU's links and their speeds, or the sentence why there are none."""

from __future__ import annotations

import re

from fleet.agent.gpu_probe import device as shape

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional

    from fleet.agent.protocol import Json


_GPU = re.compile(r"GPU (\d+): (.+?) \(UUID: (GPU-[^)\s]+)\)\s*$")
_LINK = re.compile(r"\s+Link (\d+): (?:(\d+)(?:\.(\d{1,3}))? GB/s|(<inactive>))\s*$")
# What stands below a GPU without links, in lower case.
_SENTENCES = (
    ("not supported for devices in mig mode", "mig"),
    ("does not have or support nvlink", "not_supported"),
)
# Of a GPU with links none of which is up, such as a card without a bridge: no fault by itself, and how many there
# are is not said.
_NONE_ACTIVE = "all links are inactive"


def parse(text: str) -> List[Json]:
    """[{"index", "uuid", "links": [{"link", "active", "speed_mb_s"}] | None, "reason", "text"}].

    ``links`` is None where a sentence stands in their place: ``text``, with its ``reason`` of a Device's
    absent values; it is empty where the sentence is that none is active. Nothing at all is printed where no GPU
    has links.
    """
    found: List[Json] = []
    for line in text.splitlines():
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu is not None:
            entry: Json = {
                "index": int(gpu.group(1)),
                "uuid": gpu.group(3),
                "links": None,
                "reason": None,
                "text": None,
            }
            found.append(entry)
        elif link is not None and found:
            speed = _speed(link.group(2), link.group(3))
            links = found[-1]["links"] or []
            links.append({"link": int(link.group(1)), "active": speed is not None, "speed_mb_s": speed})
            found[-1]["links"] = links
        elif found and line.strip() and found[-1]["links"] is None:
            found[-1]["text"] = line.strip()[:200]
            if _NONE_ACTIVE in line.lower():
                found[-1]["links"] = []
                continue
            reasons = [reason for sentence, reason in _SENTENCES if sentence in line.lower()]
            found[-1]["reason"] = next(iter(reasons), "error")
    return found


def apply(devices: List[Json], gpus: List[Json]) -> None:
    """Give the Devices their ``nvlinks``; ``gpus`` is of :func:`parse`. What it does not say is absent."""
    for device in devices:
        gpu = next((gpu for gpu in gpus if gpu["uuid"] == device["uuid"]), None)
        if gpu is None:
            continue
        if gpu["links"] is None:
            shape.set_absent(device, "nvlinks", gpu["reason"] or "not_collected", None, gpu["text"])
            continue
        shape.set_value(
            device, "nvlinks", [{**dict.fromkeys(shape.NVLINK_KEYS), **link} for link in gpu["links"]]
        )
        for link in device["nvlinks"]:
            for key in shape.NVLINK_KEYS:
                if link[key] is None:
                    reason = "not_supported" if key == "speed_mb_s" else "not_collected"
                    shape.set_absent(device, "nvlinks.%d.%s" % (link["link"], key), reason)


def _speed(whole: Optional[str], fraction: Optional[str]) -> Optional[int]:
    """MB/s of GB/s with up to three decimals."""
    return None if whole is None else int(whole) * 1000 + int((fraction or "").ljust(3, "0"))
