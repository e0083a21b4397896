"""Secure Boot is more than on and off: setup mode, a shim that checks nothing, and firmware that hides it."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.facts import secure_boot
from fleet.agent.process import Result
from fleet.agent.resources.base import StepFailed

FIRMWARE = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
CERTIFICATE = b"\x30\x82\x03\x01" + bytes(range(200))
KEY = "/var/lib/dkms/mok.pub"


def variable(host: Any, name: str, value: bytes, vendor: str = FIRMWARE) -> None:
    host.write(f"/sys/firmware/efi/efivars/{name}-{vendor}", b"\x06\0\0\0" + value)


def enforcing(host: Any) -> None:
    variable(host, "SecureBoot", b"\x01")
    variable(host, "SetupMode", b"\0")


def test_enabled(host: Any) -> None:
    enforcing(host)
    part = secure_boot.read(host)
    assert (part["enforcing"], part["detail"]) == (True, "SecureBoot enabled")
    assert part["enrolment_pending"] is False


def test_enabled_in_a_shim_that_checks_nothing(host: Any) -> None:
    enforcing(host)
    variable(host, "MokSBStateRT", b"\x01", SHIM)
    part = secure_boot.read(host)
    assert part["enforcing"] is False
    assert part["detail"] == "SecureBoot enabled; SecureBoot validation is disabled in shim"


def test_disabled(host: Any) -> None:
    variable(host, "SecureBoot", b"\0")
    assert secure_boot.read(host)["detail"] == "SecureBoot disabled"


def test_in_setup_mode_nothing_is_refused(host: Any) -> None:
    variable(host, "SecureBoot", b"\0")
    variable(host, "SetupMode", b"\x01")
    part = secure_boot.read(host)
    assert (part["enforcing"], part["detail"]) == (False, "SecureBoot disabled; Platform is in Setup Mode")


def test_a_machine_that_boots_by_bios_refuses_nothing(host: Any) -> None:
    part = secure_boot.read(host)
    assert (part["enforcing"], part["detail"]) == (False, "boots by BIOS")
    assert part["signing_key_enrolled_reason"] == "not_supported"
    assert part["enrolment_pending"] is False


def test_firmware_whose_variables_cannot_be_read_is_unknown_not_off(host: Any) -> None:
    host.write("/sys/firmware/efi/fw_platform_size", "64\n")
    host.write(KEY, CERTIFICATE)
    part = secure_boot.read(host)
    assert (part["enforcing"], part["enforcing_reason"]) == (None, "not_supported")
    assert part["detail"] == "EFI variables are not supported on this system"
    assert (part["enrolment_pending"], part["enrolment_pending_reason"]) == (None, "not_supported")


def test_firmware_without_secure_boot_refuses_nothing(host: Any) -> None:
    variable(host, "BootOrder", b"\0\0")
    part = secure_boot.read(host)
    assert (part["enforcing"], part["detail"]) == (False, "This system doesn't support Secure Boot")


def test_a_variable_that_may_not_be_read_is_unknown_not_off(host: Any, monkeypatch: Any) -> None:
    def refused(_host: Any, _name: str, _vendor: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    enforcing(host)
    monkeypatch.setattr(secure_boot, "variable", refused)
    part = secure_boot.read(host)
    assert (part["enforcing"], part["enforcing_reason"]) == (None, "permission")


class TestSigningKey:
    def test_it_is_enrolled_when_the_shims_list_holds_the_certificate(self, host: Any) -> None:
        enforcing(host)
        host.write(KEY, CERTIFICATE)
        variable(host, "MokListRT", b"list header" + CERTIFICATE + b"another", SHIM)
        part = secure_boot.read(host)
        assert (part["signing_key"], part["signing_key_enrolled"]) == (KEY, True)

    def test_a_long_list_is_read_where_the_kernel_shows_it(self, host: Any) -> None:
        enforcing(host)
        host.write(KEY, CERTIFICATE)
        host.write("/sys/firmware/efi/mok-variables/MokListRT", b"list header" + CERTIFICATE)
        assert secure_boot.read(host)["signing_key_enrolled"] is True

    def test_it_is_not_enrolled_when_the_list_holds_others(self, host: Any) -> None:
        enforcing(host)
        host.write(KEY, CERTIFICATE)
        variable(host, "MokListRT", b"list header" + b"another", SHIM)
        variable(host, "MokNew", CERTIFICATE, SHIM)
        part = secure_boot.read(host)
        assert (part["signing_key_enrolled"], part["enrolment_pending"]) == (False, True)

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ('mok_certificate="/etc/keys/ours.der"\n', "/etc/keys/ours.der"),
            ("mok_certificate=/etc/keys/ours.der # ours\n", "/etc/keys/ours.der"),
            ("# mok_certificate=/etc/keys/ours.der\n", KEY),
            ("mok_certificate=/lib/modules/$kernelver/cert\n", KEY),
        ],
    )
    def test_it_is_the_configured_one(self, host: Any, settings: str, expected: str) -> None:
        host.write(KEY, CERTIFICATE)
        host.write("/etc/dkms/framework.conf", settings)
        assert secure_boot.signing_key(host) == expected

    def test_ubuntus_comes_first(self, host: Any) -> None:
        host.write(KEY, CERTIFICATE)
        host.write("/var/lib/shim-signed/mok/MOK.der", CERTIFICATE)
        assert secure_boot.signing_key(host) == "/var/lib/shim-signed/mok/MOK.der"

    def test_a_configured_key_that_is_not_made_yet_is_not_enrolled(self, host: Any) -> None:
        enforcing(host)
        host.write("/etc/dkms/framework.conf.d/ours.conf", "mok_certificate=/etc/keys/ours.der\n")
        assert secure_boot.read(host)["signing_key_enrolled"] is False


@pytest.mark.parametrize(
    ("answer", "enrolled", "pending"),
    [
        (KEY + " is already enrolled\n", True, False),
        (KEY + " is not enrolled\n", False, False),
        (KEY + " is already in the enrollment request\n", False, True),
        ("EFI variables are not supported on this system\n", None, False),
    ],
)
def test_a_list_that_is_hidden_is_asked_of_mokutil(
    host: Any, monkeypatch: Any, answer: str, enrolled: bool | None, pending: bool
) -> None:
    enforcing(host)
    host.write(KEY, CERTIFICATE)
    monkeypatch.setattr(host, "run", lambda words, **named: Result(1, answer))
    part = secure_boot.read(host)
    assert (part["signing_key_enrolled"], part["enrolment_pending"]) == (enrolled, pending)


def test_without_mokutil_a_hidden_list_stays_unknown(host: Any, monkeypatch: Any) -> None:
    def run(words: list[str], **_named: object) -> Result:
        raise StepFailed("the command mokutil was not found")

    enforcing(host)
    host.write(KEY, CERTIFICATE)
    monkeypatch.setattr(host, "run", run)
    part = secure_boot.read(host)
    assert (part["signing_key_enrolled"], part["signing_key_enrolled_reason"]) == (None, "not_supported")
    assert part["enforcing"] is True
