"""``fleet bench`` on lab hosts, and what the hosts themselves say of it: the hands of the benchmark tests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.core.schema import validate
from fleet.lab import faults
from fleet.lab.lab import Lab
from tests.e2e.harness import Fleet

Json = dict[str, Any]
RECORD = "/var/lib/fleet/checks/benchmark.json"
SITE_PACKAGES = "/usr/local/lib/python3.11/dist-packages"
# Earlier on the engine's PATH than Debian's own.
_RUNC = "/usr/local/sbin/runc"
_SMALL_SHM = r"""#!/bin/sh
case " $* " in *" create "*)
    bundle=$(echo "$*" | sed 's/.*--bundle \([^ ]*\).*/\1/')
    sed -i 's/"size=[0-9]*"/"size=67108864"/' "$bundle/config.json" ;;
esac
exec /usr/sbin/runc "$@"
"""


@dataclass(frozen=True)
class Site:
    """A lab, its inventory, and a fleet whose state lasts for all tests of a module."""

    lab: Lab
    inventory: Path
    fleet: Fleet

    def bench(self, *words: str, fleet: Fleet | None = None) -> Json:
        """``fleet bench --json``: the document, which follows its schema and says the exit code."""
        done = (fleet or self.fleet)("bench", str(self.inventory), "--json", *words)
        return document_of(done.out, done.code)

    def shell(self, host: str, script: str) -> str:
        """On the host, not through fleet."""
        return faults.shell(self.lab, host, script)

    def now(self, host: str) -> str:
        """The host's clock, as its engine counts."""
        return self.shell(host, "date +%s.%N").strip()

    def begun(self, host: str, since: str) -> list[str]:
        """The containers that the host's engine says were started since, in order."""
        said = self.shell(
            host,
            f"docker events --since {since} --until $(date +%s.%N) --filter type=container "
            "--filter event=start --format '{{.Actor.Attributes.name}}'",
        )
        return said.split()

    def groups_begun(self, host: str, since: str) -> list[str]:
        """The groups of tests that had a container since."""
        return [name.split("-")[2] for name in self.begun(host, since) if name.startswith("fleet-benchmark-")]

    def logins(self, host: str) -> int:
        """How often sshd has let somebody in, by its journal."""
        said = self.shell(host, "journalctl -u ssh --no-pager --grep Accepted -o cat 2>/dev/null | wc -l")
        return int(said)

    def record_file(self, host: str) -> str:
        """What identifies the record on the host's disk: content, place and times."""
        return self.shell(host, f"sha256sum {RECORD}; stat -c '%i %y %z' {RECORD}")

    def left(self, host: str) -> list[str]:
        """What of a benchmark is still there: containers, processes, folders. Nothing should be."""
        script = """
        docker ps --all --quiet --filter label=fleet.benchmark
        ls -d /run/fleet/bench 2>/dev/null || true
        for p in /proc/[0-9]*; do
            tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -q ^FLEET_BENCH_TOKEN= && cat $p/comm || true
        done
        """
        return self.shell(host, script).split()


def document_of(text: str, code: int) -> Json:
    """The document in ``text``."""
    found: Json = json.loads(text)
    assert validate(found, "bench") == []
    assert found["exit_code"] == code
    return found


def results(document: Json, host: str, *, gpu: int | None = None, prefix: str = "") -> dict[str, Json]:
    """Results by test; ``gpu``: of that GPU alone; with their verdicts under ``verdict``."""
    one = document["hosts"][host]
    uuids = [row["uuid"] for row in one["record"]["gpus"] if row["index"] == gpu]
    pairs = zip(one["record"]["results"], one["verdicts"], strict=False)
    return {
        result["test"]: {**result, "verdict": verdict}
        for result, verdict in pairs
        if result["test"].startswith(prefix) and (gpu is None or result["gpus"] == uuids)
    }


def said(found: dict[str, Json]) -> set[tuple[str, str | None, str]]:
    """The different (status, reason, verdict) of results."""
    return {(one["status"], one["reason"], one["verdict"]["verdict"]) for one in found.values()}


def derive(lab: Lab, host: str, base: str, tag: str, script: str, files: str = "") -> str:
    """On ``host``, an image ``tag`` that is ``base`` after ``script`` (its input: ``files``) was run in it."""
    run = ("docker", "run", "--interactive", "--network", "none", "--name", "deriving", "--entrypoint", "sh")
    faults.execute(lab, host, *run, base, "-ec", script, stdin=files)
    faults.shell(lab, host, f"docker commit deriving {tag}; docker rm deriving")
    return tag


@contextlib.contextmanager
def small_shared_memory(lab: Lab, host: str) -> Iterator[None]:
    """While it lasts, a container of ``host`` has Docker's usual 64 MB of /dev/shm, whatever it asked for."""
    faults.execute(lab, host, "sh", "-ec", f"cat > {_RUNC}; chmod 755 {_RUNC}", stdin=_SMALL_SHM)
    try:
        yield
    finally:
        faults.execute(lab, host, "rm", _RUNC)
