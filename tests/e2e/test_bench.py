"""``fleet bench`` on real hosts with simulated H100s: what is slow is found, what cannot be measured says why.

The tests follow one another on two hosts: the first provisions them. What ran is witnessed by the hosts' own engines,
sshd's journal and the files there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import process_on_gpu, switched
from fleet.lab.snapshot import snapshot
from tests.conftest import LabFactory
from tests.e2e import gpu
from tests.e2e.bench import (
    SITE_PACKAGES,
    Json,
    Site,
    derive,
    document_of,
    results,
    said,
    small_shared_memory,
)
from tests.e2e.harness import Fleet, Running

pytestmark = pytest.mark.lab

_LAB = """\
all:
  vars:
    lab_subnet: 172.28.69.0/25
    lab_inner_subnet: 172.28.69.128/25
    lab_registry: true
    lab_release: bookworm
    lab_packages: [docker.io]
    lab_driver: "580.159.03"
  hosts:
    one: {ansible_host: 172.28.69.11, lab_gpus: {model: h100-sxm, count: 3}}
    two: {ansible_host: 172.28.69.12, lab_gpus: {model: h100-sxm, count: 2}}
"""
GPUS = {"one": 3, "two": 2}
QUICK = ["cpu", "compute", "training", "collectives"]
SLOW = {"gpu.1.benchmark_percent": 60}
# What the table calls the tests that it shows, and their units.
_COLUMNS = {
    "bf16 TFLOPS": "matrix_product.bf16",
    "fp16 TFLOPS": "matrix_product.fp16",
    "copy GB/s": "memory.copy",
    "to device GB/s": "host_link.to_device",
    "fp8 TFLOPS": "matrix_product.fp8",
}
# A torch that says of itself what a build of CUDA 11.8 does, and fails as one does on a GPU of a later generation.
_OLD_BUILD = """
def _without_code_for_this_gpu(*size, device=None, _on_the_cpu=ones, **more):
    if str(device).startswith("cuda"):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
    return _on_the_cpu(*size, device=device, **more)


ones = _without_code_for_this_gpu
version.cuda = "11.8"
cuda.init = lambda: None
cuda.device_count = lambda: len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
cuda.get_arch_list = lambda: ["sm_37", "sm_50", "sm_60", "sm_70", "sm_80", "sm_86"]
cuda.get_device_capability = lambda device=None: (9, 0)
"""


@pytest.fixture(scope="module")
def site(own_lab: LabFactory, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Two hosts with five GPUs, a driver and an engine, a registry with the image, and an inventory of them."""
    lab = own_lab("bench", _LAB)
    folder = tmp_path_factory.mktemp("bench-site")
    inventory = gpu.gpu_inventory(folder, lab, list(lab.definition.hosts))
    return Site(lab, inventory, Fleet(folder))


@pytest.fixture(scope="module")
def ready(site: Site) -> Site:
    """The hosts provisioned: toolkit and image, too."""
    done = site.fleet("provision", str(site.inventory))
    assert done.code == 0, done.said
    return site


@pytest.fixture(scope="module")
def image(site: Site) -> str:
    """What the hosts' engines call the pinned image."""
    variables = gpu.json_variables(site.lab)
    return f"{variables['lab_pytorch_image'].rpartition(':')[0]}@{variables['lab_pytorch_digest']}"


@pytest.fixture(scope="module")
def hanging(ready: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """``fleet bench`` of host two, where the second GPU never ends an all-gather; other tests run meanwhile."""
    elsewhere = Fleet(tmp_path_factory.mktemp("bench-hanging"))
    with switched(ready.lab, "two", {"gpu.1.benchmark_hang": "nccl.all_gather"}):
        words = ("--limit", "two", "--only", "training,collectives", "--json")
        running = elsewhere.start("bench", str(ready.inventory), *words)
        yield running
        if running.process.poll() is None:
            running.interrupt()
            running.process.wait(120)


def test_provision_measures_once(site: Site) -> None:
    """The first measures what it has just set up; the second finds it measured, and changes nothing."""
    words = ("provision", str(site.inventory), "-e", "benchmark=quick")
    done = site.fleet(*words)
    assert done.code == 0, done.said
    for host, report in site.fleet.reports().items():
        record = report["benchmark"]
        assert (report["status"], record["suite"], record["simulated"]) == ("converged", "quick", True)
        assert everything_was_measured(record)
        of_gpus = {uuid for one in record["results"] for uuid in one["gpus"]}
        assert of_gpus == set(gpu.hardware_uuids(site.lab, host))
        assert site.groups_begun(host, "0") == QUICK
        assert site.left(host) == []
    before = {host: (site.now(host), site.record_file(host), snapshot(site.lab, host)) for host in GPUS}
    again = site.fleet(*words)
    assert again.code == 0, again.said
    assert "changed=0" in again.out
    for host, (since, record_file, everything) in before.items():
        assert site.begun(host, since) == []
        assert site.record_file(host) == record_file
        assert everything.differences(snapshot(site.lab, host)) == []


def everything_was_measured(record: Json) -> bool:
    """But for 2:4 sparse products, for which the lab's torch has no code."""
    missing = {one["test"] for one in record["results"] if one["status"] != "measured"}
    return missing == {"matrix_product.fp16_sparse", "matrix_product.int8_sparse"}


def measured(found: dict[str, Json]) -> dict[str, Json]:
    """Those that could be measured in the lab."""
    return {test: one for test, one in found.items() if not test.endswith("_sparse")}


def rows_of(table: str) -> dict[tuple[str, int], dict[str, str]]:
    """The table's cells by (host, GPU) and heading."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    head = next(words for words in lines if words[0] == "host")
    rows = [dict(zip(head, words, strict=True)) for words in lines if words[0] in GPUS and "GPU" in words[1]]
    return {(row["host"], int(row["GPU"].removeprefix("GPU "))): row for row in rows}


def the_table_says_what_the_document_says(table: str, document: Json) -> None:
    rows = rows_of(table)
    assert set(rows) == {(host, number) for host, count in GPUS.items() for number in range(count)}
    for (host, number), row in rows.items():
        found = results(document, host, gpu=number)
        worst = "fail" if any(one["verdict"]["verdict"] == "fail" for one in found.values()) else "pass"
        assert row["verdict"] == worst
        shown = {test: row[heading] for heading, test in _COLUMNS.items() if heading in row}
        assert len(shown) >= 3
        for test, cell in shown.items():
            value, share, *word = cell.split()
            verdict = found[test]["verdict"]
            assert float(value) == pytest.approx(verdict["value"], rel=0.01)
            assert float(share.rstrip("%")) == pytest.approx(100 * verdict["share_of_peak"], abs=0.6)
            assert (word or ["pass"]) == [verdict["verdict"]]
    assert table.splitlines()[-1].startswith("simulated hardware · ")
    assert table.splitlines()[-1].endswith(f" · exit {document['exit_code']}")
    assert document["run"][:4] in table.splitlines()[-1]


def test_equal_gpus_are_well_and_table_and_json_say_the_same(ready: Site) -> None:
    """What provision measured last is judged and kept as the baseline, without a look at any host."""
    logins, since = {host: ready.logins(host) for host in GPUS}, ready.now("one")
    assert min(logins.values()) > 0
    found = ready.bench("--from", "last", "--save-baseline")
    assert (found["exit_code"], found["simulated"], found["suite"]) == (0, True, "quick")
    assert "results kept" in found["notes"][0]
    for host in found["hosts"].values():
        assert (host["verdict"], host["record"]["simulated"]) == ("pass", True)
    table = ready.fleet("bench", str(ready.inventory), "--from", "last")
    assert table.code == 0, table.said
    the_table_says_what_the_document_says(table.out, found)
    assert ready.bench("--from", "last") == {**found, "notes": []}
    assert {host: ready.logins(host) for host in GPUS} == logins
    assert ready.begun("one", since) == []


def test_a_slow_gpu_is_found_against_its_peers_and_its_baseline(ready: Site) -> None:
    """Nobody else is blamed, and the table is the same when it is printed again."""
    with switched(ready.lab, "one", SLOW):
        done = ready.fleet("bench", str(ready.inventory), "--only", "compute", "--compare")
    assert done.code == 4, done.said
    found = ready.bench("--from", "last", "--compare")
    assert found["exit_code"] == 4
    the_table_says_what_the_document_says(done.out, found)
    for (host, number), row in rows_of(done.out).items():
        assert row["verdict"] == ("fail" if (host, number) == ("one", 1) else "pass")
    assert next(iter(rows_of(done.out))) == ("one", 1), "the worst is first"
    slow = measured(results(found, "one", gpu=1))
    assert len(slow) == 11
    for one in slow.values():
        verdict = one["verdict"]
        assert verdict["verdict"] == "fail"
        assert verdict["baseline_change_percent"] == pytest.approx(-40, abs=2)
        reasons = " / ".join(verdict["reasons"])
        assert "slower than the median" in reasons
        assert "4 others of the fleet" in reasons
        assert "slower than its baseline" in reasons
    alone = ready.bench("--from", "last")
    assert {one["verdict"]["baseline"] for one in measured(results(alone, "one", gpu=1)).values()} == {None}
    assert said(measured(results(alone, "one", gpu=1))) == {("measured", None, "fail")}


@pytest.mark.usefixtures("hanging")
def test_a_small_dev_shm_and_somebody_on_a_gpu_cost_no_other_result(ready: Site, image: str) -> None:
    """Collectives need the memory; the third GPU is in use, and whoever works there is not disturbed."""
    with (
        small_shared_memory(ready.lab, "one"),
        process_on_gpu(ready.lab, "one", (2,), user="daemon") as pid,
    ):
        run = f"docker run --rm --network none --shm-size 1g {image} df -kP /dev/shm"
        assert ready.shell("one", run).splitlines()[1].split()[1] == "65536"
        start = gpu.process_start(ready.lab, "one", pid)
        done = ready.fleet("bench", str(ready.inventory), "--limit", "one", "--only", "training,collectives")
        assert gpu.process_start(ready.lab, "one", pid) == start
    assert done.code == 4
    found = ready.bench("--from", "last")
    for several in ("nccl.", "peer."):
        assert said(results(found, "one", prefix=several)) == {("failed", "shm_too_small", "fail")}
    assert "65536 KiB" in results(found, "one")["nccl.all_reduce"]["message"]
    for number in (0, 1):
        assert {one["status"] for one in results(found, "one", gpu=number).values()} == {"measured"}
    used = found["hosts"]["one"]["record"]["gpus"][2]
    assert (used["state"], used["reason"]) == ("skipped", "gpu_occupied")
    assert results(found, "one", gpu=2) == {}
    assert f"gpu_occupied: in use: sleep (pid {pid}, user daemon)" in done.out
    assert rows_of(done.out)["one", 2]["verdict"] == "skipped"
    assert ready.left("one") == []


def test_with_leave_a_used_gpu_is_measured_and_its_results_say_who_was_there(ready: Site) -> None:
    with process_on_gpu(ready.lab, "one", (2,), user="daemon") as pid:
        words = ("--limit", "one", "--only", "training", "--gpus", "2")
        found = ready.bench(*words, "--occupied")
        assert gpu.process_start(ready.lab, "one", pid)
    used = results(found, "one", gpu=2)
    assert len(used) == 2
    for one in used.values():
        assert (one["status"], one["verdict"]["verdict"]) == ("measured", "not_judged")
        assert any(f"pid {pid}" in note for note in one["notes"])


def broken_images(lab: Lab, base: str) -> dict[str, str]:
    """On host one, by what is wrong with them."""
    made = {
        "torch_cpu_build": (f"rm -r {SITE_PACKAGES}/fleet_lab_benchmark*", ""),
        "torch_missing": (f"rm -r {SITE_PACKAGES}/torch {SITE_PACKAGES}/torch-*", ""),
        "arch_mismatch": (f"cat >> {SITE_PACKAGES}/torch/__init__.py", _OLD_BUILD),
    }
    return {
        reason: derive(lab, "one", base, f"local/{reason}:1", script, files)
        for reason, (script, files) in made.items()
    }


def test_an_image_that_cannot_serve_the_gpu_is_not_judged(ready: Site, image: str) -> None:
    """No test of a GPU runs on the CPU under its name; what needs no GPU runs where there is a torch."""
    for reason, broken in broken_images(ready.lab, image).items():
        found = ready.bench("--limit", "one", "--only", "cpu,compute", "--gpus", "0", "--image", broken)
        gpus = results(found, "one", gpu=0)
        assert len(gpus) == 13
        assert said(gpus) == {("not_runnable", reason, "not_judged")}
        cpu = results(found, "one")["cpu.matrix_product"]
        assert cpu["status"] == ("not_runnable" if reason == "torch_missing" else "measured")
        assert (found["exit_code"], found["hosts"]["one"]["verdict"]) == (1, "not_judged")
        (trouble,) = [one for one in found["problems"] if "GPU 0" in {at["gpus"] for at in one["places"]}]
        assert trouble["reasons"][0].startswith(f"{reason}: ")
        assert found["hosts"]["one"]["record"]["image"] == {"reference": broken, "digest": None}


def test_without_a_compiler_only_compiled_networks_are_left_out(ready: Site) -> None:
    found = ready.bench("--limit", "one", "--suite", "full", "--only", "cpu,compile", "--gpus", "0")
    compiled = results(found, "one", gpu=0)
    assert len(compiled) == 4
    assert said(compiled) == {("not_runnable", "no_compiler", "not_judged")}
    assert results(found, "one")["cpu.matrix_product"]["status"] == "measured"


def test_a_rank_that_hangs_is_ended_and_what_was_measured_is_kept(ready: Site, hanging: Running) -> None:
    done = hanging.finish(300)
    found = document_of(done.out, done.code)
    assert found["exit_code"] == 4
    collectives = results(found, "two", prefix="nccl.")
    hung = collectives.pop("nccl.all_gather")
    assert said({"": hung}) == {("timeout", "collective_timeout", "fail")}
    assert collectives.pop("nccl.all_reduce")["status"] == "measured"
    assert said(collectives) == {("skipped", "collective_timeout", "skipped")}
    assert {one["status"] for one in results(found, "two", gpu=1).values()} == {"measured"}
    assert {one["status"] for one in results(found, "two", prefix="peer.").values()} == {"measured"}
    assert "a rank said nothing for 60 s; all were ended" in hung["message"], (
        "long before the group's deadline"
    )
    assert ready.left("two") == []
