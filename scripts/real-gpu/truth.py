#!/usr/bin/env python3
"""What fleet says of this machine's own GPUs, held against what NVML and bare torch loops say in the same run.

For the same machine as :mod:`run`, whose parts and set-up it uses. In order: status, health, every field of the
probe against NVML's own functions (``nvml_fields.py``), the probe's time, the CPU time and memory of a timer run,
bare loops, ``fleet bench`` between them, and faults made on purpose (a tenant on GPU 0, no compiler, 64 MB of
shared memory, a rank that stands still), each of which must end in its own verdict while the other tests go on.

    truth.py --parts parts.tar.xz --out FOLDER      as root; exit code 0 when everything held
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import run as setting
from run import HOST, Bench, say

HERE = Path(__file__).resolve().parent
PROBES = 10
#: How libraries of several GPUs are set up on this machine.
COMMUNICATION = ("NCCL_", "TORCH_", "NVSHMEM_")
SMALL_PORT = 2223  # of the second sshd, whose shared memory is small

#: Holds a GPU's memory and keeps it busy until it is ended.
TENANT = """\
import torch
a = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    b = a @ a
    torch.cuda.synchronize()
"""


def kept_variables(*prefixes: str) -> dict[str, str]:
    """This machine's own settings that measuring processes need too."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


class Fleet:
    """fleet's command line on this machine, each call's words kept in a file of the results."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.folder = bench.work / "fleet"
        self.folder.mkdir(exist_ok=True)
        path = [str(bench.options.fleet), str(bench.work / "parts" / "site")]
        self.environment = {
            **os.environ,
            "PYTHONPATH": ":".join(path),
            "FLEET_STATE_DIR": str(self.folder / "state"),
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
        }

    def __call__(self, name: str, *words: str) -> tuple[int, str]:
        """(exit code, standard output) of ``fleet WORDS``; both streams go to ``NAME.txt`` of the log."""
        done = subprocess.run(
            [sys.executable, "-m", "fleet.cli", *words],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        with (self._bench.out / "commands.txt").open("a") as log:
            log.write(
                f"── {name}\n$ fleet {' '.join(words)}\n{done.stdout}{done.stderr}exit code {done.returncode}\n\n"
            )
        say(f"{name}: exit code {done.returncode}")
        return done.returncode, done.stdout

    def bench(
        self, name: str, inventory: Path, *words: str, variables: Mapping[str, str] | None = None
    ) -> Any:
        """``fleet bench`` with this very Python's torch, and what it says as JSON."""
        own = () if self._bench.options.where == "container" else ("LD_LIBRARY_PATH", "PATH")
        environment = {**kept_variables(*own, *COMMUNICATION), **(variables or {})}
        said = {"benchmark_python": sys.executable, "benchmark_environment": environment}
        where = ("--where", self._bench.options.where)
        return self.document(name, "bench", str(inventory), *where, "-e", json.dumps(said), *words)

    def document(self, name: str, *words: str) -> Any:
        """What ``fleet WORDS --json`` prints."""
        _, text = self(name, *words, "--json")
        try:
            found = json.loads(text)
        except ValueError:
            found = {"not_json": text[-2000:]}
        self._bench.seen[name] = found
        return found


def probe_checked(bench: Bench, fleet: Fleet) -> bool:
    """Every field of the probe against NVML's own functions; both are asked within the same seconds."""
    _, text = fleet("probe", "agent", "probe")
    facts = json.loads(text)
    probe = facts["gpu_probe"]
    path = bench.work / "probe.json"
    path.write_text(json.dumps(probe))
    bench.seen["probe"] = probe
    done = bench.run([sys.executable, HERE / "nvml_fields.py", path], check=False)
    with (bench.out / "commands.txt").open("a") as log:
        log.write(f"── every field against NVML\n{done.stdout}{done.stderr}exit code {done.returncode}\n\n")
    return done.returncode == 0


def cost(bench: Bench, fleet: Fleet) -> dict[str, object]:
    """Seconds of the probe, and what one run of the timer's command costs: CPU, memory, wall clock.

    By the bundle that fleet put on this machine: that is what a timer runs.
    """
    bundles = [path for path in Path("/var/lib/fleet/agent").glob("*") if (path / "fleet").is_dir()]
    if not bundles:
        return {"not measured": "no bundle was unpacked"}
    command = [sys.executable, "-S", "-E", "-m", "fleet.agent"]
    took, runs = [], []
    for _ in range(PROBES):
        done = subprocess.run([*command, "probe"], cwd=bundles[0], capture_output=True, check=True)
        took.append(float(json.loads(done.stdout)["gpu_probe"]["duration_s"]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(PROBES):
        began = time.monotonic()
        report = [*command, "report", "--output", str(bench.work / "report.json")]
        subprocess.run(report, cwd=bundles[0], check=True, capture_output=True)
        runs.append(time.monotonic() - began)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "probe_s": {"median": statistics.median(took), "maximum": max(took), "runs": PROBES},
        "timer_run": {"wall_s_median": round(statistics.median(runs), 3), "cpu_s": round(cpu / PROBES, 3)},
        "largest_process_mib": _largest_mib(
            [*command, "report", "--output", str(bench.work / "report.json")], bundles[0]
        ),
    }


def _largest_mib(command: Sequence[str], folder: Path) -> float:
    """The peak of resident memory of one run, asked of a process that had no other child."""
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=folder, capture_output=True, check=True
    )
    return round(int(done.stdout) / 1024, 1)


def bare_loops(bench: Bench, when: str) -> Any:
    """The yardstick: the same work by a script that knows nothing of fleet."""
    done = bench.run([sys.executable, HERE / "bare_loops.py"], check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {"failed": (done.stdout + done.stderr)[-2000:]}
    bench.seen[f"bare loops {when}"] = found
    return found


def shared(report: Any) -> dict[str, float]:
    """Value by test of the first GPU in a ``fleet bench --json`` document."""
    rows = report.get("hosts", {}).get(HOST, {}).get("verdicts", [])
    found: dict[str, float] = {}
    for row in rows:
        if row.get("value") is not None:
            found.setdefault(row["test"], row["value"])
    return found


def tenant(bench: Bench, fleet: Fleet, inventory: Path) -> Any:
    """Somebody works on GPU 0 meanwhile: that GPU is left alone and named, others are measured."""
    process = subprocess.Popen([sys.executable, "-c", TENANT], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        return fleet.bench("another tenant", inventory, "--only", "compute")
    finally:
        process.kill()
        process.wait(30)


class StandStill(threading.Thread):
    """Stops one rank of the collectives where it stands, as a driver that hangs would. Ends by :meth:`over`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self.stopped: int | None = None

    def run(self) -> None:
        """Look for the ranks until there is one to stop."""
        while self.stopped is None and not self._over.wait(0.2):
            ranks = _ranks()
            if len(ranks) >= 2:
                self._over.wait(4.0)  # until it is in the middle of the sweep
                try:
                    os.kill(ranks[-1], signal.SIGSTOP)
                    self.stopped = ranks[-1]
                except ProcessLookupError:
                    continue

    def over(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()


def _ranks() -> list[int]:
    """The processes of the benchmark's collectives, by rank: they are this script's own, of the run that goes on."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [int(one[5:]) for one in variables if one.startswith(b"RANK=")]
        if ranks and any(one.startswith(b"FLEET_BENCH_TOKEN=") for one in variables):
            found.append((ranks[0], int(folder.name)))
    return [pid for _, pid in sorted(found)]


def hang(bench: Bench, fleet: Fleet, inventory: Path) -> Any:
    """One rank stands still: the collectives end at their deadline, everything else is measured."""
    breaker = StandStill()
    breaker.start()
    try:
        return fleet.bench("a rank that hangs", inventory, "--only", "cpu,collectives")
    finally:
        breaker.over()
        bench.seen["stopped rank"] = breaker.stopped


def without_compiler(bench: Bench, fleet: Fleet, inventory: Path) -> Any:
    """No gcc on the PATH of the measuring process: only the compiled tests say so."""
    variables = {"PATH": str(Path(sys.executable).parent)}
    words = ("--suite", "full", "--only", "cpu,compile")
    return fleet.bench("no compiler", inventory, *words, variables=variables)


def small_shared_memory(bench: Bench, fleet: Fleet, inventory: Path) -> Any:
    """The same machine by an sshd whose /dev/shm has 64 MB."""
    config = bench.work / "sshd_config"
    other = bench.work / "sshd_small"
    text = config.read_text().replace(f"Port {bench.options.ssh_port}", f"Port {SMALL_PORT}")
    other.write_text(text.replace("sshd.pid", "sshd_small.pid"))
    script = f"mount -t tmpfs -o size=64m tmpfs /dev/shm && exec {bench.root}/usr/sbin/sshd -D -e -f {other}"
    bench.start("sshd_small", ["unshare", "--mount", "sh", "-c", script])
    bench.wait_for("sshd_small", [bench.root / "usr/bin/ssh-keyscan", "-p", str(SMALL_PORT), "127.0.0.1"])
    hosts = json.loads(inventory.read_text())
    hosts["all"]["hosts"][HOST]["ansible_port"] = SMALL_PORT
    path = bench.work / "small.yaml"
    path.write_text(json.dumps(hosts))
    known = bench.work / "known_hosts"
    known.write_text(
        known.read_text() + known.read_text().replace(str(bench.options.ssh_port), str(SMALL_PORT))
    )
    return fleet.bench("64 MB of shared memory", path, "--only", "cpu,collectives")


def perform(bench: Bench) -> dict[str, object]:
    """Everything in order; the outcome."""
    setting.about_the_machine(bench)
    steps = [("unpack", setting.unpack), ("sshd", setting.start_sshd)]
    if "image" not in bench.options.without:
        steps += [
            ("engine", setting.start_engine),
            ("registry", setting.start_registry),
            ("image", setting.make_image),
        ]
    for title, action in steps:
        with bench.phase(title):
            action(bench)
    bench.options.extra.setdefault("benchmark_environment", kept_variables(*COMMUNICATION))
    inventory = setting.write_inventory(bench)
    fleet = Fleet(bench)
    outcome: dict[str, object] = {}
    if "image" in bench.seen:
        with bench.phase("provision"):
            outcome["provision"] = fleet("provision", "provision", str(inventory))[0]
    with bench.phase("status and health"):
        fleet("status in words", "status", str(inventory))
        fleet.document("status", "status", str(inventory))
        fleet("health in words", "health", str(inventory))
        fleet.document("health", "health", str(inventory))
    with bench.phase("every field against NVML"):
        outcome["fields_held"] = probe_checked(bench, fleet)
    outcome["benchmarks"] = benchmarks(bench, fleet, inventory)
    with bench.phase("cost"):
        outcome["cost"] = cost(bench, fleet)
    outcome["held"] = bool(outcome["fields_held"])
    faults: Mapping[str, Any] = {
        "tenant": tenant,
        "hang": hang,
        "compiler": without_compiler,
        "shm": small_shared_memory,
    }
    for name in bench.options.fault:
        with bench.phase(f"fault: {name}"):
            outcome[f"fault {name}"] = _reasons(faults[name](bench, fleet, inventory))
    return outcome


def benchmarks(bench: Bench, fleet: Fleet, inventory: Path) -> dict[str, object]:
    """Bare loops, the suite, bare loops again."""
    with bench.phase("bare loops, before"):
        before = bare_loops(bench, "before")
    with bench.phase(f"fleet bench, {bench.options.suite}, {bench.options.where}"):
        began = time.monotonic()
        host = fleet.bench(f"bench {bench.options.suite}", inventory, "--suite", bench.options.suite)
        took = time.monotonic() - began
    fleet("bench in words", "bench", str(inventory), "--from", "last", "-v")
    with bench.phase("bare loops, after"):
        after = bare_loops(bench, "after")
    found: dict[str, object] = {"seconds": round(took, 1), "values": shared(host), "bare": [before, after]}
    return found


def _reasons(report: Any) -> Any:
    """Test → (verdict, reasons, GPUs) of everything that was not simply measured, and how many were."""
    rows = report.get("hosts", {}).get(HOST, {}).get("verdicts", [])
    odd = [
        {key: row.get(key) for key in ("test", "verdict", "reasons", "gpus")}
        for row in rows
        if row.get("value") is None
    ]
    return {"without a value": odd, "measured": sum(row.get("value") is not None for row in rows)}


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: that of run.py, and --suite and --fault."""
    parser = argparse.ArgumentParser(
        description="Hold what fleet says of this machine's GPUs against NVML and torch."
    )
    parser.add_argument("--suite", default="full", choices=("quick", "full"))
    parser.add_argument(
        "--where", default="host", choices=("container", "host"), help="of the suite and faults"
    )
    parser.add_argument("--fault", action="append", default=[], choices=("tenant", "hang", "compiler", "shm"))
    own, rest = parser.parse_known_args(arguments)
    given = setting.options(rest)
    given.suite, given.fault, given.where = own.suite, own.fault, own.where
    return given


def main() -> int:
    """0: every field held and all steps ended. 1: not so."""
    bench = Bench(options())
    if os.geteuid() != 0:
        raise SystemExit("this sets up services: run it as root")
    outcome: dict[str, object] = {"held": False}
    try:
        outcome = perform(bench)
    except (SystemExit, AssertionError, subprocess.SubprocessError, ValueError, KeyError) as error:
        outcome["stopped"] = repr(error)
        sys.stderr.write(f"{error!r}\n")
    finally:
        setting.keep(bench, outcome)
        bench.stop()
    say(json.dumps({"outcome": outcome, "seconds": bench.seconds}, default=str)[:6000])
    return 0 if outcome.get("held") else 1


if __name__ == "__main__":
    sys.exit(main())
