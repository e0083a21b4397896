"""``fleet runs``, ``fleet report`` and ``fleet schema`` over a store and files made here."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleet.cli import main
from fleet.core.events import Event
from fleet.core.schema import names
from fleet.store import APPLYING, Store

RUN = "7f3a12c4d5e6"
STEP = {
    "id": "1.docker_engine.packages",
    "task": "docker: install",
    "segment": 1,
    "reason": None,
    "diff": None,
}
REPORT = {
    "schema": "fleet.report/1",
    "run": RUN,
    "host": "gpu01",
    "simulated": True,
    "check": False,
    "status": "failed",
    "reason": "no space",
    "remedy": "free 4 GB on /var",
    "started_at": "2026-11-30T14:00:00.000Z",
    "ended_at": "2026-11-30T14:01:00.000Z",
    "counts": {"changed": 1, "failed": 1},
    "steps": [
        {**STEP, "status": "changed", "duration_s": 61.0},
        {**STEP, "status": "failed", "duration_s": 0.1, "reason": "no space"},
    ],
    "findings": [],
    "facts": None,
    "fleet_version": "0.1.0",
    "controller": "desk",
}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def history() -> None:
    with Store() as store:
        hosts = ["gpu01", "gpu02", "gpu03"]
        names = {"inventory": "lab.yaml", "operator": "anna", "controller": "desk", "hosts": hosts}
        store.create_run(RUN, playbook="provision", **names)  # type: ignore[arg-type]
        store.put_host_state(RUN, "gpu01", APPLYING)
        started = {"step": STEP["id"], "task": STEP["task"], "index": 2, "total": 9}
        store.append(Event(RUN, 1, "2026-11-30T14:00:30.000Z", "gpu01", "step_started", started))
        store.put_host_state(RUN, "gpu02", "unreachable", {"reason": "no answer"})
        store.put_report(RUN, "gpu01", REPORT)


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_without_runs_it_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "runs") == "no runs yet: fleet provision INVENTORY starts one\n"
    assert output(capsys, "runs", "--json") == "[]\n"


@pytest.mark.usefixtures("history")
def test_runs_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = output(capsys, "runs").splitlines()
    words = line.split()
    assert (words[0], words[3:]) == (RUN, ["provision", "lab.yaml", "open", "3", "hosts"])


@pytest.mark.usefixtures("history")
def test_an_open_run_shows_every_host_and_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    head, *hosts = output(capsys, "runs", "show", "7f3a").splitlines()
    assert head.startswith(f"run {RUN} · provision · lab.yaml · 3 hosts · ")
    assert head.endswith("by anna on desk · open; go on: fleet resume 7f3a12")
    assert hosts == [
        "gpu01  applying       3/9 docker: install begun",
        "gpu02  unreachable    no answer",
        "gpu03  nothing heard",
    ]


@pytest.mark.usefixtures("history")
def test_an_ended_run_shows_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        end = {"exit_code": 3, "duration_s": 151.2, "counts": {"converged": 2, "unreachable": 1}}
        store.append(Event(RUN, 2, "2026-11-30T14:02:31.000Z", None, "run_ended", end))
    assert output(capsys, "runs", "show", "last").splitlines()[0].endswith("2m31s · exit 3")
    assert "exit 3  2 converged · 1 unreachable" in output(capsys, "runs")
    (run,) = json.loads(output(capsys, "runs", "--json"))
    assert (run["run"], run["exit_code"], run["counts"]) == (RUN, 3, {"converged": 2, "unreachable": 1})


@pytest.mark.usefixtures("history")
def test_a_run_as_json_has_its_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(output(capsys, "runs", "show", "last", "--json"))
    states = {host["host"]: (host["state"], host["touched"]) for host in document["host_states"]}
    assert states == {"gpu01": ("applying", True), "gpu02": ("unreachable", False)}


@pytest.mark.usefixtures("history")
def test_reports_of_a_run_are_one_line_each_and_mark_simulated_hardware(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = output(capsys, "report", "last")
    assert shown == "gpu01  failed  simulated hardware  1 changed · 1 failed  no space\n"


@pytest.mark.usefixtures("history")
def test_the_report_of_a_host_lists_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "report", "last", "gpu01").splitlines() == [
        f"gpu01  failed  run {RUN}  2026-11-30T14:01:00.000Z  simulated hardware",
        "  no space",
        "  free 4 GB on /var",
        "  changed            docker: install (packages)  1m01s",
        "  failed             docker: install (packages)  no space",
    ]


@pytest.mark.usefixtures("history")
def test_the_report_as_json_is_the_document_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(output(capsys, "report", RUN, "gpu01", "--json")) == REPORT
    assert json.loads(output(capsys, "report", RUN, "--json")) == [REPORT]


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "last", "gpu1"], f"run {RUN} has no host gpu1; did you mean gpu01?"),
        (["report", "last", "gpu02"], f"run {RUN} has no report of gpu02"),
        (["report", "0000"], "there is no run 0000"),
        (["runs", "show", "7f"], "run id '7f' is too short"),
    ],
)
def test_what_is_not_there_is_bad_input(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = output(capsys, *words, code=2).splitlines()
    assert lines[0].startswith(message)
    assert lines[-1] == "1 problem; nothing was touched. exit 2"


def test_schemas_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [line.split()[0] for line in output(capsys, "schema", "list").splitlines()]
    assert {"fleet.event/1", "fleet.report/1", "fleet.run/1"} <= set(listed)
    assert [one["name"] for one in json.loads(output(capsys, "schema", "list", "--json"))] == names()
    for name in ("report", "fleet.report/1"):
        assert json.loads(output(capsys, "schema", "show", name))["$id"].endswith("report.schema.json")
    assert "did you mean report?" in output(capsys, "schema", "show", "repotr", code=2)


def test_a_valid_file_is_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpu01.json"
    file.write_text(json.dumps(REPORT))
    assert output(capsys, "schema", "check", str(file)) == f"{file}: valid by fleet.report/1\n"


def test_a_file_that_does_not_fit_names_line_column_and_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpu01.json"
    file.write_text(json.dumps({**REPORT, "statsu": 1, "counts": {"ok": "many"}}, indent=2))
    lines = file.read_text().splitlines()
    places = [next(n for n, line in enumerate(lines, 1) if word in line) for word in ('"many"', '"statsu"')]
    counts, unknown, last = output(capsys, "schema", "check", str(file), code=2).splitlines()
    assert counts.startswith(f'{file}:{places[0]}:11: $.counts.ok: must be integer, not "many"')
    assert unknown == f"{file}:{places[1]}:3:  $.statsu: is not known here; did you mean status?"
    assert last == "2 problems; nothing was touched. exit 2"


def test_a_yaml_file_is_checked_alike_and_dates_stay_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "event.yaml"
    file.write_text(
        "run: 7f3a12c4d5e6\nseq: 0\nat: 2026-11-30T14:00:00Z\nhost: gpu01\nkind: host_rebooting\ndata: {}\n"
    )
    shown = output(capsys, "schema", "check", "--schema", "event", str(file), code=2)
    assert shown.splitlines()[0] == f"{file}:2:6: $.seq: must be at least 1, not 0"


def test_an_inventory_with_secrets_can_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_password: !secret env PASSWORD, note: !vault a}}}\n")
    shown = output(capsys, "schema", "check", "--schema", "inventory", str(file))
    assert shown == f"{file}: valid by fleet.inventory/1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": ', "-:1:12: not JSON: Expecting value"),
        ('{"tflops": NaN}', "-:1:12: not JSON: NaN is not a number of JSON"),
        ('{"note": "NaN",\n "max": 1e999}', "-:2:9: not JSON: 1e999 is not a number of JSON"),
        ("a: [", "not YAML: "),
        ("a: \x07", "not YAML: "),
        ("3", "the document does not say which schema it follows"),
        ('{"schema": "fleet.report/9"}', "the document is fleet.report/9; this fleet knows fleet.report/1"),
        ("", "the document does not say which schema it follows"),
    ],
)
def test_a_file_that_is_no_document_is_bad_input(
    text: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert message in output(capsys, "schema", "check", "-", code=2)


def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9")
    assert "is not UTF-8" in output(capsys, "schema", "check", str(tmp_path / "latin"), code=2)
    assert "No such file" in output(capsys, "schema", "check", str(tmp_path / "none"), code=2)
