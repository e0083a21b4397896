"""What the agent keeps on a host's disk: bundles, old runs, notifications, and how a unit is started."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from fleet.agent import hello
from fleet.agent.bundle import BadBundle, Bundles
from fleet.agent.paths import Paths, write_durably
from fleet.agent.pending import Pending
from fleet.agent.protocol import STATE_DIR
from fleet.agent.runs import close_run, open_runs, prune, reopen_run
from fleet.agent.units import unit_command, unit_ended, unit_name
from tests.agent.core.harness import PYTHON, FakeHost, Session, plan, step

ROOT = Path(__file__).parents[3]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "state"), str(tmp_path / "run"))


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, text in {"fleet/__init__.py": "", "fleet/agent/__init__.py": "X = 1\n", **files}.items():
            made.writestr(name, text)
    return buffer.getvalue()


def test_a_bundle_is_unpacked_compiled_and_named_by_its_digest(paths: Paths) -> None:
    bundles, data = Bundles(paths), archive()
    folder = Path(bundles.install(data))
    assert folder.name == hashlib.sha256(data).hexdigest()
    assert (folder / "fleet/agent/__init__.py").read_text() == "X = 1\n"
    assert list((folder / "fleet/agent/__pycache__").iterdir())
    assert bundles.install(data) == str(folder)
    assert os.listdir(paths.bundles) == [folder.name]
    assert os.stat(paths.bundles).st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not a zip", "not a zip archive"),
        (archive(**{"../evil.py": ""}), "outside of itself"),
        (archive(**{"/etc/evil": ""}), "outside of itself"),
    ],
)
def test_a_bad_bundle_leaves_nothing_behind(paths: Paths, data: bytes, words: str) -> None:
    with pytest.raises(BadBundle, match=words):
        Bundles(paths).install(data)
    assert os.listdir(paths.bundles) == []


def test_a_bundle_that_is_not_the_one_expected_is_refused(paths: Paths) -> None:
    with pytest.raises(BadBundle, match="SHA-256"):
        Bundles(paths).install(archive(), "0" * 64)


def test_three_bundles_are_kept_and_those_of_open_runs(paths: Paths) -> None:
    bundles = Bundles(paths)
    digests = []
    for number in range(5):
        digests.append(os.path.basename(bundles.install(archive(n=str(number)))))
        os.utime(bundles.folder(digests[-1]), (number, number))
        if number == 0:
            os.makedirs(paths.run("open-run"))
            bundles.remember("open-run", digests[0])
    bundles.prune(digests[-1])
    assert sorted(os.listdir(paths.bundles)) == sorted([digests[0], *digests[2:]])
    close_run(paths, "open-run", "done")
    bundles.prune(digests[-1])
    assert sorted(os.listdir(paths.bundles)) == sorted(digests[2:])


def test_a_session_from_memory_installs_its_bundle_only_when_a_worker_must_run(host: FakeHost) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.write(ROOT / "fleet/__init__.py", "fleet/__init__.py")
        for path in sorted((ROOT / "fleet/agent").rglob("*.py")):
            made.write(path, str(path.relative_to(ROOT)))
    bundle = Path(host.world, "bundle.zip")
    bundle.write_bytes(buffer.getvalue())
    script = (
        f"import sys; data = open({str(bundle)!r}, 'rb').read(); sys.path.insert(0, {str(bundle)!r})\n"
        "from fleet.agent import session\nsession.main([], data)\n"
    )
    session = Session(host.environment(), (PYTHON, "-S", "-E", "-c", script))
    assert session.hello["bundle_on_disk"] is False
    target = Path(host.world, "target")
    wanted = plan(step("f", "file", path=str(target), content="hello\n"))
    assert session.request("check", plan=wanted, secrets={})["results"][0]["status"] == "would_change"
    assert not Path(host.paths.state).exists()
    if os.path.isdir("/run/systemd/system"):
        pytest.skip("the worker would become a unit of this machine")
    session.request("start", plan=wanted, secrets={})
    assert session.records_to_end()[-1]["status"] == "done"
    assert target.read_text() == "hello\n"
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    assert os.listdir(host.paths.bundles) == [digest]
    assert Path(host.paths.bundle_of("run-1")).read_text().strip() == digest
    session.close()


def make_run(paths: Paths, name: str, moment: int | None, size: int = 0) -> None:
    os.makedirs(paths.run(name))
    Path(paths.journal(name)).write_bytes(b"\0" * size)
    if moment is not None:
        close_run(paths, name, "done")
        os.utime(paths.closed(name), (moment, moment))


def test_the_oldest_closed_runs_go_and_open_ones_stay(paths: Paths) -> None:
    for number in range(6):
        make_run(paths, f"run-{number}", number)
    make_run(paths, "open", None)
    assert prune(paths, "run-0", runs=3) == ["run-3", "run-2", "run-1"]
    assert sorted(os.listdir(paths.runs)) == ["open", "run-0", "run-4", "run-5"]


def test_old_runs_go_when_they_take_too_much_room(paths: Paths) -> None:
    for number in range(3):
        make_run(paths, f"run-{number}", number, size=100_000)
    assert prune(paths, "run-2", size=250_000) == ["run-0"]


def test_a_run_can_be_opened_again(paths: Paths) -> None:
    make_run(paths, "run-1", 1)
    assert open_runs(paths) == []
    reopen_run(paths, "run-1")
    assert open_runs(paths) == [{"run": "run-1", "segment": None, "status": None, "last_seq": 0}]


@pytest.mark.parametrize("name", ["restart docker", "../../etc/passwd", ".", "ß" * 200, "a/b", ""])
def test_any_handler_name_makes_a_file_inside_its_folder(paths: Paths, name: str) -> None:
    pending = Pending(paths)
    assert pending.add(name, "run-1", "s") is True
    assert pending.add(name, "run-1", "s") is False
    assert name in pending
    assert os.path.dirname(pending.path(name)) == paths.pending
    pending.remove(name)
    assert name not in pending


def test_a_durable_write_that_fails_leaves_the_old_bytes(paths: Paths, tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_durably(str(target), b"old")
    with pytest.raises(TypeError):
        write_durably(str(target), "text")  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_unit_leaves_the_workers_children_alone_and_carries_no_secret() -> None:
    command = unit_command(
        ["/usr/bin/python3", "-S", "-E", "-m", "fleet.agent", "worker", "--run", "r", "--attempt", "2"],
        unit_name("r", 2),
        "/var/lib/fleet/agent/abc",
        {"FLEET_AGENT_STATE_DIR": "/elsewhere", "SECRET": "hunter2"},
    )
    assert command[0] == "systemd-run"
    assert "--unit=fleet-r-2.service" in command
    assert "--property=KillMode=process" in command
    assert "--property=WorkingDirectory=/var/lib/fleet/agent/abc" in command
    assert "--setenv=FLEET_AGENT_STATE_DIR=/elsewhere" in command
    assert "hunter2" not in " ".join(command)
    assert command[-4:] == ["--run", "r", "--attempt", "2"]


def test_the_controllers_own_state_is_elsewhere_also_on_a_machine_that_provisions_itself() -> None:
    assert Paths.from_environment({"FLEET_STATE_DIR": "/home/anna/fleet"}).state == STATE_DIR
    assert Paths.from_environment({"FLEET_AGENT_STATE_DIR": "/elsewhere"}).state == "/elsewhere"


@pytest.mark.parametrize(
    ("shown", "ended"),
    [
        ("ActiveState=active\nJob=0\n", False),
        ("ActiveState=inactive\nJob=713\n", False),
        ("ActiveState=activating\n", False),
        ("ActiveState=inactive\nJob=0\n", True),
        ("ActiveState=failed\n", True),
        ("", False),
    ],
)
def test_a_unit_that_has_yet_to_start_has_not_ended(shown: str, ended: bool) -> None:
    assert unit_ended(shown) is ended


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    key = tmp_path / "ssh_host_ed25519_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    said = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True).stdout
    (tmp_path / "ssh_host_rsa_key.pub").write_text("damaged")
    assert hello.host_key_fingerprints(str(tmp_path)) == [said.split()[1]]


def test_a_python_without_json_can_still_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello, "NEEDED_MODULES", ("json", "no_such_module", "zlib", "_sre"))
    assert hello.missing_modules() == ["no_such_module"]
    import json

    said = json.loads(hello.minimal_hello(["json", "queue"]))
    assert said["python_complete"] is False
    assert said["missing_modules"] == ["json", "queue"]
