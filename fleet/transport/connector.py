"""From settings to a connected agent. The order of things, each in its own file:

:mod:`fleet.transport.ssh` (bastions, handshake, host key, login) → :mod:`fleet.transport.bootstrap`
(sudo, Python, bundle) → :class:`fleet.transport.agent_connection.AgentConnection` (hello, requests).
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import ConnectionLost, HostError
from fleet.core.secret import Scrubber
from fleet.transport.agent_connection import AgentConnection
from fleet.transport.authentication import Identities
from fleet.transport.bootstrap import bootstrap
from fleet.transport.bundle import Bundle
from fleet.transport.channel import Channel, LocalChannel
from fleet.transport.clock import Deadline
from fleet.transport.handshakes import Handshakes
from fleet.transport.host_key import default_files
from fleet.transport.known_hosts import KnownHosts
from fleet.transport.ssh import Link, SshConnector
from fleet.transport.watch import Watch


class Connector:
    """Opens connections for a whole process and looks after them. Thread-safe; close it at the end.

    ``concurrency`` caps handshakes under way at once over all hosts, ``per_endpoint_handshakes`` those
    at one sshd. ``bundle``, ``watch``, ``home`` and ``environ`` are given by tests.
    """

    def __init__(
        self,
        scrubber: Scrubber,
        *,
        accept_new: bool = False,
        per_endpoint_handshakes: int = 8,
        concurrency: int = 32,
        bundle: Bundle | None = None,
        watch: Watch | None = None,
        home: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        home = home or Path.home()
        environ = os.environ if environ is None else environ
        _allow_many_descriptors()
        self._scrubber = scrubber
        self._watch = watch or Watch()
        self._bundle = bundle
        self._lock = threading.Lock()
        self._connections: set[AgentConnection] = set()
        self._starting: set[Link] = set()
        self._closed = False
        self._ssh = SshConnector(
            handshakes=Handshakes(per_endpoint_handshakes, concurrency),
            known_hosts=KnownHosts(),
            known_hosts_files=default_files(home),
            identities=Identities(environ.get("SSH_AUTH_SOCK") or None, home / ".ssh"),
            accept_new=accept_new,
            watch=self._watch,
        )

    def connect(self, settings: ConnectionSettings, *, install: bool = False) -> AgentConnection:
        """A connection whose agent has said hello. ``install``: install Python where it is missing.

        Raises the subclasses of HostUnreachable, with the host's name. Blocks for the handshake: call it
        from a bounded pool of threads.
        """
        self._register_secrets(settings)
        try:
            return self._connect(settings, install)
        except HostError as error:
            error.host = error.host or settings.name
            raise

    def close(self) -> None:
        """Close every connection, the bastions and the watch."""
        with self._lock:
            self._closed = True
            connections, starting = list(self._connections), list(self._starting)
        for link in starting:
            link.abort()
        for connection in connections:
            connection.close()
        self._ssh.close()
        self._watch.close()

    def _connect(self, settings: ConnectionSettings, install: bool) -> AgentConnection:
        bundle = self._the_bundle()
        seen_from: str | None = None
        if settings.local:
            started = bootstrap(LocalChannel, settings, bundle, install=install)
        else:
            link = self._ssh.open(settings)
            seen_from = link.local_address or (settings.jumps[-1].address if settings.jumps else None)

            def open_channel(command: str) -> Channel:
                return link.open_channel(command, settings.deadlines, self._watch)

            try:
                with self._while_starting(link):
                    started = bootstrap(open_channel, settings, bundle, install=install)
            except BaseException:
                link.close()
                raise
        connection = AgentConnection(
            settings.name,
            started.channel,
            rest=started.rest,
            silence=settings.deadlines.silence,
            scrubber=self._scrubber,
            on_close=self._forget,
            seen_from=seen_from,
        )
        return self._greet(connection, settings)

    def _greet(self, connection: AgentConnection, settings: ConnectionSettings) -> AgentConnection:
        with self._lock:
            self._connections.add(connection)
            closed = self._closed
        self._watch.add(connection)
        try:
            if closed:
                raise _stopping()
            connection.wait_for_hello(Deadline(settings.deadlines.hello))
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _while_starting(self, link: Link) -> Iterator[None]:
        """Let :meth:`close` cut ``link`` while its agent is being started."""
        with self._lock:
            if self._closed:
                raise _stopping()
            self._starting.add(link)
        try:
            yield
        finally:
            with self._lock:
                self._starting.discard(link)

    def _forget(self, connection: AgentConnection) -> None:
        self._watch.remove(connection)
        with self._lock:
            self._connections.discard(connection)

    def _the_bundle(self) -> Bundle:
        with self._lock:
            if self._bundle is None:
                self._bundle = Bundle.of_agent()
            return self._bundle

    def _register_secrets(self, settings: ConnectionSettings) -> None:
        endpoints = (settings.endpoint, *settings.jumps)
        found = [*(endpoint.password for endpoint in endpoints), settings.become.password]
        self._scrubber.add(*(secret for secret in found if secret is not None))


def _allow_many_descriptors() -> None:
    """Let this process open as many files as the system permits: the usual 1,024 is one host each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS refuses its own "unlimited"; the limit then stays, and is met with a clear OSError.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stopping() -> ConnectionLost:
    return ConnectionLost("fleet is stopping; nothing was begun on this host")
