"""Addresses of PCI devices have one spelling, whoever printed them."""

from __future__ import annotations

import re

import pytest

from fleet.agent.pci_address import IN_SYSFS, address_or_none, normalised_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),  # nvidia-smi
        ("00008ED0:00:00.0", "8ed0:00:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("0000:3b:00.1", "0000:3b:00.1"),
        ("1B:00.0", "0000:1b:00.0"),  # lspci
        ("0001:C3:00.0 ", "0001:c3:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000:3b:00", "0000:3b:00.0"),  # the kernel's log
    ],
)
def test_addresses_have_one_spelling(text: str, address: str) -> None:
    assert normalised_address(text) == address
    assert re.fullmatch(IN_SYSFS, address)


@pytest.mark.parametrize("text", ["", "N/A", "0000", "a:b:c:d.0", "0000:xx:00.0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        normalised_address(text)
    assert address_or_none(text) is None
