"""What the operator asked for, as stored with the run so that it can be resumed."""

from __future__ import annotations

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
        """The command that repeats this run, as an operator would type it."""
        if self.playbook == "provision":
            return f"fleet provision {self.inventory}"
        return f"fleet run {self.inventory} {self.playbook}"

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
