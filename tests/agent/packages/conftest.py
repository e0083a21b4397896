"""A host that is a folder, whose commands are answered by a script instead of being run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.host import Host
from fleet.agent.process import Result

Answer = Result | Callable[[Sequence[str]], Result]


class ScriptedHost(Host):
    """``on(prefix, answer)`` says what a command starting with those words gives; others fail the test."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), state_dir=str(root / "state"), runtime_dir=str(root / "runtime"))
        self.ran: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.options: list[dict[str, Any]] = []
        self._answers: list[tuple[tuple[str, ...], Answer]] = []

    def on(self, *prefix: str, answer: Answer) -> None:
        self._answers.insert(0, (prefix, answer))

    def run(self, argv: Sequence[str], **options: Any) -> Result:
        self.invalidate()
        self.ran.append(list(argv))
        self.environments.append(options.get("env") or {})
        self.options.append(options)
        for prefix, answer in self._answers:
            if tuple(argv[: len(prefix)]) == prefix:
                result = answer(argv) if callable(answer) else answer
                if options.get("on_output") is not None:
                    options["on_output"](result.stdout, "stdout")
                return result
        pytest.fail(f"unexpected command: {argv}")

    def write(self, path: str, content: str | bytes) -> Path:
        real = Path(self.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content.encode() if isinstance(content, str) else content)
        return real


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.lines: list[str] = []

    def output(self, text: str, stream: str = "stdout") -> None:
        self.texts.append(text)

    def progress(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def host(tmp_path: Path) -> ScriptedHost:
    """A Debian host with apt, fresh lists, and nothing locked."""
    made = ScriptedHost(tmp_path)
    made.write("/usr/bin/apt-get", "").chmod(0o755)
    made.write("/var/lib/apt/lists/example.net_debian_dists_bookworm_InRelease", "")
    made.write("/var/lib/dpkg/status", "")
    return made


@pytest.fixture
def report() -> Recorder:
    return Recorder()
