"""Seconds to load, check and list a 10,000-host inventory. Run: ``python benchmarks/inventory.py [HOSTS]``.

The budget is 3 s of wall time for ``fleet inventory`` (design, section 7); this prints each part.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from click.testing import CliRunner

from fleet.cli.inventory import inventory as command
from fleet.inventory import load_inventory


def written(folder: Path, hosts: int) -> Path:
    """An inventory of racks of 100 hosts, each host with its own variables, a nested one among them."""
    lines = [
        "all:",
        "  vars:",
        "    ansible_user: ops",
        "    ansible_python_interpreter: auto",
        "    ansible_ssh_common_args: -o ControlMaster=auto -J ops@bastion.example.net",
        "  children:",
    ]
    for number in range(hosts):
        rack, slot = divmod(number, 100)
        if slot == 0:
            lines += [f"    rack{rack:03d}:", "      vars:", f"        rack: r{rack}", "      hosts:"]
        lines += [
            f"        gpu{rack:03d}-{slot:02d}:",
            f"          ansible_host: 10.{rack // 200}.{rack % 200}.{slot}",
            f'          bmc_mac: "52:54:00:00:{rack % 256:02x}:{slot:02x}"',
            '          nvidia_driver_version: "580.159.04"',
            "          labels: {row: 1, tags: [x, y]}",
        ]
    path = folder / "big.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Print the seconds of each part."""
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), hosts)
        start = time.perf_counter()
        inventory = load_inventory(path)
        loaded = time.perf_counter()
        for host in inventory.hosts.values():
            host.connection()
        connected = time.perf_counter()
        result = CliRunner().invoke(command, [str(path)])
        listed = time.perf_counter()
    print(f"hosts                     {len(inventory.hosts):>8}   file {path.name}")
    print(f"load and check            {loaded - start:8.2f} s")
    print(f"connection() of each      {connected - loaded:8.2f} s")
    print(f"fleet inventory (all)     {listed - connected:8.2f} s   exit {result.exit_code}")


if __name__ == "__main__":
    main()
