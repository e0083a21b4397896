"""Puts a run together: inventory, playbook, store, connector, bus, engine; and takes it apart again.

:func:`launch` starts a new run, :func:`resume` goes on with one. Both return the finished run; what
is shown meanwhile is the subscribers' business.
"""

from __future__ import annotations

import getpass
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import InputError, Problem, RefusedError
from fleet.core.events import Event, Subscriber
from fleet.core.ids import new_run_id
from fleet.core.secret import Scrubber, Secret
from fleet.inventory import Inventory, LoadOptions, load_inventory
from fleet.inventory.secrets import SecretSource
from fleet.playbook.load import load_playbook
from fleet.playbook.model import Playbook
from fleet.report.host_report import Ending, HostReportBuilder, write_report
from fleet.run import outcome as ended
from fleet.run.bus import EventBus
from fleet.run.control import Control
from fleet.run.engine import Engine, RunResult
from fleet.run.ledger import StoreLedger
from fleet.run.outcome import HostOutcome
from fleet.run.request import RunRequest
from fleet.store import RunRow, Store
from fleet.transport import Connector

SPECIAL_TAGS = frozenset({"all", "always", "never", "tagged", "untagged"})


@dataclass
class Surroundings:
    """What a run is given from outside: where to keep things, what to show them to, what to hide."""

    store: Store
    scrubber: Scrubber
    console: Sequence[Subscriber]
    load: LoadOptions = field(default_factory=LoadOptions)
    reports: Path = Path("reports")
    control: Control = field(default_factory=Control)


def launch(request: RunRequest, around: Surroundings) -> RunResult:
    """Start a new run. Raises InputError or RefusedError before anything is touched."""
    inventory, playbook = _load(request, around)
    run = new_run_id()
    hosts = _chosen(inventory, playbook, request)
    around.store.create_run(
        run,
        playbook=request.playbook,
        inventory=request.inventory,
        operator=getpass.getuser(),
        controller=socket.gethostname(),
        hosts=hosts,
        check=request.check,
        arguments=request.as_json(),
    )
    return _play(run, inventory, playbook, request, around, hosts, first_seq=0)


def resume(row: RunRow, around: Surroundings) -> RunResult:
    """Go on with what the run ``row`` left: every host of it that did not converge."""
    request = RunRequest.from_json(row.arguments)
    if request.check:
        raise RefusedError(
            f"run {row.run} was a check: there is nothing to go on with",
            remedy=f"fleet run {request.inventory} {request.playbook}",
        )
    inventory, playbook = _load(request, around)
    left = _left_over(row, around.store)
    if not left:
        raise RefusedError(
            f"run {row.run} left nothing to resume: every host converged, or waits for leave",
            remedy="fleet runs show " + row.run,
        )
    around.store.reopen_run(row.run)
    first_seq = around.store.last_seq(row.run)
    return _play(row.run, inventory, playbook, request, around, left, first_seq=first_seq, resuming=True)


def _left_over(row: RunRow, store: Store) -> list[str]:
    over = (ended.CONVERGED, ended.PENDING)  # a pending host has a command of its own, with leave
    done = {host.host for host in store.hosts(row.run) if host.state in over}
    return [name for name in row.hosts if name not in done]


def _load(request: RunRequest, around: Surroundings) -> tuple[Inventory, Playbook]:
    inventory = load_inventory(request.inventory, options=around.load)
    values = SecretSource(around.load.vault_password, lambda file: Path(file).resolve().parent)
    playbook = load_playbook(request.playbook, tagged=lambda node: values.fetch(node.tag or "value", node))
    refuse_unknown_tags(playbook, request)
    return inventory, playbook


def refuse_unknown_tags(playbook: Playbook, request: RunRequest) -> None:
    """A tag that no task has is a slip: taken as it is, the run would do nothing, or all, and look well."""
    known = {tag for play in playbook.plays for task in (*play.tasks, *play.handlers) for tag in task.tags}
    asked = [("--tags", tag) for tag in request.tags] + [("--skip-tags", tag) for tag in request.skip_tags]
    wrong = [
        f"{option}: no task has the tag {tag}" for option, tag in asked if tag not in known | SPECIAL_TAGS
    ]
    if wrong:
        there = ", ".join(sorted(known - SPECIAL_TAGS)) or "none"
        raise InputError(
            [Problem(None, words) for words in wrong], remedy=f"tags of {request.playbook}: {there}"
        )


def _chosen(inventory: Inventory, playbook: Playbook, request: RunRequest) -> list[str]:
    """The hosts that any play will touch, in inventory order."""
    limited = {host.name for host in inventory.select(request.limit)}
    wanted = {host.name for play in playbook.plays for host in inventory.select(play.hosts)} & limited
    if not wanted:
        raise InputError(
            f"no host of {request.inventory} is both in --limit and in the playbook's hosts",
            remedy=f"fleet inventory {request.inventory} lists the hosts",
        )
    return [name for name in inventory.hosts if name in wanted]


def _settings(inventory: Inventory, hosts: Sequence[str]) -> dict[str, ConnectionSettings]:
    """Connection settings of every host; all problems at once."""
    settings: dict[str, ConnectionSettings] = {}
    problems: list[Problem] = []
    for name in hosts:
        try:
            settings[name] = inventory.hosts[name].connection()
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    return settings


def _play(
    run: str,
    inventory: Inventory,
    playbook: Playbook,
    request: RunRequest,
    around: Surroundings,
    hosts: Sequence[str],
    *,
    first_seq: int,
    resuming: bool = False,
) -> RunResult:
    settings = _settings(inventory, hosts)
    around.scrubber.add(*_secrets(settings))
    reports = HostReportBuilder(socket.gethostname())
    subscribers: list[Subscriber] = [reports, StoreSubscriber(around.store), *around.console]
    bus = EventBus(run, subscribers, around.scrubber, first_seq=first_seq)
    started = time.monotonic()
    keeper = ReportKeeper(run, bus, reports, around)
    with _connector(request, around) as connector:
        engine = Engine(
            run=run,
            inventory=inventory,
            playbook=playbook,
            request=request,
            connect=lambda one: connector.connect(one, install=request.install_python),
            bus=bus,
            ledger=StoreLedger(around.store, run),
            control=around.control,
            only_hosts=frozenset(hosts),
            resuming=resuming,
            settings=settings,
            on_host_end=keeper.host_ended,
        )
        bus.publish(
            "run_started",
            playbook=request.playbook,
            inventory=request.inventory,
            hosts=list(hosts),
            operator=getpass.getuser(),
            check=request.check,
            diff=request.diff,
        )
        try:
            result = engine.play()
            bus.publish(
                "run_ended",
                exit_code=int(result.exit_code),
                counts=dict(Counter(outcome.status for outcome in result.outcomes.values())),
                duration_s=round(time.monotonic() - started, 3),
            )
        finally:
            bus.close()
    return result


@contextmanager
def _connector(request: RunRequest, around: Surroundings) -> Iterator[Connector]:
    connector = Connector(around.scrubber, accept_new=request.accept_new)
    try:
        yield connector
    finally:
        connector.close()


def _secrets(settings: dict[str, ConnectionSettings]) -> Iterator[Secret]:
    for one in settings.values():
        for endpoint in (one.endpoint, *one.jumps):
            if endpoint.password is not None:
                yield endpoint.password
        if one.become.password is not None:
            yield one.become.password


class StoreSubscriber:
    """Keeps every event in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def handle(self, event: Event) -> None:
        """Queue the event for the writer."""
        self._store.append(event)

    def close(self) -> None:
        """The store is closed by whoever opened it."""


class ReportKeeper:
    """Writes a host's report once it has ended for good, and says so on the bus.

    The report is made from the events of the host, so it waits until the bus has delivered them.
    """

    def __init__(self, run: str, bus: EventBus, builder: HostReportBuilder, around: Surroundings) -> None:
        self._run = run
        self._bus = bus
        self._builder = builder
        self._around = around
        self._lock = threading.Lock()

    def host_ended(self, outcome: HostOutcome) -> None:
        """Write the report, keep it in the store, publish the host's end (which the store keeps too)."""
        self._bus.drain()
        with self._lock:
            path = self._write(outcome)
        self._bus.publish("host_ended", outcome.host, **outcome.as_json(), report_path=str(path))

    def _write(self, outcome: HostOutcome) -> Path:
        ending = Ending(outcome.status, outcome.reason, outcome.remedy)
        document = self._builder.document(outcome.host, ending)
        written = write_report(self._around.reports / self._run, document, self._around.scrubber)
        if written.problems:
            outcome.status = ended.FAILED
            outcome.reason = f"its report is not valid: {written.problems[0]}"
            outcome.remedy = f"the report is kept as evidence: {written.path}"
        self._around.store.put_report(self._run, outcome.host, document)
        return written.path
