"""One SSH connection from its settings: bastions, handshake, host key, login. By Fabric, made safe.

``fabric.Connection`` opens it, with a host key policy, a transport and a login of ours in place of
its own (which accepts any key, waits for ever in places and asks on the terminal); nothing else of
Fabric is used: no Runner, no environment, no terminal. docs/decisions/0002-transport.md has the list.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fabric
import paramiko

from fleet.core.connection import ConnectionSettings, Deadlines, Endpoint
from fleet.core.errors import ConnectFailed, HostUnreachable
from fleet.transport.authentication import Identities, KeyFiles, Login
from fleet.transport.channel import SshChannel, can_write
from fleet.transport.clock import Deadline
from fleet.transport.handshakes import HandshakeCut, Handshakes, retry_cut
from fleet.transport.host_key import HostKeyPolicyCheck
from fleet.transport.known_hosts import KnownHosts
from fleet.transport.sockets import ProxyCommand, connect_tcp
from fleet.transport.text import printable
from fleet.transport.watch import Watch

LOG = "fleet.transport.ssh"
# Without a handler Python prints a library's errors, with tracebacks, on the operator's screen.
logging.getLogger(LOG).addHandler(logging.NullHandler())

# How often an idle transport thread looks whether it should end; closing wakes it at once.
IDLE_POLL_SECONDS = 2.0

Stream = socket.socket | paramiko.Channel


class Link:
    """An open SSH connection and what it stands on. ``release`` gives back a bastion or a ProxyCommand."""

    def __init__(self, transport: paramiko.Transport, stream: Stream, release: Callable[[], None]) -> None:
        self.transport = transport
        self._stream = stream
        self._release = release
        self._lock = threading.Lock()
        self._closed = False
        stream.settimeout(IDLE_POLL_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether SSH thinks so; a silent peer is found out by the beats, not here."""
        return not self._closed and self.transport.is_active()

    @property
    def local_address(self) -> str | None:
        """This machine's address on a direct connection; None behind a bastion or a ProxyCommand."""
        stream = self._stream
        if not isinstance(stream, socket.socket) or stream.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        return str(stream.getsockname()[0])

    def writable(self) -> bool:
        """Whether a small write would not wait."""
        stream = self._stream
        if isinstance(stream, socket.socket):
            return can_write(stream.fileno())
        return stream.out_window_size > 1024

    def abort(self) -> None:
        """Cut the connection without waiting; :meth:`close` must still follow."""
        _cut(self._stream)

    def close(self) -> None:
        """Close it and wait for its thread to end."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.abort()  # first: it wakes the transport's thread, which paramiko's close does not
            self.transport.close()
            if self.transport.is_alive() and self.transport is not threading.current_thread():
                self.transport.join(5)
            _close_stream(self._stream)
        finally:
            self._release()

    def open_channel(self, command: str, deadlines: Deadlines, watch: Watch) -> SshChannel:
        """A session running ``command``. ConnectFailed when the server does not give one in time."""
        deadline = Deadline(deadlines.channel)
        with watch.guard(deadline, self.abort):
            try:
                channel = self.transport.open_session(timeout=deadline.left())
                opened = SshChannel(channel, self)
                channel.exec_command(command)  # paramiko waits for ever here, hence the guard
                return opened
            except (paramiko.SSHException, OSError, EOFError) as error:
                why = f"no answer within {deadlines.channel:.0f} s" if deadline.passed else _words(error)
                raise ConnectFailed(
                    f"logged in, but the server did not start a session: {why}",
                    remedy="check MaxSessions and ForceCommand in its sshd_config, and its load",
                ) from error


class _Transport(paramiko.Transport):
    """paramiko's transport, for a type of our own to hang per-connection settings on."""


@dataclass
class _Bastion:
    """One shared connection to a bastion, and how many connections go through it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    link: Link | None = None
    failures: int = 0
    failure: HostUnreachable | None = None


class SshConnector:
    """Opens :class:`Link` s. One per process: it holds the known hosts, keys, bastions and caps."""

    def __init__(
        self,
        *,
        handshakes: Handshakes,
        known_hosts: KnownHosts,
        known_hosts_files: tuple[Path, ...],
        identities: Identities,
        accept_new: bool,
        watch: Watch,
    ) -> None:
        self._handshakes = handshakes
        self._known = known_hosts
        self._files = known_hosts_files
        self._identities = identities
        self._accept_new = accept_new
        self._watch = watch
        self._keys = KeyFiles()
        self._lock = threading.Lock()
        self._bastions: dict[tuple[Endpoint, ...], _Bastion] = {}
        self._stopped = threading.Event()

    def open(self, settings: ConnectionSettings) -> Link:
        """A logged-in connection to ``settings.endpoint``, through its jumps or ProxyCommand."""
        if settings.proxy_command:
            return self._retry(lambda: self._open_by_command(settings))
        return self._retry(lambda: self._open_hop(settings.jumps, settings.endpoint, settings))

    def close(self) -> None:
        """Close the bastions. Connections through them should be closed before."""
        self._stopped.set()
        with self._lock:
            bastions = list(self._bastions.values())
            self._bastions.clear()
        for bastion in reversed(bastions):  # a bastion behind a bastion was added after it
            with bastion.lock:
                if bastion.link:
                    bastion.link.close()

    def _retry(self, attempt: Callable[[], Link]) -> Link:
        return retry_cut(attempt, self._stopped)

    def _open_hop(
        self, jumps: tuple[Endpoint, ...], endpoint: Endpoint, settings: ConnectionSettings
    ) -> Link:
        """One attempt at ``endpoint`` through ``jumps``; the bastion is ready before our turn begins."""
        bastion = self._bastion(jumps, settings) if jumps else None
        with self._handshakes.turn((endpoint.address, endpoint.port)):
            deadlines = settings.deadlines
            if bastion is None:
                stream: Stream = connect_tcp(endpoint, Deadline(deadlines.connect), deadlines.silence)
            else:
                stream = self._tunnel(bastion, jumps, endpoint, deadlines)
            return self._secure(stream, endpoint, settings, lambda: None)

    def _open_by_command(self, settings: ConnectionSettings) -> Link:
        template = settings.proxy_command or ""
        # The command most often is an ssh to one bastion, so all hosts with this line share its cap.
        with self._handshakes.turn(template):
            command = ProxyCommand(template, settings.endpoint, Deadline(settings.deadlines.connect))
            opened = False
            try:
                link = self._secure(command.stream, settings.endpoint, settings, command.close)
                opened = True
                return link
            except ConnectFailed as error:
                words = command.words()
                if not words:
                    raise
                # ssh's own words for MaxStartups; other words mean that another try is no use.
                cut = isinstance(error, HandshakeCut) and re.search(
                    "kex_exchange|reset|closed by remote", words
                )
                kind = HandshakeCut if cut else ConnectFailed
                raise kind(f"{error.what}; the ProxyCommand said: {words}", remedy=error.remedy) from error
            finally:
                if not opened:
                    command.close()

    def _bastion(self, jumps: tuple[Endpoint, ...], settings: ConnectionSettings) -> Link:
        """The shared connection to the last of ``jumps``, made or made again if need be."""
        with self._lock:
            bastion = self._bastions.setdefault(jumps, _Bastion())
            seen = bastion.failures
        with bastion.lock:
            if bastion.link and bastion.link.alive:
                return bastion.link
            if bastion.failure and bastion.failures > seen:
                # It failed while we waited: the same answer, rather than one time-out after the other.
                raise type(bastion.failure)(bastion.failure.what, remedy=bastion.failure.remedy)
            if bastion.link:
                bastion.link.close()
                bastion.link = None
            try:
                bastion.link = self._retry(lambda: self._open_hop(jumps[:-1], jumps[-1], settings))
            except HostUnreachable as error:
                bastion.failures += 1
                # A cut handshake was tried again already; its targets must not do so once more each.
                kind = ConnectFailed if isinstance(error, HandshakeCut) else type(error)
                bastion.failure = kind(f"bastion {jumps[-1].shown}: {error.what}", remedy=error.remedy)
                raise bastion.failure from error
            return bastion.link

    def _tunnel(
        self, bastion: Link, jumps: tuple[Endpoint, ...], endpoint: Endpoint, deadlines: Deadlines
    ) -> paramiko.Channel:
        deadline = Deadline(deadlines.channel)
        try:
            return bastion.transport.open_channel(
                "direct-tcpip", (endpoint.address, endpoint.port), ("", 0), timeout=deadline.left()
            )
        except paramiko.ChannelException as error:
            why, remedy = _tunnel_refused(error)
        except (paramiko.SSHException, OSError, EOFError) as error:
            why = f"no answer within {deadlines.channel:.0f} s" if deadline.passed else _words(error)
            remedy = "check that the host is up and that the bastion can reach it"
            if deadline.passed and not self._answers(bastion, deadlines):
                bastion.close()
                why = "the bastion itself no longer answers"
        raise ConnectFailed(
            f"bastion {jumps[-1].shown} cannot reach {endpoint.address}:{endpoint.port}: {why}", remedy=remedy
        )

    def _answers(self, bastion: Link, deadlines: Deadlines) -> bool:
        """Whether the bastion still answers anything; a refusal is an answer."""
        try:
            bastion.transport.open_session(timeout=min(5.0, deadlines.channel)).close()
        except paramiko.ChannelException:
            return True
        except (paramiko.SSHException, OSError, EOFError):
            return False
        return True

    def _secure(
        self, stream: Stream, endpoint: Endpoint, settings: ConnectionSettings, release: Callable[[], None]
    ) -> Link:
        """Handshake, host key and login over ``stream``, which is closed if any of them fails."""
        deadlines = settings.deadlines
        deadline = Deadline(2 * deadlines.banner + deadlines.authentication)
        check = HostKeyPolicyCheck(
            endpoint, settings.name, self._known, self._files, accept_new=self._accept_new
        )
        login = Login(endpoint, settings.name, self._identities, self._keys, deadlines.authentication)
        connection = self._fabric_connection(stream, endpoint, deadlines, check, login)
        try:
            with self._watch.guard(deadline, lambda: _cut(stream)):
                connection.open()
            return Link(connection.transport, stream, release)
        except (paramiko.SSHException, OSError, EOFError) as error:
            _discard(connection, stream)
            if isinstance(error, HostUnreachable):  # also a ConnectionError, hence an OSError
                raise
            raise _explain(error, endpoint, deadlines, deadline) from error
        except BaseException:
            _discard(connection, stream)
            raise

    def _fabric_connection(
        self,
        stream: Stream,
        endpoint: Endpoint,
        deadlines: Deadlines,
        check: HostKeyPolicyCheck,
        login: Login,
    ) -> Any:
        """A fabric.Connection, not yet open, with everything unsafe or unbounded in it replaced."""

        def transport(sock: Stream, **options: Any) -> paramiko.Transport:
            made = _Transport(sock, **options)
            made.handshake_timeout = deadlines.banner
            security = made.get_security_options()
            security.key_types = check.preferred(list(security.key_types))
            return made

        connection = fabric.Connection(
            endpoint.address,
            user=endpoint.user,
            port=endpoint.port,
            # An empty ssh_config and lazy: nothing is read from files, nothing shared gets mutated.
            config=fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True),
            forward_agent=False,
            connect_kwargs={
                "sock": stream,
                "timeout": 2 * deadlines.banner,
                "banner_timeout": deadlines.banner,
                "auth_timeout": deadlines.authentication,
                "channel_timeout": deadlines.channel,
                "transport_factory": transport,
                "auth_strategy": login,
            },
        )
        connection.client.set_missing_host_key_policy(check)
        connection.client.set_log_channel(LOG)
        return connection


def _cut(stream: Stream) -> None:
    """End ``stream`` without waiting; whoever reads it wakes."""
    if isinstance(stream, socket.socket):
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
    elif not stream.closed:  # closing a tunnel writes to the bastion, which may be what hangs
        threading.Thread(target=_close_tunnel, args=(stream,), name="cut tunnel", daemon=True).start()


def _close_stream(stream: Stream) -> None:
    if isinstance(stream, socket.socket):
        stream.close()
    else:
        _close_tunnel(stream)


def _close_tunnel(stream: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the bastion is gone already
        stream.close()


def _discard(connection: Any, stream: Stream) -> None:
    """End a half-made connection: its transport's thread and its stream."""
    transport = connection.client.get_transport()
    _cut(stream)
    connection.client.close()
    if transport is not None and transport.is_alive():
        transport.join(5)
    _close_stream(stream)


def _explain(
    error: BaseException, endpoint: Endpoint, deadlines: Deadlines, deadline: Deadline
) -> ConnectFailed:
    """What a failed handshake means; a cut one may be tried again."""
    where = f"{endpoint.address}:{endpoint.port}"
    text, cause = str(error), error.__context__
    busy = "check that this is an SSH server, its load, and MaxStartups in its sshd_config"
    if isinstance(cause, TimeoutError) and "banner" in text:
        return ConnectFailed(f"{where} did not show an SSH banner in {deadlines.banner:.0f} s", remedy=busy)
    if deadline.passed or "No existing session" in text:
        return ConnectFailed(f"the SSH handshake with {where} was not done in time", remedy=busy)
    cut = isinstance(error, (EOFError, ConnectionResetError, BrokenPipeError))
    if cut or "protocol banner" in text or "Negotiation failed" in text:
        return HandshakeCut(f"{where} closed the connection before the SSH handshake was done", remedy=busy)
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return ConnectFailed(
            f"no SSH algorithm in common with {where}: {printable(text)}",
            remedy="update the host's OpenSSH, or its KexAlgorithms and HostKeyAlgorithms",
        )
    return ConnectFailed(f"the SSH handshake with {where} failed: {_words(error)}", remedy=busy)


def _tunnel_refused(error: paramiko.ChannelException) -> tuple[str, str]:
    """(why, remedy) for a bastion's refusal to open a tunnel."""
    if error.code == 1:
        return "it does not forward connections", "set AllowTcpForwarding yes in the bastion's sshd_config"
    return printable(str(error.text)), "check the host's address as seen from the bastion, and that it is up"


def _words(error: BaseException) -> str:
    return printable(str(error)) or type(error).__name__
