"""A server that logs us in and then answers nothing more: paramiko alone would wait for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace

import paramiko
import pytest

from fleet.core.connection import ConnectionSettings, Endpoint
from fleet.core.errors import AuthenticationFailed, ConnectFailed
from tests.transport.conftest import QUICK
from tests.transport.sshd import make_key


class Stuck(paramiko.ServerInterface):
    """Lets everybody in; hangs at ``point``."""

    def __init__(self, point, release):
        self.point = point
        self.release = release

    def hang_at(self, point):
        if point == self.point:
            self.release.wait(60)

    def get_allowed_auths(self, username):
        return "publickey"

    def check_auth_publickey(self, username, key):
        self.hang_at("login")
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        self.hang_at("session")
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        self.hang_at("exec")
        return False


@pytest.fixture
def stuck_server(no_leaks, tmp_path, home):
    """Starts a stuck server; gives the settings to reach it with impatient deadlines."""
    host_key, user_key = make_key(tmp_path / "host"), make_key(tmp_path / "user")
    release = threading.Event()
    with contextlib.ExitStack() as stack:

        def start(point):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = listener.getsockname()[1]

            def serve():
                with listener.accept()[0] as stream:
                    transport = paramiko.Transport(stream)
                    transport.add_server_key(paramiko.PKey.from_path(host_key))
                    with contextlib.suppress(paramiko.SSHException, EOFError):
                        transport.start_server(server=Stuck(point, release))
                    transport.join(60)
                    transport.close()

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(release.set)
            line = (tmp_path / "host.pub").read_text()
            (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {line}")
            endpoint = Endpoint("127.0.0.1", port, key_files=(user_key,))
            return ConnectionSettings(
                "gpu01", endpoint, deadlines=replace(QUICK, authentication=1, channel=1, banner=5)
            )

        yield start


@pytest.mark.parametrize(
    ("point", "text"),
    [
        ("login", "no answer within 1 s"),
        ("session", "did not start a session: no answer within 1 s"),
        ("exec", "did not start a session: no answer within 1 s"),
        ("nowhere", "did not start a session"),
    ],
)
def test_every_wait_ends(stuck_server, make_connector, point, text):
    settings = stuck_server(point)
    with pytest.raises((ConnectFailed, AuthenticationFailed), match=text) as caught:
        make_connector().connect(settings)
    assert caught.value.host == "gpu01"
