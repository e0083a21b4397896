"""The rules, one file per subject. :func:`rules` gives those of a stage, such as ``preflight``."""

from __future__ import annotations

import importlib
from functools import cache

from fleet.audit.facts import Facts
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Wanted

SUBJECTS = (
    "os", "python", "clock", "disk", "packages", "engine", "network", "clusters",
    "gpu", "driver", "kernels", "secure_boot", "users",
)  # fmt: skip


@cache
def rules(stage: str) -> tuple[Rule, ...]:
    """Every rule whose id starts with ``stage.``, by subject, then as written."""
    found: list[Rule] = []
    for subject in SUBJECTS:
        code = importlib.import_module(f"fleet.audit.rules.{subject}")
        found.extend(value for value in vars(code).values() if isinstance(value, Rule))
    return tuple(each for each in found if each.id.startswith(f"{stage}."))


def evaluate(stage: str, facts: Facts, wanted: Wanted) -> list[Finding]:
    """All findings of a stage on one host."""
    return [finding for each in rules(stage) for finding in each.evaluate(facts, wanted)]
