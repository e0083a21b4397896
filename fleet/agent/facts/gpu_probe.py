"""What the GPUs say of themselves (facts.gpu_probe): NVML's answers, GPU by GPU, joined with the host's own.

Nothing is asked, and nothing costs, where the PCI bus has no NVIDIA GPU. See :mod:`fleet.agent.gpu_probe`.
"""

from __future__ import annotations

from fleet.agent.facts import gpus

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("gpu_probe",)


def collect(host: Host) -> Json:
    """The ``gpu_probe`` part."""
    on_pci = gpus.collect(host)["gpus"]
    if not on_pci:
        return {"gpu_probe": None, "gpu_probe_reason": "not_supported"}
    from fleet.agent.gpu_probe import document

    return {"gpu_probe": document.probe(host, on_pci)}
