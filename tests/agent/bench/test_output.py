"""Lines of the torch side: results in the record's shape, and no number that JSON does not have."""

from __future__ import annotations

import pytest

from fleet.agent.bench.output import KEPT_LINES, Output
from fleet.core.schema import validate
from tests.benchmarks import record

from .doubles import SOFTWARE, result_line, uuid

GPU = uuid(0)


def read(text: str) -> tuple[Output, list[str]]:
    told: list[str] = []
    output = Output(told.append, now=iter(range(100)).__next__)
    for place in range(0, len(text), 7):  # pieces end anywhere
        output.feed(text[place : place + 7])
    output.close()
    return output, told


def test_results_come_as_they_are_printed_and_are_told() -> None:
    output, told = read(
        SOFTWARE + "\nnoise\n" + result_line("matrix_product.bf16", [GPU], 712.5) + "fleet:note half way"
    )
    assert [(one["test"], one["value"]) for one in output.results] == [("matrix_product.bf16", 712.5)]
    assert output.ended_at == [0]
    assert told == ["matrix_product.bf16: 712.5 tflops", "half way"]
    assert output.software is not None
    assert output.software["cudnn"] == "90701"  # a version, not a number
    assert output.lines == ["noise"]


def test_what_is_no_number_is_null_and_makes_the_result_invalid() -> None:
    for word in ("NaN", "Infinity", "1e999"):
        line = result_line("matrix_product.bf16", [GPU], 123456.5).replace("123456.5", word)
        found = read(line)[0].results[0]
        assert (found["status"], found["reason"], found["value"]) == ("invalid", "non_finite", None)
        assert "value" in found["message"]


def test_the_word_nan_in_a_text_stays() -> None:
    found = read(result_line("memory.copy", [GPU], 1980.4, notes=["NaN seen in warm-up"]))[0].results[0]
    assert (found["status"], found["notes"]) == ("measured", ["NaN seen in warm-up"])


def test_no_samples_is_a_failure_and_never_zero() -> None:
    line = result_line("memory.copy", [GPU], None, samples=0, discarded=40)
    found = read(line)[0].results[0]
    assert (found["status"], found["reason"], found["value"]) == ("failed", "no_samples", None)
    assert "40 were thrown away" in found["message"]


def test_every_shape_that_comes_out_is_valid() -> None:
    text = (
        result_line("matrix_product.bf16", [GPU], strange=1)
        + result_line(
            "memory.copy", [GPU], None, status="failed", reason="error", message="CUDA out of memory"
        )
        + result_line("memory.triad", [GPU], None, status="odd")
        + result_line("burn", [GPU], None, status="skipped", reason="deadline", unit="count")
    )
    document = record("h100", 1)
    document["results"] = read(text)[0].results
    assert validate(document, "benchmark") == []
    assert [one["reason"] for one in document["results"]] == [
        None,
        "out_of_memory",
        "container_failed",
        "deadline",
    ]
    assert document["results"][0]["parameters"]["strange"] == 1


def test_broken_lines_are_kept_as_text() -> None:
    output, _ = read("fleet:result {broken\nfleet:result []\nfleet:result 3\nfleet:software nothing\n")
    assert output.results == []
    assert len(output.lines) == 4


@pytest.mark.parametrize(
    "rest", ['{"test": "burn", "value": 1, "value": 2}', "[" * 5_000, '{"test": ' * 5_000]
)
@pytest.mark.parametrize("word", ["result", "load", "software"])
def test_a_line_that_two_readers_would_read_otherwise_is_text_and_costs_no_other(
    word: str, rest: str
) -> None:
    output, _ = read(f"fleet:{word} {rest}\n" + result_line("memory.copy", [GPU], 1980.4))
    assert [one["test"] for one in output.results] == ["memory.copy"]
    assert output.software is None
    assert len(output.lines) == 1


def test_nccls_last_lines_outlive_much_other_output() -> None:
    text = "gpu01:7:9 [0] NCCL INFO Channel 00/02 : 0 1\n" + "other\n" * (KEPT_LINES + 10)
    output, _ = read(text)
    assert "NCCL INFO Channel" in output.text
    assert output.last_words() == "gpu01:7:9 [0] NCCL INFO Channel 00/02 : 0 1"


def test_a_stretch_in_which_gpus_are_kept_at_work_has_a_beginning_and_an_end() -> None:
    begin = f'fleet:load {{"gpus": ["{GPU}"], "on": true}}\n'
    output, told = read(begin + begin.replace("true", "false") + 'fleet:load {"gpus": 3}\n')
    assert output.loads == [(GPU, 0, 1)]
    assert told == []
    assert "cannot be read" in output.lines[0]


def test_a_stretch_that_never_ends_is_none() -> None:
    assert read(f'fleet:load {{"gpus": ["{GPU}"], "on": true}}\n')[0].loads == []
