"""Does the name of the image say which image it is, and can there be one of this name?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.fits import toolkit_of
from fleet.audit.compatibility.rule import FITTING, AuditRule, Case, KnownBad, rule
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.images import Image, NoSuchTag, NotInCatalogue
from fleet.catalogue.references import Reference

_TAGS = (
    "pytorch/pytorch .github/scripts/generate_docker_release_matrix.py: tags are TORCH-cudaM.m-cudnnM-FLAVOUR"
)


@rule(
    "audit.image.no_such_tag",
    known_bad=KnownBad(image="pytorch/pytorch:2.7.0-cuda11.8-cudnn8-runtime"),
)
def no_such_tag(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The tag is one that can exist."""
    asked = case.asked
    if not isinstance(asked, NoSuchTag):
        return
    yield self.finding(
        f"{asked.reference} does not exist: {asked.why}",
        observed=asked.reference,
        limit=asked.proposal,
        source=_TAGS,
        remedy=f"image {asked.proposal}" if asked.proposal else "a tag that fleet catalogue show image has",
    )


@rule(
    "audit.image.not_in_catalogue",
    severity=Severity.UNKNOWN,
    known_bad=KnownBad(image="registry.example.net/team/train:17@sha256:" + "0" * 64),
)
def not_in_catalogue(self: AuditRule, case: Case) -> Iterator[Finding]:
    """What is in the image is known, and so is its CUDA."""
    asked = case.asked
    if isinstance(asked, NotInCatalogue):
        yield self.finding(
            f"{asked.reference} is not in the catalogue: {asked.why}",
            observed=asked.reference,
            limit=list(asked.nearest),
            source="fleet/catalogue/data/images.yaml",
            remedy=f"image {asked.nearest[0]}, or have a host look into this one"
            if asked.nearest
            else "have a host look into it, or add it to the site's catalogue",
        )
    elif isinstance(asked, Image) and toolkit_of(asked, case.catalogue) is None:
        yield self.finding(
            f"CUDA {asked.cuda} of {asked.reference} is not in the catalogue"
            if asked.cuda
            else f"which CUDA {asked.reference} has is not known" + (f": {asked.note}" if asked.note else ""),
            observed=asked.cuda,
            limit="a CUDA of the catalogue",
            source="fleet/catalogue/data/cuda.yaml",
            remedy="have a host look into it, or add it to the site's catalogue",
        )


@rule(
    "audit.image.no_digest",
    severity=Severity.WARNING,
    known_bad=KnownBad(image=FITTING.partition("@")[0]),
)
def no_digest(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The image is pinned by a digest, so that every host runs the same one."""
    asked = case.asked
    if asked is None or isinstance(asked, NoSuchTag) or Reference.parse(asked.reference).digest is not None:
        return
    digest = asked.digest if isinstance(asked, Image) else None
    if digest is not None and isinstance(asked, Image) and asked.origin != "inspected":
        # A site's catalogue says which one is meant; an inspection only which one it is today.
        return
    yield self.finding(
        f"{asked.reference} is not pinned: whoever owns the tag may make it another image",
        observed=asked.reference,
        limit="name@sha256:...",
        source="a tag is a name that its registry may move; a digest is of the content",
        remedy=f"pin it: {asked.reference}@{digest}"
        if digest is not None
        else f"pin it: docker buildx imagetools inspect {asked.reference} says the digest",
    )


@rule(
    "audit.image.latest",
    severity=Severity.WARNING,
    known_bad=KnownBad(image="pytorch/pytorch:latest"),
)
def latest(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The image is not called latest, or by no tag at all: those are other images from time to time."""
    asked = case.asked
    if asked is None or not Reference.parse(asked.reference).moves:
        return
    nearest = asked.nearest[0] if isinstance(asked, NotInCatalogue) and asked.nearest else None
    yield self.finding(
        f"{asked.reference} is another image from time to time: two hosts may run two",
        observed=asked.reference,
        limit="a tag of a release",
        source="registries move latest with each release",
        remedy=f"image {nearest}" if nearest else "name a release",
    )
