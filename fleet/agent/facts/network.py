"""Routes and addresses, from /proc and one netlink question; ``ip`` is not needed."""

from __future__ import annotations

import os
import socket
import struct

from fleet.agent.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("network",)

_UP = 0x1
_REJECT = 0x200
_RTM_NEWADDR, _RTM_GETADDR, _NLMSG_DONE, _NLMSG_ERROR = 20, 22, 3, 2
_REQUEST_DUMP = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2


def parse_routes(text: str) -> List[Json]:
    """/proc/net/route (IPv4, main table): {"destination" (CIDR), "device", "gateway" or None}; by metric."""
    routes: List[Tuple[int, Json]] = []
    for line in text.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 8 or not int(columns[3], 16) & _UP or int(columns[3], 16) & _REJECT:
            continue
        prefix = bin(int(columns[7], 16)).count("1")
        gateway = _ipv4(columns[2])
        routes.append(
            (
                int(columns[6]),
                {
                    "destination": "%s/%d" % (_ipv4(columns[1]), prefix),
                    "device": columns[0],
                    "gateway": None if gateway == "0.0.0.0" else gateway,
                },
            )
        )
    return [route for _, route in sorted(routes, key=lambda pair: pair[0])]


def _ipv4(text: str) -> str:
    """The kernel prints the four bytes as one number of its own byte order."""
    return socket.inet_ntoa(struct.pack("=I", int(text, 16)))


def parse_routes6(text: str) -> List[Json]:
    """/proc/net/ipv6_route without the local, multicast and loopback entries."""
    routes: List[Json] = []
    for line in text.splitlines():
        columns = line.split()
        if len(columns) < 10 or columns[9] == "lo":
            continue
        flags = int(columns[8], 16)
        if not flags & _UP or flags & _REJECT or columns[0].startswith("ff"):
            continue
        if flags & 0x80000000:  # RTF_LOCAL: an address of this host
            continue
        gateway = _ipv6(columns[4])
        routes.append(
            {
                "destination": "%s/%d" % (_ipv6(columns[0]), int(columns[1], 16)),
                "device": columns[9],
                "gateway": None if gateway == "::" else gateway,
            }
        )
    return routes


def _ipv6(text: str) -> str:
    return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(text))


def parse_addresses(data: bytes, names: Dict[int, str]) -> Tuple[List[Json], bool]:
    """Netlink answers to RTM_GETADDR -> ({"device", "address" with prefix length}, whether that was all)."""
    found: List[Json] = []
    position = 0
    while position + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, position)
        if kind == _NLMSG_DONE:
            return found, True
        if kind == _NLMSG_ERROR or length < 16:
            raise ValueError("netlink refused the question for addresses")
        if kind == _RTM_NEWADDR:
            entry = _address(data[position + 16 : position + length], names)
            if entry is not None:
                found.append(entry)
        position += (length + 3) & ~3
    return found, False


def _address(body: bytes, names: Dict[int, str]) -> Optional[Json]:
    family, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
    attributes: Dict[int, bytes] = {}
    position = 8
    while position + 4 <= len(body):
        size, kind = struct.unpack_from("=HH", body, position)
        if size < 4:
            break
        attributes[kind] = body[position + 4 : position + size]
        position += (size + 3) & ~3
    # On a point-to-point link ADDRESS is the peer's and LOCAL is ours.
    raw = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
    if raw is None or family not in (socket.AF_INET, socket.AF_INET6):
        return None
    text = "%s/%d" % (socket.inet_ntop(family, raw), prefix)
    return {"device": names.get(index, "if%d" % index), "address": text}


def addresses() -> List[Json]:
    """Every address of this host but the loopback's. Raises OSError or ValueError."""
    names = dict(socket.if_nameindex())
    found: List[Json] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as netlink:
        netlink.settimeout(2.0)
        netlink.bind((0, 0))
        netlink.send(struct.pack("=IHHIIBBBBI", 24, _RTM_GETADDR, _REQUEST_DUMP, 1, 0, 0, 0, 0, 0, 0))
        complete = False
        while not complete:
            part, complete = parse_addresses(netlink.recv(256 * 1024), names)
            found += part
    return [entry for entry in found if entry["device"] != "lo"]


def default_device(routes: List[Json]) -> Optional[str]:
    """The device of the best default route, IPv4 before IPv6."""
    for destination in ("0.0.0.0/0", "::/0"):
        for route in routes:
            if route["destination"] == destination:
                return str(route["device"])
    return None


def collect(host: Host) -> Json:
    """The ``network`` part."""
    routes = parse_routes(read_text(host, "/proc/net/route"))
    if os.path.exists(host.path("/proc/net/ipv6_route")):
        routes += parse_routes6(read_text(host, "/proc/net/ipv6_route"))
    part: Json = {"routes": routes, "default_device": default_device(routes)}
    if part["default_device"] is None:
        part["default_device_reason"] = "not_supported"
    part["addresses"] = addresses()
    return {"network": part}
