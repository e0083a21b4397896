"""Docker Engine, from the distribution, from Docker, or already there: packages, daemon.json and the service.

Restarting the engine stops containers, so it is disruptive. Where containers of others run and the wanted
state needs a restart, the steps that would cause it are left out, nothing of them half done, and the host is
``pending`` with the command that finishes it. Settings that the engine takes over on reload need no leave.
Where there is no systemd nothing is restarted: what is due is left to whoever starts the engine there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.audit.facts import fact, releases
from fleet.catalogue.docker import (
    EnginePackages,
    distribution_packages,
    upstream_packages,
    upstream_repository,
)
from fleet.modules.base import (
    PACKAGE_DEADLINE_S,
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    ControllerResult,
    Facts,
    Json,
)
from fleet.modules.package import installed_version, package_step, pin_refused
from fleet.modules.shared import repository_key
from fleet.modules.shared.engine_settings import (
    DAEMON_JSON,
    ENGINE_PACKAGES,
    changed_keys,
    directory_step,
    engine_present,
    fixed_keys,
    matching,
    no_systemd,
    reload_is_enough,
    restart_disturbs,
    restart_permitted,
    restart_refused,
    service_step,
    settings_step,
    unreadable,
    without_systemd,
)

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DECIDES = True
READS_FACTS = True
ARGUMENTS = {
    "source": Argument(
        default="distribution",
        choices=("distribution", "docker", "preinstalled"),
        description="whose packages; preinstalled: none, the engine that answers is checked",
    ),
    "version": Argument(
        "plain", description='as upstream writes it, "27.5.1", or a pattern over package versions'
    ),
    "packages": Argument("list", description="the engine's packages, where the known ones do not fit"),
    "settings": Argument(
        "mapping", default={}, description="keys of daemon.json; others in the file are kept"
    ),
    "hold": Argument(
        "boolean", default=True, description="keep others from upgrading or removing the engine"
    ),
    "repository": Argument(
        "mapping",
        default={},
        description="of source: docker: base_url, suite, component, key(_file, _url), key_fingerprint, trusted",
    ),
}
_REPOSITORY_KEYS = ("base_url", "suite", "component", *repository_key.KEYS)


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """What can be told of the repository."""
    return repository_key.problems(args.get("repository"), _REPOSITORY_KEYS)


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """Which versions there are, where one is pinned and not already installed."""
    if not _outdated(args, facts):
        return []
    query: Json = {
        "id": "versions",
        "kind": "package_versions",
        "names": list(_packages(args, facts).versioned),
    }
    if args["source"] == "docker":
        query["repositories"] = [_repository(args, facts, context)]
    return [query]


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """A broken daemon.json or a pin that cannot be had (``failed``), or a restart that needs leave (``pending``)."""
    broken = unreadable(facts, context)
    if broken is not None:
        return [broken]
    said: list[ControllerResult] = []
    if args["source"] == "preinstalled":
        refused = _not_as_said(args, facts, context)
        if refused is not None:
            return [refused]
    elif args["version"] is not None:
        for name in _outdated(args, facts):
            offered = (answers.get("versions") or {}).get(name, [])
            if matching(args["version"], offered) is None:
                said.append(pin_refused(name, args["version"], offered, context))
    why = _held_back(args, facts, context)
    if why and not said:
        text = f"needs leave to restart Docker: {why}"
        said.append(context.result("pending", text, remedy=context.disrupt_command))
    if without_systemd(facts):
        said.append(no_systemd(context))
    return [*said, *restart_disturbs(_restart_causes(args, facts), facts, context)]


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """Repository, support packages, engine packages, daemon.json, service.

    On a host without an engine daemon.json comes before the packages: they start the engine, and its first
    network must already be the one that is wanted (:mod:`fleet.audit.rules.network`).
    """
    held_back = _held_back(args, facts, context) is not None
    if args["source"] == "preinstalled":
        # Where its programs lie is not known, so none is asked to judge the new daemon.json.
        settings = _settings_steps(args, facts, context, held_back=held_back, validates=False)
        return [*settings, _service_step(args, facts, context)]
    packages = _packages(args, facts)
    present = engine_present(facts)
    made: list[Step] = []
    if args["source"] == "docker":
        repository = _repository(args, facts, context)
        made.append(context.step("repository", "apt_repository", repository, deadline_s=PACKAGE_DEADLINE_S))
    if packages.support:
        made.append(package_step([{"name": name} for name in packages.support], {}, context, part="support"))
    engine = (
        []
        if held_back and _outdated(args, facts)
        else [_engine_step(args, packages, facts, answers, context)]
    )
    validates = packages.validates and present
    settings = _settings_steps(args, facts, context, held_back=held_back, validates=validates)
    made += [*engine, *settings] if present else [*settings, *engine]
    made.append(_service_step(args, facts, context))
    return made


def _settings_steps(
    args: Json, facts: Facts, context: Context, *, held_back: bool, validates: bool
) -> list[Step]:
    if not args["settings"]:
        return []
    if held_back and changed_keys(args["settings"], facts):
        return [directory_step(context)]
    return [
        directory_step(context),
        settings_step(args["settings"], context, validates=validates, mode="0644"),
    ]


def _not_as_said(args: Json, facts: Facts, context: Context) -> ControllerResult | None:
    """What is wrong with an engine that is said to be there already."""
    if fact(facts, "engine.responding") is not True:
        text = "no_engine: source: preinstalled, and no Docker Engine answers on /var/run/docker.sock"
        remedy = "start it, then run again; or set source: distribution, which installs one"
        return context.result("failed", text, remedy=remedy, stops=True)
    here, wanted = fact(facts, "engine.version"), args["version"]
    packages = [installed_version(facts, name) for name in ENGINE_PACKAGES]
    if wanted is None or matching(wanted, [here, *packages]) is not None:
        return None
    text = f"version_mismatch: Docker {here or 'of an unknown version'} is here, {wanted} is wanted"
    remedy = f"have whoever installs the engine here install {wanted}, or take the pin away"
    return context.result("failed", text, remedy=remedy, stops=True)


def _packages(args: Json, facts: Facts) -> EnginePackages:
    if args["packages"]:
        names = tuple(args["packages"])
        return EnginePackages(names, names[:1], ())
    if args["source"] == "docker":
        return upstream_packages()
    os_id, version = releases(facts)
    known = distribution_packages(os_id, version)
    if known is None:
        raise ArgumentProblem(
            f"the engine's packages of {os_id} {version} are not known; name them in packages:"
        )
    return known


def _repository(args: Json, facts: Facts, context: Context) -> Json:
    """Docker's repository, or the site's copy of it, as an ``apt_repository``."""
    upstream = upstream_repository()
    site = args["repository"]
    if not site.get("base_url") and not context.public_internet:
        message = "public_internet is false here; name the site's copy of Docker's repository: base_url in repository"
        raise ArgumentProblem(message, "repository")
    base_url = str(site.get("base_url") or f"{upstream['base_url']}/{releases(facts)[0]}")
    key_url = f"{base_url.rstrip('/')}/{upstream['key_path']}"
    return {
        "name": "docker",
        "uris": [base_url],
        "suites": [site.get("suite") or str(fact(facts, "os.codename"))],
        "components": [site.get("component") or upstream["component"]],
        "architectures": None,
        "trusted": bool(site.get("trusted", False)),
        "options": {},
        "state": "present",
        "key": repository_key.key(site, key_url, upstream["key_fingerprint"], context),
    }


def _engine_step(
    args: Json, packages: EnginePackages, facts: Facts, answers: Answers, context: Context
) -> Step:
    names: list[Json] = []
    for name in packages.engine:
        wanted: Json = {"name": name}
        if args["version"] is not None and name in packages.versioned:
            installed = installed_version(facts, name)
            offered = [installed] if installed else []
            offered += (answers.get("versions") or {}).get(name, [])
            wanted["version"] = matching(args["version"], offered) or args["version"]
        names.append(wanted)
    step = package_step(names, {"hold": args["hold"]}, context, part="engine")
    if packages.starts and fact(facts, "packages.manager") == "apt":
        step["args"]["starts"] = list(packages.starts)
    if _outdated(args, facts) and engine_present(facts):
        step["disruptive"] = True
    return step


def _service_step(args: Json, facts: Facts, context: Context) -> Step:
    """The service. It reflects daemon.json, unless that could mean a restart and others use the host."""
    settings = args["settings"]
    reload = reload_is_enough(settings, facts)
    permitted = restart_permitted(facts, context) or without_systemd(facts)
    restarts = bool(settings) and engine_present(facts) and permitted and not reload
    reflects = [DAEMON_JSON] if settings and (permitted or reload) else []
    return service_step(facts, context, reflects=reflects, reload=reload, disruptive=restarts)


def _outdated(args: Json, facts: Facts) -> list[str]:
    """Installed or missing packages whose version is not the pinned one."""
    if args["version"] is None or args["source"] == "preinstalled":
        return []
    versioned = _packages(args, facts).versioned
    return [name for name in versioned if matching(args["version"], [installed_version(facts, name)]) is None]


def _held_back(args: Json, facts: Facts, context: Context) -> str | None:
    """Why the engine may not be restarted though the wanted state needs it; None where it may or need not."""
    return restart_refused(_restart_causes(args, facts), facts, context)


def _restart_causes(args: Json, facts: Facts) -> list[str]:
    """What restarts the engine, in words. An upgrade of its packages does."""
    if not engine_present(facts):
        return []
    causes = []
    outdated = _outdated(args, facts)
    if outdated:
        causes.append(f"{outdated[0]} is to become version {args['version']}")
    fixed = [] if without_systemd(facts) else fixed_keys(args["settings"], facts)
    if fixed:
        causes.append(f'engine setting "{fixed[0]}" cannot be reloaded')
    return causes
