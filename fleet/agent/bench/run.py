"""All groups of a suite, one after the other, to one record (schemas/benchmark.schema.json).

What goes wrong in one group is said in its results, and the other groups go on; what was printed before is kept.
How a group is run: :mod:`.container` and :mod:`.host`. Which tests there are: :mod:`.torch_side.plan`. Called by
:mod:`fleet.agent.resources.benchmark`.
"""

from __future__ import annotations

import os
import time

from fleet.agent.bench import conditions, explain, occupied, targets
from fleet.agent.bench.container import said
from fleet.agent.bench.ending import CANCELLED, DEADLINE, ENDED, Ending
from fleet.agent.bench.output import Output, result
from fleet.agent.bench.record import SCHEMA
from fleet.agent.bench.torch_side import plan
from fleet.agent.facts import checks
from fleet.agent.protocol import SIMULATED_MARKER, Json
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Tuple

    from fleet.agent.gpu_failures import Failure
    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


SETTLE_S = 1.0  # after a group: what a GPU says of its utilisation is of the second before
MARGIN_S = 30.0  # of the step's time, for ending and keeping what was found
SHORTEST_S = 10.0  # a group that has less is not begun
CHILD_MARGIN = 0.9  # of a group's time after which the torch side begins no further test
SAMPLE_SLACK_S = 1.0
WARM_S = 1.0  # a GPU says how busy it was in the second before
# What a failure of the whole group is to its tests; anything else: failed.
STATUS_OF = {
    "no_compiler": "not_runnable",
    "libcuda_link_missing": "not_runnable",
    "torch_missing": "not_runnable",
    "torch_cpu_build": "not_runnable",
    "arch_mismatch": "not_runnable",
    "collective_timeout": "timeout",
    "no_gpus": "skipped",
}


class Suite:
    """One run of a suite. ``runner`` is a Containers or a Processes; ``args`` are the resource's."""

    def __init__(self, host: Host, args: Json, runner: Any, report: Reporter) -> None:
        self._host = host
        self._args = args
        self._runner = runner
        self._report = report
        self._devices: Dict[str, Json] = {}
        self._samples: Dict[str, List[Json]] = {}
        self._at_work: Dict[str, List[Json]] = {}  # of those, the ones taken while a GPU was kept at work
        self._notes: Dict[str, str] = {}  # of GPUs that others use, measured all the same, by address
        self._refusals: List[Optional[str]] = []  # of each group that was begun
        self.cancelled = False
        self.rows: List[Json] = []
        self.results: List[Json] = []
        self.software: Optional[Json] = None

    def run(self) -> Json:
        """The record without its key. StepFailed where nothing could be run at all."""
        started, began = _utc_now(), time.monotonic()
        self._choose()
        if targets.measurable(self.rows):
            self._all_groups()
            self._nothing_ran()
            self._look_after()
        return {
            "schema": SCHEMA,
            "suite": self._args["suite"],
            "started_at": started,
            "ended_at": _utc_now(),
            "duration_s": round(time.monotonic() - began, 3),
            "simulated": os.path.exists(self._host.path(SIMULATED_MARKER)),
            "where": self._runner.where,
            "image": self._image(),
            "software": self.software,
            "gpus": self.rows,
            "results": self.results,
        }

    def _image(self) -> Optional[Json]:
        if self._runner.where != "container":
            return None
        return {"reference": self._args["reference"], "digest": self._args.get("digest")}

    # -- which GPUs -------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Rows of all chosen GPUs, those skipped that cannot or must not be measured."""
        self._report.progress("asking for the GPUs, and who uses them")
        found = targets.probe(self._host)
        devices, wanted = found["devices"], self._args.get("gpus") or "all"
        if not devices and found["status"] not in ("ok", "no_devices"):
            raise StepFailed(
                "%s: no GPU can be asked: %s" % (found["status"], found.get("message") or "no more is known"),
                "nvidia-smi ; dmesg | grep -i -e nvrm -e xid  # on the host",
            )
        strange = targets.unknown(devices, wanted)
        if strange:
            raise StepFailed(
                "this host has no GPU or MIG instance %s" % ", ".join(strange), "nvidia-smi -L  # lists them"
            )
        self._devices = {str(device["address"]): device for device in devices}
        self.rows = targets.rows(devices, wanted)
        self._judge_image()
        self._judge_users()

    def _judge_users(self) -> None:
        """Skip the GPUs that somebody works on; with leave to go on, note who does."""
        chosen = {row["address"] for row in targets.measurable(self.rows)}
        devices = [device for address, device in self._devices.items() if address in chosen]
        if not devices:
            return
        busy = occupied.look(self._host, devices)
        for row in targets.measurable(self.rows):
            who = busy.get(str(row["address"]))
            if who is None:
                continue
            if self._args.get("evenly_occupied"):
                self._notes[str(row["address"])] = "measured although the GPU was in use: %s" % who
            else:
                targets.skip(row, "gpu_occupied", "in use: %s" % who)

    def _judge_image(self) -> None:
        """Skip the GPUs that the image has no code for, where the container check has read what it has."""
        architectures = self._known_architectures()
        for row in targets.measurable(self.rows) if architectures else []:
            capability = row["compute_capability"]
            if capability and not explain.runs_on(capability, architectures):
                failure = explain.mismatch(
                    "sm_" + capability.replace(".", ""), architectures, self._args.get("reference")
                )
                targets.skip(row, failure.reason, "%s; %s" % (failure.words, failure.remedy))

    def _known_architectures(self) -> List[str]:
        if self._runner.where != "container" or not self._args.get("digest"):
            return []
        try:
            checked = checks.read(self._host)
        except (OSError, ValueError):
            return []
        if checked.get("digest") != self._args["digest"]:
            return []
        return list((checked.get("versions") or {}).get("arch_list") or [])

    # -- the groups -------------------------------------------------------------------------------------

    def _all_groups(self) -> None:
        there = [row["uuid"] for row in targets.measurable(self.rows)]
        groups = plan.groups(self._args["suite"], there, only=self._args.get("groups"))
        lost: Dict[str, str] = {}  # GPUs that somebody began to use meanwhile, by address
        for place, group in enumerate(groups):
            if self._host.cancelled():
                self.cancelled = True
            if self.cancelled:
                return
            members = [row for row in self.rows if row["uuid"] in group["gpu_uuids"]]
            free = [row for row in members if str(row["address"]) not in lost]
            self._skip_members(group, [row for row in members if row not in free], lost)
            if members and not self._enough(group, free):
                continue
            self._one_group(group, free, "%d/%d" % (place + 1, len(groups)), lost)

    def _nothing_ran(self) -> None:
        """StepFailed where not one group could be started."""
        refused = [words for words in self._refusals if words is not None]
        if refused and len(refused) == len(self._refusals):
            known = explain.explained(refused[0])
            raise StepFailed(
                "no benchmark could be started: %s" % refused[0],
                known.remedy if known is not None else "docker info ; journalctl -u docker  # on the host",
            )

    def _enough(self, group: Json, free: List[Json]) -> bool:
        return len(free) >= (2 if group["group"] in plan.SEVERAL_GPUS else 1)

    def _skip_members(self, group: Json, gone: List[Json], lost: Dict[str, str]) -> None:
        """Results of tests that are not run on GPUs which others use by now."""
        names = {row["uuid"]: lost[str(row["address"])] for row in gone}
        for test, gpus in (
            plan.expected(group["group"], self._args["suite"], group["gpu_uuids"]) if names else []
        ):
            who = [names[uuid] for uuid in gpus if uuid in names]
            if who:
                message = "somebody works on it since: %s" % who[0]
                self.results.append(
                    result(test, gpus, status="skipped", reason="gpu_occupied", message=message)
                )

    def _one_group(self, group: Json, rows: List[Json], at: str, lost: Dict[str, str]) -> None:
        name, uuids = group["group"], [row["uuid"] for row in rows]
        deadline_s = min(float(group["deadline_s"]), self._seconds_left())
        if deadline_s < SHORTEST_S:
            self._none_of(group, uuids, "skipped", "deadline", "the step's time is over")
            return
        self._report.progress("%s %s on %d GPU(s)" % (at, name, len(rows)))
        request = plan.request(
            name, self._args["suite"], uuids, {"deadline_s": round(deadline_s * CHILD_MARGIN)}
        )
        output = Output(self._report.progress)
        began, ending, samples, users = self._run(group, request, rows, deadline_s, output)
        if output.software is not None and (self.software is None or self.software["torch"] is None):
            self.software = output.software
        self._refusals.append(ending.refused)
        if ending.how == CANCELLED:
            self.cancelled = True
        if rows:  # else the GPUs were idle meanwhile
            self._keep_samples(samples, output, began)
        owed = [] if self.cancelled else plan.expected(name, self._args["suite"], uuids)
        found = _completed(group, owed, output, ending, deadline_s)
        self._say_conditions(found, output, began, samples)
        _say_notes(found, output, ending)
        self._judge_after(found, rows, users, lost)
        self.results += found

    def _run(
        self, group: Json, request: Json, rows: List[Json], deadline_s: float, output: Output
    ) -> Tuple[float, Ending, List[Json], occupied.Users]:
        """(when sampling began, how the group ended, samples of its time, others who came)."""
        runner, host = self._runner, self._host
        with targets.sampler(host) as sampler:
            began = time.monotonic()
            with occupied.Watch(
                host,
                lambda: list(sampler.samples),
                lambda: occupied.Own(host, runner.container, runner.token),
            ) as watch:
                try:
                    ending = runner.run(group, request, rows, deadline_s, output)
                except StepFailed as failure:  # this group's trouble: what was measured before it is kept
                    ending = Ending(ENDED, refused=failure.what)
        return began, ending, list(sampler.samples), watch.users

    def _seconds_left(self) -> float:
        if self._host.step_ends is None:
            return float(self._args.get("deadline_s") or 86400.0)
        return self._host.step_ends - time.monotonic() - MARGIN_S

    def _none_of(self, group: Json, uuids: List[str], status: str, reason: str, message: str) -> None:
        for test, gpus in plan.expected(group["group"], self._args["suite"], uuids):
            self.results.append(result(test, gpus, status=status, reason=reason, message=message))

    # -- what was seen meanwhile ---------------------------------------------------------------------------

    def _keep_samples(self, samples: List[Json], output: Output, began: float) -> None:
        for sample in samples:
            self._samples.setdefault(str(sample["address"]), []).append(sample)
        address_of = {row["uuid"]: str(row["address"]) for row in self.rows}
        for uuid, since, until in output.loads:
            address = address_of.get(uuid)
            if address is not None:
                there = _inside(samples, address, since - began + WARM_S, until - began)
                self._at_work.setdefault(address, []).extend(there)

    def _say_conditions(self, found: List[Json], output: Output, began: float, samples: List[Json]) -> None:
        """Each result's conditions, of the samples between the result before it on its GPUs and its own end."""
        address_of = {row["uuid"]: str(row["address"]) for row in self.rows}
        begins: Dict[str, float] = {}
        for place, ended in enumerate(output.ended_at):
            one = found[place]
            addresses = {address_of[uuid] for uuid in one["gpus"] if uuid in address_of}
            if not addresses:
                continue
            since = max([begins.get(address, began) for address in addresses])
            of_it = _between(samples, addresses, since - began, ended - began)
            highest = [self._devices[address].get("max_sm_clock_mhz") for address in addresses]
            known = [clock for clock in highest if clock]
            conditions.apply(one, of_it, min(known) if known else None)
            begins.update(dict.fromkeys(addresses, ended))
            one["notes"] += [self._notes[address] for address in sorted(addresses) if address in self._notes]

    def _judge_after(
        self, found: List[Json], rows: List[Json], users: occupied.Users, lost: Dict[str, str]
    ) -> None:
        """Results of GPUs on which somebody began to work while the group ran are invalid."""
        if not rows or self._args.get("evenly_occupied"):
            return
        came: Dict[str, str] = {}
        devices = [self._devices[address] for address in sorted({str(row["address"]) for row in rows})]
        if not self.cancelled:
            now = [dict(device, processes=[]) for device in devices]  # the probe's list is of the beginning
            came = occupied.look(self._host, now, self._runner.token, SETTLE_S)
            lost.update(came)
        for address in users.found:
            came.setdefault(address, str(users.words(address)))
        address_of = {row["uuid"]: str(row["address"]) for row in self.rows}
        for one in found:
            who = [came[address_of[uuid]] for uuid in one["gpus"] if address_of.get(uuid) in came]
            if who and one["status"] == "measured":
                message = "somebody began to work on the GPU meanwhile: %s" % who[0]
                one.update(status="invalid", reason="gpu_became_occupied", message=message)

    def _look_after(self) -> None:
        """``after`` and ``during`` of the GPUs that were measured."""
        after = {str(device["address"]): device for device in targets.probe(self._host)["devices"]}
        for row in targets.measurable(self.rows):
            address = str(row["address"])
            if address in after:
                row["after"] = targets.state(after[address])
            samples, at_work = self._samples.get(address, []), self._at_work.get(address, [])
            row["during"] = conditions.during(samples, at_work, self._devices[address])


def _between(samples: List[Json], addresses: Any, since_s: float, until_s: float) -> List[Json]:
    """The samples of these GPUs in that time; of a test shorter than the pause between two, those around it."""
    of_gpus = [one for one in samples if str(one["address"]) in addresses]
    inside = [one for one in of_gpus if since_s <= one["at_s"] <= until_s]
    if inside:
        return inside
    return [one for one in of_gpus if since_s - SAMPLE_SLACK_S <= one["at_s"] <= until_s + SAMPLE_SLACK_S]


def _inside(samples: List[Json], address: str, since_s: float, until_s: float) -> List[Json]:
    return [one for one in samples if one["address"] == address and since_s <= one["at_s"] <= until_s]


def _completed(
    group: Json, owed: List[Tuple[str, List[str]]], output: Output, ending: Ending, deadline_s: float
) -> List[Json]:
    """What was printed, and for every result that is owed and was not, why."""
    found = list(output.results)
    printed = {(one["test"], tuple(one["gpus"])) for one in found}
    missing = [(test, gpus) for test, gpus in owed if (test, tuple(gpus)) not in printed]
    if missing:
        why = why_missing(group["group"], output, ending, deadline_s, len(group["gpu_uuids"]))
        found += [result(test, gpus, **why) for test, gpus in missing]
    return found


def why_missing(group: str, output: Output, ending: Ending, deadline_s: float, gpus: int) -> Json:
    """{"status", "reason", "message"} of the results that a group did not print."""
    failure = _failure(output, ending, gpus)
    if ending.how == DEADLINE:
        message = "%s did not end within %d s and was killed; it said last: %s" % (
            group,
            deadline_s,
            output.last_words(),
        )
        reason = failure.reason if failure and failure.reason == "collective_timeout" else "deadline"
        return {"status": "timeout", "reason": reason, "message": message}
    if failure is not None:
        status = STATUS_OF.get(failure.reason, "failed")
        return {"status": status, **explain.as_result(failure)}
    message = "%s: %s; it said last: %s" % (group, ending.words(), output.last_words())
    return {"status": "failed", "reason": "container_failed", "message": message}


def _failure(output: Output, ending: Ending, gpus: int) -> Optional[Failure]:
    """What is known of a group's failure, the surest witness first."""
    found: Optional[Failure] = said(output)
    if found is not None:
        return found
    found = explain.explained("%s\n%s" % (ending.refused or "", output.text))
    if found is not None:
        return found
    software = output.software
    if software is not None and gpus and ending.how == ENDED:
        return explain.torch_failure(software["torch"], software["cuda"], True, gpus)
    return None


def _say_notes(found: List[Json], output: Output, ending: Ending) -> None:
    """What concerns the group as a whole, on its first result: the record has no other place for it."""
    several = next((one for one in found if len(one["gpus"]) > 1), None)
    if several is not None:
        several["notes"] += explain.peer_notes(output.text)
    if found and ending.note:
        found[0]["notes"].append(ending.note)


def _utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
