"""No Python the agent can run on: what is missing, and the distribution's command for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.core.errors import PythonMissing
from fleet.transport.text import printable

# By /etc/os-release ID or ID_LIKE. The first word that is known decides.
_COMMANDS = {
    "debian": "apt-get install -y python3",
    "ubuntu": "apt-get install -y python3",
    "rhel": "dnf install -y python3.11",
    "centos": "dnf install -y python3.11",
    "fedora": "dnf install -y python3",
    "suse": "zypper --non-interactive install python311",
    "opensuse": "zypper --non-interactive install python311",
    "sles": "zypper --non-interactive install python311",
    "alpine": "apk add python3",
    "arch": "pacman -S --noconfirm python",
}


def install_command(distribution: Sequence[str]) -> str | None:
    """The command that installs a Python on one of ``distribution`` (ID, then ID_LIKE words)."""
    return next((_COMMANDS[word] for word in distribution if word in _COMMANDS), None)


def refresh_command(command: str) -> str | None:
    """The command that refreshes the package lists ``command`` works from, where that is separate."""
    return "apt-get update" if command.startswith("apt-get ") else None


def python_missing(
    distribution: Sequence[str], unfit: Sequence[tuple[str, str, str]], asked: str | None = None
) -> PythonMissing:
    """The error for a host of ``distribution`` with ``unfit`` Pythons: (why, version, path) each.

    ``why`` is ``old`` or ``lacks:module,module``.
    """
    found = [_describe(*one) for one in unfit]
    what = "no Python 3.9 or later" + (f": {'; '.join(found)}" if found else " was found")
    if asked and not unfit:
        what = f"there is no {asked}, which ansible_python_interpreter asks for"
    if unfit and all(why.startswith("lacks:") for why, _, _ in unfit):
        what = f"its Python is incomplete: {'; '.join(found)}"
    command = install_command(distribution)
    remedy = (
        f"on the host: {command} (or run again with --install-python), or set ansible_python_interpreter"
        if command
        else "install Python 3.9 or later on the host, or set ansible_python_interpreter to one"
    )
    return PythonMissing(what, remedy=remedy)


def _describe(why: str, version: str, path: str) -> str:
    where = printable(f"{path} is {version}", 120)
    if why.startswith("lacks:"):
        modules = printable(why[len("lacks:") :].replace(",", ", "), 160)
        return f"{where} and lacks the modules {modules} (python3-minimal instead of python3?)"
    return where
