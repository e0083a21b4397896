"""``nvidia-smi -L``: the GPUs and their MIG devices, whose profiles only this list has."""

from __future__ import annotations

import re

from fleet.agent.gpu_probe import device as shape

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List

    from fleet.agent.protocol import Json


_GPU = re.compile(r"GPU (\d+): (.+?) \(UUID: (GPU-[^)\s]+)\)\s*$")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)\s*$")
_OLD_UUID = re.compile(r"MIG-GPU-[^/]+/(\d+)/(\d+)")  # up to driver 465: the GPU's, and both instances


def parse(text: str) -> List[Json]:
    """[{"index", "name", "uuid", "mig_devices": [{"device", "profile", "uuid"}]}]; other lines are passed over."""
    found: List[Json] = []
    for line in text.splitlines():
        gpu = _GPU.match(line)
        mig = _MIG.match(line)
        if gpu is not None:
            entry: Json = {
                "index": int(gpu.group(1)),
                "name": gpu.group(2),
                "uuid": gpu.group(3),
                "mig_devices": [],
            }
            found.append(entry)
        elif mig is not None and found:
            device = {"device": int(mig.group(2)), "profile": mig.group(1), "uuid": mig.group(3)}
            found[-1]["mig_devices"].append(device)
    return found


def apply(devices: List[Json], gpus: List[Json]) -> None:
    """Give the Devices their index, and their MIG devices profile and UUID; ``gpus`` is of :func:`parse`.

    MIG devices stand in the same order everywhere. Where the lists differ in length, the layout changed
    between the two calls, and profiles stay unknown.
    """
    for device in devices:
        gpu = next((gpu for gpu in gpus if gpu["uuid"] == device["uuid"]), None)
        if gpu is None:
            continue
        shape.set_value(device, "index", gpu["index"])
        entries = device["mig"]["devices"]
        if not entries:
            entries += [dict.fromkeys(shape.MIG_DEVICE_KEYS) for _ in gpu["mig_devices"]]
            for number in range(len(entries)):
                for key in shape.MIG_DEVICE_KEYS:
                    shape.set_absent(device, "mig.devices.%d.%s" % (number, key), "not_collected")
        if len(entries) == len(gpu["mig_devices"]):
            for number, listed in enumerate(gpu["mig_devices"]):
                _name(device, "mig.devices.%d." % number, listed)


def _name(device: Json, path: str, listed: Json) -> None:
    shape.set_value(device, path + "profile", listed["profile"])
    shape.set_value(device, path + "uuid", listed["uuid"])
    instances = _OLD_UUID.match(listed["uuid"])
    if instances is not None:
        shape.set_value(device, path + "gpu_instance", int(instances.group(1)))
        shape.set_value(device, path + "compute_instance", int(instances.group(2)))
