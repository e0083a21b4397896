"""How a call of nvidia-smi failed: from its words and its exit code, which are both needed.

The words come on standard output as well as on standard error, and one program prints several of them with
exit code 0. Exit codes are NVML's error numbers (nvidia-smi's manual, "RETURN VALUE").
"""

from __future__ import annotations

import re

from fleet.agent.gpu_failures import SENTENCES
from fleet.agent.pci_address import normalised_address

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Tuple

    from fleet.agent.protocol import Json


def _shared(status: str) -> Tuple[str, str]:
    return SENTENCES[status], status


# The first that fits says the state. Sentences about one GPU come after those about all of them.
_SENTENCES: Tuple[Tuple[str, str], ...] = (
    _shared("driver_library_mismatch"),
    _shared("driver_not_loaded"),
    (r"couldn't find libnvidia-ml|NVML Shared Library Not Found", "library_missing"),
    (r"error while loading shared libraries: libnvidia-ml", "library_missing"),
    (r"nvidia-smi[\"']?: (?:command )?not found", "tool_missing"),
    (r"Command 'nvidia-smi' not found", "tool_missing"),
    (r"[\"']?nvidia-smi[\"']?: (?:executable file not found|[Nn]o such file or directory)", "tool_missing"),
    (r"Failed to initialize NVML: GPU (?:is lost|requires reset)", "gpu_error"),
    _shared("container_lost_gpu"),
    (r"Failed to initialize NVML:", "error"),
    (r"Unable to determine the device handle for", "gpu_error"),
    (r"GPU is lost\.\s+Reboot the system", "gpu_error"),
    (r"infoROM is corrupted", "gpu_error"),
    _shared("no_devices"),
)
_EXIT_CODES = {
    2: "error",  # an option or a field that this version does not know
    4: "error",  # not permitted
    6: "no_devices",  # what was asked for is not there
    8: "gpu_error",  # a power cable is not attached
    9: "driver_not_loaded",
    10: "gpu_error",  # an interrupt of the GPU does not arrive
    12: "library_missing",
    14: "gpu_error",  # infoROM corrupted; what was printed is good
    15: "gpu_error",  # GPU lost; what was printed of the others is good
    18: "driver_library_mismatch",
    124: "timeout",
    127: "tool_missing",
}
_ADDRESS = r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?"
_ABOUT_A_GPU = re.compile(
    r"^\s*(?:WARNING: )?(?:Unable to determine the device handle for (?:GPU|gpu) ?(%s)?: ?(?P<lost>[^\n]*)"
    r"|infoROM is corrupted at (?:GPU|gpu) ?(%s))" % (_ADDRESS, _ADDRESS),
    re.MULTILINE,  # at the start of a line: names of processes are anybody's
)
# Output that holds GPUs; its words are about those, and each parser reads them.
_DOCUMENT = re.compile(r"<nvidia_smi_log|=NVSMI LOG=|^\s*GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:", re.MULTILINE)
_MESSAGE_LENGTH = 300


def classify(stdout: str, stderr: str, exit_code: Optional[int]) -> Json:
    """{"status", "message", "address", "printed_address", "library_version"} of one call of nvidia-smi.

    ``status`` is one of ``PROBE_STATUSES``; ``message`` what it printed about it, None where all is well;
    the addresses are of the GPU that it names first. ``exit_code`` None: its deadline ended it.
    Exit code 0 with nothing printed is an error: it is no list of zero GPUs.
    """
    said = stderr + "\n" + _without_documents(stdout)
    sentence = next((found for found in (_sentence(said, entry) for entry in _SENTENCES) if found), None)
    named = next(iter(gpus_named(said)), {})
    library = re.search(SENTENCES["driver_library_mismatch"], said)
    status, message = sentence or (_by_exit_code(stdout, exit_code), None)
    if message is None and status != "ok":
        message = _first_line(said) or _ending(exit_code)
    return {
        "status": status,
        "message": message,
        "address": named.get("address"),
        "printed_address": named.get("printed_address"),
        "library_version": library.group(1) if library else None,
    }


def gpus_named(text: str) -> List[Json]:
    """Every GPU that a sentence is about: {"address", "printed_address", "status", "message"}, in order.

    ``status`` is a Device's. The addresses are None where the sentence names none.
    """
    found: List[Json] = []
    for match in _ABOUT_A_GPU.finditer(text):
        printed = match.group(1) or match.group(3)
        words = (match.group("lost") or "infoROM is corrupted").strip()
        entry = {
            "address": normalised_address(printed) if printed else None,
            "printed_address": printed,
            "status": status_of(words),
            "message": words[:_MESSAGE_LENGTH],
        }
        if entry not in found:
            found.append(entry)
    return found


def status_of(words: str) -> str:
    """The status of a GPU about which nvidia-smi says this."""
    lower = words.lower()
    if "is lost" in lower:
        return "lost"
    if "requires reset" in lower or "requires a reset" in lower:
        return "reset_required"
    return "timeout" if lower.startswith("timeout") else "error"


def persistenced_address(text: str) -> str:
    """The address of ``device 36560:00:00.0`` in nvidia-persistenced's log, which writes domains in decimal.

    ValueError for what is no address.
    """
    domain, separator, rest = text.strip().partition(":")
    if not separator or not domain.isdigit():
        raise ValueError("not an address of nvidia-persistenced: %r" % text)
    return normalised_address("%x:%s" % (int(domain), rest))


def nvml_error_of(exit_code: Optional[int]) -> Optional[int]:
    """NVML's error number behind an exit code; None where it is none."""
    return exit_code if exit_code in _EXIT_CODES and exit_code not in (124, 127) else None


def _without_documents(stdout: str) -> str:
    """What was printed around and between GPUs; the parsers look into these themselves."""
    match = _DOCUMENT.search(stdout)
    if match is None:
        return stdout
    sentences = [line for line in stdout[match.start() :].splitlines() if _ABOUT_A_GPU.search(line)]
    return "\n".join([stdout[: match.start()], *sentences])


def _sentence(said: str, entry: Tuple[str, str]) -> Optional[Tuple[str, Optional[str]]]:
    match = re.search(entry[0], said)
    if match is None:
        return None
    start = said.rfind("\n", 0, match.start()) + 1
    return entry[1], _first_line(said[start:])


def _by_exit_code(stdout: str, exit_code: Optional[int]) -> str:
    if exit_code is None:
        return "timeout"
    if exit_code == 0:
        return "ok" if stdout.strip() else "error"
    return _EXIT_CODES.get(exit_code, "error")


def _first_line(said: str) -> Optional[str]:
    line = next((line.strip() for line in said.splitlines() if line.strip()), None)
    return line[:_MESSAGE_LENGTH] if line else None


def _ending(exit_code: Optional[int]) -> str:
    if exit_code == 0:
        return "nvidia-smi printed nothing"
    return "nvidia-smi %s" % (
        "did not end in time" if exit_code is None else "ended with exit code %d" % exit_code
    )
