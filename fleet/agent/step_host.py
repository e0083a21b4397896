"""A :class:`Host` for one step at a time: the user it runs as, its deadline, and what ends it early.

Commands keep their deadline themselves (:mod:`fleet.agent.process`). For everything else a step does
(the engine's socket, a network file system) an alarm raises :class:`DeadlineExpired` in the main thread.
"""

from __future__ import annotations

import signal
import time

from fleet.agent.host import Host
from fleet.agent.plans import DEADLINE_S
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, Callable, Optional

    from fleet.agent.process import Result
    from fleet.agent.protocol import Step

_LOOK_AGAIN_S = 0.5  # when the alarm finds a command that is ending on its own account


class DeadlineExpired(StepFailed):
    """The step's deadline passed outside of a command."""


class StepHost(Host):
    """The host as the current step sees it."""

    become_user: Optional[str] = None
    in_command = False

    def run(self, argv: Any, **options: Any) -> Result:
        """As :meth:`Host.run`, as the step's user unless another is asked for."""
        if options.get("user") is None:
            options["user"] = self.become_user
        self.in_command = True
        try:
            return super().run(argv, **options)
        finally:
            self.in_command = False


class Limits:
    """Around what a step does: sets the host's user and deadline, and the alarm if ``alarm``.

    Only the main thread may ask for the alarm; it raises when ``may_raise()`` says so.
    """

    def __init__(
        self, host: StepHost, step: Step, *, alarm: bool, may_raise: Callable[[], bool] = lambda: True
    ) -> None:
        self._host = host
        self._deadline_s = float(step.get("deadline_s") or DEADLINE_S)
        self._user = step.get("become_user")
        self._alarm = alarm
        self._may_raise = may_raise

    def __enter__(self) -> None:
        self._host.become_user = self._user if self._user != "root" else None
        self._host.step_ends = time.monotonic() + self._deadline_s
        if self._alarm:
            signal.signal(signal.SIGALRM, self._expire)
            signal.setitimer(signal.ITIMER_REAL, self._deadline_s)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._host.become_user = None
        self._host.step_ends = None

    def _expire(self, number: int, frame: Optional[FrameType]) -> None:
        if self._host.in_command or not self._may_raise():
            # A command is being ended by its own deadline; apt may be given long to do so.
            signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN_S)
            return
        raise DeadlineExpired(
            "the step was not done within its deadline of %g s" % self._deadline_s,
            "find out what it waits for on the host, or give the task a longer timeout",
        )
