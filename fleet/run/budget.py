"""Batches and the failure budget of a play: Ansible's ``serial`` and ``max_fail_percentage``.

Unlike Ansible's, one budget counts failed, blocked *and* unreachable hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def batches(hosts: Sequence[T], serial: Sequence[int | str] | None) -> list[list[T]]:
    """``hosts`` cut into batches by ``serial`` (counts or "30%"; the last entry repeats). None: one batch."""
    if not hosts:
        return []
    if not serial:
        return [list(hosts)]
    result: list[list[T]] = []
    start = 0
    sizes = [_size(entry, len(hosts)) for entry in serial]
    while start < len(hosts):
        size = sizes[min(len(result), len(sizes) - 1)]
        result.append(list(hosts[start : start + size]))
        start += size
    return result


def _size(entry: int | str, total: int) -> int:
    if isinstance(entry, str) and entry.strip().endswith("%"):
        return max(1, int(total * float(entry.strip()[:-1]) / 100))
    return max(1, int(entry))


def exhausted(bad: int, total: int, max_fail_percentage: float | None, any_errors_fatal: bool) -> bool:
    """Whether a batch of ``total`` hosts with ``bad`` not well must stop the play."""
    if bad == 0:
        return False
    if any_errors_fatal:
        return True
    if max_fail_percentage is None:
        return bad == total
    return bad * 100.0 / total > max_fail_percentage
