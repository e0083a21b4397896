"""Why a DKMS build failed: the package manager's output and make.log, read.

A build fails inside a package's own script, so all that apt knows is an exit code. The short cause stands in
make.log, whose path the output names. Pure functions but for :func:`failure`, which reads that file.
"""

from __future__ import annotations

import re

from fleet.agent import files

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

_BAD_STATUS = re.compile(r"Bad return status for module build on kernel: (\S+)(?: \((\S+)\))?")
_CONSULT = re.compile(r"(/\S*/dkms/([^/\s]+)/([^/\s]+)/\S*make\.log)")
_NO_HEADERS = re.compile(r"Your kernel headers for kernel (\S+) cannot be found")
_LEFT = re.compile(r"Errors were encountered while processing:\n((?: \S+\n?)+)")

_BUILT_BY = re.compile(r"The kernel was built by:\s*(.+)")
_USING = re.compile(r"You are using:\s*(.+)")
_PROGRAM = re.compile(r"(?:^|[-/\s])((?:gcc|clang|cc)(?:-\d+)?)(?=\s|$)")
_FIRST_ERROR = re.compile(r"^(?:.*\b(?:fatal )?error: .+|.*: not found|make.*: \*\*\* .+)$", re.MULTILINE)
_OPTION = re.compile(
    r"(?:unrecognized|unknown) (?:command-line option|command line option|argument):? *(\S+)"
)
_API = re.compile(
    r"error: (?:implicit declaration of function|.*has no member named|too (?:few|many) arguments"
    r"|.*incompatible.*pointer|.*undeclared|conflicting types|unknown type name)"
)

DKMS_TREE = "/var/lib/dkms"


def failure(host: Host, text: str) -> Optional[Json]:
    """:func:`explain` with the make.log that ``text`` names, read from the host where it is there."""

    def read(path: str) -> Optional[str]:
        from fleet.agent.resources.base import StepFailed

        try:
            return files.read_text(host, path)
        except StepFailed:
            return None  # a log that cannot be read leaves what the output itself says

    return explain(text, read)


def explain(text: str, read: Callable[[str], Optional[str]]) -> Optional[Json]:
    """The failed DKMS build in a package manager's output, or None.

    {"reason": dkms_build_failed|headers_missing, "what", "remedy", "transient": False, "kernel", "driver",
    "module", "cause", "log", "packages": [left half installed]}; what is not known is None.
    """
    packages = _left_behind(text)
    match = _BAD_STATUS.search(text)
    if match is None:
        headers = _NO_HEADERS.search(text)
        return headers_missing(headers.group(1), packages) if headers else None
    kernel = match.group(1)
    consult = _CONSULT.search(text, match.end()) or _CONSULT.search(text)
    log, module, driver = consult.groups() if consult else (None, None, None)
    said = read(log) if log else None
    return build_failed(kernel, module, driver, log, said, packages)


def build_failed(
    kernel: Optional[str],
    module: Optional[str],
    driver: Optional[str],
    log: Optional[str],
    said: Optional[str],
    packages: List[str],
) -> Json:
    """The problem of one failed build; ``said`` is what stands in ``log``."""
    found = cause(said) if said else {"cause": "it does not say why", "remedy": None}
    what = "the module %s %s does not build for kernel %s: %s" % (
        module or "(unknown)", driver or "", kernel or "(unknown)", found["cause"]
    )  # fmt: skip
    if packages:
        what += "; left half installed: %s" % ", ".join(packages)
    then = "dpkg --configure -a" if packages else "run again"
    remedy = "%s; then: %s" % (found["remedy"] or "read the log", then)
    if log:
        remedy += "  # the whole log: %s" % log
    return {
        "reason": "dkms_build_failed",
        "what": " ".join(what.split()),
        "remedy": remedy + "; do not reboot before",
        "transient": False,
        "kernel": kernel,
        "driver": driver,
        "module": module,
        "cause": found["cause"],
        "log": log,
        "packages": packages,
    }


def headers_missing(kernel: str, packages: List[str]) -> Json:
    """The problem of a kernel without headers: nothing can be built for it."""
    return {
        "reason": "headers_missing",
        "what": "there are no headers for kernel %s, so no module can be built for it" % kernel,
        "remedy": "apt-get install linux-headers-%s (dnf install kernel-devel-%s), then run again"
        % (kernel, kernel),
        "transient": False,
        "kernel": kernel,
        "driver": None,
        "module": None,
        "cause": "headers missing",
        "log": None,
        "packages": packages,
    }


def cause(said: str) -> Json:
    """The short cause in a make.log: {"cause", "remedy", "needed", "used"}; compilers only on a mismatch.

    A compiler that differs is only a warning there; it is the cause where the error is one that another
    compiler would not make, or where nothing better is found.
    """
    needed, used = _compilers(said)
    differs = needed is not None and used is not None
    mismatch = "the kernel was built by %s, the module by %s" % (needed, used)
    found: Json = {"cause": "", "remedy": None, "needed": needed, "used": used}
    option = _OPTION.search(said)
    if option is not None and differs:
        found["cause"] = "%s needed: %s (%s is not known to it)" % (
            (needed or "").split()[0],
            mismatch,
            option.group(1).strip("'\";,‘’"),
        )
        found["remedy"] = "apt-get install %s" % (needed or "").split()[0]
    elif "No space left on device" in said:
        found.update(cause="no space left on the disk", remedy="df -h /var /tmp, and make room")
    elif "Killed signal terminated program" in said or "virtual memory exhausted" in said:
        found.update(cause="the compiler ran out of memory", remedy="free some memory on the host")
    elif _API.search(said) is not None:
        line = _first_error(said)
        found["cause"] = "this driver's source does not go with that kernel (%s)" % line
        found["remedy"] = "choose a driver made for that kernel, or boot an older kernel"
    elif differs:
        found["cause"] = "%s needed: %s" % ((needed or "").split()[0], mismatch)
        found["remedy"] = "apt-get install %s" % (needed or "").split()[0]
    else:
        found["cause"] = _first_error(said) or "it does not say why"
    return found


def _compilers(said: str) -> Tuple[Optional[str], Optional[str]]:
    """("gcc-12 12.3.0", "cc 11.4.0") where make.log warns that they differ, else (None, None)."""
    built, using = _BUILT_BY.search(said), _USING.search(said)
    if built is None or using is None:
        return None, None
    needed, used = _compiler(built.group(1)), _compiler(using.group(1))
    if needed == used:
        return None, None
    name, _, version = needed.partition(" ")
    major = version.partition(".")[0]
    if name in ("gcc", "clang") and major.isdigit():
        needed = "%s-%s %s" % (name, major, version)  # the name of the package that brings it
    return needed, used


def _compiler(text: str) -> str:
    """``x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1) 12.3.0`` -> ``gcc-12 12.3.0``."""
    plain = re.sub(r"\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", text)
    match = _PROGRAM.search(plain.strip())
    versions = re.findall(r"\d+(?:\.\d+)+", plain) or re.findall(r"\d+(?:\.\d+)+", text)
    return (
        "%s %s" % (match.group(1) if match else plain.split()[0], versions[-1] if versions else "")
    ).strip()


def _first_error(said: str) -> str:
    match = _FIRST_ERROR.search(said)
    return " ".join(match.group(0).split())[:200] if match else ""


def _left_behind(text: str) -> List[str]:
    match = _LEFT.search(text)
    return match.group(1).split() if match else []
