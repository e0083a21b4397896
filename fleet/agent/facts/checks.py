"""What checks on this host found last: whether containers see its GPUs, and what benchmarks measured.

Written by the resources :mod:`fleet.agent.resources.container_check` and :mod:`fleet.agent.resources.benchmark`.
"""

from __future__ import annotations

import os

from fleet.agent import strict_json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("container_check", "benchmark")


def path(host: Host) -> str:
    """Where the container check's record lies."""
    return os.path.join(host.state_dir, "checks", "container.json")


def benchmark_path(host: Host) -> str:
    """Where the benchmarks' record lies."""
    return os.path.join(host.state_dir, "checks", "benchmark.json")


def read(host: Host) -> Json:
    """The container check's record as it was written. Raises OSError, and ValueError for what is no record."""
    return _read(path(host))


def read_benchmark(host: Host) -> Json:
    """The benchmarks' record as it was written. Raises as :func:`read` does, also for NaN and infinities."""
    return _read(benchmark_path(host))


def collect(host: Host) -> Json:
    """The records; null (``not_collected``) where nothing was checked or measured."""
    document: Json = {}
    for key, place in (("container_check", path(host)), ("benchmark", benchmark_path(host))):
        try:
            document[key] = _read(place)
        except FileNotFoundError:
            document[key] = None
            document[key + "_reason"] = "not_collected"
    return document


def _read(place: str) -> Json:
    found = strict_json.load(place)
    if not isinstance(found, dict):
        raise ValueError("checks/%s holds no object" % os.path.basename(place))
    return found
