"""``resnet50.*``: a plain ResNet-50 (He et al., 2015; stride in the 3 × 3 convolution), in torch.nn only."""

from __future__ import annotations

import torch
from torch import nn

from fleet.agent.bench.torch_side.training import Workload, batch_for, searches, train

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fleet.agent.bench.torch_side.session import Bench

    Json = dict[str, Any]

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
# float32 needs about 90 MiB per image.
BATCH_BY_MEMORY_MIB = ((60_000, 256), (30_000, 128), (14_000, 64), (7_000, 32), (0, 16))


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3, 1 × 1, with the input added."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = width * EXPANSION
        self.narrow = nn.Conv2d(channels_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.middle = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.widen = nn.Conv2d(width, channels_out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: Any = None
        if stride != 1 or channels_in != channels_out:
            convolution = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels_out))

    def forward(self, inputs: Any) -> Any:
        kept = inputs if self.shortcut is None else self.shortcut(inputs)
        found = self.relu(self.norm1(self.narrow(inputs)))
        found = self.relu(self.norm2(self.middle(found)))
        return self.relu(self.norm3(self.widen(found)) + kept)


class ResNet50(nn.Module):
    """224 × 224 images (any size from 32 on) to ``classes``; ``width`` 64 is the network of the paper."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[Any] = []
        channels = width
        for stage, count in enumerate(BLOCKS):
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(Bottleneck(channels, width << stage, stride))
                channels = (width << stage) * EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Any) -> Any:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(images))), 1))


class ResNetWorkload(Workload):
    """Images of 224 × 224, 1000 classes, SGD with momentum; small ones where the backend is small."""

    images = True

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        batch = batch_for(bench.description["memory_total_mib"], BATCH_BY_MEMORY_MIB)
        self.amount = float(batch)
        self.parameters = {"batch": batch, "image_size": 224, "cudnn_benchmark": searches(bench.suite)}
        full = bench.backend.full_size
        self._batch, self._edge = (batch, 224) if full else (4, 64)
        self._width, self._classes = (64, 1000) if full else (8, 10)
        if not full:
            self.parameters["computed"] = {"batch": 4, "image_size": 64, "width": 8}

    def network(self) -> Any:
        return ResNet50(self._width, self._classes)

    def batch(self, device: Any) -> tuple[Any, Any]:
        images = torch.randn(self._batch, 3, self._edge, self._edge, device=device)
        return images, torch.randint(0, self._classes, (self._batch,), device=device)

    def small_input(self) -> Any:
        return torch.randn(2, 3, min(self._edge, 64), min(self._edge, 64))

    def loss(self, output: Any, targets: Any) -> Any:
        return nn.functional.cross_entropy(output, targets)

    def optimizer(self, parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def resnet50(bench: Bench, test: str) -> Json:
    """Images per second of a training step, in the variant that ``test`` names."""
    return train(bench, test, ResNetWorkload(bench))
