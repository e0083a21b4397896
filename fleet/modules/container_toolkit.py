"""NVIDIA's container toolkit: repository, packages, Docker's settings for it, CDI specification.

Two ways lead GPUs into containers. *runtime_hook*: ``docker run --gpus``, for which the engine calls a program
of the toolkit that it looks for when it starts. *cdi*: the engine reads a specification of the devices. An
engine restart stops containers: where others use the host, none of it is begun, and the host is ``pending``.
What is left of nvidia-docker2 and of sources from the days of apt-key goes. ``source: preinstalled`` installs
nothing: there CDI needs no toolkit, only something that makes the specification. Facts: ``container_toolkit``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fleet.audit.facts import fact, releases
from fleet.catalogue.container_toolkit import cdi_0_7_since, toolkit_repository
from fleet.catalogue.docker import distribution_packages, feature_since
from fleet.catalogue.versions import Version
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
    directory_step,
    engine_present,
    engine_version,
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
    upstream_version,
    without_systemd,
)
from fleet.modules.shared.gpu_hosts import not_a_gpu_host, nvidia_gpus

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DECIDES = True
READS_FACTS = True
HOOK = "/usr/bin/nvidia-container-runtime-hook"
RUNTIME = "nvidia-container-runtime"
SPECIFICATION = "/etc/cdi/nvidia.yaml"
GENERATOR = ("nvidia-ctk", "cdi", "generate")
CDI_DEADLINE_S = 180.0
ARGUMENTS = {
    "source": Argument(
        default="nvidia",
        choices=("nvidia", "preinstalled"),
        description="whose packages; preinstalled: none, with what is there or without it",
    ),
    "version": Argument(
        "plain", description='as upstream writes it, "1.19.1", or a pattern over package versions'
    ),
    "mode": Argument(
        default="auto",
        choices=("auto", "runtime_hook", "cdi"),
        description="how GPUs get into containers; auto: cdi where the engine can",
    ),
    "cdi_command": Argument(
        "list",
        description="makes the CDI specification and writes it to --output=FILE, as nvidia-ctk cdi generate does",
    ),
    "default_runtime": Argument("boolean", default=False, description="make nvidia Docker's default runtime"),
    "hold": Argument("boolean", default=True, description="keep others from upgrading or removing it"),
    "engine": Argument(
        "mapping",
        default={},
        description="source and version given to docker_engine, for a host that has no engine yet",
    ),
    "repository": Argument(
        "mapping", default={}, description="base_url, key(_file, _url), key_fingerprint, trusted"
    ),
}
_REPOSITORY_KEYS = ("base_url", *repository_key.KEYS)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_URL = re.compile(r"(?:https?|file|ftp|copy|mirror)\S*?:/\S+")


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """Keys of ``repository`` and ``engine`` that there are not."""
    problems = repository_key.problems(args.get("repository"), _REPOSITORY_KEYS)
    engine = args.get("engine")
    for key in engine if isinstance(engine, dict) else ():
        if key not in ("source", "version"):
            problems.append(ArgumentProblem(f"engine has no {key}; it takes source, version", "engine"))
    return problems


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """Versions on offer where one is pinned and not installed; which engine an absent one will be; what else
    stands in source lists that are to go."""
    if not nvidia_gpus(facts):
        return []
    asked: list[Json] = []
    if _installs(args) and _outdated(args, facts) and not _is_dnf(facts):
        names = list(toolkit_repository().packages)
        query: Json = {"id": "versions", "kind": "package_versions", "names": names}
        repository = _repository(args, facts, context)
        if repository is not None:
            query["repositories"] = [repository]
        asked.append(query)
    engine = _engine_to_come(args, facts)
    if engine is not None:
        asked.append({"id": "engine", "kind": "package_versions", "names": [engine]})
    for number, path in enumerate(_legacy_lists(facts) if _installs(args) else ()):
        asked.append({"id": f"list.{number}", "kind": "file_content", "path": path})
    return asked


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """What cannot be had (``failed``), a restart that needs leave (``pending``), a host without GPUs (``ok``)."""
    elsewhere = not_a_gpu_host(facts, context)
    if elsewhere is not None:
        return [elsewhere]
    refused = _impossible(args, facts, answers, context)
    if refused:
        return refused
    said = []
    if _is_dnf(facts) and _installs(args):
        text = "the toolkit's repository is written on apt hosts only: here its packages must be on offer already"
        said.append(context.result("message", text))
    why = _held_back(args, facts, answers, context)
    if why:
        text = f"needs leave to restart Docker: {why}"
        said.append(context.result("pending", text, remedy=context.disrupt_command))
    elif _mode(args, facts, answers) == "cdi" and not _driver_comes(facts, context):
        text = (
            f"the CDI specification waits for the driver, and that for leave ({', '.join(context.held_back)})"
        )
        said.append(context.result("pending", text, remedy=context.disrupt_command))
    if without_systemd(facts) and _settings(args, facts, answers):
        said.append(no_systemd(context))
    return [*said, *restart_disturbs(_restart_causes(args, facts, answers), facts, context)]


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """Repository, removal of what came before, packages, daemon.json, the engine, the CDI specification."""
    if not nvidia_gpus(facts):
        return []
    made: list[Step] = []
    repository = _repository(args, facts, context) if _installs(args) else None
    if repository is not None:
        made.append(context.step("repository", "apt_repository", repository, deadline_s=PACKAGE_DEADLINE_S))
    if _held_back(args, facts, answers, context):
        return made
    settings = _settings(args, facts, answers)
    kept = None
    if _installs(args):
        made += _package_steps(args, facts, answers, context)
        # rpm moves the daemon.json of nvidia-docker2 aside when that goes: what stood there is written again.
        kept = fact(facts, "engine.daemon_json.parsed") if _replaced(facts) else None
    if settings:
        merged = _laid_over(kept, settings) if kept else settings
        made += [directory_step(context), settings_step(merged, context, validates=_validates(args, facts))]
        made += _engine_steps(settings, facts, context)
    if _mode(args, facts, answers) == "cdi" and _driver_comes(facts, context):
        made.append(_cdi_step(args, facts, context))
    return made


def _installs(args: Json) -> bool:
    """Whether the toolkit's packages are fleet's business."""
    return bool(args["source"] != "preinstalled")


def _replaced(facts: Facts) -> list[str]:
    """Packages that the toolkit took the place of."""
    return [name for name in toolkit_repository().replaced_packages if installed_version(facts, name)]


def _package_steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    made = []
    replaced = _replaced(facts)
    if replaced:
        names = [{"name": name} for name in replaced]
        made.append(package_step(names, {}, context, removal=True, part="replaced"))
    return [*made, _packages_step(args, facts, answers, context)]


def _cdi_step(args: Json, facts: Facts, context: Context) -> Step:
    """The specification, of whatever driver is loaded when the step's turn comes: an earlier step may change it.

    Where nothing could make one, one of the loaded driver that lies elsewhere is the one to be held to it.
    """
    path = SPECIFICATION
    if not _installs(args) and args["cdi_command"] is None:
        loaded = fact(facts, "driver.loaded.version")
        specifications = fact(facts, "container_toolkit.cdi.specifications") or ()
        of_it = [
            str(one["path"])
            for one in specifications
            if one.get("kind") == "nvidia.com/gpu" and loaded and one.get("driver_version") == loaded
        ]
        path = next(iter(of_it), path) if SPECIFICATION not in of_it else path
    wanted = {"path": path, "command": list(args["cdi_command"] or GENERATOR), "driver_version": None}
    return context.step("cdi", "cdi_specification", wanted, deadline_s=CDI_DEADLINE_S)


def _impossible(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """Why this cannot be done on this host at all; each stops it before anything is touched."""
    broken = unreadable(facts, context)
    if broken is not None:
        return [broken]
    unfit = None if _installs(args) else _unfit(args, facts, answers)
    if unfit is not None:
        return [context.result("failed", unfit[0], remedy=unfit[1], stops=True)]
    for name in [] if _is_dnf(facts) or not _installs(args) else _outdated(args, facts):
        offered = (answers.get("versions") or {}).get(name, [])
        if matching(args["version"], offered) is None:
            return [pin_refused(name, args["version"], offered, context)]
    version = _engine_version(args, facts, answers)
    if args["mode"] == "cdi" and version is not None and version < feature_since("cdi_opt_in"):
        text = f"mode: cdi needs Docker {feature_since('cdi_opt_in')}, and this host's is {version}"
        return [context.result("failed", text, remedy="write mode: auto, or upgrade the engine", stops=True)]
    for number, path in enumerate(_legacy_lists(facts) if _installs(args) else ()):
        content = (answers.get(f"list.{number}") or {}).get("content") or ""
        others = [url for url in _uris(content) if not _same(url, args)]
        if others or not path.startswith("/etc/apt/sources.list.d/"):
            what = f"it also names {others[0]}" if others else "it is not fleet's to remove"
            text = f"{path} has an old entry of NVIDIA's container repository, and {what}"
            remedy = f"take NVIDIA's lines out of {path} by hand and run again"
            return [context.result("failed", text, remedy=remedy, stops=True)]
    return []


def _unfit(args: Json, facts: Facts, answers: Answers) -> tuple[str, str] | None:
    """Why a toolkit that is said to be there already cannot do what is asked of it, and what to do."""
    here, wanted = fact(facts, "container_toolkit.version"), args["version"]
    reinstall = "have whoever installs the toolkit here install it, or set source: nvidia"
    installed = [here, *(fact(facts, "container_toolkit.packages") or {}).values()]
    if wanted is not None and matching(wanted, installed) is None:
        return (
            f"version_mismatch: container toolkit {here or '(none)'} is here, {wanted} is wanted",
            reinstall,
        )
    if args["default_runtime"] and not fact(facts, "container_toolkit.runtime"):
        return f"no_runtime: default_runtime, and there is no {RUNTIME} on this host", reinstall
    if _mode(args, facts, answers) == "runtime_hook" and not fact(facts, "container_toolkit.runtime_hook"):
        what = f"no_hook: GPUs by the engine's hook, and there is no {HOOK.rpartition('/')[2]} on this host"
        return what, f"{reinstall}; or set mode: cdi, with Docker {feature_since('cdi_opt_in')} or newer"
    return None


def _is_dnf(facts: Facts) -> bool:
    """A host of which neither a repository can be written nor versions asked; pins go to dnf as they are."""
    return bool(fact(facts, "packages.manager") == "dnf")


def _legacy_lists(facts: Facts) -> list[str]:
    """Source lists of apt that must go and are not among those known by name."""
    known = toolkit_repository().list_files
    found = [] if _is_dnf(facts) else fact(facts, "container_toolkit.legacy_sources") or []
    return [str(path) for path in found if path not in known]


def _uris(content: str) -> list[str]:
    lines = [line.split("#", 1)[0] for line in content.splitlines()]
    return [url for line in lines for url in _URL.findall(line)]


def _same(url: str, args: Json) -> bool:
    """Whether an address is this repository's, or of one that it took the place of."""
    own = args["repository"].get("base_url")
    return any(part in url for part in (*toolkit_repository().same_as, *([own] if own else [])))


def _repository(args: Json, facts: Facts, context: Context) -> Json | None:
    """NVIDIA's repository or the site's copy as an ``apt_repository``; None where the toolkit is there already
    and the site says nothing of where it comes from."""
    upstream, site = toolkit_repository(), args["repository"]
    if _is_dnf(facts) or (not any(site.values()) and _installed(args, facts)):
        return None
    if not site.get("base_url") and not context.public_internet:
        message = "public_internet is false here; name the site's copy of NVIDIA's repository: base_url in repository"
        raise ArgumentProblem(message, "repository")
    machine = str(fact(facts, "kernel.architecture"))
    base_url = str(site.get("base_url") or upstream.base_url).rstrip("/")
    return {
        "name": "nvidia-container-toolkit",
        "uris": [f"{base_url}/{_ARCHITECTURES.get(machine, machine)}"],
        "suites": ["/"],
        "components": [],
        "architectures": None,
        "trusted": bool(site.get("trusted", False)),
        "options": {},
        "state": "present",
        "replaces": [*upstream.list_files, *_legacy_lists(facts)],
        "key": repository_key.key(site, upstream.key_below(base_url), upstream.key_fingerprint, context),
    }


def _packages_step(args: Json, facts: Facts, answers: Answers, context: Context) -> Step:
    names: list[Json] = []
    for name in toolkit_repository().packages:
        wanted: Json = {"name": name}
        if args["version"] is not None:
            offered = [installed_version(facts, name), *(answers.get("versions") or {}).get(name, [])]
            wanted["version"] = matching(args["version"], offered) or args["version"]
        names.append(wanted)
    step = package_step(names, {"hold": args["hold"]}, context)
    step["args"]["brings"] = [HOOK]
    return step


def _outdated(args: Json, facts: Facts) -> list[str]:
    """Packages that are not there in the pinned version; none without a pin."""
    pin = args["version"]
    names = toolkit_repository().packages if pin is not None else ()
    return [name for name in names if matching(pin, [installed_version(facts, name)]) is None]


def _installed(args: Json, facts: Facts) -> bool:
    there = all(installed_version(facts, name) for name in toolkit_repository().packages)
    return there and not _outdated(args, facts)


def _mode(args: Json, facts: Facts, answers: Answers) -> str:
    """``runtime_hook`` or ``cdi``. An engine reads specifications of version 0.7 from a later release on than
    it has CDI; which version the toolkit writes is known where it is pinned below the first that writes 0.7.
    Without a hook CDI is the only way."""
    if args["mode"] != "auto":
        return str(args["mode"])
    version, toolkit = _engine_version(args, facts, answers), upstream_version(args["version"])
    old = toolkit is not None and toolkit < cdi_0_7_since()
    old = old or not (_installs(args) or fact(facts, "container_toolkit.runtime_hook"))
    needed = feature_since("cdi_opt_in" if old else "cdi_spec_0_7")
    return "cdi" if version is not None and version >= needed else "runtime_hook"


def _engine_version(args: Json, facts: Facts, answers: Answers) -> Version | None:
    """The engine's version; of one that an earlier task installs, the version it will have."""
    if engine_present(facts):
        return engine_version(facts)
    pinned = upstream_version(args["engine"].get("version"))
    if pinned is not None:
        return pinned
    if _engine_to_come(args, facts) is None:
        return feature_since("gpus_by_cdi")  # Docker's own, and whatever is newest there
    offered = [version for versions in (answers.get("engine") or {}).values() for version in versions]
    return upstream_version(offered[0]) if offered else None


def _engine_to_come(args: Json, facts: Facts) -> str | None:
    """The distribution's package of an engine that is not there yet and whose version must be asked for; None
    also where the distribution has none, so that it can only be Docker's own."""
    given = args["engine"].get("version") or args["engine"].get("source") == "docker"
    if engine_present(facts) or given:
        return None
    known = distribution_packages(*releases(facts))
    return known.versioned[0] if known is not None else None


def _settings(args: Json, facts: Facts, answers: Answers) -> Json:
    """What is merged into daemon.json. The runtime's entry is taken over as it is where it means the same."""
    now = fact(facts, "engine.daemon_json.parsed.runtimes.nvidia.path")
    path = now if now in (RUNTIME, f"/usr/bin/{RUNTIME}") else RUNTIME
    settings: Json = {}
    if _installs(args) or fact(facts, "container_toolkit.runtime"):
        settings["runtimes"] = {"nvidia": {"path": path}}
    if args["default_runtime"]:
        settings["default-runtime"] = "nvidia"
    if _mode(args, facts, answers) == "cdi" and _opts_in(args, facts, answers):
        settings["features"] = {"cdi": True}
    return settings


def _laid_over(now: Any, wanted: Any) -> Any:
    """``wanted`` merged into ``now``, as the ``json_file`` resource does it."""
    if not (isinstance(now, dict) and isinstance(wanted, dict)):
        return wanted
    return {**now, **{key: _laid_over(now.get(key), value) for key, value in wanted.items()}}


def _opts_in(args: Json, facts: Facts, answers: Answers) -> bool:
    """Whether this engine has CDI only where daemon.json says so."""
    version = _engine_version(args, facts, answers)
    return version is None or version < feature_since("cdi_default")


def _validates(args: Json, facts: Facts) -> bool:
    """Whether the engine can judge a new daemon.json: where the programs of a preinstalled one lie is not known."""
    if args["engine"].get("source") == "preinstalled":
        return False
    version = engine_version(facts) if engine_present(facts) else None
    return version is not None and version >= feature_since("validate")


def _engine_steps(settings: Json, facts: Facts, context: Context) -> list[Step]:
    """The engine knows the hook and its settings: by a reload where that applies them, by a restart where not.

    In both modes ``docker run --gpus`` shall work. But a restart that nothing demands now and that others would
    notice is left out: whether the engine is older than the hook cannot be told from facts, and an upgraded hook
    needs none.
    """
    present = engine_present(facts)
    permitted = restart_permitted(facts, context) or without_systemd(facts)
    reload = present and reload_is_enough(settings, facts)
    made = []
    if permitted:
        reflects = [HOOK] if reload else [HOOK, DAEMON_JSON]
        restart = _cdi_is_off(settings, facts)
        made.append(service_step(facts, context, reflects=reflects, restart=restart, disruptive=present))
    if reload:
        made.append(service_step(facts, context, part="reload", reflects=[DAEMON_JSON], reload=True))
    return made


def _cdi_is_off(settings: Json, facts: Facts) -> bool:
    """daemon.json asks for CDI, and the engine that runs has none: it was not restarted since."""
    asks = "features" in settings and not fixed_keys({"features": settings["features"]}, facts)
    return asks and fact(facts, "engine.cdi") is False


def _held_back(args: Json, facts: Facts, answers: Answers, context: Context) -> str | None:
    """Why the engine may not be restarted though it must be; None where it may or need not."""
    return restart_refused(_restart_causes(args, facts, answers), facts, context)


def _restart_causes(args: Json, facts: Facts, answers: Answers) -> list[str]:
    if not engine_present(facts) or without_systemd(facts):
        return []
    causes = []
    settings = _settings(args, facts, answers)
    if _mode(args, facts, answers) == "runtime_hook" and not fact(facts, "container_toolkit.runtime_hook"):
        causes.append("Docker looks for the toolkit's hook only when it starts")
    fixed = fixed_keys(settings, facts)
    if fixed:
        causes.append(f'engine setting "{fixed[0]}" cannot be reloaded')
    elif _cdi_is_off(settings, facts):
        causes.append("Docker was not restarted since CDI was switched on")
    return causes


def _driver_comes(facts: Facts, context: Context) -> bool:
    """Whether a driver is loaded, or nothing before this waits for leave and so keeps one from it."""
    return fact(facts, "driver.loaded") is not None or not context.held_back
