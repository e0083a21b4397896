"""The edge of the agent's effects: everything resources learn of or do to the host goes through here.

A :class:`Host` has a root prefix, so that a test's host is a folder, and a ``run`` that a test replaces.
Files are written by :mod:`fleet.agent.files`, commands run by :mod:`fleet.agent.process`.
"""

from __future__ import annotations

import os
import time

from fleet.agent.protocol import RUNTIME_DIR, STATE_DIR
from fleet.agent.resources.base import Provides, StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Union

    from fleet.agent.process import Account, OnOutput, Result

    Unit = Dict[str, str]

QUERY_DEADLINE_S = 30.0
COMMAND_DEADLINE_S = 3600.0

_UNIT_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Result",
    "NeedDaemonReload",
    "CanReload",
    "ExecMainStartTimestampMonotonic",
    "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)


class Host:
    """One host. ``secrets`` maps ids to values; ``cancelled`` is asked while commands run.

    ``output_dir`` is where a worker keeps the output files of running commands; without it they have
    no name, and nothing is written (the check pass). ``step_ends`` is the current step's deadline on
    the monotonic clock: no command outlives it.
    """

    # Set by a resource while it puts things in order: neither a deadline nor SIGTERM breaks that off.
    shielded = False

    def __init__(
        self,
        root: str = "/",
        *,
        secrets: Optional[Dict[str, str]] = None,
        state_dir: Optional[str] = None,
        runtime_dir: Optional[str] = None,
        output_dir: Optional[str] = None,
        cancelled: Optional[Callable[[], bool]] = None,
    ) -> None:
        self.root = root
        self.secrets = secrets if secrets is not None else {}
        self.state_dir = state_dir or os.environ.get("FLEET_AGENT_STATE_DIR") or self.path(STATE_DIR)
        self.runtime_dir = runtime_dir or os.environ.get("FLEET_AGENT_RUNTIME_DIR") or self.path(RUNTIME_DIR)
        self.output_dir = output_dir
        self.step_ends: Optional[float] = None
        self._cancelled = cancelled
        self._commands = 0
        self._units: Dict[str, Unit] = {}
        self._expected_units: Set[str] = set()
        self._docker: Any = None
        self._dpkg: Any = None

    # -- paths, secrets, cancellation ---------------------------------------------------------------

    def path(self, path: str) -> str:
        """Where ``path`` of the host lies for this process."""
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def secret(self, value: Any) -> Any:
        """The text behind ``{"$secret": id}``; anything else as it is."""
        if not (isinstance(value, dict) and set(value) == {"$secret"}):
            return value
        try:
            return self.secrets[value["$secret"]]
        except KeyError:
            raise StepFailed(
                "the secret %s has not been sent to this host" % value["$secret"],
                "continue the run from the controller: fleet resume",
            ) from None

    def cancelled(self) -> bool:
        """Whether the operator asked this run to stop."""
        return self._cancelled is not None and self._cancelled()

    # -- commands -----------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: Optional[float] = None,
        stdin: Any = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_output: Optional[OnOutput] = None,
        interrupt: Optional[str] = None,
        cancellable: bool = True,
    ) -> Result:
        """Run a command and wait for it; see :func:`fleet.agent.process.run` for how it is ended.

        ``stdin`` is a text or a secret; without it the command reads /dev/null. ``deadline_s`` counts
        from now and is cut to what is left of the step. A command that cannot be started is StepFailed;
        one that ends badly is not (see :func:`fleet.agent.resources.base.expect`). ``cancellable=False``
        is for putting things in order after a cancel or a deadline: only its own deadline ends it.
        """
        from fleet.agent import process

        if not all(isinstance(word, str) for word in argv):
            raise StepFailed(
                "a secret would show in the process list as an argument of %s" % argv[0],
                "hand it over on standard input",
            )
        account = self.account(user) if user not in (None, "root") else None
        output = self._next_output_path()
        self.invalidate()
        try:
            result = process.run(
                argv,
                deadline_s=self._seconds_left(deadline_s)
                if cancellable
                else deadline_s or COMMAND_DEADLINE_S,
                stdin=self.secret(stdin),
                env=env,
                account=account,
                cwd=self.path(cwd or "/"),
                on_output=on_output,
                interrupt=interrupt,
                cancelled=self.cancelled if cancellable else None,
                output_path=output,
            )
        except OSError as error:
            _unlink_output(output)
            raise _not_started(argv[0], cwd, error) from None
        if output is not None and result.running_pid is None:
            _unlink_output(output)
        return result

    def _seconds_left(self, deadline_s: Optional[float]) -> float:
        wanted = COMMAND_DEADLINE_S if deadline_s is None else deadline_s
        if self.step_ends is None:
            return wanted
        left = max(0.0, self.step_ends - time.monotonic())
        return left if deadline_s is None else min(wanted, left)

    def _next_output_path(self) -> Optional[str]:
        if self.output_dir is None:
            return None
        os.makedirs(self.output_dir, mode=0o700, exist_ok=True)
        self._commands += 1
        # The process id, because a command of a killed worker may still be writing to its own.
        return os.path.join(self.output_dir, "%d-%d" % (os.getpid(), self._commands))

    # -- users and groups ---------------------------------------------------------------------------

    def table(self, path: str, key: int = 0) -> Dict[str, List[str]]:
        """A colon-separated file such as /etc/passwd: rows by field ``key``; ``{}`` without the file."""
        try:
            with open(self.path(path), encoding="utf-8", errors="surrogateescape") as file:
                rows = [line.rstrip("\n").split(":") for line in file]
        except FileNotFoundError:
            return {}
        found: Dict[str, List[str]] = {}
        for row in rows:
            if len(row) > max(1, key) and not row[0].startswith(("#", "+", "-")):
                found.setdefault(row[key], row)
        return found

    def user_id(self, owner: Union[str, int]) -> Optional[int]:
        """The number of a user given by name or number; None when there is no such user."""
        if str(owner).isdigit():
            return int(owner)
        row = self.table("/etc/passwd").get(str(owner))
        if row is not None and len(row) > 3:
            return int(row[2])
        account = self._directory_account(str(owner))
        return account.uid if account is not None else None

    def group_id(self, group: Union[str, int]) -> Optional[int]:
        """The number of a group given by name or number; None when there is no such group."""
        if str(group).isdigit():
            return int(group)
        row = self.table("/etc/group").get(str(group))
        if row is not None and len(row) > 2:
            return int(row[2])
        if self.root != "/":
            return None
        import grp

        try:
            return grp.getgrnam(str(group)).gr_gid
        except KeyError:
            return None

    def user_name(self, number: int) -> str:
        """The local name of a user id, or the number as text."""
        return self.table("/etc/passwd", 2).get(str(number), [str(number)])[0]

    def group_name(self, number: int) -> str:
        """The local name of a group id, or the number as text."""
        return self.table("/etc/group", 2).get(str(number), [str(number)])[0]

    def account(self, name: str) -> Account:
        """The user to run a command as; StepFailed when there is none."""
        row = self.table("/etc/passwd").get(name)
        if row is None or len(row) < 7:
            account = self._directory_account(name)
            if account is None:
                raise StepFailed(
                    "there is no user %s on this host" % name, "create it first, with a user task"
                )
            return account
        from fleet.agent.process import Account

        groups = [
            int(group[2])
            for group in self.table("/etc/group").values()
            if len(group) > 3 and name in group[3].split(",")
        ]
        gid = int(row[3])
        return Account(name, int(row[2]), gid, sorted({gid, *groups}), row[5] or "/", row[6] or "/bin/sh")

    def _directory_account(self, name: str) -> Optional[Account]:
        """A user that only the name service (LDAP, SSSD) knows."""
        if self.root != "/":
            return None
        import pwd

        from fleet.agent.process import Account

        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        groups = os.getgrouplist(name, entry.pw_gid)
        return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell)

    # -- systemd ------------------------------------------------------------------------------------

    def expect(self, names: Provides) -> None:
        """Announce what reads will ask for, so that the first asks for all of it in one call."""
        self._expected_units.update(names.get("units"))

    def units(self, names: Iterable[str]) -> Dict[str, Unit]:
        """What systemd says of these units (full names), from one call; cached until a command runs."""
        wanted = list(names)
        missing = [name for name in wanted if name not in self._units]
        if missing:
            batch = sorted(self._expected_units.union(missing).difference(self._units))
            found = self._show(batch)
            self._expected_units.clear()
            self._units.update(found)
        return {name: self._units[name] for name in wanted}

    def _show(self, names: List[str]) -> Dict[str, Unit]:
        if not os.path.isdir(self.path("/run/systemd/system")):
            raise StepFailed(
                "systemd does not run on this host, so units cannot be managed",
                "boot the host with systemd as process 1, or leave services out of the playbook for it",
            )
        kept = dict(self._units)
        result = self.run(
            ["systemctl", "show", "--property=" + ",".join(_UNIT_PROPERTIES), "--", *names],
            deadline_s=QUERY_DEADLINE_S,
        )
        self._units = kept  # asking changes nothing
        blocks = [_properties(block) for block in result.stdout.strip("\n").split("\n\n")]
        if result.ok and len(blocks) == len(names):
            return {name: blocks[place] for place, name in enumerate(names)}
        if len(names) > 1:  # one bad name spoils the whole answer
            return {name: unit for one in names for name, unit in self._show([one]).items()}
        raise StepFailed(
            "systemctl cannot tell the state of %s: %s"
            % (names[0], result.stderr.strip() or result.ending()),
            "check the unit's name with: systemctl status %s" % names[0],
        )

    def wall_clock_ns(self, monotonic_us: int) -> int:
        """The wall clock time, in nanoseconds, of a moment on systemd's monotonic clock."""
        offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return offset + monotonic_us * 1000

    # -- engine, packages, what exists ----------------------------------------------------------------

    @property
    def docker(self) -> Any:
        """The Engine API client, :class:`fleet.agent.engine.Engine` of the socket's path."""
        if self._docker is None:
            self._docker = _module("fleet.agent.engine").Engine(self.path("/var/run/docker.sock"))
        return self._docker

    @property
    def dpkg(self) -> Any:
        """The package database, :class:`fleet.agent.facts.packages.Dpkg` of the root's path."""
        if self._dpkg is None:
            self._dpkg = _module("fleet.agent.facts.packages").Dpkg(self.root)
        return self._dpkg

    def invalidate(self) -> None:
        """Forget what was read: something may have changed it. Every ``run`` does this."""
        self._units = {}
        self._dpkg = None
        self._docker = None

    def which(self, command: str) -> Optional[str]:
        """The path of a command in the fixed PATH, or None."""
        from fleet.agent.process import PATH

        candidates = (
            [command] if "/" in command else ["%s/%s" % (place, command) for place in PATH.split(":")]
        )
        return next((path for path in candidates if os.access(self.path(path), os.X_OK)), None)

    def absent(self, wanted: Provides) -> Provides:
        """Those of ``wanted`` that are not on the host now."""
        lacking = Provides()
        for category, name in wanted:
            if not self._present(category, name):
                lacking.add(category, name)
        return lacking

    def _present(self, category: str, name: str) -> bool:
        if category in ("files", "directories"):
            return os.path.exists(self.path(name))
        if category == "users":
            return self.user_id(name) is not None
        if category == "groups":
            return self.group_id(name) is not None
        if category == "commands":
            return self.which(name) is not None
        if category == "units":
            return self.units([name])[name].get("LoadState") not in ("not-found", "", None)
        if category == "modules":
            return os.path.isdir(self.path("/sys/module/" + name.replace("-", "_")))
        if category == "packages":
            return self.dpkg.installed(name) is not None
        if category == "engine":
            return os.path.exists(self.path("/var/run/docker.sock"))
        return os.path.exists(self.path("/var/run/docker.sock")) and bool(self.docker.has_image(name))


def _properties(block: str) -> Unit:
    """``Key=value`` lines as a dictionary."""
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _unlink_output(output: Optional[str]) -> None:
    for stream in ("stdout", "stderr") if output is not None else ():
        try:
            os.unlink("%s.%s" % (output, stream))
        except FileNotFoundError:
            continue  # it could not even be made


def _not_started(command: str, cwd: Optional[str], error: OSError) -> StepFailed:
    if not isinstance(error, FileNotFoundError):
        return StepFailed("cannot run %s: %s" % (command, error.strerror or error))
    if cwd is not None and error.filename is not None and str(error.filename).endswith(cwd):
        return StepFailed(
            "the working directory %s does not exist" % cwd, "create it with a directory task first"
        )
    return StepFailed(
        "the command %s was not found" % command,
        "install the package that brings it, or write its full path if it is outside the system's PATH",
    )


def _module(name: str) -> Any:
    import importlib

    return importlib.import_module(name)
