"""``transformer.*``: a stack of causal transformer blocks (attention by SDPA, MLP of four times the width)."""

from __future__ import annotations

import torch
from torch import nn

from fleet.agent.bench.torch_side.training import Workload, batch_for, train

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

LAYERS, WIDTH, HEADS, LENGTH = 8, 1024, 16, 1024
BATCH_BY_MEMORY_MIB = ((60_000, 16), (30_000, 8), (14_000, 4), (7_000, 2), (0, 1))


class Block(nn.Module):
    """Normalised first, as GPT-2: attention over the past, then the MLP, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Any) -> Any:
        batch, length, width = tokens.shape
        parts = self.project(self.norm1(tokens)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.join(seen.transpose(1, 2).reshape(batch, length, width))
        return tokens + self.mlp(self.norm2(tokens))


class TransformerWorkload(Workload):
    """Random token vectors, another random vector each to predict, AdamW."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        batch = batch_for(bench.description["memory_total_mib"], BATCH_BY_MEMORY_MIB)
        self.amount = float(batch * LENGTH)
        self.parameters = {
            "batch": batch,
            "sequence_length": LENGTH,
            "layers": LAYERS,
            "width": WIDTH,
            "heads": HEADS,
        }
        small = (2, 16, 2, 32, 2)
        full = (batch, LENGTH, LAYERS, WIDTH, HEADS)
        self._batch, self._length, self._layers, self._width, self._heads = (
            full if bench.backend.full_size else small
        )
        if not bench.backend.full_size:
            self.parameters["computed"] = {"batch": 2, "sequence_length": 16, "layers": 2, "width": 32}

    def network(self) -> Any:
        return nn.Sequential(*(Block(self._width, self._heads) for _ in range(self._layers)))

    def batch(self, device: Any) -> tuple[Any, Any]:
        shape = (self._batch, self._length, self._width)
        return torch.randn(shape, device=device), torch.randn(shape, device=device)

    def small_input(self) -> Any:
        return torch.randn(1, min(self._length, 64), self._width)

    def loss(self, output: Any, targets: Any) -> Any:
        return nn.functional.mse_loss(output.float(), targets)

    def optimizer(self, parameters: Any) -> Any:
        return torch.optim.AdamW(parameters, lr=1e-4)


def transformer(bench: Bench, test: str) -> Json:
    """Tokens per second of a training step, in the variant that ``test`` names."""
    return train(bench, test, TransformerWorkload(bench))
