"""What a step says reaches the journal soon, in few records, and without secrets across the pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.journal import Journal, read_journal
from fleet.agent.reporter import OUTPUT_LIMIT, PROGRESS_LIMIT, StepReporter
from fleet.agent.scrub import MASK, Scrubber


class Scene:
    """A reporter with a clock that stands still until it is moved."""

    def __init__(self, folder: Path, *secrets: str) -> None:
        self.path = str(folder / "journal")
        self.now = 100.0
        journal = Journal(self.path, clock=lambda: 0.0, clean=lambda fields: fields)
        self.reporter = StepReporter(journal, Scrubber(secrets), "s", lambda: self.now)

    def records(self, kind: str = "output") -> list[Any]:
        return [record["text"] for record in read_journal(self.path) if record["kind"] == kind]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, "hunter2hunter2")


def test_the_first_output_is_written_at_once_and_a_flood_is_gathered(scene: Scene) -> None:
    for _ in range(1000):
        scene.reporter.output("x")
    assert scene.records() == ["x"]
    scene.reporter.finish()
    assert scene.records() == ["x", "x" * 999]


def test_what_was_gathered_is_written_when_its_time_has_come(scene: Scene) -> None:
    scene.reporter.output("#")
    scene.reporter.output("!")
    scene.reporter.tick()
    assert scene.records() == ["#"]
    scene.now += 1
    scene.reporter.tick()
    assert scene.records() == ["#", "!"]


def test_a_secret_in_two_pieces_or_two_streams_is_masked(scene: Scene) -> None:
    scene.reporter.output("password: hunter2")
    scene.reporter.output("other", stream="stderr")
    scene.reporter.output("hunter2\n")
    scene.reporter.finish()
    text = "".join(scene.records())
    assert "hunter2hunter2" not in text
    assert MASK in text


def test_progress_comes_after_the_output_before_it_and_is_limited(scene: Scene) -> None:
    scene.reporter.output("#")
    scene.reporter.output("!")
    scene.reporter.progress("half")
    assert [record["kind"] for record in read_journal(scene.path)] == ["output", "output", "progress"]
    for _ in range(PROGRESS_LIMIT + 10):
        scene.reporter.progress("more")
    assert len(scene.records("progress")) == PROGRESS_LIMIT


def test_beyond_the_limit_output_is_counted_only(scene: Scene) -> None:
    scene.reporter.output("x" * (OUTPUT_LIMIT + 5))
    scene.reporter.finish()
    assert scene.records()[-1] == "(5 more characters of output were not kept)\n"
