"""Throwaway accounts for tests that need other users than the one running them."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def need(*programs: str, root: bool = True) -> None:
    """Skip where this machine cannot do it; in CI that is a failure instead."""
    missing = [name for name in programs if not shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")]
    if root and os.getuid() != 0:
        missing.append("root")
    if missing:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop(f"needs {', '.join(missing)}")


class Account:
    """A user of this machine for the length of one test."""

    def __init__(self, name: str, password: str) -> None:
        self.name = name
        self.password = password


@contextmanager
def account(*, shell: str = "/bin/sh", sudo: str | None = None) -> Iterator[Account]:
    """A new user with a password; ``sudo`` is its line in sudoers after the name, or None."""
    need("useradd", "chpasswd", *(["sudo"] if sudo else []))
    made = Account(f"fleet-t{secrets.token_hex(4)}", secrets.token_urlsafe(12))
    subprocess.run(["useradd", "-M", "-d", "/", "-s", shell, made.name], check=True)
    rule = Path("/etc/sudoers.d") / made.name
    try:
        subprocess.run(["chpasswd"], input=f"{made.name}:{made.password}\n", text=True, check=True)
        if sudo:
            rule.write_text(f"Defaults:{made.name} !requiretty\n{made.name} {sudo}\n")
            rule.chmod(0o440)
        yield made
    finally:
        rule.unlink(missing_ok=True)
        # -f: the connection may be closed only after this, by the test's fixtures.
        subprocess.run(["userdel", "-f", made.name], check=True, capture_output=True)
