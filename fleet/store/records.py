"""What the store hands out, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The host state from which on the host counts as touched: committed before its worker is started.
APPLYING = "applying"


@dataclass(frozen=True)
class RunRow:
    """One run. Times are RFC 3339 UTC; ``ended_at`` and ``exit_code`` are None while it is open.

    ``arguments`` is what is needed to continue it (command, limit, tags, extra variables without
    secrets …), as the command line saved it. ``counts`` is hosts per end status.
    """

    run: str
    playbook: str
    inventory: str
    operator: str
    controller: str
    check: bool
    hosts: tuple[str, ...]
    arguments: Mapping[str, Any]
    fleet_version: str
    created_at: str
    ended_at: str | None
    exit_code: int | None
    duration_s: float | None
    counts: Mapping[str, int]


@dataclass(frozen=True)
class HostRow:
    """Where one host of a run is: its last committed state, and the last step heard of.

    ``index`` is the step's place in its segment of ``total`` steps, from 0.
    """

    host: str
    state: str
    detail: Mapping[str, Any]
    at: str
    touched: bool
    last_step: str | None = None
    last_status: str | None = None
    index: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class BaselineRow:
    """A value that later ones are held against. ``gpu`` is a UUID, or several joined by ``+``.

    ``key`` names what must be equal for the two to compare (fleet.audit.benchmarks.subject.baseline_key);
    ``record`` tells the conditions in short: driver, image, torch.
    """

    host: str
    gpu: str
    test: str
    key: str
    value: float
    unit: str
    run: str
    at: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class InspectionRow:
    """What was learnt of one image, by its digest, from one ``source`` (configuration or container_check).

    ``place`` says where in words: a registry, or a host. ``reader`` is the version of who made ``facts`` of what was
    there: a newer one looks again.
    """

    digest: str
    source: str
    reader: int
    place: str
    at: str
    facts: Mapping[str, Any]
