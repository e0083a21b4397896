"""What people see of a step: its task's name, and what of the task it is where that is not the whole of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from posixpath import basename
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

LONGEST = 60
_FILES = ("file", "json_file", "line", "link")
# What a step of this kind is about needs no argument.
_SAYS_ITSELF = {
    "agent_bundle": "its bundle",
    "benchmark": "benchmarks",
    "cdi_specification": "CDI specification",
    "container_check": "GPUs in a container",
    "engine_process": "the engine",
    "gpus_unused": "nobody is at work on a GPU",
    "initramfs": "initramfs",
    "nvidia_modules": "kernel modules",
}
# The argument that names the thing, and the word for it, by kind of resource.
_NAMED = {
    "apt_repository": ("name", "repository "),
    "container": ("name", "container "),
    "directory": ("path", "folder "),
    "group": ("name", "group "),
    "image": ("reference", "image "),
    "kernel_module": ("name", "module "),
    "registry_login": ("registry", "login to "),
    "service": ("name", "service "),
    "sysctl": ("name", "sysctl "),
    "systemd_unit": ("name", "unit "),
    "user": ("name", "user "),
}


def label(steps: Sequence[Step], *, named: bool) -> None:
    """Make ``task`` of each of one task's steps say which it is, no two alike.

    The only step of a task that has a name of its own keeps that name. Several steps get
    ``Docker Engine: service docker``; the step of a task without a name, ``copy: /etc/motd``.
    """
    if named and len(steps) == 1:
        return
    often = Counter(_what(step, named) for step in steps)
    for step in steps:
        what, part = _what(step, named), step["id"].rpartition(".")[2]
        if often[what] > 1:
            what = f"{what} ({part})".lstrip()
        if what:
            step["task"] = f"{step['task']}: {what}"


def _what(step: Step, named: bool) -> str:
    """The thing a step is about; "" where the kind of step says it all (reboot)."""
    kind, args = step["resource"], step["args"]
    if kind in _FILES:
        path = _text(args["path"])
        return basename(path) if named else path
    if kind == "package":
        return _packages([_text(entry["name"]) for entry in args["names"]], named)
    if kind == "command":
        argv = args.get("argv")
        return _text(argv[0] if argv else args.get("shell"))
    if kind in _SAYS_ITSELF:
        return _SAYS_ITSELF[kind]
    if kind not in _NAMED:
        return ""
    argument, word = _NAMED[kind]
    thing = _text(args[argument])
    return word + thing if named else thing


def _packages(names: list[str], named: bool) -> str:
    shown = ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"
    return f"packages {shown}" if named else shown


def _text(value: Any) -> str:
    """One line of at most :data:`LONGEST` characters; a secret's text is its mask."""
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
