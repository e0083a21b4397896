"""Which machine this is: names, machine id, boot id. Nothing here asks DNS."""

from __future__ import annotations

import os

from fleet.agent.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, Optional

    from fleet.agent.host import Host


KEYS = ("identity", "controller_here")


def fqdn_of(hostname: str, hosts_file: str) -> Optional[str]:
    """The host's full name: its own if it has a domain, else the one /etc/hosts gives it, else None."""
    if "." in hostname:
        return hostname
    for line in hosts_file.splitlines():
        names = line.split("#", 1)[0].split()[1:]
        if hostname in names:
            full = [name for name in names if name.startswith(hostname + ".")]
            if full:
                return full[0]
    return None


def collect(host: Host) -> Dict[str, Any]:
    """The ``identity`` part. ``controller_here`` is for the controller to say; it knows its own machine."""
    identity: Dict[str, Any] = {"hostname": os.uname().nodename}
    try:
        identity["fqdn"] = fqdn_of(identity["hostname"], read_text(host, "/etc/hosts"))
    except OSError:
        identity["fqdn"] = fqdn_of(identity["hostname"], "")
    if identity["fqdn"] is None:
        identity["fqdn_reason"] = "not_supported"
    for key, paths in (
        ("machine_id", ("/etc/machine-id", "/var/lib/dbus/machine-id")),
        ("boot_id", ("/proc/sys/kernel/random/boot_id",)),
    ):
        identity[key] = _first(host, *paths)
        if identity[key] is None:
            identity[key + "_reason"] = "not_supported"
    return {"identity": identity, "controller_here": None, "controller_here_reason": "not_collected"}


def _first(host: Host, *paths: str) -> Optional[str]:
    for path in paths:
        try:
            text = read_text(host, path)
        except OSError:
            continue
        if text and text != "uninitialized":
            return text
    return None
