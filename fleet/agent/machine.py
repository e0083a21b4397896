"""What the agent asks of the machine itself: who it is, going down, and starting a worker beside us.

An object, so that a test's machine has its own boot id, and reboots without taking the tests along.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SYSTEMD = "/run/systemd/system"


def valid_boot_id(text: str) -> bool:
    """Whether this is a boot id (a UUID) and not what a failed read left behind."""
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and set("".join(parts)) <= set(
        "0123456789abcdef"
    )


class Machine:
    """The real one."""

    def boot_id(self) -> str:
        """The id of this boot; "" where it cannot be read."""
        try:
            with open(BOOT_ID, encoding="ascii", errors="replace") as stream:
                return stream.read(64).strip()
        except OSError:
            return ""

    def systemd(self) -> bool:
        """Whether process 1 is systemd."""
        return os.path.isdir(SYSTEMD)

    def worker_command(self) -> list[str]:
        """What starts a worker, up to its options; run in the folder that holds the ``fleet`` package."""
        return [sys.executable or "/usr/bin/python3", "-S", "-E", "-m", "fleet.agent", "worker"]

    def reboot(self) -> Optional[str]:
        """Ask for a reboot; None when it is under way, else what was said against it."""
        import subprocess

        command = ["systemctl", "reboot"] if self.systemd() else ["reboot"]
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "%s did not return within 60 s" % " ".join(command)
        except OSError as error:
            return "%s: %s" % (" ".join(command), error)
        if process.returncode == 0:
            return None
        said = process.stdout[-500:].decode("utf-8", "replace").strip()
        return "%s: exit code %d: %s" % (" ".join(command), process.returncode, said)
