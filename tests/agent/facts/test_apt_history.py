"""apt's log names the command behind the last change of driver libraries."""

from __future__ import annotations

import gzip
from typing import Any

from fleet.agent.facts import apt_history

CHANGES = [
    "curl:amd64 (7.88, 7.89)",
    "libnvidia-compute-570:amd64 (570.158.01-1, 570.211.01-1)",
    "nvidia-utils-570:amd64 (570.158.01-1, 570.211.01-1)",
]
UPGRADE = f"""\

Start-Date: 2026-03-24  06:50:54
Commandline: /usr/bin/unattended-upgrade
Upgrade: {", ".join(CHANGES)}
End-Date: 2026-03-24  06:51:20
"""
OTHERS = """\

Start-Date: 2026-03-25  09:00:00
Commandline: apt-get install libnvidia-container-tools
Requested-By: anna (1000)
Install: libnvidia-container-tools:amd64 (1.18.2-1), libnvidia-container1:amd64 (1.18.2-1, automatic)
End-Date: 2026-03-25  09:00:02

Start-Date: 2026-03-26  09:00:00
Commandline: apt-get install nvidia-settings
Install: nvidia-settings:amd64 (570.211.01-1)
End-Date: 2026-03-26  09:00:02
"""


def test_the_last_transaction_that_changed_the_libraries(host: Any) -> None:
    host.write(apt_history.CURRENT, UPGRADE + OTHERS)
    assert apt_history.driver_changed_by(host) == {
        "command": "/usr/bin/unattended-upgrade",
        "at": "2026-03-24T06:50:54",
        "packages": [
            {
                "name": "libnvidia-compute-570",
                "before": "570.158.01-1",
                "after": "570.211.01-1",
            },
            {"name": "nvidia-utils-570", "before": "570.158.01-1", "after": "570.211.01-1"},
        ],
    }


def test_a_log_that_was_rotated_away_is_read_too(host: Any) -> None:
    host.write(apt_history.CURRENT, OTHERS)
    host.write(apt_history.ROTATED, gzip.compress(UPGRADE.encode()))
    changed = apt_history.driver_changed_by(host)
    assert changed is not None
    assert changed["command"] == "/usr/bin/unattended-upgrade"


def test_a_damaged_rotated_log_says_nothing(host: Any) -> None:
    host.write(apt_history.ROTATED, gzip.compress(UPGRADE.encode())[:40])
    assert apt_history.driver_changed_by(host) is None


def test_installed_and_removed_packages_have_one_version() -> None:
    text = (
        "Start-Date: 2026-03-24  06:50:54\n"
        "Commandline: apt-get install nvidia-open-580\n"
        "Install: libnvidia-ml1:amd64 (580.159.03-1, automatic)\n"
        "Downgrade: libcuda1:amd64 (590.48.01-1, 580.159.03-1)\n"
        "Remove: nvidia-open-590:amd64 (590.48.01-1)\n"
    )
    changed = apt_history.last_change(text)
    assert changed is not None
    assert changed["packages"] == [
        {"name": "libcuda1", "before": "590.48.01-1", "after": "580.159.03-1"},
        {"name": "libnvidia-ml1", "before": None, "after": "580.159.03-1"},
        {"name": "nvidia-open-590", "before": "590.48.01-1", "after": None},
    ]


def test_a_transaction_without_a_command_line() -> None:
    changed = apt_history.last_change(UPGRADE.replace("Commandline: /usr/bin/unattended-upgrade\n", ""))
    assert changed is not None
    assert changed["command"] is None
