"""The report as the unit writes it: a process of its own, run from a bundle, by the agent's Python."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bundle import Bundles
from fleet.agent.paths import Paths
from fleet.agent.report import recorded_textfile
from fleet.core.schema import validate
from fleet.transport.bundle import Bundle
from tests.agent.core.harness import PYTHON

BUNDLE = Bundle.of_agent()
INSTALL = """\
import sys
sys.path.insert(0, sys.argv[1])
from fleet.agent.bundle import Bundles
from fleet.agent.paths import Paths
Bundles(Paths(sys.argv[2], "")).install(open(sys.argv[1], "rb").read())
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A host's state folder with the agent's bundle installed and current."""
    packed = tmp_path / "packed"
    packed.write_bytes(BUNDLE.data)
    made = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    # By the Python that runs it afterwards, as on a host: it compiles for itself.
    subprocess.run([PYTHON, "-S", "-E", "-c", INSTALL, str(packed), made.state], check=True)
    Bundles(made).make_current(BUNDLE.sha256)
    return made


def run(paths: Paths, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-S", "-E", "-m", "fleet.agent", "report", *options],
        cwd=f"{paths.bundles}/current",
        env={"PATH": os.environ["PATH"], "FLEET_AGENT_STATE_DIR": paths.state},
        capture_output=True,
        text=True,
        check=False,
    )


def written(paths: Paths, *options: str) -> dict[str, Any]:
    done = run(paths, "--output", f"{paths.state}/report.json", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found: dict[str, Any] = json.loads(Path(paths.state, "report.json").read_text())
    assert validate(found, "agent-report") == []
    return found


def test_it_says_which_bundle_wrote_it_and_is_roots_alone(paths: Paths) -> None:
    found = written(paths)
    assert found["bundle"] == BUNDLE.sha256
    assert found["textfile"] is None
    assert found["simulated"] is found["facts"]["simulated"]
    assert Path(paths.state, "report.json").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(paths.state)) == ["agent", "report.json"]


def test_nothing_is_written_into_the_bundle(paths: Paths) -> None:
    before = sorted(Path(paths.bundles).rglob("*"))
    written(paths)
    assert sorted(Path(paths.bundles).rglob("*")) == before


def test_without_an_output_it_is_printed(paths: Paths) -> None:
    done = run(paths)
    assert validate(json.loads(done.stdout), "agent-report") == []
    assert os.listdir(paths.state) == ["agent"]


def test_metrics_go_where_they_are_wanted_and_the_report_names_them(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    found = written(paths, "--textfile-directory", str(folder))
    assert found["textfile"] == recorded_textfile(paths.state) == f"{folder}/fleet.prom"
    assert f'bundle="{BUNDLE.sha256}"' in (folder / "fleet.prom").read_text()


def test_a_missing_directory_fails_by_name_and_the_report_is_there_all_the_same(
    paths: Paths, tmp_path: Path
) -> None:
    report = f"{paths.state}/report.json"
    done = run(paths, "--output", report, "--textfile-directory", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert done.stderr == f"cannot write {tmp_path}/nowhere/fleet.prom: No such file or directory\n"
    assert validate(json.loads(Path(report).read_text()), "agent-report") == []


@pytest.mark.parametrize("options", [("--output",), ("--port", "9"), ("--output", "a", "--output", "b")])
def test_options_that_are_none_are_answered_with_the_usage(paths: Paths, options: tuple[str, ...]) -> None:
    done = run(paths, *options)
    assert done.returncode == 64
    assert "usage: report" in done.stderr


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "[" * 100_000, '{"textfile": 3}', '{"textfile": null}', "\xff"]
)
def test_a_report_that_names_no_textfile_named_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content, encoding="latin-1")
    assert recorded_textfile(str(tmp_path)) is None
