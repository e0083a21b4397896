"""Training steps: forward, backward and optimizer on synthetic data that is on the device already.

What is trained is a :class:`Workload` (:mod:`.resnet`, :mod:`.transformer`); how, says the variant, which is the
second part of the test's id: ``fp32``, ``tf32``, ``amp`` (bf16; fp16 with a scaler on GPUs without bf16 units),
``amp_channels_last``, ``compile`` and ``compile_reduce_overhead`` (mixed precision through torch.compile, its
gain against the same step without). Before it is timed, an eager network's output is compared with float64, and
a compiled one's first loss with the eager one's.
"""

from __future__ import annotations

import contextlib
import math
import time

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import NETWORK_TOLERANCES, compared, wrong_words
from fleet.agent.bench.torch_side.failures import NotRunnable
from fleet.agent.bench.torch_side.precision import amp_kind, autocast, float32_as, require, scaler
from fleet.agent.bench.torch_side.software import has_compiler
from fleet.agent.bench.torch_side.timing import median, rotating, sampled, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Optional

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

BATCHES = 2
LIMIT = 30
# The usual way to train, which is kept up for some seconds so that it can be seen how busy the GPU is.
SUSTAINED = "resnet50.amp_channels_last"
SUSTAINED_S = 3.0
# Of cuDNN's for each convolution, the likeliest first: trying all of them takes a quarter of a minute per network.
TRIED_ALGORITHMS = 4
# Steps in which torch.compile works: the first, and those in which CUDA graphs are recorded.
COMPILING_STEPS = 3
SEED = 7
MODES = {"compile": "default", "compile_reduce_overhead": "reduce-overhead"}


class Workload:
    """A network, its data and its loss. ``amount``: what one step does, in the test's unit (nominal size).

    ``parameters`` go into the result; ``channels_last``: images may lie so.
    """

    amount = 0.0
    images = False

    def __init__(self) -> None:
        self.parameters: Json = {}

    def network(self) -> Any:
        """A new network with random weights, float32, on the CPU."""
        raise NotImplementedError

    def batch(self, device: Any) -> tuple[Any, Any]:
        """Random inputs and targets on ``device``."""
        raise NotImplementedError

    def small_input(self) -> Any:
        """Inputs on the CPU on which the network is compared with float64."""
        raise NotImplementedError

    def loss(self, output: Any, targets: Any) -> Any:
        raise NotImplementedError

    def optimizer(self, parameters: Any) -> Any:
        raise NotImplementedError


class Variant:
    """How a workload is trained; read from a test's id."""

    def __init__(self, test: str, workload: Workload, capability: tuple[int, int]) -> None:
        name = test.partition(".")[2]
        self.kind = name if name in ("fp32", "tf32") else amp_kind(capability)
        self.mode = MODES.get(name)
        self.channels_last = workload.images and (name == "amp_channels_last" or self.mode is not None)

    def placed(self, tensor: Any, device: Any) -> Any:
        """A network or images on ``device``, in the variant's layout."""
        import torch

        if self.channels_last:
            return tensor.to(device, memory_format=torch.channels_last)
        return tensor.to(device)


class Trained:
    """A network being trained: call it for a step; ``last_loss`` is a tensor on the device."""

    def __init__(self, bench: Bench, workload: Workload, variant: Variant, data_seed: int = SEED + 1) -> None:
        self.workload = workload
        self.kind = variant.kind
        self.device = bench.device
        bench.backend.seed(SEED)
        self.network = variant.placed(workload.network(), self.device)
        bench.backend.seed(data_seed)
        self.batches = []
        for _ in range(BATCHES):
            inputs, targets = workload.batch(self.device)
            self.batches.append((variant.placed(inputs, self.device), targets))
        self.optimizer = workload.optimizer(self.network.parameters())
        self.scaler = scaler(self.kind, self.device)
        self.last_loss: Any = None

    def __call__(self, batch: tuple[Any, Any]) -> None:
        inputs, targets = batch
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.kind, self.device):
            loss = self.workload.loss(self.network(inputs), targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.last_loss = loss.detach()

    def step(self) -> Callable[[], object]:
        """The step as a call without arguments, over its batches in turn."""
        return rotating(self, self.batches)

    def loss_now(self) -> float:
        """The last step's loss (waits for the device)."""
        return float(self.last_loss.item())


def train(bench: Bench, test: str, workload: Workload) -> Json:
    """The rate of training steps, for every variant."""
    variant = Variant(test, workload, bench.capability)
    require(variant.kind, bench.capability)
    parameters = {**workload.parameters, "dtype": variant.kind, "loader": "synthetic"}
    if workload.images:
        parameters["channels_last"] = variant.channels_last
    with float32_as(variant.kind), algorithms_tried(searches(bench.suite)):
        if variant.mode:
            return _compiled(bench, test, workload, variant, parameters)
        return _eager(bench, test, workload, variant, parameters)


def searches(suite: str) -> bool:
    """Whether cuDNN tries several algorithms for each shape: quick has no time for it."""
    return suite != "quick"


@contextlib.contextmanager
def algorithms_tried(searching: bool) -> Iterator[None]:
    """Inside, cuDNN tries :data:`TRIED_ALGORITHMS` for each shape it meets, or takes what its heuristics say."""
    import torch

    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.benchmark_limit
    cudnn.benchmark, cudnn.benchmark_limit = searching, TRIED_ALGORITHMS
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.benchmark_limit = before


def _eager(bench: Bench, test: str, workload: Workload, variant: Variant, parameters: Json) -> Json:
    checked = check_network(bench, test, workload, variant)
    if not checked["passed"]:
        return results.wrong(test, bench.gpus, parameters, checked, wrong_words(checked))
    trained = Trained(bench, workload, variant)
    step = trained.step()
    seconds = sampled(bench.backend, step, workload.amount, test, bench.gpus, bench.budget_s, LIMIT)
    if test == SUSTAINED and bench.backend.full_size:
        _keep_up(bench, step)
    return _with_loss(bench, test, workload, trained, seconds, parameters, checked)


def _keep_up(bench: Bench, step: Callable[[], object]) -> None:
    """Step after step for :data:`SUSTAINED_S`, a few at a time so that they end together with it."""
    end = time.monotonic() + SUSTAINED_S
    results.load(bench.gpus, True)
    while time.monotonic() < end:
        for _ in range(4):
            step()
        bench.backend.synchronise()
    results.load(bench.gpus, False)


def check_network(bench: Bench, test: str, workload: Workload, variant: Variant) -> Json:
    """The network's output for a small input against the same network in float64 on the CPU."""
    import torch

    bench.backend.seed(SEED)
    network = workload.network().eval()
    inputs = workload.small_input()
    with torch.no_grad(), algorithms_tried(False):
        on_device = variant.placed(network, bench.device)
        with autocast(variant.kind, bench.device):
            found = on_device(variant.placed(inputs, bench.device)).float().cpu()
        reference = network.to("cpu").double()(inputs.double())
    return compared(
        bench.backend.observed(test, found, bench.gpus), reference, NETWORK_TOLERANCES[variant.kind]
    )


def _with_loss(
    bench: Bench,
    test: str,
    workload: Workload,
    trained: Trained,
    seconds: list[float],
    parameters: Json,
    checked: Json,
) -> Json:
    """The result; ``invalid`` where training came to a loss that is no number."""
    loss = trained.loss_now()
    samples = values(test, workload.amount, seconds)
    result = results.measured(test, bench.gpus, samples, {**parameters, "loss": loss}, checked)
    if result["status"] == "measured" and not math.isfinite(loss):
        result.update(status="invalid", reason="non_finite", message="the loss became %s" % loss)
    return result


def _compiled(bench: Bench, test: str, workload: Workload, variant: Variant, parameters: Json) -> Json:
    """Eager first, then compiled, from the same weights and data. NotRunnable without a C compiler."""
    if bench.backend.compiler == "inductor" and not has_compiler():
        # torch says so itself, after a minute of tracing.
        raise NotRunnable("no_compiler", "there is no C compiler (CC, cc, gcc or clang) here")
    plain, eager_loss = _not_compiled(bench, test, workload, variant)
    trained = Trained(bench, workload, variant)
    first_loss, compile_s = _compile(bench, test, trained, variant)
    checked = compared(first_loss, eager_loss.cpu().double(), NETWORK_TOLERANCES[variant.kind])
    if not checked["passed"]:
        words = wrong_words(checked, "the same step without torch.compile")
        return results.wrong(test, bench.gpus, parameters, checked, words)
    seconds = sampled(bench.backend, trained.step(), workload.amount, test, bench.gpus, bench.budget_s, LIMIT)
    parameters = {**parameters, **gain(test, workload.amount, plain, seconds)}
    parameters.update(mode=variant.mode, compile_s=round(compile_s, 2), graph_breaks=graph_breaks())
    return _with_loss(bench, test, workload, trained, seconds, parameters, checked)


def _not_compiled(bench: Bench, test: str, workload: Workload, variant: Variant) -> tuple[list[float], Any]:
    """(seconds per step, loss of the first step) of the same network without torch.compile."""
    eager = Trained(bench, workload, variant)
    eager(eager.batches[0])
    loss = eager.last_loss.clone()
    same = test.partition(".")[0] + (".amp_channels_last" if workload.images else ".amp")
    seconds = sampled(bench.backend, eager.step(), workload.amount, same, bench.gpus, bench.budget_s, LIMIT)
    del eager
    bench.backend.release()
    return seconds, loss


def _compile(bench: Bench, test: str, trained: Trained, variant: Variant) -> tuple[Any, float]:
    """Compile the network of ``trained`` by running it: (loss of the first step, seconds)."""
    import torch
    import torch._dynamo

    torch._dynamo.reset()
    clear_graph_breaks()
    compiler = bench.backend.compiler
    words = {"mode": variant.mode} if compiler == "inductor" else {}
    trained.network = torch.compile(trained.network, backend=compiler, **words)
    bench.note("%s: compiling (%s)" % (test, variant.mode))
    begin = time.monotonic()
    trained(trained.batches[0])
    loss = bench.backend.observed(test, trained.last_loss.clone(), bench.gpus)
    for _ in range(COMPILING_STEPS - 1):
        trained(trained.batches[0])
    bench.backend.synchronise()
    return loss, time.monotonic() - begin


def gain(test: str, amount: float, plain: list[float], compiled: list[float]) -> Json:
    """``eager_value`` and ``gain_percent`` of the compiled step over the eager one; null without samples."""
    if not plain or not compiled:
        return {"eager_value": None, "gain_percent": None}
    eager, fast = median(values(test, amount, plain)), median(values(test, amount, compiled))
    return {"eager_value": eager, "gain_percent": 100 * (fast / eager - 1)}


def synchronisation_percent(seconds: list[float], without: list[float]) -> Optional[float]:
    """The share of the step in the exchange of gradients, in percent; None where either was not measured."""
    if not seconds or not without:
        return None
    step = median(seconds)
    return max(0.0, 100 * (step - median(without)) / step)


def clear_graph_breaks() -> None:
    """Count from here on."""
    from torch._dynamo.utils import counters

    counters.clear()


def graph_breaks() -> int:
    """How often torch.compile had to leave a graph and go back to Python, since the counters were cleared."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


def batch_for(memory_mib: int, table: tuple[tuple[int, int], ...]) -> int:
    """The first entry of ``table`` ((memory in MiB from which on, batch), …) that ``memory_mib`` reaches."""
    return next((batch for least, batch in table if memory_mib >= least), table[-1][1])
