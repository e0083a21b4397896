"""Which function measures which test. Imports torch: only children use it."""

from __future__ import annotations

from fleet.agent.bench.torch_side import burn, collectives, ddp, host_link, memory
from fleet.agent.bench.torch_side.matrix_product import matrix_product
from fleet.agent.bench.torch_side.resnet import resnet50
from fleet.agent.bench.torch_side.transformer import transformer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.agent.bench.torch_side.ranks import RankTest
    from fleet.agent.bench.torch_side.session import Test

_FAMILIES = {
    "matrix_product": matrix_product,
    "host_link": host_link.host_link,
    "resnet50": resnet50,
    "transformer": transformer,
}
_TESTS = {
    "memory.copy": memory.copy,
    "memory.triad": memory.triad,
    "peer.copy": collectives.peer_copy,
    "burn": burn.burn,
}


def of_gpu(test: str) -> Test:
    """For a test that one process runs by itself."""
    return _TESTS.get(test) or _FAMILIES[test.partition(".")[0]]


def of_ranks(test: str) -> RankTest:
    """For a test that ranks run together."""
    if test == "ddp.resnet50":
        return ddp.ddp_resnet50
    return collectives.latency if test == "nccl.all_reduce_latency" else collectives.collective
