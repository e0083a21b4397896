"""Facts as variables: the whole document as ``facts``, and the names Ansible's playbooks know.

Text from a host is never a template: everything in it is :class:`~fleet.core.template.Unsafe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.audit.facts import fact
from fleet.core.template import Unsafe

_DISTRIBUTIONS = {
    "debian": "Debian",
    "ubuntu": "Ubuntu",
    "rhel": "RedHat",
    "rocky": "Rocky",
    "almalinux": "AlmaLinux",
    "centos": "CentOS",
}


def unsafe(value: Any) -> Any:
    """A copy in which no text can be a template, whoever wrote it."""
    if isinstance(value, str):
        return Unsafe(value)
    if isinstance(value, Mapping):
        return {str(key): unsafe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [unsafe(item) for item in value]
    return value


def fact_variables(facts: Mapping[str, Any]) -> dict[str, Any]:
    """``facts``, ``ansible_facts`` and the ``ansible_…`` names; facts that are not there are left out."""
    os_id = fact(facts, "os.id")
    version = fact(facts, "os.version_id")
    memory = fact(facts, "memory_bytes")
    known = {
        "distribution": _DISTRIBUTIONS.get(str(os_id), os_id),
        "distribution_version": version,
        "distribution_major_version": str(version).partition(".")[0] if version else None,
        "distribution_release": fact(facts, "os.codename"),
        "os_family": _family(facts),
        "hostname": fact(facts, "identity.hostname"),
        "fqdn": fact(facts, "identity.fqdn"),
        "architecture": fact(facts, "kernel.architecture"),
        "kernel": fact(facts, "kernel.release"),
        "memtotal_mb": memory // 1_048_576 if isinstance(memory, int) else None,
        "processor_vcpus": fact(facts, "cpus"),
        "python_version": fact(facts, "python.version"),
        "pkg_mgr": fact(facts, "packages.manager"),
    }
    there = {name: unsafe(value) for name, value in known.items() if value is not None}
    aliases = {f"ansible_{name}": value for name, value in there.items()}
    return {**aliases, "ansible_facts": there, "facts": unsafe(facts)}


def _family(facts: Mapping[str, Any]) -> str | None:
    words = {fact(facts, "os.id"), *(fact(facts, "os.like") or [])}
    if "debian" in words or "ubuntu" in words:
        return "Debian"
    return "RedHat" if words & {"rhel", "fedora", "centos"} else None
