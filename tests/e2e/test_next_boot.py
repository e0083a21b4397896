"""A host whose next kernel came without headers keeps running: fleet does not send it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.lab import Lab
from tests.conftest import LabFactory
from tests.e2e.harness import Fleet, playbook

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NEWER = "99.0.0-1-amd64"
_LAB = """\
all:
  vars: {lab_subnet: 172.28.67.0/25, lab_inner_subnet: 172.28.67.128/25}
  hosts:
    card:
      ansible_host: 172.28.67.11
      lab_release: bookworm
      lab_gpus: {model: t4}
      lab_driver: "550.163.01"
"""


@pytest.fixture(scope="module")
def with_a_driver(own_lab: LabFactory) -> Lab:
    """A host with a card and a driver that serves it."""
    return own_lab("next-boot", _LAB)


def boot_id(lab: Lab) -> str:
    return faults.shell(lab, "card", "cat /proc/sys/kernel/random/boot_id").strip()


def test_the_reboot_is_refused_before_it_is_sent(with_a_driver: Lab, fleet: Fleet, tmp_path: Path) -> None:
    lab = with_a_driver
    inventory = write_inventory(tmp_path / "site.yaml", lab, list(lab.definition.hosts))
    book = playbook(tmp_path, [{"reboot": {}}])
    faults.shell(lab, "card", f"touch /boot/vmlinuz-{NEWER}; mkdir -p /lib/modules/{NEWER}")
    before = boot_id(lab)
    refused = fleet("run", str(inventory), str(book), "--disrupt")
    assert refused.code == 1, refused.said
    assert f"module_missing_for_kernel {NEWER}: the reboot was not sent" in " ".join(refused.said.split())
    assert f"apt-get install linux-headers-{NEWER}" in refused.said
    assert boot_id(lab) == before
    faults.shell(lab, "card", f"rm /boot/vmlinuz-{NEWER}")
    sent = fleet("run", str(inventory), str(book), "--disrupt")
    assert sent.code == 0, sent.said
    assert boot_id(lab) != before
