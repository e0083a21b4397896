"""Runs inside a lab host: real apt, real dpkg. Prints one JSON object of what was seen.

Argument: the folder that holds the ``fleet`` package. Started by test_lab_apt.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

sys.path.insert(0, sys.argv[1])

from fleet.agent import facts, queries
from fleet.agent.host import Host
from fleet.agent.resources import load
from fleet.agent.resources.base import Silent, StepFailed

PACKAGE = load("package")


class Canceller(Silent):
    """Cancels as soon as the first package is being unpacked."""

    def __init__(self) -> None:
        self.now = False

    def progress(self, text: str) -> None:
        self.now = self.now or text.startswith("unpacking")


def step(**args):
    """(differences before, differences after or what failed)."""
    host = Host()
    before = PACKAGE.diff(PACKAGE.read(host, args), args)
    try:
        if before:
            PACKAGE.apply(host, args, before, Silent())
    except StepFailed as failure:
        return len(before), failure.what
    return len(before), PACKAGE.diff(PACKAGE.read(host, args), args)


def witness(name):
    """What dpkg itself says of a package."""
    words = ["dpkg-query", "-W", "-f", "${db:Status-Want} ${db:Status-Status}", name]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def locked():
    """A step while another process holds the dpkg lock."""
    descriptor = os.open("/var/lib/dpkg/lock-frontend", os.O_RDWR)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        return child, step(names=[{"name": "bc"}], state="present", lock_timeout_s=0.1)[1]
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)


def cancelled():
    """A step that is cancelled in the middle, then done again."""
    report = Canceller()
    host = Host(cancelled=lambda: report.now)
    args = {"names": [{"name": "tree"}, {"name": "bc"}], "state": "present"}
    try:
        PACKAGE.apply(host, args, PACKAGE.diff(PACKAGE.read(host, args), args), report)
    except StepFailed as failure:
        words = failure.what
    else:
        words = ""
    audit = subprocess.run(["dpkg", "--audit"], capture_output=True, text=True, check=False).stdout
    return words, audit, step(**args)[1]


def main():
    seen = {"install": step(names=[{"name": "tree"}], state="present", hold=True)}
    seen["again"] = step(names=[{"name": "tree"}], state="present", hold=True)
    seen["dpkg_after_install"] = witness("tree")
    seen["no_such_version"] = step(names=[{"name": "tree", "version": "99"}], state="present")
    seen["free"] = step(names=[{"name": "tree"}], state="present", hold=False)
    seen["remove"] = step(names=[{"name": "tree"}], state="absent")
    seen["dpkg_after_remove"] = witness("tree")
    seen["locked"] = locked()
    seen["cancelled"] = cancelled()
    seen["clean"] = step(names=[{"name": "tree"}, {"name": "bc"}], state="absent")
    before = sorted(os.listdir("/var/lib/apt/lists"))
    query = {"id": "v", "kind": "package_versions", "names": ["tree"], "repositories": []}
    seen["versions"] = queries.answer(Host(), [query])["v"]
    seen["lists_unchanged"] = before == sorted(os.listdir("/var/lib/apt/lists"))
    seen["facts"] = facts.collect(Host())
    sys.stdout.write(json.dumps(seen))


main()
