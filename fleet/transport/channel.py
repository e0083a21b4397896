"""The two streams to and from the agent's process, over SSH or on this machine.

Everything above this file (sudo, ready marker, protocol) knows only :class:`Channel`, so another
SSH library can take paramiko's place here and in :mod:`fleet.transport.ssh`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from typing import IO, Protocol

import paramiko

from fleet.transport.clock import Deadline

CHUNK = 65536
PIECE = 32 * 1024


def can_write(descriptor: int, seconds: float = 0) -> bool:
    """Whether ``descriptor`` takes bytes within ``seconds``. poll, since select fails above 1,023."""
    return _poll({descriptor: select.POLLOUT}, seconds) != []


def _poll(wanted: dict[int, int], seconds: float) -> list[int]:
    """The descriptors that are ready, or at their end; none of those that are closed here."""
    poll = select.poll()
    for descriptor, events in wanted.items():
        if descriptor >= 0:
            poll.register(descriptor, events)
    return [descriptor for descriptor, event in poll.poll(seconds * 1000) if not event & select.POLLNVAL]


class ChannelClosed(Exception):
    """Nothing more can be written: the other end is gone."""


class Channel(Protocol):
    """Bytes in, bytes out, bytes of the error stream; every wait has a deadline.

    One thread receives at a time and one sends at a time; these may be different threads.
    """

    def receive(self, seconds: float) -> tuple[bytes, bytes, bool]:
        """(standard output, standard error, ended): as soon as there is any, or nothing after ``seconds``."""

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``. TimeoutError if the peer does not read in time, ChannelClosed if gone."""

    def can_send(self, size: int) -> bool:
        """Whether ``size`` bytes can be written now without waiting."""

    def heard_at(self) -> float:
        """When bytes last arrived, read or not, by the monotonic clock."""

    def abort(self) -> None:
        """Cut the connection without waiting: blocked calls in other threads end."""

    def end(self) -> None:
        """End the process only; another channel can be had over the same connection."""

    def close(self) -> None:
        """End the process and the connection; give back threads and descriptors."""


class _Arrival(threading.Event):
    """Tells one waiter that either of a channel's two buffers got something, and remembers when.

    paramiko clears a buffer's event whenever that buffer is drained, which would hide news of the
    other one; so its ``clear`` does nothing and the reader rearms before it looks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = time.monotonic()

    def set(self) -> None:
        self.at = time.monotonic()
        super().set()

    def clear(self) -> None:
        pass

    def rearm(self) -> None:
        """Forget earlier news. Look at both buffers after this, then wait."""
        super().clear()


class SshChannel:
    """A session channel of a paramiko transport running one command. No thread of its own."""

    def __init__(self, channel: paramiko.Channel, link: Closable) -> None:
        self._channel = channel
        self._link = link
        self._arrival = _Arrival()
        channel.in_buffer.set_event(self._arrival)
        channel.in_stderr_buffer.set_event(self._arrival)

    def receive(self, seconds: float) -> tuple[bytes, bytes, bool]:
        """See :class:`Channel`."""
        deadline = Deadline(seconds)
        channel = self._channel
        while True:
            self._arrival.rearm()
            ended = bool(channel.closed or channel.eof_received)  # before looking: data may precede it
            out = channel.recv(CHUNK) if channel.recv_ready() else b""
            err = channel.recv_stderr(CHUNK) if channel.recv_stderr_ready() else b""
            if out or err or ended:
                return out, err, ended and not (out or err)
            if deadline.passed:
                return b"", b"", False
            self._arrival.wait(deadline.left())

    def send(self, data: bytes, deadline: Deadline) -> None:
        """See :class:`Channel`."""
        view = memoryview(data)
        while view:
            if deadline.passed:
                raise TimeoutError
            self._channel.settimeout(deadline.left())
            try:
                sent = self._channel.send(bytes(view[:PIECE]))
            except TimeoutError:
                raise
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise ChannelClosed from error
            if not sent:
                raise ChannelClosed
            view = view[sent:]

    def can_send(self, size: int) -> bool:
        """See :class:`Channel`. Looks at the SSH window and at the kernel's buffer."""
        return self._channel.out_window_size >= size and self._link.writable()

    def heard_at(self) -> float:
        """See :class:`Channel`."""
        return self._arrival.at

    def abort(self) -> None:
        """See :class:`Channel`."""
        self._link.abort()

    def end(self) -> None:
        """See :class:`Channel`."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # it is gone already
            self._channel.close()

    def close(self) -> None:
        """See :class:`Channel`."""
        self._link.close()


class Closable(Protocol):
    """What an :class:`SshChannel` needs of the connection under it."""

    def writable(self) -> bool:
        """Whether a small write would not wait."""

    def abort(self) -> None:
        """Cut it without waiting."""

    def close(self) -> None:
        """Close it and what it stands on."""


class LocalChannel:
    """The agent as a child process of this one, for ``ansible_connection: local``."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._input, self._output, self._errors = (
            _not_none(self._process.stdin),
            _not_none(self._process.stdout),
            _not_none(self._process.stderr),
        )
        os.set_blocking(self._input.fileno(), False)
        self._open = {self._output.fileno(), self._errors.fileno()}
        self._heard_at = time.monotonic()
        self._aborted = threading.Event()

    def receive(self, seconds: float) -> tuple[bytes, bytes, bool]:
        """See :class:`Channel`. An abort is seen within a quarter of a second."""
        deadline = Deadline(seconds)
        while self._open and not self._aborted.is_set():
            ready = _poll(dict.fromkeys(self._open, select.POLLIN), deadline.left(0.25))
            parts = {descriptor: os.read(descriptor, CHUNK) for descriptor in ready}
            self._open -= {descriptor for descriptor, data in parts.items() if not data}
            out = parts.get(self._output.fileno(), b"")
            err = parts.get(self._errors.fileno(), b"")
            if out or err:
                self._heard_at = time.monotonic()
                return out, err, False
            if deadline.passed:
                return b"", b"", False
        return b"", b"", True

    def send(self, data: bytes, deadline: Deadline) -> None:
        """See :class:`Channel`."""
        view = memoryview(data)
        while view:
            if self._aborted.is_set():
                raise ChannelClosed
            if not self.can_send(1, deadline.left(0.25)):
                if deadline.passed:
                    raise TimeoutError
                continue
            try:
                view = view[os.write(self._input.fileno(), view[:PIECE]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed from error

    def can_send(self, size: int, seconds: float = 0) -> bool:
        """See :class:`Channel`; a pipe that polls writable takes at least a page."""
        del size
        return not self._input.closed and can_write(self._input.fileno(), seconds)

    def heard_at(self) -> float:
        """See :class:`Channel`."""
        if _poll(dict.fromkeys(self._open, select.POLLIN), 0):
            return time.monotonic()
        return self._heard_at

    def abort(self) -> None:
        """See :class:`Channel`. Kills the process group, as a cut connection would end a session."""
        self._aborted.set()
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def end(self) -> None:
        """See :class:`Channel`."""
        self.close()

    def close(self) -> None:
        """See :class:`Channel`. End of input lets the agent leave by itself first."""
        if self._input.closed:
            return
        self._input.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self.abort()
            self._process.wait(5)
        self._aborted.set()
        self._open = set()
        self._output.close()
        self._errors.close()


def _not_none(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # asked for as PIPE
    return stream
