"""The byte stream under SSH: a TCP connection, or a ProxyCommand; both with deadlines.

Tunnels through bastions are in :mod:`fleet.transport.ssh`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

from fleet.core.connection import Endpoint
from fleet.core.errors import ConnectFailed
from fleet.transport.clock import Deadline
from fleet.transport.text import last_words

Address = tuple[socket.AddressFamily, Any]


def connect_tcp(endpoint: Endpoint, deadline: Deadline, silence: float) -> socket.socket:
    """A TCP connection to ``endpoint``; tries each of its addresses. ConnectFailed says why not."""
    where = f"{endpoint.address}:{endpoint.port}"
    last: OSError | None = None
    for family, address in resolve(endpoint, deadline):
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            stream.settimeout(deadline.left())
            stream.connect(address)
            tune(stream, silence)
            return stream
        except OSError as error:
            stream.close()
            last = error
    raise ConnectFailed(f"cannot connect to {where}: {_why(last)}", remedy=_remedy(last, endpoint)) from last


def _why(error: OSError | None) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error)) if error else "it has no address"


def _remedy(error: OSError | None, endpoint: Endpoint) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on port {endpoint.port}: check ansible_port, and that sshd runs there"
    return "check that the host is up and that its address and the route to it are right"


_LABELS = re.compile(r"[0-9A-Za-z:%_.-]{1,253}")


def resolve(endpoint: Endpoint, deadline: Deadline) -> Sequence[Address]:
    """The addresses of ``endpoint``. The system's resolver has no deadline, so a thread waits for it."""
    result: list[Sequence[Address] | OSError] = []
    # For text Python loads its tables of Unicode names, a fiftieth of a second that ASCII does not need.
    address = endpoint.address
    name = address.encode() if address.isascii() and _LABELS.fullmatch(address) else address

    def look_up(flags: int = 0) -> None:
        try:
            found = socket.getaddrinfo(name, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
            result.append([(entry[0], entry[4]) for entry in found])
        except OSError as error:
            result.append(error)
        except UnicodeError as error:  # a label that is empty or too long
            result.append(OSError(None, str(error)))

    look_up(socket.AI_NUMERICHOST)
    if isinstance(result[0], OSError):
        result.clear()
        thread = threading.Thread(target=look_up, name=f"resolve {endpoint.address}", daemon=True)
        thread.start()
        thread.join(deadline.left())
    answer = result[0] if result else OSError(None, "the resolver did not answer in time")
    if isinstance(answer, OSError):
        raise ConnectFailed(
            f"cannot resolve {endpoint.address!r}: {answer.strerror or answer}",
            remedy="check the name, or give the host's address as ansible_host",
        )
    return answer


def tune(stream: socket.socket, silence: float) -> None:
    """Make the kernel notice a dead peer within ``silence`` seconds, and send small lines at once."""
    options = (
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", max(1, int(silence / 3))),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", max(1, int(silence / 6))),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", int(silence * 1000)),
    )
    for level, name, value in options:
        option = getattr(socket, name, None)  # macOS lacks some
        if option is not None:
            with contextlib.suppress(OSError):
                stream.setsockopt(level, option, value)


class ProxyCommand:
    """A ProxyCommand as a socket: the command's standard input and output are one end of a pair.

    Being a real socket it obeys timeouts and needs no thread. ``close`` ends the command's process group.
    """

    def __init__(self, template: str, endpoint: Endpoint, deadline: Deadline) -> None:
        self.command = expand(template, endpoint)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        self.stream, theirs = socket.socketpair()
        self.stream.settimeout(deadline.left())
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self.command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )

    def words(self) -> str:
        """What the command said on its standard error."""
        self._errors.seek(0)
        return last_words(self._errors.read(65536))

    def close(self) -> None:
        """End the command and everything it started."""
        self.stream.close()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._errors.close()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def expand(template: str, endpoint: Endpoint) -> str:
    """``%h``, ``%p``, ``%r`` and ``%%`` of a ProxyCommand; values are quoted for the shell if need be."""
    values = {"h": shlex.quote(endpoint.address), "p": str(endpoint.port), "r": shlex.quote(endpoint.user)}
    head, *parts = template.replace("%%", "\0").split("%")
    text = head + "".join(values.get(part[:1], "%" + part[:1]) + part[1:] for part in parts)
    return text.replace("\0", "%")
