"""Package managers behind one small interface: what is wanted, what a transaction would do, doing it.

:class:`PackageManager` is the interface, ``apt`` and ``dnf`` fill it. The ``package`` resource
(:mod:`fleet.agent.resources.package`) is the only caller; reading states does not come through here for
apt (that is :mod:`fleet.agent.facts.packages`), so a no-op run imports none of this.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.process import Result
    from fleet.agent.resources.base import Reporter, StepFailed


class Request:
    """A transaction asked for. ``wanted``: name -> exact version, or None for "any".

    ``also_allowed``: names or patterns (``libnvidia-*``) that the transaction may change besides ``wanted``
    and new dependencies. ``change_held``: held packages may be changed. ``reinstall``: what is there already
    is installed again.
    """

    __slots__ = (
        "allow_downgrade",
        "also_allowed",
        "change_held",
        "install_recommends",
        "lock_timeout_s",
        "reinstall",
        "remove",
        "wanted",
    )

    def __init__(
        self,
        wanted: Dict[str, Optional[str]],
        *,
        remove: bool = False,
        allow_downgrade: bool = False,
        install_recommends: bool = False,
        change_held: bool = False,
        reinstall: bool = False,
        lock_timeout_s: float = 300.0,
        also_allowed: Tuple[str, ...] = (),
    ) -> None:
        self.wanted = wanted
        self.remove = remove
        self.allow_downgrade = allow_downgrade
        self.install_recommends = install_recommends
        self.change_held = change_held
        self.reinstall = reinstall
        self.lock_timeout_s = lock_timeout_s
        self.also_allowed = also_allowed

    def names(self, name: str) -> bool:
        """Whether ``name`` (with or without an architecture) is one of the packages asked for."""
        plain = name.partition(":")[0]
        return any(wanted.partition(":")[0] == plain for wanted in self.wanted)

    def allows(self, name: str) -> bool:
        """Whether the transaction may change the installed package ``name`` besides those asked for."""
        from fnmatch import fnmatchcase

        plain = name.partition(":")[0]
        return any(fnmatchcase(plain, pattern) for pattern in self.also_allowed)


class Transaction:
    """What a package manager says it would do. ``installs``: (name, version now or None, version after);
    ``removes``: (name, version now)."""

    __slots__ = ("installs", "removes")

    def __init__(
        self, installs: List[Tuple[str, Optional[str], str]], removes: List[Tuple[str, Optional[str]]]
    ) -> None:
        self.installs = installs
        self.removes = removes

    def __bool__(self) -> bool:
        return bool(self.installs or self.removes)


def refusals(
    transaction: Transaction, request: Request, compare: Callable[[str, str], int]
) -> List[Tuple[str, str]]:
    """Why ``transaction`` must not be carried out: (package, what would happen to it); ``[]`` when it may.

    New packages are dependencies and fine. Everything that touches an installed package must have been
    asked for: as one of the packages, or by ``also_allowed``.
    """
    reasons: List[Tuple[str, str]] = []
    for name, version in transaction.removes:
        asked = request.remove and request.names(name)
        if not (asked or request.allows(name)):
            reasons.append((name, ("remove %s %s" % (name, version or "")).strip()))
    for name, before, after in transaction.installs:
        if before is None:
            if request.remove and not request.allows(name):
                reasons.append((name, "install %s %s" % (name, after)))
            continue
        order = compare(before, after)
        if not (request.names(name) or request.allows(name)):
            reasons.append((name, "%s %s from %s to %s" % (_verb(order), name, before, after)))
        elif order > 0 and not request.allow_downgrade:
            reasons.append((name, "downgrade %s from %s to %s" % (name, before, after)))
    return reasons


def _verb(order: int) -> str:
    return "upgrade" if order < 0 else "downgrade" if order > 0 else "reinstall"


class PackageManager:
    """What the ``package`` resource needs of a package manager. All may raise StepFailed."""

    name = ""
    upgrade_command = ""  # what somebody types to bring installed packages up to date

    def wait_for_lock(self, limit_s: float, report: Reporter) -> None:
        """Return once nobody else is at work; StepFailed naming the holder after ``limit_s``."""
        raise NotImplementedError

    def repair(self, request: Request, report: Reporter) -> None:
        """Finish what an interrupted transaction left, if anything."""
        raise NotImplementedError

    def ensure_known(self, request: Request, report: Reporter) -> None:
        """Every wanted name and version is offered, refreshing the lists if they are old or lack one."""
        raise NotImplementedError

    def refresh_all(self, report: Reporter) -> None:
        """Fetch every list anew."""
        raise NotImplementedError

    def lists_outdated(self, failure: StepFailed) -> bool:
        """Whether a failed commit only shows that the lists name files that the server no longer has."""
        raise NotImplementedError

    def simulate(self, request: Request) -> Transaction:
        raise NotImplementedError

    def commit(self, request: Request, transaction: Transaction, report: Reporter) -> Optional[Result]:
        """Carry it out. On a bad end the database is put in order before StepFailed is raised."""
        raise NotImplementedError

    def hold(self, names: List[str], held: bool) -> None:
        """Hold the packages at their version, or free them."""
        raise NotImplementedError

    def compare(self, left: str, right: str) -> int:
        raise NotImplementedError


def for_host(host: Host, name: Optional[str]) -> PackageManager:
    """The package manager called ``name`` ("apt", "dnf"); StepFailed for a host that has neither."""
    if name == "apt":
        from fleet.agent.package_manager.apt import Apt

        return Apt(host)
    if name == "dnf":
        from fleet.agent.package_manager.dnf import Dnf

        return Dnf(host)
    from fleet.agent.resources.base import StepFailed

    raise StepFailed(
        "this host has neither apt nor dnf, so fleet cannot install packages on it",
        "use a supported system (Debian, Ubuntu, Enterprise Linux), or install the packages by hand",
    )
