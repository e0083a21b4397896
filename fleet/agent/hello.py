"""The first message of a session: who this host is. Reads files only, and imports next to nothing.

The Python of a host may be a cut-down one (Debian's python3-minimal has no json): :func:`missing_modules`
is asked before anything else is imported, and :func:`minimal_hello` needs no json to say so.
"""

from __future__ import annotations

import os
import sys
import time

from fleet import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.machine import Machine
    from fleet.agent.paths import Paths
    from fleet.agent.protocol import Json

# Everything fleet.agent imports that some distribution packages apart from its smallest Python.
NEEDED_MODULES = (
    "base64",
    "codecs",
    "compileall",
    "contextlib",
    "ctypes",
    "datetime",
    "fcntl",
    "fnmatch",
    "grp",
    "hashlib",
    "json",
    "pwd",
    "queue",
    "re",
    "select",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "struct",
    "subprocess",
    "tempfile",
    "threading",
    "traceback",
    "urllib",
    "zipfile",
    "zlib",
)


def missing_modules() -> list[str]:
    """Those of :data:`NEEDED_MODULES` that this Python lacks, from two directory listings."""
    library = os.path.dirname(os.__file__)
    try:
        names = {name.partition(".")[0] for name in os.listdir(library)}
    except OSError:  # the library is an archive: ask the import system, which is slower
        return _missing_by_import()
    try:
        names.update(name.partition(".")[0] for name in os.listdir(library + "/lib-dynload"))
    except OSError:
        pass  # everything is built in
    names.update(sys.builtin_module_names)
    return [name for name in NEEDED_MODULES if name not in names]


def _missing_by_import() -> list[str]:
    import importlib.util

    return [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]


def minimal_hello(missing: list[str]) -> bytes:
    """The line of a hello for a Python without json. ``missing`` are plain identifiers."""
    modules = ",".join('"%s"' % name for name in missing)
    text = '{"type":"hello","protocol":1,"version":"%s","python":"%s",' % (__version__, _python_version())
    return ('%s"python_complete":false,"missing_modules":[%s]}\n' % (text, modules)).encode("ascii")


def make_hello(paths: Paths, machine: Machine, missing: list[str], *, bundle_on_disk: bool) -> Json:
    """The hello message, whole. Nothing is written."""
    from fleet.agent.lease import Lease
    from fleet.agent.protocol import PROTOCOL, SIMULATED_MARKER
    from fleet.agent.runs import open_runs

    lease = Lease(paths)
    readable = os.access(paths.state, os.R_OK | os.X_OK)  # not to a session that is not root
    held = lease.read() if readable else None
    return {
        "type": "hello",
        "protocol": PROTOCOL,
        "version": __version__,
        "python": _python_version(),
        "python_complete": not missing,
        "missing_modules": missing,
        "user": _user_name(os.geteuid()),
        "uid": os.geteuid(),
        "machine_id": _text("/etc/machine-id") or None,
        "boot_id": machine.boot_id() or None,
        "hostname": os.uname().nodename,
        "clock_unix": time.time(),
        "host_key_fingerprints": host_key_fingerprints("/etc/ssh"),
        "lease": None if held is None else dict(held, live=lease.worker_alive()),
        "open_runs": open_runs(paths) if readable else [],
        "bundle_on_disk": bundle_on_disk,
        "systemd": machine.systemd(),
        "simulated": os.path.exists(SIMULATED_MARKER),
    }


def host_key_fingerprints(folder: str) -> list[str]:
    """``SHA256:…`` of every public host key in ``folder``, as ssh-keygen -l prints them; sorted by file."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    keys = [name for name in names if name.startswith("ssh_host_") and name.endswith("_key.pub")]
    found = [_fingerprint(_text(folder + "/" + name)) for name in keys]
    return [fingerprint for fingerprint in found if fingerprint is not None]


def _fingerprint(line: str) -> Optional[str]:
    import binascii

    from fleet.agent.digest import sha256

    words = line.split()
    if len(words) < 2:
        return None
    try:
        digest = sha256(binascii.a2b_base64(words[1]))
    except ValueError:
        return None
    return "SHA256:" + binascii.b2a_base64(digest, newline=False).decode("ascii").rstrip("=")


def _user_name(uid: int) -> str:
    if uid == 0:
        return "root"
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read(65536).strip()
    except OSError:
        return ""


def _python_version() -> str:
    return "%d.%d.%d" % sys.version_info[:3]
