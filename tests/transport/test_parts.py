"""The small parts: bundle, watch, handshake cap and retry, ProxyCommand words, shown text, framing."""

from __future__ import annotations

import fcntl
import io
import json
import resource
import socket
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.agent import protocol
from fleet.core.connection import Endpoint
from fleet.core.errors import ConnectFailed, ConnectionLost, HostUnreachable, ProtocolError
from fleet.core.secret import Scrubber
from fleet.transport import AgentConnection, Bundle
from fleet.transport.channel import can_write
from fleet.transport.clock import Deadline
from fleet.transport.handshakes import ATTEMPTS, HandshakeCut, Handshakes, retry_cut
from fleet.transport.sockets import expand
from fleet.transport.text import Tail, last_words, printable
from fleet.transport.watch import Watch, slept

# bundle


def test_the_agent_s_bundle_is_the_same_bytes_every_time_and_holds_the_agent_and_nvidias_binding_only():
    first, second = Bundle.of_agent(), Bundle.of_agent()
    assert first == second
    names = zipfile.ZipFile(io.BytesIO(first.data)).namelist()
    assert names == sorted(names)
    assert {"fleet/__init__.py", "fleet/agent/__init__.py", "fleet/agent/protocol.py"} <= set(names)
    others = {name for name in names if not name.startswith("fleet/agent/")}
    assert others == {"fleet/__init__.py", "pynvml.py", "pynvml_version.py"}
    assert not any("__pycache__" in name for name in names)


def test_other_sources_are_another_bundle():
    assert Bundle.of({"a.py": b"1"}).sha256 != Bundle.of({"a.py": b"2"}).sha256
    assert Bundle.of({"a": b"", "b": b""}) == Bundle.of({"b": b"", "a": b""})


# watch


@pytest.mark.parametrize(
    ("monotonic", "wall", "away"),
    [
        (0.5, 0.5, 0),
        (5.0, 5.0, 0),  # a busy controller
        (0.5, 3600.0, 3599.5),  # suspended
        (0.5, -3600.0, 3600.5),  # set back by hand
        (60.0, 60.0, 59.5),  # stopped
        (0.5, 15.0, 0),
    ],
)
def test_when_the_controller_was_away(monotonic, wall, away):
    assert slept((100.0, 1000.0), (100.0 + monotonic, 1000.0 + wall)) == pytest.approx(away)


def test_a_guard_cuts_what_lasts_too_long_and_nothing_else():
    watch, cut, early = Watch(), threading.Event(), threading.Event()
    with watch.guard(Deadline(60), early.set), watch.guard(Deadline(0), cut.set):
        assert cut.wait(20)
    assert not early.is_set()
    watch.close()


# handshakes


def test_no_more_handshakes_at_once_than_allowed():
    handshakes, lock = Handshakes(per_endpoint=3, overall=5), threading.Lock()
    now: dict[str, int] = {"a": 0, "b": 0}
    most: dict[str, int] = {"a": 0, "b": 0, "all": 0}

    def shake(name):
        with handshakes.turn(name):
            with lock:
                now[name] += 1
                most[name] = max(most[name], now[name])
                most["all"] = max(most["all"], sum(now.values()))
            meet.wait(0.02)
            with lock:
                now[name] -= 1

    meet = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(shake, ["a", "b"] * 20))
    assert most["a"] <= 3
    assert most["b"] <= 3
    assert most["all"] <= 5


class NoWait(threading.Event):
    """Counts the pauses instead of making them."""

    def __init__(self):
        super().__init__()
        self.pauses = []

    def wait(self, timeout=None):
        self.pauses.append(timeout)
        return False


def test_only_cut_handshakes_are_tried_again():
    outcomes = [HandshakeCut("cut"), HandshakeCut("cut"), "open"]

    def attempt():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    pauses = NoWait()
    assert retry_cut(attempt, pauses) == "open"
    assert len(pauses.pauses) == 2
    outcomes[:] = [ConnectFailed("refused"), "open"]
    with pytest.raises(ConnectFailed, match="refused"):
        retry_cut(attempt, pauses)
    outcomes[:] = [HandshakeCut("cut")] * 20
    with pytest.raises(HandshakeCut):
        retry_cut(attempt, pauses)
    assert len(outcomes) == 20 - ATTEMPTS


# sockets


def test_proxy_command_words():
    endpoint = Endpoint("10.0.0.1; rm -rf /", 2222, "bob")
    assert expand("nc %h %p # %r 100%% %x", endpoint) == "nc '10.0.0.1; rm -rf /' 2222 # bob 100% %x"


def test_descriptors_above_a_thousand_are_asked_too():
    """select() would fail on them, and the beats of every connection after the 1,000th would stop."""
    ours, theirs = socket.socketpair()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    high = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1500)
    with ours, theirs, socket.socket(fileno=high) as stream:
        assert can_write(stream.fileno())
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            send_for_ever(stream)
        assert not can_write(stream.fileno())
    assert not can_write(high)
    assert not can_write(-1)


def send_for_ever(stream):
    while True:
        stream.send(b"x" * 65536)


# text


@given(st.binary(max_size=200))
def test_shown_text_moves_no_cursor(data):
    assert printable(data).isprintable()
    assert last_words(data).isprintable()


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_a_tail_is_the_end(parts, limit):
    tail = Tail(limit)
    for part in parts:
        tail.add(part)
    assert tail.data == b"".join(parts)[-limit:]
    assert tail.total == sum(map(len, parts))


# the protocol client


class Silent:
    """A channel that gives chunks and then ends."""

    def __init__(self, chunks):
        self.chunks = list(chunks)
        self.closed = 0

    def receive(self, seconds):
        del seconds
        return (self.chunks.pop(0), b"", False) if self.chunks else (b"", b"", True)

    def close(self):
        self.closed += 1


def connection_over(chunks, rest=b""):
    return AgentConnection(
        "gpu01", Silent(chunks), rest=rest, silence=30, scrubber=Scrubber(), on_close=lambda one: None
    )


def pump_into(received, connection):
    while True:
        received += connection.pump(5)


def greet_and_pump(connection):
    connection.wait_for_hello(Deadline(5))
    pump_into([], connection)


HELLO = b'{"type":"hello","protocol":1}\n'
messages = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("record"), "record": st.dictionaries(st.text(max_size=5), st.text(max_size=9))}
    ),
    max_size=6,
)


@given(messages, st.data())
def test_messages_arrive_whole_and_in_order_however_they_are_split(sent, data):
    wire = HELLO + b"".join(protocol.encode(message) + b'{"type":"beat"}\n' for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    parts = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    connection = connection_over(parts[1:], rest=parts[0])
    connection.wait_for_hello(Deadline(5))
    received = []
    with pytest.raises(ConnectionLost):
        pump_into(received, connection)
    assert received == sent


@given(st.binary(max_size=200))
def test_any_bytes_give_an_error_of_that_host_and_never_a_bug(data):
    connection = connection_over([data])
    with pytest.raises(HostUnreachable) as caught:
        greet_and_pump(connection)
    assert caught.value.host == "gpu01"
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize(
    "first", [{"type": "record", "record": {}}, {"type": "hello", "protocol": 9}, {"type": "hello"}]
)
def test_a_wrong_beginning(first):
    connection = connection_over([json.dumps(first).encode() + b"\n"])
    with pytest.raises(ProtocolError):
        connection.wait_for_hello(Deadline(5))


def test_what_came_before_a_fault_is_not_lost():
    record = {"type": "record", "record": {"seq": 1}}
    connection = connection_over([HELLO + protocol.encode(record) + b"garbage\n"])
    connection.wait_for_hello(Deadline(5))
    assert connection.pump(1) == [record]
    with pytest.raises(ProtocolError):
        connection.pump(1)


def test_close_is_once():
    connection = connection_over([])
    connection.close()
    connection.close()
    assert connection._channel.closed == 1
    with pytest.raises(ConnectionLost, match="closed here"):
        connection.request("echo", {})
