"""Every kind of entry that ``fleet catalogue show`` shows, and how many there are of each."""

from __future__ import annotations

from typing import Any

from fleet.catalogue import present, present_runtimes, present_systems, present_torch, present_xids
from fleet.catalogue.catalogue import Catalogue

KINDS = {
    **present.KINDS,
    **present_systems.KINDS,
    **present_torch.KINDS,
    **present_runtimes.KINDS,
    **present_xids.KINDS,
}


def summary(catalogue: Catalogue) -> list[dict[str, Any]]:
    """[{"kind", "entries", "file", "section"}], in the order of the kinds."""
    return [
        {
            "kind": kind.word,
            "entries": len(catalogue.files.section(*kind.place)),
            "file": f"{kind.place[0]}.yaml",
            "section": kind.place[1],
        }
        for kind in KINDS.values()
    ]
