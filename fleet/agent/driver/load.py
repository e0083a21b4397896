"""Loading the driver: is there a module for this kernel at all, and why the kernel does not take it."""

from __future__ import annotations

import os
import re

from fleet.agent import files
from fleet.agent.driver import build_errors, kernel_log, seen
from fleet.agent.resources.base import StepCancelled, StepFailed, last_words

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Match, Optional

    from fleet.agent.host import Host
    from fleet.agent.process import Result
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Reporter

DEADLINE_S = 300.0  # initialising eight GPUs with their NVSwitches takes a minute
_NOT_FOUND = re.compile(r"Module \S+ not found(?: in directory (?P<folder>\S+))?")
_DKMS_NAMES = re.compile(r"^nvidia(?:-|$)")


def must_be_on_disk(host: Host, release: str, version: Optional[str], flavour: Optional[str]) -> None:
    """StepFailed, naming why, unless the running kernel would load the driver that is wanted."""
    found = seen.on_disk(host, release)
    if found is not None and version in (None, found["version"]):
        if None in (flavour, found["flavour"]) or found["flavour"] == flavour:
            return
        raise StepFailed(
            "kernel %s has the %s modules of driver %s; wanted are the %s ones"
            % (release, found["flavour"], found["version"], flavour),
            "install the driver package with the %s modules, and remove the other" % flavour,
        )
    problem = _build_problem(host, release, version)
    if problem is not None:
        raise StepFailed(problem["what"], problem["remedy"])
    if found is not None:
        raise StepFailed(
            "kernel %s has driver %s on its disk (%s); wanted is %s"
            % (release, found["version"] or "of unknown version", found["path"], version),
            "see which packages bring them: dkms status; dpkg -S %s" % found["path"],
        )
    raise StepFailed(
        "there is no nvidia module for the running kernel %s" % release,
        "boot the kernel that it was made for, or install the headers of this one and run: dkms autoinstall",
    )


def _build_problem(host: Host, release: str, version: Optional[str]) -> Optional[Json]:
    """Why DKMS has not built the wanted driver for this kernel, where its tree or /lib/modules says so."""
    logs = _make_logs(host, version)
    for module, driver, path in logs:
        said = files.read_text(host, path) or ""
        named = re.search(r"for kernel:? (\S+)", said)
        if named is None or named.group(1) == release:
            return build_errors.build_failed(release, module, driver, path, said, [])
    if _in_dkms(host, version) and not os.path.exists(host.path("/lib/modules/%s/build" % release)):
        return build_errors.headers_missing(release, [])
    return None


def _make_logs(host: Host, version: Optional[str]) -> List[List[str]]:
    """[module, driver, path] of builds that failed; a build that works takes its log elsewhere."""
    found = []
    for module, driver in _in_dkms(host, version):
        path = "%s/%s/%s/build/make.log" % (build_errors.DKMS_TREE, module, driver)
        if os.path.exists(host.path(path)) and not _built(host, module, driver):
            found.append([module, driver, path])
    return found


def _in_dkms(host: Host, version: Optional[str]) -> List[List[str]]:
    """[module, driver] of NVIDIA's entries in the DKMS tree, of the wanted version where one is."""
    found = []
    tree = host.path(build_errors.DKMS_TREE)
    for module in _listed(tree):
        if _DKMS_NAMES.match(module):
            drivers = [name for name in _listed(os.path.join(tree, module)) if name[:1].isdigit()]
            found += [[module, driver] for driver in drivers if version in (None, driver)]
    return found


def _built(host: Host, module: str, driver: str) -> bool:
    """Whether there is a finished build for the running kernel: RELEASE/ARCHITECTURE/module."""
    folder = os.path.join(host.path(build_errors.DKMS_TREE), module, driver, seen.running_kernel(host))
    return any(_listed(os.path.join(folder, name, "module")) for name in _listed(folder))


def _listed(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def modprobe(host: Host, name: str, report: Reporter) -> None:
    """Load one module; StepFailed with the kernel's own reason where it refuses."""
    before = kernel_log.read(host)
    report.progress("loading " + name)
    result = host.run(["modprobe", name], deadline_s=DEADLINE_S, on_output=report.output)
    if result.cancelled:
        raise StepCancelled("loading %s was cancelled" % name, None, result)
    if not result.ok:
        lines = kernel_log.since(before, kernel_log.read(host))
        problem = explain(host, name, result, lines)
        raise StepFailed(problem["what"], problem["remedy"], result)


def explain(host: Host, name: str, result: Result, lines: List[str]) -> Json:
    """Why modprobe failed, as {"reason", "what", "remedy"}. ``lines``: of the kernel log, since it ran."""
    said = result.stderr
    release = seen.running_kernel(host)
    if "Key was rejected by service" in said or "Required key not available" in said:
        return _signature_rejected(host, name, release)
    if "Exec format error" in said or "Invalid module format" in said:
        what = "the module %s on the disk was built for another kernel than the running %s" % (name, release)
        return _problem(
            "other_kernel", what, "build it anew: dkms autoinstall -k %s; then run again" % release
        )
    sought = _NOT_FOUND.search(said)
    if sought is not None:
        return _not_found(host, name, release, sought)
    if "Operation not permitted" in said:
        what = "the kernel lets nobody load %s (lockdown, or kernel.modules_disabled)" % name
        return _problem(
            "loading_forbidden", what, "cat /sys/kernel/security/lockdown; sysctl kernel.modules_disabled"
        )
    problem = kernel_log.explain(lines, seen.gpus(host)) or _bound_now(host)
    if problem is not None:
        return problem
    words = last_words(result)
    heard = [line for line in lines if "NVRM" in line or "nvidia" in line][-3:]
    if heard:
        words += "; the kernel says: " + kernel_log.text_of(heard)
    what = "modprobe %s failed: %s" % (name, words or result.ending())
    return _problem("not_loaded", what, "see what the kernel says: dmesg | grep -e NVRM -e nvidia")


def _problem(reason: str, what: str, remedy: str) -> Json:
    return {"reason": reason, "what": what, "remedy": remedy}


def _not_found(host: Host, name: str, release: str, sought: Match[str]) -> Json:
    """modprobe looks in the folder of the kernel that answers it; where that is another than the release that
    this host shows, the module may be there all the same."""
    module = seen.on_disk(host, release) if name == "nvidia" else None
    searched = os.path.basename(sought.group("folder") or "")
    if module is None:
        what = "there is no module %s for the running kernel %s" % (name, release)
        return _problem(
            "module_missing", what, "install the package that brings it, then: depmod %s" % release
        )
    if searched in ("", release):
        what = "the module %s is there (%s), and modprobe does not know it" % (name, module["path"])
        return _problem("module_unknown", what, "depmod %s; then run again" % release)
    what = "the kernel that runs is %s and not the %s that this host shows, for which driver %s is there (%s)" % (
        searched, release, module.get("version") or "of unknown version", module["path"],
    )  # fmt: skip
    return _problem(
        "other_kernel",
        "%s; modprobe %s says: %s" % (what, name, sought.group(0)),
        "boot %s, then run again; a container has the kernel of its machine, and loads no modules" % release,
    )


def _signature_rejected(host: Host, name: str, release: str) -> Json:
    """Secure Boot. The enrolment of a key waits for somebody at the console, whom no connection replaces."""
    module = seen.on_disk(host, release)
    signer = (module or {}).get("signer")
    whose = "signed by %r, a key that is not enrolled" % signer if signer else "not signed"
    key = seen.signing_key(host)
    remedy = "use a driver whose modules the distribution signs (linux-modules-nvidia-…)"
    if key is not None:
        remedy = (
            "mokutil --import %s, then reboot and choose Enroll MOK at the console (within 10 s of the blue"
            " screen; it cannot be done over SSH); or %s" % (key, remedy)
        )
    what = "Secure Boot rejects the signature of %s: it is %s" % (name, whose)
    if seen.enrolment_pending(host):
        what += "; a key waits to be enrolled: that needs the console at the next boot"
    return _problem("signature_rejected", what, remedy)


def _bound_now(host: Host) -> Optional[Json]:
    """A GPU that another graphics driver has, by sysfs: those of virtual machines are none of our business."""
    for gpu in seen.gpus(host):
        if gpu.get("driver") in ("nouveau", "nova_core"):
            return kernel_log.bound_to(gpu["driver"], gpu["address"])
    return None
