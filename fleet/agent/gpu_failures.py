"""What the texts mean with which GPUs fail: of nvidia-smi, of the container engine and its hook, of CUDA.

Each text asks for another repair, so each has a reason of its own; :func:`explained` finds it. Numbers and
addresses in a text are kept in the words. Used by the resources that start containers and services, and by
:mod:`fleet.agent.bench.explain`, which knows the texts of torch and NCCL. What nvidia-smi says when it lists no
GPUs stands here once, in :data:`SENTENCES` and :data:`WORDS`: :mod:`fleet.agent.nvidia_smi.states` and reports
read it too.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, Optional, Tuple


class Failure:
    """``reason``: a word for programs. ``words``: what it means. ``remedy``: what to do next.

    ``of_host``: the host itself is at fault, not only the container.
    """

    __slots__ = ("of_host", "reason", "remedy", "words")

    def __init__(self, reason: str, words: str, remedy: str, of_host: bool = False) -> None:
        self.reason = reason
        self.words = words
        self.remedy = remedy
        self.of_host = of_host


#: Reason -> the sentence, as a regular expression, with which nvidia-smi and NVML tell of it.
SENTENCES: Dict[str, str] = {
    "driver_library_mismatch": r"[Dd]river/library version mismatch(?:\s+NVML library version: ([0-9.]*\d))?",
    "container_lost_gpu": r"Failed to initialize NVML: Unknown Error",
    "driver_not_loaded": r"couldn't communicate with the NVIDIA driver|[Dd]river [Nn]ot [Ll]oaded",
    "no_devices": r"No devices were found",
}
#: Reason, which is a status of ``facts.gpu_probe`` too -> what it means.
WORDS: Dict[str, str] = {
    "driver_library_mismatch": "the loaded driver and its libraries are of different versions",
    "container_lost_gpu": "the container has lost its access to the GPUs; the host's are not touched by it",
    "driver_not_loaded": "no NVIDIA driver is loaded",
    "no_devices": "the driver serves no GPU",
    "library_missing": "the driver's library is not installed",
    "tool_missing": "nvidia-smi is not installed",
    "timeout": "the driver does not answer",
}

#: For a torch without CUDA, whose GPUs nobody can use.
CPU_TORCH_REMEDY = "pin an image whose torch is built for CUDA"

# (pattern, reason, words with the pattern's groups, remedy, whether the host is at fault); the first that fits.
_TEXTS: Tuple[Tuple[str, str, str, str, bool], ...] = (
    (
        r"unsatisfied condition: (cuda) ?>= ?([0-9.]+\d)",
        "driver_too_old",
        "the image needs a driver for CUDA {1}, and this host's is older",
        "install a newer driver (fleet catalogue show cuda {1}), or pin an image for an earlier CUDA",
        False,
    ),
    (
        r"unsatisfied condition: ([^,\n]+)",
        "driver_too_old",
        "the image asks for something that this host's driver or GPUs do not have: {0}",
        "install a newer driver, or pin an image for this one",
        False,
    ),
    (
        r"driver on your system is too old \(found version (\d+)\)",
        "driver_too_old",
        "the image's CUDA needs a newer driver than this host's, whose own CUDA is {0} (12080 means 12.8)",
        "install a newer driver (fleet catalogue show cuda), or pin an image for an earlier CUDA",
        False,
    ),
    (
        r"CUDA driver version is insufficient for CUDA runtime version",
        "driver_too_old",
        "the image's CUDA needs a newer driver than this host's (CUDA error 35)",
        "install a newer driver (fleet catalogue show cuda), or pin an image for an earlier CUDA",
        False,
    ),
    (
        r"could not select device driver \"?\"?cdi",
        "runtime_missing",
        "the engine has no CDI, or it is off",
        "let the container_toolkit module switch it on (mode: cdi), which restarts the engine",
        False,
    ),
    (
        r"could not select device driver",
        "runtime_missing",
        "the engine knows no way to give GPUs to a container: no toolkit was there when it started",
        "run the container_toolkit module; where it has run: systemctl restart docker",
        False,
    ),
    (
        r"unresolvable CDI devices ([^\s:,]+)",
        "runtime_missing",
        "the engine finds no CDI specification of the device {0}",
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml  # or run the container_toolkit module",
        False,
    ),
    (
        r"unknown or invalid runtime name|nvidia-container-[a-z-]+[\"']?: executable file not found",
        "runtime_missing",
        "the engine's settings name a part of the container toolkit that is not installed",
        "run the container_toolkit module",
        False,
    ),
    (
        r"driver interface version ([0-9.]+\d) don'?t match with driver version ([0-9.]+\d)",
        "fabricmanager_mismatch",
        "the fabric manager is of version {0} and the loaded driver of {1}: it runs with its own version only",
        "let the nvidia_driver module bring both to one full version, or reboot where driver {0} is installed",
        True,
    ),
    (
        r"Error 802|system not yet initialized",
        "fabric_not_ready",
        "the NVSwitch fabric is not up (CUDA error 802)",
        "systemctl status nvidia-fabricmanager  # it must run, in exactly the driver's version",
        True,
    ),
    (
        r"Error 804|forward compatibility was attempted on non supported HW",
        "compat_on_unsupported_gpu",
        "this GPU model cannot use the image's libraries for older drivers (CUDA error 804)",
        "install a driver for the image's CUDA, or pin an image for an earlier CUDA",
        False,
    ),
    (
        SENTENCES["driver_library_mismatch"],
        "driver_library_mismatch",
        WORDS["driver_library_mismatch"] + " (libraries: {0})",
        "reload the driver or reboot: fleet provision does it with leave",
        True,
    ),
    (
        SENTENCES["container_lost_gpu"],
        "container_lost_gpu",
        WORDS["container_lost_gpu"],
        "recreate the container; a reload of systemd's units does this to those made by --gpus, not by CDI",
        False,
    ),
    (
        SENTENCES["driver_not_loaded"],
        "driver_not_loaded",
        WORDS["driver_not_loaded"],
        "modprobe nvidia  # its message says why not",
        True,
    ),
    (
        r"Unable to determine the device handle for GPU ?([0-9A-Fa-f:.]*\d)?: ([^\n]*?)\.?\s*$",
        "gpu_error",
        "GPU {0} does not answer: {1}",
        "dmesg | grep -i xid ; nvidia-smi -q -i {0}  # a GPU that is lost needs a reboot or new hardware",
        True,
    ),
    (
        r"GPU is lost",
        "gpu_error",
        "a GPU is lost",
        "dmesg | grep -i xid  # it needs a reboot or new hardware",
        True,
    ),
    (
        SENTENCES["no_devices"],
        "no_devices",
        WORDS["no_devices"],
        "dmesg | grep NVRM  # says why the driver took none of them",
        True,
    ),
)


def explained(text: str) -> Optional[Failure]:
    """What is known of a text, or None."""
    for pattern, reason, words, remedy, of_host in _TEXTS:
        match = re.search(pattern, text, re.MULTILINE)
        if match is not None:
            groups = [group or "not known" for group in match.groups()]
            return Failure(reason, words.format(*groups), remedy.format(*groups), of_host)
    return None


def is_missing_hook(text: str) -> bool:
    """Whether the engine does not know the toolkit's hook, which it looks for when it starts."""
    return "could not select device driver" in text and "cdi" not in text
