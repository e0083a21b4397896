"""A systemd unit: running or not, enabled or not, and no older than the configuration it reads.

Whether a restart is due is derived from the host (``reflects``), never remembered by a run, so it
cannot be lost with an interrupted one: a unit that started before one of those files last changed is
stale. What a restart or reload by fleet reflected is kept beside it in ``reflected/UNIT`` under the
state directory, because a reload leaves no other trace and because clocks jump.
"""

from __future__ import annotations

import os
import time

from fleet.agent import files
from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, WOULD_CHANGE, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepCancelled,
    StepFailed,
    difference,
    expect,
    last_words,
    would_change_if,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.process import Result

SETTLE_S = 60.0  # how long a unit may stay "activating" after systemctl has returned
QUERY_DEADLINE_S = 30.0
_POLL_S = 0.2
_SUFFIXES = (
    ".service", ".socket", ".timer", ".target", ".mount", ".automount", ".path", ".slice", ".scope",
    ".device", ".swap",
)  # fmt: skip
# Unit file states that mean "will be started when wanted"; those that have no switch to turn count too.
_NO_SWITCH = ("static", "alias", "indirect", "generated", "transient")
_ENABLED = ("enabled", *_NO_SWITCH)
_NOT_ENABLED = ("disabled", "masked", "masked-runtime", "bad", "", *_NO_SWITCH)
_RESTART = "restart"
_RELOAD = "reload"


class Service(Resource):
    """args: name, state started|stopped|None, enabled, reflects [paths], reload, restart, put_back [paths].

    ``put_back``: files that get their former contents back where a restart fails, so that the unit runs again.
    ``restart``: always restart (a handler's step, which runs only while its notification is pending).
    ``reload``: reload instead of restarting, where the unit runs and can.
    """

    kind = "service"

    def read(self, host: Host, args: Json) -> Json:
        """What systemd says, and ``stale``: the first of ``reflects`` that is newer, or None."""
        name = unit_name(args["name"])
        return unit_state(host, name, args.get("reflects") or ())

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        found = []
        if args.get("enabled") is not None:
            found += _enabled_difference(state, bool(args["enabled"]))
        wanted = args.get("state")
        reloadable = args.get("reload") and state["can_reload"] and state["active"] == "active"
        how = _RELOAD if reloadable else _RESTART
        if wanted == "started" and state["active"] != "active":
            found.append(difference("state", state["active"], "started"))
        elif wanted == "stopped":
            if state["active"] not in ("inactive", "failed", "absent"):
                found.append(difference("state", state["active"], "stopped"))
        elif args.get("restart") and (state["active"] != "absent" or wanted == "started"):
            found.append(difference(how, state["active"], how + "ed"))
        elif state["active"] == "active" and state["stale"]:
            found.append(difference(how, "started before %s changed" % state["stale"], how + "ed"))
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        name = unit_name(args["name"])
        unit = host.units([name])[name]
        _must_exist(name, unit)
        if unit.get("NeedDaemonReload") == "yes":
            systemctl(host, report, "daemon-reload")
        for entry in differences:
            if entry["path"] == "enabled":
                systemctl(host, report, "enable" if entry["after"] is True else "disable", name)
            elif entry["path"] == "state":
                _start_or_stop(host, report, name, entry["after"], args.get("reflects") or ())
            elif entry["path"] == _RELOAD:
                act(host, report, _RELOAD, name, args.get("reflects") or ())
            elif entry["path"] == _RESTART:
                self._restart(host, report, name, args, unit)
        return None

    def _restart(self, host: Host, report: Reporter, name: str, args: Json, unit: Dict[str, str]) -> None:
        """Restart; where that fails, with the configuration that it ran with before, and still a failure."""
        try:
            act(host, report, _RESTART, name, args.get("reflects") or ())
        except StepCancelled:
            raise
        except StepFailed as failure:
            since = _started_ns(host, unit)
            restored = [path for path in args.get("put_back") or () if files.put_back(host, path, since)]
            if not restored:
                raise
            act(host, report, _RESTART, name, ())
            what = "%s; %s is again as it was before, and with that the unit runs" % (
                failure.what,
                ", ".join(restored),
            )
            raise StepFailed(what, "what was refused is kept: %s.fleet-refused" % restored[0]) from None

    def rereads(self, args: Json) -> bool:
        """A restart asked for by name is due again by definition."""
        return not args.get("restart")

    def requires(self, args: Json) -> Provides:
        """The unit."""
        return Provides(units=[unit_name(args["name"])])

    def provides(self, args: Json) -> Provides:
        """No new thing: the unit, in another state."""
        return Provides(switched=[unit_name(args["name"])])

    def looks_at(self, args: Json) -> Provides:
        """The unit."""
        return Provides(units=[unit_name(args["name"])])

    def forecast(self, args: Json, provided: Provides) -> str:
        """A unit that is not there cannot run: it would be started; unless a package brings it, whose
        scripts may start and enable it themselves."""
        name = unit_name(args["name"])
        if provided.contains("started", name):
            as_it_is = args.get("state") != "stopped" and args.get("enabled") is not False
            return OK if as_it_is and not args.get("restart") else WOULD_CHANGE
        if provided.contains("idle", name):
            return would_change_if(args.get("state") == "started")
        wanted = args.get("state") == "started" or bool(args.get("enabled"))
        return would_change_if(wanted and not provided.get("packages"))

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """A package to come may bring the missing unit, and start or enable it by itself; one that
        starts this unit may, when it is upgraded, do what differs now."""
        absent = any(entry["before"] == "absent" for entry in differences)
        if absent and provided.get("packages"):
            return KNOWN_AFTER_APPLY
        by_scripts = provided.contains("started", unit_name(args["name"])) and not args.get("restart")
        return KNOWN_AFTER_APPLY if differences and by_scripts else None


def unit_name(name: str) -> str:
    """The full name of a unit: ``docker`` is ``docker.service``."""
    return name if name.endswith(_SUFFIXES) else name + ".service"


def unit_state(host: Host, name: str, reflects: Any) -> Json:
    """{"active", "sub", "enabled", "can_reload", "needs_daemon_reload", "stale"}; absent units say so."""
    unit = host.units([name])[name]
    if unit.get("LoadState") in ("not-found", "", None):
        return {
            "active": "absent", "sub": "", "enabled": "absent", "can_reload": False,
            "needs_daemon_reload": False, "stale": None,
        }  # fmt: skip
    active = unit.get("ActiveState", "")
    return {
        "active": "active" if active in ("reloading", "refreshing") else active,
        "sub": unit.get("SubState", ""),
        "enabled": unit.get("UnitFileState", ""),
        "can_reload": unit.get("CanReload") == "yes",
        "needs_daemon_reload": unit.get("NeedDaemonReload") == "yes",
        "stale": stale_path(host, name, unit, reflects),
    }


def stale_path(host: Host, name: str, unit: Dict[str, str], reflects: Any) -> Optional[str]:
    """The first of ``reflects`` that changed after the unit started and that fleet has not applied."""
    if not reflects or unit.get("ActiveState") != "active":
        return None
    started = _started_ns(host, unit)
    known = _reflected(host, name)
    for path in reflects:
        signature = files.changed_at(host, path)
        if signature is not None and signature[0] > started and known.get(path) != signature:
            return str(path)
    return None


def act(host: Host, report: Reporter, verb: str, name: str, reflects: Any) -> None:
    """Start, restart or reload a unit, wait until it is up, and keep what it now reflects."""
    signatures = signatures_of(host, reflects)
    if host.units([name])[name].get("ActiveState") == "failed":
        systemctl(host, report, "reset-failed", name)  # else earlier failures count against this start
    report.progress("%s %s" % (verb, name))
    result = host.run(["systemctl", verb, "--", name], on_output=report.output)
    if result.cancelled:
        expect(result, "%s of %s" % (verb, name))
    unit = wait_until_settled(host, name)
    if not result.ok or unit.get("ActiveState") == "failed":
        raise _broken(host, name, verb, unit, result)
    if unit.get("ActiveState") == "inactive" and unit.get("Result") == "success":
        raise StepFailed(
            "%s ran and ended at once, as its type says: it cannot be kept started" % name,
            "leave out the state, or start the timer or path unit that triggers it",
        )
    keep_reflected(host, name, signatures)


def wait_until_settled(host: Host, name: str) -> Dict[str, str]:
    """The unit once it is no longer on its way up or down, or after a minute."""
    end = time.monotonic() + SETTLE_S
    while True:
        host.invalidate()
        unit = host.units([name])[name]
        on_its_way = unit.get("ActiveState") in ("activating", "deactivating", "reloading")
        if not on_its_way or time.monotonic() >= end or host.cancelled():
            return unit
        time.sleep(_POLL_S)


def systemctl(host: Host, report: Reporter, *words: str) -> None:
    """One systemctl command that must succeed."""
    result = host.run(["systemctl", *words], on_output=report.output)
    remedy = _unmask(words[-1]) if "masked" in result.stderr else None
    expect(result, "systemctl " + " ".join(words), remedy)


def _start_or_stop(host: Host, report: Reporter, name: str, wanted: str, reflects: Any) -> None:
    if wanted == "started":
        act(host, report, "start", name, reflects)
    else:
        report.progress("stop " + name)
        systemctl(host, report, "stop", name)


def _enabled_difference(state: Json, wanted: bool) -> List[Difference]:
    now = state["enabled"]
    if now == "absent":
        return [difference("enabled", "absent", True)] if wanted else []
    if now in (_ENABLED if wanted else _NOT_ENABLED):
        return []
    return [difference("enabled", now or "disabled", wanted)]


def _must_exist(name: str, unit: Dict[str, str]) -> None:
    load = unit.get("LoadState")
    if load in ("not-found", "", None):
        raise StepFailed(
            "there is no unit %s on this host" % name,
            "install the package that brings it, or check the name with: systemctl list-unit-files",
        )
    if load in ("bad-setting", "error"):
        raise StepFailed("the unit file of %s is broken" % name, "look at: systemctl status %s" % name)


def _broken(host: Host, name: str, verb: str, unit: Dict[str, str], result: Result) -> StepFailed:
    """The failure of a unit, with the last lines of its own log."""
    if unit.get("LoadState") == "masked":
        return StepFailed("%s of %s failed: it is masked" % (verb, name), _unmask(name), result)
    log = host.run(
        ["journalctl", "-u", name, "-n", "5", "--no-pager", "-o", "cat"], deadline_s=QUERY_DEADLINE_S
    )
    said = last_words(log, 5) if log.ok and log.stdout.strip() else last_words(result)
    if name.startswith("nvidia-"):
        from fleet.agent import gpu_failures

        known = gpu_failures.explained(said)
        if known is not None:
            return StepFailed("%s: %s" % (known.reason, known.words), known.remedy, result)
    state = "%s (%s)" % (unit.get("ActiveState", "unknown"), unit.get("Result", "unknown"))
    return StepFailed(
        "%s of %s failed; it is %s%s" % (verb, name, state, ": " + said if said else ""),
        "look at: journalctl -u %s -n 50" % name,
        result,
    )


def _unmask(name: str) -> str:
    return "somebody masked it on purpose; to allow it again: systemctl unmask %s" % name


def _started_ns(host: Host, unit: Dict[str, str]) -> int:
    """When the unit's main process started (else when the unit did), on the wall clock.

    systemd gives microseconds on the monotonic clock only in a form every release prints alike.
    """
    for name in ("ExecMainStart", "InactiveExit", "ActiveEnter"):
        moment = int(unit.get(name + "TimestampMonotonic") or 0)
        if moment:
            return host.wall_clock_ns(moment)
    return 0


def _reflected_path(host: Host, name: str) -> str:
    return os.path.join(host.state_dir, "reflected", name.replace("/", "%2F") + ".json")


def _reflected(host: Host, name: str) -> Json:
    from fleet.agent import strict_json

    try:
        known = strict_json.load(_reflected_path(host, name))
    except (OSError, ValueError):
        return {}  # never written, or cut short by a crash: the unit's start time decides
    return known if isinstance(known, dict) else {}


def signatures_of(host: Host, reflects: Any) -> Json:
    """When each of these files last changed, for :func:`keep_reflected`: taken before it is acted upon."""
    return {path: files.changed_at(host, path) for path in reflects}


def keep_reflected(host: Host, name: str, signatures: Json) -> None:
    """A unit now reflects these, which its start alone would not tell."""
    if signatures:
        from fleet.agent.protocol import canonical

        files.write_state(host, _reflected_path(host, name), canonical(signatures))


RESOURCE = Service()
