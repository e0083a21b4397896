"""Whether this machine refuses kernel modules that nobody it trusts has signed, and whose signature DKMS has.

Read from the firmware's variables (efivars: four bytes of attributes, then the value), which is what
mokutil prints. That Secure Boot is on is not the whole answer: in setup mode, or with the shim's validation
off, nothing is refused. Sources: the UEFI specification, shim's README.
"""

from __future__ import annotations

import os
import re

from fleet.agent.facts import links, read_text, reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


EFI = "/sys/firmware/efi"
VARIABLES = EFI + "/efivars"
_FIRMWARE = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
_DATABASE = "d719b2cb-3d3a-4596-a3bc-dad00e67656f"

# Where DKMS, Ubuntu's first, keeps the certificate of the key that it signs modules with.
SIGNING_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
DKMS_SETTINGS = "/etc/dkms/framework.conf"


BIOS = "boots by BIOS"
UNREADABLE = "EFI variables are not supported on this system"


def read(host: Host) -> Json:
    """The ``secure_boot`` part."""
    try:
        part = _enforcing(host)
    except OSError as error:
        part = {"enforcing": None, "enforcing_reason": reason_of(error), "detail": str(error)}
    part["signing_key"] = key = signing_key(host)
    part["signing_key_enrolled"] = None
    if key is None or part["detail"] == BIOS:
        part["signing_key_enrolled_reason"] = "not_supported"
    else:
        _enrolled(host, key, part)
    if os.path.isdir(host.path(EFI)) and not links.names_in(host, VARIABLES):
        part.update({"enrolment_pending": None, "enrolment_pending_reason": "not_supported"})
    elif part.get("enrolment_pending") is None:
        path = "%s/MokNew-%s" % (VARIABLES, _SHIM)
        part["enrolment_pending"] = os.path.exists(host.path(path))
    return part


def _enforcing(host: Host) -> Json:
    """{"enforcing", "detail"}, the detail in mokutil's words. Raises OSError."""
    if not os.path.isdir(host.path(EFI)):
        return {"enforcing": False, "detail": BIOS}
    if not links.names_in(host, VARIABLES):  # a real-time kernel, or efivarfs is not mounted
        return {"enforcing": None, "enforcing_reason": "not_supported", "detail": UNREADABLE}
    state = variable(host, "SecureBoot", _FIRMWARE)
    if state is None:
        return {"enforcing": False, "detail": "This system doesn't support Secure Boot"}
    if state != b"\x01":
        setup = variable(host, "SetupMode", _FIRMWARE) == b"\x01"
        return {
            "enforcing": False,
            "detail": "SecureBoot disabled" + ("; Platform is in Setup Mode" if setup else ""),
        }
    if variable(host, "MokSBStateRT", _SHIM) == b"\x01":
        return {
            "enforcing": False,
            "detail": "SecureBoot enabled; SecureBoot validation is disabled in shim",
        }
    return {"enforcing": True, "detail": "SecureBoot enabled"}


def variable(host: Host, name: str, vendor: str) -> Optional[bytes]:
    """The value of one of the firmware's variables; None when it is not set. Raises OSError."""
    try:
        with open(host.path("%s/%s-%s" % (VARIABLES, name, vendor)), "rb") as stream:
            return stream.read()[4:]
    except FileNotFoundError:
        return None


def signing_key(host: Host) -> Optional[str]:
    """The path of the certificate that DKMS signs with: the configured one, else a usual one that exists."""
    for path in (DKMS_SETTINGS, *_drop_ins(host)):
        try:
            settings = read_text(host, path)
        except OSError:
            continue
        match = re.search(r"^\s*mok_certificate=[\"']?([^\"'\s#]+)", settings, re.MULTILINE)
        if match is not None and "$" not in match.group(1):
            return match.group(1)
    return next((path for path in SIGNING_KEYS if os.path.exists(host.path(path))), None)


def _drop_ins(host: Host) -> "list[str]":
    return ["%s.d/%s" % (DKMS_SETTINGS, name) for name in links.names_in(host, DKMS_SETTINGS + ".d")]


def _enrolled(host: Host, key: str, part: Json) -> None:
    """Fill ``signing_key_enrolled``: a list of trusted certificates holds the certificate as it is."""
    try:
        with open(host.path(key), "rb") as stream:
            certificate = stream.read(1 << 16)
    except OSError:
        part["signing_key_enrolled"] = False  # DKMS makes the key at its first build
        return
    lists = [_list(host, "MokListRT", _SHIM), _list(host, "db", _DATABASE), _list_of_shim(host)]
    if certificate and any(certificate in found for found in lists if found is not None):
        part["signing_key_enrolled"] = True
    elif lists[0] is not None or lists[2] is not None or not part["enforcing"]:
        part["signing_key_enrolled"] = False
    else:
        _ask_mokutil(host, key, part)


def _list(host: Host, name: str, vendor: str) -> Optional[bytes]:
    try:
        return variable(host, name, vendor)
    except OSError:
        return None  # as good as hidden


def _list_of_shim(host: Host) -> Optional[bytes]:
    """Where the kernel shows the shim's list when it is too long for one variable."""
    try:
        with open(host.path(EFI + "/mok-variables/MokListRT"), "rb") as stream:
            return stream.read()
    except OSError:
        return None


def parse_test_key(text: str) -> Json:
    """{"signing_key_enrolled", and "enrolment_pending" where it says so} of ``mokutil --test-key``."""
    if "already enrolled" in text:
        return {"signing_key_enrolled": True}
    if "enrollment request" in text:
        return {"signing_key_enrolled": False, "enrolment_pending": True}
    if "is not enrolled" in text:
        return {"signing_key_enrolled": False}
    return {"signing_key_enrolled": None, "signing_key_enrolled_reason": "error"}


def _ask_mokutil(host: Host, key: str, part: Json) -> None:
    """Without the shim's list, on a machine that enforces: the one case that takes a process."""
    from fleet.agent.resources.base import StepFailed

    try:
        result = host.run(["mokutil", "--test-key", key], deadline_s=10.0)
    except StepFailed:
        part["signing_key_enrolled_reason"] = "not_supported"  # no mokutil here
        return
    part.update(parse_test_key(result.stdout + result.stderr))
