"""What the kernel log of this boot says of GPUs and NVSwitches: Xids, SXids, GPUs that fell off the bus.

Looked for only where NVIDIA's hardware is on the PCI bus. Next: :mod:`.kernel_log_sources` reads the log,
:mod:`.xid_lines` knows the wordings.
"""

from __future__ import annotations

from fleet.agent.facts import gpus

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("kernel_log",)


def collect(host: Host) -> Json:
    """The ``kernel_log`` part; null with a reason where there is nothing to look for or nobody may look."""
    if not gpus.nvidia_functions(host):
        return {"kernel_log": None, "kernel_log_reason": "not_supported"}
    from fleet.agent.facts import kernel_log_sources  # 3 ms of patterns, which other hosts need not

    found = kernel_log_sources.read(host)
    if isinstance(found, str):
        return {"kernel_log": None, "kernel_log_reason": found}
    return {"kernel_log": found}
