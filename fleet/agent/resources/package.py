"""``package``: packages installed (in an exact version, if named), held or freed, or removed.

The state is read from dpkg's status file; a change goes through
:mod:`fleet.agent.package_manager`: lock, repair, known, simulate, judge, commit. Holds that fleet set are
remembered in ``<state>/holds``; a hold that somebody else set is respected.
"""

from __future__ import annotations

import os

from fleet.agent.facts.packages import manager_of
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
from fleet.agent.resources.base import Difference, Provides, Resource, StepFailed, difference

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Set

    from fleet.agent.host import Host
    from fleet.agent.package_manager import PackageManager, Request, Transaction
    from fleet.agent.process import Result
    from fleet.agent.resources.base import Reporter


class Package(Resource):
    """args: names [{name, version, hold}] (``hold`` there goes before the step's; null: left as it is), state,
    hold, allow_downgrade, install_recommends, lock_timeout_s, also_allowed, change_held (held packages may be
    changed). Only the check pass reads: starts, units that the packages' own scripts enable and start when they
    are first installed; brings, files in them; may_be_gone, what is to be absent may go with an earlier
    step's transaction."""

    kind = "package"

    def read(self, host: Host, args: Json) -> Json:
        """{"manager", "packages": {name: {"version", "state", "held"}}}; ``state`` is installed, absent,
        or the broken one (half-configured …); ``version`` is None when absent."""
        manager = manager_of(host)
        names = [str(entry["name"]) for entry in args["names"]]
        if manager == "dnf":
            from fleet.agent.package_manager import dnf

            return {"manager": manager, "packages": dnf.read(host, names)}
        if manager is None:
            raise StepFailed(
                "this host has neither apt nor dnf",
                "use a supported system (Debian, Ubuntu, Enterprise Linux)",
            )
        return {"manager": manager, "packages": {name: _dpkg_state(host, name) for name in names}}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        differences: List[Difference] = []
        for entry in args["names"]:
            name, found = entry["name"], state["packages"][entry["name"]]
            before = _before(found)
            if args.get("state", "present") == "absent":
                if found["state"] != "absent":
                    differences.append(difference(name, before, None))
                continue
            wanted = entry.get("version")
            if found["state"] != "installed" or wanted not in (None, found["version"]):
                differences.append(difference(name, before, wanted or "installed"))
            hold = _wanted_hold(entry, args)
            if hold is not None and found["held"] != hold:
                differences.append(difference("%s hold" % name, found["held"], hold))
        return differences

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        from fleet.agent.package_manager import for_host

        state = self.read(host, args)
        manager = for_host(host, state["manager"])
        changing = [item["path"] for item in differences if not item["path"].endswith(" hold")]
        result = None
        if changing:
            request = self._request(host, args, state, changing)
            result = transact(manager, request, report)
        self._set_holds(host, args, manager, report)
        if result is None:
            return None
        return {"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}

    def _request(self, host: Host, args: Json, state: Json, changing: List[str]) -> Request:
        from fleet.agent.package_manager import Request

        absent = args.get("state", "present") == "absent"
        # All names of the step go into the one transaction, so that apt keeps the set consistent.
        entries = [entry for entry in args["names"] if not absent or entry["name"] in changing]
        held = [name for name in changing if state["packages"][name]["held"]]
        ours = holds_of_fleet(host)
        also = [str(name) for name in args.get("also_allowed") or []]
        also_held = [name for name in also if state["manager"] == "apt" and _dpkg_state(host, name)["held"]]
        foreign = [name for name in held if name not in ours]
        free = bool(args.get("change_held")) or args.get("hold") is False
        if foreign and not free:
            raise StepFailed(
                "%s must change but is on hold, and fleet did not set that hold" % ", ".join(foreign),
                "find out who holds it and why; then: apt-mark unhold %s" % " ".join(foreign),
            )
        return Request(
            {entry["name"]: entry.get("version") for entry in entries},
            remove=absent,
            allow_downgrade=bool(args.get("allow_downgrade")),
            install_recommends=bool(args.get("install_recommends")),
            change_held=bool(held)
            or any(name in ours for name in also_held)
            or bool(args.get("change_held")),
            lock_timeout_s=float(args.get("lock_timeout_s") or 300),
            # What somebody else holds is not allowed after all: apt is told to change held packages for ours.
            also_allowed=tuple(name for name in also if name in ours or name not in also_held),
        )

    def _set_holds(self, host: Host, args: Json, manager: PackageManager, report: Reporter) -> None:
        if args.get("state", "present") == "absent":
            return
        packages = self.read(host, args)["packages"]
        wanted = {str(entry["name"]): _wanted_hold(entry, args) for entry in args["names"]}
        for hold in (True, False):
            names = [name for name in packages if wanted[name] is hold and packages[name]["held"] != hold]
            if not names:
                continue
            manager.wait_for_lock(float(args.get("lock_timeout_s") or 300), report)
            report.progress("%s %s" % ("holding" if hold else "freeing", ", ".join(names)))
            if hold:
                remember_holds(host, add=names)  # first: a hold of ours must never look like somebody else's
            manager.hold(names, hold)
            if not hold:
                remember_holds(host, drop=names)

    def provides(self, args: Json) -> Provides:
        if args.get("state", "present") == "absent":
            return Provides()
        names = [str(entry["name"]).partition(":")[0] for entry in args["names"]]
        engine = any(name in ENGINE_PACKAGES for name in names)
        starts = [str(unit) for unit in args.get("starts") or ()]
        return Provides(
            engine=engine,
            packages=names,
            files=[str(path) for path in args.get("brings") or ()],
            directories=[ENGINE_FOLDER] if engine else [],
            units=[*starts, *(ENGINE_UNITS if engine else ())],
            groups=["docker"] if engine else [],
            started=starts,
        )

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """A transaction of an earlier step may leave nothing to remove."""
        may_be_gone = args.get("may_be_gone") and differences and provided.get("packages")
        return KNOWN_AFTER_APPLY if may_be_gone else None


# Packages that bring a Docker Engine; `image` and `container` steps behind them cannot find theirs yet.
ENGINE_PACKAGES = frozenset(("docker.io", "docker-ce", "moby-engine"))
# Debian's package owns it; Docker's own may or may not leave one behind.
ENGINE_FOLDER = "/etc/docker"
ENGINE_UNITS = ("docker.service", "docker.socket", "containerd.service")


def transact(manager: PackageManager, request: Request, report: Reporter) -> Optional[Result]:
    """Lock, repair, known, simulate, judge, commit; the commit's Result, or None for nothing to do.

    Lists can be older than their age says (another repository was refreshed alone), so a commit that finds
    files gone from the server is tried once more with fresh lists.
    """
    manager.wait_for_lock(request.lock_timeout_s, report)
    manager.repair(request, report)
    manager.ensure_known(request, report)
    try:
        return manager.commit(request, judged(manager, request), report)
    except StepFailed as failure:
        if request.remove or not manager.lists_outdated(failure):
            raise
    manager.refresh_all(report)
    return manager.commit(request, judged(manager, request), report)


def judged(manager: PackageManager, request: Request) -> Transaction:
    """The simulated transaction, if it does nothing that was not asked for; else StepFailed."""
    from fleet.agent.package_manager import refusals

    transaction = manager.simulate(request)
    reasons = refusals(transaction, request, manager.compare)
    if not reasons:
        return transaction
    outside = [name for name, _ in reasons if not request.names(name)]
    remedy = "set allow_downgrade: true if that is meant"
    if outside:
        remedy = "if that may happen, say so in the task: also_allowed: [%s]" % ", ".join(outside)
        if all(words.startswith("upgrade ") for name, words in reasons if name in outside):
            remedy += "; or bring them up to date first: %s %s" % (manager.upgrade_command, " ".join(outside))
    what = "refused: the transaction would %s" % "; ".join(words for _, words in reasons)
    raise StepFailed(what, remedy)


def _wanted_hold(entry: Json, args: Json) -> Optional[bool]:
    """Whether this package is to be held; None: left as it is."""
    hold = entry.get("hold", args.get("hold"))
    return None if hold is None else bool(hold)


def _dpkg_state(host: Host, name: str) -> Json:
    state = host.dpkg.get(name)
    if state is None or state.status in ("not-installed", "config-files"):
        return {"version": None, "state": "absent", "held": state is not None and state.held}
    if state.installed:
        return {"version": state.version, "state": "installed", "held": state.held}
    broken = state.status if state.flag == "ok" else "%s (%s)" % (state.status, state.flag)
    return {"version": state.version, "state": broken, "held": state.held}


def _before(found: Json) -> Optional[str]:
    if found["state"] == "absent":
        return None
    version = str(found["version"])
    return version if found["state"] == "installed" else "%s, %s" % (version, found["state"])


def holds_of_fleet(host: Host) -> Set[str]:
    """The names of the packages that fleet put on hold on this host."""
    try:
        with open(_holds_path(host), encoding="utf-8") as stream:
            return set(stream.read().split())
    except FileNotFoundError:
        return set()


def remember_holds(host: Host, add: Optional[List[str]] = None, drop: Optional[List[str]] = None) -> None:
    """Change that list, atomically."""
    names = (holds_of_fleet(host) | set(add or [])) - set(drop or [])
    path = _holds_path(host)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as stream:
        stream.write("".join(name + "\n" for name in sorted(names)))
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + ".new", path)


def _holds_path(host: Host) -> str:
    return os.path.join(host.state_dir, "holds")


RESOURCE = Package()
