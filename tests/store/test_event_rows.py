"""Events that are written together: in order, none lost when one is bad, none after a later write."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.events import Event
from fleet.store import Store
from fleet.store.store import Rows

AT = "2026-11-30T12:00:00Z"


def _started(folder: Path) -> Store:
    store = Store(f"sqlite:///{folder / 'fleet.db'}")
    store.create_run("r" * 12, playbook="p", inventory="i", operator="o", controller="c", hosts=["a"])
    return store


def _event(seq: int) -> Event:
    return Event("r" * 12, seq, AT, "a", "check_result", {"step": str(seq)})


def test_many_events_put_before_the_store_is_open_are_all_kept_in_order(tmp_path: Path) -> None:
    with _started(tmp_path) as store:
        for seq in range(1, 300):
            store.append(_event(seq))
        assert [event.seq for event in store.events("r" * 12)] == list(range(1, 300))


def test_one_event_twice_costs_that_one_only(tmp_path: Path) -> None:
    store = _started(tmp_path)
    for seq in (1, 2, 2, 3):
        store.append(_event(seq))
    with pytest.raises(Exception, match="UNIQUE"):
        store.close()
    with Store(f"sqlite:///{tmp_path / 'fleet.db'}") as again:
        assert [event.seq for event in again.events("r" * 12)] == [1, 2, 3]


def test_rows_that_are_closed_take_no_more() -> None:
    rows = Rows(("event", {"seq": 1}))
    assert rows.add(("event", {"seq": 2}))
    rows.close()
    assert not rows.add(("event", {"seq": 3}))
    assert len(rows.parts()) == 2
