"""The whole program with a real torch, on the CPU, at small sizes; rates are those of the test's backend."""

from __future__ import annotations

import pytest

from fleet.agent.bench.torch_side import plan
from tests.agent.bench.torch_side.conftest import Bench, request
from tests.agent.bench.torch_side.fixed_rates import GPUS, RATES

pytestmark = pytest.mark.lab

ONE, TWO = GPUS
NEEDS_CUDA = {"matrix_product.fp16_sparse", "matrix_product.int8_sparse"}


def test_compute_measures_each_gpu_after_checking_it(bench: Bench) -> None:
    printed = bench(request("compute", GPUS))
    assert printed.code == 0, printed.errors
    assert len(printed.software) == 1
    owed = plan.expected("compute", "quick", GPUS)
    assert sorted((one["test"], one["gpus"]) for one in printed.results) == sorted(owed)
    for one in printed.results:
        if one["test"] in NEEDS_CUDA:
            assert (one["status"], one["reason"]) == ("not_runnable", "dtype_not_supported")
            continue
        assert one["status"] == "measured", one
        assert one["value"] == pytest.approx(RATES[one["unit"]])
        assert one["correctness"]["passed"] is True
        assert one["correctness"]["max_relative_error"] <= one["correctness"]["tolerance"]
        assert one["parameters"]["counting"]


def test_a_wrong_result_has_no_rate_and_costs_no_other_test(bench: Bench) -> None:
    tests = ["matrix_product.fp32", "matrix_product.fp64", "memory.copy", "host_link.to_device"]
    for wrong in tests:
        printed = bench(request("compute", [ONE], tests=tests), FIXED_RATES_WRONG=f"{wrong}@0")
        assert {one["test"] for one in printed.results if one["status"] == "measured"} == {*tests} - {wrong}
        result = printed.of(wrong)
        assert (result["status"], result["reason"]) == ("failed", "wrong_result")
        assert (result["value"], result["correctness"]["passed"]) == (None, False)


def test_what_torch_raises_is_that_tests_reason_only(bench: Bench) -> None:
    printed = bench(
        request("compute", [ONE], tests=["memory.copy", "memory.triad"]),
        FIXED_RATES_RAISE="memory.copy=CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    assert printed.of("memory.copy")["reason"] == "out_of_memory"
    assert printed.of("memory.triad")["status"] == "measured"


def test_a_process_that_dies_in_a_test_is_followed_by_one_for_the_rest(bench: Bench) -> None:
    printed = bench(
        request("compute", [ONE], tests=["memory.copy", "memory.triad"]), FIXED_RATES_DIE="memory.copy@0"
    )
    assert printed.of("memory.copy")["status"] == "failed"
    assert "exit code 9" in printed.of("memory.copy")["message"]
    assert printed.of("memory.triad")["status"] == "measured"


def test_no_samples_are_a_failure(bench: Bench) -> None:
    printed = bench(request("compute", [ONE], tests=["memory.copy"]), FIXED_RATES_NONE="memory.copy")
    assert (printed.of("memory.copy")["status"], printed.of("memory.copy")["reason"]) == (
        "failed",
        "no_samples",
    )


def test_formats_the_gpu_has_no_units_for_are_not_measured(bench: Bench) -> None:
    tests = ["matrix_product.fp8", "matrix_product.bf16", "matrix_product.fp16"]
    printed = bench(request("compute", [ONE], tests=tests), FIXED_RATES_CAPABILITY="7.5")
    assert printed.of("matrix_product.fp8")["reason"] == "dtype_not_supported"
    assert printed.of("matrix_product.bf16")["reason"] == "dtype_not_supported"
    assert printed.of("matrix_product.fp16")["status"] == "measured"


def test_what_begins_after_the_deadline_is_skipped(bench: Bench) -> None:
    printed = bench(request("compute", [ONE], tests=["memory.copy"], deadline_s=0))
    assert (printed.of("memory.copy")["status"], printed.of("memory.copy")["reason"]) == (
        "skipped",
        "deadline",
    )


def test_networks_are_trained_in_every_format(bench: Bench) -> None:
    printed = bench(request("training", [ONE], suite="full"))
    for test in plan.tests("training", "full"):
        result = printed.of(test)
        assert result["status"] == "measured", (result, printed.errors)
        assert result["value"] == pytest.approx(RATES[result["unit"]])
        assert 0 < result["parameters"]["loss"] < 10
        assert result["correctness"]["passed"] is True
    amp = printed.of("resnet50.amp_channels_last")["parameters"]
    assert (amp["dtype"], amp["channels_last"], amp["batch"], amp["loader"]) == (
        "bf16",
        True,
        256,
        "synthetic",
    )
    assert printed.of("resnet50.tf32")["parameters"]["channels_last"] is False


def test_mixed_precision_without_bf16_units_is_fp16(bench: Bench) -> None:
    asked = request("training", [ONE], suite="full", tests=["transformer.amp", "transformer.tf32"])
    printed = bench(asked, FIXED_RATES_CAPABILITY="7.5")
    assert printed.of("transformer.amp")["parameters"]["dtype"] == "fp16"
    assert printed.of("transformer.tf32")["reason"] == "dtype_not_supported"


def test_compiled_networks_are_held_against_eager_ones(bench: Bench) -> None:
    tests = ["resnet50.compile", "transformer.compile_reduce_overhead"]
    printed = bench(request("compile", [ONE], suite="full", tests=tests))
    for test in tests:
        result = printed.of(test)
        assert result["status"] == "measured", (result, printed.errors)
        parameters = result["parameters"]
        assert parameters["eager_value"] == pytest.approx(RATES[result["unit"]])
        assert parameters["gain_percent"] == pytest.approx(0.0, abs=1e-6)
        assert parameters["graph_breaks"] == 0
        assert parameters["compile_s"] > 0
    assert printed.of("transformer.compile_reduce_overhead")["parameters"]["mode"] == "reduce-overhead"


def test_an_image_without_a_compiler_is_not_the_hosts_fault(bench: Bench) -> None:
    asked = request("compile", [ONE], suite="full", tests=["transformer.compile"])
    nowhere = {"CC": "/nowhere/cc", "CXX": "/nowhere/c++"}
    printed = bench(asked, FIXED_RATES_COMPILER="inductor", TORCHINDUCTOR_FX_GRAPH_CACHE="0", **nowhere)
    result = printed.of("transformer.compile")
    assert (result["status"], result["reason"]) == ("not_runnable", "no_compiler")
    assert printed.software[0]["compiler"] is False


def test_collectives_have_points_and_exact_results(bench: Bench) -> None:
    printed = bench(request("collectives", GPUS))
    assert printed.code == 0, printed.errors
    for pair in ([ONE, TWO], [TWO, ONE]):
        assert printed.of("peer.copy", *pair)["value"] == pytest.approx(RATES["gb_s"])
    for operation, factor in (("all_reduce", 1.0), ("all_gather", 0.5), ("reduce_scatter", 0.5)):
        result = printed.of("nccl." + operation)
        assert result["status"] == "measured", result
        assert result["gpus"] == [ONE, TWO]
        assert [point["size_bytes"] for point in result["points"]] == plan.collective_sizes("quick")
        assert result["value"] == pytest.approx(result["points"][-1]["bus_gb_s"])
        assert result["points"][-1]["algorithm_gb_s"] * factor == pytest.approx(RATES["gb_s"])
        assert result["correctness"]["passed"] is True
    assert printed.of("nccl.all_reduce_latency")["value"] == pytest.approx(RATES["us"])


@pytest.mark.parametrize("index", [0, 1])
def test_a_wrong_sum_on_any_rank_is_seen(bench: Bench, index: int) -> None:
    asked = request("collectives", GPUS, tests=["nccl.all_reduce", "nccl.all_reduce_latency"])
    printed = bench(asked, FIXED_RATES_WRONG=f"nccl.all_reduce@{index}")
    result = printed.of("nccl.all_reduce")
    assert (result["status"], result["reason"], result["value"]) == ("failed", "wrong_result", None)
    assert printed.of("nccl.all_reduce_latency")["status"] == "measured"


def test_a_rank_that_hangs_is_ended_and_named_a_timeout(bench: Bench) -> None:
    asked = request("collectives", GPUS, tests=["nccl.all_gather", "nccl.reduce_scatter"], silence_s=20)
    printed = bench(asked, FIXED_RATES_HANG="nccl.all_gather@1")
    hung, after = printed.of("nccl.all_gather"), printed.of("nccl.reduce_scatter")
    assert (hung["status"], hung["reason"]) == ("timeout", "collective_timeout")
    assert (after["status"], after["reason"]) == ("skipped", "collective_timeout")


def test_a_rank_that_dies_costs_its_test_and_is_named(bench: Bench) -> None:
    asked = request("collectives", GPUS, tests=["nccl.all_gather", "nccl.reduce_scatter"])
    printed = bench(asked, FIXED_RATES_DIE="nccl.all_gather@1")
    assert printed.of("nccl.all_gather")["status"] == "failed"
    assert "rank 1 ended with exit code 9" in printed.of("nccl.all_gather")["message"]
    assert printed.of("nccl.reduce_scatter")["status"] == "measured"


def test_ddp_trains_the_same_weights_everywhere(bench: Bench) -> None:
    printed = bench(request("ddp", GPUS, suite="full"))
    result = printed.of("ddp.resnet50")
    assert result["status"] == "measured", (result, printed.errors)
    assert result["correctness"]["passed"] is True
    assert result["parameters"]["synchronisation_percent"] == pytest.approx(10.0)
    assert result["parameters"]["ranks"] == 2


def test_burn_counts_no_wrong_product_where_there_is_none(bench: Bench) -> None:
    printed = bench(request("burn", GPUS, suite="burn", burn_s=0.2))
    sums = []
    for uuid in GPUS:
        result = printed.of("burn", uuid)
        assert (result["status"], result["value"]) == ("measured", 0.0)
        assert result["parameters"]["iterations"] >= 6
        sums.append({kind: part["checksum"] for kind, part in result["parameters"]["formats"].items()})
    assert sums[0] == sums[1]


def test_burn_sees_one_wrong_bit_in_a_later_product(bench: Bench) -> None:
    asked = request("burn", GPUS, suite="burn", burn_s=0.2)
    printed = bench(asked, FIXED_RATES_WRONG="burn@1", FIXED_RATES_WRONG_AFTER="8")
    assert printed.of("burn", ONE)["status"] == "measured"
    result = printed.of("burn", TWO)
    assert (result["status"], result["reason"]) == ("failed", "wrong_result")
    assert result["value"] >= 1
    assert result["value"] == result["parameters"]["wrong_elements"]


def test_burn_sees_a_gpu_that_is_wrong_from_the_start(bench: Bench) -> None:
    asked = request("burn", GPUS, suite="burn", burn_s=0.2)
    printed = bench(asked, FIXED_RATES_WRONG="burn@1")
    result = printed.of("burn", TWO)
    assert (result["status"], result["reason"]) == ("failed", "wrong_result")
    assert result["correctness"]["passed"] is False


def test_the_cpu_test_needs_no_gpu(bench: Bench) -> None:
    printed = bench(request("cpu", []))
    result = printed.of("cpu.matrix_product")
    assert result["status"] == "measured"
    assert result["value"] > 0
    assert printed.software[0]["torch"]
