"""What needs no torch: the plan, the statistics, units, the shape of a result, reasons."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.agent.bench.output import Output
from fleet.agent.bench.torch_side import burn, conductor, failures, plan, precision, results, timing, units
from fleet.agent.bench.torch_side.collectives import ELEMENT_BYTES
from fleet.agent.bench.torch_side.conductor import Account
from fleet.agent.bench.torch_side.matrix_product import EDGES, chosen_edge, shapes
from fleet.agent.bench.torch_side.software import _cudnn
from fleet.agent.bench.torch_side.training import batch_for, gain, searches, synchronisation_percent

ROOT = Path(__file__).resolve().parents[4]
ONE, TWO = "GPU-1", "GPU-2"
MIG = "MIG-1"


def test_the_runner_can_plan_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fleet.agent.bench.torch_side import plan, conductor, children, results, failures, backend, units\n"
        "assert plan.groups('full', ['a', 'b'])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_what_nccl_says_reaches_the_runner_as_its_words_and_not_as_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    account, shown = Account(), []
    account.line("gpu01:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can")
    account.line("fleet:note GPU-1: nccl.all_reduce over 2 GPUs")
    output = Output(shown.append)
    output.feed(capsys.readouterr().out)
    assert shown == ["GPU-1: nccl.all_reduce over 2 GPUs"]
    assert "P2P is disabled between connected GPUs 0 and 1" in output.last_words()


def test_a_quick_suite_has_no_time_to_try_algorithms() -> None:
    assert [searches(suite) for suite in ("quick", "full")] == [False, True]


def test_groups_of_a_quick_suite_leave_out_what_takes_minutes() -> None:
    assert [one["group"] for one in plan.groups("quick", [ONE, TWO])] == [
        "cpu",
        "compute",
        "training",
        "collectives",
    ]


def test_one_gpu_has_nobody_to_talk_to() -> None:
    groups = {one["group"] for one in plan.groups("full", [ONE])}
    assert groups == {"cpu", "compute", "training", "compile"}


def test_mig_instances_are_measured_alone() -> None:
    planned = {one["group"]: one["gpu_uuids"] for one in plan.groups("full", [MIG, ONE, TWO])}
    assert planned["compute"] == [MIG, ONE, TWO]
    assert planned["collectives"] == [ONE, TWO]


def test_without_a_gpu_only_the_cpu_is_asked() -> None:
    assert [one["group"] for one in plan.groups("full", [])] == ["cpu"]
    assert plan.groups("burn", []) == []


def test_burn_ends_after_its_duration_and_the_start() -> None:
    (only,) = plan.groups("burn", [ONE], burn_s=600)
    assert only["group"] == "burn"
    assert only["deadline_s"] > 600


def test_groups_of_several_gpus_need_shared_memory() -> None:
    needs = {one["group"]: one["needs_shm_bytes"] for one in plan.groups("full", [ONE, TWO])}
    assert needs["collectives"] == needs["ddp"] >= 1 << 30
    assert needs["compute"] == 0


def test_what_a_group_owes_names_each_ordered_pair() -> None:
    owed = plan.expected("collectives", "quick", [ONE, TWO])
    assert owed[:2] == [("peer.copy", [ONE, TWO]), ("peer.copy", [TWO, ONE])]
    assert ("nccl.all_reduce", [ONE, TWO]) in owed
    assert ("memory.copy", [TWO]) in plan.expected("compute", "quick", [ONE, TWO])
    assert plan.expected("cpu", "quick", [ONE]) == [("cpu.matrix_product", [])]


def test_every_test_has_a_unit() -> None:
    assert all(units.unit_of(test) for group in plan.GROUPS for test in plan.tests(group, "full"))
    assert units.unit_of("matrix_product.int8_sparse") == "tops"
    assert units.unit_of("nccl.all_reduce_latency") == "us"
    assert units.unit_of("burn") == "count"


@pytest.mark.parametrize("suite", ["quick", "full"])
def test_collective_sizes_ascend_from_8_bytes_to_1_gib(suite: str) -> None:
    sizes = plan.collective_sizes(suite)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (8, 1 << 30)
    assert all(size % ELEMENT_BYTES == 0 for size in sizes)


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 2, 0.5)],
)
def test_bus_factors_are_those_of_nccl_tests(operation: str, ranks: int, factor: float) -> None:
    assert plan.bus_factor(operation, ranks) == factor


@pytest.mark.parametrize(
    "test", ["matrix_product.bf16", "memory.copy", "resnet50.amp", "nccl.all_reduce_latency"]
)
def test_seconds_at_a_value_give_that_value_back(test: str) -> None:
    assert units.value_of(test, 1e9, units.seconds_at(test, 1e9, 42.0)) == pytest.approx(42.0)


def test_rates_are_counted_in_powers_of_ten() -> None:
    assert units.value_of("matrix_product.bf16", 2.0 * 8192**3, 1.46e-3) == pytest.approx(753.1, abs=0.1)
    assert units.value_of("memory.copy", 2.0 * (2 << 30), 1e-3) == pytest.approx(4294.967, abs=0.001)
    assert units.value_of("nccl.all_reduce_latency", 20, 400e-6) == pytest.approx(20.0)


def test_one_slow_sample_moves_neither_median_nor_spread() -> None:
    steady = [10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.0, 10.02]
    one_slow = [*steady[:-1], 1.0]
    assert timing.summary(one_slow)["value"] == pytest.approx(10.0, abs=0.03)
    assert timing.spread_percent(one_slow) == pytest.approx(timing.spread_percent(steady), abs=0.5)
    assert timing.summary(one_slow)["minimum"] == 1.0


def test_the_spread_is_half_the_interquartile_range_in_percent() -> None:
    assert timing.spread_percent([90.0, 95.0, 100.0, 105.0, 110.0]) == pytest.approx(5.0)
    assert timing.spread_percent([1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("estimate", "expected"), [(1.0, timing.MINIMUM), (0.01, 20), (1e-9, 100), (0.0, 100)]
)
def test_repetitions_fill_the_time_there_is(estimate: float, expected: int) -> None:
    assert timing.repetitions(estimate, 0.2, 100) == expected


def test_inputs_are_rotated_past_the_cache_as_far_as_memory_goes() -> None:
    mib = 1 << 20
    assert timing.sets_past_cache(256 * mib, 50 * mib, 1 << 40) == 2
    assert timing.sets_past_cache(10 * mib, 50 * mib, 1 << 40) == 16
    assert timing.sets_past_cache(10 * mib, 50 * mib, 30 * mib) == 3
    assert timing.sets_past_cache(10 * mib, 50 * mib, 0) == 1


def test_rotating_hands_out_each_input_in_turn() -> None:
    seen: list[int] = []
    call = timing.rotating(seen.append, [1, 2, 3])
    for _ in range(4):
        call()
    assert seen == [1, 2, 3, 1]


def test_a_slow_format_gets_a_smaller_product() -> None:
    plenty = 1 << 40
    assert chosen_edge(50e12, 1.0, 8, plenty) == EDGES[0]
    assert chosen_edge(1.2e12, 1.0, 8, plenty) == 4096
    assert chosen_edge(0.1e12, 1.0, 8, plenty) == 1024


def test_a_small_memory_gets_a_smaller_product() -> None:
    assert chosen_edge(1e15, 1.0, 8, 5 << 30) < EDGES[0]


def test_every_format_is_tried_as_a_cube() -> None:
    for kind in ("fp64", "bf16", "fp8", "int8_sparse"):
        assert shapes(kind, 4096)[0][:3] == (4096, 4096, 4096)
    assert {shape[3] for shape in shapes("bf16", 4096)} == {True, False}
    assert {shape[3] for shape in shapes("fp8", 4096)} == {True}


def test_a_result_has_every_key_of_the_record() -> None:
    keys = {
        *("test", "gpus", "status", "reason", "message", "value", "unit", "samples", "minimum", "maximum"),
        *("spread_percent", "parameters", "correctness", "points", "clocks_event_reasons", "notes"),
    }
    assert set(results.measured("memory.copy", [ONE], [1.0], {})) == keys
    assert set(results.not_measured("memory.copy", [ONE], "skipped", "deadline", "late")) == keys


def test_no_samples_are_a_failure_and_never_zero() -> None:
    result = results.measured("memory.copy", [ONE], [], {})
    assert (result["status"], result["reason"], result["value"]) == ("failed", "no_samples", None)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_sample_that_is_no_number_makes_the_result_invalid(bad: float) -> None:
    result = results.measured("memory.copy", [ONE], [1.0, bad], {})
    assert (result["status"], result["reason"], result["value"]) == ("invalid", "non_finite", None)


def test_a_call_that_took_no_time_is_no_infinite_rate() -> None:
    samples = timing.values("memory.copy", 1e9, [0.0, 0.1])
    assert results.measured("memory.copy", [ONE], samples, {})["reason"] == "non_finite"


@pytest.mark.parametrize(
    "told",
    [
        "{broken", "[]", "3", "", "[" * 100_000, '{"test": "burn"}',
        '{"test": "burn", "gpus": [1], "status": "measured", "reason": null, "message": null}',
        '{"test": "burn", "gpus": [], "status": "measured", "reason": null, "message": 7}',
        '{"test": "a", "test": "burn", "gpus": [], "status": "measured", "reason": null, "message": null}',
    ],
)  # fmt: skip
def test_a_childs_line_that_is_no_result_is_told_and_ends_nothing(
    told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    account = conductor.Account()
    account.line(results.RESULT + told)
    account.line(results.RESULT + json.dumps(results.empty("burn", ["GPU-1"])))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(results.NOTE + "a result that cannot be read: ")
    assert second.startswith(results.RESULT)
    assert account.seen == {("burn", ("GPU-1",))}


@pytest.mark.parametrize("word", ["NaN", "1e999"])
def test_a_childs_number_that_is_none_is_null(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.dumps(results.empty("burn", [])).replace('"value": null', f'"value": {word}')
    conductor.Account().line(results.RESULT + told)
    assert '"value": null' in capsys.readouterr().out


def test_nan_never_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    result = results.measured(
        "resnet50.amp", [ONE], [1.0], {"loss": math.nan, "deep": [math.inf, "NaN seen"]}
    )
    results.emit(result)
    line = capsys.readouterr().out
    parameters = json.loads(line[len(results.RESULT) :])["parameters"]
    assert parameters == {"loss": None, "deep": [None, "NaN seen"]}


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "not_runnable", "out_of_memory"),
        (
            "CUDA error: no kernel image is available for execution on the device",
            "not_runnable",
            "arch_mismatch",
        ),
        (
            "backend='inductor' raised:\nRuntimeError: Failed to find C compiler. Please specify via CC",
            "not_runnable",
            "no_compiler",
        ),
        ("gcc: fatal error: cannot execute 'cc1': posix_spawnp: No such file", "not_runnable", "no_compiler"),
        ("InvalidCxxCompiler: No working C++ compiler found in ('g++',)", "not_runnable", "no_compiler"),
        ("/usr/bin/ld: cannot find -lcuda: No such file", "not_runnable", "libcuda_link_missing"),
        (
            "Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 7340384)",
            "failed",
            "shm_too_small",
        ),
        ("CUDA error: uncorrectable ECC error encountered", "failed", "needs_recovery"),
        ("\"addmm_cuda\" not implemented for 'Float8_e4m3fn'", "not_runnable", "dtype_not_supported"),
        ("something nobody has seen", "failed", failures.UNEXPLAINED),
    ],
)
def test_what_torch_raises_has_a_reason(text: str, status: str, reason: str) -> None:
    assert failures.explained(RuntimeError(text))[:2] == (status, reason)


def test_the_end_of_a_long_text_is_kept() -> None:
    text = failures.shortened("\n".join(f"line {number}" for number in range(500)))
    assert text.startswith("line 0\n")
    assert text.endswith("line 499")
    assert len(text.splitlines()) < 30


def test_formats_without_units_of_their_own_are_not_measured() -> None:
    assert precision.native("bf16", (8, 0))
    assert not precision.native("bf16", (7, 5))
    assert not precision.native("fp8", (8, 6))
    assert precision.native("fp8", (8, 9))
    assert precision.native("fp64", (5, 0))
    assert precision.amp_kind((7, 0)) == "fp16"
    with pytest.raises(failures.NotRunnable, match=r"tf32 needs compute capability 8\.0, this GPU has 7\.5"):
        precision.require("tf32", (7, 5))


def test_the_gain_of_compiling_is_over_the_eager_rate() -> None:
    found = gain("resnet50.compile", 256.0, [0.05], [0.04])
    assert found["eager_value"] == pytest.approx(5120)
    assert found["gain_percent"] == pytest.approx(25.0)
    assert gain("resnet50.compile", 256.0, [], [0.04]) == {"eager_value": None, "gain_percent": None}


def test_synchronisation_is_what_a_step_is_longer_by() -> None:
    assert synchronisation_percent([0.1], [0.08]) == pytest.approx(20.0)
    assert synchronisation_percent([0.1], [0.11]) == 0.0
    assert synchronisation_percent([0.1], []) is None


def test_batches_follow_the_memory() -> None:
    table = ((60_000, 256), (14_000, 64), (0, 16))
    assert [batch_for(memory, table) for memory in (143_771, 24_564, 4_864)] == [256, 64, 16]


def test_versions_of_cudnn_are_read_in_both_numberings() -> None:
    assert _cudnn(90701) == "9.7.1"
    assert _cudnn(8902) == "8.9.2"
    assert _cudnn(None) is None


def _burned(gpu: str, checksum: int, name: str = "A") -> results.Json:
    formats = {"bf16": {"size": 8192, "products": 9, "wrong": 0, "checksum": checksum}}
    correctness = {"checked": True, "passed": True, "max_relative_error": 0.0, "tolerance": 0.01}
    return results.measured("burn", [gpu], [0.0], {"device_name": name, "formats": formats}, correctness)


def test_the_gpu_that_differs_from_its_peers_is_wrong() -> None:
    found = [_burned("1", 5), _burned("2", 5), _burned("3", 6)]
    burn.compare_peers(found)
    assert [one["status"] for one in found] == ["measured", "measured", "failed"]
    assert found[2]["reason"] == "wrong_result"
    assert "2 of 3 GPUs A" in found[2]["message"]


def test_of_two_that_differ_both_are_wrong() -> None:
    found = [_burned("1", 5), _burned("2", 6)]
    burn.compare_peers(found)
    assert [one["status"] for one in found] == ["failed", "failed"]


def test_gpus_of_different_models_are_not_compared() -> None:
    found = [_burned("1", 5, "A"), _burned("2", 6, "B")]
    burn.compare_peers(found)
    assert [one["status"] for one in found] == ["measured", "measured"]
