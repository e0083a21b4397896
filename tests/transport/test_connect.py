"""Connecting to a real sshd: one TCP connection, one exec, an agent that answers."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.core.connection import Endpoint
from fleet.core.errors import HostFailed, HostLocked, HostUnreachable, ProtocolError, PythonMissing
from fleet.core.secret import Scrubber
from tests.transport.accounts import account, need
from tests.transport.conftest import until


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    path.chmod(0o755)
    return path


def test_an_agent_that_is_not_on_the_host_is_sent_and_runs_from_memory(sshd, connector, settings_for, bundle):
    connection = connector.connect(settings_for(sshd))
    assert connection.hello["bundle_sent"] is True
    assert connection.hello["path"].startswith("/proc/self/fd/")
    assert connection.hello["locale"] == "C.UTF-8"
    assert connection.request("echo", {"a": [1, "ä\u2028"]}) == {"a": [1, "ä\u2028"]}
    assert not (sshd.folder / "state").exists()


def test_an_agent_that_is_on_the_host_is_used_from_there(sshd, connector, settings_for, bundle):
    place = sshd.folder / "state" / "agent" / bundle.sha256 / "fleet" / "agent"
    place.mkdir(parents=True)
    for folder in (place, place.parent):
        (folder / "__init__.py").touch()
    (place / "session.py").write_bytes(Path(__file__).with_name("stub_session.py").read_bytes())
    connection = connector.connect(settings_for(sshd))
    assert connection.hello["bundle_sent"] is False
    assert connection.hello["path"] == str(place.parent.parent)
    assert connection.request("echo", {}) == {}


def test_one_connection_is_one_tcp_connection_and_one_exec(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    for number in range(5):
        connection.request("echo", {"n": number})
    assert sshd.logged("Connection from") == 1 + 1  # the fixture's own look at the port, and ours
    assert sshd.logged("Starting session: command") == 1


def test_a_large_request_arrives_whole(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    assert connection.request("size", {"pad": "x" * 8_000_000}) > 8_000_000


def test_records_come_in_order_before_the_answer(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    seen = []
    answer = connection.request("records", {"count": 300}, on_message=seen.append)
    assert answer == {"sent": 300}
    assert [message["record"]["seq"] for message in seen] == list(range(1, 301))


def test_stream_ends_with_the_end_record(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    connection.request("records", {"count": 3})
    seen = []
    assert connection.stream(seen.append, deadline_s=20)["kind"] == "end"
    assert [record["seq"] for record in seen] == [1, 2, 3]


def test_another_thread_may_ask_while_one_pumps(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    done = threading.Event()

    def pump_until_done():
        while not done.is_set():
            connection.pump(0.2)

    with ThreadPoolExecutor(1) as pool:
        pumping = pool.submit(pump_until_done)
        try:
            answers = [connection.request("echo", {"n": number}) for number in range(20)]
        finally:
            done.set()
        pumping.result()
    assert [answer["n"] for answer in answers] == list(range(20))


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (
            {"kind": "locked", "message": "run abc holds it", "run": "abc"},
            HostLocked,
            "fleet unlock gpu01 --run",
        ),
        ({"kind": "permission", "message": "needs root"}, HostFailed, "--become"),
        ({"kind": "failed", "message": "no", "remedy": "do this"}, HostFailed, "do this"),
        ({"kind": "bug", "message": "KeyError", "traceback": "…"}, HostFailed, "bug in fleet"),
        ({"kind": "bad_request", "message": "what?"}, ProtocolError, "does not understand"),
        ({"kind": "\x1b[2J", "message": "?"}, ProtocolError, "\\x1b[2J"),
    ],
)
def test_errors_of_the_agent_become_ours(sshd, connector, settings_for, error, expected, text):
    connection = connector.connect(settings_for(sshd))
    with pytest.raises(expected) as caught:
        connection.request("fail", error)
    assert text in str(caught.value)
    assert caught.value.host == "gpu01"
    assert "\x1b" not in str(caught.value)
    assert connection.request("echo", {}) == {}  # the connection goes on


def test_secrets_sent_are_scrubbed_from_then_on(sshd, make_connector, settings_for):
    scrubber = Scrubber()
    connection = make_connector(scrubber=scrubber).connect(settings_for(sshd))
    connection.request("echo", {"secrets": {"s1": "hunter22"}}, secrets_in=True)
    with pytest.raises(HostFailed) as caught:
        connection.request("fail", {"kind": "failed", "message": "cannot log in with hunter22"})
    assert "hunter22" not in str(caught.value)
    assert "hunter22" not in scrubber("x hunter22 y")


def test_a_noisy_profile_does_not_matter(start_sshd, connector, settings_for):
    noise = "; ".join(
        [
            "for i in 1 2 3 4 5 6 7 8; do head -c 60000 /dev/zero | tr '\\\\000' x; head -c 9000 /dev/zero >&2; done",
            "printf 'FLEET-READY-0123 1\\\\n{not json'",
            "printf 'password: ' >&2",
            'exec /bin/sh -c \\"$SSH_ORIGINAL_COMMAND\\"',
        ]
    )
    server = start_sshd()
    keys = server.authorized_keys
    keys.write_text(f'command="{noise}" {keys.read_text()}')
    assert connector.connect(settings_for(server)).request("echo", {"a": 1}) == {"a": 1}


def test_endless_noise_is_refused(start_sshd, connector, settings_for):
    server = start_sshd()
    keys = server.authorized_keys
    keys.write_text(f'command="exec yes" {keys.read_text()}')
    with pytest.raises(ProtocolError, match="1 MiB of noise"):
        connector.connect(settings_for(server))


@pytest.mark.parametrize("shell", ["tcsh", "bash", "dash"])
def test_login_shells(start_sshd, connector, settings_for, shell):
    need(shell)
    with account(shell=f"/bin/{shell}") as user:
        server = start_sshd()
        connection = connector.connect(settings_for(server, endpoint={"user": user.name}))
        assert connection.request("echo", {"shell": shell}) == {"shell": shell}


def test_a_shell_that_refuses_is_told_with_its_words(start_sshd, connector, settings_for):
    with account(shell="/usr/sbin/nologin") as user:
        server = start_sshd()
        with pytest.raises(ProtocolError, match="This account is currently not available"):
            connector.connect(settings_for(server, endpoint={"user": user.name}))


def test_an_interpreter_that_is_not_there_is_named(start_sshd, connector, settings_for):
    server = start_sshd()
    with pytest.raises(PythonMissing, match="there is no /nowhere/python3") as caught:
        connector.connect(settings_for(server, python="/nowhere/python3"))
    assert "--install-python" in str(caught.value) or "ansible_python_interpreter" in str(caught.value)


def old_python(folder: Path) -> Path:
    """An interpreter that says it is 3.6, and is otherwise this one."""
    code = "import os, sys; sys.version_info = (3, 6, 8, 'final', 0); sys.argv = ['-c', *sys.argv[1:]]"
    return script(
        folder / "python3",
        f"#!{sys.executable}\n{code}\ncode = sys.argv[4]\nsys.argv = ['-c', *sys.argv[5:]]\nexec(code)",
    )


def test_an_old_python_is_passed_over_for_a_newer_one(start_sshd, connector, settings_for, tmp_path):
    old = old_python(tmp_path / "bin")
    newer = tmp_path / "bin" / "python3.12"
    newer.symlink_to(sys.executable)
    server = start_sshd(options=f"SetEnv PATH={tmp_path}/bin:/usr/bin:/bin FLEET_AGENT_STATE_DIR=/nowhere\n")
    assert old.exists()
    assert connector.connect(settings_for(server)).request("echo", {}) == {}


def test_an_interpreter_with_a_space_in_its_path(sshd, connector, settings_for, tmp_path):
    python = tmp_path / "my python" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert connector.connect(settings_for(sshd, python=str(python))).request("echo", {}) == {}


def test_an_old_python_is_named_when_there_is_no_other(start_sshd, connector, settings_for, tmp_path):
    old = old_python(tmp_path / "bin")
    server = start_sshd()
    with pytest.raises(PythonMissing) as caught:
        connector.connect(settings_for(server, python=str(old)))
    assert "is 3.6.8" in str(caught.value)


def test_an_incomplete_python_is_told_with_its_missing_modules(start_sshd, connector, settings_for, tmp_path):
    lacking = script(
        tmp_path / "python3",
        f"#!{sys.executable}\nimport sys\n"
        "class Hide:\n    def __init__(self, f): self.f = f\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return None if name in ('shutil', 'json') else self.f.find_spec(name, path, target)\n"
        "sys.meta_path[:] = [Hide(f) for f in sys.meta_path]\n"
        "code = sys.argv[4]\nsys.argv = ['-c', *sys.argv[5:]]\nexec(code)",
    )
    server = start_sshd()
    with pytest.raises(PythonMissing, match="lacks the modules json, shutil") as caught:
        connector.connect(settings_for(server, python=str(lacking)))
    assert "incomplete" in str(caught.value)


def test_install_python_runs_the_distribution_s_command_and_goes_on(
    start_sshd, connector, settings_for, tmp_path
):
    """apt-get, dnf … are replaced by one that "installs" the interpreter we ask for."""
    target = tmp_path / "bin" / "python3"
    installer = f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/calls\nln -s {sys.executable} {target}'
    for name in ("apt-get", "dnf", "zypper", "apk", "pacman"):
        script(tmp_path / "bin" / name, installer)
    server = start_sshd(options=f"SetEnv PATH={tmp_path}/bin:/bin FLEET_AGENT_STATE_DIR=/nowhere\n")
    settings = settings_for(server, python=str(target))
    with pytest.raises(PythonMissing):
        connector.connect(settings)
    assert not (tmp_path / "calls").exists()
    assert connector.connect(settings, install=True).request("echo", {}) == {}
    assert "install" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("version", ["2", "0", '"x"'])
def test_protocol_versions(start_sshd, connector, settings_for, version, tmp_path):
    server = start_sshd(
        options=f"SetEnv PATH={Path(sys.executable).parent}:/usr/bin:/bin STUB_PROTOCOL={version}\n"
    )
    if version == "0":  # one back is spoken
        assert connector.connect(settings_for(server)).request("echo", {}) == {}
    elif version == "2":
        with pytest.raises(ProtocolError, match="speaks protocol 2"):
            connector.connect(settings_for(server))
    else:
        with pytest.raises(ProtocolError, match="ValueError"):
            connector.connect(settings_for(server))


def test_local_needs_no_sshd(connector, settings_for, sshd, monkeypatch):
    monkeypatch.setenv("FLEET_AGENT_STATE_DIR", "/nowhere")
    settings = settings_for(sshd, local=True, python=sys.executable)
    connection = connector.connect(settings)
    assert connection.request("size", {"pad": "x" * 1_000_000}) > 1_000_000
    connection.close()
    with pytest.raises(ProcessLookupError):
        os.kill(connection.hello["pid"], 0)
    assert sshd.logged("Accepted publickey") == 0


def test_closing_the_connector_ends_connections_that_are_being_made(start_sshd, connector, settings_for):
    server = start_sshd()
    server.authorized_keys.write_text('command="exec sleep 600" ' + server.authorized_keys.read_text())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connector.connect, settings_for(server))
        until(lambda: server.logged("Starting session"), "no session")
        connector.close()
        with pytest.raises(HostUnreachable):
            waiting.result(timeout=15)
    with pytest.raises(HostUnreachable, match="stopping"):
        connector.connect(settings_for(server))


def test_nothing_secret_shows_in_repr(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    assert repr(connection) == "<AgentConnection gpu01 alive>"
    assert isinstance(settings_for(sshd).endpoint, Endpoint)
