"""Two inventory names for one machine are refused; clones of one image are not."""

from __future__ import annotations

import pytest

from fleet.core.errors import HostBlocked
from fleet.run.identity import MachineRegistry


def hello(machine_id: str, boot_id: str | None, keys: list[str]) -> dict[str, object]:
    return {"machine_id": machine_id, "boot_id": boot_id, "host_key_fingerprints": keys}


def test_the_second_name_of_a_machine_is_refused_naming_both() -> None:
    machines = MachineRegistry()
    machines.claim("gpu01", hello("m1", "b1", ["k1"]))
    with pytest.raises(HostBlocked, match=r"gpu09 and gpu01 are one machine"):
        machines.claim("gpu09", hello("m1", "b1", ["k1"]))


def test_clones_with_one_machine_id_are_two_machines() -> None:
    machines = MachineRegistry()
    machines.claim("gpu01", hello("m1", "b1", ["k1"]))
    machines.claim("gpu02", hello("m1", "b2", ["k2"]))


def test_an_unreadable_boot_id_proves_nothing() -> None:
    machines = MachineRegistry()
    machines.claim("gpu01", hello("m1", None, ["k1"]))
    machines.claim("gpu02", hello("m2", None, ["k2"]))


def test_a_host_may_come_back_under_its_own_name() -> None:
    machines = MachineRegistry()
    machines.claim("gpu01", hello("m1", "b1", ["k1"]))
    machines.claim("gpu01", hello("m1", "b2", ["k1"]))
