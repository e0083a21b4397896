"""The running kernel, and the one the next boot will start: a driver must have modules for both."""

from __future__ import annotations

import os
import re
from functools import cmp_to_key

from fleet.agent.facts import read_text, text_or_empty
from fleet.agent.package_manager.dpkg_version import compare

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host


KEYS = ("kernel",)


def installed_kernels(boot_files: List[str]) -> List[str]:
    """The releases of the kernels in /boot, newest first; rescue images are not kernels to boot."""
    releases = [name[len("vmlinuz-") :] for name in boot_files if name.startswith("vmlinuz-")]
    releases = [
        release for release in releases if release[:1].isdigit() and not release.startswith("0-rescue")
    ]
    releases = [release for release in releases if not release.endswith((".old", ".dpkg-new", ".bak"))]
    return sorted(releases, key=cmp_to_key(_compare), reverse=True)


def _compare(left: str, right: str) -> int:
    # Kernel releases may hold characters that are not Debian's; what is left orders the same way.
    return compare(re.sub(r"[^A-Za-z0-9.+~-]", ".", left), re.sub(r"[^A-Za-z0-9.+~-]", ".", right))


def next_release(
    kernels: List[str], grub_default: Optional[str], saved_entry: Optional[str]
) -> Optional[str]:
    """The release that grub starts next, or None when its settings name something else.

    ``kernels``: newest first. ``grub_default``: GRUB_DEFAULT, or None. ``saved_entry``: of grubenv.
    """
    if not kernels:
        return None
    choice = (grub_default or "0").strip("\"'")
    if choice == "saved":
        choice = saved_entry or "0"
    if choice == "0":
        return kernels[0]
    named = [
        release for release in kernels if re.search(r"(?<![\w.])%s(?![\w.])" % re.escape(release), choice)
    ]
    return max(named, key=len) if named else None


def setting(text: str, name: str) -> Optional[str]:
    """The last ``name=value`` of a shell-like file; None when it is not set."""
    values = re.findall(r"^\s*%s=(.*?)\s*$" % re.escape(name), text, re.MULTILINE)
    return values[-1] if values else None


def collect(host: Host) -> Dict[str, Any]:
    """The ``kernel`` part."""
    try:
        kernels = installed_kernels(os.listdir(host.path("/boot")))
    except OSError:
        kernels = []
    grub_default = setting(text_or_empty(host, "/etc/default/grub"), "GRUB_DEFAULT")
    environment = text_or_empty(host, "/boot/grub2/grubenv") or text_or_empty(host, "/boot/grub/grubenv")
    saved = setting(environment, "next_entry") or setting(environment, "saved_entry")
    if setting(environment, "next_entry"):
        grub_default = "saved"
    part: Dict[str, Any] = {
        "release": read_text(host, "/proc/sys/kernel/osrelease"),
        "next_release": next_release(kernels, grub_default, saved),
        "architecture": os.uname().machine,
        "command_line": read_text(host, "/proc/cmdline"),
    }
    if part["next_release"] is None:
        part["next_release_reason"] = "not_supported"
    return {"kernel": part}
