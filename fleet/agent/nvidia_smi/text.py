"""``nvidia-smi -q`` as text (also of ``-q -d SECTION``): a probe document, by the same table as XML.

Names stand left of `` : ``, values right of it, and what is indented deeper belongs to the line above. A GPU
begins at a line ``GPU 00000000:1B:00.0`` and ends with an empty line, or where its last section is there.
"""

from __future__ import annotations

import re

from fleet.agent.nvidia_smi import fields, fill
from fleet.agent.nvidia_smi.tree import Node

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Tuple

    from fleet.agent.protocol import Json


DEEPEST = 24
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_SEPARATOR = re.compile(r" :(?: |$)")


def parse(text: str) -> Json:
    """The probe document of what ``-q`` printed; never an exception for what it printed.

    A GPU in which the output breaks off has status ``error``; the document then has, too. Sections of one GPU
    without its heading are a GPU without address.
    """
    top, gpus = _sections(text)
    if (
        top.at("Attached GPUs") is None
    ):  # a part of an output, cut out by somebody: where it ends says nothing
        gpus = [(gpu, address, True) for gpu, address, _ in gpus]
    devices = [fill.device(gpu, fields.TEXT, address, whole=whole) for gpu, address, whole in gpus]
    if not gpus and top.children:
        part = fill.device(top, fields.TEXT, None)
        devices = [part] if fill.tells_anything(part) else []
    whole = all(section[2] for section in gpus)
    return fill.document(devices, text, top=top, form=fields.TEXT, whole=whole)


def _sections(text: str) -> Tuple[Node, List[Tuple[Node, str, bool]]]:
    """The tree of the versions, and of each GPU (tree, address as printed, whether it was printed to its end)."""
    top = Node("")
    gpus: List[Tuple[Node, str]] = []
    ended: List[bool] = []
    path: List[Tuple[int, Node]] = [(-1, top)]
    for line in text.splitlines():
        heading = _GPU.match(line)
        if heading is not None:
            ended[-1:] = [True] * len(ended[-1:])
            gpus.append((Node("gpu"), heading.group(1)))
            ended.append(False)
            path = [(-1, gpus[-1][0])]
        elif not gpus:
            _place(path, line)
        elif not line.strip():
            ended[-1] = bool(gpus[-1][0].children)
        elif line[0] in " \t":  # a line between GPUs is about one that is not shown
            ended[-1] = False
            _place(path, line)
    return top, [
        (node, address, ended[place] or _has_last_section(node)) for place, (node, address) in enumerate(gpus)
    ]


def _place(path: List[Tuple[int, Node]], line: str) -> None:
    line = line.replace("\t", "    ").rstrip()
    stripped = line.lstrip(" ")
    if not stripped:
        return
    indentation = len(line) - len(stripped)
    while len(path) > 1 and path[-1][0] >= indentation:
        path.pop()
    separator = _SEPARATOR.search(stripped)
    name = stripped[: separator.start()].rstrip() if separator else stripped
    node = path[-1][1].add(name, stripped[separator.end() :].strip() if separator else "")
    if len(path) < DEEPEST:
        path.append((indentation, node))


def _has_last_section(gpu: Node) -> bool:
    """Capabilities come last from driver 565 on. Before it, a list of no processes has no more to come."""
    last: Optional[Node] = gpu.children[-1] if gpu.children else None
    if last is None:
        return False
    return (
        bool(last.children)
        if last.name == "Capabilities"
        else last.name == "Processes" and last.text == "None"
    )
