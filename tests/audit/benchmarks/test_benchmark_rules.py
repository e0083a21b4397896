"""Every rule on benchmarks fires on its known-bad input, stays silent on healthy hosts, and cannot go missing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from fleet.audit.benchmarks import Baseline, Verdict, judge
from fleet.audit.benchmarks.judge import RULES
from fleet.audit.benchmarks.subject import baseline_key, subjects
from fleet.audit.benchmarks.watch import RULES as HOST_RULES
from fleet.catalogue.catalogue import load
from fleet.core import schema
from tests.benchmarks import MODELS, Json, not_measured, of, record, result, scale, uuid

CATALOGUE = load()
HOST = "gpu01"


def one(test: str, document: Json, number: int = 0, **named: Any) -> Verdict:
    """The verdict on the ``number``-th result of ``test`` of a single host."""
    assert schema.validate(document, "benchmark") == []
    found = [said for said in judge({HOST: document}, CATALOGUE, **named)[HOST] if said.test == test]
    return found[number]


def changed(model: str, count: int, test: str, **changes: Any) -> Json:
    document = record(model, count)
    of(document, test).update(copy.deepcopy(changes))
    return document


def slower(model: str, count: int, test: str, factor: float) -> Json:
    document = record(model, count)
    scale(of(document, test), factor)
    return document


def during(model: str, **changes: Any) -> Json:
    document = record(model, 1)
    document["gpus"][0]["during"].update(changes)
    return document


def earlier(document: Json, test: str, value: float, **conditions: Any) -> Baseline:
    """A baseline of the first result of ``test``."""
    subject = next(each for each in subjects(HOST, document, CATALOGUE.gpus) if each.test == test)
    return Baseline(HOST, subject.gpu, test, baseline_key(subject), value, conditions)


def timed_out() -> Json:
    document = record("h100", 2)
    words = "BROADCAST ran for 600023 ms"
    bad = not_measured("nccl.all_gather", [uuid(0), uuid(1)], "timeout", "collective_timeout", words, "gb_s")
    document["results"].append(bad)
    return document


def burned(wrong: float) -> Json:
    document = record("h100", 1, suite="burn")
    document["results"] = [result("burn", [uuid(0)], wrong, "count", parameters={"iterations": 4000})]
    return document


def mixed() -> Json:
    document = record("h100", 2)
    document["gpus"][1]["compute_capability"] = "8.0"
    return document


def left_out(reason: str, message: str) -> Json:
    """Two GPUs, the second of which was not measured."""
    document = record("h100", 2)
    document["gpus"][1].update(state="skipped", reason=reason, message=message, during=None, after=None)
    document["results"] = [each for each in document["results"] if uuid(1) not in each["gpus"]]
    return document


def waiting() -> Json:
    document = record("h100", 8)
    of(document, "ddp.resnet50")["parameters"]["synchronisation_percent"] = 22.0
    return document


BASE = record("h100", 1)

#: Rule -> (test, record, further arguments of judge, verdict, words of its reason).
KNOWN_BAD: dict[str, tuple[str, Json, dict[str, Any], str, str]] = {
    "bench.status": ("nccl.all_gather", timed_out(), {}, "fail", "collective_timeout: BROADCAST ran for 600023 ms"),
    "bench.correctness": (
        "matrix_product.fp8",
        changed(
            "h100", 1, "matrix_product.fp8",
            correctness={"checked": True, "passed": False, "max_relative_error": 0.31, "tolerance": 0.05},
        ),
        {}, "fail", "wrong_result: relative error 0.31, at most 0.05",
    ),
    "bench.value": ("memory.copy", changed("t4", 1, "memory.copy", value=0.0), {}, "fail", "no_samples: 0.0 of 20"),
    "bench.burn": ("burn", burned(3), {}, "fail", "3 results under sustained load were wrong"),
    "bench.cpu": ("cpu.matrix_product", record("h100", 1), {}, "not_judged", "shows that torch works"),
    "bench.clocks": (
        "matrix_product.bf16",
        changed("h100", 1, "matrix_product.bf16", clocks_event_reasons=["hw_thermal_slowdown", "hw_slowdown"]),
        {}, "invalid", "hw_slowdown, hw_thermal_slowdown: the GPU was slowed down",
    ),
    "bench.above_peak": (
        "memory.copy", slower("t4", 1, "memory.copy", 1.5), {}, "invalid", "112% of the memory bandwidth of T4",
    ),
    "bench.limit": (
        "matrix_product.bf16", slower("h100", 1, "matrix_product.bf16", 0.7), {}, "fail", "below the limit of 595",
    ),
    "bench.floor": (
        "matrix_product.fp16", slower("t4", 1, "matrix_product.fp16", 0.6), {}, "warn", "35% of the fp16 peak of T4",
    ),
    "bench.narrow_link": (
        "host_link.to_device",
        {**(narrow := during("t4", pcie_width=8)), "results": [
            {**each, "value": 6.2} if each["test"].startswith("host_link") else each for each in narrow["results"]
        ]},
        {}, "warn", "the link ran as PCIe 3 x8 under load",
    ),
    "bench.baseline": (
        "memory.copy", BASE, {"baselines": [earlier(BASE, "memory.copy", 3300.0)]}, "fail",
        "11% slower than its baseline 3300",
    ),
    "bench.peers": (
        "resnet50.amp", slower("4090", 8, "resnet50.amp", 0.33), {}, "fail",
        "67% slower than the median 1300 of 7 others of this host",
    ),
    "bench.scatter": (
        "memory.triad", changed("t4", 1, "memory.triad", spread_percent=14.0), {}, "warn", "its samples scatter by",
    ),
    "bench.notes": (
        "memory.copy", changed("t4", 1, "memory.copy", notes=["retried once"]), {}, "pass", "retried once",
    ),
    "watch.left_out": (
        "watch.left_out", left_out("needs_recovery", "rows wait to be remapped"), {}, "fail",
        "needs_recovery: rows wait to be remapped",
    ),
    "watch.clocks": (
        "watch.clocks", during("h100", clocks_event_reasons=["hw_slowdown"], temperature_c_max=92), {}, "fail",
        "hw_slowdown under load, hottest 92 °C",
    ),
    "watch.utilisation": (
        "watch.utilisation", during("h100", gpu_utilization_percent_median=55), {}, "warn", "busy only 55 %",
    ),
    "watch.memory": (
        "watch.memory", during("t4", memory_used_mib_max=14500), {}, "warn", "14500 of 15360 MiB in use",
    ),
    "watch.synchronisation": ("watch.synchronisation", waiting(), {}, "warn", "22 % of a step is synchronisation"),
    "watch.mixed_capabilities": ("watch.mixed_capabilities", mixed(), {}, "warn", "compute capabilities 8.0, 9.0"),
    "watch.gpu_count": (
        "watch.gpu_count", record("h100", 7), {"wanted": {HOST: {"gpus": {"count": 8}}}}, "fail",
        "7 GPUs in the record, 8 in the inventory",
    ),
    "watch.model_memory": (
        "watch.model_memory", record("t4", 1), {"wanted": {HOST: {"model": {"parameters_b": 7}}}}, "warn",
        "7e9 parameters of 16 bytes need 104.3 GiB besides activations; a GPU here has 15 GiB",
    ),
}  # fmt: skip


def test_a_gpu_that_was_left_out_on_purpose_is_told_and_does_not_fail() -> None:
    said = one("watch.left_out", left_out("gpu_occupied", "in use: python3 (pid 4242)"))
    assert (said.verdict, said.gpus) == ("skipped", (uuid(1),))
    assert said.reasons == ("gpu_occupied: in use: python3 (pid 4242)",)


def test_no_rule_is_missing_and_each_has_a_known_bad_input() -> None:
    assert [rule.id for rule in (*RULES, *HOST_RULES)] == list(KNOWN_BAD)
    assert all(rule.holds for rule in (*RULES, *HOST_RULES))


@pytest.mark.parametrize("rule", KNOWN_BAD)
def test_a_rule_fires_on_its_known_bad_input(rule: str) -> None:
    test, document, named, verdict, words = KNOWN_BAD[rule]
    said = one(test, document, **named)
    assert (said.verdict, [why for why in said.reasons if words in why] != []) == (verdict, True), said


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("count", [1, 2, 8])
def test_healthy_hosts_have_nothing_but_passes(model: str, count: int) -> None:
    found = judge({HOST: record(model, count)}, CATALOGUE)[HOST]
    bad = [said for said in found if said.verdict not in ("pass", "not_judged")]
    assert bad == []
    assert sum(said.verdict == "pass" for said in found) > len(found) / 2


def test_the_same_input_gives_the_same_whatever_its_order() -> None:
    records = {f"gpu{number:02}": record("h100", 4, host=number) for number in range(4)}
    scale(of(records["gpu02"], "memory.copy"), 0.8)
    first = judge(records, CATALOGUE)
    again = judge(dict(reversed(copy.deepcopy(records).items())), CATALOGUE)
    assert [[said.as_json() for said in found] for found in first.values()] == [
        [said.as_json() for said in found] for found in again.values()
    ]
    assert list(first) == list(again) == sorted(records)


# ---- what was not measured ----


@pytest.mark.parametrize(
    ("status", "reason", "verdict"),
    [
        ("skipped", "gpu_occupied", "skipped"),
        ("not_runnable", "no_compiler", "not_judged"),
        ("failed", "torch_cpu_build", "fail"),
        ("failed", "no_samples", "fail"),
        ("timeout", "deadline", "fail"),
        ("invalid", "gpu_became_occupied", "invalid"),
        ("invalid", "non_finite", "fail"),
        ("invalid", "wrong_result", "fail"),
    ],
)
def test_a_status_is_carried_over_with_its_reason(status: str, reason: str, verdict: str) -> None:
    document = record("h100", 1)
    document["results"] = [not_measured("memory.copy", [uuid(0)], status, reason, "words", "gb_s")]
    said = one("memory.copy", document)
    assert (said.verdict, said.reasons, said.value, said.share_of_peak) == (
        verdict,
        (f"{reason}: words",),
        None,
        None,
    )


def test_what_was_not_measured_is_no_peer() -> None:
    document = record("h100", 6)
    for number in range(5):
        of(document, "memory.copy", number).update(
            status="skipped", reason="gpu_occupied", value=None, samples=0, minimum=None, maximum=None
        )
    assert one("memory.copy", document, 5).peer_median is None


# ---- peers ----


def test_a_gpu_at_a_third_of_its_rate_fails_by_its_peers_where_no_limit_would_tell() -> None:
    said = one("resnet50.amp", slower("h100", 8, "resnet50.amp", 1 / 3))
    assert (said.verdict, said.limit, said.peer_median) == ("fail", None, 2700)
    assert said.peer_deviation is not None
    assert said.peer_deviation < -60
    assert one("resnet50.amp", slower("h100", 8, "resnet50.amp", 1 / 3), 1).verdict == "pass"


def test_fewer_than_four_others_are_told_and_give_no_verdict() -> None:
    said = one("resnet50.amp", slower("h100", 4, "resnet50.amp", 0.5))
    assert (said.verdict, said.peer_deviation) == ("not_judged", None)
    assert said.reasons[-1] == (
        "50% slower than the median of 3 others of this host; fewer than 4 give no verdict"
    )


def test_a_slow_host_is_seen_beside_the_fleet() -> None:
    records = {f"gpu{number:02}": record("4090", 2, host=number) for number in range(4)}
    for number in range(2):
        scale(of(records["gpu03"], "resnet50.amp", number), 0.9)
    found = judge(records, CATALOGUE)
    slow = [said for said in found["gpu03"] if said.test == "resnet50.amp"]
    assert [said.verdict for said in slow] == ["fail", "fail"]
    assert slow[0].reasons[0].startswith("10% slower than the median 1300 of 7 others of the fleet")
    assert {said.verdict for said in found["gpu00"] if said.test == "resnet50.amp"} == {"pass"}


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("image", lambda one: one["image"].update(digest="sha256:" + "b2" * 32)),
        ("parameters", lambda one: of(one, "resnet50.amp")["parameters"].update(batch=64)),
        ("harness", lambda one: one["software"].update(torch="2.6.0+cu126")),
        ("where", lambda one: one.update(where="host", image=None)),
        ("simulated", lambda one: one.update(simulated=True)),
        ("subsystem", lambda one: one["gpus"][0].update(subsystem_id="0001")),
    ],
)
def test_only_like_is_held_against_like(what: str, change: Callable[[Json], object]) -> None:
    records = {f"gpu{number:02}": record("4090", 1, host=number) for number in range(6)}
    scale(of(records["gpu05"], "resnet50.amp"), 0.5)
    change(records["gpu05"])
    said = next(said for said in judge(records, CATALOGUE)["gpu05"] if said.test == "resnet50.amp")
    assert (said.peer_median, said.verdict) == (None, "not_judged")


def test_what_measuring_found_does_not_keep_results_apart() -> None:
    document = record("h100", 8)
    for number in range(8):
        of(document, "transformer.compile", number)["parameters"]["compile_s"] = 30.0 + number
        of(document, "matrix_product.bf16", number)["parameters"]["shape"] = [1024 * (number + 1)] * 3
        of(document, "memory.copy", number)["parameters"]["bytes"] = (number + 1) << 20
    assert one("transformer.compile", document).peer_median == pytest.approx(67600)
    assert one("matrix_product.bf16", document).peer_median == 745
    assert one("memory.copy", document).peer_median == 2950


def test_less_latency_is_better() -> None:
    records = {f"gpu{number:02}": record("h100", 8, host=number) for number in range(6)}
    scale(of(records["gpu00"], "nccl.all_reduce_latency"), 0.5)
    scale(of(records["gpu01"], "nccl.all_reduce_latency"), 2.0)
    found = judge(records, CATALOGUE)
    verdicts = {
        host: said.verdict for host in found for said in found[host] if said.test == "nccl.all_reduce_latency"
    }
    assert (verdicts["gpu00"], verdicts["gpu01"], verdicts["gpu02"]) == ("pass", "fail", "pass")


def test_a_gpu_slowed_down_by_its_hardware_is_no_peer_to_others() -> None:
    document = record("4090", 5)
    of(document, "resnet50.amp", 1)["clocks_event_reasons"] = ["hw_thermal_slowdown"]
    assert one("resnet50.amp", document).peer_deviation is None


# ---- peaks and links ----


def test_the_share_is_of_the_product_known_by_its_pci_ids_and_never_by_its_name() -> None:
    document = record("h100", 1)
    document["gpus"][0]["name"] = "NVIDIA RTX A1000"
    said = one("matrix_product.bf16", document)
    assert (said.peak, said.limit, said.share_of_peak) == (989, 595, 0.7533)
    assert said.limit_source is not None
    assert "DCGM" in said.limit_source


def test_a_gpu_that_the_catalogue_does_not_know_is_unknown_and_no_failure() -> None:
    document = record("h100", 1)
    document["gpus"][0].update(device_id="ffff", subsystem_id="0001")
    said = one("matrix_product.bf16", document)
    assert (said.verdict, said.reasons) == ("unknown", ("the catalogue does not know the GPU ffff:0001",))
    document["gpus"][0].update(device_id=None, subsystem_id=None)
    assert one("matrix_product.bf16", document).verdict == "unknown"


def test_a_product_of_several_subsystems_is_told_apart_also_without_the_vendor() -> None:
    document = record("t4", 1)
    document["gpus"][0].update(device_id="25b6", subsystem_id="14a9")
    assert one("matrix_product.fp16", document).peak == CATALOGUE.gpus.find("a16").peaks.get("fp16_tensor")
    document["gpus"][0].update(subsystem_id="10de:157e")
    assert one("matrix_product.fp16", document).peak == CATALOGUE.gpus.find("a2").peaks.get("fp16_tensor")


@pytest.mark.parametrize(
    ("generation", "width", "peak"), [(3, 16, 15.74), (4, 16, 31.5), (5, 16, 63.01), (4, 8, 15.75)]
)
def test_the_host_link_is_held_against_the_link_seen_under_load(
    generation: int, width: int, peak: float
) -> None:
    document = during("h100", pcie_generation=generation, pcie_width=width)
    for each in document["results"]:
        if each["test"].startswith("host_link"):
            each["value"] = 0.85 * peak
    said = one("host_link.to_device", document)
    assert (said.peak, said.share_of_peak) == (peak, pytest.approx(0.85, abs=0.001))
    assert said.verdict == ("pass" if (generation, width) == (5, 16) else "warn")


def test_a_link_that_was_not_seen_under_load_has_no_theory() -> None:
    said = one("host_link.to_device", during("h100", pcie_generation=None))
    assert (said.verdict, said.peak) == ("not_judged", None)
    assert said.reasons == ("the link's generation and width were not seen under load",)


def test_memory_bandwidth_is_judged_only_where_the_counting_is_told() -> None:
    said = one("memory.copy", changed("h100", 1, "memory.copy", parameters={"bytes": 1 << 30}))
    assert (said.verdict, said.peak) == ("not_judged", None)


def test_nvlink_must_come_near_its_rate_and_pcie_is_not_taken_for_it() -> None:
    document = record("h100", 8)
    for number in range(8):
        scale(of(document, "peer.copy", number), 0.5)
    said = one("peer.copy", document)
    assert (said.verdict, said.peak, said.limit) == ("fail", 450, 335)
    said = one("nccl.all_reduce", slower("h100", 8, "nccl.all_reduce", 0.5))
    assert (said.verdict, said.reasons) == (
        "warn",
        ("49% of the rate of NVLink one way (450); 70% can be expected",),
    )
    assert one("peer.copy", record("4090", 8)).peak == 31.5


def test_pairs_over_pcie_differ_by_where_they_sit_and_that_is_no_fault() -> None:
    said = one("peer.copy", slower("4090", 8, "peer.copy", 0.5))
    assert said.verdict == "not_judged"
    assert said.reasons[-1].endswith("7 others of this host; pairs differ by where they sit")


def test_small_messages_are_not_held_against_nvlink() -> None:
    document = slower("h100", 8, "nccl.all_reduce", 0.3)
    for point in of(document, "nccl.all_reduce")["points"]:
        point["size_bytes"] //= 64
    assert one("nccl.all_reduce", document).verdict == "not_judged"


def test_fewer_than_eight_may_be_joined_by_fewer_links() -> None:
    said = one("peer.copy", record("h100", 4))
    assert (said.verdict, said.peak) == ("not_judged", None)
    assert "is not known" in said.reasons[0]


def test_where_all_links_lead_to_a_switch_two_gpus_have_them_all() -> None:
    document = record("h100", 2)
    for gpu in document["gpus"]:
        gpu["nvlinks"] = {"active": 18, "to_switch": 18}
    said = one("peer.copy", document)
    assert (said.verdict, said.peak, said.limit) == ("pass", 450, 335)
    assert one("nccl.all_reduce", document).verdict == "not_judged"
    document["gpus"][1]["nvlinks"] = {"active": 18, "to_switch": 12}
    assert one("peer.copy", document).verdict == "not_judged"


# ---- MIG ----


def sliced() -> Json:
    document = record("h100", 8)
    first = document["gpus"][0]
    first.update(uuid="MIG-00000000-0000-5000-8000-000000000001", mig_profile="1g.10gb")
    first["during"]["gpu_utilization_percent_median"] = None
    mine = [each for each in document["results"] if each["gpus"] == [uuid(0)]]
    for each in mine:
        each["gpus"] = [first["uuid"]]
        scale(each, 0.14)
    document["results"] = [each for each in document["results"] if uuid(0) not in each["gpus"]]
    return document


def test_a_mig_instance_is_never_held_against_whole_gpus() -> None:
    found = judge({HOST: sliced()}, CATALOGUE)[HOST]
    mine = [said for said in found if said.gpus == ("MIG-00000000-0000-5000-8000-000000000001",)]
    results = [said for said in mine if not said.test.startswith("watch.")]
    assert {said.verdict for said in results} == {"not_judged"}
    assert {(said.peak, said.limit, said.peer_median) for said in results} == {(None, None, None)}
    assert not [said for said in mine if said.test == "watch.utilisation"]
    others = [said for said in found if said.gpus == (uuid(1),) and said.test == "memory.copy"]
    assert [(said.verdict, said.peer_median) for said in others] == [("pass", 2950)]


def test_mig_instances_of_one_profile_are_peers() -> None:
    records = {}
    for number in range(6):
        document = sliced()
        document["gpus"][0]["uuid"] = name = f"MIG-00000000-0000-5000-8000-{number:012}"
        for each in document["results"]:
            each["gpus"] = [name if one.startswith("MIG-") else one for one in each["gpus"]]
        records[f"gpu{number:02}"] = document
    slow = next(each for each in records["gpu00"]["results"] if each["gpus"][0].startswith("MIG-"))
    scale(slow, 0.5)
    said = judge(records, CATALOGUE)["gpu00"][records["gpu00"]["results"].index(slow)]
    assert said.verdict == "fail"


# ---- baselines ----


@pytest.mark.parametrize(
    ("was", "verdict", "change"), [(2950, "pass", 0.0), (3130, "warn", -5.75), (3300, "fail", -10.61)]
)
def test_a_baseline_is_told_in_percent(was: float, verdict: str, change: float) -> None:
    said = one("memory.copy", BASE, baselines=[earlier(BASE, "memory.copy", was)])
    assert (said.verdict, said.baseline, said.baseline_change_percent) == (verdict, was, change)


def test_a_baseline_holds_across_drivers_and_says_so() -> None:
    said = one("memory.copy", BASE, baselines=[earlier(BASE, "memory.copy", 3300, driver="570.172.08")])
    assert said.reasons == (
        "11% slower than its baseline 3300, with driver 570.172.08 then and 580.159.04 now",
    )


def test_a_baseline_of_another_image_is_named_and_not_compared() -> None:
    other = copy.deepcopy(BASE)
    other["image"]["digest"] = "sha256:" + "c3" * 32
    said = one("memory.copy", BASE, baselines=[earlier(other, "memory.copy", 9999.0)])
    assert (said.verdict, said.baseline) == ("pass", None)
    assert said.reasons == ("its baseline is of another image or other parameters: not compared",)


def test_a_baseline_judges_where_nothing_else_does() -> None:
    said = one("resnet50.amp", BASE, baselines=[earlier(BASE, "resnet50.amp", 2700.0)])
    assert (said.verdict, said.reasons) == ("pass", ())


# ---- clocks ----


def test_a_power_cap_is_valid_and_noted_and_idle_is_nothing() -> None:
    said = one("watch.clocks", during("h100", clocks_event_reasons=["sw_power_cap", "gpu_idle"]))
    assert (said.verdict, said.reasons) == (
        "pass",
        ("sw_power_cap: held at its power limit, which is no fault",),
    )
    assert one("watch.clocks", during("h100", clocks_event_reasons=["gpu_idle"])).reasons == ()
    assert one("matrix_product.bf16", during("h100", clocks_event_reasons=["sw_power_cap"])).verdict == "pass"


def test_where_no_test_kept_a_gpu_at_work_its_clock_is_not_judged() -> None:
    said = one("watch.clocks", during("h100", sm_clock_mhz_median=None, clocks_event_reasons=[]))
    assert (said.verdict, said.value) == ("not_judged", None)


def test_a_clock_below_its_highest_without_a_reason_is_likely_locked() -> None:
    said = one("watch.clocks", during("h100", sm_clock_mhz_median=1507))
    assert (said.verdict, said.value, said.limit) == ("pass", 1507, 1980)
    assert said.reasons == ("1507 of 1980 MHz with nothing said to hold it down: locked clocks are likely",)


def test_without_samples_of_its_own_a_result_takes_those_of_the_whole_run() -> None:
    document = during("h100", clocks_event_reasons=["hw_power_brake_slowdown"])
    of(document, "memory.copy")["clocks_event_reasons"] = None
    assert one("memory.copy", document).verdict == "invalid"
    assert one("memory.triad", document).verdict == "pass"


def test_a_burn_without_a_wrong_result_passes_but_not_when_it_ran_too_hot() -> None:
    assert one("burn", burned(0)).verdict == "pass"
    hot = burned(0)
    of(hot, "burn")["clocks_event_reasons"] = ["hw_thermal_slowdown"]
    assert one("burn", hot).verdict == "fail"


# ---- models ----


@pytest.mark.parametrize(
    ("model", "count", "wanted", "verdict", "words"),
    [
        ("h100", 8, {"parameters_b": 3}, "pass", ""),
        ("h100", 8, {"parameters_b": 7}, "warn", "sharded over the 8 GPUs of the host"),
        ("t4", 1, {"parameters_b": 7}, "warn", "gradient accumulation"),
        ("t4", 1, {"parameters_b": 7}, "warn", "ZeRO-Offload"),
        ("t4", 1, {"parameters_b": 7}, "warn", "quantise"),
        ("4090", 1, {"parameters_b": 7, "bytes_per_parameter": 2}, "pass", ""),
    ],
)
def test_a_model_too_large_for_its_cards_gets_advice(
    model: str, count: int, wanted: dict[str, Any], verdict: str, words: str
) -> None:
    said = one("watch.model_memory", record(model, count), wanted={HOST: {"model": wanted}})
    assert said.verdict == verdict
    assert words in " ".join(said.reasons)


def test_a_record_that_knows_next_to_nothing_is_judged_all_the_same() -> None:
    document = record("h100", 8)
    document.update(software=None, image=None, key={}, where="host")
    for gpu in document["gpus"]:
        keep = {"uuid": gpu["uuid"], "state": "measured"}
        gpu.update({**dict.fromkeys(gpu), **keep})
    for each in document["results"]:
        unknown = ("minimum", "maximum", "spread_percent", "correctness", "points", "clocks_event_reasons")
        each.update({**dict.fromkeys(unknown), "parameters": {}})
    assert schema.validate(document, "benchmark") == []
    found = judge({HOST: document}, CATALOGUE)[HOST]
    assert {said.verdict for said in found} <= {"pass", "unknown", "not_judged"}
    assert not [said for said in found if said.peak is not None]
