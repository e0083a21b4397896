"""dnf: the same interface for Enterprise Linux. Small: exact versions, holds by the versionlock plugin.

States come from ``rpm -q``; a transaction is simulated with ``dnf --assumeno`` and its table is read.
A version is ``VERSION-RELEASE`` (with ``EPOCH:`` when it is not 0).
"""

from __future__ import annotations

import re

from fleet.agent.package_manager import PackageManager, Request, Transaction
from fleet.agent.resources.base import StepCancelled, StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Collection, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.process import Result
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Reporter


FORMAT = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\n"
VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"
UPGRADE, DOWNGRADE = "<", ">"  # stand for the installed version until rpm tells it
COMMIT_DEADLINE_S = 7200.0

_INSTALLING = ("Installing:", "Installing dependencies:", "Installing weak dependencies:", "Reinstalling:")
_REMOVING = ("Removing:", "Removing dependent packages:", "Removing unused dependencies:")


def read(host: Host, names: List[str]) -> Dict[str, Json]:
    """name -> {"version", "state": installed | absent, "held"}; one ``rpm -q`` for all."""
    installed = rpm_versions(host, ["-q", *names])
    held = held_names(host)
    return {
        name: {
            "version": installed.get(name),
            "state": "installed" if name in installed else "absent",
            "held": name in held,
        }
        for name in names
    }


def watched(host: Host, names: Collection[str], prefixes: Tuple[str, ...]) -> Dict[str, str]:
    """name -> version of those installed, from one ``rpm -qa``."""
    every = rpm_versions(host, ["-qa"])
    return {name: every[name] for name in sorted(every) if name in names or name.startswith(prefixes)}


def rpm_versions(host: Host, words: List[str]) -> Dict[str, str]:
    result = host.run(["rpm", *words, "--qf", FORMAT], deadline_s=30.0)
    return parse_rpm(result.stdout)


def parse_rpm(text: str) -> Dict[str, str]:
    """Lines of :data:`FORMAT`; others ("package x is not installed") are passed over."""
    versions: Dict[str, str] = {}
    for line in text.splitlines():
        columns = line.split("\t")
        if len(columns) == 3:
            versions[columns[0]] = columns[2] if columns[1] in ("0", "") else columns[1] + ":" + columns[2]
    return versions


def held_names(host: Host) -> List[str]:
    """The names in the versionlock plugin's list (lines ``NAME-EPOCH:VERSION-RELEASE.ARCH``)."""
    try:
        with open(host.path(VERSIONLOCK), encoding="utf-8", errors="replace") as stream:
            lines = [line.strip() for line in stream]
    except OSError:
        return []
    found = [re.match(r"(.+?)-\d+:", line) for line in lines if line and not line.startswith(("#", "!"))]
    return [match.group(1) for match in found if match is not None]


def parse_transaction(text: str) -> Transaction:
    """The table that ``dnf --assumeno`` prints, section by section; of a changed package the version now is
    :data:`UPGRADE` or :data:`DOWNGRADE`."""
    installs: List[Tuple[str, Optional[str], str]] = []
    removes: List[Tuple[str, Optional[str]]] = []
    section = ""
    for line in text.splitlines():
        if line.startswith("Transaction Summary"):
            break
        if line and not line.startswith(" ") and line.endswith(":"):
            section = line
            continue
        columns = line.split()
        if not line.startswith(" ") or len(columns) < 4 or not section or columns[0] == "replacing":
            continue
        name, version = columns[0], columns[2]
        if section in _REMOVING:
            removes.append((name, version))
        elif section in ("Upgrading:", "Downgrading:"):
            # The table does not say what is there now.
            installs.append((name, UPGRADE if section == "Upgrading:" else DOWNGRADE, version))
        elif section in _INSTALLING:
            installs.append((name, None, version))
    return Transaction(installs, removes)


class Dnf(PackageManager):
    """dnf of one host."""

    name = "dnf"
    upgrade_command = "dnf upgrade"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._orders: Dict[Tuple[str, str], int] = {}

    def compare(self, left: str, right: str) -> int:
        """How the versions of the last simulation sort: dnf itself said which of them are downgrades."""
        return self._orders.get((left, right), 0)

    def wait_for_lock(self, limit_s: float, report: Reporter) -> None:
        """dnf waits for its own lock, without a limit; the command's deadline is the limit."""

    def repair(self, request: Request, report: Reporter) -> None:
        """rpm transactions need no configure step afterwards."""

    def ensure_known(self, request: Request, report: Reporter) -> None:
        """dnf refreshes expired metadata by itself, and the simulation names what it does not know."""

    def refresh_all(self, report: Reporter) -> None:
        self._host.run(["dnf", "--refresh", "makecache"], deadline_s=600.0, on_output=report.output)

    def lists_outdated(self, failure: StepFailed) -> bool:
        return "Status code: 404" in "%s%s" % (failure.stdout or "", failure.stderr or "")

    def command(self, request: Request) -> List[str]:
        """The words after ``dnf``: the same for simulation and for the real thing."""
        options = ["--setopt=install_weak_deps=%s" % request.install_recommends]
        if request.change_held:
            options.append("--disableplugin=versionlock")
        if request.remove:
            return [*options, "--noautoremove", "remove", *request.wanted]
        names = [
            name if version is None else "%s-%s" % (name, version) for name, version in request.wanted.items()
        ]
        return [*options, "install", *names]

    def simulate(self, request: Request) -> Transaction:
        result = self._host.run(["dnf", "--assumeno", *self.command(request)], deadline_s=600.0)
        # --assumeno ends with 1 ("Operation aborted") when there is something to do.
        if not result.ok and "Operation aborted" not in result.stdout + result.stderr:
            self._fail(result, "the package manager cannot do this")
        return self._with_versions(parse_transaction(result.stdout))

    def _with_versions(self, parsed: Transaction) -> Transaction:
        """``parsed`` with the installed versions, which dnf's table does not tell, from rpm."""
        changed = [name for name, before, _ in parsed.installs if before is not None]
        installed = rpm_versions(self._host, ["-q", *changed]) if changed else {}
        installs: List[Tuple[str, Optional[str], str]] = []
        for name, before, after in parsed.installs:
            if before is not None:
                now = installed.get(name, "the installed version")
                self._orders[(now, after)] = -1 if before == UPGRADE else 1
                before = now
            installs.append((name, before, after))
        return Transaction(installs, parsed.removes)

    def commit(self, request: Request, transaction: Transaction, report: Reporter) -> Optional[Result]:
        result = self._host.run(
            ["dnf", "-y", *self.command(request)],
            deadline_s=COMMIT_DEADLINE_S,
            on_output=report.output,
            interrupt="sigint_leader",
        )
        if not result.ok:
            self._fail(result, "removing packages failed" if request.remove else "installing packages failed")
        return result

    def _fail(self, result: Result, doing: str) -> None:
        if result.cancelled:
            raise StepCancelled("%s: cancelled" % doing, None, result)
        lines = (result.stdout + "\n" + result.stderr).splitlines()
        errors = [line for line in lines if line.startswith(("Error:", "No match for", " Problem"))]
        raise StepFailed(
            "%s: %s" % (doing, "; ".join(line.strip() for line in errors[:3]) or result.ending()),
            "read dnf's output; check names, versions and repositories (dnf repolist)",
            result,
        )

    def hold(self, names: List[str], held: bool) -> None:
        verb = "add" if held else "delete"
        result = self._host.run(["dnf", "versionlock", verb, *names], deadline_s=120.0)
        if not result.ok:
            raise StepFailed(
                "cannot %s the version lock of %s: %s" % (verb, ", ".join(names), result.stderr.strip()),
                "dnf install python3-dnf-plugin-versionlock",
                result,
            )
