"""The container toolkit: what is installed, what is left of its predecessors, which CDI devices there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.agent import facts
from fleet.agent.facts import cdi, container_toolkit

from .test_facts_document import check

BY_TOOLKIT = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    hookName: createContainer
    name: not-a-device
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      name: not-a-device-either
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-0a1b2c3d-0000-4000-8000-000000000001
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: all
kind: nvidia.com/gpu
"""
BY_HAND = """\
cdiVersion: "0.5.0"
kind: "nvidia.com/gpu"
devices:
    - name: '1'
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia1
    - name: all
"""


def packages(host: Any, **versions: str) -> None:
    host.write(
        "/var/lib/dpkg/status",
        "\n".join(
            f"Package: {name.replace('_', '-')}\nStatus: install ok installed\nArchitecture: amd64\n"
            f"Version: {version}\n"
            for name, version in versions.items()
        ),
    )


def collect(host: Any) -> dict[str, Any]:
    document = facts.collect(host, ["container_toolkit"])
    check(document)
    assert document["errors"] == []
    part: dict[str, Any] = document["container_toolkit"]
    return part


def test_a_host_without_the_toolkit(host: Any) -> None:
    assert collect(host) == {
        "version": None,
        "packages": {},
        "nvidia_docker2": None,
        "runtime_hook": None,
        "runtime": None,
        "mode": None,
        "legacy_sources": [],
        "cdi": {"specifications": [], "refresh_unit": False},
    }


def test_a_host_with_the_toolkit(host: Any) -> None:
    packages(
        host, nvidia_container_toolkit="1.18.2-1", nvidia_docker2="2.14.0-1", libnvidia_container1="1.18.2-1"
    )
    for name in ("nvidia-container-runtime", "nvidia-container-runtime-hook"):
        host.write(f"/usr/bin/{name}", "").chmod(0o755)
    host.write(
        "/etc/nvidia-container-runtime/config.toml",
        '#mode = "x"\n[nvidia-container-cli]\nmode = "y"\n[nvidia-container-runtime]\nmode = "cdi"\n'
        '[nvidia-container-runtime.modes.csv]\nmode = "z"\n',
    )
    host.write("/etc/cdi/nvidia.yaml", BY_TOOLKIT)
    host.write("/lib/systemd/system/nvidia-cdi-refresh.service", "")
    part = collect(host)
    assert part["version"] == "1.18.2"
    assert part["packages"] == {
        "libnvidia-container1": "1.18.2-1",
        "nvidia-container-toolkit": "1.18.2-1",
        "nvidia-docker2": "2.14.0-1",
    }
    assert part["nvidia_docker2"] == "2.14.0-1"
    assert part["runtime"] == "/usr/bin/nvidia-container-runtime"
    assert part["runtime_hook"] == "/usr/bin/nvidia-container-runtime-hook"
    assert part["mode"] == "cdi"
    assert part["cdi"] == {
        "specifications": [
            {
                "path": "/etc/cdi/nvidia.yaml",
                "kind": "nvidia.com/gpu",
                "devices": ["0", "GPU-0a1b2c3d-0000-4000-8000-000000000001", "all"],
                "driver_version": "580.159.03",
            }
        ],
        "refresh_unit": True,
    }


def test_a_masked_unit_refreshes_nothing(host: Any) -> None:
    host.write("/usr/lib/systemd/system/nvidia-cdi-refresh.service", "")
    assert container_toolkit.refresh_unit(host)
    host.link("/etc/systemd/system/nvidia-cdi-refresh.service", "/dev/null")
    assert not container_toolkit.refresh_unit(host)


class TestSpecifications:
    def test_written_by_other_hands(self) -> None:
        assert cdi.parse(BY_HAND) == {
            "kind": "nvidia.com/gpu",
            "devices": ["1", "all"],
            "driver_version": None,
        }

    def test_as_json(self) -> None:
        text = json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]})
        assert cdi.parse(text)["devices"] == ["0", "all"]

    def test_one_folder_under_two_names_counts_once(self, host: Any) -> None:
        host.write("/run/cdi/nvidia.yaml", BY_HAND)
        host.link("/var/run", "/run")
        assert [one["path"] for one in collect(host)["cdi"]["specifications"]] == ["/var/run/cdi/nvidia.yaml"]

    def test_those_of_others_and_broken_ones_are_left_out(self, host: Any) -> None:
        host.write("/etc/cdi/other.yaml", BY_HAND.replace("nvidia.com/gpu", "vendor.com/nic"))
        host.write("/etc/cdi/broken.json", "{")
        host.write("/etc/cdi/notes.txt", BY_HAND)
        assert collect(host)["cdi"]["specifications"] == []


@pytest.mark.parametrize(
    ("name", "text", "legacy"),
    [
        (
            "nvidia-docker.list",
            "deb https://nvidia.github.io/nvidia-docker/ubuntu18.04/$(ARCH) /\n",
            True,
        ),
        (
            "toolkit.list",
            "deb [signed-by=/usr/share/n.gpg] https://nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64 /",
            True,
        ),
        ("toolkit.list", "deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n", True),
        (
            "toolkit.list",
            "deb [signed-by=/usr/share/keyrings/n.gpg] https://mirror.example/libnvidia-container/stable/deb/amd64 /\n",
            False,
        ),
        (
            "toolkit.sources",
            "Types: deb\nURIs: http://mirror.example/libnvidia-container/stable/deb/amd64\nSuites: /\nTrusted: yes\n",
            False,
        ),
        ("toolkit.list", "# deb https://nvidia.github.io/nvidia-docker/ubuntu18.04/amd64 /\n", False),
        ("toolkit.list", "# Unsupported distribution! nvidia-docker\n", False),
    ],
)
def test_sources_that_should_be_replaced(host: Any, name: str, text: str, legacy: bool) -> None:
    path = f"/etc/apt/sources.list.d/{name}"
    host.write(path, text)
    assert collect(host)["legacy_sources"] == ([path] if legacy else [])


def test_sources_of_enterprise_linux(host: Any) -> None:
    host.write(
        "/etc/yum.repos.d/nvidia-docker.repo",
        "[a]\nbaseurl=https://nvidia.github.io/libnvidia-container/stable/centos8/$basearch\ngpgcheck=0\n",
    )
    host.write(
        "/etc/yum.repos.d/nvidia-container-toolkit.repo",
        "[a]\nbaseurl=https://nvidia.github.io/libnvidia-container/stable/rpm/$basearch\ngpgcheck=0\n",
    )
    assert collect(host)["legacy_sources"] == ["/etc/yum.repos.d/nvidia-docker.repo"]
