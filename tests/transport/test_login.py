"""Authentication against a real sshd and a real ssh-agent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from dataclasses import replace

import pytest

from fleet.core.errors import AuthenticationFailed
from fleet.core.secret import Scrubber, Secret
from tests.transport.accounts import account
from tests.transport.conftest import QUICK
from tests.transport.sshd import make_key, public

PASSWORDS = "PasswordAuthentication yes\n"


@pytest.fixture
def agent(tmp_path):
    """A real ssh-agent: call it with key files to hold them; its socket is ``agent.socket``."""
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    process.stdout.readline()  # it says its socket once it listens

    def add(*keys, passphrase=""):
        environ = {**os.environ, "SSH_AUTH_SOCK": str(path), "SSH_ASKPASS_REQUIRE": "never"}
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], env=environ, check=True, capture_output=True)

    add.environ = {"SSH_AUTH_SOCK": str(path)}
    add.pid = process.pid
    yield add
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.wait()
    process.stdout.close()


def test_a_key_of_the_agent(sshd, make_connector, settings_for, agent):
    agent(sshd.key)
    connector = make_connector(environ=agent.environ)
    assert connector.connect(settings_for(sshd, endpoint={"key_files": ()})).request("echo", {}) == {}


def test_the_configured_key_goes_before_a_full_agent(sshd, make_connector, settings_for, agent, tmp_path):
    agent(*(make_key(tmp_path / f"k{number}") for number in range(8)))
    connector = make_connector(environ=agent.environ)
    assert connector.connect(settings_for(sshd)).request("echo", {}) == {}
    assert sshd.logged("Failed publickey") == 0


def test_stops_before_sshd_s_limit_and_says_so(sshd, make_connector, settings_for, agent, tmp_path):
    agent(*(make_key(tmp_path / f"k{number}") for number in range(8)))
    connector = make_connector(environ=agent.environ)
    with pytest.raises(AuthenticationFailed) as caught:
        connector.connect(settings_for(sshd, endpoint={"key_files": ()}))
    assert "stopped after 5 keys" in str(caught.value)
    assert "ansible_ssh_private_key_file" in str(caught.value)
    assert sshd.logged("Too many authentication failures") == 0


def test_identities_only_keeps_the_agent_out(sshd, make_connector, settings_for, agent, tmp_path):
    agent(sshd.key)
    other = make_key(tmp_path / "other")
    connector = make_connector(environ=agent.environ)
    with pytest.raises(AuthenticationFailed) as caught:
        connector.connect(settings_for(sshd, endpoint={"key_files": (other,), "identities_only": True}))
    assert "agent key" not in str(caught.value)


def test_an_encrypted_key_that_the_agent_holds_is_used_through_it(
    sshd, make_connector, settings_for, agent, tmp_path
):
    """The agent got the key in the clear; on disk there is only the encrypted file and its public half."""
    agent(sshd.key)
    locked = tmp_path / "locked"
    locked.write_bytes(sshd.key.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "passphrase", "-f", str(locked)], check=True)
    (tmp_path / "locked.pub").write_text(public(sshd.key))
    connector = make_connector(environ=agent.environ)
    settings = settings_for(sshd, endpoint={"key_files": (locked,), "identities_only": True})
    assert connector.connect(settings).request("echo", {}) == {}


def test_an_encrypted_key_without_its_passphrase_is_told(sshd, connector, settings_for, tmp_path):
    locked = make_key(tmp_path / "locked", passphrase="passphrase")
    with pytest.raises(AuthenticationFailed) as caught:
        connector.connect(settings_for(sshd, endpoint={"key_files": (locked,)}))
    assert f"{locked} has a passphrase" in str(caught.value)
    assert f"ssh-add {locked}" in str(caught.value)


@pytest.mark.parametrize(("content", "text"), [(None, "No such file"), ("rubbish", "no private key")])
def test_a_key_file_that_cannot_be_used_is_told(sshd, connector, settings_for, tmp_path, content, text):
    file = tmp_path / "key"
    if content:
        file.write_text(content)
    with pytest.raises(AuthenticationFailed, match=text):
        connector.connect(settings_for(sshd, endpoint={"key_files": (file,)}))


def test_default_keys_are_tried_when_none_is_configured(sshd, connector, settings_for, home):
    (home / ".ssh" / "id_ed25519").write_bytes(sshd.key.read_bytes())
    assert connector.connect(settings_for(sshd, endpoint={"key_files": ()})).request("echo", {}) == {}


def test_identities_only_without_a_key_means_the_default_keys(
    sshd, make_connector, settings_for, home, agent
):
    (home / ".ssh" / "id_ed25519").write_bytes(sshd.key.read_bytes())
    agent(sshd.key)
    settings = settings_for(sshd, endpoint={"key_files": (), "identities_only": True})
    assert make_connector(environ=agent.environ).connect(settings).request("echo", {}) == {}


def test_nothing_to_offer(sshd, connector, settings_for):
    with pytest.raises(AuthenticationFailed, match="nothing to offer"):
        connector.connect(settings_for(sshd, endpoint={"key_files": ()}))


def test_a_hanging_agent_does_not_hang_us(sshd, make_connector, settings_for, tmp_path):
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()  # takes connections, never answers
        connector = make_connector(environ={"SSH_AUTH_SOCK": str(path)})
        quick = replace(QUICK, authentication=1)
        assert connector.connect(settings_for(sshd, deadlines=quick)).request("echo", {}) == {}
        with pytest.raises(AuthenticationFailed, match="does not answer: check SSH_AUTH_SOCK"):
            connector.connect(settings_for(sshd, deadlines=quick, endpoint={"key_files": ()}))


def test_a_dead_agent_socket_is_told_only_if_it_matters(sshd, make_connector, settings_for, tmp_path):
    connector = make_connector(environ={"SSH_AUTH_SOCK": str(tmp_path / "gone")})
    assert connector.connect(settings_for(sshd)).request("echo", {}) == {}
    with pytest.raises(AuthenticationFailed, match="cannot be used"):
        connector.connect(settings_for(sshd, endpoint={"key_files": ()}))


def test_a_password(start_sshd, make_connector, settings_for):
    with account() as user:
        server = start_sshd(options=PASSWORDS)
        scrubber = Scrubber()
        endpoint = {"user": user.name, "key_files": (), "password": Secret(user.password, "ssh password")}
        settings = settings_for(server, endpoint=endpoint)
        assert make_connector(scrubber=scrubber).connect(settings).request("echo", {}) == {}
        assert user.password not in scrubber(f"x{user.password}y")
        assert user.password not in repr(settings)


def test_a_wrong_password_is_tried_once(start_sshd, connector, settings_for):
    with account() as user:
        server = start_sshd(options=PASSWORDS)
        endpoint = {"user": user.name, "key_files": (), "password": Secret("wrong-password", "ssh password")}
        with pytest.raises(AuthenticationFailed, match="tried password") as caught:
            connector.connect(settings_for(server, endpoint=endpoint))
        assert "wrong-password" not in str(caught.value)
        assert server.logged("Failed password") == 1


def test_a_key_and_a_password_where_the_server_wants_both(start_sshd, connector, settings_for):
    with account() as user:
        server = start_sshd(options=PASSWORDS + "AuthenticationMethods publickey,password\n")
        both = {"user": user.name, "password": Secret(user.password, "ssh password")}
        assert connector.connect(settings_for(server, endpoint=both)).request("echo", {}) == {}
        with pytest.raises(AuthenticationFailed, match="the server also wants: password"):
            connector.connect(settings_for(server, endpoint={"user": user.name}))
