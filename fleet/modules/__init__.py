"""The modules: one file per word of a playbook, loaded when first used.

:func:`load` gives a :class:`~fleet.modules.base.Module` by any name it goes by (``copy``,
``ansible.builtin.copy``, ``systemd``). How to write one: :mod:`fleet.modules.base`.
"""

from __future__ import annotations

import importlib
from functools import cache

from fleet.modules.base import (
    Module,
    no_check,
    no_needs,
    no_proxies,
    no_results,
    no_steps,
)

# Word in a playbook -> file of this package. Several words may mean one module.
_FILES = {
    "agent": "agent",
    "apt": "apt",
    "apt_repository": "apt_repository",
    "assert": "assert_",
    "benchmark": "benchmark",
    "command": "command",
    "container": "container",
    "container_check": "container_check",
    "container_toolkit": "container_toolkit",
    "copy": "copy",
    "deb822_repository": "apt_repository",
    "debug": "debug",
    "docker_engine": "docker_engine",
    "facts_report": "facts_report",
    "fail": "fail",
    "file": "file",
    "group": "group",
    "image": "image",
    "kernel_module": "kernel_module",
    "lineinfile": "lineinfile",
    "modprobe": "kernel_module",
    "nvidia_driver": "nvidia_driver",
    "package": "package",
    "preflight": "preflight",
    "proxy": "proxy",
    "reboot": "reboot",
    "registry_login": "registry_login",
    "service": "service",
    "set_fact": "set_fact",
    "shell": "shell",
    "sysctl": "sysctl",
    "systemd": "service",
    "systemd_service": "service",
    "systemd_unit": "systemd_unit",
    "template": "template",
    "user": "user",
}
_PREFIXES = ("ansible.builtin.", "ansible.legacy.", "ansible.posix.", "community.general.", "fleet.")

# Words of Ansible that people will try, and what to write instead.
ELSEWHERE = {
    "dnf": "write package:",
    "yum": "write package:",
    "blockinfile": "write copy: or template: for the whole file, or lineinfile: for one line",
    "replace": "write lineinfile: or template:",
    "get_url": "write command: with creates:, or copy: a file from the controller",
    "uri": "write command: with changed_when: false",
    "stat": "conditions on facts are evaluated on the controller; command: has creates: and removes:",
    "setup": "facts are always gathered",
    "gather_facts": "facts are gathered before each segment; gather_facts: false belongs to the play",
    "apt_key": "write apt_repository: with key_url: and key_fingerprint: (apt-key is gone from current distributions)",
    "include_tasks": "a playbook is one file",
    "import_tasks": "a playbook is one file",
    "include_role": "roles are not supported",
    "import_role": "roles are not supported",
    "raw": "write command: or shell:",
    "script": "copy: the script, then command: it",
    "pause": "fleet never waits without a condition",
    "wait_for": "write command: with a test, or let the service declare what it reflects",
}


def short_name(name: str) -> str:
    """``ansible.builtin.copy`` and ``copy`` are the same word."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def known_names() -> list[str]:
    """Every word that names a module, sorted."""
    return sorted(_FILES)


def is_module(name: str) -> bool:
    """Whether ``name`` is a word that :func:`load` takes."""
    return short_name(name) in _FILES


@cache
def load(name: str) -> Module:
    """The module that ``name`` means. Raises KeyError for a word that is none."""
    file = _FILES[short_name(name)]
    code = importlib.import_module(f"fleet.modules.{file}")
    return Module(
        name=file.rstrip("_"),
        arguments=code.ARGUMENTS,
        needs=getattr(code, "needs", no_needs),
        steps=getattr(code, "steps", no_steps),
        results=getattr(code, "results", no_results),
        check=getattr(code, "check", no_check),
        proxies=getattr(code, "proxies", no_proxies),
        free_form=getattr(code, "FREE_FORM", None),
        ends_segment=getattr(code, "ENDS_SEGMENT", False),
        any_arguments=getattr(code, "ANY_ARGUMENTS", False),
        reads_facts=getattr(code, "READS_FACTS", False),
        decides=getattr(code, "DECIDES", not hasattr(code, "steps")),
    )
