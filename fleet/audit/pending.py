"""What the next reboot changes about the GPUs by itself: modes that were set on a host and wait for it.

ECC and MIG decide how much memory a GPU has and how fast it is; figures from before and after do not compare.
fleet sets neither and takes neither back: whoever reboots a host is told beforehand.
"""

from __future__ import annotations

from fleet.audit.facts import Facts, fact

_MODES = (("ECC", "ecc_mode", "ecc_mode_pending"), ("MIG", "mig.mode", "mig.mode_pending"))


def changes_by_reboot(facts: Facts) -> list[str]:
    """``ECC of GPU 0000:1b:00.0 from enabled to disabled``, by address; empty where none waits or nobody knows."""
    found = []
    for device in fact(facts, "gpu_probe.devices") or []:
        for name, current, pending in _MODES:
            now, then = fact(device, current), fact(device, pending)
            if now is not None and then is not None and now != then:
                found.append(f"{name} of GPU {device['address']} from {now} to {then}")
    return found


def reboot_words(facts: Facts) -> str | None:
    """One sentence for a plan that reboots this host; None where a reboot changes no mode."""
    changes = changes_by_reboot(facts)
    return f"a reboot of this host also turns {'; '.join(changes)}" if changes else None
