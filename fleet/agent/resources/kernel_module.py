"""A kernel module: loaded or not now, loaded at boot, kept from loading, with which options.

What is loaded is read from /sys/module. A blacklist takes effect in the initramfs only once that is
rebuilt, which is the business of the module that asks for it, not of this resource.
"""

from __future__ import annotations

import os

from fleet.agent import files
from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
    expect,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

BUILTIN = "builtin"
LOADED = "loaded"
ABSENT = "absent"


class KernelModule(Resource):
    """args: name, state loaded|absent|None, persist (load at boot), blacklist, options.

    ``persist`` owns /etc/modules-load.d/fleet-NAME.conf; ``blacklist`` and ``options`` own
    /etc/modprobe.d/fleet-NAME.conf: both go when nothing asks for them any more.
    """

    kind = "kernel_module"

    def read(self, host: Host, args: Json) -> Json:
        """{"now": loaded|builtin|absent, "persist": text, "modprobe": text}, texts None where absent."""
        name = args["name"]
        return {
            "now": _now(host, name),
            "persist": files.read_text(host, _persist_file(name)),
            "modprobe": files.read_text(host, _modprobe_file(name)),
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        name, wanted = args["name"], args.get("state")
        found = [
            difference(path, state[key], text)
            for key, path, text in (
                ("persist", _persist_file(name), _persist_text(args)),
                ("modprobe", _modprobe_file(name), _modprobe_text(args)),
            )
            if state[key] != text
        ]
        if (wanted == LOADED and state["now"] == ABSENT) or (wanted == ABSENT and state["now"] != ABSENT):
            found.append(difference("state", state["now"], wanted))
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Files first, so that modprobe finds the options."""
        for entry in differences:
            if entry["path"] == "state":
                continue
            if entry["after"] is None:
                files.remove(host, entry["path"])
            else:
                files.replace(host, entry["path"], entry["after"].encode(), {"mode": "0644"})
        for entry in differences:
            if entry["path"] == "state":
                _load_or_unload(host, args["name"], entry, report)
        return None

    def provides(self, args: Json) -> Provides:
        """Its two files."""
        return Provides(files=[_persist_file(args["name"]), _modprobe_file(args["name"])])

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """A package to come may bring the module and load it."""
        if args.get("state") is None or not provided.get("packages"):
            return super().outlook(args, differences, provided)
        files_differ = any(entry["path"] != "state" for entry in differences)
        return WOULD_CHANGE if files_differ else KNOWN_AFTER_APPLY


def _kernel_name(name: str) -> str:
    return name.replace("-", "_")


def _persist_file(name: str) -> str:
    return "/etc/modules-load.d/fleet-%s.conf" % name


def _modprobe_file(name: str) -> str:
    return "/etc/modprobe.d/fleet-%s.conf" % name


def _persist_text(args: Json) -> Optional[str]:
    return args["name"] + "\n" if args.get("persist") else None


def _modprobe_text(args: Json) -> Optional[str]:
    lines = []
    if args.get("blacklist"):
        lines.append("blacklist %s\n" % args["name"])
    if args.get("options"):
        lines.append("options %s %s\n" % (args["name"], args["options"]))
    return "".join(lines) or None


def _now(host: Host, name: str) -> str:
    """Loaded modules have an ``initstate``; a folder without one belongs to a part of the kernel itself."""
    folder = host.path("/sys/module/" + _kernel_name(name))
    try:
        with open(folder + "/initstate", encoding="ascii") as file:
            return LOADED if file.read().strip() == "live" else ABSENT
    except OSError:
        if os.path.isdir(folder) or _listed_builtin(host, name):
            return BUILTIN
    try:
        with open(host.path("/proc/modules"), encoding="ascii", errors="replace") as file:
            loaded = any(line.split(" ", 1)[0] == _kernel_name(name) for line in file)
    except OSError:
        return ABSENT
    return LOADED if loaded else ABSENT


def _listed_builtin(host: Host, name: str) -> bool:
    """Whether the running kernel lists it as built in (those without parameters have no folder)."""
    try:
        with open(host.path("/proc/sys/kernel/osrelease"), encoding="ascii") as file:
            release = file.read().strip()
        with open(host.path("/lib/modules/%s/modules.builtin" % release), encoding="utf-8") as file:
            names = (os.path.basename(line.strip()).split(".ko")[0] for line in file)
            return any(_kernel_name(one) == _kernel_name(name) for one in names)
    except OSError:
        return False


def _load_or_unload(host: Host, name: str, entry: Difference, report: Reporter) -> None:
    if entry["after"] == LOADED:
        remedy = (
            "see what the kernel says: dmesg | tail; is there a module for this kernel: modinfo %s" % name
        )
        expect(host.run(["modprobe", name], on_output=report.output), "modprobe " + name, remedy)
        return
    if entry["before"] == BUILTIN:
        raise StepFailed(
            "%s is built into this kernel and cannot be unloaded" % name,
            "leave out the state; a kernel parameter may switch it off at boot",
        )
    folder = host.path("/sys/module/" + _kernel_name(name))
    users = sorted(os.listdir(folder + "/holders")) if os.path.isdir(folder + "/holders") else []
    remedy = "see who uses it: lsmod | grep ^%s; lsof /dev/*" % _kernel_name(name)
    if users:
        remedy = "these modules use it, unload them first: " + ", ".join(users)
    argv = ["modprobe", "--remove", name]
    expect(host.run(argv, on_output=report.output), "unloading the module " + name, remedy)


RESOURCE = KernelModule()
