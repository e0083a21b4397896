"""A torch to run the benchmarks with: this Python's own, or the one in the lab's image.

What is run is the program itself, ``python -m fleet.agent.bench.torch_side``, with the backend of
:mod:`.fixed_rates` found by its entry point.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bench.torch_side import results
from fleet.lab.images import Images

ROOT = Path(__file__).resolve().parents[4]
MODULE = "fleet.agent.bench.torch_side"
BACKEND = Path(__file__).parent / "fixed_rates.py"
DEADLINE_S = 540
Json = dict[str, Any]


class Printed:
    """What a run printed: its results by test id, its software, its notes; and how it ended."""

    def __init__(self, output: str, errors: str, code: int) -> None:
        self.errors = errors
        self.code = code
        self.results: list[Json] = []
        self.software: list[Json] = []
        self.notes: list[str] = []
        for line in output.splitlines():
            if line.startswith(results.RESULT):
                self.results.append(json.loads(line[len(results.RESULT) :], parse_constant=_no_constant))
            elif line.startswith(results.SOFTWARE):
                self.software.append(json.loads(line[len(results.SOFTWARE) :]))
            else:
                assert line.startswith(results.NOTE), line
                self.notes.append(line[len(results.NOTE) :])

    def of(self, test: str, *gpus: str) -> Json:
        """The one result of ``test`` (on these GPUs)."""
        found = [one for one in self.results if one["test"] == test and (not gpus or one["gpus"] == [*gpus])]
        assert len(found) == 1, (test, found, self.errors)
        return found[0]


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def request(group: str, gpus: Sequence[str], suite: str = "quick", **parameters: Any) -> str:
    return json.dumps({"group": group, "suite": suite, "gpu_uuids": [*gpus], "parameters": parameters})


def with_python(site: Path, text: str, environment: Mapping[str, str]) -> Printed:
    """Run the program with this Python; ``site`` comes before what it has installed."""
    path = os.pathsep.join([str(ROOT), str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", MODULE, text],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return Printed(done.stdout, done.stderr, done.returncode)


@pytest.fixture(scope="session")
def backend_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a distribution that offers :mod:`.fixed_rates` by its entry point."""
    site = tmp_path_factory.mktemp("site")
    site.chmod(0o755)
    shutil.copy(BACKEND, site)
    distribution = site / "fixed_rates-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: fixed-rates\nVersion: 1\n")
    entry = "[fleet.benchmark_backend]\nfixed = fixed_rates:FixedRates\n"
    (distribution / "entry_points.txt").write_text(entry)
    return site


Bench = Callable[..., Printed]


@pytest.fixture(scope="session")
def bench(backend_site: Path, request: pytest.FixtureRequest) -> Bench:
    """``bench(request, VARIABLE="…")``: the program with a real torch and two GPUs of fixed rates."""
    if importlib.util.find_spec("torch") is not None:
        return lambda text, **environment: with_python(backend_site, text, environment)
    lab = request.getfixturevalue("lab")
    image = Images(lab.engine, print).pytorch()

    def in_container(text: str, **environment: str) -> Printed:
        mounts = [f"{ROOT}/fleet/__init__.py:/code/fleet/__init__.py:ro"]
        mounts += [f"{ROOT}/fleet/agent:/code/fleet/agent:ro", f"{backend_site}:/site:ro"]
        words = ["run", "--rm", "--network", "none"]
        words += [word for mount in mounts for word in ("--volume", mount)]
        for name, value in {**environment, "PYTHONPATH": "/code:/site"}.items():
            words += ["--env", f"{name}={value}"]
        done = lab.engine.docker(
            *words, image, "python3", "-m", MODULE, text, check=False, deadline=DEADLINE_S
        )
        return Printed(done.stdout, done.stderr, done.returncode)

    return in_container
