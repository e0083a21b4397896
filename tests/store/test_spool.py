"""Rows that nobody waited for lie in a file, and whoever opens the database next has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.core.events import Event
from fleet.core.secret import Scrubber, Secret
from fleet.store import Store

AT = "2026-11-30T12:00:00Z"
RUN = "a" * 12


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def event(seq: int, kind: str = "check_result", host: str | None = "gpu01", **data: object) -> Event:
    return Event(RUN, seq, AT, host, kind, data)


def a_run_that_changes_nothing(store: Store) -> None:
    store.create_run(RUN, playbook="p", inventory="i", operator="o", controller="c", hosts=["gpu01"])
    store.append(event(1))
    store.put_report(RUN, "gpu01", {"status": "converged"})
    store.append(event(2, "host_ended", status="converged", counts={"ok": 3}))
    store.append(event(3, "run_ended", None, exit_code=0, counts={"converged": 1}, duration_s=0.5))


def assert_all_there(store: Store) -> None:
    row = store.find_run(RUN)
    assert (row.exit_code, row.counts) == (0, {"converged": 1})
    assert [one.seq for one in store.events(RUN)] == [1, 2, 3]
    assert [(host.host, host.state) for host in store.hosts(RUN)] == [("gpu01", "converged")]
    assert store.report(RUN, "gpu01") == {"status": "converged"}


def test_a_run_that_nobody_waits_for_never_loads_the_database(state: Path) -> None:
    code = """
import sys
from tests.store.test_spool import *
with Store() as store:
    a_run_that_changes_nothing(store)
assert "sqlalchemy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    assert not (state / "fleet.db").exists()
    with Store() as store:
        assert_all_there(store)
    assert list((state / "spool").iterdir()) == []
    with Store() as store:
        assert_all_there(store)


def test_a_run_whose_transition_was_waited_for_leaves_no_file(state: Path) -> None:
    with Store() as store:
        store.create_run(RUN, playbook="p", inventory="i", operator="o", controller="c", hosts=["gpu01"])
        store.append(event(1))
        store.put_host_state(RUN, "gpu01", "applying")
        store.append(event(2))
    assert list((state / "spool").iterdir()) == []
    with Store() as store:
        assert [one.seq for one in store.events(RUN)] == [1, 2]
        assert store.touched_hosts(RUN) == ["gpu01"]


def test_what_a_killed_process_left_is_taken_in_up_to_its_last_whole_row(state: Path) -> None:
    with Store() as store:
        a_run_that_changes_nothing(store)
    (path,) = (state / "spool").iterdir()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:20])
    with Store() as store:
        assert [one.seq for one in store.events(RUN)] == [1]
        assert store.find_run(RUN).exit_code is None


def test_a_crash_after_a_part_was_committed_doubles_nothing(state: Path) -> None:
    with Store() as store:
        a_run_that_changes_nothing(store)
    (path,) = (state / "spool").iterdir()
    kept = path.read_text()
    with Store() as store:
        assert_all_there(store)
    path.write_text(kept)
    with Store() as store:
        assert_all_there(store)


def test_the_file_of_a_living_process_is_left_alone(state: Path) -> None:
    living = Store()
    a_run_that_changes_nothing(living)
    with Store() as other:
        assert other.runs() == []
    living.close()
    with Store() as other:
        assert_all_there(other)


def test_a_file_that_cannot_be_understood_is_kept_beside(state: Path) -> None:
    (state / "spool").mkdir(parents=True)
    (state / "spool" / "x-1.jsonl").write_text(json.dumps({"nothing": 1}) + "\n")
    with Store() as store:
        assert store.runs() == []
    assert [path.name for path in (state / "spool").iterdir()] == ["x-1.bad"]


def test_secrets_are_scrubbed_on_the_way_into_the_file_too(state: Path) -> None:
    with Store(scrub=Scrubber([Secret("hunter2hunter2", "sudo password")])) as store:
        store.create_run(RUN, playbook="p", inventory="i", operator="o", controller="c", hosts=[])
        store.append(event(1, text="hunter2hunter2"))
    (path,) = (state / "spool").iterdir()
    assert "hunter2" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
