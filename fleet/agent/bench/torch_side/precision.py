"""Number formats: which of them a GPU computes itself, and how torch is told to use one.

The switches are those that torch 2.0 already has; newer ones exist beside them and must not be mixed with them.
"""

from __future__ import annotations

import contextlib

from fleet.agent.bench.torch_side.failures import NotRunnable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# The first compute capability with units for the format (CUDA C++ Programming Guide, "Compute Capabilities").
# Without them torch converts, which says nothing about the GPU.
NATIVE_FROM = {
    "tf32": (8, 0),
    "bf16": (8, 0),
    "fp16": (5, 3),
    "fp8": (8, 9),
    "int8": (7, 5),
    "fp16_sparse": (8, 0),
    "int8_sparse": (8, 0),
}


def native(kind: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU of this compute capability computes in ``kind`` itself."""
    return capability >= NATIVE_FROM.get(kind, (0, 0))


def require(kind: str, capability: tuple[int, int]) -> None:
    """Raises NotRunnable (``dtype_not_supported``) where the GPU has no units for ``kind``."""
    if not native(kind, capability):
        words = "%s needs compute capability %d.%d, this GPU has %d.%d"
        raise NotRunnable("dtype_not_supported", words % (kind, *NATIVE_FROM[kind], *capability))


def amp_kind(capability: tuple[int, int]) -> str:
    """The format of mixed precision: bf16, or fp16 (with a scaler of gradients) on what has no bf16 units."""
    return "bf16" if native("bf16", capability) else "fp16"


@contextlib.contextmanager
def float32_as(kind: str) -> Iterator[None]:
    """Let float32 products and convolutions use tf32 (``kind`` "tf32"), or not; as before at the end."""
    import torch

    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = kind == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def autocast(kind: str, device: Any) -> Any:
    """The context in which a network runs in ``kind``: fp32 and tf32 change nothing."""
    import torch

    if kind in ("fp32", "tf32"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[kind])


def scaler(kind: str, device: Any) -> Any:
    """The scaler of gradients; it does nothing unless ``kind`` is fp16."""
    import torch

    enabled = kind == "fp16" and device.type == "cuda"
    if hasattr(torch.amp, "GradScaler"):  # torch 2.3 and newer
        return torch.amp.GradScaler(device.type, enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)
