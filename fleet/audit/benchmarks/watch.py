"""What is watched of a host as a whole: clocks, use of the GPUs, memory, mixed groups, models that do not fit.

Each rule yields verdicts whose test begins with ``watch.``: they stand beside those of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.audit.benchmarks.subject import HARDWARE_SLOWDOWN, Json
from fleet.audit.benchmarks.verdict import FAIL, NOT_JUDGED, PASS, SKIPPED, WARN, Verdict
from fleet.audit.gpus import catalogued
from fleet.catalogue.gpus import Gpus

Wanted = Mapping[str, Any]

LEAST_UTILISATION_PERCENT = 70.0
MOST_MEMORY_PERCENT = 90.0
MOST_SYNCHRONISATION_PERCENT = 15.0
#: Below this share of the highest clock, with nothing said to hold it down, somebody has set it.
LEAST_CLOCK = 0.90
#: Bytes for each parameter in training by Adam in mixed precision: two of weights, two of gradients, and four each
#: of weights in fp32 and both moments.
TRAINING_BYTES_PER_PARAMETER = 16.0
#: Of a GPU's memory, what weights, gradients and optimizer may take: activations need the rest.
MODEL_SHARE = 0.80

_IDLE = "gpu_idle"
_SOURCE = "watch-list of fleet bench"


@dataclass(frozen=True)
class HostCase:
    """One host's record, what is wanted of it, and the catalogue's GPUs."""

    host: str
    record: Json
    wanted: Wanted
    gpus: Gpus

    @property
    def measured(self) -> list[Json]:
        """Its GPUs that were measured."""
        return [gpu for gpu in self.record["gpus"] if gpu["state"] == "measured"]


@dataclass(frozen=True)
class HostRule:
    """``says`` gives the rule's verdicts on one host."""

    id: str
    says: Callable[[HostCase], Iterable[Verdict]]
    holds: str


def host_rule(rule_id: str) -> Callable[[Callable[[HostCase], Iterable[Verdict]]], HostRule]:
    """Make a function of a host a :class:`HostRule`; its docstring's first paragraph says what is right."""

    def decorate(function: Callable[[HostCase], Iterable[Verdict]]) -> HostRule:
        holds = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
        return HostRule(rule_id, function, holds)

    return decorate


@host_rule("watch.clocks")
def clocks(case: HostCase) -> Iterable[Verdict]:
    """Under load no GPU is slowed down by heat or power; a clock below the highest has a reason."""
    for gpu in case.measured:
        during = gpu["during"]
        if not during:
            continue
        verdict, reasons = _held_down(during)
        yield Verdict(
            "watch.clocks",
            (gpu["uuid"],),
            during["sm_clock_mhz_median"],
            "mhz",
            verdict,
            limit=during["max_sm_clock_mhz"],
            limit_source="the GPU's highest SM clock" if during["max_sm_clock_mhz"] is not None else None,
            reasons=tuple(reasons),
        )


def _held_down(during: Json) -> tuple[str, list[str]]:
    seen = sorted(set(during["clocks_event_reasons"]) - {_IDLE})
    hardware = [why for why in seen if why in HARDWARE_SLOWDOWN]
    if hardware:
        hottest = during["temperature_c_max"]
        heat = "" if hottest is None else f", hottest {hottest:g} °C"
        return FAIL, [f"{', '.join(hardware)} under load{heat}: look at cooling and power"]
    if "sw_thermal_slowdown" in seen:
        return WARN, ["sw_thermal_slowdown under load: the driver lowered clocks because of heat"]
    notes = []
    if "sw_power_cap" in seen:
        notes.append("sw_power_cap: held at its power limit, which is no fault")
    now, most = during["sm_clock_mhz_median"], during["max_sm_clock_mhz"]
    if now is None and not seen:
        return NOT_JUDGED, ["no clock was seen while a test kept the GPU at work"]
    if now is not None and most and now < LEAST_CLOCK * most:
        if not seen:
            notes.append(
                f"{now:g} of {most:g} MHz with nothing said to hold it down: locked clocks are likely"
            )
        elif "applications_clocks_setting" in seen:
            notes.append(f"{now:g} of {most:g} MHz: applications clocks are set")
    return PASS, notes


@host_rule("watch.utilisation")
def utilisation(case: HostCase) -> Iterable[Verdict]:
    """Under load a GPU is busy most of the time (above 70 %)."""
    for gpu in case.measured:
        during = gpu["during"]
        busy = during["gpu_utilization_percent_median"] if during else None
        if busy is None:
            continue
        low = busy <= LEAST_UTILISATION_PERCENT
        yield Verdict(
            "watch.utilisation",
            (gpu["uuid"],),
            busy,
            "percent",
            WARN if low else PASS,
            limit=LEAST_UTILISATION_PERCENT,
            limit_source=_SOURCE,
            reasons=(f"busy only {busy:g} % of the time under load: the host does not feed it",)
            if low
            else (),
        )


@host_rule("watch.memory")
def memory(case: HostCase) -> Iterable[Verdict]:
    """Under load a GPU's memory is not nearly full (below 90 %)."""
    for gpu in case.measured:
        during = gpu["during"] or {}
        used, total = during.get("memory_used_mib_max"), during.get("memory_total_mib")
        if used is None or not total:
            continue
        percent = round(100.0 * used / total, 1)
        full = percent >= MOST_MEMORY_PERCENT
        yield Verdict(
            "watch.memory",
            (gpu["uuid"],),
            percent,
            "percent",
            WARN if full else PASS,
            limit=MOST_MEMORY_PERCENT,
            limit_source=_SOURCE,
            reasons=(f"{used:g} of {total:g} MiB in use at the most: little is left",) if full else (),
        )


@host_rule("watch.synchronisation")
def synchronisation(case: HostCase) -> Iterable[Verdict]:
    """Of a step of distributed training, less than 15 % is spent on waiting for one another."""
    for result in case.record["results"]:
        percent = result["parameters"].get("synchronisation_percent")
        if result["status"] != "measured" or percent is None:
            continue
        much = percent >= MOST_SYNCHRONISATION_PERCENT
        why = f"{percent:g} % of a step is synchronisation: links between GPUs are slow, or batches small"
        yield Verdict(
            "watch.synchronisation",
            tuple(result["gpus"]),
            percent,
            "percent",
            WARN if much else PASS,
            limit=MOST_SYNCHRONISATION_PERCENT,
            limit_source=_SOURCE,
            reasons=(why,) if much else (),
        )


@host_rule("watch.mixed_capabilities")
def mixed_capabilities(case: HostCase) -> Iterable[Verdict]:
    """The GPUs of a group that trains together have one compute capability."""
    capability = {gpu["uuid"]: gpu["compute_capability"] for gpu in case.record["gpus"]}
    for result in case.record["results"]:
        if not result["test"].startswith("ddp."):
            continue
        found = sorted({capability[one] for one in result["gpus"] if capability.get(one)})
        if found:
            why = f"compute capabilities {', '.join(found)} in one group: the slowest sets the pace"
            yield Verdict(
                "watch.mixed_capabilities",
                tuple(result["gpus"]),
                float(len(found)),
                "count",
                WARN if len(found) > 1 else PASS,
                limit=1.0,
                limit_source=_SOURCE,
                reasons=(why,) if len(found) > 1 else (),
            )


@host_rule("watch.gpu_count")
def gpu_count(case: HostCase) -> Iterable[Verdict]:
    """There are as many GPUs as the inventory says (``gpus.count``)."""
    count = (case.wanted.get("gpus") or {}).get("count")
    if count is None:
        return
    found = [gpu["uuid"] for gpu in case.record["gpus"] if not gpu["mig_profile"]]
    few = len(found) < count and not any(gpu["mig_profile"] for gpu in case.record["gpus"])
    yield Verdict(
        "watch.gpu_count",
        tuple(found),
        float(len(found)),
        "count",
        FAIL if few else PASS,
        limit=float(count),
        limit_source="the inventory",
        reasons=(f"{len(found)} GPUs in the record, {count} in the inventory",) if few else (),
    )


def missing_gpus(wanted: Wanted) -> list[Verdict]:
    """The verdict on a host that has no GPU at all, and so no record, while the inventory counts some."""
    count = (wanted.get("gpus") or {}).get("count")
    if not count:
        return []
    why = f"there is no NVIDIA GPU, and {count} in the inventory"
    return [
        Verdict(
            "watch.gpu_count",
            (),
            0.0,
            "count",
            FAIL,
            limit=float(count),
            limit_source="the inventory",
            reasons=(why,),
        )
    ]


@host_rule("watch.model_memory")
def model_memory(case: HostCase) -> Iterable[Verdict]:
    """The model that is wanted (``model.parameters_b`` in 10^9, ``model.bytes_per_parameter``) fits a GPU."""
    model = case.wanted.get("model") or {}
    billions = model.get("parameters_b")
    sizes = {gpu["uuid"]: size for gpu in case.record["gpus"] if (size := _memory_mib(case, gpu))}
    if billions is None or not sizes:
        return
    each = float(model.get("bytes_per_parameter", TRAINING_BYTES_PER_PARAMETER))
    need = round(float(billions) * each * 1e9 / 2**30, 1)
    smallest = min(sizes.values()) / 1024
    room = round(smallest * MODEL_SHARE, 1)
    fits = need <= room
    yield Verdict(
        "watch.model_memory",
        tuple(sizes),
        need,
        "gib",
        PASS if fits else WARN,
        limit=room,
        limit_source=f"{MODEL_SHARE:.0%} of the smallest GPU's memory",
        reasons=() if fits else tuple(_advice(billions, each, need, smallest, len(sizes))),
    )


def _memory_mib(case: HostCase, gpu: Json) -> float | None:
    measured = (gpu["during"] or {}).get("memory_total_mib")
    if measured or gpu["mig_profile"]:
        return float(measured) if measured else None
    product = catalogued(gpu, case.gpus)
    return None if product is None or product.memory_mib is None else float(product.memory_mib)


def _advice(billions: float, each: float, need: float, smallest: float, count: int) -> Iterable[str]:
    yield (
        f"{billions:g}e9 parameters of {each:g} bytes need {need:g} GiB besides activations; "
        f"a GPU here has {smallest:.0f} GiB"
    )
    if need <= smallest * MODEL_SHARE * count:
        yield f"sharded over the {count} GPUs of the host (FSDP, ZeRO stage 3) it fits"
    yield "ZeRO-Offload keeps optimizer state in the host's memory: 4 of 16 bytes stay on the GPU"
    yield "quantise (8 or 4 bits, with LoRA for training) where that is enough"
    yield "small batches with gradient accumulation leave more room to the model"


@host_rule("watch.left_out")
def left_out(case: HostCase) -> Iterable[Verdict]:
    """Every chosen GPU was measured. One that others use is left out on purpose; one to be recovered first fails."""
    for gpu in case.record["gpus"]:
        if gpu["state"] == "measured":
            continue
        why = ": ".join(word for word in (gpu["reason"], gpu["message"]) if word) or "no reason was given"
        verdict = FAIL if gpu["reason"] == "needs_recovery" else SKIPPED
        yield Verdict("watch.left_out", (gpu["uuid"],), None, "count", verdict, reasons=(why,))


RULES: tuple[HostRule, ...] = (
    left_out,
    clocks,
    utilisation,
    memory,
    synchronisation,
    mixed_capabilities,
    gpu_count,
    model_memory,
)
