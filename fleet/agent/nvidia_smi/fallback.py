"""The probe document through the host's nvidia-smi, for hosts whose NVML cannot be asked directly.

XML first; CSV where that gives no GPU, then the plain table. Which failure it is, :mod:`.states` tells from
words and exit code. nvidia-smi answers for all GPUs or hangs for all: a hung GPU cannot be told apart here.
"""

from __future__ import annotations

import time

from fleet.agent.nvidia_smi import csv, fill, listing, nvlink, states, table, xml
from fleet.agent.process import Result
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

    Ask = Callable[..., Result]


TOOL = "nvidia-smi"
# The first question may use this share of the deadline, so that something is left for the next.
FIRST_SHARE = 0.6
# Every driver from 390 on knows these; one field that it does not know makes nvidia-smi refuse them all.
NARROW = (
    "index uuid name serial driver_version pci.bus_id pci.device_id pci.sub_device_id vbios_version count"
    " temperature.gpu fan.speed pstate power.draw power.limit enforced.power.limit power.default_limit"
    " power.min_limit power.max_limit memory.total memory.used memory.free utilization.gpu utilization.memory"
    " ecc.mode.current ecc.mode.pending ecc.errors.corrected.volatile.total"
    " ecc.errors.uncorrected.volatile.total ecc.errors.corrected.aggregate.total"
    " ecc.errors.uncorrected.aggregate.total retired_pages.single_bit_ecc.count retired_pages.double_bit.count"
    " retired_pages.pending compute_mode persistence_mode clocks.gr clocks.sm clocks.mem clocks.max.gr"
    " clocks.max.sm clocks.max.mem pcie.link.gen.current pcie.link.gen.max pcie.link.width.current"
    " pcie.link.width.max"
).split()
WIDE = (*NARROW, *"mig.mode.current mig.mode.pending temperature.memory compute_cap".split())
COMPUTE_APPS = ("gpu_bus_id", "gpu_uuid", "pid", "used_memory", "process_name")
# These are true of the whole host; another format would say the same.
_FINAL = (
    "driver_not_loaded",
    "driver_library_mismatch",
    "library_missing",
    "tool_missing",
    "no_devices",
    "container_lost_gpu",
)


def probe(host: Host, deadline_s: float) -> Json:
    """The probe document of this host; never later than ``deadline_s`` after the call by more than a kill takes."""
    started = time.monotonic()
    document = _probe(host, _asker(host, started + deadline_s), deadline_s)
    _drop_nameless(document)
    document["duration_s"] = round(time.monotonic() - started, 3)
    return document


def _probe(host: Host, ask: Ask, deadline_s: float) -> Json:
    if host.which(TOOL) is None:
        return _failed({"status": "tool_missing", "message": "there is no nvidia-smi on this host"}, None)
    answer = ask("-q", "-x", deadline_s=FIRST_SHARE * deadline_s)
    called = _classified(answer)
    document = _of_xml(answer)
    if document["devices"]:
        _join(document, answer, called)
        _complete(document["devices"], ask)
        return document
    if called["status"] in _FINAL:
        return _failed(called, answer.exit_code)
    document, answer = _of_csv(ask)
    if not document["devices"]:
        answer = ask()
        document = table.parse(answer.stdout)
    last = _classified(answer)
    if document["devices"]:
        _join(document, answer, last)
        return document
    worse = last if last["status"] not in ("ok", "timeout") else called
    return _failed(worse if worse["status"] != "ok" else document, answer.exit_code)


def _asker(host: Host, ends: float) -> Ask:
    """Run nvidia-smi with some words until ``ends`` on the monotonic clock, or earlier."""
    env = _linker(host)

    def ask(*words: str, deadline_s: Optional[float] = None) -> Result:
        left = ends - time.monotonic()
        if left <= 0:
            return Result(None, timed_out=True)
        limit = left if deadline_s is None else min(left, deadline_s)
        try:
            return host.run([TOOL, *words], deadline_s=limit, env=env)
        except StepFailed as error:
            return Result(127, "", str(error))

    return ask


def _classified(answer: Result) -> Json:
    code = answer.exit_code
    if code is None and answer.signal is not None and not answer.timed_out:
        code = 128 + answer.signal  # as a shell has it: it broke down by itself
    return states.classify(answer.stdout, answer.stderr, code)


def _linker(host: Host) -> Optional[Dict[str, str]]:
    """nvidia-smi looks for the driver's library where the dynamic linker does; a mounted one lies elsewhere."""
    from fleet.agent.facts import driver

    mounted = str(driver.library_name(host)).startswith(driver.MOUNTED + "/")
    return {"LD_LIBRARY_PATH": driver.MOUNTED} if mounted else None


def _of_xml(answer: Result) -> Json:
    try:
        return xml.parse(answer.stdout)
    except ImportError:  # a Python without expat
        return fill.document([], "")


def _of_csv(ask: Ask) -> Tuple[Json, Result]:
    for fields in (WIDE, NARROW):
        answer = ask("--query-gpu=" + ",".join(fields), "--format=csv,noheader")
        document = csv.parse_query(fields, answer.stdout)
        if document["devices"]:
            apps = ask("--query-compute-apps=" + ",".join(COMPUTE_APPS), "--format=csv,noheader")
            if apps.ok:
                _add_processes(document["devices"], csv.parse_compute_apps(COMPUTE_APPS, apps.stdout))
            break
    return document, answer


def _add_processes(devices: List[Json], users: List[Json]) -> None:
    """Those that compute; a GPU without a row has none of them."""
    for device in devices:
        user = next((user for user in users if user["address"] == device["address"]), None)
        del device["absent"]["processes"]
        device["processes"] = [] if user is None else user["processes"]
        if user is not None:
            absent = user["absent"].items()
            device["absent"].update({path: entry for path, entry in absent if path.startswith("processes")})


def _complete(devices: List[Json], ask: Ask) -> None:
    """Profiles of MIG devices and the links, which XML does not have."""
    if any(device["mig"]["mode"] == "enabled" for device in devices):
        listing.apply(devices, listing.parse(ask("-L").stdout))
    nvlink.apply(devices, nvlink.parse(ask("nvlink", "--status").stdout))


def _join(document: Json, answer: Result, called: Json) -> None:
    """What the call said beside the document: on standard error, and by its exit code."""
    document["devices"] = fill.join(document["devices"], states.gpus_named(answer.stderr))
    document["nvml_error"] = states.nvml_error_of(answer.exit_code)
    if called["status"] != "ok" and document["status"] in ("ok", "error"):
        document["status"], document["message"] = called["status"], called["message"]


def _drop_nameless(document: Json) -> None:
    """A GPU of which not even the address could be read is in the message: facts are kept by address."""
    nameless = [device for device in document["devices"] if device["address"] is None]
    if nameless:
        document["devices"] = [device for device in document["devices"] if device["address"] is not None]
        said = nameless[0]["message"] or "it has no address"
        note = "of %d GPUs nvidia-smi does not even say where they are: %s" % (len(nameless), said)
        document["status"] = "gpu_error"
        document["message"] = "; ".join(filter(None, (document["message"], note)))[:300]


def _failed(called: Json, exit_code: Optional[int]) -> Json:
    document = fill.document([], "")
    document["status"], document["message"] = called["status"], called["message"]
    document["nvml_error"] = states.nvml_error_of(exit_code)
    document["nvml_version"] = called.get("library_version") or document["nvml_version"]
    if called.get("address"):
        document["devices"] = [fill.unreadable(named) for named in states.gpus_named(called["message"] or "")]
    return document
