"""Looking up a row of the table of :mod:`.fields` in a tree, and putting what was found into a Device."""

from __future__ import annotations

from fleet.agent.gpu_probe import device as shape
from fleet.agent.nvidia_smi.values import Absent, placeholder, read

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Optional

    from fleet.agent.nvidia_smi.tree import Node
    from fleet.agent.protocol import Json


def look_up(node: Node, field: Any, form: int) -> Any:
    """The value of a row of the table: a value, an :class:`Absent`, or None where nothing of it was printed."""
    first: Optional[Absent] = None
    for alternative in field[form]:
        found = _sum(node, field[1], alternative)
        if found is not None and not isinstance(found, Absent):
            return found
        if found is not None and (first is None or first.text is None):
            first = found
    return first


def _sum(node: Node, kind: str, alternative: str) -> Any:
    values = []
    for path in alternative.split(" + "):
        found = node.at(path)
        value = read(kind, found.text) if found is not None else _instead(node, path)
        if value is None:
            return None
        values.append(value)
    if len(values) == 1:
        return values[0]
    # What this GPU does not count adds nothing; what could not be read makes the sum unknown.
    lacking = [value for value in values if isinstance(value, Absent)]
    if len(lacking) == len(values) or any(value.reason != "not_supported" for value in lacking):
        return next((value for value in lacking if value.reason != "not_supported"), lacking[0])
    return sum(value for value in values if not isinstance(value, Absent))


def _instead(node: Node, path: str) -> Optional[Absent]:
    """A word may stand in the place of a whole group: ``Remapped Rows : N/A``."""
    above = path.rpartition("/")[0]
    while above:
        group = node.at(above)
        if group is not None:
            return placeholder(group.text) if group.text and not group.children else None
        above = above.rpartition("/")[0]
    return None


def put(found: Json, path: str, value: Any) -> None:
    """Set a value, or say why there is none; what was not printed (None) changes nothing."""
    if isinstance(value, Absent):
        if path in found["absent"]:  # one row may fill what another could not
            shape.set_absent(found, path, value.reason, None, value.text)
    elif value is not None:
        shape.set_value(found, path, value)
