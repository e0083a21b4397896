"""What is put into the store is there afterwards: across processes, errors and versions."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.core.errors import InputError, RefusedError
from fleet.core.events import Event
from fleet.core.secret import Scrubber, Secret
from fleet.store import APPLYING, BaselineRow, InspectionRow, Store
from fleet.store.writer import StoreError

RUN = "7f3a12c4d5e6"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))


def event(
    seq: int, kind: str = "step_output", host: str | None = "gpu01", run: str = RUN, **data: object
) -> Event:
    return Event(run, seq, f"2026-11-30T14:00:{seq % 60:02}.000Z", host, kind, data)


def new_run(store: Store, run: str = RUN, **named: object) -> None:
    values = {"playbook": "provision", "inventory": "lab.yaml", "operator": "anna", "controller": "desk"}
    store.create_run(run, **{**values, "hosts": ["gpu01", "gpu02"], **named})  # type: ignore[arg-type]


def baseline(**changes: object) -> BaselineRow:
    values = {
        "host": "gpu01",
        "gpu": "GPU-1",
        "test": "memory.copy",
        "key": "k1",
        "value": 2950.25,
        "unit": "gb_s",
        "run": RUN,
        "at": "2026-11-30T14:00:00.000Z",
        "record": {"driver": "580.159.04"},
    }
    return BaselineRow(**{**values, **changes})  # type: ignore[arg-type]


DIGEST = "sha256:" + "a" * 64


def inspection(**changes: object) -> InspectionRow:
    values = {
        "digest": DIGEST,
        "source": "configuration",
        "reader": 1,
        "place": "registry.example.net:5000",
        "at": "2026-12-01T00:58:00.000Z",
        "facts": {"cuda": "12.8"},
    }
    return InspectionRow(**{**values, **changes})  # type: ignore[arg-type]


OLD_BASELINE = baseline(key="k0")


def test_a_run_comes_back_as_it_was_put() -> None:
    with Store() as store:
        new_run(store, check=True, arguments={"limit": "gpu01", "tags": []})
        row = store.find_run(RUN)
    assert (row.playbook, row.operator, row.check, row.hosts) == (
        "provision",
        "anna",
        True,
        ("gpu01", "gpu02"),
    )
    assert row.arguments == {"limit": "gpu01", "tags": []}
    assert (row.ended_at, row.exit_code, row.counts) == (None, None, {})


def test_run_ended_ends_the_run_and_reopening_opens_it_again() -> None:
    with Store() as store:
        new_run(store)
        end = {"exit_code": 3, "duration_s": 2.5, "counts": {"converged": 1, "unreachable": 1}}
        store.append(event(1, "run_ended", None, **end))
        row = store.run(RUN)
        assert (row.exit_code, row.duration_s, row.counts) == (3, 2.5, end["counts"])
        assert row.ended_at == "2026-11-30T14:00:01.000Z"
        store.reopen_run(RUN)
        assert store.run(RUN).ended_at is None
        assert store.last_seq(RUN) == 1


def test_events_come_back_in_order_by_host_and_kind() -> None:
    with Store() as store:
        for seq in range(1, 7):
            store.append(event(seq, ("step_started", "step_output")[seq % 2], f"gpu0{seq % 3}", n=seq))
        assert [one.seq for one in store.events(RUN)] == [1, 2, 3, 4, 5, 6]
        assert [one.seq for one in store.events(RUN, "gpu01")] == [1, 4]
        assert [one.seq for one in store.events(RUN, kinds=["step_started"], after=2)] == [4, 6]
        assert store.events(RUN)[2] == event(3, "step_output", "gpu00", n=3)


def test_what_no_database_takes_comes_back_all_the_same() -> None:
    text = "caf\u00e9 \udc80\udcff \x00 \U0001f600"
    with Store() as store:
        store.append(event(1, text=text))
        assert store.events(RUN)[0].data == {"text": text}


def test_a_transition_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    with Store() as store:
        new_run(store)
        store.append(event(1))
        store.put_host_state(RUN, "gpu01", "connecting")
        database = sqlite3.connect(tmp_path / "state" / "fleet.db")
        assert database.execute("SELECT host, state FROM host_states").fetchall() == [("gpu01", "connecting")]
        assert database.execute("SELECT count(*) FROM events").fetchone() == (1,), (
            "what was queued before too"
        )
        database.close()


def test_a_host_is_touched_from_applying_on_or_once_a_step_was_seen() -> None:
    with Store() as store:
        new_run(store, hosts=["gpu01", "gpu02", "gpu03"])
        for state in ("connecting", APPLYING, "converged"):
            store.put_host_state(RUN, "gpu01", state, {"reason": state})
        store.put_host_state(RUN, "gpu02", "unreachable")
        store.append(event(1, "step_started", "gpu03", step="1.a.b", task="a", index=1, total=2))
        assert store.touched_hosts(RUN) == ["gpu01", "gpu03"]
        rows = {row.host: row for row in store.hosts(RUN)}
        assert (rows["gpu01"].state, rows["gpu01"].touched) == ("converged", True)
        assert rows["gpu01"].detail == {"reason": "converged"}
        assert [state for state, _ in store.transitions(RUN, "gpu01")] == [
            "connecting",
            APPLYING,
            "converged",
        ]


def test_the_last_step_of_a_host_is_known_with_its_place() -> None:
    with Store() as store:
        store.put_host_state(RUN, "gpu01", APPLYING)
        store.append(event(1, "step_started", step="1.a.b", task="first", index=1, total=2))
        store.append(event(2, "step_result", step="1.a.b", task=None, status="changed"))
        (row,) = store.hosts(RUN)
        assert (row.last_step, row.last_status, row.index, row.total) == ("first", "changed", 1, 2)
        store.append(event(3, "step_started", step="2.a.b", task="second", index=2, total=2))
        (row,) = store.hosts(RUN)
        assert (row.last_step, row.last_status, row.index) == ("second", None, 2)


def test_a_hosts_end_is_its_state_even_when_the_engine_put_none() -> None:
    with Store() as store:
        new_run(store)
        store.append(event(1, "host_ended", "gpu01", status="converged", counts={"ok": 2}))
        store.put_host_state(RUN, "gpu02", "pending", {"reason": "busy"})
        store.append(event(2, "host_ended", "gpu02", status="pending", reason="busy"))
        assert [(row.host, row.state) for row in store.hosts(RUN)] == [
            ("gpu01", "converged"),
            ("gpu02", "pending"),
        ]
        assert store.touched_hosts(RUN) == []
        assert [state for state, _ in store.transitions(RUN, "gpu02")] == ["pending"]


def test_plans_and_reports_come_back_and_the_latest_report_wins() -> None:
    with Store() as store:
        store.save_plan(RUN, "gpu01", 2, {"segment": 2}, "b" * 64)
        store.save_plan(RUN, "gpu01", 1, {"segment": 1}, "a" * 64)
        store.put_report(RUN, "gpu01", {"status": "failed"})
        store.put_report(RUN, "gpu01", {"status": "converged"})
        assert store.plans(RUN, "gpu01") == [{"segment": 1}, {"segment": 2}]
        assert store.report(RUN, "gpu01") == {"status": "converged"}
        assert store.report(RUN, "gpu02") is None
        assert store.reports(RUN) == {"gpu01": {"status": "converged"}}


def test_the_newest_report_with_facts_is_found_for_every_host_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = (f"2026-11-30T14:00:{second:02}.000Z" for second in range(60))
    monkeypatch.setattr("fleet.store.store.utc_now", lambda: next(times))
    monkeypatch.setattr("fleet.store.store.REPORTS_AT_ONCE", 2)
    names = [f"gpu{number}" for number in range(5)]
    with Store() as store:
        assert store.runs() == []
        for run in ("a" * 12, "b" * 12):
            new_run(store, run)
            for name in names:
                store.put_report(run, name, {"facts": {"of": run}})
        new_run(store, "c" * 12)
        store.put_report("c" * 12, "gpu3", {"facts": None, "status": "unreachable"})
        store.put_report("c" * 12, "gpu4", {"facts": {"of": "c" * 12}})
        found = {host: (run, facts) for host, run, facts in store.newest_facts([*names[1:], "gone"])}
        assert list(store.newest_facts(names, runs=1)) == [("gpu4", "c" * 12, {"of": "c" * 12})]
    newest = dict.fromkeys(("gpu1", "gpu2", "gpu3"), "b" * 12) | {"gpu4": "c" * 12}
    assert found == {name: (run, {"of": run}) for name, run in newest.items()}


@pytest.mark.parametrize("sqlite", [(3, 40, 1), (3, 34, 0)], ids=["cut by SQLite", "cut by Python"])
def test_parts_of_the_facts_that_are_not_wanted_are_left_out(
    sqlite: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.store.statements.sqlite3.sqlite_version_info", sqlite)
    facts = {
        "os": {"id": "debian", "name": "\u00e9 \udc80"},
        "gpu_probe": {"devices": [1.5, None]},
        "empty": {},
    }
    with Store() as store:
        new_run(store)
        store.put_report(RUN, "gpu01", {"facts": facts})
        store.put_report(RUN, "gpu02", {"facts": None})
        assert list(store.newest_facts(["gpu01"])) == [("gpu01", RUN, facts)]
        cut = list(store.newest_facts(["gpu01", "gpu02"], without=["gpu_probe", "kernel_log"]))
    missing = {"gpu_probe": None, "gpu_probe_reason": "not_collected"}
    missing |= {"kernel_log": None, "kernel_log_reason": "not_collected"}
    assert cut == [("gpu01", RUN, {**facts, **missing})]


def test_runs_are_found_by_prefix_and_an_ambiguous_one_lists_the_candidates() -> None:
    with Store() as store:
        with pytest.raises(InputError, match="there is no run yet"):
            store.find_run("last")
        for run in ("abcd11111111", "abcd22222222", "ffff00000000"):
            new_run(store, run)
        assert store.find_run("ffff").run == "ffff00000000"
        assert store.find_run("last").run in {row.run for row in store.runs(3)}
        assert len(store.runs(2)) == 2
        with pytest.raises(InputError, match="could mean 2 runs") as caught:
            store.find_run("abcd")
        assert {"abcd11111111", "abcd22222222"} <= set(str(caught.value).split())
        with pytest.raises(InputError, match="there is no run 0000"):
            store.find_run("0000")
        with pytest.raises(InputError, match="too short"):
            store.find_run("abc")
        with pytest.raises(InputError, match="there is no run %%%%"):
            store.find_run("%%%%")


def test_secrets_are_scrubbed_on_the_way_in(tmp_path: Path) -> None:
    with Store(scrub=Scrubber([Secret("hunter2!", "sudo password")])) as store:
        new_run(store, arguments={"x": "hunter2!"})
        store.append(event(1, text="hunter2! and aHVudGVyMiE="))
        store.put_host_state(RUN, "gpu01", "failed", {"reason": "hunter2!"})
        store.put_report(RUN, "gpu01", {"steps": ["hunter2!"]})
    for path in filter(Path.is_file, (tmp_path / "state").rglob("*")):
        assert b"hunter2" not in path.read_bytes()
        assert b"aHVudGVyMi" not in path.read_bytes()


def test_only_its_owner_reads_the_store(tmp_path: Path) -> None:
    with Store() as store:
        new_run(store)
        store.runs()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert {mode & 0o077 for mode in modes.values()} == {0}


def test_the_constructor_neither_opens_nor_imports_anything(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom fleet.store import Store\nstore = Store()\nassert 'sqlalchemy' not in sys.modules\n"
        "store.close()\nassert 'sqlalchemy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not (tmp_path / "state").exists()


WRITER = """
import sys
from fleet.core.events import Event
from fleet.store import Store
run = sys.argv[1]
with Store() as store:
    store.create_run(run, playbook="p", inventory="i", operator="o", controller="c", hosts=["a"])
    for seq in range(1, 201):
        store.append(Event(run, seq, "t", "a", "step_output", {"text": "x" * 200}))
        if seq % 50 == 0:
            store.put_host_state(run, "a", "applying", {"seq": seq})
"""


def test_four_processes_at_once_lose_nothing_even_when_the_file_is_new() -> None:
    runs = [f"{number:012x}" for number in range(4)]
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, run], stderr=subprocess.PIPE, text=True)
        for run in runs
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    with Store() as store:
        assert sorted(row.run for row in store.runs()) == runs
        for run in runs:
            assert [one.seq for one in store.events(run)] == list(range(1, 201))
            assert len(store.transitions(run, "a")) == 4


def test_many_threads_share_one_store() -> None:
    with Store() as store:
        new_run(store)

        def work(host: str) -> None:
            for state in ("connecting", APPLYING, "converged"):
                store.put_host_state(RUN, host, state)

        threads = [threading.Thread(target=work, args=(f"gpu{number:02}",)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.state for row in store.hosts(RUN)] == ["converged"] * 20


def test_a_bad_write_takes_no_other_with_it_and_its_error_surfaces() -> None:
    store = Store()
    for seq in (1, 2, 2, 3):
        store.append(event(seq))
    with pytest.raises(StoreError, match="UNIQUE"):
        store.last_seq(RUN)
    assert [one.seq for one in store.events(RUN)] == [1, 2, 3]
    store.close()


def test_a_state_directory_that_cannot_be_made_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "file" / "state"))
    store = Store()
    store.append(event(1))
    with pytest.raises(StoreError, match="Not a directory") as caught:
        store.close()
    assert caught.value.remedy
    store.close()


def test_a_file_that_is_no_database_is_an_error_of_every_call(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "fleet.db").write_bytes(b"this is no database at all, " * 100)
    store = Store()
    for _ in range(2):
        with pytest.raises(StoreError, match="not a database"):
            store.put_host_state(RUN, "gpu01", APPLYING)
    store.close()


@pytest.mark.parametrize("url", ["nosuch://x/y", "postgresql+nodriver://u:secret@h/d", "not a url"])
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    store = Store(url)
    with pytest.raises(RefusedError) as caught:
        store.runs()
    assert "secret" not in str(caught.value)
    store.close()


def test_a_closed_store_says_so() -> None:
    store = Store()
    store.close()
    with pytest.raises(RuntimeError, match="closed"):
        store.append(event(1))


def test_close_ends_the_thread() -> None:
    with Store() as store:
        store.runs()
    assert not [thread for thread in threading.enumerate() if thread.name == "fleet-store"]


def test_baselines_are_kept_by_host_gpu_test_and_key_and_replaced() -> None:
    others = [
        baseline(host="gpu02"),
        baseline(gpu="GPU-1+GPU-2", test="nccl.all_reduce"),
        baseline(key="k2"),
        baseline(test="memory.triad"),
    ]
    with Store() as store:
        assert store.baseline("gpu01", "GPU-1", "memory.copy", "k1") is None
        store.save_baselines([])
        store.save_baselines([baseline(), *others, baseline(value=1.0)])
        store.save_baselines([baseline(value=2900.0, record={"driver": "590.1"})])
    with Store() as store:
        found = store.baseline("gpu01", "GPU-1", "memory.copy", "k1")
        assert found == baseline(value=2900.0, record={"driver": "590.1"})
        assert store.baselines("gpu02") == [baseline(host="gpu02")]
        places = [(one.host, one.gpu, one.test, one.key) for one in store.baselines()]
        assert places == sorted(places)
        assert len(places) == 5


def _restore(dump: Path, database: Path) -> None:
    database.parent.mkdir(mode=0o700, exist_ok=True)
    connection = sqlite3.connect(database)
    connection.executescript(dump.read_text(encoding="utf-8"))
    connection.close()


@pytest.mark.parametrize(
    "dump", sorted((Path(__file__).parent / "dumps").glob("v*.sql")), ids=lambda path: path.stem
)
def test_a_store_of_every_released_version_is_read_and_written(dump: Path, tmp_path: Path) -> None:
    _restore(dump, tmp_path / "state" / "fleet.db")
    with Store() as store:
        row = store.find_run("7f3a")
        assert (row.playbook, row.exit_code, row.counts) == ("provision", 5, {"converged": 1, "pending": 1})
        assert [host.state for host in store.hosts(row.run)] == ["converged", "pending"]
        assert store.touched_hosts(row.run) == ["gpu01"]
        assert [one.kind for one in store.events(row.run)] == ["run_started", "step_result", "run_ended"]
        assert store.report(row.run, "gpu01") == {"schema": "fleet.report/1", "status": "converged"}
        assert store.plans(row.run, "gpu01") == [{"segment": 1, "steps": []}]
        store.put_host_state(row.run, "gpu02", APPLYING)
        assert store.touched_hosts(row.run) == ["gpu01", "gpu02"]
        kept = store.baselines()
        assert kept == ([] if dump.stem == "v1" else [OLD_BASELINE])
        store.save_baselines([baseline(value=3000.5)])
        assert store.baseline("gpu01", "GPU-1", "memory.copy", "k1") == baseline(value=3000.5)
        assert store.inspections([DIGEST]) == ([] if dump.stem in ("v1", "v2") else [inspection()])
        store.save_inspections([inspection(reader=2)])
        assert store.inspections([DIGEST]) == [inspection(reader=2)]


def test_what_was_learnt_of_images_is_kept_by_digest_and_source() -> None:
    other = "sha256:" + "b" * 64
    rows = [
        inspection(),
        inspection(source="container_check", facts={"torch": "2.7.0"}),
        inspection(digest=other),
    ]
    with Store() as store:
        store.save_inspections(rows)
        store.save_inspections([inspection(facts={"cuda": None})])
    with Store() as store:
        assert store.inspections([DIGEST]) == [inspection(facts={"cuda": None}), rows[1]]
        assert [row.digest for row in store.inspections([other, DIGEST])] == [DIGEST, DIGEST, other]
        assert store.inspections([]) == []


def test_there_is_a_dump_of_every_version() -> None:
    from fleet.store.migrations import MIGRATIONS

    dumps = {path.stem for path in (Path(__file__).parent / "dumps").glob("v*.sql")}
    assert dumps == {f"v{version}" for version in range(1, len(MIGRATIONS) + 1)}


def test_a_store_of_a_newer_fleet_is_refused(tmp_path: Path) -> None:
    with Store() as store:
        store.runs()
    connection = sqlite3.connect(tmp_path / "state" / "fleet.db")
    connection.execute("INSERT INTO schema_version VALUES (99, 't')")
    connection.commit()
    connection.close()
    store = Store()
    with pytest.raises(RefusedError, match="version 99"):
        store.runs()
    store.close()


def test_a_migration_that_fails_half_way_leaves_the_version_as_it_was(tmp_path: Path) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import OperationalError

    from fleet.store.migrations import MIGRATIONS, migrate

    with Store() as store:
        new_run(store)
        store.runs()
    broken = (*MIGRATIONS, ("CREATE TABLE extra (x INTEGER)", "INSERT INTO nowhere VALUES (1)"))
    whole = (*MIGRATIONS, ("ALTER TABLE runs ADD COLUMN site TEXT",))
    engine = create_engine(f"sqlite:///{tmp_path / 'state' / 'fleet.db'}")

    def tables() -> set[str]:
        with engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {row[0] for row in found}

    def lifted(migrations: tuple[tuple[str, ...], ...]) -> int:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            had = migrate(connection, migrations)
            connection.commit()
            return had

    before = tables()
    with pytest.raises(OperationalError):
        lifted(broken)
    assert tables() == before
    assert lifted(whole) == len(MIGRATIONS)
    assert lifted(whole) == len(whole)
    engine.dispose()


def test_the_tables_are_what_the_migrations_make(tmp_path: Path) -> None:
    from fleet.store.tables import METADATA

    with Store() as store:
        store.runs()
    connection = sqlite3.connect(tmp_path / "state" / "fleet.db")
    for table in METADATA.tables.values():
        made = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
        assert made == [column.name for column in table.columns]
    connection.close()


def test_a_postgresql_store_does_the_same(postgresql_url: Callable[[], str]) -> None:
    with Store(postgresql_url()) as store:
        new_run(store)
        store.append(event(1, text="\x00 \udc80"))
        store.append(event(2, "step_result", step="1.a.b", task="first", status="ok"))
        for state in ("connecting", APPLYING):
            store.put_host_state(RUN, "gpu01", state)
        store.put_report(RUN, "gpu01", {"a": 1})
        store.put_report(RUN, "gpu01", {"a": 2})
        store.save_baselines([baseline(), baseline(value=2.5)])
        assert store.baselines() == [baseline(value=2.5)]
        store.save_plan(RUN, "gpu01", 1, {"segment": 1}, "a" * 64)
        store.append(event(3, "run_ended", None, exit_code=0, duration_s=1.5, counts={"converged": 1}))
        assert store.events(RUN)[0].data == {"text": "\x00 \udc80"}
        assert store.touched_hosts(RUN) == ["gpu01"]
        assert store.hosts(RUN)[0].last_step == "first"
        assert store.report(RUN, "gpu01") == {"a": 2}
        assert store.find_run(RUN[:4]).counts == {"converged": 1}
        new_run(store)
        with pytest.raises(StoreError):
            store.runs()
        assert store.last_seq(RUN) == 3
