"""The CDI specification is of this driver and of these GPUs, and is never half there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY
from fleet.agent.resources.base import Provides, StepFailed
from fleet.agent.resources.cdi_specification import RESOURCE
from tests.agent.driver.conftest import NEW, OLD, GpuHost
from tests.agent.resources.fakes import converge, differences

PATH = "/etc/cdi/nvidia.yaml"
ARGS: dict[str, Any] = {"path": PATH, "command": ["nvidia-ctk", "cdi", "generate"], "driver_version": NEW}


def text(version: str = NEW, numbers: tuple[int, ...] = (0, 1), names: str = "index") -> str:
    """As nvidia-ctk writes it: keys in order of the alphabet."""
    lines = ["---", "cdiVersion: 0.5.0", "containerEdits:", "  mounts:"]
    lines += [f"  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{version}", "devices:"]
    for number in numbers:
        lines += ["- containerEdits:", "    deviceNodes:", f"    - path: /dev/nvidia{number}"]
        lines += [f'  name: "{number}"' if names == "index" else f"  name: GPU-{number}"]
    return "\n".join([*lines, "- containerEdits: {}", "  name: all", "kind: nvidia.com/gpu", ""])


@pytest.fixture
def served(host: GpuHost) -> GpuHost:
    """The new driver is loaded, and the generator knows both GPUs."""
    host.load("nvidia")
    (host.folder / "etc/cdi").mkdir()
    host.write("/usr/bin/nvidia-ctk", "", 0o755)
    host.answer = lambda argv, stdin: generate(host, argv, text())
    return host


def generate(host: GpuHost, argv: list[str], made: str) -> Result:
    output = argv[-1].removeprefix("--output=")
    assert Path(output).suffix == ".yaml", "its ending tells nvidia-ctk the format"
    assert Path(output).parent != Path("/etc/cdi"), "an engine would read it"
    host.write(output, made)
    return Result(0)


def test_it_is_generated_once(served: GpuHost) -> None:
    found = converge(served, RESOURCE, ARGS)
    assert found == [{"path": PATH, "before": None, "after": f"driver {NEW}"}]
    assert served.text(PATH) == text()
    assert [path.name for path in (served.folder / "etc/cdi").iterdir()] == ["nvidia.yaml"]
    assert served.argvs() == ["nvidia-ctk cdi generate --output=/etc/cdi/.fleet-new/nvidia.yaml"]


@pytest.mark.parametrize(
    ("before", "path"),
    [
        (text(OLD), "driver"),
        (text(numbers=(0,)), "GPUs"),
        (text(numbers=(0, 1, 2)), "GPUs"),
        (text(numbers=(0, 7), names="uuid"), "GPUs"),
        ("kind: example.com/nic\n", PATH),
    ],
)
def test_one_of_another_driver_or_of_other_gpus_is_made_anew(served: GpuHost, before: str, path: str) -> None:
    served.write(PATH, before)
    assert [entry["path"] for entry in converge(served, RESOURCE, ARGS)] == [path]


def test_without_a_generator_one_that_fits_is_enough(served: GpuHost) -> None:
    (served.folder / "usr/bin/nvidia-ctk").unlink()
    with pytest.raises(StepFailed) as caught:
        converge(served, RESOURCE, ARGS)
    assert caught.value.what.startswith("no_generator: ")
    assert "cdi_command of container_toolkit" in str(caught.value.remedy)
    served.write(PATH, text())
    assert differences(served, RESOURCE, ARGS) == []


def test_a_generator_of_the_sites_own_writes_it(served: GpuHost) -> None:
    (served.folder / "usr/bin/nvidia-ctk").unlink()
    served.write("/opt/site/cdi", "", 0o755)
    converge(served, RESOURCE, {**ARGS, "command": ["/opt/site/cdi", "--all"]})
    assert served.argvs() == ["/opt/site/cdi --all --output=/etc/cdi/.fleet-new/nvidia.yaml"]
    assert served.text(PATH) == text()


@pytest.mark.parametrize("names", ["index", "uuid"])
def test_one_that_fits_is_left_alone(served: GpuHost, names: str) -> None:
    served.write(PATH, text(names=names))
    assert differences(served, RESOURCE, ARGS) == []
    assert served.commands == []


def test_a_gpu_given_to_a_virtual_machine_is_not_missed(served: GpuHost) -> None:
    served.gpus[1].update(driver="vfio-pci", uuid=None, minor=None)
    served.write(PATH, text(numbers=(0,), names="uuid"))
    assert differences(served, RESOURCE, ARGS) == []


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (text(OLD), f"for another driver: {OLD} instead of {NEW}"),
        (text(numbers=(0,)), "for another GPUs"),
        ("nothing of use\n", "no specification of NVIDIA devices"),
        ("", "wrote nothing"),
    ],
)
def test_a_wrong_one_never_takes_the_place_of_what_is_there(served: GpuHost, made: str, words: str) -> None:
    served.write(PATH, text(OLD))
    served.answer = lambda argv, stdin: generate(served, argv, made)
    with pytest.raises(StepFailed, match=words):
        converge(served, RESOURCE, ARGS)
    assert served.text(PATH) == text(OLD)
    assert [path.name for path in (served.folder / "etc/cdi").iterdir()] == ["nvidia.yaml"]


def test_a_generator_that_fails_leaves_nothing_behind(served: GpuHost) -> None:
    served.answer = lambda argv, stdin: Result(1, "", "failed to initialize NVML: Driver Not Loaded\n")
    with pytest.raises(StepFailed, match="Driver Not Loaded"):
        converge(served, RESOURCE, ARGS)
    assert list((served.folder / "etc/cdi").iterdir()) == []


def test_without_a_version_the_loaded_driver_decides(served: GpuHost) -> None:
    served.write(PATH, text(OLD))
    assert differences(served, RESOURCE, {**ARGS, "driver_version": None})[0]["after"] == NEW


@pytest.mark.parametrize(
    ("pinned", "differs", "provided", "wanted"),
    [
        (NEW, "driver", Provides(modules=["nvidia"]), None),
        (NEW, "GPUs", Provides(modules=["nvidia"]), KNOWN_AFTER_APPLY),
        (None, "driver", Provides(modules=["nvidia"]), KNOWN_AFTER_APPLY),
        (NEW, None, Provides(packages=["nvidia-open"]), KNOWN_AFTER_APPLY),
        (NEW, None, Provides(files=["/x"]), None),
    ],
)
def test_a_driver_to_come_decides(pinned: Any, differs: Any, provided: Provides, wanted: Any) -> None:
    found = [{"path": differs, "before": "a", "after": "b"}] if differs else []
    assert RESOURCE.outlook({**ARGS, "driver_version": pinned}, found, provided) == wanted
