"""What fleet bench shows of judged benchmarks: the worst first, each thing once, the same in JSON."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.benchmarks import judge
from fleet.catalogue.catalogue import load
from fleet.core import schema
from fleet.core.errors import ExitCode, HostUnreachable
from fleet.report.benchmarks.benched import Benched, HostBench
from fleet.report.benchmarks.document import document
from fleet.report.benchmarks.power import power_lines
from fleet.report.benchmarks.problems import troubles
from fleet.report.benchmarks.table import number, short, table
from fleet.report.style import text_of
from tests.benchmarks import Json, not_measured, of, record, scale, uuid

RUN = "7f3a12c4d5e6"


def benched(records: dict[str, Json], *others: HostBench, **named: Any) -> Benched:
    found = judge(records, load())
    hosts = {
        name: HostBench(name, "converged", record=records[name], verdicts=found[name]) for name in records
    }
    hosts.update({host.host: host for host in others})
    return Benched(RUN, "site.yaml", "full", hosts, **named)


def lines(found: Benched, **named: Any) -> list[str]:
    return [text_of(one) for one in table(found, **named)]


def without_compiler(document: Json) -> Json:
    for gpu in document["gpus"]:
        words = "Failed to find C compiler"
        document["results"].append(
            not_measured("resnet50.compile", [gpu["uuid"]], "not_runnable", "no_compiler", words, "images_s")
        )
    return document


def troubled() -> Benched:
    records = {
        "gpu01": without_compiler(record("h100", 8)),
        "gpu02": without_compiler(record("h100", 8, host=1)),
        "gpu03": without_compiler(record("4090", 1, host=2)),
    }
    scale(of(records["gpu02"], "matrix_product.bf16", 3), 1 / 3)
    records["gpu03"]["gpus"][0]["during"]["pcie_width"] = 8
    for way in ("to_device", "from_device"):
        scale(of(records["gpu03"], f"host_link.{way}"), 0.5)
    gone = HostBench("gpu04", "unreachable", "no answer in 15 s", "look at the network")
    return benched(records, gone, run_exit_code=ExitCode.UNREACHABLE)


def test_the_worst_gpu_is_first_and_every_gpu_has_a_line() -> None:
    shown = lines(troubled())
    assert shown[0].split("  ")[0] == "host"
    assert "bf16 TFLOPS" in shown[0]
    rows = [words.split()[:4] for words in shown[1:18]]
    assert rows[0] == ["gpu02", "GPU", "3", "fail"]
    assert rows[8] == ["gpu03", "GPU", "0", "warn"]
    assert [row[3] for row in rows if row[0] == "gpu01"] == ["pass"] * 8
    assert "248 25% fail" in shown[1]


def test_what_is_wrong_is_told_once_with_its_reasons() -> None:
    shown = lines(troubled())
    at = shown.index("fail        gpu02 GPU 3  matrix_product.bf16  248 TFLOPS, 25% of peak")
    assert "67% slower than the median 745 of 7 others of this host" in "\n".join(shown[at : at + 5])
    at = shown.index("not judged  3 hosts: gpu[01:03]  resnet50.compile")
    assert shown[at + 1 : at + 4] == [
        "            no_compiler: Failed to find C compiler",
        "            this is the image, not the hosts: pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime",
        "            (sha256:a1a1a1a1a1a1)",
    ]
    assert sum("no_compiler" in words for words in shown) == 1
    assert shown[-3:-1] == ["not run     gpu04  no answer in 15 s", "            remedy: look at the network"]
    assert shown[-1] == (
        "1 host not run · 1 host fail · 1 host warn · 1 host pass · 7m30s · run 7f3a12 · exit 3"
    )


def test_why_hosts_were_not_measured_is_not_told_twice() -> None:
    assert not [words for words in lines(troubled(), told=True) if "gpu04" in words]


def test_the_same_reason_in_another_image_is_another_trouble() -> None:
    records = {f"gpu{number:02}": without_compiler(record("h100", 1, host=number)) for number in range(4)}
    records["gpu03"]["image"] = {"reference": "site/torch:1", "digest": "sha256:" + "b2" * 32}
    found = troubles(benched(records))
    assert [(one.hosts, one.tests) for one in found] == [
        (["gpu00", "gpu01", "gpu02"], ["resnet50.compile"]),
        (["gpu03"], ["resnet50.compile"]),
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_of_the_table_is_wider_than_the_screen(width: int) -> None:
    shown = lines(troubled(), width=width)
    assert max(map(len, shown[:18])) <= width
    assert ("fp8 TFLOPS" in shown[0]) == (width >= 100)


def test_many_gpus_that_are_well_share_a_line_of_their_host() -> None:
    records = {f"gpu{number:02}": record("h100", 8, host=number) for number in range(5)}
    scale(of(records["gpu04"], "matrix_product.bf16", 3), 1 / 3)
    rows = [words.split()[:4] for words in lines(benched(records))[1:8]]
    assert rows[:6] == [
        ["gpu04", "GPU", "3", "fail"],
        ["gpu04", "7", "GPUs", "pass"],
        *([f"gpu{number:02}", "8", "GPUs", "pass"] for number in range(4)),
    ]


def test_quiet_leaves_what_is_wrong_and_verbose_shows_every_result() -> None:
    found = troubled()
    assert lines(found, quiet=True)[0].startswith("fail        gpu02 GPU 3")
    verbose = lines(found, verbose=True)
    assert sum("matrix_product.fp8 " in words for words in verbose) == 17


def test_what_several_gpus_do_together_has_a_line_for_each_test() -> None:
    shown = lines(benched({"gpu01": record("h100", 8)}))
    assert "gpu01  pass        peer.copy                 390 GB/s (median of 8 pairs, 390 the least)" in shown
    assert "gpu01  pass        nccl.all_reduce           440 GB/s, 98% of peak  8 GPUs" in shown


@pytest.mark.parametrize("found", [troubled(), benched({}), benched({"gpu01": record("t4", 1)})])
def test_the_document_follows_its_schema_and_tells_the_same(found: Benched) -> None:
    told = document(found)
    assert schema.validate(told, "bench") == []
    assert told["exit_code"] == int(found.exit_code)
    assert [one["verdict"] for one in told["problems"]] == [one.verdict for one in troubles(found)]


def skipped(reason: str) -> Json:
    found = record("h100", 1)
    found["results"] = [
        not_measured("memory.copy", [uuid(0)], "skipped", reason, "ollama (pid 226424)", "gb_s")
    ]
    found["gpus"][0].update(state="skipped", reason=reason, during=None)
    return found


def test_a_gpu_that_others_use_has_a_row_and_is_told_with_who_they_are() -> None:
    one = record("h100", 2)
    one["results"] = [each for each in one["results"] if uuid(1) not in each["gpus"]]
    one["gpus"][1].update(
        state="skipped", reason="gpu_occupied", message="in use: ollama (pid 226424)", during=None
    )
    shown = lines(benched({"gpu01": one}))
    assert [row for row in shown if row.startswith("gpu01  GPU 1  skipped")]
    assert [row for row in shown if row.startswith("gpu01  GPU 0  pass")]
    told = shown.index("skipped     gpu01 GPU 1  watch.left_out")
    assert shown[told + 1].strip() == "gpu_occupied: in use: ollama (pid 226424)"
    assert "1 host skipped" in shown[-1]


def test_where_nothing_could_be_judged_nobody_is_called_well() -> None:
    one = record("h100", 2)
    for each in one["results"]:
        each.update(
            not_measured(
                each["test"], each["gpus"], "not_runnable", "torch_cpu_build", "a build", each["unit"]
            )
        )
    found = benched({"gpu01": one})
    shown = lines(found)
    assert [row for row in shown if row.startswith("gpu01  GPU 0  not judged")]
    assert [row for row in shown if row.startswith("gpu01  not judged  nccl.all_reduce")]
    assert not [row for row in shown if "pass" in row]
    assert "1 host not judged" in shown[-1]
    assert document(found)["hosts"]["gpu01"]["verdict"] == "not_judged"
    assert found.exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (benched({"gpu01": record("t4", 1)}), ExitCode.DONE),
        (benched({"gpu01": without_compiler(record("t4", 1))}), ExitCode.DONE),
        (benched({"gpu01": skipped("gpu_occupied")}), ExitCode.FAILED),
        (benched({}, HostBench("cpu01", "converged", "there is no NVIDIA GPU")), ExitCode.DONE),
        (benched({}, HostBench("gpu01", "failed", "the image is not there")), ExitCode.FAILED),
        (troubled(), ExitCode.UNREACHABLE),
    ],
    ids=["well", "no compiler", "nothing measured", "no GPU", "failed", "unreachable"],
)
def test_the_exit_code(found: Benched, code: ExitCode) -> None:
    assert found.exit_code == code


def test_a_failed_result_is_exit_4_and_an_invalid_one_1() -> None:
    bad, odd = record("t4", 1), record("t4", 1)
    of(bad, "memory.copy")["correctness"]["passed"] = False
    of(odd, "memory.copy")["clocks_event_reasons"] = ["hw_slowdown"]
    assert benched({"gpu01": bad}).exit_code == ExitCode.FINDINGS
    assert benched({"gpu01": odd}).exit_code == ExitCode.FAILED


def test_a_host_in_short() -> None:
    shown = [text_of(one) for one in short(troubled().hosts["gpu02"])]
    assert shown[0].startswith("  benchmarks  full of 2026-11-30T20:07:30Z in pytorch/pytorch:2.7.0-cuda12.8")
    assert "1 fail" in shown[0]
    assert shown[1].startswith("    fail       GPU 3  matrix_product.bf16  below the limit of 595")
    assert shown[2] == "    not judged 8 GPUs  resnet50.compile  no_compiler: Failed to find C compiler"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(745.3, "745"), (71.24, "71.2"), (0.4, "0.4"), (2950.0, "2950"), (5.0, "5"), (0.0, "0")],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def host_of(*watts: float | None) -> Json:
    return {
        "gpu_probe": {"devices": [{"power_limit_w": one, "power_limit_enforced_w": one} for one in watts]}
    }


def test_a_burn_in_s_power_is_summed_and_what_is_not_known_is_said() -> None:
    facts: dict[str, Any] = {
        "gpu01": host_of(*[700.0] * 8),
        "gpu02": host_of(450.0, None),
        "cpu01": {"gpu_probe": None},
        "gpu03": HostUnreachable("no answer", host="gpu03"),
    }
    shown = power_lines(facts)
    assert shown[0].startswith("9 GPUs on 2 hosts may draw 6.0 kW together")
    assert shown[1:4] == [
        "at the most 5.6 kW on one host",
        "1 GPU did not tell a power limit: not counted",
        "no GPU that could be asked on cpu01: not counted",
    ]
    assert shown[4] == "gpu03 could not be asked: no answer"
    assert power_lines({"cpu01": {"gpu_probe": None}})[0] == (
        "no power limit is known: what this draws cannot be told"
    )
