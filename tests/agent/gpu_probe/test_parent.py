"""A library that hangs, crashes or lacks functions: the others answer, and nothing is left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.agent.gpu_probe import parent
from fleet.agent.gpu_probe.parent import Asked, Deadlines
from fleet.agent.host import Host

Behave = Callable[..., None]
# The one that is waited for, and the one that is not.
SHORT, LONG = 1.5, 60.0


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path), state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "runtime"))


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> Behave:
    def tell(*words: str, gpus: int = 3) -> None:
        monkeypatch.setenv("FAKE_NVML", " ".join(words))
        monkeypatch.setenv("FAKE_NVML_GPUS", str(gpus))

    return tell


def children() -> set[str]:
    """Processes that this one has started and not reaped."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def ask(host: Host, library: str, call: float = LONG, start: float = LONG, whole: float = LONG * 2) -> Asked:
    before = len(os.listdir("/proc/self/fd")), children()
    asked = parent.ask(host, library, Deadlines(start, call, whole))
    assert (len(os.listdir("/proc/self/fd")), children()) == before
    return asked


def test_functions_that_an_old_library_lacks_are_null_with_the_code(
    host: Host, fake_library: str, behave: Behave
) -> None:
    behave(gpus=2)
    asked = ask(host, fake_library)
    assert sorted(asked.devices) == [0, 1]
    device = asked.devices[1]
    assert (device["serial"], device["device_id"], device["status"]) == ("serial-1", "2330", "ok")
    for path in ("uuid", "memory_reserved_mib", "temperature_c", "nvlinks", "processes", "fabric.state"):
        assert device["absent"][path] == {"reason": "not_supported", "nvml_error": 13, "text": None}
    assert asked.pairs == [{"a": "0000:01:00.0", "b": "0000:02:00.0", "path": "PHB", "peer_to_peer": None}]
    assert (asked.system or {})["driver_version"] == "470.1.1"


@pytest.mark.parametrize(
    ("code", "reason"), [(3, "not_supported"), (4, "permission"), (10, "error"), (999, "error")]
)
def test_an_error_of_one_function_is_that_values_alone(
    host: Host, fake_library: str, behave: Behave, code: int, reason: str
) -> None:
    behave(f"nvmlDeviceGetSerial.0={code}")
    device = ask(host, fake_library).devices[0]
    assert (device["absent"]["serial"]["reason"], device["absent"]["serial"]["nvml_error"]) == (reason, code)
    assert device["status"] == "ok"
    assert device["printed_address"] == "00000000:01:00.0"


@pytest.mark.parametrize(("code", "status"), [(15, "lost"), (16, "reset_required")])
def test_a_gpu_that_is_lost_or_to_be_reset_says_so(
    host: Host, fake_library: str, behave: Behave, code: int, status: str
) -> None:
    behave(f"nvmlDeviceGetSerial.1={code}")
    asked = ask(host, fake_library)
    assert [asked.devices[index]["status"] for index in range(3)] == ["ok", status, "ok"]


def test_a_gpu_that_hangs_is_given_up_and_the_others_are_asked(
    host: Host, fake_library: str, behave: Behave
) -> None:
    behave("nvmlDeviceGetSerial.1=hang")
    asked = ask(host, fake_library, call=SHORT)
    assert sorted(asked.devices) == [0, 2]
    assert asked.refused[1]["status"] == "timeout"
    assert "nvmlDeviceGetSerial" in asked.refused[1]["message"]
    assert asked.addresses[1] == "0000:02:00.0"
    assert asked.pairs == [{"a": "0000:01:00.0", "b": "0000:03:00.0", "path": "PHB", "peer_to_peer": None}]


def test_a_gpu_that_kills_the_process_is_an_error_and_the_others_are_asked(
    host: Host, fake_library: str, behave: Behave
) -> None:
    behave("nvmlDeviceGetSerial.0=crash", "nvmlDeviceGetHandleByIndex_v2.2=crash")
    asked = ask(host, fake_library)
    assert sorted(asked.devices) == [1]
    assert {index: refused["status"] for index, refused in asked.refused.items()} == {0: "error", 2: "error"}
    assert "SIGSEGV" in asked.refused[0]["message"]
    assert "nvmlDeviceGetSerial" in asked.refused[0]["message"]


def test_the_topology_is_given_up_without_the_gpus(host: Host, fake_library: str, behave: Behave) -> None:
    behave("nvmlDeviceGetTopologyCommonAncestor.0=hang")
    asked = ask(host, fake_library, call=SHORT)
    assert sorted(asked.devices) == [0, 1, 2]
    assert (asked.pairs, asked.problem) == (None, None)


def test_a_library_that_never_opens_is_a_timeout(host: Host, fake_library: str, behave: Behave) -> None:
    behave("nvmlInitWithFlags.-=hang")
    asked = ask(host, fake_library, start=SHORT)
    assert (asked.system, asked.problem) == (None, "timeout")
    assert "nvmlInit" in (asked.message or "")


def test_a_library_that_kills_the_process_at_the_start_is_an_error(
    host: Host, fake_library: str, behave: Behave
) -> None:
    behave("nvmlInitWithFlags.-=crash")
    asked = ask(host, fake_library)
    assert (asked.system, asked.problem) == (None, "error")
    assert "SIGSEGV" in (asked.message or "")


def test_the_whole_probe_has_an_end_too(host: Host, fake_library: str, behave: Behave) -> None:
    behave("nvmlDeviceGetSerial.0=hang")
    asked = ask(host, fake_library, whole=SHORT)
    assert (sorted(asked.devices), asked.problem) == ([1, 2], "timeout")
    assert asked.refused[0]["status"] == "timeout"


def test_several_that_hang_are_each_named_and_cost_the_others_nothing(
    host: Host, fake_library: str, behave: Behave
) -> None:
    behave("nvmlDeviceGetSerial.0=hang", "nvmlDeviceGetPciInfo_v3.2=hang")
    asked = ask(host, fake_library, call=SHORT)
    assert sorted(asked.devices) == [1]
    messages = {index: refused["message"] for index, refused in asked.refused.items()}
    assert sorted(messages) == [0, 2]
    assert "nvmlDeviceGetSerial" in messages[0]
    assert "nvmlDeviceGetPciInfo" in messages[2]


def test_several_that_hang_until_the_end_of_all_time_are_timeouts(
    host: Host, fake_library: str, behave: Behave
) -> None:
    behave("nvmlDeviceGetSerial.0=hang", "nvmlDeviceGetSerial.2=hang")
    asked = ask(host, fake_library, whole=SHORT)
    assert {index: refused["status"] for index, refused in asked.refused.items()} == {
        0: "timeout",
        2: "timeout",
    }
    assert (sorted(asked.devices), asked.problem) == ([1], "timeout")


def test_gpus_are_asked_at_once(host: Host, fake_library: str, behave: Behave) -> None:
    """One that hangs lets the others speak in the first child: only its own line is missing."""
    behave("nvmlDeviceGetSerial.0=hang")
    child = parent.Child(
        {
            "library": fake_library,
            "by_name": False,
            "skip": [],
            "again": [],
            "together": True,
            "topology": True,
        }
    )
    heard: list[tuple[str, int]] = []
    try:
        while len(heard) < 5:
            line = child.line(time.monotonic() + LONG)
            assert line is not None
            if line["kind"] in ("asking", "device"):
                heard.append((line["kind"], line["index"]))
        child.stop()
        assert child.function(0) == "nvmlDeviceGetSerial"
    finally:
        child.close()
    assert sorted(heard) == [("asking", 0), ("asking", 1), ("asking", 2), ("device", 1), ("device", 2)]


def test_what_nvml_says_at_the_start_is_kept(host: Host, fake_library: str, behave: Behave) -> None:
    behave("nvmlInitWithFlags.-=999")
    asked = ask(host, fake_library)
    assert asked.system is not None
    assert (asked.system["kind"], asked.system["stage"], asked.system["nvml_error"]) == (
        "failed",
        "init",
        999,
    )


def test_waiting_is_long_where_the_driver_must_wake_the_gpus_first(host: Host) -> None:
    asleep = Deadlines.of(host, 8)
    os.makedirs(host.path(parent.PERSISTENCE_DAEMON))
    awake = Deadlines.of(host, 8)
    assert (asleep.start, awake.start) == (50.0, 10.0)
    assert awake.whole < asleep.whole <= parent.WHOLE_LIMIT_S < 120
    assert (awake.call, awake.first) == (5.0, 5.0)
    assert (asleep.call, asleep.first) == (10.0, 50.0)
