"""The log file: private, scrubbed, one entry per write, rotated, and never in the way."""

from __future__ import annotations

import logging
import re
import stat
from pathlib import Path

import pytest

from fleet.core.log import LogFile, library_handler
from fleet.core.paths import shown, state_dir
from fleet.core.secret import Scrubber, Secret


def test_lines_carry_time_process_level_and_fields(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "fleet.log")
    log.info("connected", host="gpu01", words="two words", none="")
    log.close()
    line = (tmp_path / "fleet.log").read_text()
    assert re.fullmatch(r"\S+Z [0-9]+ info connected host=gpu01 words='two words' none=''\n", line)


def test_only_its_owner_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    log = LogFile()
    log.info("x")
    log.close()
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


def test_nothing_is_made_before_the_first_line(tmp_path: Path) -> None:
    LogFile(tmp_path / "a" / "fleet.log").close()
    assert list(tmp_path.iterdir()) == []


def test_secrets_and_control_characters_stay_out_even_of_tracebacks(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "fleet.log", Scrubber([Secret("hunter2!", "sudo password")]))
    try:
        raise ValueError("hunter2! \x1b[2J")
    except ValueError as error:
        log.traceback("bug", error)
    log.info("field", value="hunter2!")
    log.close()
    text = (tmp_path / "fleet.log").read_text()
    assert "hunter2" not in text
    assert "ValueError: ******** \\x1b[2J" in text
    assert "\x1b" not in text
    entries = [line for line in text.splitlines() if not line.startswith("    ")]
    assert len(entries) == 2, "a traceback is one entry with indented lines"


def test_it_rotates_and_keeps_three(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "fleet.log", limit=200)
    for number in range(40):
        log.info(f"entry {number:02} " + "x" * 60)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.log", "fleet.log.1", "fleet.log.2"]
    assert "entry 39" in (tmp_path / "fleet.log").read_text()
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())


def test_two_processes_do_not_rotate_each_others_new_file_away(tmp_path: Path) -> None:
    one, two = (LogFile(tmp_path / "fleet.log", limit=200) for _ in range(2))
    for log in (one, two):
        log.info("x" * 120)
    one.info("from one " + "x" * 100)
    two.info("from two")
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "from two" in texts["fleet.log"]
    assert "from one" in "".join(texts.values())
    one.close()
    two.close()


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = LogFile(tmp_path / "file" / "fleet.log")
    log.info("x")
    log.info("y")
    assert str(tmp_path) in str(log.broken)


def test_warnings_of_libraries_go_there(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "fleet.log")
    logger = logging.Logger("paramiko")
    logger.addHandler(library_handler(log))
    logger.warning("odd %s", "banner")
    logger.info("chatter")
    log.close()
    text = (tmp_path / "fleet.log").read_text()
    assert "warning paramiko: odd banner" in text
    assert "chatter" not in text


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FLEET_STATE_DIR": "/srv/fleet", "XDG_STATE_HOME": "/x"}, Path("/srv/fleet")),
        ({"XDG_STATE_HOME": "/x"}, Path("/x/fleet")),
        ({"XDG_STATE_HOME": "relative"}, Path.home() / ".local/state/fleet"),
        ({}, Path.home() / ".local/state/fleet"),
    ],
)
def test_the_state_directory(environment: dict[str, str], expected: Path) -> None:
    assert state_dir(environment) == expected


def test_paths_under_home_are_shown_with_a_tilde() -> None:
    assert shown(Path.home() / "x" / "fleet.log") == "~/x/fleet.log"
    assert shown(Path("/var/x")) == "/var/x"
