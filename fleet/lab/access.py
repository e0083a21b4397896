"""How fleet reaches a lab host: the inventory variables, for inventories that tests write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fleet.lab import registry
from fleet.lab.definition import BASTION_OCTET, HostDefinition
from fleet.lab.lab import Lab


class _FromFile(str):
    """A path that is written as ``!secret file PATH``."""


class _Dumper(yaml.SafeDumper):
    """Safe YAML, and the tag for secrets."""


_Dumper.add_representer(
    _FromFile, lambda dumper, path: dumper.represent_scalar("!secret", f"file {path}", style="")
)


def connection_variables(lab: Lab, host: HostDefinition) -> dict[str, Any]:
    """``ansible_host``, key, known_hosts, way and sudo of ``host``; paths are absolute."""
    folder = lab.state.directory
    variables: dict[str, Any] = {
        "ansible_host": host.address,
        "ansible_user": host.user,
        "ansible_ssh_private_key_file": str(folder / "id_ed25519"),
        "fleet_known_hosts": str(folder / "known_hosts"),
    }
    if host.behind_bastion:
        bastion = lab.definition.outer[BASTION_OCTET]
        variables["ansible_ssh_common_args"] = f"-o ProxyJump=root@{bastion}"
    if host.login in ("sudo_password", "sudo_nopasswd"):
        variables["ansible_become"] = True
    if host.login == "sudo_password":
        variables["ansible_become_password"] = _FromFile(folder / f"{host.name}.sudo_password")
    return variables


def registry_variables(lab: Lab) -> dict[str, Any]:
    """Address, login and authority of the lab's registry, and the pinned image in it."""
    folder = lab.state.directory
    images = yaml.safe_load((folder / "variables.yaml").read_text())
    return {
        "registry": registry.reference("").rstrip("/"),
        "registry_username": registry.USER,
        "registry_password": _FromFile(folder / registry.PASSWORD_FILE),
        "registry_ca_file": str(folder / "ca.crt"),
        "image": images["lab_pytorch_image"],
        "image_digest": images["lab_pytorch_digest"],
    }


def write_inventory(
    path: Path,
    lab: Lab,
    hosts: list[HostDefinition],
    *,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Path:
    """An inventory of ``hosts`` in the group ``gpu``, with ``more`` variables for all of them.

    ``groups``: further groups by name, each as the format has it (``hosts``, ``vars``).
    """
    document = {
        "all": {
            "vars": {**(registry_variables(lab) if lab.definition.registry else {}), **more},
            "children": {
                "gpu": {"hosts": {host.name: connection_variables(lab, host) for host in hosts}},
                **(groups or {}),
            },
        }
    }
    path.write_text(yaml.dump(document, Dumper=_Dumper, sort_keys=False))
    return path
