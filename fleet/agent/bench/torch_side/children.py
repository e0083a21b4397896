"""Children of a run: one per GPU, or the ranks of a collective. None outlives its parent.

Each child asks the kernel for SIGKILL at its parent's death (``PR_SET_PDEATHSIG``) before it does anything else;
the parent kills what is left when it ends, whichever way. What children print is handed on line by line.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType
    from typing import Any, Optional

    OnLine = Callable[[int, str], None]

_PR_SET_PDEATHSIG = 1
PARENT = "FLEET_BENCH_PARENT"


class Outcome:
    """How the children ended. ``codes``: exit codes, negative for a signal, None for one that was killed here.

    ``silent``: nobody said anything for ``silence_s``, and all were killed.
    """

    def __init__(self, codes: list[Optional[int]], silent: bool) -> None:
        self.codes = codes
        self.silent = silent

    @property
    def good(self) -> bool:
        return not self.silent and all(code == 0 for code in self.codes)


class Terminated(BaseException):
    """SIGTERM came: children are killed on the way out."""


def die_with_parent() -> None:
    """In a child, first of all: be killed when the parent ends. No effect outside of a child."""
    parent = os.environ.get(PARENT)
    if not parent:
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it ended before the kernel was asked
        os._exit(1)


def end_children_when_terminated() -> None:
    """Let SIGTERM unwind this process, so that :func:`run` kills its children."""

    def unwind(number: int, frame: Optional[FrameType]) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, unwind)


def run(
    arguments: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    on_line: OnLine,
    silence_s: Optional[float] = None,
    together: bool = False,
) -> Outcome:
    """Run this package once for each of ``arguments`` (the words after ``-m PACKAGE``), all at once.

    ``on_line(number, line)`` gets what they print. ``together``: they need each other, so that one that fails
    ends all. ``silence_s``: the longest time in which no child says anything.
    """
    with contextlib.ExitStack() as stack:
        children = []
        for words, environment in zip(arguments, environments):
            children.append(_start(words, environment))
            stack.callback(_end, children[-1])
        silent = _follow(children, on_line, silence_s, together)
        if silent or (together and any(child.poll() for child in children)):
            return Outcome(_codes_after_trouble(children), silent)
        return Outcome([child.wait() for child in children], False)


def _codes_after_trouble(children: Sequence[subprocess.Popen[bytes]]) -> list[Optional[int]]:
    """What ended by itself has its code; the rest will be killed."""
    return [child.poll() for child in children]


def _start(words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    whole = {**os.environ, **environment, PARENT: str(os.getpid())}
    command = [sys.executable, "-m", "fleet.agent.bench.torch_side", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=whole)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill it unless it ended; reap it."""
    if child.poll() is None:
        child.kill()
    child.wait()
    if child.stdout:
        child.stdout.close()


def _follow(
    children: Sequence[subprocess.Popen[bytes]], on_line: OnLine, silence_s: Optional[float], together: bool
) -> bool:
    """Hand on lines until every child has ended (``together``: until one has failed); True for a silence."""
    pending = [b""] * len(children)
    last = time.monotonic()
    with _outputs(children) as selector:
        while selector.get_map():
            ready = selector.select(timeout=0.2)
            for key, _ in ready:
                number: int = key.data
                read = os.read(key.fd, 1 << 16)
                last = time.monotonic()
                if not read:
                    selector.unregister(key.fd)
                *lines, pending[number] = (pending[number] + read).split(b"\n")
                for line in lines:
                    on_line(number, line.decode("utf-8", "replace"))
            if not ready and _over(children, together):
                return False
            if silence_s is not None and time.monotonic() - last > silence_s:
                return True
    return False


def _over(children: Sequence[subprocess.Popen[bytes]], together: bool) -> bool:
    """Nobody has more to say: all have ended (a pipe may be held open by what a child left), or one failed."""
    codes = [child.poll() for child in children]
    return all(code is not None for code in codes) or (together and any(codes))


@contextlib.contextmanager
def _outputs(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[Any]:
    with selectors.DefaultSelector() as selector:
        for number, child in enumerate(children):
            assert child.stdout is not None  # made with a pipe
            selector.register(child.stdout.fileno(), selectors.EVENT_READ, number)
        yield selector
