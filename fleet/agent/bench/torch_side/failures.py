"""What torch raises, in the words of a result: each test's failure stays its own.

Only what stands for the outside world is caught (:data:`OUTSIDE`): torch raises RuntimeError and its
subclasses for CUDA, cuBLAS, NCCL and the compiler. A TypeError or an AttributeError is a bug of this code and
is not turned into a result.
"""

from __future__ import annotations

import re

from fleet.agent.bench.torch_side.backend import NoBackend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

OUTSIDE = (RuntimeError, OSError, ImportError, ValueError, AssertionError)

# The texts are those of torch 2.0 to 2.13 and of what it calls.
_MEMORY = r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
_ARCHITECTURE = r"no kernel image is available|PTX was compiled with an unsupported"
_LIBCUDA = r"cannot find -lcuda\b|libcuda\.so cannot (?:be )?found"
_COMPILER = (
    r"Failed to find C compiler|cannot execute .?cc1|No working C\+\+ compiler|InvalidCxxCompiler"
    r"|working triton installation|No module named 'triton|Python\.h: No such file|torch\.compile is not supported"
    r"|not yet supported for torch\.compile|Dynamo is not supported"
)
_SHARED_MEMORY = r"posix_fallocate|shared memory segment|/dev/shm"
_COLLECTIVE = r"[Ww]atchdog caught collective|collective operation timeout|Timed out waiting"
_BROKEN = (
    r"uncorrectable ECC|unspecified launch failure|illegal memory access|device-side assert"
    r"|misaligned address|GPU is lost|unrecoverable|hardware stack error"
)
_UNSUPPORTED = (
    r"not implemented for|(?:is|are) not supported|not supported on|[Oo]nly supported|[Uu]nsupported"
    r"|CUBLAS_STATUS_NOT_SUPPORTED|requires (?:CUDA )?compute|only available"
)
# (pattern, status, reason); the first that fits.
_TEXTS = (
    (_MEMORY, "not_runnable", "out_of_memory"),
    (_ARCHITECTURE, "not_runnable", "arch_mismatch"),
    (_LIBCUDA, "not_runnable", "libcuda_link_missing"),
    (_COMPILER, "not_runnable", "no_compiler"),
    (_SHARED_MEMORY, "failed", "shm_too_small"),
    (_COLLECTIVE, "timeout", "collective_timeout"),
    (_BROKEN, "failed", "needs_recovery"),
    (_UNSUPPORTED, "not_runnable", "dtype_not_supported"),
)
# Where nothing of the above fits: the message is torch's own.
UNEXPLAINED = "error"


class NotRunnable(Exception):
    """A test that cannot be run here; nothing is wrong with it. ``reason`` is a word of a result."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def explained(error: BaseException) -> tuple[str, str, str]:
    """``(status, reason, message)`` of what a test raised."""
    if isinstance(error, NotRunnable):
        return "not_runnable", error.reason, error.message
    text = "%s: %s" % (type(error).__name__, error)
    for pattern, status, reason in _TEXTS:
        if re.search(pattern, text):
            return status, reason, shortened(text)
    return "failed", UNEXPLAINED, shortened(text)


def shortened(text: str, lines: int = 12) -> str:
    """The first lines of ``text`` and its last ones: compilers say the cause at the end."""
    every = [line.rstrip() for line in text.splitlines() if line.strip()]
    if len(every) > 2 * lines:
        every = [*every[:lines], "…", *every[-lines:]]
    return "\n".join(every)


def of_start(error: BaseException, torch: Any) -> NoBackend:
    """Why the very first work on a GPU failed."""
    text = shortened(str(error))
    status, reason, _ = explained(error)
    if reason == "arch_mismatch":
        listed = " ".join(torch.cuda.get_arch_list())
        capability = _capability(torch)
        words = "torch %s has code for %s, the GPU is %s: %s" % (torch.__version__, listed, capability, text)
        return NoBackend(status, reason, words)
    if reason in ("out_of_memory", "needs_recovery"):
        return NoBackend("failed", reason, text)
    return NoBackend("failed", "cuda_init_failed", text)


def _capability(torch: Any) -> Optional[str]:
    return "sm_%d%d" % tuple(torch.cuda.get_device_capability(0))
