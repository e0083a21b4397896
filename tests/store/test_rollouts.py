"""What the store promises to rollouts: one owner, no overlap, every decision on disk; in SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from fleet.core.errors import InputError, RefusedError
from fleet.core.ids import new_run_id
from fleet.rollout.rollout import Rollout
from fleet.store import Store
from tests.rollout.world import Hosts, PlayedClock, some, strategy

DUMPS = Path(__file__).parent / "dumps"
CONTROL: dict[str, Any] = {"phase": "running"}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[], Store]]:
    """Opens the same store as often as asked."""
    url: Callable[[], str | None] = lambda: None  # noqa: E731
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    stores: list[Store] = []

    def one() -> Store:
        stores.append(Store(url()))
        return stores[-1]

    yield one
    for store in stores:
        store.close()


@pytest.fixture
def names() -> dict[str, str]:
    """A run and hosts of this test alone: a PostgreSQL that was given is shared."""
    run = new_run_id()
    return {"run": run, "a": f"{run}-a", "b": f"{run}-b", "c": f"{run}-c"}


def test_a_rollout_comes_back_as_it_was_decided(opened: Callable[[], Store], names: dict[str, str]) -> None:
    run, a, b = names["run"], names["a"], names["b"]
    store = opened()
    revision = store.register_rollout(run, {"members": []}, CONTROL, {a: a, b: b})
    moves = [
        (a, 1, "preflight", {"counted": None}),
        (b, 1, "preflight", {}),
        (a, 2, "baseline", {"x": "\x00 ø"}),
    ]
    revision = store.commit_rollout(run, revision, moves, None)
    store.commit_rollout(run, revision, [], {"phase": "paused"})
    row = opened().rollout(run)
    assert (row.document, row.control, row.ended_at) == ({"members": []}, {"phase": "paused"}, None)
    assert row.hosts == {a: ("baseline", 2, {"x": "\x00 ø"}), b: ("preflight", 1, {})}
    assert [found[:2] for found in store.rollout_transitions(run, a)] == [(1, "preflight"), (2, "baseline")]


def test_overlapping_rollouts_are_refused_and_leave_nothing(
    opened: Callable[[], Store], names: dict[str, str]
) -> None:
    run, a, b, c = names.values()
    other = new_run_id()
    revision = opened().register_rollout(run, {}, CONTROL, {a: "gpu-a", b: "gpu-b"})
    second = opened()
    with pytest.raises(RefusedError, match=f"rollout {run} has not ended and has gpu-b;"):
        second.register_rollout(other, {}, CONTROL, {c: c, b: "another-name"})
    with pytest.raises(InputError, match="not a rollout"):
        second.rollout(other)
    second.commit_rollout(run, revision, [], CONTROL, ended=True)
    second.register_rollout(other, {}, CONTROL, {c: c, b: b})
    assert second.rollout(run).ended_at is not None


def test_a_rollout_of_thousands_overlaps_by_one_host(
    opened: Callable[[], Store], names: dict[str, str]
) -> None:
    many = {f"{names['run']}-{number}": f"h{number}" for number in range(3000)}
    store = opened()
    store.register_rollout(names["run"], {}, CONTROL, many)
    with pytest.raises(RefusedError, match="h2999;"):
        store.register_rollout(new_run_id(), {}, CONTROL, {f"{names['run']}-2999": "x", names["a"]: "a"})


def test_who_is_replaced_decides_nothing_any_more(opened: Callable[[], Store], names: dict[str, str]) -> None:
    run, a = names["run"], names["a"]
    first, second = opened(), opened()
    revision = first.register_rollout(run, {}, CONTROL, {a: a})
    taken = second.take_up_rollout(run)
    with pytest.raises(RefusedError, match="taken up by another process"):
        first.commit_rollout(run, revision, [(a, 1, "preflight", {})], None)
    assert second.rollout(run).hosts == {}
    second.commit_rollout(run, taken.revision, [(a, 1, "preflight", {})], None)
    assert first.rollout(run).hosts == {a: ("preflight", 1, {})}


def test_a_commit_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    """Asked of the file, while the store is open."""
    store = Store()
    revision = store.register_rollout("r" * 12, {}, CONTROL, {"a": "a"})
    store.commit_rollout("r" * 12, revision, [("a", 1, "preflight", {})], None)
    connection = sqlite3.connect(tmp_path / "state" / "fleet.db")
    assert connection.execute("SELECT state, number FROM rollout_hosts").fetchall() == [("preflight", 1)]
    connection.close()
    store.close()


def test_of_processes_that_register_the_same_host_at_once_one_gets_it() -> None:
    program = (
        "import sys\n"
        "from fleet.core.errors import RefusedError\n"
        "from fleet.store import Store\n"
        "with Store() as store:\n"
        "    try:\n"
        "        store.register_rollout(sys.argv[1], {}, {}, {'shared': 'shared', sys.argv[1]: 'own'})\n"
        "        print('got it')\n"
        "    except RefusedError:\n"
        "        print('refused')\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, f"run{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    said = sorted(process.communicate()[0].strip() for process in running)
    assert said == ["got it", "refused", "refused", "refused"]


def test_the_production_class_goes_through_the_store_and_over_a_reload(
    opened: Callable[[], Store], names: dict[str, str]
) -> None:
    clock = PlayedClock(datetime(2026, 12, 1, 12, tzinfo=timezone.utc))
    fleet = [one.__class__(f"{names['run']}-{one.name}", one.unit) for one in some(3)]
    hosts = Hosts([one.name for one in fleet])
    store = opened()
    rollout = Rollout.register(names["run"], strategy(max_unavailable=2), fleet, store, clock)
    for _ in range(9):
        rollout.take([hosts.act(action) for action in rollout.next()])
    again = Rollout.load(names["run"], opened(), clock)
    assert (dict(again.hosts), again.control) == (dict(rollout.hosts), rollout.control)
    while actions := again.next():
        again.take([hosts.act(action) for action in actions])
    assert all(len(done) == 1 for done in hosts.transactions.values())
    assert store.rollout(names["run"]).ended_at is not None


def test_a_store_of_version_3_takes_rollouts_and_one_of_version_4_has_them(tmp_path: Path) -> None:
    for dump, kept in (("v3", False), ("v4", True)):
        database = tmp_path / "state" / "fleet.db"
        database.parent.mkdir(mode=0o700, exist_ok=True)
        database.unlink(missing_ok=True)
        connection = sqlite3.connect(database)
        connection.executescript((DUMPS / f"{dump}.sql").read_text(encoding="utf-8"))
        connection.close()
        with Store() as store:
            if kept:
                assert store.rollout("7f3a12c4d5e6").hosts == {"gpu01": ("preflight", 1, {"counted": None})}
                with pytest.raises(RefusedError, match="gpu01"):
                    store.register_rollout("b" * 12, {}, CONTROL, {"gpu01": "gpu01"})
            else:
                assert store.register_rollout("b" * 12, {}, CONTROL, {"gpu01": "gpu01"}) == 1
