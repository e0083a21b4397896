"""The process that asks NVML: ``python -I -S … OPTIONS``; JSON lines on its standard output.

A driver can keep a call for ever, and a broken library can end its process by a signal: so nothing else runs
here. Lines, in order: ``system`` or ``failed``; for each GPU ``asking``, then ``refused`` or ``seen`` (its
address) and ``device``; ``topology``; ``end``. With ``together`` in OPTIONS the GPUs are asked at once, a thread
for each, and their lines mix: a question about an NVLink takes half a millisecond, and eight GPUs have a thousand of
them. The name of the function being called stands in a small file shared with the parent (:mod:`.parent`), each
GPU's in a place of its own, which says after a kill what did not answer. With ``interval_s`` in OPTIONS it samples
until it is ended (:mod:`.sampler`).
"""

from __future__ import annotations

import json
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from fleet.agent.gpu_probe.binding import Binding
    from fleet.agent.protocol import Json

NAME = b"fleet-probe"  # in process lists; fleet.agent.facts.gpu_holders knows it
FUNCTION_BYTES = 96
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15
_SIGKILL = 9


class Output:
    """The parent's end of things: lines, and the name of the function that each thread is calling."""

    def __init__(self, descriptor: int, function_descriptor: Optional[int]) -> None:
        self._descriptor = descriptor
        self._function = function_descriptor
        self._whole_lines = threading.Lock()
        self._own = threading.local()

    def line(self, kind: str, **values: Any) -> None:
        data = memoryview(json.dumps(dict(values, kind=kind), allow_nan=False).encode("ascii") + b"\n")
        with self._whole_lines:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def about(self, index: Optional[int]) -> None:
        """Which GPU this thread asks from now on; None: the library itself, or several."""
        self._own.offset = 0 if index is None else (index + 1) * FUNCTION_BYTES

    def calling(self, function: str) -> None:
        if self._function is not None:
            name = function.encode("ascii").ljust(FUNCTION_BYTES)[:FUNCTION_BYTES]
            os.pwrite(self._function, name, getattr(self._own, "offset", 0))


def main() -> int:
    """Answer everything that the options ask for; 0 also where NVML refuses."""
    options: Json = json.loads(sys.argv[-1])
    output = Output(os.dup(1), options.get("function_descriptor"))
    os.dup2(2, 1)  # what a library prints is no line of ours
    _name_and_bind(options.get("parent"))
    nvml = _opened(options, output)
    if nvml is None:
        return 0
    if options.get("interval_s") is not None:
        from fleet.agent.gpu_probe import sampling

        sampling.sample(nvml, options["interval_s"], output.line)
        return 0
    handles = _devices(nvml, options, output)
    if options.get("topology"):
        output.line("topology", pairs=_topology(nvml, handles))
    output.line("end")
    return 0


def _name_and_bind(parent: Optional[int]) -> None:
    """Bear a name of our own, end with the parent, and at once where a library crashes, without a core file."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _opened(options: Json, output: Output) -> Optional[Binding]:
    """NVML initialised, its ``system`` line written; None after a ``failed`` line."""
    from fleet.agent.gpu_probe import binding

    nvml = None
    stage = "library"
    try:
        nvml = binding.load(options.get("library"), options["by_name"], output.calling)
        stage = "init"
        nvml.call("nvmlInit")
        stage = "count"
        output.line("system", count=nvml.call("nvmlDeviceGetCount"), **_system(nvml))
        return nvml
    except binding.Refused as refused:
        cause = refused.__cause__
        text = str(cause) if cause is not None else None
        if text is None and nvml is not None:
            text = nvml.error_text(refused.code)
        system = _system(nvml) if nvml is not None else {"binding": binding.version()}
        output.line("failed", stage=stage, nvml_error=refused.code, text=text, **system)
    except ImportError as error:
        output.line("failed", stage="binding", nvml_error=None, text=str(error))
    return None


def _system(nvml: Binding) -> Json:
    from fleet.agent.gpu_probe import binding, questions, words

    found: Json = {"binding": binding.version()}
    for key, function in questions.SYSTEM:
        try:
            answer = nvml.call(function)
        except binding.Refused:
            found[key] = None
            continue
        found[key] = words.cuda_version(answer) if key == "cuda_version" else words.text(answer)
    return found


def _devices(nvml: Binding, options: Json, output: Output) -> Dict[str, Any]:
    """Read every GPU that was not read yet; handles by address."""
    wanted = [index for index in range(nvml.call("nvmlDeviceGetCount")) if index not in options["skip"]]
    handles: Dict[str, Any] = {}
    if not options.get("together") or len(wanted) < 2:
        for index in wanted:
            _device(nvml, index, options, output, handles)
        output.about(None)
        return handles
    failures: List[BaseException] = []

    def apart(index: int) -> None:
        try:
            _device(nvml, index, options, output, handles)
        except BaseException as failure:  # else the thread's end would pass for an answer
            failures.append(failure)

    threads = [threading.Thread(target=apart, args=(index,)) for index in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return handles


def _device(nvml: Binding, index: int, options: Json, output: Output, handles: Dict[str, Any]) -> None:
    from fleet.agent.gpu_probe import binding, readers, words
    from fleet.agent.pci_address import normalised_address

    output.about(index)
    output.line("asking", index=index)
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        printed = words.text(nvml.call("nvmlDeviceGetPciInfo", handle).busId)
    except binding.Refused as refused:
        text = nvml.error_text(refused.code)
        output.line("refused", index=index, nvml_error=refused.code, text=text)
        return
    address = normalised_address(printed or "")
    output.line("seen", index=index, address=address)
    handles[address] = handle
    if index not in options["again"]:  # else only its handle is wanted, for the topology
        output.line("device", index=index, device=readers.read_device(nvml, handle, address))


# By number, of nvmlGpuTopologyLevel_t and of nvmlGpuP2PStatus_t.
_PATHS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_PEER_STATES = (
    "ok chipset_not_supported gpu_not_supported topology_not_supported disabled_by_registry not_supported"
    " unknown".split()
)
_P2P_READ = 0


def _topology(nvml: Binding, handles: Dict[str, Any]) -> List[Json]:
    """Each pair of GPUs once: the way between them over PCIe, and whether one may read the other's memory."""
    from fleet.agent.gpu_probe.binding import Refused

    def ask(convert: Callable[[int], Optional[str]], function: str, *arguments: Any) -> Optional[str]:
        try:
            return convert(int(nvml.call(function, *arguments)))
        except Refused:
            return None

    def peer_state(number: int) -> Optional[str]:
        return _PEER_STATES[number] if number < len(_PEER_STATES) else None

    pairs: List[Json] = []
    for a in sorted(handles):
        for b in sorted(handles):
            if a < b:
                one, other = handles[a], handles[b]
                path = ask(_PATHS.get, "nvmlDeviceGetTopologyCommonAncestor", one, other)
                peer = ask(peer_state, "nvmlDeviceGetP2PStatus", one, other, _P2P_READ)
                pairs.append({"a": a, "b": b, "path": path, "peer_to_peer": peer})
    return pairs


if __name__ == "__main__":
    sys.exit(main())
