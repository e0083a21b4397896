"""The bundle that the host's timer runs: installed, moved on, kept, taken off with what its runs left."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from fleet.agent.bundle import Bundles
from fleet.agent.paths import Paths
from fleet.agent.resources import agent_bundle
from fleet.agent.resources.agent_bundle import RESOURCE, STAMP
from fleet.agent.resources.base import Silent, StepFailed
from fleet.transport.bundle import Bundle
from tests.agent.core.harness import PYTHON
from tests.agent.resources.fakes import FakeHost, converge, differences

PRESENT = {"state": "present", "textfile": None}
ABSENT = {"state": "absent"}


def archive(version: str) -> bytes:
    """A bundle of a fleet of this version."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("fleet/__init__.py", f'"""Text."""\n\n__version__ = "{version}"\n')
        made.writestr("fleet/agent/__init__.py", "")
    return buffer.getvalue()


@pytest.fixture
def bundles(host: FakeHost) -> Bundles:
    return Bundles(Paths(host.state_dir, host.runtime_dir))


def run_as(monkeypatch: pytest.MonkeyPatch, bundles: Bundles, version: str) -> str:
    """From here on the agent is the one of this version, installed as a worker's is; its digest."""
    digest = os.path.basename(bundles.install(archive(version)))
    monkeypatch.setattr(agent_bundle, "running_digest", lambda: digest)
    monkeypatch.setattr(agent_bundle, "__version__", version)
    return digest


def test_the_running_agents_bundle_becomes_current_once(
    host: FakeHost, bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = run_as(monkeypatch, bundles, "1.0.0")
    found = converge(host, RESOURCE, PRESENT)
    assert found == [{"path": "bundle", "before": None, "after": f"1.0.0 ({digest[:12]})"}]
    assert os.readlink(bundles.folder("current")) == digest
    assert Path(bundles.folder("current"), "fleet/__init__.py").is_file()
    assert converge(host, RESOURCE, PRESENT) == []


def test_a_newer_fleet_moves_it_on_and_says_from_what(
    host: FakeHost, bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = run_as(monkeypatch, bundles, "1.0.0")
    converge(host, RESOURCE, PRESENT)
    new = run_as(monkeypatch, bundles, "1.1.0")
    (found,) = converge(host, RESOURCE, PRESENT)
    assert (found["before"], found["after"]) == (f"1.0.0 ({old[:12]})", f"1.1.0 ({new[:12]})")
    assert bundles.current() == new


def test_a_check_from_memory_foresees_it_before_anything_is_installed(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_bundle, "running_digest", lambda: "a" * 64)
    assert [one["path"] for one in differences(host, RESOURCE, PRESENT)] == ["bundle"]
    assert not Path(host.state_dir).exists()


def test_a_bundle_that_is_gone_under_its_link_differs(
    host: FakeHost, bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = run_as(monkeypatch, bundles, "1.0.0")
    bundles.make_current("b" * 64)
    (found,) = converge(host, RESOURCE, PRESENT)
    assert found["before"] == f"a bundle that is gone ({'b' * 12})"
    assert bundles.current() == digest


def test_an_agent_from_a_checkout_has_no_bundle_to_install(host: FakeHost) -> None:
    with pytest.raises(StepFailed, match="from a checkout") as caught:
        RESOURCE.read(host, PRESENT)
    assert caught.value.remedy is not None


def test_a_bundle_that_was_never_unpacked_is_not_made_current(
    host: FakeHost, bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_bundle, "running_digest", lambda: "a" * 64)
    with pytest.raises(StepFailed, match="is not in"):
        RESOURCE.apply(host, PRESENT, differences(host, RESOURCE, PRESENT), Silent())
    assert bundles.current() is None


def test_something_else_in_the_links_place_is_left_and_named(
    host: FakeHost, bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as(monkeypatch, bundles, "1.0.0")
    Path(bundles.folder("current")).mkdir()
    with pytest.raises(StepFailed, match="cannot be read as a link"):
        RESOURCE.read(host, PRESENT)


def test_the_current_bundle_outlives_newer_ones(bundles: Bundles) -> None:
    digests = [os.path.basename(bundles.install(archive(str(number)))) for number in range(3)]
    bundles.make_current(digests[0])
    for number, digest in enumerate(digests):
        os.utime(bundles.folder(digest), (number, number))
    for number in range(3, 6):
        digests.append(os.path.basename(bundles.install(archive(str(number)))))
        os.utime(bundles.folder(digests[-1]), (number, number))
    assert sorted(os.listdir(os.path.dirname(bundles.folder("x")))) == sorted(
        [digests[0], *digests[3:], "current"]
    )
    bundles.make_current(None)
    assert bundles.prune(digests[-1]) == [digests[0]]


def wrote_metrics(host: FakeHost, folder: str) -> Path:
    """What a run of the unit leaves."""
    host.write(f"{folder}/fleet.prom", "fleet_simulated 0\n")
    Path(host.state_dir).mkdir(exist_ok=True)
    Path(host.state_dir, "report.json").write_text(json.dumps({"textfile": f"{folder}/fleet.prom"}))
    return host.folder / folder.lstrip("/") / "fleet.prom"


def test_metrics_that_are_wanted_elsewhere_or_no_more_are_taken_away(
    host: FakeHost, bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as(monkeypatch, bundles, "1.0.0")
    metrics = wrote_metrics(host, "/srv/metrics")
    converge(host, RESOURCE, {**PRESENT, "textfile": "/srv/metrics/fleet.prom"})
    assert metrics.exists()
    (found,) = converge(host, RESOURCE, PRESENT)
    assert found == {"path": "leftover", "before": str(metrics), "after": None}
    assert not metrics.exists()


def test_absent_leaves_nothing_of_it_and_needs_no_bundle(host: FakeHost, bundles: Bundles) -> None:
    digest = os.path.basename(bundles.install(archive("1.0.0")))
    bundles.make_current(digest)
    metrics = wrote_metrics(host, "/srv/metrics")
    stamp = host.write(STAMP, "")
    converge(host, RESOURCE, ABSENT)
    assert bundles.current() is None
    assert not metrics.exists()
    assert not stamp.exists()
    assert not Path(host.state_dir, "report.json").exists()
    assert bundles.installed(digest)  # connections use it too
    assert converge(host, RESOURCE, ABSENT) == []


def test_a_report_cannot_have_any_other_file_removed(host: FakeHost, bundles: Bundles) -> None:
    passwd = host.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    Path(host.state_dir).mkdir(parents=True)
    Path(host.state_dir, "report.json").write_text(json.dumps({"textfile": "/etc/passwd"}))
    converge(host, RESOURCE, ABSENT)
    assert passwd.exists()


def test_code_knows_the_bundle_it_came_in(tmp_path: Path) -> None:
    bundle = Bundle.of_agent()
    packed = tmp_path / "packed"
    packed.write_bytes(bundle.data)
    unpacked = Bundles(Paths(str(tmp_path / "state"), str(tmp_path / "run"))).install(bundle.data)
    script = "import sys; sys.path.insert(0, sys.argv[1]); from fleet.agent.bundle import running_digest as r"
    for place in (str(packed), unpacked):
        command = [PYTHON, "-S", "-E", "-c", script + "; print(r())", place]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout.strip() == bundle.sha256 == hashlib.sha256(bundle.data).hexdigest()
