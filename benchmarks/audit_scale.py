"""What an audit of many stored reports costs: ``fleet audit INVENTORY --image … --from store``.

Makes an inventory of N hosts and their reports, of 40 kinds of hosts (GPUs, drivers, container toolkits, engines), in a
store of its own, then times whole processes: table, JSON and ``--best-image``. The goal is 10 s and 500 MB for 10,000
reports; every round must print the same bytes. Prints JSON.

    python benchmarks/audit_scale.py --hosts 10000 --rounds 5
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fleet.store import Store  # noqa: E402
from tests.cli.test_history import REPORT  # noqa: E402
from tests.facts import health_facts  # noqa: E402

Json = dict[str, Any]

IMAGE = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
#: Model of the tests' hosts, PCI device and subsystem where they are another product's, name, driver, flavour.
DRIVEN = (
    ("h100", None, "580.159.03", "open"),
    ("h100", None, "570.172.08", "open"),
    ("h100", None, "535.183.06", "open"),
    ("h200", None, "570.172.08", "open"),
    ("rtx4090", None, "550.90.07", "proprietary"),
    ("rtx4090", ("2b85", "NVIDIA GeForce RTX 5090"), "580.159.03", "open"),
    ("rtx4090", ("1b06", "NVIDIA GeForce GTX 1080 Ti"), "535.183.06", "proprietary"),
    ("t4", None, "515.105.01", "proprietary"),
    ("t4", ("1db4", "Tesla V100-PCIE-16GB"), "550.90.07", "proprietary"),
    ("a100_mig", None, "525.105.17", "proprietary"),
)
#: Container toolkit and engine.
CONTAINERS = (("1.18.2", "28.5.2"), ("1.17.4", "26.1.5"), ("1.14.0", "24.0.9"), ("1.19.1", "29.1.3"))
KINDS = len(DRIVEN) * len(CONTAINERS)


def facts_of_kind(number: int) -> Json:
    """The facts of one kind of host."""
    model, product, driver, flavour = DRIVEN[number % len(DRIVEN)]
    toolkit, engine = CONTAINERS[number // len(DRIVEN) % len(CONTAINERS)]
    facts = health_facts(model)
    text = json.dumps(facts).replace("580.159.03", driver)
    text = text.replace("1.18.2", toolkit).replace("20.10.24+dfsg1", engine)
    facts = json.loads(text)
    facts["driver"]["loaded"]["flavour"] = flavour
    if product is not None:
        device, name = product
        for gpu in (*facts["gpus"], *facts["gpu_probe"]["devices"]):
            gpu |= {"device_id": device, "name": name}
    return facts


def report(name: str, number: int, facts: Json) -> Json:
    """A host's report as a run writes it: its own ids, a time of its own, forty steps."""
    own = copy.deepcopy(facts)
    own["identity"] |= {"hostname": name, "fqdn": f"{name}.example.net", "machine_id": f"{number:032x}"}
    own["collected_at"] = f"2026-11-{1 + number % 30:02}T{number % 24:02}:{number % 60:02}:00Z"
    step = {**REPORT["steps"][0], "status": "ok"}
    return {**REPORT, "host": name, "status": "converged", "reason": None, "remedy": None,
            "steps": [step] * 40, "counts": {"ok": 40}, "facts": own}  # fmt: skip


def prepared(folder: Path, hosts: int) -> tuple[Path, int]:
    """The inventory of ``hosts`` hosts, whose reports are now in the store, and the bytes of these reports."""
    kinds = [facts_of_kind(number) for number in range(KINDS)]
    names = [f"gpu{number:05}" for number in range(hosts)]
    inventory, size = folder / "site.yaml", 0
    inventory.write_text(f"all:\n  hosts:\n    gpu[00000:{hosts - 1:05}]: {{}}\n", encoding="utf-8")
    with Store() as store:
        store.create_run("a" * 12, playbook="provision", inventory=str(inventory), operator="o", controller="c",
                         hosts=names)  # fmt: skip
        for number, name in enumerate(names):
            document = report(name, number, kinds[number % KINDS])
            size += len(json.dumps(document, separators=(",", ":")))
            store.put_report("a" * 12, name, document)
            if number % 500 == 0:
                store.runs(1)  # wait until these are written: what waits is in memory
    return inventory, size


def measured(argv: list[str], rounds: int, folder: Path) -> Json:
    """``rounds`` whole processes: wall and CPU seconds, peak memory, and whether all printed the same."""
    walls, cpus, peaks, loads, prints, codes = [], [], [], [], set(), set()
    for _ in range(rounds):
        output = folder / "output"
        loads.append(round(os.getloadavg()[0], 1))
        with output.open("wb") as file:
            start = time.perf_counter()
            process = subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT, cwd=folder)
            _, status, usage = os.wait4(process.pid, 0)
            walls.append(round(time.perf_counter() - start, 2))
        process.returncode = os.waitstatus_to_exitcode(status)
        cpus.append(round(usage.ru_utime + usage.ru_stime, 2))
        peaks.append(usage.ru_maxrss)
        prints.add(hashlib.sha256(output.read_bytes()).hexdigest())
        codes.add(process.returncode)
    return {
        "arguments": argv[3:],
        "rounds_s": walls,
        "load_before_each": loads,
        "median_s": statistics.median(walls),
        "min_s": min(walls),
        "cpu_s": statistics.median(cpus),
        "peak_rss_mb": round(max(peaks) / 1024),
        "same_bytes": len(prints) == 1,
        "output_bytes": output.stat().st_size,
        "first_line": output.read_text(encoding="utf-8").splitlines()[0][:200],
        "exit_codes": sorted(codes),
    }


def main() -> None:
    """Prepare, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FLEET_STATE_DIR"] = str(folder / "state")
        os.environ["PYTHONPATH"] = str(ROOT)
        os.environ.pop("FLEET_STORE", None)
        inventory, size = prepared(folder, options.hosts)
        fleet = [
            sys.executable,
            "-m",
            "fleet.cli",
            "audit",
            inventory.name,
            "--image",
            IMAGE,
            "--from",
            "store",
        ]
        series = {
            "table": measured(fleet, options.rounds, folder),
            "json": measured([*fleet, "--json"], options.rounds, folder),
            "best_image": measured([*fleet, "--best-image"], options.rounds, folder),
        }
    print(json.dumps(result(options, size, series), indent=2))


def result(options: argparse.Namespace, size: int, series: Json) -> Json:
    """The figures with what they hold for."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}; shared with other work (see the loads)",
        "versions": {
            "fleet": version("fleet-gpu"),
            "python": platform.python_version(),
            "sqlalchemy": version("sqlalchemy"),
        },
        "method": "whole processes by os.wait4: wall seconds, CPU seconds, peak resident memory; a store in SQLite "
        "with one run; the output of every round compared by SHA-256",
        "goal": {"median_s": 10, "peak_rss_mb": 500},
        "hosts": options.hosts,
        "kinds_of_hosts": KINDS,
        "report_bytes": size,
        "series": series,
    }


if __name__ == "__main__":
    main()
