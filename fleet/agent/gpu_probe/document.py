"""The probe's document (facts.gpu_probe): NVML's answers joined with what the host itself knows.

The host says which GPUs there are on PCI, which driver is loaded, what the processes are; NVML says the rest.
Where NVML cannot be used nvidia-smi is asked (:mod:`fleet.agent.nvidia_smi`).
"""

from __future__ import annotations

import os
import time

from fleet.agent.facts import driver as driver_facts
from fleet.agent.gpu_probe import parent, pci, processes
from fleet.agent.gpu_probe.device import empty_device
from fleet.agent.gpu_probe.plausible import judge_plausible

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Sequence, Set

    from fleet.agent.gpu_probe.parent import Asked, Deadlines
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 9, 12
GPU_IS_LOST, RESET_REQUIRED, MISMATCH = 15, 16, 18
TIMED_OUT = 10

# NVML's error at the start -> the probe's status.
_STATUS_OF = {
    DRIVER_NOT_LOADED: "driver_not_loaded",
    LIBRARY_NOT_FOUND: "library_missing",
    MISMATCH: "driver_library_mismatch",
}
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_FALL_BACK = ("library_missing", "error")  # else nvidia-smi cannot do better: it uses the same library


def probe(host: Host, on_pci: List[Json], deadlines: Optional[Deadlines] = None) -> Json:
    """The document of a host with these GPUs (facts.gpus). Without a loaded driver no process is started."""
    started = time.monotonic()
    loaded = driver_facts.loaded(host, driver_facts.loaded_modules(host))
    if loaded is None:
        # Asking would not only fail: the library starts nvidia-modprobe, which loads the module.
        document = _empty("driver_not_loaded", "no NVIDIA kernel module is loaded; see facts.driver")
    else:
        document = _asked(host, on_pci, loaded["version"], deadlines)
    _join(host, document, on_pci)
    document["duration_s"] = round(time.monotonic() - started, 4)
    return document


def _empty(status: str, message: Optional[str], nvml_error: Optional[int] = None) -> Json:
    return {
        "status": status,
        "message": message,
        "nvml_error": nvml_error,
        "source": None,
        "duration_s": 0.0,
        "binding": None,
        "driver_version": None,
        "nvml_version": None,
        "cuda_version": None,
        "devices": [],
        "missing": [],
        "topology": [],
    }


def _asked(host: Host, on_pci: List[Json], loaded: str, deadlines: Optional[Deadlines]) -> Json:
    path = driver_facts.library_path(host)
    try:
        library = host.path(path) if path is not None else None
        asked = parent.ask(host, library, deadlines or parent.Deadlines.of(host, len(on_pci)))
    except OSError as error:
        document = _empty("error", "the process that asks NVML cannot be started: %s" % error)
    else:
        document = _of_asked(host, asked, on_pci, loaded, path)
    if document["status"] in _FALL_BACK:
        return _fallback(host, document)
    return document


def _of_asked(host: Host, asked: Asked, on_pci: List[Json], loaded: str, library: Optional[str]) -> Json:
    system = asked.system
    if system is None or system["kind"] == "failed":
        document = _failed(host, asked, loaded, library)
    else:
        document = _answered(asked, [gpu["address"] for gpu in on_pci], int(system["count"]))
    for key in ("binding", "driver_version", "nvml_version", "cuda_version"):
        document[key] = (system or {}).get(key)
    if document["driver_version"] is None:
        document["driver_version"] = loaded
    return document


# -- NVML could not be opened -----------------------------------------------------------------------


def _failed(host: Host, asked: Asked, loaded: str, library: Optional[str]) -> Json:
    if asked.system is None:
        return _empty(asked.problem or "error", asked.message)
    code, text = asked.system["nvml_error"], asked.system["text"] or "no reason given"
    if code is None:
        return _empty("error", "NVIDIA's Python binding of NVML cannot be used: %s" % text)
    status = _STATUS_OF.get(code, "error")
    message = "NVML cannot be used: %s" % text
    if status == "driver_library_mismatch":
        message = (
            "the loaded kernel module is %s and the library on the disk is %s: new programs cannot use the GPUs"
            " until the host is rebooted or the module is loaded anew"
            % (loaded, driver_facts.version_in_name(library) or "another version")
        )
    elif status == "library_missing":
        message = "the library libnvidia-ml.so.1 cannot be opened: %s" % text
    elif _devices_refused(host):
        if any(os.path.exists(host.path(mark)) for mark in CONTAINER_MARKS):
            status = "container_lost_gpu"
            message = (
                "NVML says %s and the device files may not be opened: this container has lost its GPUs, as happens"
                " when systemd reloads its units under a container runtime that uses the systemd driver"
                % text
            )
        else:
            message += "; the device files /dev/nvidia* may not be opened by this process"
    return _empty(status, message, code)


def _devices_refused(host: Host) -> bool:
    """Whether the control device is there and the kernel refuses it, by a cgroup or by its mode."""
    try:
        os.close(os.open(host.path("/dev/nvidiactl"), os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _fallback(host: Host, document: Json) -> Json:
    """What nvidia-smi says, where it can say anything; else the document as it was."""
    from fleet.agent.nvidia_smi import fallback

    found: Json = fallback.probe(host, parent.START_DEADLINE_S)
    if found["status"] not in ("ok", "gpu_error"):
        return document
    note = "asked through nvidia-smi, since %s" % document["message"]
    found["message"] = "%s; %s" % (found["message"], note) if found.get("message") else note
    found["binding"] = document["binding"]
    return found


# -- NVML answered ----------------------------------------------------------------------------------


def _answered(asked: Asked, on_pci: Sequence[str], count: int) -> Json:
    document = _empty("ok", None)
    document["source"] = "nvml"
    unknown: List[str] = []
    devices: Dict[str, Json] = {device["address"]: device for device in asked.devices.values()}
    seen = dict(asked.addresses)
    if asked.problem is not None:  # the end came before the others' turn
        for index in set(range(count)).difference(asked.devices, asked.refused):
            asked.refused[index] = {"status": asked.problem, "message": "it was not asked any more"}
    for index in sorted(asked.refused):
        address = seen.get(index) or place_of(index, seen, on_pci)
        if address is None:
            unknown.append("GPU %d: %s" % (index, _of_refused("", asked.refused[index])["message"]))
            continue
        seen[index] = address
        devices[address] = _of_refused(address, asked.refused[index])
        devices[address]["index"] = index
        devices[address]["absent"].pop("index")
    document["devices"] = [devices[address] for address in sorted(devices)]
    document["topology"] = _topology(document["devices"], asked.pairs or [])
    document["status"], document["message"] = _status(document["devices"], asked, unknown, count)
    return document


def _status(devices: List[Json], asked: Asked, unknown: List[str], count: int) -> Any:
    bad = [
        "%s: %s" % (device["address"], device["message"]) for device in devices if device["status"] != "ok"
    ]
    bad += unknown
    if asked.problem is not None:
        return asked.problem, asked.message
    if count == 0:
        return "no_devices", "NVML is there and lists no GPU, though the PCI bus has some"
    if not bad:
        return "ok", None
    status = "timeout" if all(device["status"] == "timeout" for device in devices) else "gpu_error"
    return status, "; ".join(bad)


def place_of(index: int, seen: Dict[int, str], on_pci: Sequence[str]) -> Optional[str]:
    """The address of a GPU that NVML counts and gives no handle of; None when that cannot be said.

    NVML counts in the order of the bus: it is among the addresses between its neighbours' that no other index
    has, and the first of them.
    """
    below = [seen[other] for other in seen if other < index]
    above = [seen[other] for other in seen if other > index]
    taken: Set[str] = set(seen.values())
    for address in sorted(on_pci, key=pci.order):
        key = pci.order(address)
        if address in taken or any(pci.order(other) > key for other in below):
            continue
        if all(pci.order(other) > key for other in above):
            return address
    return None


def _of_refused(address: str, refused: Json) -> Json:
    """The Device of a GPU without answers: NVML's error for its handle, or what became of the child."""
    code = refused.get("nvml_error")
    if code is None:
        device = empty_device(address, "error")
        device["status"], device["message"] = refused["status"], refused["message"]
        return device
    device = empty_device(address, "gpu_lost" if code == GPU_IS_LOST else "error", code)
    device["status"] = {GPU_IS_LOST: "lost", RESET_REQUIRED: "reset_required", TIMED_OUT: "timeout"}.get(
        code, "error"
    )
    device["message"] = "NVML gives no handle of this GPU: %s" % refused["text"]
    return device


def _topology(devices: List[Json], pairs: List[Json]) -> List[Json]:
    by_address = {device["address"]: device for device in devices}
    found = []
    for pair in pairs:
        one, other = by_address.get(pair["a"]), by_address.get(pair["b"])
        nvlinks = _between(one, other) if one is not None and other is not None else None
        found.append(
            {
                "a": pair["a"],
                "b": pair["b"],
                "path": "NV" if nvlinks else pair["path"],
                "nvlinks": nvlinks,
                "peer_to_peer": pair["peer_to_peer"],
            }
        )
    return found


def _between(one: Json, other: Json) -> Optional[int]:
    """How many NVLinks two GPUs can talk over, directly or through switches; None when that is not known."""
    if one["nvlinks"] is None or other["nvlinks"] is None:
        return None
    active = [[link for link in device["nvlinks"] if link["active"]] for device in (one, other)]
    direct = sum(link["remote_address"] == other["address"] for link in active[0])
    switched = [sum(link["remote_type"] == "nvswitch" for link in links) for links in active]
    return int(direct or min(switched))


# -- what the host knows ----------------------------------------------------------------------------


def _join(host: Host, document: Json, on_pci: List[Json]) -> None:
    by_address = {gpu["address"]: gpu for gpu in on_pci}
    for device in document["devices"]:
        pci.join(host, device, by_address.get(device["address"]))
        judge_plausible(device)
    processes.join(host, document["devices"])
    if document["source"] is not None:  # else nobody gave a list, and none is missing from it
        found = {device["address"] for device in document["devices"]}
        document["missing"] = pci.missing(host, on_pci, found)
