"""The conversation before the protocol: sudo's prompt, the ready marker, the bundle.

Nothing is written to the host's standard input before sudo's own random prompt came on its standard
error, or the marker on its standard output: a profile that reads standard input cannot swallow a
password or a plan. Up to 1 MiB of noise on either stream is ignored.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import HostUnreachable, ProtocolError, PythonMissing
from fleet.transport import escalation, python_install, stage
from fleet.transport.bundle import Bundle
from fleet.transport.channel import Channel, ChannelClosed
from fleet.transport.clock import Deadline
from fleet.transport.text import NOISE_LIMIT, last_words, printable

INSTALL_SECONDS = 900.0
LONGEST_MARK = 4096

Opener = Callable[[str], Channel]


class Bootstrapped:
    """An agent that has started: its channel, and the protocol's first bytes if some came already."""

    def __init__(self, channel: Channel, rest: bytes) -> None:
        self.channel = channel
        self.rest = rest


def bootstrap(
    open_channel: Opener, settings: ConnectionSettings, bundle: Bundle, *, install: bool
) -> Bootstrapped:
    """Start the agent by one exec; with ``install``, install Python if that is what is missing.

    Raises BecomeFailed, PythonMissing or ProtocolError; no channel is open then.
    """
    try:
        return _start(open_channel, settings, bundle)
    except _NoPython as missing:
        command = python_install.install_command(missing.distribution)
        if not install or command is None:
            raise missing.error(settings.python) from None
        _install(open_channel, settings, command)
    try:
        return _start(open_channel, settings, bundle)
    except _NoPython as missing:
        raise missing.error(settings.python) from None


def _start(open_channel: Opener, settings: ConnectionSettings, bundle: Bundle) -> Bootstrapped:
    nonce = secrets.token_hex(12)
    command = stage.session_command(nonce, bundle, python=settings.python, become=become_user(settings))
    channel = open_channel(command)
    try:
        dialogue = _Dialogue(channel, settings, nonce, Deadline(settings.deadlines.hello))
        kind, words = dialogue.wait()
        if kind != "READY":
            raise _refusal(kind, words, dialogue)
        if words == ["0"]:
            dialogue.send(bundle.data)
        elif words != ["1"]:
            raise ProtocolError(f"a ready marker that says {printable(' '.join(words))!r}")
        return Bootstrapped(channel, dialogue.rest())
    except BaseException:
        channel.end()
        raise


def _install(open_channel: Opener, settings: ConnectionSettings, command: str) -> None:
    """Run ``command`` on the host; once more after a refresh of the package lists if it failed."""
    status, said = _run(open_channel, settings, command)
    refresh = python_install.refresh_command(command)
    if status != "0" and refresh:
        _run(open_channel, settings, refresh)
        status, said = _run(open_channel, settings, command)
    if status != "0":
        raise PythonMissing(
            f"{command} failed: {said or f'exit code {status}'}",
            remedy=f"run it on the host by hand: {command}",
        )


def _run(open_channel: Opener, settings: ConnectionSettings, command: str) -> tuple[str, str]:
    """(exit code, last words) of an installation command."""
    nonce = secrets.token_hex(12)
    channel = open_channel(stage.install_command(nonce, command, become=become_user(settings)))
    try:
        dialogue = _Dialogue(channel, settings, nonce, Deadline(INSTALL_SECONDS), drop_noise=True)
        kind, words = dialogue.wait()
        if kind != "INSTALLED":
            raise _refusal(kind, words, dialogue)
        return (words or ["?"])[0], last_words(bytes(dialogue.errors))
    finally:
        channel.end()


def become_user(settings: ConnectionSettings) -> str | None:
    """The user sudo must switch to, or None where that is who logs in anyway."""
    become = settings.become
    if not become.enabled or (not settings.local and become.user == settings.endpoint.user):
        return None
    return become.user


class _NoPython(Exception):
    """The host has no Python for the agent; caught in :func:`bootstrap`."""

    def __init__(self, distribution: list[str], unfit: list[tuple[str, str, str]]) -> None:
        super().__init__()
        self.distribution = distribution
        self.unfit = unfit

    def error(self, asked: str | None) -> PythonMissing:
        """The error for the operator, who asked for the interpreter ``asked`` (None: for any)."""
        return python_install.python_missing(self.distribution, self.unfit, asked)


class _Dialogue:
    """Reads both streams until the host has said one of our words; answers sudo's prompt once."""

    def __init__(
        self,
        channel: Channel,
        settings: ConnectionSettings,
        nonce: str,
        deadline: Deadline,
        *,
        drop_noise: bool = False,
    ) -> None:
        self._channel = channel
        self._become = settings.become
        self.escalating = become_user(settings) is not None
        self._deadline = deadline
        self._drop_noise = drop_noise
        self._out = bytearray()
        self.errors = bytearray()
        self._prompt = f"FLEET-SUDO-{nonce}".encode()
        self._mark = re.compile(rb"FLEET-([A-Z]+)-%s ?([^\n]*)\n" % nonce.encode())
        self._asked = 0
        self._asked_to = 0
        self._seen = 0
        self.unfit: list[tuple[str, str, str]] = []

    def wait(self) -> tuple[str, list[str]]:
        """(word, its arguments) of the mark that decides; ("", []) if the channel ended without one."""
        while True:
            out, err, ended = self._channel.receive(self._deadline.left())
            self._out += out
            self.errors += err
            mark = self._find_mark()
            if mark:
                return mark
            if err:
                self._answer_prompt()
            if ended:
                return "", []
            if len(self._out) > NOISE_LIMIT or len(self.errors) > NOISE_LIMIT:
                self._shorten()
            if self._deadline.passed:
                raise ProtocolError(
                    f"the agent was not ready in time{self.heard()}",
                    remedy="see what the login shell's start-up files do when there is no terminal",
                )

    def send(self, data: bytes) -> None:
        """Write to the host within the deadline."""
        try:
            self._channel.send(data, self._deadline)
        except TimeoutError:
            raise ProtocolError(
                "the host does not read what is sent to it", remedy="look at its load"
            ) from None
        except ChannelClosed:
            raise ProtocolError(f"the connection closed while the agent was sent{self.heard()}") from None

    def rest(self) -> bytes:
        """What came after the deciding mark."""
        return bytes(self._out[self._seen :])

    def heard(self) -> str:
        """The last words on either stream, for a message."""
        words = [last_words(bytes(part)[-4096:]) for part in (self._out, self.errors)]
        said = " / ".join(word for word in words if word)
        return f"; it said: {said}" if said else ""

    def _find_mark(self) -> tuple[str, list[str]] | None:
        while True:
            found = self._mark.search(self._out, self._seen)
            if not found:
                return None
            self._seen = found.end()
            kind = found.group(1).decode()
            words = found.group(2).decode("utf-8", "replace").split()
            if kind != "PYTHON":
                return kind, words
            if len(words) >= 3:
                self.unfit.append((words[0], words[1], " ".join(words[2:])))

    def _answer_prompt(self) -> None:
        """Give the password at the first prompt; a second one means that it was wrong."""
        while (at := self.errors.find(self._prompt, self._asked_to)) >= 0:
            self._asked_to = at + len(self._prompt)
            self._asked += 1
            if self._become.password is None:
                raise escalation.password_needed(self._become.user)
            if self._asked > 1:
                raise escalation.wrong_password(self._become.user)
            self.send(self._become.password.reveal().encode() + b"\n")

    def _shorten(self) -> None:
        """Too much noise: refuse it, or forget the older half while a package manager talks."""
        if not self._drop_noise:
            raise ProtocolError(
                f"more than {NOISE_LIMIT >> 20} MiB of noise before the agent was ready{self.heard()}",
                remedy="silence the login shell's start-up files where there is no terminal",
            )
        del self._out[:-LONGEST_MARK]
        self._seen = 0
        dropped = max(0, len(self.errors) - LONGEST_MARK)
        del self.errors[:dropped]
        self._asked_to = max(0, self._asked_to - dropped)


def _refusal(kind: str, words: list[str], dialogue: _Dialogue) -> HostUnreachable | _NoPython:
    """The error for a start that ended otherwise than ready."""
    if kind == "NOSUDO":
        return escalation.no_sudo()
    if kind == "NOPYTHON":
        return _NoPython(words, dialogue.unfit)
    errors = bytes(dialogue.errors)
    if re.search(rb"No module named|Unknown option: -I", errors):
        return PythonMissing(
            f"its Python is too old or incomplete: {last_words(errors, 1)}",
            remedy="install the full python3 (3.9 or later), or set ansible_python_interpreter",
        )
    if dialogue.escalating and (refused := escalation.explain(errors)):
        return refused
    return ProtocolError(
        f"the agent did not start{dialogue.heard()}",
        remedy="check that the login shell is a real one and that no ForceCommand is set for this user",
    )
