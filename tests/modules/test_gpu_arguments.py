"""What modules for GPU hosts refuse while a playbook is read, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.modules import load
from fleet.modules.base import ArgumentProblem, Context
from fleet.modules.shared.engine_settings import matching, upstream_version
from fleet.modules.shared.gpu_hosts import gpu_request
from tests.facts import healthy_gpu_facts

DIGEST = "sha256:" + "a" * 64


def problems(module: str, **args: Any) -> list[str]:
    return [problem.message for problem in load(module).check(args, False)]


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("all", "all"),
        (2, 2),
        ("2", 2),
        ("device=0,1", ["0", "1"]),
        ('device="0,1"', ["0", "1"]),
        ([0, "GPU-00000000-0000-4000-8000-000000000001"], ["0", "GPU-00000000-0000-4000-8000-000000000001"]),
        ("MIG-5f4e3d2c-0000-4000-8000-000000000001", ["MIG-5f4e3d2c-0000-4000-8000-000000000001"]),
        (None, None),
    ],
)
def test_gpus_may_be_written_in_these_forms(written: Any, taken: Any) -> None:
    assert gpu_request(written) == taken


@pytest.mark.parametrize("written", [0, "0", "none", True, [], {"count": 1}, [True], "device=", "gpu0"])
def test_and_in_no_others(written: Any) -> None:
    with pytest.raises(ArgumentProblem, match="gpus"):
        gpu_request(written)


def test_a_container_with_odd_ports_sizes_and_ipc() -> None:
    wrong = problems("container", name="x", image="y", ports=["8888"], memory="lots", shm_size=8, ipc="all")
    assert [message.split(":")[0].split(" ")[0] for message in wrong] == ["ports", "memory", "ipc"]
    fine = {
        "ports": ["8888:8888", "0.0.0.0:53:53/udp", "[::1]:80:80"],
        "memory": "64GiB",
        "ipc": "container:a",
    }
    assert problems("container", name="x", image="y", **fine) == []
    assert (
        problems("container", name="x", image="y", memory="{{ m }}", gpus="{{ g }}", ports=["{{ p }}"]) == []
    )


def test_the_check_wants_the_digest_apart_and_whole() -> None:
    assert problems("container_check", image=f"x@{DIGEST}") != []
    assert problems("container_check", image="x:1", digest="sha256:12") != []
    assert problems("container_check", image="x:1", digest=DIGEST, gpus="none") != []
    assert problems("container_check", image="x:1", digest=DIGEST) == []


def test_unknown_keys_of_the_toolkits_repository_and_engine() -> None:
    assert "repository has no url" in problems("container_toolkit", repository={"url": "x"})[0]
    assert "engine has no release" in problems("container_toolkit", engine={"release": "x"})[0]


def test_a_repository_must_be_within_reach() -> None:
    module = load("container_toolkit")
    args = {name: argument.default for name, argument in module.arguments.items()}
    facts = healthy_gpu_facts({"packages.installed": {}})
    context = Context(prefix="1.container_toolkit", task="t", public_internet=False)
    with pytest.raises(ArgumentProblem, match="name the site's copy"):
        module.steps({**args, "repository": {"key": "x"}}, facts, {}, context)
    elsewhere = healthy_gpu_facts({"gpus": []})
    assert module.steps({**args, "repository": {"key": "x"}}, elsewhere, {}, context) == []


def test_versions_as_upstream_writes_them() -> None:
    offered = ["5:27.5.1-1~debian.12~bookworm", "26.1.5+dfsg1-9+b9", "1.19.1-1", "20.10.24+dfsg1-1+deb12u1"]
    assert [matching(pin, offered) for pin in ("27.5.1", "26.1.5", "1.19.1", "20.10.*", "1.19")] == [
        *offered,
        None,
    ]
    texts = [*offered, "27.*", "latest", None]
    assert [str(upstream_version(text)) for text in texts] == [
        "27.5.1", "26.1.5", "1.19.1", "20.10.24", "27", "None", "None"
    ]  # fmt: skip
