"""``memory.copy`` and ``memory.triad``: the bandwidth of the device's own memory.

Bytes read and bytes written are both counted, as vendors' peaks do: 2 for a copy (``b = a``), 3 for the triad
(``a = b + s*c``), as STREAM counts them. The buffers are far larger than any cache.
"""

from __future__ import annotations

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import TOLERANCES, compared, equal, wrong_words
from fleet.agent.bench.torch_side.timing import sampled, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

LARGEST = 2 << 30
SMALL = 1 << 16
SCALE = 0.5
CHECKED = 1 << 16


def copy(bench: Bench, test: str) -> Json:
    """Device to device, read and write counted."""
    import torch

    size = buffer_bytes(bench)
    source = torch.randint(-128, 128, (computed_bytes(bench, size),), dtype=torch.int8, device=bench.device)
    target = torch.zeros_like(source)
    target.copy_(source)
    checked = equal(bench.backend.observed(test, target, bench.gpus), source)
    parameters = _parameters(bench, size, "bytes read + bytes written (2 per byte copied)")
    if not checked["passed"]:
        return results.wrong(test, bench.gpus, parameters, checked, wrong_words(checked, "its source"))
    # As 64-bit words: what a copy kernel moves, whatever torch chooses for it.
    words_from, words_to = source.view(torch.int64), target.view(torch.int64)
    return _timed(bench, test, lambda: words_to.copy_(words_from), 2.0 * size, parameters, checked)


def triad(bench: Bench, test: str) -> Json:
    """``a = b + s*c`` in float32: two reads and one write counted."""
    import torch

    size = buffer_bytes(bench)
    count = computed_bytes(bench, size) // 4
    b, c = (torch.randn(count, dtype=torch.float32, device=bench.device) for _ in range(2))
    a = torch.empty_like(b)
    torch.add(b, c, alpha=SCALE, out=a)
    stride = max(1, count // CHECKED)
    expected = b[::stride].cpu().double() + SCALE * c[::stride].cpu().double()
    found = bench.backend.observed(test, a[::stride], bench.gpus)
    checked = compared(found, expected, TOLERANCES["fp32"])
    parameters = _parameters(bench, size, "bytes read + bytes written (3 per element)")
    if not checked["passed"]:
        return results.wrong(test, bench.gpus, parameters, checked, wrong_words(checked))
    return _timed(bench, test, lambda: torch.add(b, c, alpha=SCALE, out=a), 3.0 * size, parameters, checked)


def buffer_bytes(bench: Bench, share: int = 6) -> int:
    """2 GiB, or a sixth of the free memory where that is less, in whole MiB."""
    return max(1 << 20, min(LARGEST, bench.backend.free_bytes(bench.index) // share) >> 20 << 20)


def computed_bytes(bench: Bench, size: int) -> int:
    """``size``, or little where the backend computes on small sizes."""
    return size if bench.backend.full_size else SMALL


def _parameters(bench: Bench, size: int, counting: str) -> Json:
    parameters: Json = {"bytes": size, "counting": counting}
    if not bench.backend.full_size:
        parameters["computed_bytes"] = SMALL
    return parameters


def _timed(bench: Bench, test: str, call: Any, amount: float, parameters: Json, checked: Json) -> Json:
    seconds = sampled(bench.backend, call, amount, test, bench.gpus, bench.budget_s)
    return results.measured(test, bench.gpus, values(test, amount, seconds), parameters, checked)
