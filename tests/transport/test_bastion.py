"""Ways that are not a plain TCP connection: bastions, bastions behind bastions, ProxyCommand."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fleet.core.errors import ConnectFailed, ConnectionLost, HostKeyUnknown
from fleet.transport.handshakes import ATTEMPTS
from tests.transport.conftest import QUICK, endpoint_of, until
from tests.transport.sshd import free_port


@pytest.fixture
def bastion(start_sshd):
    return start_sshd("bastion")


def trust(server, home):
    with (home / ".ssh" / "known_hosts").open("a") as file:
        file.write(server.known_hosts())


def test_ten_targets_share_one_connection_to_their_bastion(sshd, bastion, connector, settings_for, home):
    trust(bastion, home)
    settings = settings_for(sshd, jumps=(endpoint_of(bastion),))
    with ThreadPoolExecutor(10) as pool:
        connections = list(
            pool.map(connector.connect, [replace(settings, name=f"gpu{n}") for n in range(10)])
        )
    assert [connection.request("echo", {"n": n})["n"] for n, connection in enumerate(connections)] == list(
        range(10)
    )
    assert bastion.logged("Accepted publickey") == 1
    assert sshd.logged("Accepted publickey") == 10


def test_closing_one_target_leaves_the_others(sshd, bastion, connector, settings_for, home):
    trust(bastion, home)
    settings = settings_for(sshd, jumps=(endpoint_of(bastion),))
    first, second = connector.connect(settings), connector.connect(settings)
    first.close()
    assert second.request("echo", {}) == {}


def test_a_bastion_behind_a_bastion(sshd, bastion, start_sshd, connector, settings_for, home):
    inner = start_sshd("inner")
    trust(bastion, home)
    trust(inner, home)
    settings = settings_for(sshd, jumps=(endpoint_of(bastion), endpoint_of(inner)))
    assert connector.connect(settings).request("echo", {}) == {}
    assert (bastion.logged("Accepted publickey"), inner.logged("Accepted publickey")) == (1, 1)


def test_the_bastion_s_key_is_verified_and_the_message_names_it(sshd, bastion, connector, settings_for):
    with pytest.raises(HostKeyUnknown) as caught:
        connector.connect(settings_for(sshd, jumps=(endpoint_of(bastion),)))
    assert str(caught.value).startswith(f"gpu01: bastion {bastion.user}@127.0.0.1:{bastion.port}: ")
    assert "--accept-new" in str(caught.value)


def test_a_target_the_bastion_cannot_reach(sshd, bastion, connector, settings_for, home):
    trust(bastion, home)
    port = free_port()
    settings = settings_for(sshd, jumps=(endpoint_of(bastion),), endpoint={"port": port})
    with pytest.raises(ConnectFailed) as caught:
        connector.connect(settings)
    assert f"cannot reach 127.0.0.1:{port}" in str(caught.value)


def test_a_bastion_that_does_not_forward(start_sshd, sshd, connector, settings_for, home):
    closed = start_sshd("closed", options="AllowTcpForwarding no\n")
    trust(closed, home)
    with pytest.raises(ConnectFailed, match="AllowTcpForwarding yes"):
        connector.connect(settings_for(sshd, jumps=(endpoint_of(closed),)))


def test_a_bastion_that_went_away_is_connected_again(sshd, bastion, connector, settings_for, home):
    trust(bastion, home)
    settings = settings_for(sshd, jumps=(endpoint_of(bastion),))
    first = connector.connect(settings)
    bastion.stop()
    with pytest.raises(ConnectionLost):
        first.request("echo", {})
    bastion.start()
    assert connector.connect(settings).request("echo", {}) == {}


def test_many_hosts_waiting_for_a_dead_bastion_get_one_answer(sshd, connector, settings_for):
    """Its failure is shared by those who waited; they do not try one after the other."""
    gone = endpoint_of(sshd, port=free_port())
    settings = settings_for(sshd, jumps=(gone,))

    def fail(number):
        with pytest.raises(ConnectFailed) as caught:
            connector.connect(replace(settings, name=f"gpu{number}"))
        return caught.value.host

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fail, range(8))) == [f"gpu{number}" for number in range(8)]


def test_a_bastion_that_cuts_every_handshake_is_not_tried_over_and_over(
    sshd, connector, settings_for, monkeypatch
):
    monkeypatch.setattr("fleet.transport.handshakes.random.uniform", lambda low, high: 0.0)
    with socket.create_server(("127.0.0.1", 0)) as rude, ThreadPoolExecutor(1) as pool:
        stop = threading.Event()
        rude.settimeout(0.2)

        def hang_up():
            count = 0
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    rude.accept()[0].close()
                    count += 1
            return count

        counting = pool.submit(hang_up)
        gone = endpoint_of(sshd, port=rude.getsockname()[1])
        try:
            with pytest.raises(ConnectFailed, match="closed the connection before the SSH handshake"):
                connector.connect(settings_for(sshd, jumps=(gone,)))
        finally:
            stop.set()
        assert counting.result() == ATTEMPTS


def relay(port):
    """A ProxyCommand of the test's own: bytes to and from ``port``."""
    code = (
        "import os,select,socket; s=socket.create_connection(('127.0.0.1',%s))\n"
        "while True:\n for r in select.select([0,s],[],[])[0]:\n"
        "  d=os.read(0,65536) if r==0 else s.recv(65536)\n  if not d: raise SystemExit\n"
        "  s.sendall(d) if r==0 else os.write(1,d)"
    )
    return f'{sys.executable} -c "{code % port}"'


def test_proxy_command(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd, proxy_command=relay("%p")))
    assert connection.request("size", {"pad": "x" * 2_000_000}) > 2_000_000


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh")
def test_proxy_command_by_openssh(sshd, bastion, connector, settings_for):
    command = (
        f"ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i {bastion.key} "
        f"-p {bastion.port} -W %h:%p {bastion.user}@127.0.0.1"
    )
    assert connector.connect(settings_for(sshd, proxy_command=command)).request("echo", {}) == {}


def test_a_failing_proxy_command_is_told_with_its_words(sshd, connector, settings_for):
    settings = settings_for(sshd, proxy_command="echo no route to %h >&2; exit 1")
    with pytest.raises(ConnectFailed, match=r"the ProxyCommand said: no route to 127\.0\.0\.1"):
        connector.connect(settings)


def test_a_silent_proxy_command_is_given_up_and_ended(sshd, connector, settings_for, tmp_path):
    mark = tmp_path / "pid"
    settings = settings_for(
        sshd,
        proxy_command=f"sh -c 'echo $$ > {mark}; exec sleep 600'",
        deadlines=replace(QUICK, banner=0.5),
    )
    with pytest.raises(ConnectFailed, match="did not show an SSH banner"):
        connector.connect(settings)
    pid = mark.read_text().strip()
    from pathlib import Path

    until(lambda: not Path(f"/proc/{pid}").exists(), "the command lives on")
