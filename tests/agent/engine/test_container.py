"""Containers: made once, recreated when their configuration or image changes, never somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.resources import load
from fleet.agent.resources.base import StepFailed
from fleet.agent.resources.container import config_hash, configuration, device_request, ports, size_bytes

from .fake import FakeEngine

IMAGE = "torch:2.7"
ARGS: dict[str, Any] = {
    "name": "jupyter",
    "image": IMAGE,
    "command": ["jupyter", "lab"],
    "state": "running",
    "env": {"TOKEN": {"$secret": "t"}, "A": "1"},
    "ports": ["8888:8888", "0.0.0.0:9000:9000/udp", "[::1]:7000:70"],
    "volumes": ["/data:/data:ro"],
    "restart": "unless-stopped",
    "labels": {"owner": "anna"},
    "memory": "8g",
    "cpus": 2,
    "shm_size": "64m",
    "gpus": "all",
    "devices": ["/dev/fuse", "nvidia.com/gpu=0"],
    "user": "1000:1000",
    "ipc": "shareable",
}


@pytest.fixture
def ready(engine: FakeEngine, host: Any) -> Any:
    """A host that has the image and the secret."""
    engine.images["i1"] = {"Id": "i1", "RepoDigests": [], "RepoTags": [IMAGE]}
    host.secrets["t"] = "hunter2"
    return host


def differences(host: Any, **changes: Any) -> list[dict[str, Any]]:
    resource, args = load("container"), {**ARGS, **changes}
    return resource.diff(resource.read(host, args), args)


def apply(host: Any, report: Any, **changes: Any) -> None:
    resource, args = load("container"), {**ARGS, **changes}
    resource.apply(host, args, resource.diff(resource.read(host, args), args), report)


def verbs(engine: FakeEngine) -> list[str]:
    changes = [(method, path) for method, path, _ in engine.requests if method != "GET"]
    return [method if method == "DELETE" else path.rpartition("/")[2] for method, path in changes]


def test_created_started_and_then_as_wanted(engine: FakeEngine, ready: Any, report: Any) -> None:
    assert differences(ready) == [{"path": "jupyter", "before": None, "after": "running, torch:2.7"}]
    apply(ready, report)
    assert verbs(engine) == ["create", "start"]
    assert differences(ready) == []


def test_the_engine_gets_the_whole_configuration(ready: Any) -> None:
    body = configuration(ready, ARGS)
    assert body["Env"] == ["A=1", "TOKEN=hunter2"]
    assert body["Labels"] == {"owner": "anna", "fleet.config_hash": config_hash(ARGS)}
    limits = body["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"], limits["ShmSize"]) == (8 << 30, 2_000_000_000, 64 << 20)
    assert limits["DeviceRequests"] == [
        {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]},
        {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]},
    ]
    assert limits["Devices"][0]["PathOnHost"] == "/dev/fuse"
    assert limits["IpcMode"] == "shareable"
    assert limits["Binds"] == ["/data:/data:ro"]
    assert body["User"] == "1000:1000"
    assert limits["RestartPolicy"] == {"Name": "unless-stopped"}


def test_ports_are_local_unless_an_address_is_written_out() -> None:
    bindings, exposed = ports(ARGS["ports"])
    assert bindings == {
        "8888/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8888"}],
        "9000/udp": [{"HostIp": "0.0.0.0", "HostPort": "9000"}],
        "70/tcp": [{"HostIp": "::1", "HostPort": "7000"}],
    }
    assert set(exposed) == set(bindings)
    with pytest.raises(StepFailed, match="not a port mapping"):
        ports(["8888"])


def test_a_changed_configuration_recreates_it(engine: FakeEngine, ready: Any, report: Any) -> None:
    apply(ready, report)
    engine.requests.clear()
    assert differences(ready, memory="16g")[0]["path"] == "jupyter configuration"
    apply(ready, report, memory="16g")
    assert verbs(engine) == ["stop", "DELETE", "create", "start"]
    assert differences(ready, memory="16g") == []


MIG = "MIG-5f4e3d2c-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("gpus", "by", "request_"),
    [
        ("all", "gpus", {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}),
        (2, "gpus", {"Driver": "", "Count": 2, "Capabilities": [["gpu"]]}),
        (["0", MIG], "gpus", {"Driver": "", "DeviceIDs": ["0", MIG], "Capabilities": [["gpu"]]}),
        ("all", "cdi", {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}),
        (2, "cdi", {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]}),
        ([MIG], "cdi", {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={MIG}"]}),
    ],
)
def test_gpus_are_asked_for_in_both_ways(gpus: Any, by: str, request_: dict[str, Any]) -> None:
    assert device_request(gpus, by) == request_


def test_without_a_way_named_the_host_decides(engine: FakeEngine, ready: Any, root: Path) -> None:
    def driver(args: dict[str, Any]) -> str:
        ready.invalidate()
        return str(configuration(ready, args)["HostConfig"]["DeviceRequests"][0]["Driver"])

    auto = {**ARGS, "gpu_request": "auto"}
    assert driver(auto) == ""
    (root / "var/run/cdi").mkdir()
    (root / "var/run/cdi/nic.yaml").write_text(
        "cdiVersion: 0.5.0\n# not nvidia.com/gpu\nkind: vendor.com/nic\n"
    )
    (root / "var/run/cdi/nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert driver(auto) == ""  # there is a specification, and this engine reads none
    engine.info = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
    assert driver(auto) == "cdi"
    (root / "var/run/cdi/nvidia.yaml").unlink()
    assert driver(auto) == "", "a specification of other devices only"
    (root / "var/run/cdi/nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert driver({**ARGS, "gpu_request": "gpus"}) == ""


def test_another_request_for_gpus_recreates_it(engine: FakeEngine, ready: Any, report: Any) -> None:
    apply(ready, report)
    assert differences(ready, gpus=["0"])[0]["path"] == "jupyter configuration"
    apply(ready, report, gpus=["0"])
    made = engine.containers["jupyter"]["Config"]["HostConfig"]["DeviceRequests"][0]
    assert made["DeviceIDs"] == ["0"]
    assert differences(ready, gpus=["0"]) == []


def test_a_refusal_for_the_gpus_is_explained(engine: FakeEngine, ready: Any, report: Any) -> None:
    engine.start_error = 'could not select device driver "" with capabilities: [[gpu]]'
    with pytest.raises(StepFailed, match="container jupyter: runtime_missing: ") as caught:
        apply(ready, report)
    assert "container_toolkit" in (caught.value.remedy or "")


def test_a_tag_that_moved_recreates_it(engine: FakeEngine, ready: Any, report: Any) -> None:
    apply(ready, report)
    engine.images["i1"]["RepoTags"] = []
    engine.images["i2"] = {"Id": "i2", "RepoDigests": [], "RepoTags": [IMAGE]}
    assert differences(ready) == [{"path": "jupyter image", "before": "i1", "after": "i2"}]
    apply(ready, report)
    assert differences(ready) == []


def test_stopping_and_removing(engine: FakeEngine, ready: Any, report: Any) -> None:
    apply(ready, report)
    apply(ready, report, state="stopped")
    assert differences(ready, state="stopped") == []
    assert differences(ready) == [{"path": "jupyter", "before": "stopped", "after": "running"}]
    apply(ready, report, state="absent")
    assert differences(ready, state="absent") == []


@pytest.mark.parametrize("state", ["running", "absent"])
def test_a_foreign_container_is_never_touched(
    engine: FakeEngine, ready: Any, report: Any, state: str
) -> None:
    foreign = {"Image": "i1", "Config": {"Image": "mine", "Labels": {}}, "State": {"Running": True}}
    engine.containers["jupyter"] = foreign
    with pytest.raises(StepFailed, match=r"already a container jupyter \(mine\), and fleet did not make it"):
        apply(ready, report, state=state)
    assert engine.containers["jupyter"] is foreign
    assert verbs(engine) == []


def test_one_that_ends_at_once_shows_its_last_words(engine: FakeEngine, ready: Any, report: Any) -> None:
    engine.dies_at_once = True
    with pytest.raises(StepFailed, match="ended at once, exit code 3: oops\nbad"):
        apply(ready, report)


def test_a_missing_image_is_named(engine: FakeEngine, host: Any, report: Any) -> None:
    host.secrets["t"] = "x"
    with pytest.raises(StepFailed, match=r"image torch:2\.7 is not on this host") as caught:
        apply(host, report)
    assert "image task" in (caught.value.remedy or "")


def test_the_hash_holds_no_secret_and_no_state() -> None:
    other = {**ARGS, "env": {"TOKEN": {"$secret": "u"}, "A": "1"}, "state": "stopped"}
    assert config_hash(other) == config_hash(ARGS)
    assert config_hash({**ARGS, "env": {"A": "1"}}) != config_hash(ARGS)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8g", 8 << 30), ("512M", 512 << 20), ("1.5GiB", 3 << 29), (1024, 1024), ("64mb", 64 << 20)],
)
def test_sizes(text: Any, size: int) -> None:
    assert size_bytes(text) == size
    with pytest.raises(StepFailed, match="not a size"):
        size_bytes("lots")
