"""The PCI bridges above a function, and whether they redirect (Access Control Services, PCIe 6.12).

A bridge with request or completion redirect on sends what its children say to each other up to the root: two
GPUs, or a GPU and a network adapter, under one switch then talk through the processor.
"""

from __future__ import annotations

import os
import re
import struct

from fleet.agent.facts import links
from fleet.agent.facts.gpus import DEVICES
from fleet.agent.pci_address import IN_SYSFS

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List

    from fleet.agent.host import Host


HEADER = 64  # what everybody may read of a function's configuration; the rest is root's
EXTENDED = 256  # where the extended capabilities begin
ACS = 0x000D
REDIRECT = 0x0004 | 0x0008  # request redirect, completion redirect
_MOST_CAPABILITIES = 512

_ADDRESS = re.compile(IN_SYSFS)


def above(host: Host, addresses: List[str]) -> List[str]:
    """The bridges above some functions, by address. sysfs nests a function's folder in its bridge's."""
    found = set()
    for address in addresses:
        folder = os.path.dirname(links.resolve(host, "%s/%s" % (DEVICES, address)))
        for part in folder.split("/"):
            if _ADDRESS.fullmatch(part):
                found.add(part)
    return sorted(found)


def redirects(host: Host, address: str) -> bool:
    """Whether a bridge redirects. Raises OSError; PermissionError where only the header may be read."""
    with open(host.path("%s/%s/config" % (DEVICES, address)), "rb", buffering=0) as stream:
        config = stream.read(4096)
    if len(config) <= HEADER:
        raise PermissionError("only the header of %s may be read" % address)
    return acs_control(config) & REDIRECT != 0


def acs_control(config: bytes) -> int:
    """The ACS control register of a function's configuration; 0 for one without ACS."""
    offset = EXTENDED
    for _ in range(_MOST_CAPABILITIES):
        if not EXTENDED <= offset <= len(config) - 8:
            return 0
        header, _, control = struct.unpack_from("<IHH", config, offset)
        if header in (0, 0xFFFFFFFF):  # none at all; a function that no longer answers
            return 0
        if header & 0xFFFF == ACS:
            return int(control)
        offset = header >> 20 & 0xFFC
    return 0
