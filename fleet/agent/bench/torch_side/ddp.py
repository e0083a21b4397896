"""``ddp.resnet50``: ResNet-50 over all GPUs of the host by DistributedDataParallel.

Images per second of all GPUs together, and which share of a step is spent on making gradients the same
everywhere: (step - step without synchronisation) / step. That is what is left after overlapping, which is what
costs time. Checked: after some steps all ranks have the same weights.
"""

from __future__ import annotations

import math

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.precision import float32_as
from fleet.agent.bench.torch_side.resnet import ResNetWorkload
from fleet.agent.bench.torch_side.timing import sampled, values
from fleet.agent.bench.torch_side.training import LIMIT, SEED, Trained, Variant, synchronisation_percent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fleet.agent.bench.torch_side.ranks import Rank
    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

CHECKED_STEPS = 3
WITHOUT = ".without_synchronisation"


def ddp_resnet50(bench: Bench, rank: Rank, test: str) -> Json:
    """Mixed precision, channels_last, synthetic data."""
    import torch

    workload = ResNetWorkload(bench)
    variant = Variant("resnet50.amp_channels_last", workload, bench.capability)
    torch.backends.cudnn.benchmark = True
    parameters = {
        **workload.parameters,
        "dtype": variant.kind,
        "channels_last": True,
        "loader": "synthetic",
        "ranks": rank.count,
        "batch_counts": "per GPU",
    }
    with float32_as("tf32"):
        # Data of its own for each rank: without the exchange of gradients their weights would part.
        trained = Trained(bench, workload, variant, data_seed=SEED + 1 + rank.number)
        devices = [trained.device] if trained.device.type == "cuda" else None
        trained.network = torch.nn.parallel.DistributedDataParallel(trained.network, device_ids=devices)
        for batch in trained.batches * CHECKED_STEPS:
            trained(batch)
        checked = _same_weights(bench, rank, test, trained)
        if not checked["passed"]:
            words = "the ranks' weights differ after %d steps" % (CHECKED_STEPS * len(trained.batches))
            return results.wrong(test, bench.gpus, parameters, checked, words)
        if rank.number == 0:
            bench.note("%s: weights are the same on all ranks" % test)
        return _timed(bench, rank, test, trained, parameters, checked)


def _timed(bench: Bench, rank: Rank, test: str, trained: Trained, parameters: Json, checked: Json) -> Json:
    amount = trained.workload.amount * rank.count

    def seconds_of(call: Any, name: str) -> list[float]:
        backend, budget = bench.backend, bench.budget_s
        seconds = sampled(backend, call, amount, name, bench.gpus, budget, LIMIT, rank.agree)
        return rank.largest(seconds) if seconds else []

    step = trained.step()

    def alone() -> None:
        with trained.network.no_sync():
            step()

    seconds = seconds_of(step, test)
    loss = trained.loss_now()
    without = seconds_of(alone, test + WITHOUT)
    parameters = {**parameters, "synchronisation_percent": synchronisation_percent(seconds, without)}
    result = results.measured(test, bench.gpus, values(test, amount, seconds), parameters, checked)
    if result["status"] == "measured" and not math.isfinite(loss):
        result.update(status="invalid", reason="non_finite", message="the loss became %s" % loss)
    return result


def _same_weights(bench: Bench, rank: Rank, test: str, trained: Trained) -> Json:
    """Sums of all weights, and of their squares, are the same bits on every rank."""
    import torch

    flat = torch.cat([weight.detach().reshape(-1) for weight in trained.network.parameters()])
    seen = bench.backend.observed(test, flat, [bench.gpus[rank.number]]).to(torch.float64)
    sums = [seen.sum().item(), (seen * seen).sum().item()]
    largest = rank.largest([*sums, *(-number for number in sums)])
    passed = largest[:2] == [-number for number in largest[2:]]
    error = 0.0 if passed else None
    return {"checked": True, "passed": passed, "max_relative_error": error, "tolerance": 0.0}
