"""A host that is a folder: commands are recorded and answered, files are real."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.agent.host import Host
from fleet.agent.process import Result
from fleet.agent.resources.base import Resource, Silent

Answer = Callable[..., Result]  # of (argv, standard input)


class FakeHost(Host):
    """``commands`` holds what ran as (argv, stdin). ``answer`` gives the result of a command."""

    def __init__(self, root: Path, answer: Answer | None = None, **options: Any) -> None:
        super().__init__(str(root), **options)
        self.folder = root
        self.commands: list[tuple[list[str], str | None]] = []
        self.answer: Answer = answer or (lambda argv, stdin: Result(0))

    def run(self, argv: Any, *, stdin: Any = None, on_output: Any = None, **options: Any) -> Result:
        self.invalidate()
        self.commands.append((list(argv), self.secret(stdin)))
        return self.answer(list(argv), self.secret(stdin))

    def argvs(self) -> list[str]:
        """What ran, except for questions."""
        return [" ".join(argv) for argv, _ in self.commands if argv[:2] != ["systemctl", "show"]]

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """Put a file on the host."""
        real = self.folder / path.lstrip("/")
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(text.encode())
        real.chmod(mode)
        return real

    def text(self, path: str) -> str:
        """A file's contents."""
        return (self.folder / path.lstrip("/")).read_text()


def differences(host: Host, resource: Resource, args: dict[str, Any]) -> list[dict[str, Any]]:
    """What the resource says differs now."""
    return resource.diff(resource.read(host, args), args)


def converge(host: Host, resource: Resource, args: dict[str, Any]) -> list[dict[str, Any]]:
    """Apply what differs, as a worker does, and hold the resource to its promise: nothing is left."""
    found = differences(host, resource, args)
    if found:
        resource.apply(host, args, found, Silent())
        host.invalidate()
    assert differences(host, resource, args) == []
    return found


class Systemd:
    """Answers systemctl for a few units; starting one moves its start to now."""

    def __init__(self, host: FakeHost, **units: dict[str, str]) -> None:
        self.units = {name.replace("_", ".", 1): self._unit(**fields) for name, fields in units.items()}
        self.host = host
        self.files: dict[str, str] = {}
        host.answer = self
        (host.folder / "run/systemd/system").mkdir(parents=True)

    @staticmethod
    def _unit(**fields: str) -> dict[str, str]:
        start = "1000000" if fields.get("ActiveState", "active") == "active" else "0"
        return {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "UnitFileState": "enabled",
            "Result": "success",
            "NeedDaemonReload": "no",
            "CanReload": "no",
            "ExecMainStartTimestampMonotonic": start,
            **fields,
        }

    def __call__(self, argv: list[str], stdin: str | None) -> Result:
        if argv[0] != "systemctl":
            return Result(0)
        verb, names = argv[1], [word for word in argv[2:] if not word.startswith("--")]
        if verb == "show":
            blocks = [self.units.get(name, {"LoadState": "not-found"}) for name in names]
            return Result(0, "\n\n".join("\n".join(f"{k}={v}" for k, v in b.items()) for b in blocks) + "\n")
        if verb == "daemon-reload":
            self._load()
        for name in names:
            self._act(verb, name, "--now" in argv)
        return Result(0)

    def _load(self) -> None:
        for unit in self.units.values():
            unit["NeedDaemonReload"] = "no"
        folder = self.host.folder / "etc/systemd/system"
        present = {path.name for path in folder.glob("*") if path.is_file()} if folder.is_dir() else set()
        for name in present - set(self.units):
            self.units[name] = self._unit(ActiveState="inactive", UnitFileState="disabled")
        for name in set(self.files) - present:
            self.units.pop(name, None)
        self.files = dict.fromkeys(present, "")

    def _act(self, verb: str, name: str, now: bool) -> None:
        unit = self.units[name]
        if verb in ("start", "restart"):
            unit["ActiveState"] = "active"
            unit["ExecMainStartTimestampMonotonic"] = str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        if verb == "stop" or now:
            unit["ActiveState"] = "inactive"
        if verb in ("enable", "disable"):
            unit["UnitFileState"] = verb + "d"
        if verb == "reset-failed":
            unit["ActiveState"] = "inactive"
