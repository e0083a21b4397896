"""Bastions that are hosts too are worked on when the hosts behind them are done."""

from __future__ import annotations

from pathlib import Path

from fleet.inventory import load_inventory
from fleet.run.engine import carriers_of, waves

TEXT = """
all:
  vars: {ansible_user: root}
  hosts:
    bastion: {ansible_host: 192.0.2.1}
    gpu01: {ansible_host: 192.0.2.11, fleet_jump: bastion}
    gpu02: {ansible_host: 192.0.2.12, fleet_jump: bastion}
    login: {ansible_host: 192.0.2.2}
"""


def test_a_bastion_comes_last_in_a_wave_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(TEXT)
    hosts = list(load_inventory(tmp_path / "site.yaml").hosts.values())
    settings = {host.name: host.connection() for host in hosts}
    names = [[host.name for host in wave] for wave in waves(hosts, carriers_of(settings))]
    assert names == [["gpu01", "gpu02", "login"], ["bastion"]]
    assert waves([], frozenset()) == []
