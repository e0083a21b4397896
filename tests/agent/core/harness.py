"""Drives real agent processes for the tests: a host made of folders, its sessions and its workers."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.agent.history import History
from fleet.agent.journal import read_journal
from fleet.agent.lease import Lease
from fleet.agent.paths import Paths
from fleet.agent.protocol import LineBuffer

FAKE_AGENT = Path(__file__).with_name("fake_agent.py")
PYTHON = os.environ.get("FLEET_TEST_AGENT_PYTHON", sys.executable)
PATIENCE_S = 20.0  # a deadline for what takes milliseconds; no test waits for it to pass
BOOT_1 = "11111111-1111-1111-1111-111111111111"
BOOT_2 = "22222222-2222-2222-2222-222222222222"


def step(name: str, resource: str = "thing", **fields: Any) -> dict[str, Any]:
    """A step whose arguments are the given fields, but for those that are a step's own."""
    own = {"when", "notify", "handler", "ignore_errors", "deadline_s", "become_user"}
    made = {key: value for key, value in fields.items() if key in own}
    args = {key: value for key, value in fields.items() if key not in own}
    if resource in ("thing", "once"):
        args = {"name": name, "value": "wanted", **args}
    return {"id": name, "task": f"make {name}", "resource": resource, "args": args, **made}


def plan(*steps: dict[str, Any], run: str = "run-1", segment: int = 0, last: bool = True) -> dict[str, Any]:
    return {"format": 1, "run": run, "host": "h", "segment": segment, "last": last, "steps": list(steps)}


class FakeHost:
    """Folders that stand for a host; sessions on it are real processes."""

    def __init__(self, folder: Path) -> None:
        self.world = folder / "world"
        self.world.mkdir(parents=True)
        self.paths = Paths(str(folder / "state"), str(folder / "run"))
        self._sessions: list[Session] = []

    def environment(self, **extra: str) -> dict[str, str]:
        folders = {"FLEET_AGENT_STATE_DIR": self.paths.state, "FLEET_AGENT_RUNTIME_DIR": self.paths.runtime}
        return {"PATH": os.environ["PATH"], "FAKE_WORLD": str(self.world), **folders, **extra}

    def session(self, **extra: str) -> Session:
        session = Session(self.environment(**extra))
        self._sessions.append(session)
        return session

    def close(self) -> None:
        """End the sessions, and the workers that still live, by their own process ids."""
        for session in self._sessions:
            session.close()
        lease = Lease(self.paths)
        held = lease.read()
        if held is not None and held.get("pid") and lease.worker_alive():
            os.kill(held["pid"], 9)

    def play(self, wanted: dict[str, Any], **extra: Any) -> list[dict[str, Any]]:
        """Start a plan over a session of its own and return its records, up to the end."""
        secrets = extra.pop("secrets", {})
        session = self.session(**extra)
        session.request("start", plan=wanted, secrets=secrets, operator="me", controller="here")
        records = session.records_to_end()
        session.close()
        self.wait(lambda: not Lease(self.paths).worker_alive())
        return records

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until ``condition`` holds; a test fails that waits for what never comes."""
        ends = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < ends, "what the test waits for did not happen"
            select.select([], [], [], 0.005)

    def set(self, name: str, text: str = "") -> None:
        (self.world / name).write_text(text)

    def get(self, name: str) -> str | None:
        path = self.world / name
        return path.read_text() if path.exists() else None

    def applied(self) -> list[str]:
        """The names of what was applied, in order, once for each time."""
        return (self.get("applied") or "").split()

    def journal(self, run: str = "run-1") -> list[dict[str, Any]]:
        return read_journal(self.paths.journal(run))

    def history(self, run: str = "run-1") -> History:
        return History.load(self.paths.journal(run))

    def lease(self) -> dict[str, Any] | None:
        return Lease(self.paths).read()


class Session:
    """The controller's side of one session process."""

    def __init__(self, environment: dict[str, str], argv: tuple[str, ...] = ()) -> None:
        command = list(argv) or [PYTHON, "-S", "-E", str(FAKE_AGENT), "session"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self._lines = LineBuffer()
        self._waiting: list[dict[str, Any]] = []
        self._number = 0
        self.records: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.beats = 0
        self.hello = self.message()

    def send(self, message: dict[str, Any]) -> None:
        self.send_raw(json.dumps(message).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def message(self) -> dict[str, Any]:
        """The next message of any type."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while not self._waiting:
            ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
            data = os.read(descriptor, 65536) if ready else b""
            assert data, f"the session said no more: {self.errors()}"
            self._waiting = [json.loads(line) for line in self._lines.feed(data)]
        return self._waiting.pop(0)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole response to a request; what comes in between is kept."""
        self._number += 1
        self.send({"type": "request", "id": self._number, "method": method, "params": params})
        while True:
            message = self.message()
            if message["type"] == "response" and message["id"] == self._number:
                return message
            self._keep(message)

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        response = self.ask(method, **params)
        assert "error" not in response, response["error"]
        result: dict[str, Any] = response["result"]
        return result

    def _keep(self, message: dict[str, Any]) -> None:
        if message["type"] == "record":
            self.records.append(message["record"])
        elif message["type"] == "idle":  # as an end that stands in no journal
            self.records.append({"kind": "end", "status": "lost", "seq": message["last_seq"]})
        elif message["type"] == "output":
            self.outputs.append(message)
        elif message["type"] == "beat":
            self.beats += 1

    def records_until(self, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """The streamed records, up to the first that is ``wanted``; each is returned once."""
        while not any(wanted(record) for record in self.records):
            self._keep(self.message())
        last = next(place for place, record in enumerate(self.records) if wanted(record))
        found, self.records = self.records[: last + 1], self.records[last + 1 :]
        return found

    def records_to_end(self) -> list[dict[str, Any]]:
        return self.records_until(lambda record: record["kind"] == "end")

    def errors(self) -> str:
        assert self.process.stderr is not None
        ready, _, _ = select.select([self.process.stderr], [], [], 0)
        return os.read(self.process.stderr.fileno(), 65536).decode() if ready else ""

    def close(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def results(records: list[dict[str, Any]]) -> dict[str, str]:
    """Step -> status, of the results among records."""
    return {record["step"]: record["status"] for record in records if record["kind"] == "result"}
