"""Every error fleet raises on purpose, in one hierarchy, and the exit code each one means.

An error says what happened, where, and what to do next. Anything that is *not* a
:class:`FleetError` is a bug in fleet: the command line writes its traceback to the log and
exits 70 (see :mod:`fleet.cli.main`). A bug is never caught as a failure of a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The published exit codes. Where several apply, the first in :data:`PRECEDENCE` wins."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    FINDINGS = 4
    PENDING = 5
    BUG = 70
    INTERRUPTED = 130


PRECEDENCE: tuple[ExitCode, ...] = (
    ExitCode.INTERRUPTED,
    ExitCode.BUG,
    ExitCode.BAD_INPUT,
    ExitCode.FAILED,
    ExitCode.UNREACHABLE,
    ExitCode.PENDING,
    ExitCode.FINDINGS,
    ExitCode.DONE,
)


def overall(codes: Iterable[ExitCode]) -> ExitCode:
    """The one exit code for a run whose parts ended with ``codes`` (none: done)."""
    present = set(codes)
    return next((code for code in PRECEDENCE if code in present), ExitCode.DONE)


@dataclass(frozen=True, order=True)
class Position:
    """A place in a file the user wrote. Lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class FleetError(Exception):
    """What happened, where (a host, if any), and what to do next (``remedy``)."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, *, host: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.host = host
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.host}: {self.what}" if self.host else self.what
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


@dataclass(frozen=True)
class Problem:
    """One thing wrong with what the user gave, and where. ``position`` is None for command-line words."""

    position: Position | None
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message}" if self.position else self.message


class InputError(FleetError, ValueError):
    """Bad input of any kind: every problem found is listed, nothing was touched, exit 2."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, problems: Sequence[Problem] | str, *, remedy: str | None = None) -> None:
        if isinstance(problems, str):
            problems = [Problem(None, problems)]
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems), remedy=remedy)


class RefusedError(FleetError):
    """The whole run is refused before anything is touched (lab down, overlapping rollout …), exit 2."""

    exit_code = ExitCode.BAD_INPUT


class HostError(FleetError):
    """Something about one host. The others go on."""


class HostFailed(HostError):
    """A step, the agent or the report of this host failed."""


class HostBlocked(HostError):
    """Preflight refuses this host: nothing on it was touched. ``rule`` is the finding's id."""

    def __init__(self, what: str, *, rule: str, host: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what, host=host, remedy=remedy)
        self.rule = rule


class HostLocked(HostError):
    """Another run holds this host's lease; its id is ``run``."""

    def __init__(self, what: str, *, run: str, host: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what, host=host, remedy=remedy)
        self.run = run


class HostInterrupted(HostError):
    """A command that may not be repeated was running when its worker died: the operator must look."""


class HostPending(HostError):
    """The host waits for the operator's leave; ``remedy`` holds the command that goes on."""

    exit_code = ExitCode.PENDING


class HostUnreachable(HostError, ConnectionError):
    """No working agent could be had over SSH. Subclasses name the reason."""

    exit_code = ExitCode.UNREACHABLE


class ConnectFailed(HostUnreachable):
    """Name resolution, TCP, banner or key exchange failed within the deadline."""


class AuthenticationFailed(HostUnreachable):
    """sshd refused every key and password offered."""


class HostKeyMismatch(HostUnreachable):
    """The host's key is not the one on file. Both fingerprints are in the message."""


class HostKeyUnknown(HostUnreachable):
    """No key on file for this host and ``--accept-new`` was not given."""


class ConnectionLost(HostUnreachable):
    """An established connection went silent or closed and could not be restored."""


class BecomeFailed(HostUnreachable):
    """sudo refused: wrong password, password needed, or not permitted."""


class PythonMissing(HostUnreachable):
    """No Python the agent can run on; ``remedy`` is the command that installs one."""


class ProtocolError(HostUnreachable):
    """What came over the channel is not the protocol (garbage, too long, wrong version)."""


class ImageError(FleetError):
    """An image could not be inspected. Subclasses name the reason; ``what`` names registry or host."""


class ImageNotFound(ImageError):
    """The registry has no such image: a word of the command line, or of an inventory, is wrong."""

    exit_code = ExitCode.BAD_INPUT


class ImageDenied(ImageError):
    """The registry does not show it to whom fleet asks as."""


class RegistryUnreachable(ImageError, ConnectionError):
    """No answer, or none that is a registry's: name, network, certificate, limit."""

    exit_code = ExitCode.UNREACHABLE


class Interrupted(FleetError):
    """The operator pressed Ctrl-C; exit 130."""

    exit_code = ExitCode.INTERRUPTED
