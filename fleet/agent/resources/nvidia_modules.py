"""NVIDIA's kernel modules in the running kernel: the wanted driver loaded, and none that has its GPUs.

Replacing a driver needs everybody off the GPUs. Services that may be stopped are, and are started again on
every path; anybody else's process ends the step ``pending`` before anything is stopped, naming it. What a
running kernel does not let go is left to a reboot where one may be planned. See :mod:`fleet.agent.driver`.
"""

from __future__ import annotations

from fleet.agent.driver import kernel_log, load, postponed, seen, unload
from fleet.agent.driver.services import Stopped, left_stopped
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    StepPending,
    difference,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

_REBOOT = "reboot the host when it is free (or set reboot: if_needed), then run again"


class NvidiaModules(Resource):
    """args: version and flavour (None: what the disk has for this kernel), load [modules], forbid [drivers],
    services [units that may be stopped meanwhile], remedy (the command that gives leave), and:

    ``may_unload``: modules may be unloaded, because nobody used the host when the plan was made, or with leave.
    Without it a step that would have to unload one is pending. With it, too, when somebody is on a GPU by now.
    ``leave`` (optional): somebody on a GPU does not matter. Nobody's process is ended, so what is left then
    is a reboot.
    ``defer_to_reboot``: a reboot may be planned. The step is then changed with ``reboot_required``
    registered, and differs until that reboot.
    """

    kind = "nvidia_modules"

    def read(self, host: Host, args: Json) -> Json:
        """{"loaded", "on_disk" (see :mod:`fleet.agent.driver.seen`), "absent": [of load], "forbidden": [those
        loaded], "unbound": [GPUs without a driver, though one is loaded], "left_stopped": [units]}."""
        loaded = seen.loaded(host)
        wanted = [seen.kernel_name(name) for name in args.get("load") or ()]
        return {
            "loaded": loaded,
            "on_disk": seen.on_disk(host, seen.running_kernel(host)),
            "absent": [name for name in wanted if not seen.is_loaded(host, name)],
            "forbidden": [name for name in args.get("forbid") or () if seen.is_loaded(host, name)],
            "unbound": [gpu["address"] for gpu in seen.gpus(host) if loaded and gpu["driver"] is None],
            "left_stopped": left_stopped(host),
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        found = [difference(name, "loaded", "unloaded") for name in state["forbidden"]]
        loaded = state["loaded"]
        version, flavour = _wanted(state, args)
        if loaded is None or _is_other(loaded, version, flavour):
            after = _words({"version": version or "any", "flavour": flavour})
            found.append(difference("loaded", _words(loaded) if loaded else None, after))
        found += [difference(name, "absent", "loaded") for name in state["absent"] if name != "nvidia"]
        found += [difference("GPU %s" % address, "no driver", "nvidia") for address in state["unbound"]]
        found += [difference(name, "stopped by fleet", "started") for name in state["left_stopped"]]
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`. Registers ``reboot_required`` where only a reboot can finish it."""
        state = self.read(host, args)
        version, flavour = _wanted(state, args)
        load.must_be_on_disk(host, seen.running_kernel(host), version, flavour)
        leaving = unload.order(host, _to_leave(state, args))
        services: List[str] = []
        if leaving:
            holders = seen.holders(host)
            services = unload.may_stop(holders, args.get("services") or ())
            why = _in_use(args, leaving, unload.in_use(holders, services))
            if why is not None:
                return _later(host, args, differences, why)
        try:
            with Stopped(host, services, report):
                _exchange(host, args, leaving, report)
        except unload.StillLoaded as still:
            return _later(host, args, differences, str(still))
        postponed.forget(host)
        self._verify(host, args)
        return None

    def _verify(self, host: Host, args: Json) -> None:
        """StepFailed with the kernel's reason where the driver is in, and not as wanted."""
        host.invalidate()
        left = self.diff(self.read(host, args), args)
        if not left:
            return
        problem = kernel_log.explain(kernel_log.read(host), seen.gpus(host))
        if problem is not None:
            raise StepFailed(problem["what"], problem["remedy"])
        raise StepFailed(
            "the driver is loaded, but still differs: %s" % ", ".join(entry["path"] for entry in left),
            "see what the kernel says: dmesg | grep -e NVRM -e nvidia",
        )

    def rereads(self, args: Json) -> bool:
        """A change left to a reboot still differs; what else may be left :meth:`apply` looks for itself."""
        return not args.get("defer_to_reboot")

    def provides(self, args: Json) -> Provides:
        """The modules."""
        return Provides(modules=["nvidia", *(seen.kernel_name(name) for name in args.get("load") or ())])

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """Packages to come bring the modules, and their scripts may load them. What is loaded now they
        leave in place."""
        if not provided.get("packages"):
            return None
        certain = any(entry["path"] == "loaded" and entry["before"] is not None for entry in differences)
        return None if certain and args.get("version") is not None else KNOWN_AFTER_APPLY


def _wanted(state: Json, args: Json) -> List[Optional[str]]:
    """[version, flavour] to have loaded: those asked for, else the version on the disk and any flavour."""
    on_disk = state["on_disk"] or {}
    return [args.get("version") or on_disk.get("version"), args.get("flavour")]


def _is_other(loaded: Json, version: Optional[str], flavour: Optional[str]) -> bool:
    if version is not None and loaded["version"] != version:
        return True
    return None not in (flavour, loaded.get("flavour")) and loaded["flavour"] != flavour


def _words(driver: Json) -> str:
    return (
        "%s (%s)" % (driver["version"], driver["flavour"])
        if driver.get("flavour")
        else str(driver["version"])
    )


def _to_leave(state: Json, args: Json) -> List[str]:
    """The drivers that must leave the kernel first."""
    leaving = list(state["forbidden"])
    if state["loaded"] is not None and _is_other(state["loaded"], *_wanted(state, args)):
        leaving.append("nvidia")
    return leaving


def _in_use(args: Json, leaving: List[str], users: List[Json]) -> Optional[str]:
    """None when the modules may go and nobody is in the way; with leave, why unloading is in vain.
    StepPending otherwise: nothing has been stopped then."""
    what = "GPUs of this host are in use by %s" % unload.words(users) if users else None
    if args.get("may_unload") and (what is None or args.get("leave")):
        return what
    what = what or "%s would have to be unloaded" % ", ".join(leaving)
    raise StepPending(
        what + ": the driver is not replaced meanwhile",
        args.get("remedy") or "wait until they have ended, then run again",
    )


def _exchange(host: Host, args: Json, leaving: List[str], report: Reporter) -> None:
    """Unload, then load; the services are stopped. StillLoaded before anything is unloaded, if possible."""
    wanted = [seen.kernel_name(name) for name in args.get("load") or ()]
    if leaving:
        why = _in_use(args, leaving, seen.holders(host)) or unload.unnamed(host, leaving)
        if why is not None:
            raise unload.StillLoaded(why)
        try:
            unload.take_out(host, leaving, report)
        except unload.StillLoaded:
            _put_back(host, leaving, report)
            raise
    for name in ["nvidia", *wanted]:
        if not seen.is_loaded(host, name):
            load.modprobe(host, name, report)
    _put_back(host, [name for name in leaving if name not in unload.RIVALS], report)


def _put_back(host: Host, names: List[str], report: Reporter) -> None:
    """Load again what was loaded before, as far as the disk still has it: nothing depends on success."""
    for name in reversed(names):
        if not seen.is_loaded(host, name):
            host.run(
                ["modprobe", name], deadline_s=load.DEADLINE_S, on_output=report.output, cancellable=False
            )


def _later(host: Host, args: Json, differences: List[Difference], why: str) -> Json:
    """The running kernel keeps the old driver: plan a reboot where that is allowed, else wait for one."""
    if args.get("defer_to_reboot"):
        return postponed.plan_reboot(host, differences, why)
    raise StepPending("%s: the old driver stays loaded until a reboot" % why, _REBOOT)


RESOURCE = NvidiaModules()
