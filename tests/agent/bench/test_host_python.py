"""One group with the host's own Python, as real processes: output kept, deadlines kept, no process left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.agent import process
from fleet.agent.bench.container import TOKEN, token_prefix
from fleet.agent.bench.ending import CANCELLED, DEADLINE, ENDED
from fleet.agent.bench.host import Processes, find, having
from fleet.agent.bench.output import Output
from fleet.agent.bench.source import Folders
from fleet.agent.host import Host
from fleet.agent.resources.base import StepFailed

from .doubles import result_line, uuid

GROUP = {"group": "burn", "gpu_uuids": [uuid(0)], "deadline_s": 60, "needs_shm_bytes": 0}
PRINTS = f"import sys\nsys.stdout.write({result_line('memory.copy', [uuid(0)])!r})\nsys.stdout.flush()\n"
# Ignores TERM, and so does its child, which has gone to a session of its own.
HANGS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("gpu01:7:9 [0] NCCL INFO waiting", flush=True)
if os.fork() == 0:
    os.setsid()
while True:
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TERM_GRACE_S", 0.3)


@pytest.fixture
def here(tmp_path: Path) -> Host:
    """This machine, with folders of the test's own."""
    return Host("/", state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "runtime"))


@pytest.fixture
def folders(here: Host) -> Iterator[Folders]:
    with Folders(here) as made:
        yield made


def run(
    host: Host, folders: Folders, program: str, deadline_s: float = 30.0
) -> tuple[Any, Output, Processes]:
    """The program in place of the torch side."""
    place = Path(folders.code) / "fleet/agent/bench/torch_side/__main__.py"
    place.write_text(program)
    processes, output = Processes(host, sys.executable, folders), Output(lambda text: None)
    return processes.run(GROUP, {"group": "burn"}, [], deadline_s, output), output, processes


def test_it_runs_and_its_results_are_read(here: Host, folders: Folders) -> None:
    ending, output, _ = run(here, folders, PRINTS + "import os; print(os.environ['FLEET_BENCH_LOCK'])")
    assert (ending.how, ending.code, ending.note) == (ENDED, 0, None)
    assert [one["test"] for one in output.results] == ["memory.copy"]
    assert output.lines == [folders.shared + "/lock"]


def test_what_ignores_sigterm_ends_at_the_deadline_and_its_output_is_kept(
    here: Host, folders: Folders
) -> None:
    ending, output, processes = run(here, folders, PRINTS + HANGS, deadline_s=2.0)
    assert ending.how == DEADLINE
    assert len(output.results) == 1
    assert output.last_words() == "gpu01:7:9 [0] NCCL INFO waiting"
    assert having(here, processes.token) == []
    assert ending.note == "1 process(es) that it left were ended"


def test_what_is_left_in_another_session_is_ended_after_a_good_end_too(here: Host, folders: Folders) -> None:
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"
    ending, _, processes = run(here, folders, program)
    assert (ending.how, ending.code) == (ENDED, 0)
    assert having(here, processes.token) == []


def test_a_cancelled_run_leaves_no_process(tmp_path: Path, folders: Folders) -> None:
    asked = iter([False] * 3)
    host = Host("/", state_dir=str(tmp_path / "state"), cancelled=lambda: next(asked, True))
    ending, _, processes = run(host, folders, HANGS)
    assert ending.how == CANCELLED
    assert having(host, processes.token) == []


def test_what_a_dead_worker_left_is_ended_first(here: Host, folders: Folders) -> None:
    import subprocess

    token = token_prefix(here) + "-of-an-earlier-worker"
    left = subprocess.Popen(["sleep", "60"], env={TOKEN: token, "PATH": os.environ["PATH"]})
    other = subprocess.Popen(["sleep", "60"], env={TOKEN: "another-agent", "PATH": os.environ["PATH"]})
    try:
        Processes(here, sys.executable, folders)
        assert left.wait(10) == -9
        assert other.poll() is None
    finally:
        for each in (left, other):
            each.kill()
            each.wait()


def test_the_python_that_has_torch_is_found_without_importing_it(here: Host, tmp_path: Path) -> None:
    answers = tmp_path / "python"
    answers.write_text("#!/bin/sh\necho 2.7.0+cu128\n")
    answers.chmod(0o755)
    assert find(here, str(answers)) == (str(answers), "2.7.0+cu128")
    answers.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(StepFailed, match="torch_missing: no Python of this host has torch"):
        find(here, str(answers))
