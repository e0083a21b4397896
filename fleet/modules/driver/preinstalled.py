"""``nvidia_driver`` with ``source: preinstalled``: whoever made the host installed the driver; it is checked.

Nothing is installed, held or restarted. The loaded module, the library and, where there are NVSwitches, the fabric
manager must be of one version, and of the wanted one where it is named. Modules are loaded only where none is.
"""

from __future__ import annotations

from typing import Any

from fleet.audit.facts import fact
from fleet.modules.base import Context, ControllerResult, Facts, Json

_REINSTALL = "have whoever installs drivers here make them one version, and reboot; or set source: nvidia"


def results(args: Json, facts: Facts, context: Context) -> list[ControllerResult]:
    """``ok``, or ``failed`` with what does not agree."""
    found = disagreement(args, facts)
    if found is not None:
        what, remedy = found
        return [context.result("failed", what, remedy=remedy, stops=True)]
    loaded = fact(facts, "driver.loaded")
    if loaded is None:
        return []
    flavour = f" ({loaded['flavour']} kernel modules)" if loaded.get("flavour") else ""
    return [
        context.result(
            "ok", f"driver {loaded['version']}{flavour} is loaded, as its library and the arguments say"
        )
    ]


def to_load(facts: Facts) -> tuple[str | None, str | None] | None:
    """(version, flavour) of the module on disk for the running kernel, where none is loaded; else None."""
    if fact(facts, "driver.loaded") is not None:
        return None
    module = _on_disk(facts)
    return (module.get("version"), module.get("flavour")) if module is not None else None


def disagreement(args: Json, facts: Facts) -> tuple[str, str] | None:
    """What is wrong with the driver that is here, and what to do; None where all agree."""
    loaded, library = fact(facts, "driver.loaded"), fact(facts, "driver.library_version")
    kernel = fact(facts, "kernel.release")
    module = loaded or _on_disk(facts)
    if module is None:
        what = f"no_driver: no NVIDIA module is loaded, and there is none for the running kernel {kernel}"
        return what, "source: preinstalled only checks; install the driver, or set source: nvidia"
    version, flavour = module.get("version"), module.get("flavour")
    if library is None:
        what = f"no_library: the driver's module is {version}, and libnvidia-ml.so.1 is not installed"
        return what, _REINSTALL
    if version != library:
        word = "loaded" if loaded is not None else f"on disk for {kernel}"
        what = (
            f"library_mismatch: the module {word} is {version}, libnvidia-ml is {library}{_changed_by(facts)}"
        )
        return what, "reboot when the host may be; then NVML and the module are one version again"
    return _not_wanted(args, str(version), flavour) or _fabric(args, facts, str(version))


def _not_wanted(args: Json, version: str, flavour: Any) -> tuple[str, str] | None:
    if args["version"] is not None and version != args["version"]:
        return f"version_mismatch: driver {version} is here, {args['version']} is wanted", _REINSTALL
    if args["branch"] is not None and version.partition(".")[0] != args["branch"]:
        return f"version_mismatch: driver {version} is here, branch {args['branch']} is wanted", _REINSTALL
    if args["modules"] != "auto" and flavour is not None and flavour != args["modules"]:
        what = f"flavour_mismatch: the {flavour} kernel modules are here, {args['modules']} ones are wanted"
        return what, _REINSTALL
    return None


def _fabric(args: Json, facts: Facts, version: str) -> tuple[str, str] | None:
    """Of another version the fabric manager does not start, and CUDA fails with error 802."""
    manager = fact(facts, "driver.fabric_manager.version")
    if args["fabric_manager"] == "absent" or not fact(facts, "nvswitches") or manager in (None, version):
        return None
    return f"fabricmanager_mismatch: the fabric manager is {manager}, the driver {version}", _REINSTALL


def _on_disk(facts: Facts) -> Json | None:
    for kernel in fact(facts, "driver.kernels") or ():
        if kernel.get("running"):
            return next((one for one in kernel.get("modules") or () if one.get("name") == "nvidia"), None)
    return None


def _changed_by(facts: Facts) -> str:
    change = fact(facts, "driver.changed_by")
    return f" (changed by {change['command']} at {change['at']})" if change else ""
