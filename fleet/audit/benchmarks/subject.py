"""One result with all that it is judged by: its host's record, its GPUs, what is known of them.

:func:`comparable` says which results may be held against one another: same product, test, parameters, image,
harness. Across harnesses nothing compares: batch size and loader alone make a factor of two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fleet.audit.gpus import catalogued
from fleet.catalogue.gpus import Gpu, Gpus

Json = Mapping[str, Any]

#: Parameters that were found by measuring; all others say how it was measured.
MEASURED_PARAMETERS = frozenset(
    {
        "compile_s",
        "duration_s",
        "eager_value",
        "gain_percent",
        "graph_breaks",
        "iterations",
        "loss",
        "repetitions",
        "step_ms",
        "synchronisation_percent",
    }
)

#: Sizes that the runner chose by what it found: the best shape, what fits the free memory. A slow GPU chooses others,
#: and must be held against its peers all the same.
CHOSEN_PARAMETERS = {
    "matrix_product": frozenset({"shape", "second_matrix", "tried"}),
    "memory": frozenset({"bytes"}),
}

#: Reasons for which the hardware itself holds its clocks down: heat, or power it does not get.
HARDWARE_SLOWDOWN = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")

#: Units of which less is better.
SMALLER_IS_BETTER = frozenset({"us"})


@dataclass(frozen=True)
class Baseline:
    """An earlier value of the same thing. ``key`` is :func:`baseline_key`; ``record`` the conditions in short."""

    host: str
    gpu: str
    test: str
    key: str
    value: float
    record: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """One result. ``gpus`` are the record's entries of its GPUs, ``known`` the catalogue's, in the same order."""

    host: str
    record: Json
    result: Json
    gpus: tuple[Json, ...]
    known: tuple[Gpu | None, ...]

    @property
    def test(self) -> str:
        """The id of the test."""
        return str(self.result["test"])

    @property
    def value(self) -> float | None:
        """What was measured; None where nothing was."""
        value: float | None = self.result["value"]
        return value

    @property
    def gpu(self) -> str:
        """The GPU, or the GPUs, as one word; a group has no order, a pair does."""
        uuids = list(self.result["gpus"])
        return "+".join(uuids if self.test == "peer.copy" else sorted(uuids))

    @property
    def is_slice(self) -> bool:
        """Whether any of its GPUs is a MIG instance."""
        return any(gpu["mig_profile"] for gpu in self.gpus)

    @property
    def product(self) -> Gpu | None:
        """The product, where all its GPUs are known and the same."""
        first = self.known[0] if self.known else None
        return first if first is not None and all(one is first for one in self.known) else None

    @cached_property
    def clock_reasons(self) -> tuple[str, ...]:
        """Why clocks were held down meanwhile; where the test was not sampled, over the GPU's whole run."""
        own = self.result["clocks_event_reasons"]
        if own is not None:
            return tuple(sorted(set(own)))
        during = (gpu["during"] for gpu in self.gpus)
        return tuple(sorted({why for one in during if one for why in one["clocks_event_reasons"]}))

    def gain_over(self, other: float) -> float:
        """How much better than ``other`` it is, as a fraction; negative where it is worse."""
        assert self.value is not None
        change = self.value / other - 1
        return -change if self.result["unit"] in SMALLER_IS_BETTER else change


def subjects(host: str, record: Json, gpus: Gpus) -> list[Subject]:
    """Every result of a record, in its order."""
    entries = {one["uuid"]: one for one in record["gpus"]}
    known = {uuid: catalogued(one, gpus) for uuid, one in entries.items()}
    made = []
    for result in record["results"]:
        uuids = [uuid for uuid in result["gpus"] if uuid in entries]
        made.append(
            Subject(
                host,
                record,
                result,
                tuple(entries[uuid] for uuid in uuids),
                tuple(known[uuid] for uuid in uuids),
            )
        )
    return made


def comparable(subject: Subject) -> dict[str, Any]:
    """What must be equal for two results to be held against one another, GPU and host apart."""
    record, result = subject.record, subject.result
    found = MEASURED_PARAMETERS | CHOSEN_PARAMETERS.get(subject.test.partition(".")[0], frozenset())
    parameters = {key: value for key, value in result["parameters"].items() if key not in found}
    image, software = record["image"] or {}, record["software"] or {}
    return {
        "test": subject.test,
        "unit": result["unit"],
        "parameters": parameters,
        "products": [
            [gpu["device_id"], gpu["subsystem_id"], gpu["mig_profile"]] for gpu in _in_order(subject)
        ],
        "where": record["where"],
        "image": image.get("digest") or image.get("reference"),
        "torch": software.get("torch"),
        "simulated": record["simulated"],
    }


def _in_order(subject: Subject) -> list[Json]:
    if subject.test == "peer.copy":
        return list(subject.gpus)
    return sorted(subject.gpus, key=lambda gpu: (str(gpu["device_id"]), str(gpu["subsystem_id"])))


def baseline_key(subject: Subject) -> str:
    """A short name of :func:`comparable`: a baseline holds for results with the same. The driver is not in it."""
    text = json.dumps(comparable(subject), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
