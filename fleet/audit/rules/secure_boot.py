"""Would the kernel take the driver's modules?

With Secure Boot enforced it loads signed modules only, and DKMS signs with a key of the host's own. Its public
part must be enrolled by a person at the console: no SSH tool can answer that screen. Only asked where a driver is
to be built; one that is loaded was taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.driver import to_be_changed
from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import has_gpus
from fleet.audit.rule import Rule, Sample, Wanted, rule

_SOURCE = (
    "the kernel loads signed modules only while Secure Boot is enforced; DKMS signs with this host's own key"
)
_AT_THE_CONSOLE = "set a password, reboot, and at the console choose Enroll MOK and type it"
_NEW_KEY = (
    "install -d -m 0700 /var/lib/dkms && openssl req -new -x509 -newkey rsa:2048 -nodes -days 36500"
    " -subj '/CN=DKMS module signing key/' -keyout /var/lib/dkms/mok.key -outform DER -out /var/lib/dkms/mok.pub"
)
_UNLOADED = "; with Secure Boot on the driver would not load"
_MOUNT = (
    "mount -t efivarfs efivarfs /sys/firmware/efi/efivars; where it stays unknown, and you know that Secure Boot"
    " is off: preflight_skip: [preflight.secure_boot_key]"
)
_UBUNTU_KEY = "/var/lib/shim-signed/mok/MOK.der"


@rule(
    "preflight.secure_boot_key",
    known_bad=Sample(
        {"secure_boot.enforcing": True, "driver.loaded": None}, {"driver": {"source": "nvidia"}}, gpu=True
    ),
)
def key(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where Secure Boot is enforced, the key that signs the driver's modules is enrolled. Reads ``driver``.

    Fails closed: where a driver is to be built, it must be known whether Secure Boot is enforced.
    """
    state = fact(facts, "secure_boot") or {}
    if to_be_changed(facts, wanted) is None:
        if has_gpus(facts) and state.get("enrolment_pending"):
            yield _pending(self, Severity.WARNING)
        return
    enforcing, enrolled = state.get("enforcing"), state.get("signing_key_enrolled")
    if enforcing is False or (enforcing and enrolled):
        return
    if state.get("enrolment_pending"):
        yield _pending(self, Severity.ERROR)
    elif enforcing is None:
        yield self.unknown(facts, "secure_boot.enforcing", consequence=_UNLOADED, remedy=_MOUNT)
    elif state.get("signing_key") is None:
        yield _not_enrolled(self, "there is no key to sign the driver's modules with", _make_key(facts))
    elif enrolled is None:
        test = f"apt-get install mokutil && mokutil --test-key {state['signing_key']}"
        yield self.unknown(facts, "secure_boot.signing_key_enrolled", consequence=_UNLOADED, remedy=test)
    else:
        import_key = f"mokutil --import {state['signing_key']}"
        yield _not_enrolled(self, "the key that signs the driver's modules is not enrolled", import_key)


def _not_enrolled(self: Rule, why: str, command: str) -> Finding:
    return self.finding(
        f"Secure Boot is on and {why}: they would not load",
        observed="not enrolled",
        limit="enrolled",
        source=_SOURCE,
        remedy=f"{command}; {_AT_THE_CONSOLE}",
    )


def _pending(self: Rule, severity: Severity) -> Finding:
    return self.finding(
        "the key that signs the driver's modules waits to be enrolled: needs console on next boot",
        observed="pending",
        limit="enrolled",
        source=_SOURCE,
        remedy="systemctl reboot, with somebody at the console to choose Enroll MOK;"
        " or take the request back: mokutil --revoke-import",
        severity=severity,
    )


def _make_key(facts: Facts) -> str:
    """The commands that make this host's key and ask for its enrolment, as its distribution does it."""
    if "ubuntu" in (fact(facts, "os.id"), *(fact(facts, "os.like") or [])):
        return f"update-secureboot-policy --new-key && mokutil --import {_UBUNTU_KEY}"
    return f"{_NEW_KEY} && mokutil --import /var/lib/dkms/mok.pub"
