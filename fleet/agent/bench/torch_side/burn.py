"""``burn``: matrix products for minutes, each compared bit for bit with the first one.

The same product on the same GPU gives the same bits, always; a GPU that is hot, short of power or broken gives
others. GPUs of one model get the same inputs, so their first results are compared too (:func:`compare_peers`).
``value`` counts wrong products; any makes the result ``failed``, ``wrong_result``. Formats take turns: tensor
cores draw the most power, fp32 and fp64 use other units.
"""

from __future__ import annotations

import time

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import TOLERANCES
from fleet.agent.bench.torch_side.matrix_product import (
    ELEMENT_BYTES,
    chosen_edge,
    operands,
    prepared,
    sample_checked,
)
from fleet.agent.bench.torch_side.plan import BURN_S
from fleet.agent.bench.torch_side.precision import amp_kind, float32_as

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

NOTE_S = 15.0
ROUND_S = 0.5
SEED = 11
# Results of a format rotate over this share of the free memory, so that most of it is written and read.
MEMORY_SHARE = 0.25
MOST_RESULTS = 256


class Product:
    """One format's product, its first result, and the count of those that differ (on the device)."""

    def __init__(self, bench: Bench, test: str, kind: str, edge: int) -> None:
        import torch

        self.kind = kind
        self.bench = bench
        self.test = test
        self.operations = 2.0 * edge**3
        bench.backend.seed(SEED)
        # Made on the CPU: its generator gives the same numbers beside every GPU.
        self.a, self.b = (
            matrix.to(bench.device) for matrix in operands(kind, (edge, edge, edge, False), torch.device("cpu"))
        )
        bytes_each = edge * edge * ELEMENT_BYTES[kind]
        room = int(bench.backend.free_bytes(bench.index) * MEMORY_SHARE) if bench.backend.full_size else 0
        self.outputs = [self._output() for _ in range(max(2, min(MOST_RESULTS, room // bytes_each)))]
        self.wrong = torch.zeros((), dtype=torch.int64, device=bench.device)
        self.wrong_elements = torch.zeros((), dtype=torch.int64, device=bench.device)
        self.done = 0
        self.seconds = 0.0
        self.first = bits(self._result(0).clone())
        self.reference = sample_checked(self._result(0), self.a, self.b, TOLERANCES[kind])

    def _output(self) -> Any:
        import torch

        return torch.empty(self.a.shape[0], self.b.shape[1], dtype=self.a.dtype, device=self.bench.device)

    def _result(self, number: int) -> Any:
        import torch

        out = self.outputs[number % len(self.outputs)]
        torch.mm(self.a, self.b, out=out)
        return self.bench.backend.observed(self.test, out, self.bench.gpus)

    def round(self, count: int) -> None:
        """``count`` products, compared; waits for the device once, at the end."""
        start = time.monotonic()
        for _ in range(count):
            differing = (bits(self._result(self.done)) != self.first).sum()
            self.wrong_elements += differing
            self.wrong += differing > 0
            self.done += 1
        self.bench.backend.synchronise()
        self.seconds += time.monotonic() - start

    @property
    def checksum(self) -> int:
        """Of the first result: the sum of its bits, read as integers."""
        import torch

        return int(self.first.sum(dtype=torch.int64).item())


def bits(tensor: Any) -> Any:
    """The same memory, read as integers: NaN is equal to itself then, and -0 is not 0."""
    import torch

    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def burn(bench: Bench, test: str) -> Json:
    """Products for ``parameters["burn_s"]`` seconds; progress is printed."""
    duration = float(bench.parameters.get("burn_s", BURN_S))
    kinds = (amp_kind(bench.capability), "fp32", "fp64")
    with float32_as("fp32"):
        products = [Product(bench, test, kind, _edge(bench, test, kind)) for kind in kinds]
        begin = time.monotonic()
        _until(bench, products, begin, duration)
        return _result(bench, test, products, time.monotonic() - begin)


def _edge(bench: Bench, test: str, kind: str) -> int:
    """As for the rate: large, unless the GPU is slow in this format."""
    if not bench.backend.full_size:
        return bench.backend.reference_size
    call = prepared(kind, *operands(kind, (1024, 1024, 1024, False), bench.device))
    seconds = min(bench.backend.measure(call, 2.0 * 1024**3, test, 3, 3, bench.gpus))
    return chosen_edge(2.0 * 1024**3 / seconds, 2.0, ELEMENT_BYTES[kind], bench.backend.free_bytes(bench.index))


def _until(bench: Bench, products: Sequence[Product], begin: float, duration: float) -> None:
    """Rounds of each format in turn until the time is over; at least one of each."""
    counts = [2] * len(products)
    noted = begin
    while True:
        for number, product in enumerate(products):
            before = product.seconds
            product.round(counts[number])
            taken = max(product.seconds - before, 1e-6)
            counts[number] = max(1, min(2000, int(counts[number] * ROUND_S / taken)))
        now = time.monotonic()
        if now - noted >= NOTE_S:
            noted = now
            bench.note(_progress(products, now - begin, duration))
        if now - begin >= duration:
            return


def _progress(products: Sequence[Product], seconds: float, duration: float) -> str:
    wrong = sum(int(product.wrong.item()) for product in products)
    rates = ", ".join(
        "%s %.1f TFLOPS" % (each.kind, each.done * each.operations / max(each.seconds, 1e-9) / 1e12)
        for each in products
    )
    return "burn %.0f of %.0f s: %d wrong of %d products (%s)" % (
        seconds,
        duration,
        wrong,
        sum(product.done for product in products),
        rates,
    )


def _result(bench: Bench, test: str, products: Sequence[Product], seconds: float) -> Json:
    wrong = sum(int(product.wrong.item()) for product in products)
    parameters = {
        "duration_s": round(seconds, 1),
        "iterations": sum(product.done for product in products),
        "wrong_elements": sum(int(product.wrong_elements.item()) for product in products),
        "formats": {
            product.kind: {
                "size": product.a.shape[0],
                "products": product.done,
                "wrong": int(product.wrong.item()),
                "checksum": product.checksum,
            }
            for product in products
        },
        "device_name": bench.description["name"],
    }
    references = [product.reference for product in products]
    worst = max(references, key=lambda each: each["max_relative_error"] / each["tolerance"])
    passed = wrong == 0 and all(each["passed"] for each in references)
    correctness = {**worst, "passed": passed}
    result = results.measured(test, bench.gpus, [float(wrong)], parameters, correctness)
    if not passed:
        words = "%d of %d products differ from the first of their kind" % (wrong, parameters["iterations"])
        if wrong == 0:
            words = "the first product is not what float64 gives"
        result.update(status="failed", reason="wrong_result", message=words)
    return result


def compare_peers(found: Sequence[Json]) -> None:
    """Mark burn results whose first products differ from those of most GPUs of the same name; in place.

    Where as many say one thing as the other, it cannot be told who is wrong: all are marked.
    """
    groups: dict[tuple[str, str, int], list[Json]] = {}
    for result in found:
        for kind, part in result["parameters"].get("formats", {}).items():
            key = (result["parameters"]["device_name"], kind, part["size"])
            groups.setdefault(key, []).append(result)
    for (name, kind, _), members in groups.items():
        sums = [member["parameters"]["formats"][kind]["checksum"] for member in members]
        most = max(sums.count(each) for each in sums)
        agreed = {each for each in sums if sums.count(each) == most}
        for member, own in zip(members, sums):
            if len(agreed) > 1 or own not in agreed:
                words = "its first %s product differs from that of %d of %d GPUs %s"
                others = len(sums) - sums.count(own)
                _mark(member, words % (kind, others, len(sums), name))


def _mark(result: Json, words: str) -> None:
    """A burn result that is wrong by comparison with its peers."""
    message = "; ".join(part for part in (result["message"], words) if part)
    result.update(status="failed", reason="wrong_result", message=message)
    if result["correctness"]:
        result["correctness"] = {**result["correctness"], "passed": False}
