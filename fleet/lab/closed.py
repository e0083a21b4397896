"""Hosts without the internet: they reach the lab's own networks and nothing else, and what they tried is counted.

Such a host (``lab_public_internet: false``) takes Debian's packages from the mirror of the lab's package server.
The rules are set before systemd starts, at every boot; the counters begin anew with them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.lab.images import Machine

if TYPE_CHECKING:
    from fleet.lab.definition import HostDefinition, LabDefinition
    from fleet.lab.lab import Lab

SCRIPT = "usr/lib/fleet-lab/closed"
# Never leaves the network it is sent on.
_MULTICAST = "224.0.0.0/4"


def files(definition: LabDefinition, host: HostDefinition, machine: Machine) -> dict[str, tuple[str, int]]:
    """Content and mode by path: the rules, and apt's sources at the lab's mirror."""
    site = "http://packages.lab"
    mirrored = Machine(f"{site}/debian", f"{site}/debian-security", "", ())
    # The mirror is plain HTTP inside the lab; what it mirrors may be old, as this machine's settings allow.
    dates = "".join(line for line in machine.apt_options.splitlines(True) if "Acquire::Check-" in line)
    return {
        SCRIPT: (_SCRIPT.format(networks=f"{definition.outer} {definition.inner} {_MULTICAST}"), 0o755),
        "etc/apt/sources.list": (mirrored.sources(host.release), 0o644),
        "etc/apt/apt.conf.d/90machine": (dates, 0o644),
    }


def attempts(lab: Lab, host: str) -> int:
    """How many packets ``host`` and its containers have tried to send to the world since it booted.

    Questions to name servers are refused but not counted: Docker's resolver asks on from inside the host, and
    apt asks it for the service records of every server it uses.
    """
    name = lab.place.container(host)
    listed = lab.engine.docker("exec", name, "iptables", "-t", "mangle", "-nvxL", "FLEET-LAB-CLOSED").stdout
    listed += lab.engine.docker("exec", name, "iptables", "-nvxL", "FLEET-LAB-CLOSED").stdout
    refused = re.findall(r"^\s*(\d+)\s+\d+\s+(?:REJECT|DROP)\b(.*)$", listed, re.MULTILINE)
    return sum(int(packets) for packets, rest in refused if "dpt:53" not in rest)


# The host's own packets are refused at once, as where there is no route; those of its containers, which Docker's
# own rules let pass, are dropped on the way out.
_SCRIPT = """\
#!/bin/sh
iptables -N FLEET-LAB-CLOSED
iptables -t mangle -N FLEET-LAB-CLOSED
for network in {networks}; do
    iptables -A FLEET-LAB-CLOSED -d $network -j RETURN
    iptables -t mangle -A FLEET-LAB-CLOSED -d $network -j RETURN
done
iptables -A FLEET-LAB-CLOSED -p udp --dport 53 -j REJECT
iptables -A FLEET-LAB-CLOSED -j REJECT --reject-with icmp-net-unreachable || iptables -A FLEET-LAB-CLOSED -j DROP
iptables -t mangle -A FLEET-LAB-CLOSED -j DROP
iptables -A OUTPUT -o eth0 -j FLEET-LAB-CLOSED
iptables -t mangle -A POSTROUTING -o eth0 -j FLEET-LAB-CLOSED
"""
