"""Which GPUs are to be measured: a record's ``gpus`` rows, made of the probe's devices.

A GPU with MIG on is measured by its instances, each a row of its own. What cannot be measured is a row that says
why. Who works on a GPU is judged by :mod:`.occupied`.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

SAMPLE_EVERY_S = 0.5


def probe(host: Host) -> Json:
    """The host's GPUs as the facts' gpu_probe has them: {"status", "message", "devices", …}; status
    "no_devices" where there is none."""
    found: Optional[Json] = importlib.import_module("fleet.agent.facts.gpu_probe").collect(host)["gpu_probe"]
    return found or {"status": "no_devices", "message": "there is no NVIDIA GPU here", "devices": []}


def sampler(host: Host, interval_s: float = SAMPLE_EVERY_S) -> Any:
    """A sampler of all GPUs: a context manager with ``samples``, and ``problem`` where there can be none."""
    return importlib.import_module("fleet.agent.gpu_probe.sampler").Sampler(host, interval_s)


def rows(devices: List[Json], wanted: Any) -> List[Json]:
    """The rows of the chosen GPUs and MIG instances, by PCI address.

    ``wanted``: "all", a number of GPUs, or a list of indexes and UUIDs (of GPUs or instances). Names that fit
    nothing are left out; see :func:`unknown`.
    """
    found = []
    for place, device in enumerate(devices):
        names = _names(wanted, place)
        if names is None or _own_names(device) & names:
            found += _of_device(device, None)
        elif _instance_names(device) & names:
            found += _of_device(device, names)
    return found


def unknown(devices: List[Json], wanted: Any) -> List[str]:
    """Those of the wanted names that no GPU and no instance has."""
    if not isinstance(wanted, list):
        return []
    there = set()
    for device in devices:
        there |= _own_names(device) | _instance_names(device)
    return [str(name) for name in wanted if str(name) not in there]


def _names(wanted: Any, place: int) -> Optional[set[str]]:
    """The names asked for; None: this GPU is chosen whatever its name."""
    if isinstance(wanted, list):
        return {str(name) for name in wanted}
    return None if wanted in (None, "all") or place < int(wanted) else set()


def _own_names(device: Json) -> set[str]:
    return {str(device[key]) for key in ("index", "uuid") if device.get(key) is not None}


def _instances(device: Json) -> List[Json]:
    return list((device.get("mig") or {}).get("devices") or [])


def _instance_names(device: Json) -> set[str]:
    return {str(instance["uuid"]) for instance in _instances(device)}


def _of_device(device: Json, names: Optional[set[str]]) -> List[Json]:
    """One row, or one for each (named) instance."""
    stopped = _stopped(device)
    if stopped is not None or (device.get("mig") or {}).get("mode") != "enabled":
        return [_row(device, None, stopped)]
    instances = [one for one in _instances(device) if names is None or str(one["uuid"]) in names]
    if instances:
        return [_row(device, instance, None) for instance in instances]
    why = {
        "reason": "mig_without_instance",
        "message": "MIG is on and there is no instance to run on; make one (nvidia-smi mig -cgi … -C), or turn MIG off",
    }
    return [_row(device, None, why)]


def _stopped(device: Json) -> Optional[Dict[str, str]]:
    """Why a GPU cannot be measured as it is, or None."""
    what = None
    action = device.get("recovery_action")
    if device.get("status") not in (None, "ok"):
        what = "the GPU does not answer (%s): %s" % (
            device["status"],
            device.get("message") or "no more is known",
        )
    elif action not in (None, "none"):
        what = "the driver asks for a recovery of this GPU first: %s" % action
    elif (device.get("remapped_rows") or {}).get("pending"):
        what = "rows of its memory wait to be remapped, which a reset of the GPU does"
    elif (device.get("retired_pages") or {}).get("pending"):
        what = "pages of its memory wait to be retired, which a reset of the GPU does"
    if what is None:
        return None
    return {
        "reason": "needs_recovery",
        "message": what + "; look at: nvidia-smi -q -i %s" % device.get("address"),
    }


def _row(device: Json, instance: Optional[Json], stopped: Optional[Dict[str, str]]) -> Json:
    uuid = (instance or device).get("uuid") or device.get("address")
    return {
        "uuid": str(uuid),
        "address": device.get("address"),
        "index": device.get("index"),
        "name": device.get("name"),
        "mig_profile": None if instance is None else instance.get("profile"),
        "device_id": device.get("device_id"),
        "subsystem_id": device.get("subsystem_id"),
        "compute_capability": device.get("compute_capability"),
        "nvlinks": None if instance is not None else _nvlinks(device),
        "state": "measured" if stopped is None else "skipped",
        "reason": None if stopped is None else stopped["reason"],
        "message": None if stopped is None else stopped["message"],
        "before": state(device),
        "after": None,
        "during": None,
    }


def _nvlinks(device: Json) -> Optional[Json]:
    """{"active", "to_switch"}: how many links are up, and how many of them lead to an NVSwitch."""
    if device.get("nvlinks") is None:
        return None
    active = [link for link in device["nvlinks"] if link.get("active")]
    return {"active": len(active), "to_switch": sum(link.get("remote_type") == "nvswitch" for link in active)}


def state(device: Json) -> Json:
    """A GPU's state at one moment, as ``before`` and ``after`` have it."""
    found: Json = {
        key: device.get(key) for key in ("sm_clock_mhz", "temperature_c", "power_draw_w", "memory_used_mib")
    }
    found["ecc_mode"] = device.get("ecc_mode")
    found["mig_mode"] = (device.get("mig") or {}).get("mode")
    return found


def skip(row: Json, reason: str, message: str) -> None:
    """A row that is not measured after all."""
    row.update(state="skipped", reason=reason, message=message)


def measurable(found: List[Json]) -> List[Json]:
    """Those rows that are to be measured."""
    return [row for row in found if row["state"] == "measured"]
