"""The CSV of ``nvidia-smi --query-gpu``, ``--query-remapped-rows`` and ``--query-compute-apps``.

With or without header, with or without units. A GPU that could not be opened is a sentence on a line of its
own and a row of ``[Unknown Error]``; what nvidia-smi does not know about a GPU is another word in brackets.
"""

from __future__ import annotations

import re

from fleet.agent.gpu_probe import device as shape
from fleet.agent.nvidia_smi import fields, fill, lists, states
from fleet.agent.nvidia_smi.tree import Node

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterator, List, Optional, Sequence, Tuple

    from fleet.agent.protocol import Json


_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?: \[[^\]]*\])?")
_PROCESS_NAMES = ("pid", "process_name", "used_memory", "used_gpu_memory")


def parse_query(header: Optional[Sequence[str]], text: str) -> Json:
    """The probe document of a query by GPU, filled as far as was asked.

    ``header``: the fields that were asked for, in order; None: the first line of ``text`` names them. Of
    several rows of one GPU (a query in a loop) the last counts; :func:`parse_rows` gives all.
    """
    names, rows, whole = _table(header, text)
    latest: List[Json] = []
    for found in _devices(names, rows):
        same = [place for place, other in enumerate(latest) if _same(found, other)]
        if same:
            latest[same[0]] = found
        else:
            latest.append(found)
    top = _node(names, next((cells for cells, _ in rows), []))
    document = fill.document(latest, text, top=top, form=fields.CSV, whole=whole)
    if not names:
        document["message"] = document["message"] or "the first line does not name the fields"
    return document


def parse_rows(header: Optional[Sequence[str]], text: str) -> List[Json]:
    """A Device for every row, in the order printed."""
    names, rows, _ = _table(header, text)
    return _devices(names, rows)


def parse_remapped_rows(header: Optional[Sequence[str]], text: str) -> Json:
    """As :func:`parse_query`, of ``--query-remapped-rows``: 0 and 1 there mean No and Yes."""
    return parse_query(header, text)


def parse_compute_apps(header: Optional[Sequence[str]], text: str) -> List[Json]:
    """A Device for every GPU that a row names, with its ``processes``; of kind ``compute``, all of them.

    An empty list says that nobody computes only where it was asked on the host: in a container other
    processes do not show.
    """
    names, rows, _ = _table(header, text)
    found: List[Json] = []
    for cells, _ in rows:
        node = _node(names, cells)
        made = fill.device(node, fields.CSV, _cell(node, fields.ADDRESS_IN_CSV))
        gpu = next((other for other in found if _same(made, other)), None)
        if gpu is None:
            gpu = made
            shape.set_value(gpu, "processes", [])
            found.append(gpu)
        if gpu["processes"] is not None:
            texts = {key: _cell(node, names_of) or "" for key, names_of in fields.PROCESS_CSV.items()}
            lists.add_process(gpu, {**texts, "type": "C"})
    return found


def header_of(text: str) -> Optional[List[str]]:
    """The fields that the first line names, without units; None where it is no header."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    cells = _cells(line)
    bare = [_UNIT.sub("", cell) for cell in cells]
    if not all(_NAME.fullmatch(cell) for cell in cells) or not _KNOWN.intersection(bare):
        return None
    return bare


_KNOWN = {name for field in fields.FIELDS for name in field[fields.CSV]}
_KNOWN.update((*fields.ADDRESS_IN_CSV, *fields.DRIVER_VERSION[fields.CSV], *_PROCESS_NAMES))
_KNOWN.discard("name")  # also the name of a GPU, or of a column of anything


def _table(
    header: Optional[Sequence[str]], text: str
) -> Tuple[List[str], List[Tuple[List[str], Json]], bool]:
    """(names, rows of (cells, the sentence before the row), whether every row is whole)."""
    printed = header_of(text)
    names = [_UNIT.sub("", name.strip()) for name in header] if header is not None else printed or []
    if not names:
        return [], [], True
    rows: List[Tuple[List[str], Json]] = []
    whole = True
    sentence: Json = {}
    for number, line in enumerate(line for line in text.splitlines() if line.strip()):
        if number == 0 and printed is not None:
            continue
        printed_cells = _cells(line)
        if (
            states.classify(printed_cells[0] or "-", "", 0)["status"] != "ok"
        ):  # further right are names of processes
            sentence = next(iter(states.gpus_named(line)), {})
            continue
        cells = _fitting(names, printed_cells)
        if cells is None:
            whole = False
            continue
        rows.append((cells, sentence))
        sentence = {}
    return names, rows, whole


def _cells(line: str) -> List[str]:
    return [cell.strip() for cell in line.split(",")]


def _fitting(names: List[str], cells: List[str]) -> Optional[List[str]]:
    """Cells as many as names. Of names only a process's may have commas: the surplus is its."""
    surplus = len(cells) - len(names)
    if surplus > 0 and "process_name" in names:
        place = names.index("process_name")
        return [*cells[:place], ", ".join(cells[place : place + surplus + 1]), *cells[place + surplus + 1 :]]
    return cells if surplus == 0 else None


def _devices(names: List[str], rows: List[Tuple[List[str], Json]]) -> List[Json]:
    found = []
    for cells, sentence in rows:
        node = _node(names, cells)
        device = fill.device(node, fields.CSV, _cell(node, fields.ADDRESS_IN_CSV))
        if sentence.get("address") and device["address"] is None and device["status"] != "ok":
            device["address"] = sentence["address"]
            shape.set_value(device, "printed_address", sentence["printed_address"])
            device["status"], device["message"] = sentence["status"], sentence["message"]
        found.append(device)
    return found


def _node(names: List[str], cells: List[str]) -> Node:
    node = Node("")
    for place, cell in enumerate(cells):
        node.add(names[place], cell)
    return node


def _cell(node: Node, names: Sequence[str]) -> Optional[str]:
    return next((child.text for child in node.children if child.name in names), None)


def _keys(device: Json) -> Iterator[Tuple[str, object]]:
    for key in ("address", "uuid", "index"):
        if device[key] is not None:
            yield key, device[key]


def _same(one: Json, other: Json) -> bool:
    """Whether both are the same GPU, by the first key that both have."""
    theirs = dict(_keys(other))
    for key, value in _keys(one):
        if key in theirs:
            return bool(theirs[key] == value)
    return False
