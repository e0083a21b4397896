"""NVIDIA's own binding (pynvml of nvidia-ml-py), loaded in the child only, and its errors as reasons.

The binding lies in the bundle beside ``fleet``; an agent of a checkout uses the installed one. It looks for
the library by name, so a library outside of the linker's folders is opened here and handed to it.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence, Tuple

LIBRARY = "libnvidia-ml.so.1"
VERSION_MODULE = "pynvml_version"

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
ARGUMENT_VERSION_MISMATCH = 25
UNKNOWN = 999

# The library, or this GPU, has no answer to such a question; nothing is wrong. 22: not on a vGPU, 26: not any more.
_NOT_SUPPORTED = frozenset((NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, 22, 26))


class Refused(Exception):
    """NVML answered with an error; ``code`` is its number (nvmlReturn_t)."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Binding:
    """pynvml with its library opened. ``calling`` is told the name of every function before it is called."""

    def __init__(self, module: Any, calling: Callable[[str], None]) -> None:
        self.module = module
        self._calling = calling

    def call(self, function: str, *arguments: Any) -> Any:
        """What a function of the binding gives; raises :class:`Refused`, also where it does not exist."""
        self._calling(function)
        found = getattr(self.module, function, None)
        if found is None:
            raise Refused(FUNCTION_NOT_FOUND)
        try:
            return found(*arguments)
        except self.module.NVMLError as error:
            raise Refused(int(error.value)) from None
        except UnicodeDecodeError as error:  # garbage in a serial number, which pynvml decodes strictly
            return error.object

    def newest(self, functions: Sequence[Callable[[], Any]]) -> Any:
        """The answer of the first that the library knows; raises :class:`Refused` for the last one's error."""
        for attempt in functions[:-1]:
            try:
                return attempt()
            except Refused as refused:
                if refused.code not in (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH):
                    raise
        return functions[-1]()

    def field(self, handle: Any, number: int, scope: int = 0) -> Any:
        """One field value, by nvmlDeviceGetFieldValues; raises :class:`Refused`."""
        return self.fields(handle, [(number, scope)])[0]()

    def fields(self, handle: Any, wanted: Sequence[Tuple[int, int]]) -> Sequence[Callable[[], Any]]:
        """For each (field, scope) what gives its value or raises :class:`Refused`; one call of NVML."""
        values = self.call("nvmlDeviceGetFieldValues", handle, list(wanted))
        return [_reader(value) for value in values]

    def error_text(self, code: int) -> str:
        """NVML's words for an error."""
        try:
            return str(self.module.NVMLError(code))
        except (AttributeError, ValueError):
            return "error %d" % code


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _reader(value: Any) -> Callable[[], Any]:
    def read() -> Any:
        if value.nvmlReturn != 0:
            raise Refused(int(value.nvmlReturn))
        if value.valueType >= len(_MEMBERS):
            raise Refused(NOT_SUPPORTED)  # a type that this binding does not know
        return getattr(value.value, _MEMBERS[value.valueType])

    return read


def reason_of(code: int, has_arguments: bool = False) -> str:
    """The reason (:data:`.device.ABSENT_REASONS`) of a value that NVML refused with ``code``.

    A question whose choice of counter or sensor is newer than the library is an invalid argument to it.
    """
    if code in _NOT_SUPPORTED or (code == INVALID_ARGUMENT and has_arguments):
        return "not_supported"
    if code == NO_PERMISSION:
        return "permission"
    return "gpu_lost" if code == GPU_IS_LOST else "error"


def load(library: Optional[str], by_name: bool, calling: Callable[[str], None]) -> Binding:
    """The binding with the library that the linker finds (``by_name``), else with the file ``library``.

    Raises :class:`Refused` with LIBRARY_NOT_FOUND where neither can be opened (the OSError is its cause),
    ImportError where there is no binding.
    """
    import pynvml

    names = [*([LIBRARY] if by_name else []), *([library] if library is not None else [])]
    failure: Optional[OSError] = None
    for name in names:
        try:
            pynvml.nvmlLib = ctypes.CDLL(name)
            return Binding(pynvml, calling)
        except OSError as error:
            failure = error
    raise Refused(LIBRARY_NOT_FOUND) from failure


def version() -> Optional[str]:
    """The binding's version: written into the bundle, else by the name of the installed distribution."""
    try:
        return str(__import__(VERSION_MODULE).VERSION)
    except ImportError:
        pass
    folder = os.path.dirname(getattr(sys.modules.get("pynvml"), "__file__", None) or "")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.startswith("nvidia_ml_py-") and name.endswith(".dist-info"):
            return name[len("nvidia_ml_py-") : -len(".dist-info")]
    return None
