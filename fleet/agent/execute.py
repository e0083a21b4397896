"""One ad-hoc command with its output streamed, for ``exec`` requests: it ends when its session does.

Unlike a step's command it has pipes, a caller who watches, and no journal.
"""

from __future__ import annotations

import os
import signal
import time

from fleet.agent.paths import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Callable, Optional

    from fleet.agent.process import Account
    from fleet.agent.protocol import Json

_LOOK_EVERY_S = 0.25
_TERM_GRACE_S = 5.0
_PIECE = 64 * 1024


def execute(
    argv: list[str],
    *,
    account: Optional[Account],
    stdin: Optional[str],
    deadline_s: float,
    on_output: Callable[[str, str], None],
    gone: Callable[[], bool],
) -> Json:
    """Run ``argv``; ``{"exit_code": int|None, "signal": int|None, "timed_out": bool}``.

    ``on_output(stream, text)`` gets output as it comes. The process group is ended at the deadline, or
    when ``gone()`` says that nobody listens. Raises OSError where the command cannot be started.
    """
    process = _start(argv, account, stdin)
    ends = time.monotonic() + deadline_s
    timed_out = _pump(process, ends, on_output, gone)
    if timed_out is not None:
        _end_group(process)
    code = process.wait()
    return {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "timed_out": bool(timed_out),
    }


def _start(argv: list[str], account: Optional[Account], stdin: Optional[str]) -> subprocess.Popen[bytes]:
    import subprocess

    from fleet.agent.process import environment

    source = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        write_all(source, (stdin or "").encode("utf-8", "surrogateescape"))
        os.lseek(source, 0, os.SEEK_SET)
        identity = {}
        if account is not None:
            identity = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            argv,
            stdin=source if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=account.home if account is not None and os.path.isdir(account.home) else "/",
            env=environment(None, account),
            start_new_session=True,
            umask=0o022,
            **identity,
        )
    finally:
        os.close(source)


def _pump(
    process: subprocess.Popen[bytes],
    ends: float,
    on_output: Callable[[str, str], None],
    gone: Callable[[], bool],
) -> Optional[bool]:
    """Pass output on until the command ends (None), its deadline passes (True), or no one listens (False)."""
    import codecs
    import select

    decoder = codecs.getincrementaldecoder("utf-8")
    streams = {}
    poller = select.poll()
    for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
        assert pipe is not None
        streams[pipe.fileno()] = (name, decoder("replace"))
        poller.register(pipe.fileno(), select.POLLIN)
    while streams:
        if time.monotonic() >= ends:
            return True
        if gone():
            return False
        ready = poller.poll(_LOOK_EVERY_S * 1000)
        if not ready and process.poll() is not None:
            return None  # it ended; a child of its that kept the pipes is not waited for
        for descriptor, _ in ready:
            data = os.read(descriptor, _PIECE)
            name, incremental = streams[descriptor]
            text = incremental.decode(data, not data)
            if text:
                on_output(name, text)
            if not data:
                poller.unregister(descriptor)
                del streams[descriptor]
    return _wait(process, ends, gone)


def _wait(process: subprocess.Popen[bytes], ends: float, gone: Callable[[], bool]) -> Optional[bool]:
    """Wait for a command that has closed its output."""
    while process.poll() is None:
        if time.monotonic() >= ends:
            return True
        if gone():
            return False
        time.sleep(0.01)
    return None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """TERM to the group, and KILL to what is left of it a little later."""
    import subprocess

    for number, patience in ((signal.SIGTERM, _TERM_GRACE_S), (signal.SIGKILL, _TERM_GRACE_S)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return
