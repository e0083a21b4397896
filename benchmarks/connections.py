"""What many connections cost at once: opens N to the hosts of an inventory, holds them, closes them.

Every connection is a whole one: SSH handshake, login, the agent's hello, beats both ways. Connections are
spread evenly over the hosts; one sshd permits ten sessions per connection and begins to drop handshakes at ten
under way (MaxStartups), which the connector's own caps respect. Prints JSON: seconds and CPU seconds to
connect, CPU per connection and second while held, memory of this process.

    python benchmarks/connections.py INVENTORY --connections 1000 --hold 30
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleet.core.errors import HostError
from fleet.core.secret import Scrubber
from fleet.inventory import load_inventory
from fleet.transport import AgentConnection, Connector


def cpu_s() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_kb() -> int:
    """Resident memory of this process now, in kB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def opened(connector: Connector, inventory: str, count: int, threads: int) -> list[AgentConnection]:
    """``count`` connections, hosts in turn; those that failed are reported on standard error."""
    hosts = [host.connection() for host in load_inventory(inventory).hosts.values()]

    def one(number: int) -> AgentConnection | None:
        try:
            return connector.connect(hosts[number % len(hosts)])
        except HostError as error:
            print(f"connection {number}: {error}", file=sys.stderr)
            return None

    with ThreadPoolExecutor(threads) as pool:
        return [connection for connection in pool.map(one, range(count)) if connection is not None]


def main() -> None:
    """Open, hold, ask everyone something, close; print what it cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inventory")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--hold", type=float, default=30.0, help="seconds")
    parser.add_argument("--threads", type=int, default=64)
    options = parser.parse_args()
    connector = Connector(Scrubber())
    before_kb, before_cpu, start = rss_kb(), cpu_s(), time.monotonic()
    connections = opened(connector, options.inventory, options.connections, options.threads)
    connected_cpu, connected = cpu_s(), time.monotonic()
    time.sleep(options.hold)
    held_cpu = cpu_s()
    alive = sum(connection.alive for connection in connections)
    held_kb, count = rss_kb(), max(1, len(connections))
    connector.close()
    result = {
        "connections": len(connections),
        "alive_after_hold": alive,
        "connect_s": round(connected - start, 2),
        "connect_cpu_s": round(connected_cpu - before_cpu, 2),
        "connect_cpu_ms_each": round((connected_cpu - before_cpu) / count * 1000, 2),
        "hold_s": options.hold,
        "held_cpu_ms_per_connection_second": round(
            (held_cpu - connected_cpu) / count / options.hold * 1000, 3
        ),
        "rss_kb_before": before_kb,
        "rss_kb_held": held_kb,
        "peak_rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "close_s": round(time.monotonic() - connected - options.hold, 2),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
