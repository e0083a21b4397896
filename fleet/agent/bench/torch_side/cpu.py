"""``cpu.matrix_product``: shows that torch in this image works at all. Never judged.

Runs wherever there is a torch, also without any GPU; timed by the clock.
"""

from __future__ import annotations

import time

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import TOLERANCES, compared, wrong_words
from fleet.agent.bench.torch_side.timing import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

EDGE = 512
REPETITIONS = 10


def cpu_matrix_product(test: str = "cpu.matrix_product") -> Json:
    """A float32 product of two 512 × 512 matrices on the CPU."""
    import torch

    torch.manual_seed(20)
    a, b = torch.randn(EDGE, EDGE), torch.randn(EDGE, EDGE)
    parameters = {"shape": [EDGE] * 3, "threads": torch.get_num_threads(), "counting": "2*m*n*k operations"}
    checked = compared(a @ b, a.double() @ b.double(), TOLERANCES["fp32"])
    if not checked["passed"]:
        return results.wrong(test, [], parameters, checked, wrong_words(checked))
    seconds = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    return results.measured(test, [], values(test, 2.0 * EDGE**3, seconds), parameters, checked)
