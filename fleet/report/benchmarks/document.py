"""The JSON that ``fleet bench --json`` prints: schemas/bench.schema.json."""

from __future__ import annotations

from typing import Any

from fleet.report.benchmarks.benched import Benched
from fleet.report.benchmarks.problems import troubles

SCHEMA = "fleet.bench/1"


def document(benched: Benched) -> dict[str, Any]:
    """Everything the table is made of, and the records whole."""
    return {
        "schema": SCHEMA,
        "run": benched.run,
        "inventory": benched.inventory,
        "suite": benched.suite,
        "simulated": benched.simulated,
        "exit_code": int(benched.exit_code),
        "notes": list(benched.notes),
        "hosts": {
            name: {
                "verdict": host.worst,
                "status": host.status,
                "reason": host.reason,
                "remedy": host.remedy,
                "verdicts": [one.as_json() for one in host.verdicts],
                "record": host.record,
            }
            for name, host in benched.hosts.items()
        },
        "problems": [one.as_json() for one in troubles(benched)],
    }
