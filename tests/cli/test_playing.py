"""What provision, run, resume, exec and unlock share: prompts, where libraries' words go, Ctrl-C's."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.options import Session
from fleet.cli.playing import _interrupts, _libraries_logged, _teller, load_options
from fleet.core.errors import InputError
from fleet.core.log import LogFile
from fleet.report.live import LiveConsole
from fleet.report.style import Output
from fleet.run.control import Control

STOPPING = "stopping at the next step edge; Ctrl-C again leaves the hosts to go on alone"


def options(**changes: Any) -> Any:
    given = {
        "ask_become_pass": False, "vault_password_file": None, "accept_new": False, "ssh_config": None, **changes
    }  # fmt: skip
    return load_options(Session(), given)


def test_the_ssh_config_reaches_the_inventory() -> None:
    assert options(ssh_config=Path("other")).ssh_config == Path("other")
    assert options().ssh_config is None


def test_a_password_that_cannot_be_asked_for_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_terminal(path: Any, *_: Any) -> int:
        raise OSError(6, "No such device or address", path)

    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr(os, "open", no_terminal)
    with pytest.raises(InputError, match="no terminal to ask for the sudo password") as caught:
        options(ask_become_pass=True)
    assert "ansible_become_password" in str(caught.value.remedy)


def test_warnings_of_libraries_go_to_the_log_while_a_run_goes_on(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "fleet.log")
    with _libraries_logged(log):
        logging.getLogger("paramiko.transport").warning("odd packet")
        logging.getLogger("fleet.transport.ssh").error("cut")
    logging.getLogger("paramiko.transport").warning("later")
    log.close()
    lines = (tmp_path / "fleet.log").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "warning paramiko.transport: odd packet",
        "error fleet.transport.ssh: cut",
    ]


def interrupted(consoles: list[Any]) -> Control:
    control = Control()
    with _interrupts(control, _teller(consoles)):
        os.kill(os.getpid(), signal.SIGINT)
        signal.getsignal(signal.SIGINT)  # handlers run between bytecodes of the main thread
    return control


def test_ctrl_c_speaks_on_standard_error_where_there_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert interrupted([]).cancelled
    assert capsys.readouterr() == ("", STOPPING + "\n")


class Table(LiveConsole):
    """A live console whose table is on the screen."""

    def __init__(self) -> None:
        super().__init__(Output(io.StringIO(), colour=False))
        self.said: list[str] = []

    def notice(self, words: str) -> bool:
        self.said.append(words)
        return True


def test_ctrl_c_speaks_under_the_table_and_not_across_it(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    assert interrupted([table]).cancelled
    assert table.said == [STOPPING]
    assert capsys.readouterr() == ("", "")
