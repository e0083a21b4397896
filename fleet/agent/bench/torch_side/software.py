"""What is installed beside torch: the versions that a result was measured with."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    Json = dict[str, Any]

COMPILERS = ("gcc", "cc", "clang")


def software() -> Json:
    """Python, torch and what torch was built with; null where there is none. Does not start CUDA."""
    found: Json = {
        "python": platform.python_version(),
        "torch": None,
        "cuda": None,
        "cudnn": None,
        "nccl": None,
        "arch_list": None,
        "compiler": has_compiler(),
    }
    try:
        import torch
    except ImportError:
        return found
    found["torch"] = str(torch.__version__)
    found["cuda"] = torch.version.cuda
    if torch.version.cuda is not None:
        # It raises where the library found is another than torch was built with.
        with contextlib.suppress(RuntimeError):
            found["cudnn"] = _cudnn(torch.backends.cudnn.version())
        found["nccl"] = _nccl(torch)
        found["arch_list"] = torch.cuda.get_arch_list()
    return found


def has_compiler() -> bool:
    """Whether there is a C compiler, which torch.compile needs to start kernels."""
    named = os.environ.get("CC")
    return any(shutil.which(name) for name in ((named,) if named else COMPILERS))


def _cudnn(number: Optional[int]) -> Optional[str]:
    """90701 is 9.7.1, and 8902 was 8.9.2."""
    if not number:
        return None
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return "%d.%d.%d" % (major, *divmod(rest, 100))


def _nccl(torch: Any) -> Optional[str]:
    """None for a torch that has no NCCL."""
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, ImportError, RuntimeError):
        return None
