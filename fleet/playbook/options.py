"""What the operator asked of a run, as far as compiling needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.playbook.model import Task


@dataclass(frozen=True)
class RunOptions:
    """Options of one run, the same for all hosts.

    ``command`` is how this run is repeated for one host, with ``{host}`` where its name goes. ``search`` are
    further directories for files that tasks name (the inventory's). ``check`` and ``diff`` never change a
    plan.
    """

    check: bool = False
    diff: bool = False
    tags: frozenset[str] = frozenset()
    skip_tags: frozenset[str] = frozenset()
    disrupt: bool = False
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    command: str = "fleet run INVENTORY PLAYBOOK --limit {host}"
    search: tuple[Path, ...] = ()

    def selects(self, task: Task) -> bool:
        """Whether ``--tags`` and ``--skip-tags`` take this task; ``always`` and ``never`` as in Ansible."""
        tags = task.tags or frozenset(("untagged",))
        if tags & self.skip_tags or ("all" in self.skip_tags and "always" not in tags):
            return False
        if "tagged" in self.skip_tags and task.tags:
            return False
        if "always" in tags:
            return True
        wanted = self.tags or frozenset(("all",))
        if "never" in tags and not (tags - {"never"}) & wanted and "never" not in wanted:
            return False
        return bool("all" in wanted or tags & wanted or ("tagged" in wanted and task.tags))
