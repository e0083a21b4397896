"""Is somebody on a GPU: processes, device files, utilisation and memory, and whose a process is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bench import occupied, targets
from fleet.agent.bench.occupied import Own, Watch
from fleet.agent.host import Host

from .doubles import Sampler, address, device, idle, sample

SERVER = {"pid": 226424, "kind": "compute", "command": "/opt/serve/llama-server", "user": "anna"}


def process(
    root: Path, pid: int, command: str, *, files: tuple[str, ...] = (), environment: str = "A=1"
) -> None:
    """A process of the host in the folder, as /proc shows it."""
    place = root / "proc" / str(pid)
    (place / "fd").mkdir(parents=True)
    (place / "comm").write_text(command + "\n")
    (place / "cmdline").write_bytes(command.encode() + b"\0")
    (place / "cgroup").write_text("0::/user.slice/session-4.scope\n")
    (place / "environ").write_bytes(environment.encode() + b"\0")
    (place / "maps").write_text("")
    for number, name in enumerate(files):
        os.symlink(name, place / "fd" / str(number))


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(targets, "sampler", lambda host, interval_s=0.5: Sampler(given))
    monkeypatch.setattr(occupied, "LOOK_AT_MOST_S", 0.0)
    return given


def test_a_process_that_nvml_lists_is_named_with_its_pid(host: Host, samples: list[Any]) -> None:
    samples += [idle(0), idle(1)]
    found = occupied.look(host, [device(0, processes=[SERVER]), device(1)])
    assert found == {address(0): "llama-server (pid 226424, user anna)"}


def test_a_holder_of_the_device_file_counts_where_nvml_lists_nobody(
    host: Host, root: Path, samples: list[Any]
) -> None:
    process(root, 4711, "python", files=("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"))
    process(root, 4712, "nvidia-persistenced", files=("/dev/nvidia0", "/dev/nvidia1"))
    found = occupied.look(host, [device(0), device(1)])
    assert list(found) == [address(1)]
    assert found[address(1)].startswith("python (pid 4711")


def test_who_only_watches_a_gpu_does_not_work_on_it(host: Host, root: Path, samples: list[Any]) -> None:
    process(root, 4711, "netdata", files=("/dev/nvidiactl", "/dev/nvidia0"))
    process(root, 4712, "Xorg", files=("/dev/nvidiactl", "/dev/nvidia1"))
    assert list(occupied.look(host, [device(0), device(1)])) == [address(1)]
    assert address(0) in occupied.look(host, [device(0, processes=None)])  # nobody can say what it does


def test_a_pid_in_the_samples_counts_once_it_is_not_the_benchmarks_own(
    host: Host, root: Path, samples: list[Any]
) -> None:
    process(root, 10, "python", environment="FLEET_BENCH_TOKEN=abc")
    process(root, 11, "train")
    samples += [idle(0, processes=[10]), idle(1, processes=[11, 99])]
    assert occupied.look(host, [device(0), device(1)], "abc") == {address(1): "train (pid 11)"}


def test_a_light_but_busy_tenant_is_seen_by_its_utilisation(host: Host, samples: list[Any]) -> None:
    for percent in (71, 65, 70, 0, 72):
        samples += [idle(0, gpu_utilization_percent=percent, memory_used_mib=300), idle(1)]
    assert occupied.look(host, [device(0), device(1)]) == {
        address(0): "a process unknown: utilisation of 71, 65, 70, 0, 72 %"
    }


def test_one_spike_or_memory_that_is_just_given_back_is_nobody(host: Host, samples: list[Any]) -> None:
    samples += [
        idle(0, gpu_utilization_percent=30, memory_used_mib=9000),
        idle(0, memory_used_mib=4),
        idle(0, memory_used_mib=4),
    ]
    assert occupied.look(host, [device(0)]) == {}


def test_an_empty_list_in_a_container_is_no_proof(host: Host, root: Path, samples: list[Any]) -> None:
    (root / ".dockerenv").write_text("")
    samples += [idle(0, memory_used_mib=2385), idle(0, memory_used_mib=1675)]
    found = occupied.look(host, [device(0, processes=[])])
    assert "cannot be seen from here: 1675 MiB" in found[address(0)]


def test_utilisation_of_mig_is_no_value_and_its_memory_no_sign(host: Host, samples: list[Any]) -> None:
    samples += [idle(0, gpu_utilization_percent=None, memory_used_mib=3000)] * 5
    assert occupied.look(host, [device(0, mig={"mode": "enabled", "devices": []})]) == {}


def test_whose_a_process_is(host: Host, root: Path) -> None:
    process(root, 10, "python", environment="FLEET_BENCH_TOKEN=abc")
    process(root, 11, "python")
    process(root, 12, "python", environment="")
    (root / "proc/12/environ").write_bytes(b"")
    process(root, 13, "python")
    (root / "proc/13/cgroup").write_text("0::/system.slice/docker-" + "c" * 64 + ".scope\n")
    own = Own(host, "c" * 64, "abc")
    assert [own.is_own(pid) for pid in (10, 11, 12, 13, 99)] == [True, False, None, True, None]


def test_who_comes_while_a_group_runs_is_found_among_the_samples(host: Host, root: Path) -> None:
    process(root, 10, "python", environment="FLEET_BENCH_TOKEN=abc")
    process(root, 11, "train")
    process(root, 12, "nvidia-cuda-mps-server")
    given = [
        sample(0, 1.0, processes=[10]),
        sample(0, 2.0, processes=[10, 11, 12, 99]),
        sample(1, 2.0, processes=None),
    ]
    watch = Watch(host, lambda: given, lambda: Own(host, None, "abc"))
    watch.look()
    assert watch.users.found == {address(0): {11: "train (pid 11)"}}
    with Watch(host, lambda: given, lambda: Own(host, None, "abc")) as watched:
        pass  # the end looks once more
    assert watched.users.words(address(0)) == "train (pid 11)"
    assert watched.users.words(address(1)) is None
