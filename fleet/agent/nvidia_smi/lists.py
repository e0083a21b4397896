"""The parts of a Device that are more than one value: histogram, fabric health, clock reasons, processes, MIG."""

from __future__ import annotations

import re

from fleet.agent.gpu_probe import device as shape
from fleet.agent.nvidia_smi import fields
from fleet.agent.nvidia_smi.lookup import look_up
from fleet.agent.nvidia_smi.values import Absent, placeholder, read

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, Iterator, List, Optional, Union

    from fleet.agent.nvidia_smi.tree import Node
    from fleet.agent.protocol import Json


def fill_histogram(found: Json, node: Node, form: int) -> None:
    """``remapped_rows.histogram``: all five counts, or null as a whole."""
    counts = {field[0]: look_up(node, field, form) for field in fields.HISTOGRAM}
    lacking = [count for count in counts.values() if count is None or isinstance(count, Absent)]
    if not lacking:
        shape.set_value(found, "remapped_rows.histogram", counts)
        return
    absent = next((one for one in lacking if one is not None), None)
    if absent is not None:
        shape.set_absent(found, "remapped_rows.histogram", absent.reason, None, absent.text)


def fill_health(found: Json, node: Node, form: int) -> None:
    """``fabric.health``: null as a whole where nothing of it is known."""
    values = {field[0]: look_up(node, field, form) for field in fields.HEALTH}
    known = {name: value for name, value in values.items() if not isinstance(value, (Absent, type(None)))}
    if not known:
        absent = next((value for value in values.values() if isinstance(value, Absent)), None)
        if absent is not None:
            shape.set_absent(found, "fabric.health", absent.reason, None, absent.text)
        return
    shape.set_value(found, "fabric.health", dict.fromkeys(values))
    for name, value in values.items():
        _set(found, "fabric.health." + name, value)


def fill_clocks_event_reasons(found: Json, node: Node, form: int) -> None:
    """The names of the reasons that are active now, in NVML's order; a later driver's own after them."""
    active: List[str] = []
    absent: Optional[Absent] = None
    known = False
    for name, text in _reasons(node, form):
        value = _bits(text) if name is None else read("yes", text)
        if isinstance(value, Absent):
            absent = absent or value
            continue
        known = True
        active += value if isinstance(value, list) else [name] if value and name else []
    if known:
        order = list(shape.CLOCKS_EVENT_REASONS)
        active.sort(key=lambda name: order.index(name) if name in order else len(order))
        shape.set_value(found, "clocks_event_reasons", list(dict.fromkeys(active)))
    elif absent is not None:
        shape.set_absent(found, "clocks_event_reasons", absent.reason, None, absent.text)


def _reasons(node: Node, form: int) -> Iterator[Any]:
    """(name, text) of each reason that was printed; the name is None for all of them as bits."""
    if form == fields.CSV:
        for child in node.children:
            if child.name in fields.CLOCKS_EVENT_BITS:
                yield None, child.text
            elif child.name.startswith(fields.CLOCKS_EVENT_PREFIXES) and not child.name.endswith(
                ".supported"
            ):
                yield _reason(child.name), child.text
        return
    for path in fields.CLOCKS_EVENT_GROUPS[form]:
        group = node.at(path)
        if group is not None:
            for child in group.below():
                if form == fields.TEXT or child.name.startswith(fields.CLOCKS_EVENT_PREFIXES):
                    yield _reason(child.name), child.text
            if not group.children:
                yield "", group.text
            return


def _reason(name: str) -> str:
    for prefix in fields.CLOCKS_EVENT_PREFIXES:
        if name.startswith(prefix):
            name = name[len(prefix) :]
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return fields.CLOCKS_EVENT_WORDS.get(word, word)


def _bits(text: str) -> Union[List[str], Absent]:
    mask = read("hexadecimal", text)
    if isinstance(mask, Absent):
        return mask
    names = shape.CLOCKS_EVENT_REASONS
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return [names[bit] if bit < len(names) else "bit_0x%x" % (1 << bit) for bit in bits]


def fill_processes(found: Json, node: Node, form: int) -> None:
    """``processes``: null where the list was not printed, or where a process has no number."""
    group = node.at("processes" if form == fields.XML else "Processes")
    if group is None:
        return
    if form == fields.XML:
        names = fields.PROCESS_XML
        rows = [child for child in group.children if child.name == "process_info"]
    else:
        names = fields.PROCESS_TEXT
        rows = [child for child in group.children if child.name == names["pid"]]
    absent = placeholder(group.text) if group.text.strip() not in ("", "None") else None
    if not rows and absent is not None:
        shape.set_absent(found, "processes", absent.reason, None, absent.text)
        return
    shape.set_value(found, "processes", [])
    for row in rows:
        texts = {key: _text(row, name) for key, name in names.items()}
        texts["pid"] = row.text if form == fields.TEXT else texts["pid"]
        if not add_process(found, texts):
            return


def _text(node: Node, name: str) -> str:
    child = node.at(name)
    return child.text if child is not None else ""


def add_process(found: Json, texts: Dict[str, str]) -> bool:
    """Add a process by its texts {"pid", "type", "command", "memory"}. False: no number, so no list either.

    A process shows once for each kind of its use and each MIG instance: its entry is one, of the larger share.
    """
    pid = read("count", texts["pid"])
    if isinstance(pid, Absent):
        shape.set_absent(found, "processes", pid.reason, None, pid.text)
        for path in [path for path in found["absent"] if path.startswith("processes.")]:
            del found["absent"][path]
        return False
    kind, memory = _kind(texts["type"]), read("mib", texts["memory"])
    entry = next((process for process in found["processes"] if process["pid"] == pid), None)
    if entry is not None:
        if kind == "compute":
            _set(found, "processes.%d.kind" % pid, kind)
        if not isinstance(memory, Absent) and memory > (entry["memory_used_mib"] or 0):
            _set(found, "processes.%d.memory_used_mib" % pid, memory)
        return True
    found["processes"].append({**dict.fromkeys(shape.PROCESS_KEYS), "pid": pid})
    for key in shape.PROCESS_KEYS[1:]:
        _set(found, "processes.%d.%s" % (pid, key), None)
    _set(found, "processes.%d.kind" % pid, kind)
    _set(found, "processes.%d.memory_used_mib" % pid, memory)
    _set(found, "processes.%d.command" % pid, read("text", texts["command"]))
    return True


def _kind(text: str) -> Any:
    """Of ``C``, ``G``, ``C+G``, ``M+C``: a process that computes and draws is one that computes."""
    letters = text.strip().upper().split("+")
    for letter, kind in (("M", "mps"), ("C", "compute"), ("G", "graphics")):
        if letter in letters:
            return kind
    return placeholder(text) or Absent("error", text.strip())


def fill_mig_devices(found: Json, node: Node, form: int) -> None:
    """``mig.devices`` in the order printed; their profiles are known to ``nvidia-smi -L`` only."""
    group = node.at("mig_devices") if form == fields.XML else node
    rows = group.children if group is not None else []
    for row in rows:
        if row.name in ("mig_device", "MIG Device"):
            number = len(found["mig"]["devices"])
            found["mig"]["devices"].append(dict.fromkeys(shape.MIG_DEVICE_KEYS))
            _set(found, "mig.devices.%d.profile" % number, None)
            for field in fields.MIG_DEVICE:
                _set(found, "mig.devices.%d.%s" % (number, field[0]), look_up(row, field, form))


def _set(found: Json, path: str, value: Any) -> None:
    if value is None:
        shape.set_absent(found, path, "not_collected")
    elif isinstance(value, Absent):
        shape.set_absent(found, path, value.reason, None, value.text)
    else:
        shape.set_value(found, path, value)
