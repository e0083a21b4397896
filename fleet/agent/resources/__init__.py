"""The primitive things that can be made true on a host, one module per kind.

Every module exposes ``RESOURCE``, the one stateless instance of its :class:`~.base.Resource` class.
Modules are imported when first asked for: a plan of three kinds pays for three. Start at :mod:`.base`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from fleet.agent.resources.base import Resource

# A fixed table, so that a plan can name nothing else.
KINDS = (
    "agent_bundle",
    "apt_repository",
    "benchmark",
    "cdi_specification",
    "command",
    "container",
    "container_check",
    "directory",
    "engine_process",
    "file",
    "gpus_unused",
    "group",
    "image",
    "initramfs",
    "json_file",
    "kernel_module",
    "line",
    "link",
    "nvidia_modules",
    "package",
    "reboot",
    "registry_login",
    "service",
    "sysctl",
    "systemd_unit",
    "user",
)

_loaded: Dict[str, Resource] = {}


class UnknownKind(LookupError):
    """A plan names a kind of resource this agent does not have."""


def load(kind: str) -> Resource:
    """The resource for ``kind``; :class:`UnknownKind` when there is none."""
    resource = _loaded.get(kind)
    if resource is None:
        if kind not in KINDS:
            raise UnknownKind("this agent has no resource %r; it has: %s" % (kind, ", ".join(KINDS)))
        import importlib

        found: Resource = importlib.import_module("fleet.agent.resources." + kind).RESOURCE
        resource = _loaded[kind] = found
    return resource


def register(kind: str, resource: Resource) -> None:
    """Put ``resource`` in place of ``kind``: the seam for a test's fake kinds."""
    _loaded[kind] = resource


def unregister(kind: str) -> None:
    """Undo :func:`register`."""
    _loaded.pop(kind, None)
