"""What modules that change Docker's configuration share: daemon.json, what a restart is due for, and leave.

A running engine takes over some keys of daemon.json on reload, which disturbs nobody; for all others it must be
restarted, which stops containers. Used by :mod:`fleet.modules.docker_engine` and
:mod:`fleet.modules.container_toolkit`; who may be disturbed is :mod:`fleet.audit.leave`'s.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fleet.audit.facts import fact
from fleet.audit.leave import reasons_against
from fleet.catalogue.docker import reloadable_keys
from fleet.catalogue.versions import Version, release
from fleet.modules.base import SERVICE_DEADLINE_S, Context, ControllerResult, Facts, Json

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DAEMON_JSON = "/etc/docker/daemon.json"
PROCESS_DEADLINE_S = 60.0
ENGINE_PACKAGES = ("docker-ce", "docker.io", "moby-engine")


def engine_present(facts: Facts) -> bool:
    """Whether the host has an engine; unknown counts as yes."""
    return fact(facts, "engine.present") is not False


def unreadable(facts: Facts, context: Context) -> ControllerResult | None:
    """The refusal of a host whose daemon.json does not parse: an engine that is restarted, by an upgrade too,
    would not come up again."""
    error = fact(facts, "engine.daemon_json.error")
    if not error:
        return None
    text = f"{DAEMON_JSON}:{error['line']}:{error['column']}: {error['message']}; it was not touched"
    return context.result("failed", text, remedy="correct the file by hand and run again", stops=True)


def engine_version(facts: Facts) -> Version | None:
    """The engine's version: what it says, or its package; None where neither is known."""
    installed = fact(facts, "packages.installed") or {}
    texts = [fact(facts, "engine.version"), *(installed.get(name) for name in ENGINE_PACKAGES)]
    return next((version for version in map(upstream_version, texts) if version is not None), None)


def upstream_version(text: Any) -> Version | None:
    """27.5.1 of ``5:27.5.1-1~debian.12``, 20.10.24 of ``20.10.24+dfsg1``, 27 of ``27.*``; None of anything else."""
    match = re.match(r"(?:\d+:)?(\d{1,4}(?:\.\d{1,4}){0,2})", str(text or ""))
    return release(match[1]) if match else None


def matching(pin: str, offered: Iterable[Any]) -> str | None:
    """The first of ``offered`` package versions (newest first) that a pin means, or None.

    The pin is a version as upstream writes it (``27.5.1`` means ``5:27.5.1-1~debian.12``) or a pattern over
    package versions.
    """
    patterns = [pin] if "*" in pin else [pin, f"*:{pin}-*", f"{pin}-*", f"{pin}+*", f"*:{pin}+*"]
    for version in offered:
        if version is not None and any(fnmatch.fnmatchcase(str(version), pattern) for pattern in patterns):
            return str(version)
    return None


def changed_keys(settings: Json, facts: Facts) -> list[str]:
    """Keys of ``settings`` that daemon.json does not have as wanted."""
    now = fact(facts, "engine.daemon_json.parsed") or {}
    return sorted(key for key, value in settings.items() if not _holds(now.get(key), value))


def fixed_keys(settings: Json, facts: Facts) -> list[str]:
    """Those of the changed keys that only a restart applies."""
    return [key for key in changed_keys(settings, facts) if key not in reloadable_keys()]


def reload_is_enough(settings: Json, facts: Facts) -> bool:
    """Whether a reload applies what changes. With nothing left to change, what an interrupted run wrote is
    not known, so every wanted key must be one that a reload applies."""
    keys = changed_keys(settings, facts) or list(settings)
    return set(keys) <= reloadable_keys()


def restart_permitted(facts: Facts, context: Context) -> bool:
    """Whether the engine may be restarted here without (further) leave."""
    return context.disrupt or not engine_present(facts) or not reasons_against(facts)


def restart_refused(causes: list[str], facts: Facts, context: Context) -> str | None:
    """Why the engine may not be restarted though ``causes`` (in words) need it; None where it may or need not."""
    if not causes or restart_permitted(facts, context):
        return None
    return f"{'; '.join(reasons_against(facts))} ({'; '.join(causes)})"


def restart_disturbs(causes: list[str], facts: Facts, context: Context) -> list[ControllerResult]:
    """Whom a restart disturbs that ``causes`` need and leave was given for; nothing where it disturbs nobody."""
    reasons = reasons_against(facts) if causes and context.disrupt else []
    text = f"with leave, Docker is restarted though {'; '.join(reasons)} ({'; '.join(causes)})"
    return [context.result("finding", text)] if reasons else []


def directory_step(context: Context) -> Step:
    """The folder of daemon.json."""
    wanted = {"path": "/etc/docker", "mode": "0755", "state": "present"}
    return context.step("directory", "directory", wanted)


def settings_step(settings: Json, context: Context, *, validates: bool, mode: str | None = None) -> Step:
    """``settings`` merged into daemon.json, everything else and its order kept. ``validates``: this dockerd
    checks the new file first. ``mode`` None leaves that of a file that is there."""
    wanted: Json = {"path": DAEMON_JSON, "merge": settings}
    if mode is not None:
        wanted["mode"] = mode
    wanted["backup"] = True
    if validates:
        wanted["validate"] = ["dockerd", "--validate", "--config-file", "%s"]
    return context.step("settings", "json_file", wanted)


def without_systemd(facts: Facts) -> bool:
    """Whether nothing on this host can start, restart or enable a service; unknown counts as no."""
    return fact(facts, "systemd.present") is False


def no_systemd(context: Context) -> ControllerResult:
    """What a task says that has a service on any other host."""
    return context.result("message", "no systemd here: whoever starts the engine keeps it running")


def service_step(
    facts: Facts,
    context: Context,
    *,
    part: str = "service",
    reflects: Iterable[str] = (),
    reload: bool = False,
    restart: bool = False,
    disruptive: bool = False,
) -> Step:
    """The engine runs, and is no older than what it ``reflects``. ``restart``: restart it in any case.

    Where it does not come up again, it gets back the daemon.json that it ran with. Without systemd it is only
    looked at: a restart that is due is left to somebody, and the step ends pending."""
    if without_systemd(facts):
        seen: Json = {"reflects": list(reflects), "reload": reload, "restart": restart}
        return context.step(part, "engine_process", seen, deadline_s=PROCESS_DEADLINE_S)
    wanted: Json = {"name": "docker", "state": "started", "enabled": True}
    if reflects:
        wanted.update(reflects=list(reflects), reload=reload)
    if reflects and not reload:
        wanted["put_back"] = [DAEMON_JSON]
    if restart:
        wanted["restart"] = True
    wanted["disruptive"] = disruptive
    return context.step(part, "service", wanted, deadline_s=SERVICE_DEADLINE_S, disruptive=disruptive)


def _holds(now: Any, wanted: Any) -> bool:
    """Whether merging ``wanted`` into ``now`` changes nothing: mappings are merged, all else is replaced."""
    if isinstance(now, dict) and isinstance(wanted, dict):
        return all(key in now and _holds(now[key], value) for key, value in wanted.items())
    return bool(now == wanted)
