"""How long a run takes that changes nothing: fleet beside its floor, ansible-core and pyinfra.

Sets a lab of N hosts up, converges it once, then times whole processes in interleaved rounds, so that
a noisy machine hurts all of them alike. Prints medians with the spread and the ratios; ``--json`` gives
``floor_s``, ``fleet_s``, ``ansible_s``, ``pyinfra_s``, ``fleet_cpu_s_per_host``, ``fleet_peak_rss_kb``.

    python benchmarks/noop.py --hosts 20 --rounds 5
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FLEET = [sys.executable, "-m", "fleet.cli"]
PEER_PACKAGES = ["ansible-core", "pyinfra"]


@dataclass
class Series:
    """Whole-process figures of one contestant, a value per round."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_rss_kb: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        return {
            "median_s": round(statistics.median(self.wall_s), 3),
            "min_s": round(min(self.wall_s), 3),
            "max_s": round(max(self.wall_s), 3),
            "cpu_s": round(statistics.median(self.cpu_s), 3),
            "peak_rss_kb": max(self.peak_rss_kb),
            "rounds_s": [round(one, 3) for one in self.wall_s],
        }


def measure(argv: list[str], env: dict[str, str], log: Path) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds (with children) and peak RSS (kB, largest process) of one process."""
    with log.open("wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{argv} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def bench_inventory(hosts: int, folder: Path, subnet: str) -> Path:
    """An inventory of ``hosts`` lab hosts, all Debian 12 with root login."""
    lines = [
        "all:",
        "  vars:",
        f"    lab_subnet: {subnet}.0/24",
        f"    lab_state: {folder}/bench",
    ]
    lines += [
        "    lab_release: bookworm",
        "    lab_login: root",
        "    ansible_user: root",
        f"    ansible_ssh_private_key_file: {folder}/bench/id_ed25519",
        f"    fleet_known_hosts: {folder}/bench/known_hosts",
        "  hosts:",
    ]
    lines += [f"    bench{n:02d}: {{ansible_host: {subnet}.{10 + n}}}" for n in range(1, hosts + 1)]
    path = folder / "bench.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def peer_venv() -> Path:
    """A virtual environment with the peers, made once under .cache/."""
    venv = ROOT / ".cache" / "peers"
    if not (venv / "bin" / "pyinfra").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "-q", *PEER_PACKAGES], check=True)
    return venv


def versions(venv: Path) -> dict[str, str]:
    def of(python: Path | str, package: str) -> str:
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.run(
            [str(python), "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()

    peer = venv / "bin" / "python"
    return {
        "fleet": of(sys.executable, "fleet-gpu"),
        "fabric": of(sys.executable, "fabric"),
        "paramiko": of(sys.executable, "paramiko"),
        "ansible-core": of(peer, "ansible-core"),
        "pyinfra": of(peer, "pyinfra"),
        "python": platform.python_version(),
    }


def contestants(
    inventory: Path, hosts: list[dict[str, object]], folder: Path, venv: Path
) -> dict[str, list[str]]:
    task = folder / "floor.json"
    task.write_text(json.dumps({"hosts": hosts, "imports": agent_imports()}))
    ansible_inventory = folder / "ansible.ini"
    ansible_inventory.write_text(
        "\n".join(
            f"{host['name']} ansible_host={host['address']} ansible_user=root "
            f"ansible_ssh_private_key_file={host['key']} "
            f"ansible_ssh_common_args='-o UserKnownHostsFile={host['known_hosts']} -o ControlPersist=60s'"
            for host in hosts
        )
        + "\n"
    )
    pyinfra_inventory = folder / "pyinfra_inventory.py"
    entries = [
        (
            host["address"],
            {"ssh_user": "root", "ssh_key": host["key"], "ssh_known_hosts_file": host["known_hosts"]},
        )
        for host in hosts
    ]
    pyinfra_inventory.write_text(f"hosts = {entries!r}\n")
    return {
        "floor": [sys.executable, str(HERE / "floor.py"), str(task)],
        "fleet": [*FLEET, "run", str(inventory), str(HERE / "noop.yaml")],
        "ansible": [
            str(venv / "bin" / "ansible-playbook"), "-i", str(ansible_inventory), str(HERE / "peers" / "play.yml"),
        ],
        "pyinfra": [str(venv / "bin" / "pyinfra"), "-y", str(pyinfra_inventory), str(HERE / "peers" / "deploy.py")],
    }  # fmt: skip


# What a no-op session of the 12 steps has imported at its end, besides what Python starts with.
SESSION = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import fleet.agent.session, fleet.agent.channel, fleet.agent.run_requests, queue, threading, select
from fleet.agent import facts, resources
from fleet.agent.host import Host
facts.collect(Host())
for kind in ("package", "directory", "file", "service", "user", "line"):
    resources.load(kind)
new = sorted(name for name in sys.modules if name not in before and name in sys.stdlib_module_names)
print(",".join(["os", *(name for name in new if name[0] != "_" and name not in ("os", "genericpath"))]))
"""


def agent_imports() -> str:
    """The public standard library modules that a no-op session of the agent has imported at its end."""
    argv = [sys.executable, "-I", "-S", "-c", SESSION, str(ROOT)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def lab_hosts(inventory: Path) -> list[dict[str, object]]:
    from fleet.inventory import load_inventory

    hosts = []
    for name, host in load_inventory(str(inventory)).hosts.items():
        endpoint = host.connection().endpoint
        hosts.append(
            {
                "name": name,
                "address": endpoint.address,
                "port": endpoint.port,
                "user": endpoint.user,
                "key": str(endpoint.key_files[0]),
                "known_hosts": str(endpoint.known_hosts[0]),
            }
        )
    return hosts


NOTHING_CHANGED = {
    "fleet": r"changed=0 ",
    "ansible": r"changed=0 ",
    "pyinfra": r"Grand total +\d+ +- +- +\d+",
}


def refuse_changes(name: str, log: str) -> None:
    """End the benchmark when a run that should have changed nothing changed something."""
    changed = re.search(r"changed=[1-9]", log)
    if name in NOTHING_CHANGED and (changed or not re.search(NOTHING_CHANGED[name], log)):
        raise SystemExit(f"{name} changed something, or does not say that it did not:\n{log[-3000:]}")


def rounds(
    commands: dict[str, list[str]], count: int, slow_count: int, env: dict[str, str], folder: Path
) -> dict[str, Series]:
    """``count`` rounds after one that does not count; ansible-core takes part in the first ``slow_count``."""
    series = {name: Series() for name in commands}
    for number in range(count + 1):
        for name, argv in commands.items():
            if name == "ansible" and not 1 <= number <= slow_count:
                continue
            wall, cpu, rss = measure(argv, env, folder / f"{name}.log")
            refuse_changes(name, (folder / f"{name}.log").read_text())
            print(f"  round {number} {name:8s} {wall:8.2f} s", file=sys.stderr)
            if number == 0:
                continue  # warm-up: caches, ControlPersist sockets, the agent's bundle
            series[name].wall_s.append(wall)
            series[name].cpu_s.append(cpu)
            series[name].peak_rss_kb.append(rss)
    return series


def report(series: dict[str, Series], hosts: int, seen: dict[str, str]) -> dict[str, object]:
    medians = {name: statistics.median(one.wall_s) for name, one in series.items()}
    result: dict[str, object] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}; lab hosts share these cores",
        "hosts": hosts,
        "rounds": len(series["fleet"].wall_s),
        "versions": seen,
        "fleet_cpu_s_per_host": round(statistics.median(series["fleet"].cpu_s) / hosts, 4),
        "fleet_peak_rss_kb": max(series["fleet"].peak_rss_kb),
        "series": {name: one.summary() for name, one in series.items()},
    }
    result.update({f"{name}_s": round(value, 3) for name, value in medians.items()})
    result.update(
        {f"{name}_over_fleet": round(value / medians["fleet"], 2) for name, value in medians.items()}
    )
    result["fleet_over_floor"] = round(medians["fleet"] / medians["floor"], 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ansible-rounds", type=int, default=5, help="a round takes minutes at 20 hosts")
    parser.add_argument("--only", default="floor,fleet,ansible,pyinfra", help="contestants, comma separated")
    parser.add_argument("--subnet", default="172.28.9", help="first three octets of the lab's network")
    parser.add_argument("--keep", action="store_true", help="leave the lab running")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = ROOT / ".cache" / "noop"
    folder.mkdir(parents=True, exist_ok=True)
    # pip compiles what it installs, the peers here among it; a source checkout must not be timed uncompiled.
    compileall.compile_dir(ROOT / "fleet", quiet=1)
    env = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "ANSIBLE_CONFIG": str(HERE / "peers" / "ansible.cfg"),
        "FLEET_STATE_DIR": str(folder / "fleet"),
        "FLEET_LAB_STATE": str(folder),  # or every run would look first whether this lab is up
        "PYTHONPATH": str(ROOT),
    }
    inventory = bench_inventory(options.hosts, folder, options.subnet)
    subprocess.run([*FLEET, "lab", "up", str(inventory)], check=True, stdout=sys.stderr)
    try:
        hosts = lab_hosts(inventory)
        venv = peer_venv()
        commands = contestants(inventory, hosts, folder, venv)
        commands = {name: commands[name] for name in options.only.split(",")}
        # Something must differ: a host keeps the agent's code only from a run that applied something.
        undo = [*FLEET, "exec", str(inventory), "all", "--", "rm", "-rf", "/opt/fleet"]
        for argv in (undo, commands["fleet"]):
            subprocess.run(argv, check=True, env=env, cwd=folder, stdout=sys.stderr)
        result = report(
            rounds(commands, options.rounds, options.ansible_rounds, env, folder),
            options.hosts,
            versions(venv),
        )
    finally:
        if not options.keep:
            subprocess.run([*FLEET, "lab", "down", str(inventory)], check=True, stdout=sys.stderr)
    print(json.dumps(result, indent=2) if options.json else table(result))


def table(result: dict[str, object]) -> str:
    series = result["series"]
    assert isinstance(series, dict)
    lines = [
        f"{name:8s} {one['median_s']:8.2f} s  ({one['min_s']:.2f} to {one['max_s']:.2f})"
        for name, one in series.items()
    ]
    lines.append(f"fleet / floor {result['fleet_over_floor']}")
    lines += [
        f"{name} / fleet {result[f'{name}_over_fleet']}" for name in series if name not in ("floor", "fleet")
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
