"""``python -m fleet.agent.bench.torch_side REQUEST``: run one group of tests, printing results as they come.

REQUEST is JSON: ``{"group", "suite", "gpu_uuids", "parameters"}`` (:func:`.plan.request`). The same program with
a ``role`` in its request is one of the children that :mod:`.conductor` starts. Exit codes: 0 (whatever the
results say), 2 for a bad request, 70 for a bug, 143 after SIGTERM.
"""

from __future__ import annotations

import os
import sys

from fleet.agent import strict_json
from fleet.agent.bench.torch_side import children, plan, results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from fleet.agent.bench.torch_side.backend import Backend

    Json = dict[str, Any]

BAD_REQUEST = 2


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    try:
        (text,) = arguments
        request = strict_json.loads(text)
        known = request["group"] in plan.GROUPS and request["suite"] in plan.SUITES
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        words = "one argument: JSON with group (one of %s), suite (one of %s), gpu_uuids and parameters\n"
        sys.stderr.write(words % (", ".join(plan.GROUPS), ", ".join(plan.SUITES)))
        return BAD_REQUEST
    if "role" in request:
        children.die_with_parent()
        return _child(request)
    from fleet.agent.bench.torch_side.conductor import conduct

    return conduct(request)


def _child(request: Mapping[str, Any]) -> int:
    """Measure what is owed."""
    from fleet.agent.bench.torch_side.backend import NoBackend, open_backend, see_only
    from fleet.agent.bench.torch_side.software import software

    gpus = request["gpu_uuids"]
    see_only(gpus)
    # Without it cuBLAS may choose other algorithms for the same product when streams share its workspace.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    installed = software()
    results.emit_software(installed)
    if request["role"] == "cpu":
        return _cpu(request, installed)
    try:
        backend = open_backend(gpus)
        indices = _indices(backend, gpus)
    except NoBackend as error:
        for test, of in request["owed"]:
            results.emit(results.not_measured(test, of, error.status, error.reason, error.message))
        return 0
    return _with_backend(request, backend, indices)


def _indices(backend: Backend, gpus: Sequence[str]) -> list[int]:
    """Where the backend has these GPUs. Raises NoBackend for one that it does not have."""
    from fleet.agent.bench.torch_side.backend import NoBackend

    order = [device["uuid"] for device in backend.devices()]
    missing = [uuid for uuid in gpus if uuid not in order]
    if missing:
        raise NoBackend("skipped", "no_gpus", "%s has no %s" % (backend.name, ", ".join(missing)))
    return [order.index(uuid) for uuid in gpus]


def _cpu(request: Mapping[str, Any], installed: Json) -> int:
    from fleet.agent.bench.torch_side.cpu import cpu_matrix_product

    for test, of in request["owed"]:
        if installed["torch"] is None:
            words = "this Python has no torch"
            results.emit(results.not_measured(test, of, "not_runnable", "torch_missing", words))
        else:
            results.emit(cpu_matrix_product(test))
    return 0


def _with_backend(request: Mapping[str, Any], backend: Backend, indices: Sequence[int]) -> int:
    from fleet.agent.bench.torch_side import catalogue
    from fleet.agent.bench.torch_side.session import Bench, run_tests

    suite, parameters, gpus = request["suite"], request["parameters"], request["gpu_uuids"]
    if request["role"] == "rank":
        from fleet.agent.bench.torch_side.ranks import Rank, run_rank

        rank = request["rank"]
        bench = Bench(backend, indices[rank["number"]], gpus, suite, parameters)
        member = Rank(bench, rank["number"], rank["count"], rank["store"], rank["silence_s"])
        code = run_rank(member, [(test, catalogue.of_ranks(test)) for test, _ in request["owed"]])
        if code:  # what NCCL still waits for must not hold up the end
            sys.stdout.flush()
            os._exit(code)
        return code
    if request["role"] == "peers":
        code = 0
        for test, pair in request["owed"]:
            bench = Bench(backend, indices[gpus.index(pair[0])], pair, suite, parameters)
            code = run_tests(bench, [(test, catalogue.of_gpu(test))]) or code
        return code
    bench = Bench(backend, indices[0], gpus, suite, parameters)
    return run_tests(bench, [(test, catalogue.of_gpu(test)) for test, _ in request["owed"]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
