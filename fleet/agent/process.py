"""Runs one command on the host: own session, output into files, a deadline that is always kept.

Output goes to files and never to pipes: a worker that is killed must leave ``apt`` unharmed, and a
daemon that keeps its parent's output open must not keep us waiting. What has been read is given to
``on_output`` as it comes; the last :data:`TAIL_BYTES` of each stream are kept. Resources do not call
this directly but through :meth:`fleet.agent.host.Host.run`.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Callable, Dict, Iterable, List, Optional, Sequence

    OnOutput = Callable[[str, str], None]  # (text, "stdout" | "stderr")

TAIL_BYTES = 1024 * 1024
# Last the folder into which NVIDIA's container images and those of GPU clouds get a driver's programs mounted.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin"
TERM_GRACE_S = 5.0  # between TERM and KILL
SIGINT_GRACE_S = 900.0  # how long a package manager may take to end after SIGINT; it is never killed
SIGINT_LEADER = "sigint_leader"

_CHUNK = 64 * 1024
_PUNCH_BYTES = 16 * 1024 * 1024
_LOOK_EVERY_S = 0.1
# A worker's parent may have ignored these (nohup does); a command must get them with their usual meaning.
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Result:
    """How a command ended. ``stdout`` and ``stderr`` are the last MiB of each, undecodable bytes escaped.

    ``exit_code`` is None when a signal ended it (``signal`` is its number) or when it still runs:
    that happens only with ``interrupt="sigint_leader"``, and then ``running_pid`` names it.
    """

    __slots__ = ("cancelled", "exit_code", "running_pid", "signal", "stderr", "stdout", "timed_out")

    def __init__(
        self,
        exit_code: Optional[int],
        stdout: str = "",
        stderr: str = "",
        signal: Optional[int] = None,
        *,
        timed_out: bool = False,
        cancelled: bool = False,
        running_pid: Optional[int] = None,
    ) -> None:
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
        self.signal = signal
        self.timed_out = timed_out
        self.cancelled = cancelled
        self.running_pid = running_pid

    @property
    def ok(self) -> bool:
        """True when it exited 0 by itself, neither cancelled nor overdue."""
        return self.exit_code == 0 and not self.timed_out and not self.cancelled

    def ending(self) -> str:
        """How it ended, in words for a message: ``exit code 2``, ``killed by SIGKILL`` …"""
        if self.running_pid is not None:
            return "still running as process %d" % self.running_pid
        if self.timed_out:
            return "stopped at its deadline"
        if self.cancelled:
            return "cancelled"
        if self.signal is not None:
            return "killed by %s" % _signal_name(self.signal)
        return "exit code %s" % self.exit_code

    def __repr__(self) -> str:
        return "<Result %s>" % self.ending()


def last_lines(lines: Iterable[str], most: int = 3) -> str:
    """The last lines that are not empty, in one, for a message; "" where there is none."""
    return " / ".join([line.strip() for line in lines if line.strip()][-most:])


class Account:
    """A user to run as: numeric ids, home and login shell."""

    __slots__ = ("gid", "groups", "home", "name", "shell", "uid")

    def __init__(self, name: str, uid: int, gid: int, groups: List[int], home: str, shell: str) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.home = home
        self.shell = shell


def environment(extra: Optional[Dict[str, str]], account: Optional[Account]) -> Dict[str, str]:
    """A command's whole environment: nothing of the caller's own, then ``extra``."""
    locale = utf8_locale()
    variables = {
        "PATH": PATH,
        "LC_ALL": locale,
        "LANG": locale,
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
    }
    if account is not None:
        variables.update(HOME=account.home, USER=account.name, LOGNAME=account.name, SHELL=account.shell)
    variables.update(extra or {})
    return variables


def utf8_locale() -> str:
    """``C.UTF-8`` where that locale exists, else ``C``: tools must speak English, in whole characters."""
    if any(os.path.isdir("/usr/lib/locale/" + name) for name in ("C.utf8", "C.UTF-8")):
        return "C.UTF-8"
    try:
        version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
        return "C.UTF-8" if tuple(int(part) for part in version.split(".")) >= (2, 35) else "C"
    except (ValueError, OSError, IndexError):
        return "C.UTF-8"  # not glibc: musl knows no other character set


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    stdin: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    account: Optional[Account] = None,
    cwd: str = "/",
    on_output: Optional[OnOutput] = None,
    interrupt: Optional[str] = None,
    cancelled: Optional[Callable[[], bool]] = None,
    output_path: Optional[str] = None,
    sigint_grace_s: float = SIGINT_GRACE_S,
) -> Result:
    """Run ``argv`` and wait for it; raise OSError when it cannot be started.

    At the deadline, or when ``cancelled()`` turns true, the process group gets TERM and 5 s later KILL.
    With ``interrupt="sigint_leader"`` only the leader gets a SIGINT, once, and is waited for another
    ``sigint_grace_s`` without ever being killed: killing apt orphans dpkg and leaves the package half
    configured. ``output_path`` names the output files (``.stdout`` and ``.stderr`` are added); without
    it they have no name.
    """
    captures = [_Capture(output_path, stream, account, on_output) for stream in ("stdout", "stderr")]
    try:
        process = _start(argv, stdin, environment(env, account), account, cwd, captures)
        watch = _Watch(process.pid, captures)
        try:
            reason = watch.until(time.monotonic() + deadline_s, cancelled)
            if reason is not None and interrupt == SIGINT_LEADER:
                os.kill(process.pid, signal.SIGINT)
                watch.until(time.monotonic() + sigint_grace_s, None)
            elif reason is not None:
                _stop_group(process.pid, watch)
            return _result(process, watch, captures, reason)
        finally:
            watch.close()
    finally:
        for capture in captures:
            capture.close()


def _result(
    process: subprocess.Popen[bytes], watch: _Watch, captures: List[_Capture], reason: Optional[str]
) -> Result:
    running = not watch.exited(0.0)
    code = None if running else process.wait()
    for capture in captures:
        capture.pump(last=True)
    if running:
        process.returncode = 0  # keeps Popen from complaining that it is abandoned on purpose
    return Result(
        code if code is not None and code >= 0 else None,
        captures[0].text(),
        captures[1].text(),
        -code if code is not None and code < 0 else None,
        timed_out=reason == "deadline",
        cancelled=reason == "cancelled",
        running_pid=process.pid if running else None,
    )


def _start(
    argv: Sequence[str],
    stdin: Optional[str],
    env: Dict[str, str],
    account: Optional[Account],
    cwd: str,
    captures: List[_Capture],
) -> subprocess.Popen[bytes]:
    import subprocess

    source = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) if stdin is None else _text_file(stdin)
    try:
        identity = {}
        if account is not None and (account.uid != os.geteuid() or os.geteuid() == 0):
            identity = {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            list(argv),
            stdin=source,
            stdout=captures[0].fd,
            stderr=captures[1].fd,
            env=env,
            cwd=cwd,
            start_new_session=True,
            umask=0o022,
            preexec_fn=_reset_signals if _signals_changed() else None,
            **identity,
        )
    finally:
        os.close(source)


def _signals_changed() -> bool:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return bool(blocked) or any(signal.getsignal(number) == signal.SIG_IGN for number in _RESET[:-1])


def _reset_signals() -> None:
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _text_file(text: str) -> int:
    """A nameless file in memory holding ``text``: unlike a pipe it cannot fill up or die with us."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Capture:
    """One output stream: the file the command writes to, and how far it has been read."""

    def __init__(
        self, path: Optional[str], stream: str, account: Optional[Account], on_output: Optional[OnOutput]
    ) -> None:
        import codecs

        self._stream = stream
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._tail = bytearray()
        self._offset = 0
        self._punched = 0
        self.fd = self._open(path, account)

    def _open(self, path: Optional[str], account: Optional[Account]) -> int:
        if path is None:
            import fcntl

            fd = os.memfd_create(self._stream, os.MFD_CLOEXEC)
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
            return fd
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open("%s.%s" % (path, self._stream), flags, 0o600)
        if account is not None and os.geteuid() == 0:
            os.fchown(fd, account.uid, -1)  # so that it may open /dev/stdout
        return fd

    def pump(self, last: bool = False) -> None:
        """Read what is new; with ``last`` also flush an unfinished character."""
        if os.fstat(self.fd).st_size < self._offset:
            self._offset = self._punched = 0  # a script wrote "> /dev/stderr", which truncates a file
        while True:
            data = os.pread(self.fd, _CHUNK, self._offset)
            if not data:
                break
            self._offset += len(data)
            self._tail += data
            if len(self._tail) > 2 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]
            self._give(self._decoder.decode(data))
        if last:
            self._give(self._decoder.decode(b"", True))
        if self._offset - self._punched >= _PUNCH_BYTES:
            _punch_hole(self.fd, self._punched, self._offset - self._punched)
            self._punched = self._offset

    def _give(self, text: str) -> None:
        if text and self._on_output is not None:
            self._on_output(text, self._stream)

    def text(self) -> str:
        """The last MiB."""
        return bytes(self._tail[-TAIL_BYTES:]).decode("utf-8", "surrogateescape")

    def close(self) -> None:
        os.close(self.fd)


def _punch_hole(fd: int, start: int, length: int) -> None:
    """Give back the memory of output already read; a chatty command must not fill /run."""
    try:
        import ctypes
    except ImportError:
        return  # a minimal Python: the file just stays as long as it is
    keep_size_and_punch = 0x01 | 0x02
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate(fd, keep_size_and_punch, ctypes.c_longlong(start), ctypes.c_longlong(length))
    except (OSError, AttributeError):
        return  # no such call in this libc: as above


class _Watch:
    """Waits for a process to end without reaping it, so that its group id stays ours to signal."""

    def __init__(self, pid: int, captures: List[_Capture]) -> None:
        self._pid = pid
        self._captures = captures
        self._pidfd = _pidfd_open(pid)

    def exited(self, wait_s: float) -> bool:
        """Wait at most ``wait_s`` seconds; True when the process has ended."""
        if self._pidfd is not None:
            import select

            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            return bool(poller.poll(wait_s * 1000))
        end = time.monotonic() + wait_s
        pause = 0.001
        while not self._ended():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, 0.05)
        return True

    def _ended(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def until(self, end: float, cancelled: Optional[Callable[[], bool]]) -> Optional[str]:
        """Pump output until the process ends (None), ``end`` passes ("deadline") or "cancelled"."""
        while True:
            if cancelled is not None and cancelled():
                return "cancelled"
            left = end - time.monotonic()
            if self.exited(max(0.0, min(_LOOK_EVERY_S, left))):
                return None
            if left <= 0:
                return "deadline"
            for capture in self._captures:
                capture.pump()

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)


def _pidfd_open(pid: int) -> Optional[int]:
    """A file descriptor of the process, or None on kernels before 5.3."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _stop_group(pid: int, watch: _Watch) -> None:
    """TERM to the whole group; KILL to what is left of it after the grace time."""
    os.killpg(pid, signal.SIGTERM)
    end = time.monotonic() + TERM_GRACE_S
    watch.until(end, None)
    while _group_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    watch.until(time.monotonic() + TERM_GRACE_S, None)


def _group_alive(group: int) -> bool:
    """Whether any process of the group still runs (its dead, unreaped leader does not count)."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # ended while we looked
        if len(fields) > 2 and fields[2] == b"%d" % group and fields[0] not in (b"Z", b"X"):
            return True
    return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number
