"""What is in an image that the catalogue does not have: asked once, then kept by digest.

In this order: what was learnt before (the store), what containers of it said on hosts, a host's engine that has it,
its registry. :class:`Inspector` is what ``fleet audit`` asks; what each source can tell is in
:mod:`fleet.audit.compatibility.inspected`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from fleet.audit.compatibility.image_configuration import READER, configured
from fleet.audit.compatibility.inspected import CHECK, CONFIGURATION, Learnt, against, image_of
from fleet.audit.compatibility.rule import Asked
from fleet.catalogue.images import Image, Images, NoSuchTag, NotInCatalogue
from fleet.catalogue.references import Reference
from fleet.core.errors import FleetError, ImageError, ImageNotFound
from fleet.core.ids import utc_now
from fleet.core.secret import Scrubber
from fleet.run.images.access import Access
from fleet.store import InspectionRow, Store

if TYPE_CHECKING:  # HTTP and TLS take time to import, and most audits ask no registry
    from fleet.run.images.registry import Seen, Source


class Holder(Protocol):
    """A host as far as images on it go: :class:`fleet.run.audit_sources.HostAudit`."""

    name: str
    found: Image | None
    held: str | None
    look: Callable[[str], Mapping[str, Any]] | None
    access: Callable[[], Access] | None


@dataclass
class Inspector:
    """Says what an image is.

    ``store`` opens the store, None: nothing is kept. ``online``: whether hosts and registries may be asked.
    ``forced``: also for an image that the catalogue has; then what cannot be found out is an error.
    """

    images: Images
    store: Callable[[], AbstractContextManager[Store]] | None = None
    online: bool = False
    forced: bool = False
    scrubber: Scrubber = field(default_factory=Scrubber)

    def __call__(self, reference: str, hosts: Sequence[Holder] = ()) -> Asked:
        """The image: by its tag where the catalogue has it, else as it was found.

        Raises InputError for what is no reference and, if forced, ImageError where nobody can be asked with success.
        """
        known = self.images.look_up(reference)
        if isinstance(known, NoSuchTag) or (isinstance(known, Image) and not self.forced):
            return known
        named = Reference.parse(reference)
        try:
            found = self._found(named, hosts)
        except FleetError as error:
            if self.forced:
                raise
            assert isinstance(known, NotInCatalogue)
            return replace(known, why=f"{known.why}, and {error.what}")
        if found is None:
            return known
        return against(known, found) if isinstance(known, Image) else found

    def _found(self, named: Reference, hosts: Sequence[Holder]) -> Image | None:
        digest = named.digest or _agreed(one.held for one in hosts)
        if digest is None and self.online:
            digest = self._source(named, hosts).digest()
        if digest is None:
            return None
        learnt = self._known(digest, hosts)
        if self.online and not any(one.source in _enough(self.forced) for one in learnt):
            try:
                learnt.append(self._look(named, digest, hosts))
            except FleetError:
                if not learnt:  # torch's own word is worth more than the configuration
                    raise
        return image_of(named, digest, learnt) if learnt else None

    def _known(self, digest: str, hosts: Sequence[Holder]) -> list[Learnt]:
        """What was learnt of a digest before, and what hosts of this audit found in containers of it."""
        kept: dict[str, Learnt] = {}
        if self.store is not None:
            with self.store() as store:
                rows = store.inspections([digest])
            kept = {
                row.source: Learnt(row.source, row.place, row.facts) for row in rows if row.reader == READER
            }
        checked = next((one for one in hosts if one.found is not None and one.found.digest == digest), None)
        if checked is not None and checked.found is not None:
            fresh = Learnt(CHECK, checked.name, _facts(checked.found))
            if CHECK not in kept or kept[CHECK].facts != fresh.facts:
                self._keep(fresh, digest)
            kept[CHECK] = fresh
        return list(kept.values())

    def _look(self, named: Reference, digest: str, hosts: Sequence[Holder]) -> Learnt:
        """The configuration: of a host's engine that has the image, else of its registry."""
        holder = next((one for one in hosts if one.look is not None and one.held == digest), None)
        if holder is not None and holder.look is not None:
            said = holder.look(f"{named.name}@{digest}")
            if said.get("exists"):
                facts = configured(said.get("environment") or (), said.get("labels"))
                learnt = Learnt(CONFIGURATION, f"the engine of {holder.name}", facts)
                self._keep(learnt, digest)
                return learnt
        # By the digest: what the tag meant a moment ago is what is looked at and kept.
        seen = self._source(replace(named, digest=digest), hosts).look()
        learnt = Learnt(CONFIGURATION, seen.place, _configuration(seen))
        self._keep(learnt, *dict.fromkeys((seen.digest, seen.manifest)))
        return learnt

    def _source(self, named: Reference, hosts: Sequence[Holder]) -> Source:
        from fleet.run.images.registry import Source

        return Source(named, self._access(hosts))

    def _access(self, hosts: Sequence[Holder]) -> Access:
        """How registries are asked, as the inventory says for the first host; the password is never shown."""
        declared = next((one.access for one in hosts if one.access is not None), None)
        access = declared() if declared is not None else Access()
        if access.password is not None:
            self.scrubber.add(access.password)
        return access

    def _keep(self, learnt: Learnt, *digests: str) -> None:
        if self.store is None:
            return
        at = utc_now()
        rows = [
            InspectionRow(digest, learnt.source, READER, learnt.place, at, learnt.facts) for digest in digests
        ]
        with self.store() as store:
            store.save_inspections(rows)


def inspect(
    reference: str,
    images: Images,
    *,
    store: Callable[[], AbstractContextManager[Store]] | None = None,
    access: Access | None = None,
) -> Image:
    """What an image is, by what was kept of it or by its registry, whether or not the catalogue has it.

    Raises InputError for no reference, ImageNotFound for a tag that cannot exist, ImageError as the registry has it.
    """
    found = Inspector(images, store, online=True, forced=True)(reference, [_Nobody(access)])
    if isinstance(found, NoSuchTag):
        hint = f"did you mean {found.proposal}?" if found.proposal else "fleet catalogue show image"
        raise ImageNotFound(f"{found.reference} does not exist: {found.why}", remedy=hint)
    if not isinstance(found, Image):
        raise ImageError(f"{reference}: nothing is known of it", remedy="fleet catalogue show image")
    return found


class _Nobody:
    """No host, but a way to ask registries."""

    name = ""
    found: Image | None = None
    held: str | None = None
    look: Callable[[str], Mapping[str, Any]] | None = None

    def __init__(self, access: Access | None) -> None:
        self.access: Callable[[], Access] | None = (lambda: access) if access is not None else None


def _enough(forced: bool) -> tuple[str, ...]:
    """The sources one of which is enough; who asks expressly wants the configuration as well."""
    return (CONFIGURATION,) if forced else (CONFIGURATION, CHECK)


def _agreed(digests: Iterator[str | None]) -> str | None:
    """The digest that all hosts which have one agree on."""
    found = {one for one in digests if one is not None}
    return found.pop() if len(found) == 1 else None


def _configuration(seen: Seen) -> dict[str, Any]:
    said = seen.configuration.get("config") or {}
    return configured(said.get("Env") or (), said.get("Labels"))


def _facts(found: Image) -> dict[str, Any]:
    """What a container check found, as it is kept: JSON has lists, and no field that was not told."""
    names = ("torch", "cuda", "variant", "ptx", "cudnn", "nccl", "python")
    told: dict[str, Any] = {name: getattr(found, name) for name in names if getattr(found, name) is not None}
    if found.arch_list is not None:
        told["arch_list"] = list(found.arch_list)
    return {**told, "note": found.note} if found.note else told
