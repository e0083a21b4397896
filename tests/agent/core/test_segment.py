"""A segment without its process: disks that fill up, and results too large to keep."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.history import History, Work
from fleet.agent.journal import Journal, read_journal
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.resources.base import Resource
from fleet.agent.scrub import Scrubber
from fleet.agent.segment import TEXT_LIMIT, NotJournalled, Segment
from fleet.agent.step_host import StepHost
from tests.agent.core.harness import plan, step


class Light(Resource):
    """Off until applied; ``extras`` are what its apply returns."""

    kind = "light"
    on = False

    def __init__(self, extras: Any = None) -> None:
        self.extras = extras

    def read(self, host: Any, args: Any) -> Any:
        return {"on": self.on}

    def diff(self, state: Any, args: Any) -> Any:
        return [] if state["on"] else [{"path": "on", "before": False, "after": True}]

    def apply(self, host: Any, args: Any, differences: Any, report: Any) -> Any:
        report.output("switching\n")
        self.on = True
        return self.extras


class FullDisk(Journal):
    """Refuses records of one kind; results only when they carry texts."""

    refuses = ""

    def append(self, kind: str, **fields: Any) -> Any:
        if kind == self.refuses and (kind != "result" or "stdout" in fields):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().append(kind, **fields)


def run(folder: Path, light: Light, refuses: str) -> Any:
    paths = Paths(str(folder / "state"), str(folder / "run"))
    journal = FullDisk(paths.journal("run-1"), clock=lambda: 0.0, clean=Scrubber().value)
    journal.refuses = refuses
    segment = Segment(
        plan(step("a", "light")),  # type: ignore[arg-type]
        Work(0, "hash"),
        History(),
        journal=journal,
        host=StepHost(root=str(folder), state_dir=paths.state, runtime_dir=paths.runtime),
        scrubber=Scrubber(),
        load=lambda kind: light,
        pending=Pending(paths),
        boot_id="b",
    )
    return segment, lambda: read_journal(paths.journal("run-1"))


def test_where_the_intent_cannot_be_written_nothing_is_applied(tmp_path: Path) -> None:
    light = Light()
    segment, journal = run(tmp_path, light, "intent")
    with pytest.raises(NotJournalled, match=r"No space left.*free some space"):
        segment.run()
    assert light.on is False
    assert journal() == []


def test_output_that_cannot_be_written_fails_no_step(tmp_path: Path) -> None:
    light = Light()
    segment, journal = run(tmp_path, light, "output")
    assert segment.run() == ("done", None)
    assert [record["kind"] for record in journal()] == ["intent", "result"]


def test_a_result_too_large_for_the_disk_is_kept_without_its_texts(tmp_path: Path) -> None:
    light = Light({"exit_code": 0, "stdout": "long"})
    segment, journal = run(tmp_path, light, "result")
    assert segment.run() == ("done", None)
    result = journal()[-1]
    assert (result["status"], result["exit_code"]) == ("changed", 0)
    assert "stdout" not in result


class Orderly(Light):
    """Is overdue while it puts things in order, and again when it has."""

    ordered = False

    def apply(self, host: Any, args: Any, differences: Any, report: Any) -> Any:
        host.shielded = True
        signal.raise_signal(signal.SIGALRM)
        self.ordered = True
        host.shielded = False
        signal.raise_signal(signal.SIGALRM)
        self.on = True


def test_a_deadline_does_not_break_off_a_resource_that_puts_things_in_order(tmp_path: Path) -> None:
    light = Orderly()
    segment, journal = run(tmp_path, light, "")
    assert segment.run()[0] == "failed"
    assert light.ordered
    assert not light.on
    assert "within its deadline" in journal()[-1]["reason"]


def test_long_texts_keep_their_ends_and_an_oversized_rest_is_named(tmp_path: Path) -> None:
    light = Light({"stdout": "x" * TEXT_LIMIT + "end", "registered": ["y" * 5_000_000]})
    segment, journal = run(tmp_path, light, "")
    segment.run()
    result = journal()[-1]
    assert len(result["stdout"]) == TEXT_LIMIT
    assert result["stdout"].endswith("end")
    assert result["registered"] is None
    assert "characters" in result["registered_dropped"]
