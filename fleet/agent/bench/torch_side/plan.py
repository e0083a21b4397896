"""Which tests a suite has, in which groups, and how long each may take. No torch: the runner uses it too.

A group is one process (one container). ``quick`` is under a minute per host; ``full`` adds every type, sizes,
compiled networks and DDP; ``burn`` is only the sustained, checked products. Groups that are about single GPUs
drive all of theirs at once, each in a child of its own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Optional

    Json = dict[str, Any]

SUITES = ("quick", "full", "burn")
GROUPS = ("cpu", "compute", "training", "compile", "collectives", "ddp", "burn")
SEVERAL_GPUS = ("collectives", "ddp")

_MATRIX = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "int8", "fp16_sparse", "int8_sparse")
_TESTS = {
    "cpu": ("cpu.matrix_product",),
    "compute": (
        *("matrix_product." + kind for kind in _MATRIX),
        "memory.copy",
        "memory.triad",
        "host_link.to_device",
        "host_link.from_device",
    ),
    "training": (
        "resnet50.amp_channels_last",
        "resnet50.amp",
        "resnet50.tf32",
        "resnet50.fp32",
        "transformer.amp",
        "transformer.tf32",
        "transformer.fp32",
    ),
    "compile": (
        "resnet50.compile",
        "resnet50.compile_reduce_overhead",
        "transformer.compile",
        "transformer.compile_reduce_overhead",
    ),
    "collectives": (
        "peer.copy",
        "nccl.all_reduce",
        "nccl.all_gather",
        "nccl.reduce_scatter",
        "nccl.all_reduce_latency",
    ),
    "ddp": ("ddp.resnet50",),
    "burn": ("burn",),
}
# A network's first step tries cuDNN's algorithms, which costs seconds for each.
_QUICK_TRAINING = ("resnet50.amp_channels_last", "transformer.amp")
_GROUPS_OF = {
    "quick": ("cpu", "compute", "training", "collectives"),
    "full": ("cpu", "compute", "training", "compile", "collectives", "ddp"),
    "burn": ("burn",),
}
# Several times what they take on an H200: old and small cards are slower, disks may be cold.
_DEADLINES_S = {
    "quick": {"cpu": 60, "compute": 180, "training": 180, "collectives": 180},
    "full": {"cpu": 60, "compute": 420, "training": 600, "compile": 1500, "collectives": 600, "ddp": 420},
}
BURN_S = 300
_BURN_START_S = 120
# NCCL's own segments for eight ranks, with room.
_SHM_BYTES = 1 << 30
# Seconds of timed calls per measurement.
_BUDGETS_S = {"quick": 0.2, "full": 1.0, "burn": 1.0}
_QUICK_SIZES = (8, 1 << 20, 1 << 26, 1 << 30)
_LARGEST = 1 << 30


def groups(
    suite: str, gpus: Sequence[str], burn_s: int = BURN_S, only: Optional[Sequence[str]] = None
) -> list[Json]:
    """What to run, in order: ``[{"group", "gpu_uuids", "deadline_s", "needs_shm_bytes"}]``.

    ``gpus``: uuids of GPUs or MIG instances. The instances of MIG cannot talk to each other, so groups of
    several GPUs take whole ones only, and are left out for fewer than two. ``burn_s``: duration of ``burn``.
    ``only``: of the suite's groups, those.
    """
    whole = [uuid for uuid in gpus if not uuid.startswith("MIG-")]
    planned = []
    for group in (name for name in _GROUPS_OF[suite] if only is None or name in only):
        members = [] if group == "cpu" else whole if group in SEVERAL_GPUS else list(gpus)
        if (group in SEVERAL_GPUS and len(members) < 2) or (group != "cpu" and not members):
            continue
        deadline = burn_s + _BURN_START_S if suite == "burn" else _DEADLINES_S[suite][group]
        shm = _SHM_BYTES if group in SEVERAL_GPUS else 0
        planned.append({"group": group, "gpu_uuids": members, "deadline_s": deadline, "needs_shm_bytes": shm})
    return planned


def tests(group: str, suite: str) -> Sequence[str]:
    """The test ids of a group, in the order they are run."""
    return _QUICK_TRAINING if (group, suite) == ("training", "quick") else _TESTS[group]


def expected(group: str, suite: str, gpus: Sequence[str]) -> list[tuple[str, list[str]]]:
    """``(test, gpus)`` of every result that a group owes: what is not printed by its end, is missing."""
    found: list[tuple[str, list[str]]] = []
    for test in tests(group, suite):
        if group == "cpu":
            found.append((test, []))
        elif test == "peer.copy":
            found.extend((test, [source, target]) for source in gpus for target in gpus if source != target)
        elif group in SEVERAL_GPUS:
            found.append((test, list(gpus)))
        else:
            found.extend((test, [uuid]) for uuid in gpus)
    return found


def budget_s(suite: str) -> float:
    """Seconds of timed calls that one measurement may take."""
    return _BUDGETS_S[suite]


def collective_sizes(suite: str) -> list[int]:
    """Sizes in bytes that collectives are measured at, ascending."""
    if suite == "quick":
        return list(_QUICK_SIZES)
    return [8 * 8**step for step in range(10) if 8 * 8**step < _LARGEST] + [_LARGEST]


def bus_factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth: what each link carries, by nccl-tests' definition."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks


def request(
    group: str, suite: str, gpus: Sequence[str], parameters: Optional[Mapping[str, Any]] = None
) -> Json:
    """The argument of ``python -m fleet.agent.bench.torch_side``. Parameters that are read: ``deadline_s``
    (tests that would begin after it are skipped), ``burn_s``, ``silence_s`` (a rank that says nothing for
    longer is taken to hang)."""
    return {"group": group, "suite": suite, "gpu_uuids": list(gpus), "parameters": dict(parameters or {})}
