"""What the journal of a run says has happened: the fold that resume, hello and conditions rest on.

A :class:`Work` is one segment under one plan hash. A step with a lasting result there is not done
again; a step with an intent and no result was being applied when its worker died.
"""

from __future__ import annotations

from fleet.agent.conditions import Outcome
from fleet.agent.journal import Tail
from fleet.agent.protocol import CHANGED, OK, SKIPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.protocol import Json

LASTING = frozenset([OK, CHANGED, SKIPPED])


class Work:
    """One segment under one plan: what was begun and what ended."""

    def __init__(self, segment: int, plan_hash: str) -> None:
        self.segment = segment
        self.plan_hash = plan_hash
        self.begin_seq = 0  # of the last attempt
        self.status: Optional[str] = None  # of the last end; None while an attempt has none
        self.results: dict[str, Json] = {}
        self.intents: dict[str, str] = {}  # step -> boot id of the attempt that wrote the intent
        self.reboots: dict[str, str] = {}  # step -> boot id when the reboot was journalled
        self.attempted: set[str] = set()  # steps that ever had an intent
        self.handled: set[str] = set()  # handler steps that had been applied, with or without a result

    def lasting(self, step: str) -> Optional[Json]:
        """The result of a step that is not to be done again, else None."""
        result = self.results.get(step)
        if result is not None and (result["status"] in LASTING or result.get("ignored")):
            return result
        return None

    def lasting_seqs(self) -> frozenset[int]:
        """The sequence numbers of the results that last."""
        return frozenset(result["seq"] for step, result in self.results.items() if self.lasting(step))


class History:
    """Everything known of one run on this host."""

    def __init__(self) -> None:
        self.last_seq = 0
        self.attempt = 0
        self.outcomes: dict[str, Outcome] = {}
        self.works: dict[tuple[int, str], Work] = {}
        self.current: Optional[Work] = None
        self._boot_id = ""

    @classmethod
    def load(cls, path: str) -> History:
        """Fold the journal at ``path``; a missing one is an empty history."""
        history = cls()
        tail = Tail(path)
        try:
            records = tail.read(256)
            while records:
                for record in records:
                    history.add(record)
                records = tail.read(256)
        finally:
            tail.close()
        return history

    def work(self, segment: int, plan_hash: str) -> Optional[Work]:
        """What was done under this very plan, if anything was begun."""
        return self.works.get((segment, plan_hash))

    def add(self, record: Json) -> None:
        """Take in the next record."""
        self.last_seq = record["seq"]
        kind = record.get("kind")
        if kind == "begin":
            self._begin(record)
            return
        work = self.current
        if work is None:
            return
        step = record.get("step", "")
        if kind == "intent":
            work.intents[step] = self._boot_id
            work.attempted.add(step)
            work.handled.discard(step)
            work.reboots.pop(step, None)
        elif kind == "reboot":
            work.reboots[step] = record.get("boot_id", "")
        elif kind == "handled":
            work.handled.add(step)
        elif kind == "result":
            work.results[step] = record
            work.intents.pop(step, None)
            self.outcomes[step] = outcome_of(record)
        elif kind == "end":
            work.status = record.get("status")

    def _begin(self, record: Json) -> None:
        self.attempt = record.get("attempt", self.attempt)
        self._boot_id = record.get("boot_id", "")
        key = (record.get("segment", 0), record.get("plan_hash", ""))
        if key not in self.works:
            self.works[key] = Work(key[0], key[1])
        self.current = self.works[key]
        self.current.begin_seq = record["seq"]
        self.current.status = None


def outcome_of(result: Json) -> Outcome:
    """What conditions may ask of a step's result."""
    return Outcome(result.get("status") == CHANGED, result.get("exit_code"))
