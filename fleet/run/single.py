"""Things done on hosts outside a playbook: one command on many hosts, clearing a lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import ExitCode, FleetError, InputError
from fleet.core.secret import Scrubber
from fleet.inventory import Host, LoadOptions, load_inventory
from fleet.store import Store
from fleet.transport import AgentConnection, Connector

Say = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Execution:
    """One command for many hosts."""

    inventory: str
    pattern: str
    argv: tuple[str, ...]
    become_user: str | None = None
    deadline_s: float = 300.0
    forks: int = 50
    accept_new: bool = False


@dataclass
class ExecResult:
    """What the command did on one host. ``exit_code`` is None where it did not run."""

    host: str
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    error: FleetError | None = None

    @property
    def exit_status(self) -> ExitCode:
        """What this host contributes to fleet's exit code."""
        if self.error is not None:
            return self.error.exit_code
        return ExitCode.DONE if self.exit_code == 0 else ExitCode.FAILED

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "exit_code": self.exit_code,
            "signal": self.signal,
            "timed_out": self.timed_out,
            "stdout": "".join(self.stdout),
            "stderr": "".join(self.stderr),
            "error": self.error.what if self.error else None,
            "remedy": self.error.remedy if self.error else None,
        }


def execute(
    execution: Execution, load: LoadOptions, scrubber: Scrubber, say: Say | None
) -> dict[str, ExecResult]:
    """Run the command everywhere at once (``forks`` hosts at a time); results in inventory order."""
    inventory = load_inventory(execution.inventory, options=load)
    hosts = inventory.select(execution.pattern)
    with (
        closing(Connector(scrubber, accept_new=execution.accept_new)) as connector,
        ThreadPoolExecutor(max(1, min(execution.forks, len(hosts)))) as pool,
    ):
        results = list(pool.map(lambda host: _on_host(host, execution, connector, scrubber, say), hosts))
    return {result.host: result for result in results}


def _on_host(
    host: Host, execution: Execution, connector: Connector, scrubber: Scrubber, say: Say | None
) -> ExecResult:
    result = ExecResult(host.name)
    lines = _Lines(host.name, say, scrubber)
    try:
        with closing(connector.connect(host.connection())) as agent:
            answer = agent.request(
                "exec",
                {
                    "argv": list(execution.argv),
                    "shell": None,
                    "become_user": execution.become_user,
                    "stdin": None,
                    "deadline_s": execution.deadline_s,
                },
                deadline_s=execution.deadline_s + 30.0,
                on_message=lambda message: _collect(message, result, lines),
            )
        result.exit_code, result.signal = answer["exit_code"], answer.get("signal")
        result.timed_out = bool(answer.get("timed_out"))
        lines.flush()
        if result.exit_code != 0 and say is not None:
            say(host.name, "stderr", _ended(result, execution.deadline_s))
    except FleetError as error:
        result.error = error
        if say is not None:
            say(host.name, "stderr", error.what)
            if error.remedy:
                say(host.name, "stderr", f"  remedy: {error.remedy}")
    return result


def _ended(result: ExecResult, deadline_s: float) -> str:
    if result.timed_out:
        return f"stopped: not done in {deadline_s:g} s; --deadline gives it longer"
    return f"ended by signal {result.signal}" if result.signal else f"exit code {result.exit_code}"


def _collect(message: Mapping[str, Any], result: ExecResult, lines: _Lines) -> None:
    if message["type"] != "output":
        return
    (result.stderr if message["stream"] == "stderr" else result.stdout).append(message["text"])
    lines.add(message["stream"], message["text"])


class _Lines:
    """Cuts streamed output into whole, scrubbed lines."""

    def __init__(self, host: str, say: Say | None, scrubber: Scrubber) -> None:
        self._host = host
        self._say = say
        self._scrub = scrubber
        self._rest = {"stdout": "", "stderr": ""}

    def add(self, stream: str, text: str) -> None:
        *whole, self._rest[stream] = (self._rest[stream] + text).split("\n")
        for line in whole:
            self._tell(stream, line)

    def flush(self) -> None:
        for stream, rest in self._rest.items():
            if rest:
                self._tell(stream, rest)
                self._rest[stream] = ""

    def _tell(self, stream: str, line: str) -> None:
        if self._say is not None:
            self._say(self._host, stream, self._scrub(line))


def unlock_host(
    host: str, run: str, inventory: str | None, load: LoadOptions, store: Store, scrubber: Scrubber
) -> str:
    """Clear ``run``'s lease on ``host``; what was done, in words. Raises FleetError where refused."""
    if inventory is None:
        row = store.find_run(run)
        run, inventory = row.run, row.inventory
    hosts = load_inventory(inventory, options=load).hosts
    if host not in hosts:
        raise InputError(
            f"{host} is not in {inventory}", remedy=f"fleet inventory {inventory} lists the hosts"
        )
    return _unlock(hosts[host].connection(), host, run, scrubber, accept_new=load.accept_new)


def _unlock(
    settings: ConnectionSettings, host: str, run: str, scrubber: Scrubber, *, accept_new: bool
) -> str:
    with closing(Connector(scrubber, accept_new=accept_new)) as connector:
        agent: AgentConnection = connector.connect(settings)
        with closing(agent):
            lease = agent.hello.get("lease")
            if not lease:
                return f"{host}: no run holds it"
            agent.request("unlock", {"run": _whole(run, lease)})
    return f"{host}: the lease of run {lease['run']} is cleared"


def _whole(run: str, lease: Mapping[str, Any]) -> str:
    """A prefix names the run that holds the host; anything else is for the agent to refuse."""
    held = str(lease["run"])
    return held if len(run) >= 4 and held.startswith(run) else run
