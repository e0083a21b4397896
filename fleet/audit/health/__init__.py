"""Health: rules over the facts of a host and of each of its GPUs, one file per component.

``wanted`` is what the inventory expects, all of it optional: ``{"gpus": {"count": 8, "nvlinks": 18}, "now_unix",
"age_limit_s", "partial"}``. Findings here block nothing; who asks decides what an error means (``fleet health
--fail-on``, a gate of a roll-out). A value that is null because a card does not have it gives nothing; one that could
not be read does. How they are shown: :mod:`fleet.report.health`.
"""

from __future__ import annotations

import importlib
from functools import cache

from fleet.audit.facts import Facts
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Wanted

COMPONENTS = (
    "presence", "driver", "xid", "memory", "pcie", "nvlink", "fabric", "mig", "clocks", "thermal", "power",
    "persistence", "processes", "container", "interconnect", "age", "unknown",
)  # fmt: skip


@cache
def rules() -> tuple[Rule, ...]:
    """Every health rule, by component, then as written."""
    modules = (importlib.import_module(f"fleet.audit.health.{name}") for name in COMPONENTS)
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Rule))


def evaluate(facts: Facts, wanted: Wanted) -> list[Finding]:
    """All findings on one host, in the order of :func:`rules`."""
    return [finding for each in rules() for finding in each.evaluate(facts, wanted)]
