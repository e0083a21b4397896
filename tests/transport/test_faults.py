"""What goes wrong on a network and on broken hosts: an error for that host, in time, and nothing left over."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from fleet.core.errors import ConnectFailed, ConnectionLost, HostFailed, ProtocolError
from fleet.transport.watch import Watch
from tests.transport.conftest import QUICK, endpoint_of, until
from tests.transport.sshd import free_port

IMPATIENT = replace(QUICK, silence=1.5)


def freeze(server):
    """Stop every process of the server's sessions."""
    pids = server.sessions()
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def test_connection_refused(sshd, connector, settings_for):
    port = free_port()
    with pytest.raises(ConnectFailed, match="Connection refused") as caught:
        connector.connect(settings_for(sshd, endpoint={"port": port}))
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "ansible_port" in str(caught.value)


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 70])
def test_a_name_that_does_not_resolve(sshd, connector, settings_for, name):
    with pytest.raises(ConnectFailed, match="cannot resolve"):
        connector.connect(settings_for(sshd, endpoint={"address": name}))


def test_a_server_that_never_speaks(sshd, connector, settings_for):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        settings = settings_for(
            sshd, endpoint={"port": mute.getsockname()[1]}, deadlines=replace(QUICK, banner=0.5)
        )
        with pytest.raises(ConnectFailed, match=r"did not show an SSH banner"):
            connector.connect(settings)


def test_a_server_that_is_no_ssh_server(sshd, connector, settings_for):
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def serve():
            stream, _ = other.accept()
            with stream:
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 120)
                stream.recv(1000)

        serving = pool.submit(serve)
        with pytest.raises(ConnectFailed, match="check that this is an SSH server"):
            connector.connect(settings_for(sshd, endpoint={"port": other.getsockname()[1]}))
        serving.result()


def test_sixty_at_once_all_get_through_a_server_that_drops_above_a_few(
    start_sshd, make_connector, settings_for
):
    server = start_sshd(options="MaxStartups 4:70:12\n")
    connector = make_connector(per_endpoint_handshakes=8)
    settings = settings_for(server)
    with ThreadPoolExecutor(60) as pool:
        connections = list(pool.map(lambda _: connector.connect(settings), range(60)))
    assert all(connection.alive for connection in connections)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda connection: connection.close(), connections))


def test_a_frozen_host_is_noticed(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd, deadlines=IMPATIENT))
    freeze(sshd)
    with pytest.raises(ConnectionLost, match="no sign of life"):
        connection.request("echo", {}, deadline_s=60)
    assert not connection.alive
    assert not connection.clock_jumped


def test_a_frozen_host_is_noticed_even_while_nobody_reads(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd, deadlines=IMPATIENT))
    freeze(sshd)
    until(lambda: not connection.alive, "not noticed")
    with pytest.raises(ConnectionLost, match="no sign of life"):
        connection.pump(0)


def test_a_frozen_host_that_is_being_written_to_is_noticed(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd, deadlines=IMPATIENT))
    freeze(sshd)
    with pytest.raises(ConnectionLost):
        connection.request("size", {"pad": "x" * 12_000_000}, deadline_s=60)


def test_a_frozen_bastion_is_noticed_for_each_target(sshd, start_sshd, connector, settings_for, home):
    bastion = start_sshd("bastion")
    with (home / ".ssh" / "known_hosts").open("a") as file:
        file.write(bastion.known_hosts())
    connection = connector.connect(settings_for(sshd, jumps=(endpoint_of(bastion),), deadlines=IMPATIENT))
    freeze(bastion)
    with pytest.raises(ConnectionLost, match="no sign of life"):
        connection.request("echo", {}, deadline_s=60)


def test_a_host_that_only_beats_is_not_lost_but_its_answer_is_missed(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd, deadlines=IMPATIENT))
    with pytest.raises(HostFailed, match="did not answer 'nothing' within 3 s"):
        connection.request("nothing", {}, deadline_s=3)  # twice the silence: beats kept it alive
    assert connection.request("echo", {}) == {}


def test_an_agent_that_does_not_read_blocks_nobody(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd, deadlines=IMPATIENT))
    connection.request("deaf", {})
    with pytest.raises(ConnectionLost):
        connection.request("size", {"pad": "x" * 12_000_000}, deadline_s=60)


def test_a_killed_session_is_lost(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    os.kill(connection.hello["pid"], signal.SIGKILL)
    with pytest.raises(ConnectionLost, match="connection closed"):
        connection.request("echo", {})


def test_the_agent_s_last_words_are_told(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    with pytest.raises(ConnectionLost, match="it said: Traceback / MemoryError"):
        connection.request("stderr", {"text": "Traceback\nMemoryError\n"})


@pytest.mark.parametrize(
    "text",
    [
        "garbage\n",
        "\x1b[2J\x07\n",
        '{"no": "type"}\n',
        '{"type": "unheard-of"}\n',
        '{"type": "hello"}\n',
        '{"type": "response", "id": 99}\n',
        "[" * 100_000 + "\n",
        '{"type": "response", "id": 1, "error": "text"}\n',
        '{"type": "record", "record": {"seq": 1, "kind": "result", "value": NaN}}\n',
    ],
)
def test_garbage_costs_that_host_only(sshd, connector, settings_for, text):
    settings = settings_for(sshd)
    bad, good = connector.connect(settings), connector.connect(replace(settings, name="gpu02"))
    with pytest.raises(ProtocolError) as caught:
        bad.request("raw", {"text": text})
    assert caught.value.host == "gpu01"
    assert "\x1b" not in str(caught.value)
    assert not bad.alive
    assert good.request("echo", {}) == {}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("NaN", r"NaN is not a number of JSON: line 1 column 62 \(char 61\)"),
        ("-Infinity", r"-Infinity is not a number of JSON: line 1 column 62 "),
        ("1e999", r"1e999 is not a number of JSON: line 1 column 62 "),
        ("nan", r"Expecting value: line 1 column 62 "),
    ],
)
def test_a_message_with_a_number_that_is_none_is_not_json(sshd, connector, settings_for, number, words):
    connection = connector.connect(settings_for(sshd))
    text = '{"type": "record", "record": {"note": "NaN 1e999", "tflops": ' + number + "}}\n"
    with pytest.raises(ProtocolError, match=f"not JSON: {words}") as caught:
        connection.request("raw", {"text": text})
    assert caught.value.host == "gpu01"


def test_a_line_without_end_is_cut_at_the_limit(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    with pytest.raises(ProtocolError, match="a line of more than 16777216 bytes"):
        connection.request("endless", {}, deadline_s=120)


def test_a_flood_is_cut_in_bounded_memory(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    with pytest.raises(ProtocolError, match="64 MiB of messages nobody asked for"):
        connection.request("flood", {}, deadline_s=120)


def test_after_a_clock_jump_the_connection_is_lost_and_marked(sshd, make_connector, settings_for):
    watch = Watch()
    connection = make_connector(watch=watch).connect(settings_for(sshd))
    watch.look(asleep=3600.0)
    assert connection.clock_jumped
    with pytest.raises(ConnectionLost, match="asleep"):
        connection.request("echo", {})


def test_closing_while_another_thread_waits_ends_its_wait(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(connection.request, "nothing", {}, deadline_s=60)
        until(lambda: connection._reading, "it does not read")
        connection.close()
        with pytest.raises(ConnectionLost):
            waiting.result(timeout=20)
    connection.close()  # twice does no harm


def test_a_connection_through_a_server_that_restarts_mid_session_is_lost_at_once(
    sshd, connector, settings_for
):
    connection = connector.connect(settings_for(sshd))
    sshd.stop()
    with pytest.raises(ConnectionLost):
        connection.request("echo", {}, deadline_s=60)
