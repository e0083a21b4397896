"""What a run looks like while it goes on and at its end, word for word."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import story

import fleet
from fleet.agent.files import content_difference
from fleet.core.documents import json_text
from fleet.core.events import Event
from fleet.core.schema import validate
from fleet.core.secret import Scrubber, Secret
from fleet.report.console import JsonConsole, LogSubscriber, console_for
from fleet.report.diff import diff_lines
from fleet.report.live import LiveConsole, draw, row, rows
from fleet.report.narrate import Verbosity
from fleet.report.plain import PlainConsole
from fleet.report.style import Output, text_of
from fleet.report.view import RunView

GOLDEN = Path(__file__).parent / "golden"


def plain(events: list[Event], *, level: int = 0, diff: bool = False, width: int = 100) -> str:
    stream = io.StringIO()
    console = PlainConsole(
        Output(stream, colour=False), verbosity=Verbosity(level, diff), width=width, log="~/fleet.log"
    )
    for event in events:
        console.handle(event)
    console.close()
    return stream.getvalue().replace(f"fleet {fleet.__version__}", "fleet VERSION")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mixed", plain(story.mixed())),
        ("mixed_verbose_narrow", plain(story.mixed(), level=2, diff=True, width=60)),
        ("mixed_wide", plain(story.mixed(), width=200)),
        ("mixed_quiet", plain(story.mixed(), level=-1)),
        ("second_run", plain(story.second_run())),
        ("second_run_verbose", plain(story.second_run(2), level=1)),
        ("check", plain(story.checked(), diff=True)),
        ("same_cause", plain(story.same_cause(), level=-1)),
        ("outputs", plain(story.outputs(), level=2)),
        ("blocked", plain(story.blocked())),
        ("long_step", plain(story.outputs())),
        ("controller", plain(story.said_by_the_controller())),
        ("controller_check", plain(story.said_by_the_controller(check=True), level=1)),
    ],
)
def test_the_plain_console_word_for_word(name: str, shown: str) -> None:
    assert shown == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_a_line_is_never_wider_than_asked_except_for_commands() -> None:
    recap = plain(story.mixed(), width=60).split("\n\n", 1)[1]
    for line in recap.splitlines():
        assert len(line) <= 60 or re.search(r"go on:|remedy:|·", line), line


def test_a_second_run_of_200_hosts_is_two_lines() -> None:
    assert plain(story.second_run(200)).splitlines()[1:] == ["200 converged · changed=0 · 1.1 s"]


def test_hosts_that_fail_for_one_cause_share_an_entry_with_their_names_folded() -> None:
    lines = [line.strip() for line in plain(story.same_cause(), level=-1).splitlines()]
    assert "200 hosts  unreachable  no answer from ADDRESS:22 in 15 s" in lines
    assert "on gpu[001:200]" in lines
    assert len(lines) < 8


def test_a_limit_in_the_remedy_of_a_group_names_every_host_of_it() -> None:
    names = [f"gpu{number}" for number in range(1, 10)]
    tale = story.Story(*names)
    for name in names:
        tale.ended(
            name, "pending", reason="busy", remedy=f"fleet provision lab.yaml --limit {name} --disrupt"
        )
    shown = plain(tale.over(5, 1.0, pending=9))
    assert f"go on: fleet provision lab.yaml --limit {','.join(names)} --disrupt" in shown


def test_a_step_that_waits_for_leave_is_shown_with_its_place_and_the_way_on() -> None:
    tale = story.Story("gpu01")
    tale.plan("gpu01", story.PACKAGES, story.IMAGE)
    tale.step("gpu01", *story.IMAGE, "pending", 0.2, "2/2", reason="pid 4711 uses the GPU")
    tale.ended(
        "gpu01", "pending", reason="pid 4711 uses the GPU", remedy="fleet provision lab.yaml --disrupt"
    )
    shown = plain(tale.over(5, 1.0, pending=1), width=140)
    assert re.search(r"gpu01 +pending +image: pull pytorch-cuda.*: pid 4711 uses the GPU", shown)
    assert "at step 2/2: image: pull pytorch-cuda" in shown
    assert "go on: fleet provision lab.yaml --disrupt" in shown


def test_what_a_host_says_cannot_steer_the_terminal() -> None:
    tale = story.Story("gpu01")
    tale.plan("gpu01", story.PACKAGES)
    tale.add("gpu01", "step_started", step=story.PACKAGES[0], task="\x1b[2Jtask\u202e", index=1, total=1)
    tale.add("gpu01", "step_output", step=story.PACKAGES[0], text="\x1b]0;owned\x07\rgone\x9b31m")
    tale.ended("gpu01", "failed", reason="\x1b[31mred\r\nand two lines \udc80")
    shown = plain(tale.over(1, 1.0, failed=1), level=2)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown)


def test_simulated_hardware_is_marked() -> None:
    tale = story.Story("gpu01")
    tale.add("gpu01", "host_facts", facts={"simulated": True})
    tale.ended("gpu01", "converged", counts={"changed": 1})
    assert re.search(r"gpu01 +converged +1 changed +simulated", plain(tale.over(0, 1.0, converged=1)))


def test_without_a_terminal_rich_is_not_imported() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import story\n"
        "from fleet.report.console import console_for\n"
        "console = console_for(sys.stdout)\n"
        "for event in story.mixed(): console.handle(event)\n"
        "console.close()\n"
        "assert 'rich' not in sys.modules and 'sqlalchemy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "fleet resume 7f3a12" in done.stdout


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_no_color_wins_over_force_color_wins_over_the_stream(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    console = console_for(stream)
    for event in story.mixed():
        console.handle(event)
    console.close()
    assert ("\x1b[32mconverged" in stream.getvalue()) is coloured
    assert ("\x1b" in stream.getvalue()) is coloured


def test_colour_changes_no_word() -> None:
    stream = io.StringIO()
    console = PlainConsole(Output(stream, colour=True), log="~/fleet.log")
    for event in story.mixed():
        console.handle(event)
    console.close()
    words = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert words.replace(fleet.__version__, "VERSION") == plain(story.mixed())


def test_a_reader_that_goes_does_not_stop_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    console = PlainConsole(Output(Gone(), colour=False))
    for event in story.mixed():
        console.handle(event)
    console.close()
    assert console.view.exit_code == 1


def test_a_stream_that_cannot_spell_a_character_gets_a_question_mark() -> None:
    raw = io.BytesIO()
    console = PlainConsole(Output(io.TextIOWrapper(raw, encoding="ascii"), colour=False))
    for event in story.second_run():
        console.handle(event)
    console.close()
    assert raw.getvalue().decode("ascii").splitlines()[-1] == "4 converged ? changed=0 ? 1.1 s"


@pytest.mark.parametrize(
    "events",
    [story.mixed(), story.second_run(), story.checked(), story.same_cause(3), story.said_by_the_controller()],
)
def test_json_is_one_valid_document_and_nothing_else(events: list[Event]) -> None:
    stream = io.StringIO()
    console = console_for(stream, json=True)
    for event in events:
        console.handle(event)
    assert stream.getvalue() == ""
    console.close()
    document = json.loads(stream.getvalue())
    assert validate(document, "run") == []
    assert document["counts"] == dict(events[-1].data["counts"])


CHANGED = content_difference("/etc/motd", b"hello\nold\n", b"hello\nnew\n", show=True)
SECRET = content_difference("/etc/token", b"old", b"new", show=False)
UNIFIED = [
    "        --- /etc/motd (now)",
    "        +++ /etc/motd (wanted)",
    "        @@ -1,2 +1,2 @@",
    "         hello",
    "        -old",
    "        +new",
    "        content: ******** → ********",
]


@pytest.mark.parametrize("check", [True, False])
def test_contents_of_files_are_shown_as_the_host_compared_them(check: bool) -> None:
    tale = story.Story("gpu01", check=check, diff=True)
    tale.plan("gpu01", ("1.copy.file", "Greeting"))
    if check:
        tale.check("gpu01", "1.copy.file", "would_change", diff=[CHANGED, SECRET])
    else:
        tale.step("gpu01", "1.copy.file", "Greeting", "changed", 0.1, "1/1", diff=[CHANGED, SECRET])
    assert all(validate(event.as_json(), "event") == [] for event in tale.events)
    lines = plain(tale.events, diff=True).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("gpu01  "))
    assert lines[first].split() == ["gpu01", *(["would", "change"] if check else ["changed"]), "Greeting"]
    assert lines[first + 1 : first + 8] == UNIFIED
    assert not any("sha256" in line for line in lines)


def test_contents_that_are_no_text_are_shown_by_their_summaries() -> None:
    lines = diff_lines([content_difference("/x", None, b"\0", show=True)])
    assert [text_of(line) for line in lines] == ["        content: (none) → 1 bytes, sha256 6e340b9cffb37a98"]


def test_json_lists_what_is_known_only_after_apply() -> None:
    console = JsonConsole(Output(stream := io.StringIO(), colour=False))
    for event in story.checked():
        console.handle(event)
    console.close()
    host = json.loads(stream.getvalue())["hosts"]["gpu01"]
    assert host["known_after_apply"] == [
        {
            "step": "2.image.pull",
            "task": "image: pull pytorch-cuda",
            "reason": "docker is installed by step 1",
        }
    ]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_secret_in_an_event_is_scrubbed_by_the_console(as_json: bool) -> None:
    scrub = Scrubber([Secret('hunter"2', "sudo password")])
    console = console_for(stream := io.StringIO(), json=as_json, scrub=scrub)
    tale = story.Story("gpu01")
    tale.ended("gpu01", "failed", reason='said hunter"2 aloud')
    for event in tale.over(1, 1.0, failed=1):
        console.handle(event)
    console.close()
    assert "hunter" not in stream.getvalue()
    assert "said ******** aloud" in stream.getvalue()


def test_every_event_of_the_stories_follows_the_event_schema() -> None:
    events = [*story.mixed(), *story.second_run(), *story.checked(), *story.same_cause(2), *story.outputs()]
    events += [*story.said_by_the_controller(), *story.said_by_the_controller(check=True)]
    assert {str(fault) for event in events for fault in validate(event.as_json(), "event")} == set()


def seen(events: list[Event]) -> RunView:
    view = RunView()
    for event in events:
        view.handle(event)
    return view


def test_a_live_row_says_what_is_going_on_and_since_when() -> None:
    view = seen(story.outputs()[:-2])
    one = row(view.hosts["gpu01"], "2026-11-30T14:02:00.000Z")
    assert (one.done, one.total) == (0, 2)
    assert one.words == "docker: install packages: 3 of 11 packages"
    assert one.elapsed == "2m00s"


def test_a_live_row_of_an_ended_host_says_how_and_stands_still() -> None:
    view = seen(story.mixed())
    done = row(view.hosts["gpu01"], "2026-11-30T15:00:00Z")
    assert (done.done, done.total, done.words, done.elapsed) == (2, 2, "converged", "1m02s")
    assert row(view.hosts["gpu03"], "").words == "failed: manifest unknown: sha256:abcd"


def test_when_hosts_do_not_fit_the_screen_trouble_and_work_are_shown_and_the_rest_counted() -> None:
    names = [f"gpu{number:03}" for number in range(100)]
    tale = story.Story(*names)
    for name in names[:50]:
        tale.ended(name, "converged")
    for name in names[50:53]:
        tale.ended(name, "failed", reason="x")
    for name in names[53:60]:
        tale.plan(name, story.PACKAGES)
    shown, others = rows(seen(tale.events), 21)
    assert [host.name for host in shown] == names[50:60]
    assert others == "and 90 hosts: 50 converged · 40 running"


def test_rows_never_exceed_the_height() -> None:
    names = [f"gpu{number:03}" for number in range(100)]
    tale = story.Story(*names)
    for name in names[:60]:
        tale.ended(name, "failed", reason="x")
    for name in names[60:]:
        tale.plan(name, story.PACKAGES)
    shown, _ = rows(seen(tale.events), 20)
    assert len(shown) == 19
    assert {host.status for host in shown} == {"failed", "running"}


@pytest.mark.parametrize("width", [40, 60, 200])
def test_the_live_table_fits_its_width_and_reads_without_colour(width: int) -> None:
    view = seen(story.mixed()[:-1])
    lines = [text_of(one) for one in draw(view, "2026-11-30T14:01:00Z", width, 30)]
    assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines] == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert re.search(r"━━━━━━━━ +2/2  conver", lines[0])
    assert re.search(r"  ────────.* +0/2  failed", lines[2])  # what failed is not done


@pytest.mark.parametrize("width", [60, 200])
def test_the_live_console_draws_every_host_and_ends_with_the_recap(width: int) -> None:
    stream = io.StringIO()
    console = LiveConsole(
        Output(stream, colour=False), clock=lambda: "2026-11-30T14:01:00Z", width=width, log="~/fleet.log"
    )
    events = story.mixed()
    for event in events[:-1]:
        console.handle(event)
    assert console._live is not None
    console._live.refresh()
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    for name, words in (("gpu01", "converged"), ("gpu03", "failed: manifest")):
        assert re.search(rf"{name} .*{words}", drawn)
    console.handle(events[-1])
    console.close()
    recap = plain(story.mixed(), width=width).split("\n\n", 1)[1]
    assert stream.getvalue().endswith(recap)


def test_a_notice_stands_under_the_table_from_the_next_redraw() -> None:
    stream = io.StringIO()
    console = LiveConsole(Output(stream, colour=False), clock=lambda: "2026-11-30T14:01:00.000Z", width=80)
    assert not console.notice("nobody reads this yet")
    events = story.mixed()
    for event in events[:-3]:
        console.handle(event)
    assert console.notice("stopping at the next step edge")
    assert console._live is not None
    console._live.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert shown.rstrip().endswith("stopping at the next step edge")
    for event in events[-3:]:
        console.handle(event)
    console.close()
    assert not console.notice("too late")


def test_steps_of_one_task_are_told_apart() -> None:
    engine = [("2.docker_engine.engine", "Docker Engine"), ("2.docker_engine.service", "Docker Engine")]
    one = story.Story("gpu01", check=True)
    one.plan("gpu01", *engine, ("3.copy.file", "A file"), docker=None)
    for step in ("2.docker_engine.engine", "2.docker_engine.service", "3.copy.file"):
        one.check("gpu01", step, "would_change")
    lines = plain(one.events).splitlines()[1:4]
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "Docker Engine (engine)",
        "Docker Engine (service)",
        "A file",
    ]


def test_the_log_keeps_the_course_but_not_the_bulk(tmp_path: Path) -> None:
    from fleet.core.log import LogFile

    log = LogFile(tmp_path / "fleet.log")
    subscriber = LogSubscriber(log)
    for event in story.outputs():
        subscriber.handle(event)
    log.close()
    text = (tmp_path / "fleet.log").read_text()
    assert "host_ended run=7f3a12c4d5e6 host=gpu01 status=converged" in text
    assert "Unpacking" not in text


def test_json_text_stays_json_when_a_secret_is_a_json_word() -> None:
    scrub = Scrubber([Secret("null", "a"), Secret("true", "b")])
    document = {"null": None, "b": True, "c": "is null"}
    assert json.loads(json_text(document, scrub)) == {"********": None, "b": True, "c": "is ********"}
