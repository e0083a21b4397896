"""The control socket of a live worker: one JSON line asks, one JSON line answers, then it closes.

``begin`` hands over the secrets (they go nowhere else), ``cancel`` asks for a stop at the next step
edge, ``ping`` asks who is there. The socket is root's alone twice over: its folder and its mode, and
the worker looks at the peer's user id.
"""

from __future__ import annotations

import os

from fleet.agent.protocol import LINE_LIMIT, FramingError, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Callable, Optional

    from fleet.agent.protocol import Json

_TIMEOUT_S = 10.0
_LONGEST_ADDRESS = 100


class NoWorker(Exception):
    """Nobody answers on the control socket."""


def ask(path: str, message: Json, *, timeout_s: float = _TIMEOUT_S) -> Json:
    """Send one message to the worker and return its answer. Raises :class:`NoWorker`."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout_s)
        try:
            with _Address(path) as address:
                connection.connect(address)
            connection.sendall(encode(message))
            line = _read_line(connection)
            if line is None:
                raise NoWorker("the worker closed the control socket without an answer")
            return decode(line)
        except (OSError, FramingError) as error:
            raise NoWorker("%s: %s" % (path, error)) from None


class ControlServer:
    """The worker's end: ``answer`` is called for each message, in the thread of :meth:`serve`."""

    def __init__(self, path: str) -> None:
        import socket

        self._path = path
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # the usual case: no worker died here before
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with _Address(path) as address:
            self._socket.bind(address)
        os.chmod(path, 0o600)
        self._socket.listen(8)
        self._socket.settimeout(0.25)

    def serve(self, answer: Callable[[Json], Json], idle: Callable[[], None]) -> None:
        """Answer for ever; ``idle`` is called several times a second in between."""
        while True:
            idle()
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if _timed_out(error):  # Python 3.9 has a timeout class of its own here
                    continue
                return  # closed: the worker is done
            with connection:
                connection.settimeout(_TIMEOUT_S)
                _serve_one(connection, answer)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._socket.close()
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return


def _timed_out(error: OSError) -> bool:
    import socket

    return isinstance(error, socket.timeout)


def _serve_one(connection: socket.socket, answer: Callable[[Json], Json]) -> None:
    """One question and its answer; a peer that is not our user, or talks nonsense, is just dropped."""
    if _peer_uid(connection) != os.geteuid():
        return
    try:
        line = _read_line(connection)
        if line is not None:
            connection.sendall(encode(answer(decode(line))))
    except (OSError, FramingError):
        return


def _peer_uid(connection: socket.socket) -> int:
    import socket
    import struct

    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", raw)[1]
    return uid


def _read_line(connection: socket.socket) -> Optional[bytes]:
    """The bytes up to a newline; None when the peer closed before one."""
    parts: list[bytes] = []
    size = 0
    while True:
        data = connection.recv(65536)
        if not data:
            return None
        head, newline, _ = data.partition(b"\n")
        parts.append(head)
        size += len(head)
        if size > LINE_LIMIT:
            raise FramingError("a line of more than %d bytes" % LINE_LIMIT)
        if newline:
            return b"".join(parts)


class _Address:
    """A socket address for ``path``, through /proc where the path is longer than an address may be."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder: Optional[int] = None

    def __enter__(self) -> str:
        if len(self._path.encode("utf-8", "surrogateescape")) <= _LONGEST_ADDRESS:
            return self._path
        folder, name = os.path.split(self._path)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return "/proc/self/fd/%d/%s" % (self._folder, name)

    def __exit__(self, *exception: object) -> None:
        if self._folder is not None:
            os.close(self._folder)
