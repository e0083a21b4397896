"""A whole suite with a runner that prints what a test says: one record, whatever becomes of its groups."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bench import occupied, run, targets
from fleet.agent.bench.ending import CANCELLED, DEADLINE, ENDED, Ending
from fleet.agent.bench.output import Output
from fleet.agent.bench.run import Suite
from fleet.agent.bench.torch_side import plan
from fleet.agent.host import Host
from fleet.agent.resources.base import StepFailed
from fleet.core.schema import validate

from .doubles import SOFTWARE, Sampler, address, device, idle, result_line, sample, uuid

DIGEST = "sha256:" + "d" * 64
ARGS: dict[str, Any] = {
    "suite": "quick",
    "where": "container",
    "reference": "registry.example.net:5000/pytorch-cuda:v2.7",
    "digest": DIGEST,
    "gpus": "all",
    "evenly_occupied": False,
    "repeat": False,
    "python": None,
    "deadline_s": 600.0,
}
Said = Callable[[dict[str, Any], Output], Ending]


def all_results(group: dict[str, Any], output: Output) -> Ending:
    """Every result that a group owes."""
    output.feed(SOFTWARE + "\n")
    for test, gpus in plan.expected(group["group"], "quick", group["gpu_uuids"]):
        output.feed(result_line(test, gpus))
    return Ending(ENDED, code=0)


class Bench:
    """A host with GPUs, what is sampled, and what groups print."""

    where, container, token = "container", None, "abc"

    def __init__(self, host: Host, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = host
        self.report = report
        self.probe: dict[str, Any] = {"status": "ok", "message": None, "devices": [device(0), device(1)]}
        self.quiet = [idle(number) for number in (0, 1) for _ in range(5)]
        self.during: dict[str, list[dict[str, Any]]] = {}
        self.says: dict[str, Said] = {}
        self.asked: list[tuple[str, list[str]]] = []
        self.group = ""
        monkeypatch.setattr(targets, "probe", lambda host: self.probe)
        monkeypatch.setattr(targets, "sampler", self.sampler)
        monkeypatch.setattr(occupied, "LOOK_AT_MOST_S", 0.0)
        monkeypatch.setattr(run, "SETTLE_S", 0.0)

    def sampler(self, host: Host, interval_s: float = 0.5) -> Sampler:
        if interval_s == occupied.LOOK_EVERY_S:
            return Sampler(self.quiet)
        place = len(self.asked)
        names = [group["group"] for group in plan.groups("quick", [uuid(0), uuid(1)])]
        return Sampler(
            self.during.get(names[place] if place < len(names) else "", [sample(0, 0.0), sample(1, 0.0)])
        )

    def run(
        self,
        group: dict[str, Any],
        request: dict[str, Any],
        gpus: list[Any],
        deadline_s: float,
        output: Output,
    ) -> Ending:
        self.group = group["group"]
        self.asked.append((self.group, request["gpu_uuids"]))
        ending = self.says.get(self.group, all_results)({**group, "gpu_uuids": request["gpu_uuids"]}, output)
        output.close()
        return ending

    def suite(self, **changes: Any) -> tuple[dict[str, Any], Suite]:
        suite = Suite(self.host, {**ARGS, **changes}, self, self.report)
        found = suite.run()
        assert validate({**found, "key": {}}, "benchmark") == []
        return found, suite

    def record(self, **changes: Any) -> dict[str, Any]:
        return self.suite(**changes)[0]


@pytest.fixture
def bench(host: Host, report: Any, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(host, report, monkeypatch)


def of(record: dict[str, Any], test: str) -> list[dict[str, Any]]:
    return [one for one in record["results"] if one["test"] == test]


def test_a_healthy_host_gives_every_result_once(bench: Bench) -> None:
    record = bench.record()
    assert [group for group, _ in bench.asked] == ["cpu", "compute", "training", "collectives"]
    owed = [pair for group, gpus in bench.asked for pair in plan.expected(group, "quick", gpus)]
    assert [(one["test"], one["gpus"]) for one in record["results"]] == owed
    assert {one["status"] for one in record["results"]} == {"measured"}
    assert [gpu["state"] for gpu in record["gpus"]] == ["measured", "measured"]
    assert record["gpus"][0]["during"]["samples"] == 3  # of the groups that use it
    assert record["gpus"][0]["after"]["sm_clock_mhz"] == 345
    assert record["software"]["torch"] == "2.7.0+cu128"
    assert record["image"] == {"reference": ARGS["reference"], "digest": DIGEST}
    assert record["simulated"] is False


def test_a_simulated_host_says_so(bench: Bench, root: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc/fleet-lab.json").write_text("{}")
    assert bench.record()["simulated"] is True


def test_a_gpu_in_use_is_skipped_by_name_and_the_other_is_measured(bench: Bench) -> None:
    user = {"pid": 226424, "kind": "compute", "command": "llama-server", "user": "anna"}
    bench.probe["devices"][0] = device(0, processes=[user])
    record = bench.record()
    first, second = record["gpus"]
    assert (first["state"], first["reason"], first["during"]) == ("skipped", "gpu_occupied", None)
    assert first["message"] == "in use: llama-server (pid 226424, user anna)"
    assert second["state"] == "measured"
    assert {name for one in record["results"] for name in one["gpus"]} == {uuid(1)}
    assert [group for group, _ in bench.asked] == ["cpu", "compute", "training"]  # one GPU is no pair


def test_with_leave_a_gpu_in_use_is_measured_and_the_result_says_so(bench: Bench) -> None:
    user = {"pid": 226424, "kind": "compute", "command": "llama-server", "user": None}
    bench.probe["devices"][0] = device(0, processes=[user])
    found = of(bench.record(evenly_occupied=True), "memory.copy")
    assert found[0]["status"] == "measured"
    assert "measured although the GPU was in use: llama-server (pid 226424)" in found[0]["notes"]
    assert found[1]["notes"] == []


def test_where_every_gpu_is_in_use_there_is_a_record_and_nothing_is_run(bench: Bench) -> None:
    bench.quiet = [idle(number, gpu_utilization_percent=70) for number in (0, 1) for _ in range(5)]
    record = bench.record()
    assert [gpu["reason"] for gpu in record["gpus"]] == ["gpu_occupied"] * 2
    assert (record["results"], bench.asked) == ([], [])


def test_somebody_who_comes_meanwhile_spoils_what_was_measured(bench: Bench) -> None:
    busy = [idle(0, gpu_utilization_percent=88) for _ in range(5)] + [idle(1)] * 5

    def comes(group: dict[str, Any], output: Output) -> Ending:
        bench.quiet = busy
        return all_results(group, output)

    bench.says["compute"] = comes
    record = bench.record()
    first, second = of(record, "memory.copy")
    assert (first["status"], first["reason"], second["status"]) == (
        "invalid",
        "gpu_became_occupied",
        "measured",
    )
    assert ("training", [uuid(1)]) in bench.asked
    skipped = of(record, "resnet50.amp_channels_last")
    assert {(one["gpus"][0], one["status"], one["reason"]) for one in skipped} == {
        (uuid(0), "skipped", "gpu_occupied"),
        (uuid(1), "measured", None),
    }
    assert of(record, "nccl.all_reduce")[0]["status"] == "skipped"


def test_a_group_that_hangs_times_out_and_the_others_go_on(bench: Bench) -> None:
    def hangs(group: dict[str, Any], output: Output) -> Ending:
        output.feed(result_line("matrix_product.bf16", [uuid(0)]))
        output.feed("gpu01:7:9 [0] NCCL INFO Connected all rings\n")
        return Ending(DEADLINE)

    bench.says["compute"] = hangs
    record = bench.record()
    assert of(record, "matrix_product.bf16")[0]["status"] == "measured"  # what was printed is kept
    late = of(record, "memory.copy")[0]
    assert (late["status"], late["reason"], late["value"]) == ("timeout", "deadline", None)
    assert "Connected all rings" in late["message"]
    assert of(record, "resnet50.amp_channels_last")[0]["status"] == "measured"


def test_a_collective_that_never_ends_has_its_reason_and_the_pairs_are_noted_once(bench: Bench) -> None:
    def hangs(group: dict[str, Any], output: Output) -> Ending:
        output.feed("gpu01:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can\n")
        output.feed("gpu01:1:3 [1] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can\n")
        text = "[rank1]:[E1130] [Rank 1] Watchdog caught collective operation timeout: "
        output.feed(
            text + "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, X) ran for 60021 milliseconds before timing out.\n"
        )
        return Ending(ENDED, code=1)

    bench.says["collectives"] = hangs
    record = bench.record()
    found = of(record, "nccl.all_reduce")[0]
    assert (found["status"], found["reason"]) == ("timeout", "collective_timeout")
    assert "ALLREDUCE did not end: it ran for 60021 ms" in found["message"]
    notes = [note for one in record["results"] for note in one["notes"] if "P2P" in note]
    assert notes == ["GPUs 0 and 1 cannot reach each other's memory (P2P is disabled)"]


@pytest.mark.parametrize(
    ("text", "code", "status", "reason"),
    [
        ("fleet:no_torch", 3, "not_runnable", "torch_missing"),
        ("fleet:shm_too_small 65536", 4, "failed", "shm_too_small"),
        ("RuntimeError: Failed to find C compiler.", 1, "not_runnable", "no_compiler"),
        ("RuntimeError: Error 802: system not yet initialized", 1, "failed", "cuda_init_failed"),
        ("Segmentation fault", 139, "failed", "container_failed"),
        ("", 0, "failed", "container_failed"),
    ],
)
def test_a_group_that_fails_says_why_in_each_of_its_results(
    bench: Bench, text: str, code: int, status: str, reason: str
) -> None:
    def fails(group: dict[str, Any], output: Output) -> Ending:
        output.feed(text + "\n")
        return Ending(ENDED, code=code)

    bench.says["training"] = fails
    record = bench.record()
    for one in of(record, "resnet50.amp_channels_last"):
        assert (one["status"], one["reason"]) == (status, reason)
    assert of(record, "nccl.all_reduce")[0]["status"] == "measured"


def test_a_torch_without_cuda_gives_no_result_of_a_gpu(bench: Bench) -> None:
    def on_the_cpu(group: dict[str, Any], output: Output) -> Ending:
        software = json.loads(SOFTWARE.partition(" ")[2])
        output.feed("fleet:software " + json.dumps({**software, "torch": "2.5.1+cpu", "cuda": None}) + "\n")
        return Ending(ENDED, code=1)

    bench.says["compute"] = on_the_cpu
    found = of(bench.record(), "memory.copy")[0]
    assert (found["status"], found["reason"], found["value"]) == ("not_runnable", "torch_cpu_build", None)


def test_a_refusal_of_the_engine_is_explained(bench: Bench) -> None:
    words = 'could not select device driver "" with capabilities: [[gpu]]'
    bench.says["compute"] = lambda group, output: Ending(ENDED, refused=words)
    found = of(bench.record(), "memory.copy")[0]
    assert (found["status"], found["reason"]) == ("failed", "container_failed")
    assert "no toolkit was there when it started" in found["message"]


def test_the_step_fails_only_where_no_group_could_be_started(bench: Bench) -> None:
    def gone(group: dict[str, Any], output: Output) -> Ending:
        raise StepFailed("the engine went away", "systemctl status docker")

    bench.says = dict.fromkeys(("compute", "training", "collectives"), gone)
    found = of(bench.record(), "memory.copy")[0]
    assert (found["status"], found["reason"]) == ("failed", "container_failed")
    assert "the engine went away" in found["message"]
    bench.says["cpu"] = gone
    with pytest.raises(StepFailed, match="no benchmark could be started: the engine went away"):
        bench.record()


def test_heat_in_one_group_spoils_that_group_of_that_gpu_only(bench: Bench) -> None:
    hot = sample(0, 0.0, clocks_event_reasons=["hw_slowdown", "hw_thermal_slowdown"], temperature_c=92)
    bench.during["compute"] = [hot, sample(1, 0.0)]
    record = bench.record()
    first, second = of(record, "memory.copy")
    assert (first["status"], first["reason"], second["status"]) == (
        "invalid",
        "hw_thermal_slowdown",
        "measured",
    )
    assert of(record, "resnet50.amp_channels_last")[0]["status"] == "measured"
    assert record["gpus"][0]["during"]["clocks_event_reasons"] == ["hw_slowdown", "hw_thermal_slowdown"]


def test_an_image_without_code_for_a_gpu_is_known_before_it_runs(bench: Bench, root: Path) -> None:
    (root / "state/checks").mkdir(parents=True)
    checked = {"digest": DIGEST, "versions": {"arch_list": ["sm_37", "sm_70"]}}
    (root / "state/checks/container.json").write_text(json.dumps(checked))
    record = bench.record()
    assert [gpu["reason"] for gpu in record["gpus"]] == ["arch_mismatch"] * 2
    assert "sm_90" in record["gpus"][0]["message"]
    assert ARGS["reference"] in record["gpus"][0]["message"]
    assert bench.asked == []


def test_a_host_without_gpus_has_a_record_without_gpus(bench: Bench) -> None:
    bench.probe = {"status": "no_devices", "message": None, "devices": []}
    record = bench.record()
    assert (record["gpus"], record["results"]) == ([], [])


def test_a_driver_that_does_not_answer_fails_and_says_so(bench: Bench) -> None:
    bench.probe = {"status": "driver_not_loaded", "message": "no driver", "devices": []}
    with pytest.raises(StepFailed, match="driver_not_loaded: no GPU can be asked: no driver"):
        bench.record()


def test_a_gpu_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(StepFailed, match="no GPU or MIG instance 9, GPU-x"):
        bench.record(gpus=["0", "9", "GPU-x"])


def test_cancelled_in_a_group_nothing_more_is_begun(bench: Bench) -> None:
    def cancelled(group: dict[str, Any], output: Output) -> Ending:
        output.feed(result_line("memory.copy", [uuid(0)]))
        return Ending(CANCELLED)

    bench.says["compute"] = cancelled
    record, suite = bench.suite()
    assert suite.cancelled
    assert [group for group, _ in bench.asked] == ["cpu", "compute"]
    assert [one["test"] for one in record["results"]] == ["cpu.matrix_product", "memory.copy"]


def test_what_the_step_has_no_time_for_is_skipped(bench: Bench) -> None:
    record = bench.record(deadline_s=5.0)
    assert bench.asked == []
    assert {(one["status"], one["reason"]) for one in record["results"]} == {("skipped", "deadline")}


def test_instances_of_mig_are_named_by_their_own_uuid(bench: Bench) -> None:
    small = {"uuid": "MIG-00000000-0000-5000-8000-000000000002", "profile": "1g.10gb"}
    bench.probe["devices"] = [device(0, mig={"mode": "enabled", "devices": [small]})]
    record = bench.record()
    assert [(gpu["uuid"], gpu["mig_profile"]) for gpu in record["gpus"]] == [(small["uuid"], "1g.10gb")]
    assert of(record, "memory.copy")[0]["gpus"] == [small["uuid"]]
    assert address(0) == record["gpus"][0]["address"]


def test_how_busy_a_gpu_was_is_of_the_time_in_which_it_was_kept_at_work(bench: Bench) -> None:
    """Between tests it waits for the host: samples of that time say nothing."""

    def trains(group: dict[str, Any], output: Output) -> Ending:
        now = time.monotonic()
        output.loads.append((uuid(0), now - 0.5, now + 10.0))
        return all_results(group, output)

    bench.says["training"] = trains
    waits = [idle(0, 0.1), *(sample(0, at, gpu_utilization_percent=96) for at in (1.0, 2.0)), sample(1, 1.0)]
    bench.during["training"] = waits
    record = bench.record()
    assert record["gpus"][0]["during"]["gpu_utilization_percent_median"] == 96
    assert record["gpus"][1]["during"]["gpu_utilization_percent_median"] is None
