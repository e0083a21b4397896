"""What a burn-in draws: the power limits of all GPUs together, before it is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.core.errors import FleetError
from fleet.report.words import plural, printable, ranges


def power_lines(facts: Mapping[str, Mapping[str, Any] | FleetError]) -> list[str]:
    """``16 GPUs on 2 hosts may draw 11.2 kW together``, and what is not known of the others."""
    limits: dict[str, list[float | None]] = {}
    silent: dict[str, str] = {}
    for host, found in facts.items():
        if isinstance(found, FleetError):
            silent[host] = found.what
        else:
            limits[host] = [_limit(device) for device in _devices(found)]
    known = {host: [watts for watts in each if watts is not None] for host, each in limits.items()}
    with_gpus = [host for host, each in limits.items() if each]
    watts, count = sum(map(sum, known.values())), sum(map(len, known.values()))
    together = f"{plural(count, 'GPU')} on {plural(len(with_gpus), 'host')} may draw {_power(watts)} together"
    lines = [f"{together}, by their power limits; fans and processors come on top"]
    if not count:
        lines = ["no power limit is known: what this draws cannot be told"]
    per_host = sorted({sum(each) for each in known.values() if each})
    if len(with_gpus) > 1 and per_host:
        lines.append(f"at the most {_power(per_host[-1])} on one host")
    unknown = sum(len(each) for each in limits.values()) - count
    if unknown:
        lines.append(f"{plural(unknown, 'GPU')} did not tell a power limit: not counted")
    without = [host for host, each in limits.items() if not each]
    if without:
        lines.append(f"no GPU that could be asked on {ranges(without)}: not counted")
    for host, why in silent.items():
        lines.append(f"{host} could not be asked: {printable(why)}")
    return lines


def _devices(facts: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    probe = facts.get("gpu_probe")
    return probe.get("devices") or [] if isinstance(probe, Mapping) else []


def _limit(device: Mapping[str, Any]) -> float | None:
    """What is enforced now; where that is not told, what is set."""
    for name in ("power_limit_enforced_w", "power_limit_w"):
        if device.get(name) is not None:
            return float(device[name])
    return None


def _power(watts: float) -> str:
    return f"{watts / 1000:.1f} kW" if watts >= 1000 else f"{watts:.0f} W"
