"""Which distributions and releases fleet provisions; data in ``data/operating_systems.yaml``."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogue.data_files import data, within


@dataclass(frozen=True)
class OperatingSystem:
    """One distribution. ``status`` is ``supported`` or ``later``; ``source`` says where that comes from."""

    id: str
    name: str
    lowest: str | None
    highest: str | None
    manager: str
    status: str
    source: str

    def covers(self, version: str) -> bool:
        """Whether a release is among those named."""
        return within(version, self.lowest, self.highest)


def operating_systems() -> list[OperatingSystem]:
    """All known distributions, in file order."""
    return [
        OperatingSystem(
            id=entry["id"],
            name=entry["name"],
            lowest=entry["versions"].get("from"),
            highest=entry["versions"].get("to"),
            manager=entry["manager"],
            status=entry["status"],
            source=entry["source"],
        )
        for entry in data("operating_systems")["entries"]
    ]


def operating_system(os_id: str) -> OperatingSystem | None:
    """The distribution with this ID of os-release, or None."""
    return next((each for each in operating_systems() if each.id == os_id), None)


def supported_text() -> str:
    """``Debian 11 to 13, Ubuntu 22.04 and newer``."""
    parts = []
    for each in operating_systems():
        if each.status == "supported":
            parts.append(
                f"{each.name} {each.lowest}" + (f" to {each.highest}" if each.highest else " and newer")
            )
    return ", ".join(parts)
