"""The ledger of a run in the store: what each segment was compiled from, durable before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fleet.run.host_run import SegmentInputs
from fleet.store import APPLYING


class PlanStore(Protocol):
    """What the ledger needs of :class:`fleet.store.Store`."""

    def save_plan(self, run: str, host: str, segment: int, plan: Mapping[str, Any], plan_hash: str) -> None:
        """Keep one document; committed before the next transition."""

    def put_host_state(
        self, run: str, host: str, state: str, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Commit a transition; returns once it is durable."""

    def plans(self, run: str, host: str) -> list[dict[str, Any]]:
        """The documents kept for this host, in segment order."""


class StoreLedger:
    """Keeps segment inputs of one run in the store."""

    def __init__(self, store: PlanStore, run: str) -> None:
        self._store = store
        self._run = run

    def save(self, host: str, inputs: SegmentInputs) -> None:
        """Keep these inputs; :meth:`applying` makes them durable."""
        document = {
            "segment": inputs.segment,
            "facts": inputs.facts,
            "answers": inputs.answers,
            "now_unix": inputs.now_unix,
            "ssh_client": inputs.ssh_client,
            "plan_hash": inputs.plan_hash,
        }
        self._store.save_plan(self._run, host, inputs.segment, document, inputs.plan_hash)

    def applying(self, host: str, segment: int) -> None:
        """Commit that this segment's worker is about to be started."""
        self._store.put_host_state(self._run, host, APPLYING, {"segment": segment})

    def saved(self, host: str) -> list[SegmentInputs]:
        """What was kept for ``host``."""
        return [SegmentInputs(**document) for document in self._store.plans(self._run, host)]
