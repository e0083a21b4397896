"""Has the image code for the GPUs, in torch and in cuDNN, and does what is known of it rest on anything?

Arch lists of torch's builds are in ``fleet/catalogue/data/torch.yaml``: a GPU runs compiled code of its own major
and of no newer minor; else the driver must compile PTX, which only a driver of the image's own CUDA, or newer, does.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.fits import code_for, fit, forward
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule, with_caveat
from fleet.audit.compatibility.subject import SubjectGpu
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.images import Image
from fleet.catalogue.versions import release

AARCH64_SOURCE = (
    "pytorch/pytorch .github/workflows/docker-release.yml and Dockerfile: runtime is built for amd64 and arm64, there"
    " with torch for the CPU; devel for amd64 alone"
)
_CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime@sha256:" + "0" * 64
_CU118 = "pytorch/pytorch:2.7.0-cuda11.8-cudnn9-runtime@sha256:" + "0" * 64
_GTX_1080_TI = {"gpus.0.device_id": "1b06", "gpus.0.subsystem_id": "3752"}
_K80 = {"gpus.0.device_id": "102d", "gpus.0.subsystem_id": "106c"}
_NEWER = {"arch_list": ("7.5", "8.0"), "ptx": "8.0"}


def _gpus(case: Case) -> Iterator[tuple[Image, SubjectGpu, Gpu, str]]:
    """Image, product and what code the image has for it, for each product that the catalogue knows."""
    if case.image is None:
        return
    for gpu, known in case.subject.known_gpus():
        wheel = case.options.where == "host"
        yield case.image, gpu, known, code_for(case.image, known, case.subject.architecture, wheel=wheel)


@rule("audit.image.arch", known_bad=KnownBad(_GTX_1080_TI, _CU128))
def arch(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The image has code for every GPU, compiled or as PTX.

    Unknown where nobody knows what code it has, or what it has for this host's processor.
    """
    for image, gpu, known, code in _gpus(case):
        if code not in ("none", "unknown"):
            continue
        unknown = code == "unknown"
        what = (
            f"what code this image has for compute capability {known.compute_capability}"
            f"{_processor(case, image)} is not known"
            if unknown
            else _lacks(case, image, known)
        )
        field = "arch_list" if image.arch_list is not None else "min_compute_capability"
        field = "aarch64" if _not_for_aarch64(case, image) else field
        for place in gpu.places:
            yield self.finding(
                with_caveat(f"{what}: {known.name}", _caveat(image, field)),
                observed=known.compute_capability,
                limit=None
                if unknown
                else list(image.arch_list or [f"{image.min_compute_capability} and newer"]),
                source=_source(image, field, case.catalogue),
                remedy="ask the image itself: torch.cuda.get_arch_list()"
                if unknown
                else _other(image, known, case),
                severity=Severity.UNKNOWN if unknown else None,
                gpu=place,
            )


@rule("audit.image.ptx", severity=Severity.WARNING, known_bad=KnownBad(changes=_NEWER))
def ptx(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The image has compiled code for every GPU: nothing has to be compiled from PTX when it starts.

    Unknown where it would, and nobody verified that there is such PTX.
    """
    if fit(case) == "minor_version" or (fit(case) == "too_old" and forward(case) is None):
        return
    for image, gpu, known, code in _gpus(case):
        if code != "ptx":
            continue
        for place in gpu.places:
            yield self.finding(
                with_caveat(
                    f"{known.name} (compute capability {known.compute_capability}) runs this image only by"
                    f" compiling its PTX of {image.ptx}: the first start is slow",
                    _caveat(image, "ptx"),
                ),
                observed=known.compute_capability,
                limit=list(image.arch_list or ()),
                source=_source(image, "ptx", case.catalogue),
                remedy=f"{_other(image, known, case)}; meanwhile keep CUDA_CACHE_PATH on a volume that stays",
                severity=Severity.UNKNOWN if "ptx" in image.unverified else None,
                gpu=place,
            )


@rule(
    "audit.image.ptx_jit",
    known_bad=KnownBad({"driver.loaded.version": "550.163.01"}, _CU128, changes=_NEWER),
)
def ptx_jit(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Where PTX has to be compiled, the driver is of the image's CUDA or newer, and so can."""
    if fit(case) != "minor_version":
        return
    for image, gpu, known, code in _gpus(case):
        if code != "ptx":
            continue
        for place in gpu.places:
            yield self.finding(
                with_caveat(
                    f"{known.name} needs the PTX of this image, and driver {case.subject.driver} is older than"
                    f" CUDA {image.cuda}, so it cannot compile it",
                    _caveat(image, "ptx"),
                ),
                observed=str(case.subject.driver),
                limit=f"a driver of CUDA {image.cuda}",
                source="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html:"
                " PTX of a newer toolkit is not compiled",
                remedy=f"a newer driver, or {_other(image, known, case)}",
                gpu=place,
            )


@rule(
    "audit.image.cudnn_gpu",
    known_bad=KnownBad({**_K80, "driver.loaded.version": "470.256.02"}, _CU118),
)
def cudnn_gpu(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The cuDNN in the image has code for every GPU."""
    image = case.image
    if image is None or image.cudnn is None:
        return
    support = case.catalogue.cudnn.support(image.cudnn)
    for gpu, known in case.subject.known_gpus():
        capability = known.compute_capability
        if support.serves(capability) if support else _between(image.cudnn, capability, case.catalogue):
            continue
        what = (
            f"cuDNN {image.cudnn} of this image serves compute capability {support.min_compute_capability} and newer,"
            f" {known.name} has {capability}"
            if support
            else f"whether cuDNN {image.cudnn} serves compute capability {capability} ({known.name}) is not known"
        )
        for place in gpu.places:
            yield self.finding(
                with_caveat(what, support.provenance.caveat("min_compute_capability") if support else ""),
                observed=capability,
                limit=support.min_compute_capability if support else None,
                source=support.provenance.source("min_compute_capability")
                if support
                else "fleet/catalogue/data/cudnn.yaml",
                remedy=f"an image with an older cuDNN: of torch before {image.torch}",
                severity=None if support else Severity.UNKNOWN,
                gpu=place,
            )


def _between(cudnn: str, capability: str, catalogue: Catalogue) -> bool:
    """Whether releases known before and after one that is not both serve a GPU."""
    wanted = release(cudnn)
    spans = catalogue.cudnn.all
    older = [one for one in spans if release(one.first) <= wanted]
    newer = [one for one in spans if release(one.first) > wanted]
    return bool(older and newer) and older[-1].serves(capability) and newer[0].serves(capability)


@rule(
    "audit.image.not_verified",
    severity=Severity.INFO,
    known_bad=KnownBad(changes={"unverified": ("arch_list",)}),
)
def not_verified(self: AuditRule, case: Case) -> Iterator[Finding]:
    """All that a verdict takes from what is known of the image was verified."""
    image = case.image
    if image is None or image.verified:
        return
    yield self.finding(
        f"what is known of this image was not all verified: {', '.join(image.unverified)}",
        observed=list(image.unverified),
        limit="verified",
        source=_source(image, image.unverified[0], case.catalogue),
        remedy="look into the image itself, once: fleet audit reads what the container check found on a host",
    )


@rule(
    "audit.image.differs",
    severity=Severity.WARNING,
    known_bad=KnownBad(changes={"differs": (("torch", "2.9.0", "2.8.0"),)}),
)
def differs(self: AuditRule, case: Case) -> Iterator[Finding]:
    """An image that was looked into is what the catalogue has by its name."""
    image = case.image
    if image is None or not image.differs:
        return
    told = ", ".join(f"{name} {now} and not {before}" for name, before, now in image.differs)
    yield self.finding(
        f"{image.reference} is not what the catalogue has by this name: it has {told}",
        observed=[f"{name} {now}" for name, _, now in image.differs],
        limit=[f"{name} {before}" for name, before, _ in image.differs],
        source=image.provenance.source() or f"what is known of {image.reference}",
        remedy="ask who pushed it under this name; pin what is meant by its digest, or correct the catalogue",
    )


def _span(image: Image) -> str:
    """``starts at 7.5`` or ``ends at 9.0``; PTX, where there is some, is too new as well."""
    if image.arch_list is None:
        return f"it begins with {image.min_compute_capability}"
    known = sorted(map(release, (one.rstrip("abcdef") for one in image.arch_list or ())))
    return f"it has {known[0]} to {known[-1]}" if known else "it has no code for GPUs"


def _not_for_aarch64(case: Case, image: Image) -> bool:
    """Whether the host is aarch64, and the image known to have nothing for GPUs there."""
    return case.subject.architecture == "aarch64" and image.aarch64 is not None and case.in_container


def _lacks(case: Case, image: Image, known: Gpu) -> str:
    """What there is in the image in place of code for the GPU."""
    if not _not_for_aarch64(case, image):
        return f"compute capability {known.compute_capability} is not in this image ({_span(image)})"
    if image.aarch64 == "absent":
        return "this image is for x86-64 alone, and the host is aarch64"
    return "this image has torch for the CPU alone on aarch64"


def _processor(case: Case, image: Image) -> str:
    elsewhere = case.subject.architecture == "aarch64" and image.arch_list is not None
    return " on aarch64" if elsewhere else ""


def _other(image: Image, gpu: Gpu, case: Case) -> str:
    """Another variant of the same torch that has code for a GPU, else words."""
    if _not_for_aarch64(case, image):
        return "an image that is built for aarch64 with CUDA, such as NVIDIA's own (nvcr.io/nvidia/pytorch)"
    fitting = [
        one
        for one in case.catalogue.images.all
        if one.origin == "catalogue"
        and (one.torch, one.flavour) == (image.torch, image.flavour)
        and code_for(one, gpu) == "code"
    ]
    if fitting:
        return f"image {fitting[-1].reference}"
    return f"an image whose torch has code for compute capability {gpu.compute_capability}"


def _caveat(image: Image, field: str) -> str:
    return f"not verified: {field}" if field in image.unverified else ""


def _source(image: Image, field: str, catalogue: Catalogue) -> str:
    if field == "aarch64":
        return AARCH64_SOURCE
    if image.torch is not None and image.variant is not None and image.origin == "catalogue":
        build = catalogue.torch.find(image.torch, image.variant)
        if build is not None:
            return build.provenance.source(field)
    if not image.provenance.layers:
        return f"what is known of {image.reference}"
    return image.provenance.source(field) or f"what is known of {image.reference}"
