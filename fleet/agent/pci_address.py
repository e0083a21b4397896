"""PCI addresses: every tool prints them in another way, and facts have them as sysfs does."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional

#: An address as sysfs writes it, as a regular expression.
IN_SYSFS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


def normalised_address(text: str) -> str:
    """A PCI address as sysfs writes it: ``0000:1b:00.0`` of ``00000000:1B:00.0``, ``1B:00.0`` or ``0000:1b:00``.

    Lower case; a domain of four digits unless it needs more. Raises ValueError for what is no address.
    """
    main, dot, function = text.strip().lower().partition(".")
    parts = main.split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    try:
        domain, bus, slot = (int(part, 16) for part in parts)
        number = int(function, 16) if dot else 0
    except ValueError:
        raise ValueError("not a PCI address: %r" % text) from None
    return "%04x:%02x:%02x.%x" % (domain, bus, slot, number)


def address_or_none(text: Optional[str]) -> Optional[str]:
    """The same of what may be no address: None then."""
    try:
        return normalised_address(text or "")
    except ValueError:
        return None
