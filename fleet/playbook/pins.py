"""Does a play ask for an exact version of something? Told before the host is asked anything.

Hosts of a run are asked for their pins beforehand (:mod:`fleet.run.pins`), which costs a connection. A play that
pins nothing is spared it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from fleet.core.errors import InputError
from fleet.core.template import Templar
from fleet.modules import load
from fleet.playbook.model import FLUSH, Play, Task
from fleet.playbook.options import RunOptions
from fleet.playbook.unit import OMIT

_BY_NAME = ("package", "apt")  # whose names may be written name=version


def may_be_pinned(play: Play, host: str, variables: Mapping[str, Any], options: RunOptions) -> bool:
    """Whether a selected task names a version for this host. What only the host's facts can tell counts as yes."""
    known: list[Mapping[str, Any]] = [options.extra_vars, {"omit": OMIT}, play.vars, variables]
    known += [{"inventory_hostname": host}, play.defaults]
    tasks = [task for task in (*play.tasks, *play.handlers) if task.module != FLUSH and options.selects(task)]
    return any(_pins(task, known) for task in tasks)


def _pins(task: Task, known: list[Mapping[str, Any]]) -> bool:
    raw = _version(task)
    if raw is None:
        return False
    templar = Templar(ChainMap(dict(task.vars), *known))  # type: ignore[arg-type]  # it is never written to
    try:
        value = templar.render(raw, task.position)
    except InputError:
        return True
    if task.module in _BY_NAME:
        return any("=" in str(name) for name in (value if isinstance(value, list) else [value]))
    return value not in (None, "", OMIT)


def _version(task: Task) -> Any:
    """The raw argument that holds a version, if any."""
    if task.module in _BY_NAME:
        names = ("name", *load(task.module).arguments["name"].aliases)
        return next((task.arguments[name] for name in names if name in task.arguments), None)
    return task.arguments.get("version") if "version" in load(task.module).arguments else None
