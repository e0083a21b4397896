"""What the operator asked for, as stored with the run so that it can be resumed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunRequest:
    """One invocation of ``fleet run`` or ``fleet provision``.

    ``inventory`` and ``playbook`` are as given (paths or names); ``extra_vars`` hold no secrets: a
    secret given with ``-e`` must be given again on resume.
    """

    inventory: str
    playbook: str
    limit: str | None = None
    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    disrupt: bool = False
    forks: int = 100
    accept_new: bool = False
    install_python: bool = False

    @property
    def command(self) -> str:
        """The command that repeats this run, as an operator would type it; which hosts is left open."""
        play = (
            ["provision", self.inventory]
            if self.playbook == "provision"
            else ["run", self.inventory, self.playbook]
        )
        words = ["fleet", *play]
        if self.tags:
            words += ["--tags", ",".join(self.tags)]
        if self.skip_tags:
            words += ["--skip-tags", ",".join(self.skip_tags)]
        for name, value in self.extra_vars.items():
            words += ["-e", f"{name}={value}" if isinstance(value, str) else json.dumps({name: value})]
        return shlex.join(words)

    def as_json(self) -> dict[str, Any]:
        """As the store keeps it."""
        return {**asdict(self), "extra_vars": dict(self.extra_vars)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunRequest:
        """The request of a stored run."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        for name in ("tags", "skip_tags"):
            known[name] = tuple(known.get(name) or ())
        return cls(**known)
