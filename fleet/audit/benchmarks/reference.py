"""What a GPU can do in theory at a test, and what it must reach: out of the catalogue, by PCI ids.

The host link's theory is that of the generation and width seen while it was under load: idle links train
down, and a link that ran narrow is told by a rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.audit.benchmarks.subject import Subject
from fleet.catalogue.gpus import Gpu, pcie_gb_per_s

#: Tests of matrix products -> (name among the catalogue's peaks, factor): structured sparsity doubles the rate.
MATRIX_PEAKS = {
    "fp32": ("fp32", 1),
    "tf32": ("tf32", 1),
    "fp16": ("fp16_tensor", 1),
    "bf16": ("bf16_tensor", 1),
    "fp8": ("fp8_tensor", 1),
    "int8": ("int8_tensor", 1),
    "fp16_sparse": ("fp16_tensor", 2),
    "int8_sparse": ("int8_tensor", 2),
}

FULL_WIDTH = 16
#: NVLink limits are of systems where a switch joins this many GPUs.
FULL_HOST = 8
#: Collectives reach their rate only with large messages.
LARGE_MESSAGE = 1 << 30

PEAK_SOURCE = "theoretical peak in the catalogue"


@dataclass(frozen=True)
class Reference:
    """``peak`` in theory and ``limit`` to reach, in the test's unit; None where not known.

    ``of`` is what the theory is that of ("fp16 peak of T4"), ``nvlink`` whether of NVLink between GPUs. ``why_not``
    says why there is no peak.
    """

    peak: float | None = None
    limit: float | None = None
    source: str | None = None
    of: str = ""
    nvlink: bool = False
    why_not: str = ""


def reference(subject: Subject) -> Reference:
    """The reference of a result. A MIG instance has none: the figures are of whole GPUs."""
    if subject.is_slice:
        return Reference(why_not="a MIG instance is not held against figures of the whole GPU")
    if not subject.gpus:
        return Reference(why_not="no GPU")
    group, _, kind = subject.test.partition(".")
    if group == "host_link":
        return _host_link(subject)
    product = subject.product
    if product is None:
        return Reference(why_not=_unknown(subject))
    if group == "matrix_product":
        return _matrix(product, kind)
    if group == "memory":
        return _memory(subject, product)
    if subject.test == "peer.copy" or (group == "nccl" and subject.result["unit"] == "gb_s"):
        return _linked(subject, product)
    return Reference(
        why_not="no limit of it is known; a baseline, or four GPUs of its kind, would be held against it"
    )


def _unknown(subject: Subject) -> str:
    if all(one is not None for one in subject.known):
        return "GPUs of several products"
    ids = {
        f"{gpu['device_id']}:{gpu['subsystem_id']}"
        for gpu, known in zip(subject.gpus, subject.known, strict=True)
        if known is None
    }
    return f"the catalogue does not know the GPU {', '.join(sorted(ids))}"


def _limit(product: Gpu, name: str) -> tuple[float | None, str | None]:
    limit = product.limits.get(name)
    if limit is None:
        return None, None
    source = product.provenance.source(f"limits.{name}")
    caveat = product.provenance.caveat(f"limits.{name}")
    return limit, f"{source} ({caveat})" if caveat else source


def _matrix(product: Gpu, kind: str) -> Reference:
    name, factor = MATRIX_PEAKS.get(kind, ("", 1))
    peak = product.peaks.get(name)
    if peak is None:
        return Reference(why_not=f"the catalogue has no {kind} peak of {product.name}")
    limit, source = _limit(product, name)
    return Reference(
        peak * factor, None if limit is None else limit * factor, source, f"{kind} peak of {product.name}"
    )


def _memory(subject: Subject, product: Gpu) -> Reference:
    counting = str(subject.result["parameters"].get("counting", ""))
    if not ("read" in counting and "writ" in counting):
        return Reference(why_not="the result does not say that reads and writes were counted")
    limit, source = _limit(product, "memory_bandwidth_gb_per_s")
    peak = product.memory_bandwidth_gb_per_s
    if peak is None and limit is None:
        return Reference(why_not=f"the catalogue has no memory bandwidth of {product.name}")
    return Reference(peak, limit, source, f"memory bandwidth of {product.name}")


def _host_link(subject: Subject) -> Reference:
    product = subject.product
    if product is not None and product.nvlink is not None and product.nvlink.c2c_gb_per_s:
        return Reference(product.nvlink.c2c_gb_per_s / 2, of="rate of NVLink-C2C one way")
    link = measured_link(subject)
    theory = pcie_gb_per_s(*link) if link else None
    if link is None or theory is None:
        return Reference(why_not="the link's generation and width were not seen under load")
    of = f"rate of PCIe {link[0]} x{link[1]}, as seen under load"
    limit, source = _limit(product, "host_link_gb_per_s") if product is not None else (None, None)
    if product is None or limit is None:
        return Reference(theory, of=of)
    full = pcie_gb_per_s(product.pcie_generation or link[0], FULL_WIDTH) or theory
    scaled = limit if theory >= full else round(limit * theory / full, 2)
    return Reference(theory, scaled, source, of)


def measured_link(subject: Subject) -> tuple[int, int] | None:
    """(generation, width) of the slowest PCIe link under load among its GPUs; None where any is not known."""
    links = []
    for gpu in subject.gpus:
        during = gpu["during"] or {}
        generation, width = during.get("pcie_generation"), during.get("pcie_width")
        if not generation or not width:
            return None
        links.append((int(generation), int(width)))
    return min(links, key=lambda link: pcie_gb_per_s(*link) or 0.0) if links else None


def _linked(subject: Subject, product: Gpu) -> Reference:
    """Between GPUs: NVLink where every such board has it, one way; else the slowest PCIe link."""
    if product.nvlink is None or product.nvlink.bridge:
        link = measured_link(subject)
        theory = pcie_gb_per_s(*link) if link else None
        if link is None or theory is None:
            return Reference(why_not="the link's generation and width were not seen under load")
        return Reference(theory, of=f"rate of PCIe {link[0]} x{link[1]}, as seen under load")
    of = "rate of NVLink one way"
    one_way = product.nvlink.gb_per_s / 2
    if subject.test == "peer.copy" and (switched(subject, product) or all(map(_all_to_switch, subject.gpus))):
        return Reference(one_way, *_limit(product, "peer_gb_per_s"), of, nvlink=True)
    if not switched(subject, product):
        return Reference(
            why_not=f"what {len(subject.record['gpus'])} {product.name} reach together is not known: "
            f"sources are of {FULL_HOST} behind a switch"
        )
    if subject.test != "nccl.all_reduce" or largest_message(subject) < LARGE_MESSAGE:
        return Reference(one_way, of=of, nvlink=True)
    return Reference(one_way, *_limit(product, "all_reduce_gb_per_s"), of, nvlink=True)


def switched(subject: Subject, product: Gpu) -> bool:
    """Whether an NVSwitch joins the GPUs, so that any two have all links between them."""
    if product.nvswitch == "always":
        return True
    alike = [gpu for gpu in subject.record["gpus"] if gpu["device_id"] == subject.gpus[0]["device_id"]]
    return product.nvswitch in ("some", "external") and len(alike) >= FULL_HOST


def _all_to_switch(gpu: Mapping[str, Any]) -> bool:
    """Whether all of a GPU's links were seen to lead to a switch, which gives any two GPUs all of them."""
    links = gpu.get("nvlinks") or {}
    return bool(links.get("active")) and links["to_switch"] == links["active"]


def largest_message(subject: Subject) -> int:
    """Bytes of the largest message of a collective; 0 where no point was kept."""
    return max((int(point["size_bytes"]) for point in subject.result["points"] or ()), default=0)
