"""A Device and a probe document, filled from one tree of names and texts by the table of :mod:`.fields`.

The document's shape is that of :mod:`fleet.agent.gpu_probe` with ``source`` "nvidia-smi". What was not
printed stays absent as ``not_collected``; a word in place of a value is kept as the reason's text.
"""

from __future__ import annotations

from fleet.agent.gpu_probe import device as shape
from fleet.agent.gpu_probe.plausible import judge_plausible
from fleet.agent.nvidia_smi import fields, lists, states
from fleet.agent.nvidia_smi.lookup import look_up, put
from fleet.agent.nvidia_smi.values import Absent, read
from fleet.agent.pci_address import normalised_address

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional

    from fleet.agent.nvidia_smi.tree import Node
    from fleet.agent.protocol import Json


ENDS_EARLY = "nvidia-smi's output ends within this GPU"
# Where two of these cannot be read, the GPU does not answer. A fan's sensor alone says nothing.
_VITAL = ("uuid", "name", "memory_total_mib", "temperature_c", "performance_state", "graphics_clock_mhz")
_HIDDEN_BY_MIG = ("gpu_utilization_percent", "memory_utilization_percent", "remapped_rows.")
_STATUS_WORDS = {"lost": "GPU is lost", "reset_required": "GPU requires reset"}


def device(node: Node, form: int, printed_address: Optional[str], *, whole: bool = True) -> Json:
    """One GPU's Device. ``form`` is ``fields.XML``, ``TEXT`` or ``CSV``; ``whole`` False: its output breaks off.

    The address is None where the output names none, or not one.
    """
    found = shape.empty_device("", "not_collected")
    _set_address(found, printed_address)
    for field in fields.FIELDS:
        put(found, field[0], look_up(node, field, form))
    lists.fill_histogram(found, node, form)
    lists.fill_health(found, node, form)
    lists.fill_clocks_event_reasons(found, node, form)
    if form != fields.CSV:
        lists.fill_processes(found, node, form)
        lists.fill_mig_devices(found, node, form)
    _read_reset(found, node, form)
    judge(found)
    if not whole:
        break_off(found)
    return found


def unreadable(named: Json) -> Json:
    """The Device of a GPU of which only a sentence tells (:func:`.states.gpus_named`)."""
    reason = "gpu_lost" if named["status"] == "lost" else "error"
    found = shape.empty_device(named["address"], reason)
    shape.set_value(found, "printed_address", named["printed_address"])
    found["status"], found["message"] = named["status"], named["message"]
    return found


def _set_address(found: Json, printed: Optional[str]) -> None:
    found["address"] = None
    absent = read("text", printed) if printed else None
    if printed is None or isinstance(absent, Absent):
        put(found, "printed_address", absent)
        return
    try:
        found["address"] = normalised_address(printed)
    except ValueError:
        shape.set_absent(found, "printed_address", "error", None, printed[:40])
    else:
        shape.set_value(found, "printed_address", printed.strip())


def _read_reset(found: Json, node: Node, form: int) -> None:
    """Before there was a recovery action, two flags said what it says now."""
    if look_up(node, fields.RESET_REQUIRED, form) is True:
        found["status"] = "reset_required"
        if found["recovery_action"] is None:
            shape.set_value(found, "recovery_action", "gpu_reset")
    elif look_up(node, fields.DRAIN_AND_RESET, form) is True and found["recovery_action"] is None:
        shape.set_value(found, "recovery_action", "drain_and_reset")


def judge(found: Json) -> None:
    """Status, message, what MIG hides, and what cannot be."""
    absent = found["absent"]
    if any(entry["reason"] == "gpu_lost" for entry in absent.values()):
        found["status"] = "lost"
    elif any(str(entry["text"]).lower() == "gpu requires reset" for entry in absent.values()):
        found["status"] = "reset_required"
    if found["status"] == "ok" and _does_not_answer(found):
        found["status"] = "error"
        texts = [entry["text"] for entry in absent.values() if entry["reason"] == "error"]
        found["message"] = "the GPU does not answer: %s" % next(filter(None, texts), "no value")
    found["message"] = _STATUS_WORDS.get(found["status"], found["message"])
    if found["mig"]["mode"] == "enabled":
        for path, entry in absent.items():
            if path.startswith(_HIDDEN_BY_MIG) and entry["reason"] == "not_supported":
                entry["reason"] = "mig"
    judge_plausible(found)


def _does_not_answer(found: Json) -> bool:
    absent = found["absent"]
    failed = [path for path in _VITAL if absent.get(path, {}).get("reason") == "error"]
    if len(failed) > 1:
        return True
    return not tells_anything(found) and any(entry["reason"] == "error" for entry in absent.values())


def tells_anything(found: Json) -> bool:
    """Whether anything is known of the GPU but where it is: a value, or that it has none of some kind."""
    entries = ((path, found["absent"].get(path)) for path in shape.paths())
    return any(
        entry is None or entry["reason"] == "not_supported"
        for path, entry in entries
        if path not in ("index", "printed_address")
    )


def break_off(found: Json) -> None:
    """The output of this GPU is not whole: it is not known to be well, and what is missing was not read."""
    if found["status"] == "ok":
        found["status"], found["message"] = "error", ENDS_EARLY
    for entry in found["absent"].values():
        if entry["reason"] == "not_collected":
            entry["reason"] = "error"


def document(
    devices: List[Json], said: str, *, top: Optional[Node] = None, form: int = fields.XML, whole: bool = True
) -> Json:
    """The probe document of one output. ``said``: all of it, for the sentences about GPUs that it could not open.

    ``top`` holds the versions and the number of GPUs; ``whole`` False: the output breaks off.
    """
    devices = join(devices, states.gpus_named(said))
    versions = [fields.DRIVER_VERSION, fields.CUDA_VERSION, fields.NVML_VERSION, fields.GPU_COUNT]
    driver, cuda, nvml, count = [_known(top, field, form) for field in versions]
    shown = len(devices)
    if form != fields.CSV and whole and count == shown:
        for index, found in enumerate(devices):
            if found["index"] is None:
                shape.set_value(found, "index", index)  # they are printed in this order
    message = None
    if not whole:
        message = "nvidia-smi's output breaks off"
    elif count is not None and count > shown:
        message = "nvidia-smi tells of %d GPUs and shows %d" % (count, shown)
    status, message = _status(devices, said, message)
    return {
        "status": status,
        "message": message,
        "nvml_error": None,
        "source": "nvidia-smi",
        "duration_s": 0.0,
        "binding": None,
        "driver_version": driver,
        "nvml_version": nvml,
        "cuda_version": cuda,
        "devices": sorted(devices, key=_by_address),
        "missing": [],
        "topology": [],
    }


def join(devices: List[Json], named: List[Json]) -> List[Json]:
    """``devices`` with what the sentences say of them, and with those that only a sentence tells of."""
    joined = list(devices)
    for sentence in named:
        if sentence["address"] is None:
            continue
        known = [found for found in joined if found["address"] == sentence["address"]]
        for found in known:
            if found["status"] in ("ok", "error"):
                found["status"], found["message"] = sentence["status"], sentence["message"]
        if not known:
            joined.append(unreadable(sentence))
    return joined


def _known(top: Optional[Node], field: Any, form: int) -> Any:
    value = look_up(top, field, form) if top is not None else None
    return None if isinstance(value, Absent) else value


def _status(devices: List[Json], said: str, message: Optional[str]) -> Any:
    bad = [found for found in devices if found["status"] != "ok" and found["message"] != ENDS_EARLY]
    if bad:
        words = ["%s: %s" % (found["address"] or "a GPU", found["message"]) for found in bad]
        return "gpu_error", "; ".join(words)[:300]
    called = states.classify(said, "", 0)
    if called["status"] != "ok" and (said.strip() or not devices):
        return called["status"], called["message"]
    if not devices:
        return "error", message or "nvidia-smi's output shows no GPU"
    return ("error", message) if message else ("ok", None)


def _by_address(found: Json) -> Any:
    domain, _, rest = (found["address"] or "").partition(":")
    return (found["address"] is None, int(domain or "0", 16), rest, found["index"] or 0)
