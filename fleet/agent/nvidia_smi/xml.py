"""``nvidia-smi -q -x`` of drivers 390 to 610: a probe document, also of output that breaks off.

The file names a DTD, which exists on no host: expat, told nothing about it, opens neither files nor
connections. Entities could be declared in the file itself, and nvidia-smi declares none: a file that does is
not read on. Clock tables make up most of a file and are passed over. expat is imported when it is needed:
Python installations without it exist, and ImportError is what they raise.
"""

from __future__ import annotations

import re

from fleet.agent.nvidia_smi import fields, fill
from fleet.agent.nvidia_smi.tree import Node

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.protocol import Json


ROOT = "nvidia_smi_log"
DEEPEST = 24
_ID = "@id"  # the attribute of an element gpu, as a child of it
_PASSED_OVER = ("supported_clocks", "accounted_processes")
_PROCESS_NAME = re.compile(r"(<process_name>)(.{0,4096}?)(</process_name>)", re.DOTALL)
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9A-Fa-f]+);)")
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class EntityDeclared(ValueError):
    """The file declares an entity."""


def parse(text: str) -> Json:
    """The probe document of what ``-q -x`` printed; never an exception for what it printed.

    Lines before and after the document are read for what they say of GPUs. A GPU in which the output breaks
    off has status ``error``; the document then has, too.
    """
    start = re.search(r"<\?xml|<!DOCTYPE|<%s" % ROOT, text)
    if start is None:
        return fill.document([], text)
    reader = _Reader()
    reader.read(_mended(text[start.start() :]))
    gpus = [child for child in reader.root.children if child.name == "gpu"]
    devices = [
        fill.device(gpu, fields.XML, _address(gpu), whole=any(gpu is one for one in reader.whole))
        for gpu in gpus
    ]
    return fill.document(devices, text, top=reader.root, form=fields.XML, whole=reader.ended)


def _mended(text: str) -> str:
    """Names of processes are printed as they are, which may be no XML."""
    text = _PROCESS_NAME.sub(lambda match: match.group(1) + _escaped(match.group(2)) + match.group(3), text)
    return _NOT_IN_XML.sub("?", text)


def _escaped(name: str) -> str:
    return _BARE_AMPERSAND.sub("&amp;", name).replace("<", "&lt;")


def _address(gpu: Node) -> Optional[str]:
    node = gpu.at(_ID) or gpu.at("pci/pci_bus_id")
    return node.text.strip() if node is not None else None


class _Reader:
    """expat's events made a tree; what was read before a fault is kept."""

    def __init__(self) -> None:
        self.root = Node(ROOT)
        self.ended = False
        self.whole: List[Node] = []
        self._open: List[Node] = []
        self._skipping = 0

    def read(self, text: str) -> None:
        import pyexpat

        parser = pyexpat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity
        try:
            parser.Parse(text.encode("utf-8"), True)
        except (pyexpat.ExpatError, EntityDeclared):
            return  # ``ended`` says whether anything is missing

    def _start(self, name: str, attributes: Dict[str, str]) -> None:
        if self._skipping or name in _PASSED_OVER or len(self._open) >= DEEPEST:
            self._skipping += 1
            return
        if not self._open:
            self._open.append(self.root)
            return
        node = self._open[-1].add(name)
        self._open.append(node)
        if name == "gpu" and attributes.get("id"):
            node.add(_ID, attributes["id"])

    def _end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        node = self._open.pop()
        node.text = node.text.strip()
        if node.name == "gpu" and len(self._open) == 1:
            self.whole.append(node)
        self.ended = not self._open

    def _characters(self, text: str) -> None:
        if not self._skipping and self._open:
            self._open[-1].text += text

    def _entity(self, *declaration: Any) -> None:
        raise EntityDeclared(str(declaration[0]))
