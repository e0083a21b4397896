"""The script that installs Python says how the distribution's command ended."""

from __future__ import annotations

import subprocess

import pytest

from fleet.transport.stage import INSTALL


@pytest.mark.parametrize(("command", "status"), [("true", "0"), ("false", "1")])
def test_the_exit_code_is_the_command_s_own(command: str, status: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", INSTALL, "fleet", "abc", command], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["FLEET-INSTALLED-abc", status]
