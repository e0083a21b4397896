"""A started agent: requests and answers, streamed records, beats; the controller's end of the wire.

No thread belongs to a connection. Whoever calls :meth:`AgentConnection.pump` or
:meth:`AgentConnection.request` reads the channel; several threads may call at once, one of them reads
for all. Beats are sent by the :class:`fleet.transport.watch.Watch`, which also declares the peer lost.
Everything that arrives is data from a machine that may be broken or hostile: it is bounded, and
whatever is not the protocol costs this host only.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from fleet.agent import protocol
from fleet.core.errors import ConnectionLost, HostError, HostFailed, HostUnreachable, ProtocolError
from fleet.core.secret import Scrubber, Secret
from fleet.transport.answers import error_of
from fleet.transport.channel import Channel, ChannelClosed
from fleet.transport.clock import Deadline
from fleet.transport.text import Tail, last_words, printable

Message = dict[str, Any]
BACKLOG_LIMIT = 64 * 1024 * 1024
WRITE_SECONDS = 30.0
BEAT = protocol.encode({"type": "beat"})
STREAMED = frozenset({"record", "output", "idle"})


class AgentConnection:
    """One connected host. ``hello`` is what its agent said first; ``name`` the inventory's name.

    ``seen_from`` is the address the host sees the connection come from (this machine's, or the last
    bastion's as the inventory has it), as far as it can be told from here; else None.
    """

    def __init__(
        self,
        name: str,
        channel: Channel,
        *,
        rest: bytes,
        silence: float,
        scrubber: Scrubber,
        on_close: Callable[[AgentConnection], None],
        seen_from: str | None = None,
    ) -> None:
        self.name = name
        self.seen_from = seen_from
        self.hello: Message = {}
        self.clock_jumped = False
        self._channel = channel
        self._silence = silence
        self._beat_every = min(protocol.BEAT_SECONDS, silence / 3)
        self._scrubber = scrubber
        self._on_close = on_close
        self._lines = protocol.LineBuffer()
        self._errors = Tail()
        self._state = threading.Condition()
        self._reading = False
        self._writing = threading.Lock()
        self._inbox: deque[tuple[Message, int]] = deque()
        self._backlog = 0
        self._answers: dict[int, Message] = {}
        self._waiting: set[int] = set()
        self._last_id = 0
        self._sent_at = time.monotonic()
        self._failure: HostError | None = None
        self._closed = False
        self._take(rest)

    def __repr__(self) -> str:
        return f"<AgentConnection {self.name} {'alive' if self.alive else 'closed'}>"

    @property
    def alive(self) -> bool:
        """Whether requests can still be made, as far as is known now."""
        return self._failure is None and not self._closed

    def wait_for_hello(self, deadline: Deadline) -> None:
        """Read the agent's first message into ``hello`` and check that we speak its protocol."""
        while not self._inbox:
            if deadline.passed:
                raise self._fail(ProtocolError("the agent started but did not say hello in time"))
            self._turn(deadline, lambda: bool(self._inbox))
        hello = self._pop()
        if hello["type"] != "hello":
            raise self._fail(ProtocolError(f"the agent began with {printable(hello['type'])!r}, not hello"))
        spoken = hello.get("protocol")
        if spoken not in (protocol.PROTOCOL, protocol.PROTOCOL - 1):
            raise self._fail(
                ProtocolError(
                    f"the agent speaks protocol {printable(str(spoken))}, this fleet {protocol.PROTOCOL}",
                    remedy="use the fleet version that started this host's run, or a newer one",
                )
            )
        self.hello = hello

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        secrets_in: bool = False,
        deadline_s: float = 60.0,
        on_message: Callable[[Message], None] | None = None,
    ) -> Any:
        """The agent's answer to ``method``; raises the error it answers with, as fleet.core.errors has it.

        ``secrets_in``: ``params["secrets"]`` holds values that every sink must scrub from now on.
        ``on_message`` gets the records and outputs that arrive meanwhile (in the calling thread); without
        it they wait for :meth:`pump`. HostFailed when there is no answer within ``deadline_s`` seconds.
        """
        params = dict(params or {})
        if secrets_in:
            secrets = params.get("secrets", {})
            self._scrubber.add(*(Secret(value, name) for name, value in secrets.items()))
        deadline = Deadline(deadline_s)
        number = self._send_request(method, params, deadline)
        try:
            while not deadline.passed:
                if on_message:
                    for message in self._drain():
                        on_message(message)
                answer = self._turn(
                    deadline, lambda: self._answers.get(number), wake_for_inbox=bool(on_message)
                )
                if answer is not None:
                    if on_message:  # what the agent said before it answered comes first
                        for message in self._drain():
                            on_message(message)
                    return self._result(method, answer)
        finally:
            with self._state:
                self._waiting.discard(number)
                self._answers.pop(number, None)
        raise HostFailed(
            f"the agent lives but did not answer {method!r} within {deadline_s:.0f} s",
            host=self.name,
            remedy="look at the host's load and disks (a hung file system?), then run again",
        )

    def pump(self, seconds: float) -> list[Message]:
        """Messages streamed by the agent (``record`` and ``output``): those there are, else wait for some.

        Returns an empty list after ``seconds`` without any. Raises ConnectionLost or ProtocolError.
        """
        messages = self._drain()
        if not messages:
            self._turn(Deadline(seconds), lambda: bool(self._inbox))
            messages = self._drain()
        return messages

    def stream(self, on_record: Callable[[Message], None], *, deadline_s: float) -> Message:
        """Pass on journal records until a segment's ``end``, which is passed on and returned too.

        HostFailed when there is none within ``deadline_s`` seconds.
        """
        deadline = Deadline(deadline_s)
        while not deadline.passed:
            for message in self.pump(deadline.left(1.0)):
                record = message.get("record")
                if message["type"] != "record" or not isinstance(record, dict):
                    continue
                on_record(record)
                if record.get("kind") == "end":
                    return record
        raise HostFailed(
            f"the host's work was not done within {deadline_s:.0f} s",
            host=self.name,
            remedy="it goes on by itself: fleet resume RUN",
        )

    def beat(self) -> None:
        """Send a beat if one is due and can be sent without waiting."""
        if time.monotonic() - self._sent_at < self._beat_every or not self._writing.acquire(blocking=False):
            return
        try:
            if self._channel.can_send(len(BEAT)):
                self._channel.send(BEAT, Deadline(1.0))
                self._sent_at = time.monotonic()
        except (ChannelClosed, TimeoutError):
            pass  # a closed channel is told to whoever reads, a stuck one by the silence that follows
        finally:
            self._writing.release()

    def tick(self) -> None:
        """Called by the watch: beat, and give up if there was no sign of life for too long."""
        if not self.alive:
            return
        silent = time.monotonic() - self._channel.heard_at()
        if silent >= self._silence:
            self._lose(
                ConnectionLost(
                    f"no sign of life for {self._silence:.0f} s",
                    remedy="work that had begun on the host goes on: fleet resume RUN",
                )
            )
        else:
            self.beat()

    def controller_slept(self, seconds: float) -> None:
        """Called by the watch: we were away, so the agent has hung up. The host did nothing wrong."""
        self.clock_jumped = True
        self._lose(
            ConnectionLost(
                f"this machine was asleep, or its clock jumped, for {seconds:.0f} s",
                remedy="work that had begun on the host goes on: fleet resume RUN",
            )
        )

    def close(self) -> None:
        """Hang up and give back threads and descriptors. Work that has begun on the host goes on."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            self._state.notify_all()
        self._on_close(self)
        self._channel.close()

    def _send_request(self, method: str, params: Message, deadline: Deadline) -> int:
        self._raise_failure()
        with self._state:
            self._last_id += 1
            number = self._last_id
            self._waiting.add(number)
        line = protocol.encode({"type": "request", "id": number, "method": method, "params": params})
        if not self._writing.acquire(timeout=deadline.left()):
            raise HostFailed(
                f"another request was still being sent when {method!r} ran out of time", host=self.name
            )
        try:
            # Large plans may take long on slow lines, so only a line that stands still is an error.
            self._send_all(line)
            self._sent_at = time.monotonic()
        except TimeoutError:
            self._lose(ConnectionLost("the host does not read what is sent to it", remedy="look at its load"))
        except ChannelClosed:
            self._keep(self._ended())
        finally:
            self._writing.release()
        self._raise_failure()
        return number

    def _send_all(self, line: bytes) -> None:
        for start in range(0, len(line), 262144):
            self._channel.send(line[start : start + 262144], Deadline(WRITE_SECONDS))

    def _turn(self, deadline: Deadline, ready: Callable[[], Any], *, wake_for_inbox: bool = False) -> Any:
        """``ready()`` once it is true; reads the channel for that unless another thread does already.

        Returns a false value when the deadline passes, or on messages with ``wake_for_inbox``.
        """
        while True:
            with self._state:
                while True:
                    found = ready()
                    if found or deadline.passed or (wake_for_inbox and self._inbox):
                        return found
                    self._raise_failure()
                    if not self._reading:
                        self._reading = True
                        break
                    self._state.wait(deadline.left())
            try:
                self._read(deadline)
            finally:
                with self._state:
                    self._reading = False
                    self._state.notify_all()

    def _read(self, deadline: Deadline) -> None:
        """Wait for bytes and take them in. Failures are kept, to be raised to every caller."""
        out, err, ended = self._channel.receive(deadline.left())
        self._errors.add(err)
        self._take(out)
        if ended:
            self._keep(self._ended())

    def _take(self, data: bytes) -> None:
        if not data:
            return
        try:
            for line in self._lines.feed(data):
                self._sort(protocol.decode(line), len(line), line)
        except protocol.FramingError as error:
            self._keep(ProtocolError(f"{error}; it began: {printable(data)!r}", remedy=_GARBAGE))

    def _sort(self, message: Message, size: int, line: bytes) -> None:
        """Put a message where it is waited for."""
        kind = message["type"]
        if kind == "beat":
            return
        with self._state:
            if kind == "response":
                number = message.get("id")
                if not isinstance(number, int) or not 0 < number <= self._last_id:
                    raise protocol.FramingError("an answer to a question that was not asked")
                if number in self._waiting:
                    self._answers[number] = message
                return
            if kind not in STREAMED and (kind != "hello" or self.hello):
                raise protocol.FramingError(f"a message of unknown type {printable(kind, 40)!r}")
            self._inbox.append((message, size))
            self._backlog += size
        if self._backlog > BACKLOG_LIMIT:
            raise protocol.FramingError(f"more than {BACKLOG_LIMIT >> 20} MiB of messages nobody asked for")

    def _drain(self) -> list[Message]:
        """What has arrived; a failure is raised only once everything before it was taken."""
        with self._state:
            messages = [message for message, _ in self._inbox]
            self._inbox.clear()
            self._backlog = 0
        if not messages:
            self._raise_failure()
        return messages

    def _pop(self) -> Message:
        with self._state:
            message, size = self._inbox.popleft()
            self._backlog -= size
            return message

    def _result(self, method: str, answer: Message) -> Any:
        error = answer.get("error")
        if error is None:
            return answer.get("result")
        if not isinstance(error, dict):
            raise self._fail(ProtocolError(f"the answer to {method!r} has an error that is no object"))
        raise error_of(self.name, method, error, self._scrubber)

    def _ended(self) -> HostUnreachable:
        said = self._scrubber(last_words(self._errors.data))
        if said and not self.hello:
            return ProtocolError(
                f"the agent broke off before it said hello; it said: {said}",
                remedy="run fleet agent probe there by hand, and report it if this is a bug in fleet",
            )
        return ConnectionLost(
            "the agent's connection closed" + (f"; it said: {said}" if said else ""),
            remedy="work that had begun on the host goes on: fleet resume RUN",
        )

    def _keep(self, failure: HostUnreachable) -> None:
        """Remember the first failure and wake everybody."""
        failure.host = self.name
        with self._state:
            self._failure = self._failure or failure
            self._state.notify_all()

    def _fail(self, failure: HostUnreachable) -> HostError:
        """Keep ``failure``; returns the first one kept, which is the reason for the others."""
        self._keep(failure)
        return self._copy()

    def _lose(self, failure: ConnectionLost) -> None:
        self._keep(failure)
        self._channel.abort()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._copy()
        if self._closed:
            raise ConnectionLost("the connection was closed here", host=self.name)

    def _copy(self) -> HostError:
        """A fresh exception each time: several threads may raise it, each adding its own traceback."""
        kept = self._failure
        assert kept is not None
        return type(kept)(kept.what, host=kept.host, remedy=kept.remedy)


_GARBAGE = "something on the host writes to the agent's output; run fleet agent probe there by hand"
