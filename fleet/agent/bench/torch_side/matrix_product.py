"""``matrix_product.*``: how fast the GPU multiplies matrices in one number format.

Random inputs (equal numbers draw less power and clock higher), no allocation in the timed part where torch
takes ``out=``, inputs rotated past the cache, the best of some shapes. A rate is that of a short burst after a
rest: what the GPU keeps up for minutes hangs on its power limit, and is burn's to say. Checked against float64 on a
small product before, and on a sample of what the timed product itself gave.
"""

from __future__ import annotations

import time

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.correctness import TOLERANCES, compared, wrong_words
from fleet.agent.bench.torch_side.failures import NotRunnable
from fleet.agent.bench.torch_side.precision import float32_as, require
from fleet.agent.bench.torch_side.timing import median, rotating, sampled, sets_past_cache, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]
    # (m, n, k, whether the second matrix lies by columns)
    Shape = tuple[int, int, int, bool]

COUNTING = "2*m*n*k operations"
SPARSE_COUNTING = "2*m*n*k operations, the zeros counted too (as datasheets do)"
EDGES = (8192, 4096, 2048, 1024)
PROBE_EDGE = 1024
# Products in a row that are timed: on large GPUs some 30 ms, before the power limit takes the clocks down.
BURST = 20
REST_S = 0.2
ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
# Rows and columns of the timed product that are checked.
SAMPLE_ROWS, SAMPLE_COLUMNS = 8, 64
# fp8's operands, and what _int_mm is fast with, lie by columns.
_BY_COLUMNS = ("fp8", "int8", "int8_sparse")


def matrix_product(bench: Bench, test: str) -> Json:
    """The rate of ``test`` ("matrix_product.bf16"): best of the shapes, named in the parameters."""
    kind = test.partition(".")[2]
    require(kind, bench.capability)
    with float32_as(kind):
        edge = bench.backend.reference_size
        checked = _check(bench, test, kind, (edge, edge, edge, kind in _BY_COLUMNS))
        if not checked["passed"]:
            parameters = {"size": edge}
            return results.wrong(test, bench.gpus, parameters, checked, wrong_words(checked))
        return _best(bench, test, kind, checked)


def operands(kind: str, shape: Shape, device: Any) -> tuple[Any, Any]:
    """Two random matrices, ``m × k`` and ``k × n``, as their product wants them."""
    import torch

    m, n, k, by_columns = shape
    if kind.startswith("int8"):
        a = torch.randint(-127, 128, (m, k), dtype=torch.int8, device=device)
        b = torch.randint(-127, 128, (n, k), dtype=torch.int8, device=device).t()
        return (a, b) if kind == "int8" else (_half_zero(a), b)
    made = torch.bfloat16 if kind == "fp8" else getattr(torch, _DTYPES[kind])
    a = torch.randn(m, k, dtype=made, device=device)
    b = torch.randn(n, k, dtype=made, device=device).t() if by_columns else _random(k, n, made, device)
    if kind == "fp8":
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    return (_half_zero(a), b) if kind.endswith("_sparse") else (a, b)


_DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp16_sparse": "float16",
}


def _random(rows: int, columns: int, dtype: Any, device: Any) -> Any:
    import torch

    return torch.randn(rows, columns, dtype=dtype, device=device)


def _half_zero(matrix: Any) -> Any:
    """Two of every four neighbours in a row set to zero."""
    import torch

    kept = torch.tensor([1, 0, 0, 1], dtype=matrix.dtype, device=matrix.device)
    return matrix * kept.repeat(matrix.shape[1] // 4)


def prepared(kind: str, a: Any, b: Any) -> Callable[[], Any]:
    """The product as a call that gives its result. Raises NotRunnable where this torch has none for ``kind``."""
    import torch

    if kind.endswith("_sparse"):
        return _sparse(kind, a, b)
    if kind == "fp8":
        if not hasattr(torch, "_scaled_mm"):
            raise NotRunnable("dtype_not_supported", "torch %s has no fp8 products" % torch.__version__)
        return _scaled(a, b)
    dtype = torch.int32 if kind == "int8" else a.dtype
    out = torch.empty(a.shape[0], b.shape[1], dtype=dtype, device=a.device)
    if kind != "int8":
        return lambda: torch.mm(a, b, out=out)
    if not hasattr(torch, "_int_mm"):
        raise NotRunnable("dtype_not_supported", "torch %s has no int8 products" % torch.__version__)
    return lambda: torch._int_mm(a, b, out=out)


def _sparse(kind: str, a: Any, b: Any) -> Callable[[], Any]:
    """2:4 sparse by cuSPARSELt, with the fastest of its algorithms; int8 sums into int32, as they must."""
    import torch

    library = getattr(torch.backends, "cusparselt", None)
    if library is None or not library.is_available() or not hasattr(torch, "_cslt_sparse_mm"):
        text = "torch %s has no cuSPARSELt, which 2:4 sparse products need" % torch.__version__
        raise NotRunnable("dtype_not_supported", text)
    words: Json = {"out_dtype": torch.int32} if kind == "int8_sparse" else {}
    compressed = torch._cslt_compress(a)
    try:
        words["alg_id"] = int(torch._cslt_sparse_mm_search(compressed, b, **words))
    except (AttributeError, RuntimeError, TypeError):
        pass  # the library's own choice
    return lambda: torch._cslt_sparse_mm(compressed, b, **words)


def _scaled(a: Any, b: Any) -> Callable[[], Any]:
    """fp8 to bf16, in the fast accumulation that training uses. torch before 2.5 answers a pair."""
    import torch

    one = torch.ones((), dtype=torch.float32, device=a.device)
    words = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}

    def call() -> Any:
        found = torch._scaled_mm(a, b, **words)
        return found[0] if isinstance(found, tuple) else found

    return call


def _check(bench: Bench, test: str, kind: str, shape: Shape) -> Json:
    """A whole product of the reference size against float64."""
    bench.backend.seed(20)
    a, b = operands(kind, shape, bench.device)
    found = bench.backend.observed(test, prepared(kind, a, b)(), bench.gpus)
    return compared(found, _float64(a) @ _float64(b), TOLERANCES[kind])


def _float64(matrix: Any) -> Any:
    import torch

    return matrix.to(torch.float32 if matrix.element_size() == 1 else matrix.dtype).cpu().to(torch.float64)


def _best(bench: Bench, test: str, kind: str, checked: Json) -> Json:
    """Every shape, timed; the result is that of the fastest."""
    best: Optional[Json] = None
    tried = []
    for shape in shapes(kind, _edge(bench, test, kind)):
        result = _timed(bench, test, kind, shape, checked)
        bench.backend.release()
        if result["status"] != "measured":
            return result
        tried.append({"shape": list(shape[:3]), "by_columns": shape[3], "value": result["value"]})
        if best is None or result["value"] > best["value"]:
            best = result
    assert best is not None  # shapes() has at least one
    best["parameters"]["tried"] = tried
    return best


def shapes(kind: str, edge: int) -> list[Shape]:
    """The shapes tried for ``edge``: a cube, in both layouts where torch takes both, and a flat one."""
    fixed = kind in _BY_COLUMNS
    flat = (edge * 2, edge, edge // 2, fixed)
    if kind in ("fp64", "fp32", "int8_sparse"):
        return [(edge, edge, edge, fixed)]
    if kind == "fp16_sparse":
        return [(edge, edge, edge, False), (edge, edge, edge, True)]
    if fixed:
        return [(edge, edge, edge, True), flat]
    return [(edge, edge, edge, False), (edge, edge, edge, True), flat]


def _edge(bench: Bench, test: str, kind: str) -> int:
    """The largest edge that fits the memory and, at the rate of a small product, the time."""
    if not bench.backend.full_size:
        return EDGES[0]
    a, b = operands(kind, (PROBE_EDGE, PROBE_EDGE, PROBE_EDGE, kind in _BY_COLUMNS), bench.device)
    amount = 2.0 * PROBE_EDGE**3
    probes = bench.backend.measure(prepared(kind, a, b), amount, test, 3, 3, bench.gpus)
    rate = amount / max(median(probes), 1e-9)
    element = ELEMENT_BYTES[kind.partition("_")[0]]
    memory = bench.backend.free_bytes(bench.index)
    return chosen_edge(rate, max(1.0, 4 * bench.budget_s), element, memory)


def chosen_edge(rate: float, time_s: float, element_bytes: int, memory_bytes: int) -> int:
    """The first of :data:`EDGES` of which eight products take at most ``time_s`` at ``rate`` operations/s, and
    of which two sets of inputs and the (wider) result take less than half the memory."""
    for edge in EDGES:
        fits = edge**2 * (4 * element_bytes + 2 * max(element_bytes, 4)) < memory_bytes / 2
        if fits and 8 * 2.0 * edge**3 / rate <= time_s:
            return edge
    return EDGES[-1]


def _timed(bench: Bench, test: str, kind: str, shape: Shape, checked: Json) -> Json:
    """The rate of one shape; without one where what it gave is wrong or not finite."""
    m, n, k, by_columns = shape
    amount = 2.0 * m * n * k
    parameters = _parameters(bench, kind, shape)
    if not bench.backend.full_size:
        small = bench.backend.reference_size
        m = n = k = small
    element = ELEMENT_BYTES[kind.partition("_")[0]]
    room = bench.backend.free_bytes(bench.index) // 4
    count = sets_past_cache((m * k + k * n) * element, bench.backend.cache_bytes(bench.index), room)
    inputs = [operands(kind, (m, n, k, by_columns), bench.device) for _ in range(count)]
    calls = [prepared(kind, *each) for each in inputs]
    if bench.backend.full_size:
        bench.backend.synchronise()
        time.sleep(REST_S)
    call = rotating(lambda call: call(), calls)
    seconds = sampled(bench.backend, call, amount, test, bench.gpus, bench.budget_s, BURST)
    again = bench.backend.observed(test, calls[0](), bench.gpus)
    sample = sample_checked(again, *inputs[0], TOLERANCES[kind])
    if not sample["passed"]:
        return results.wrong(test, bench.gpus, parameters, sample, wrong_words(sample))
    worse = max(sample["max_relative_error"], checked["max_relative_error"])
    correctness = {**checked, "max_relative_error": worse}
    return results.measured(test, bench.gpus, values(test, amount, seconds), parameters, correctness)


def sample_checked(found: Any, a: Any, b: Any, tolerance: float) -> Json:
    """Some rows and columns of the product ``found``, against float64."""
    rows = list(range(0, found.shape[0], max(1, found.shape[0] // SAMPLE_ROWS)))
    columns = list(range(0, found.shape[1], max(1, found.shape[1] // SAMPLE_COLUMNS)))
    expected = _float64(_indexable(a)[rows]) @ _float64(_indexable(b)[:, columns])
    return compared(found[rows][:, columns], expected, tolerance)


def _indexable(matrix: Any) -> Any:
    """fp8 in a wider type: it cannot be indexed everywhere."""
    import torch

    return matrix.to(torch.bfloat16) if "float8" in str(matrix.dtype) else matrix


def _parameters(bench: Bench, kind: str, shape: Shape) -> Json:
    m, n, k, by_columns = shape
    parameters: Json = {
        "shape": [m, n, k],
        "second_matrix": "by columns" if by_columns else "by rows",
        "counting": SPARSE_COUNTING if kind.endswith("_sparse") else COUNTING,
        "burst": BURST,
        "inputs": "random normal" if not kind.startswith("int8") else "random integers",
    }
    if not bench.backend.full_size:
        parameters["computed_size"] = bench.backend.reference_size
    return parameters
