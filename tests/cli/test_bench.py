"""``fleet bench``: an earlier run judged again, baselines, exit codes, what is asked before a burn-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from fleet.cli import bench, main
from fleet.cli.bench import gpu_list
from fleet.core import schema
from fleet.core.errors import FleetError, InputError
from fleet.store import Store
from tests.benchmarks import Json, of, record, scale

RUN, LATER = "7f3a12c4d5e6", "8a4b12c4d5e6"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def site(tmp_path: Path) -> str:
    file = tmp_path / "site.yaml"
    file.write_text(
        "all:\n  hosts:\n    gpu01: {gpu_count: 2, training_model: {parameters_b: 70}}\n    gpu02:\n    cpu01:\n"
    )
    return str(file)


def keep(run: str, records: dict[str, Json | None], **statuses: str) -> None:
    """A run in the store whose reports hold these records."""
    with Store() as store:
        hosts = list(records)
        store.create_run(
            run, playbook="bench", inventory="site.yaml", operator="a", controller="d", hosts=hosts
        )
        for name, one in records.items():
            status = statuses.get(name, "converged")
            document = {"status": status, "reason": None, "remedy": None, "benchmark": one, "host": name}
            store.put_report(run, name, document)


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    return err if code == 2 else out


def judged(capsys: pytest.CaptureFixture[str], site: str, *words: str, code: int = 0) -> Json:
    found: Json = json.loads(output(capsys, "bench", site, "--from", "last", "--json", *words, code=code))
    assert schema.validate(found, "bench") == []
    assert found["exit_code"] == code
    return found


def test_an_earlier_run_is_judged_again(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep(RUN, {"gpu01": record("h100", 2), "gpu02": record("h100", 2, host=1), "cpu01": None})
    found = judged(capsys, site)
    assert (found["run"], found["suite"], found["simulated"]) == (RUN, "full", False)
    assert {name: host["verdict"] for name, host in found["hosts"].items()} == {
        "gpu01": "warn",
        "gpu02": "pass",
        "cpu01": "skipped",
    }
    assert found["hosts"]["cpu01"]["reason"] == "there is no NVIDIA GPU to measure"
    tests = [one["test"] for one in found["hosts"]["gpu01"]["verdicts"]]
    assert tests[-2:] == ["watch.gpu_count", "watch.model_memory"]
    shown = output(capsys, "bench", site, "--from", RUN[:6])
    assert "parameters of 16 bytes need" in shown
    assert shown.endswith("exit 0\n")


def test_a_failed_result_is_exit_4(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = record("h100", 2)
    scale(of(bad, "matrix_product.bf16"), 0.5)
    keep(RUN, {"gpu01": bad})
    found = judged(capsys, site, code=4)
    assert found["problems"][0]["places"] == [
        {"host": "gpu01", "gpus": "GPU 0", "test": "matrix_product.bf16"}
    ]


def test_a_host_that_failed_is_not_judged_by_what_it_had_before(
    site: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(RUN, {"gpu01": record("h100", 2), "gpu02": record("h100", 2, host=1)}, gpu02="failed")
    found = judged(capsys, site, code=1)
    assert (found["hosts"]["gpu02"]["verdict"], found["hosts"]["gpu02"]["record"]) == ("not_run", None)


def test_a_host_whose_gpus_are_gone_fails_where_the_inventory_counts_some(
    site: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(RUN, {"gpu01": None})
    found = judged(capsys, site, code=4)
    assert found["hosts"]["gpu01"]["verdicts"][0]["reasons"] == [
        "there is no NVIDIA GPU, and 2 in the inventory"
    ]


def test_a_record_that_is_none_costs_its_host_only(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep(RUN, {"gpu01": {"schema": "fleet.benchmark/1"}, "gpu02": record("h100", 1, host=1)})
    found = judged(capsys, site, code=1)
    assert found["hosts"]["gpu01"]["verdict"] == "not_run"
    assert found["hosts"]["gpu01"]["reason"].startswith("its record does not follow schema benchmark: ")
    assert found["hosts"]["gpu02"]["verdict"] == "pass"


def test_a_baseline_is_kept_and_compared_with(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = record("h100", 2)
    scale(of(first, "memory.copy", 1), 0.1)
    keep(RUN, {"gpu01": first, "gpu02": record("h100", 1, host=1)})
    found = judged(capsys, site, "--save-baseline", code=4)
    assert found["notes"] == ["baseline: 43 results kept, 1 left out: failed or invalid"]
    later = record("h100", 2)
    scale(of(later, "resnet50.amp", 1), 0.8)
    keep(LATER, {"gpu01": later})
    assert judged(capsys, site)["hosts"]["gpu01"]["verdicts"][0]["baseline"] is None
    found = judged(capsys, site, "--compare", code=4)
    slow = [one for one in found["hosts"]["gpu01"]["verdicts"] if one["test"] == "resnet50.amp"][1]
    assert (slow["verdict"], slow["baseline"], slow["baseline_change_percent"]) == ("fail", 2700, -20.0)
    assert found["notes"] == []


def test_a_host_without_a_baseline_is_named(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep(RUN, {"gpu02": record("h100", 1)})
    assert judged(capsys, site, "--compare")["notes"][0].startswith("no baseline of gpu02: ")


def test_a_run_that_is_not_there_is_bad_input(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run yet" in output(capsys, "bench", site, "--from", "last", code=2)


def test_the_report_of_a_host_tells_its_benchmarks_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cli.test_history import REPORT

    bad = record("h100", 2)
    scale(of(bad, "matrix_product.bf16"), 0.5)
    keep(RUN, {"gpu01": None})
    with Store() as store:
        store.put_report(RUN, "gpu01", {**REPORT, "benchmark": bad})
    shown = output(capsys, "report", RUN, "gpu01")
    assert "  benchmarks  full of 2026-11-30T20:07:30Z in " in shown
    assert "    fail       GPU 0  matrix_product.bf16  below the limit of 595" in shown


# ---- what the playbook is given ----


def options(**changes: Any) -> dict[str, Any]:
    given = dict.fromkeys(("suite", "where", "image", "gpus", "limit"))
    return {
        **given,
        "only": (),
        "occupied": False,
        "extra_vars": (),
        "yes": False,
        "forks": 5,
        "accept_new": False,
        **changes,
    }


def test_only_what_was_said_goes_above_the_inventory() -> None:
    assert bench._variables(options()) == {}
    assert bench._variables(
        options(suite="full", where="host", gpus="0,GPU-1", occupied=True, extra_vars=(("pair", ("a", "1")),))
    ) == {
        "a": "1",
        "benchmark_suite": "full",
        "benchmark_where": "host",
        "benchmark_gpus": [0, "GPU-1"],
        "benchmark_occupied": True,
    }


@pytest.mark.parametrize(
    ("image", "reference", "digest"),
    [
        ("pytorch/pytorch:2.7", "pytorch/pytorch:2.7", None),
        ("a.example/t:1@sha256:" + "a1" * 32, "a.example/t:1", "sha256:" + "a1" * 32),
    ],
)
def test_an_image_of_the_command_line_takes_its_digest_with_it(
    image: str, reference: str, digest: str | None
) -> None:
    assert bench._variables(options(image=image)) == {"image": reference, "image_digest": digest}


def test_gpus_are_indexes_and_uuids() -> None:
    assert gpu_list("all") == "all"
    assert gpu_list("3") == [3]
    assert gpu_list("0, MIG-1") == [0, "MIG-1"]
    with pytest.raises(InputError, match="'h100' is no index and no UUID"):
        gpu_list("0,h100")


class Asked:
    """Stands for the hosts: tells power limits, and counts how often it is asked."""

    def __init__(self) -> None:
        self.hosts: list[str] = []

    def __call__(self, hosts: Any, groups: Any, scrubber: Any, how: Any) -> dict[str, Any]:
        self.hosts = [host.name for host in hosts]
        return {name: {"gpu_probe": {"devices": [{"power_limit_w": 700.0}]}} for name in self.hosts}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    from fleet.run import live

    stand_in = Asked()
    monkeypatch.setattr(live, "facts_of", stand_in)
    return stand_in


def ask(site: str, **changes: Any) -> None:
    from fleet.cli.options import Session
    from fleet.inventory import LoadOptions, load_inventory

    bench._ask_before_burning(Session(), load_inventory(site, options=LoadOptions()), options(**changes))


def test_a_burn_in_says_its_power_and_does_not_begin_unasked(
    site: str, asked: Asked, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="it asks first"):
        ask(site, suite="burn", limit="gpu*")
    assert asked.hosts == ["gpu01", "gpu02"]
    assert "2 GPUs on 2 hosts may draw 1.4 kW together" in capsys.readouterr().err
    ask(site, suite="burn", limit="gpu*", yes=True)
    assert "1.4 kW" in capsys.readouterr().err

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    answers = iter([True, False])
    monkeypatch.setattr(click, "confirm", lambda *_, **__: next(answers))
    ask(site, suite="burn")
    with pytest.raises(InputError, match="not started"):
        ask(site, suite="burn")


def test_other_suites_ask_nobody(site: str, asked: Asked) -> None:
    ask(site, suite="full")
    ask(site)
    assert asked.hosts == []


def test_a_burn_in_that_the_inventory_names_asks_too(tmp_path: Path, asked: Asked) -> None:
    file = tmp_path / "burn.yaml"
    file.write_text("all: {hosts: {gpu01: {benchmark_suite: burn}}}\n")
    with pytest.raises(InputError, match="it asks first"):
        ask(str(file))
    ask(str(file), suite="quick")


def test_a_host_that_cannot_be_asked_for_facts_says_why(tmp_path: Path) -> None:
    from fleet.core.secret import Scrubber
    from fleet.inventory import LoadOptions, load_inventory
    from fleet.run.asking import Asking
    from fleet.run.live import facts_of

    file = tmp_path / "one.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    hosts = load_inventory(str(file), options=LoadOptions()).select(None)
    found = facts_of(hosts, ["gpu_probe"], Scrubber(), Asking(forks=5))
    assert isinstance(found["gpu01"], FleetError)
