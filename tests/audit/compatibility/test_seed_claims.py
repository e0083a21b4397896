"""Fourteen claims that circulate in articles on drivers, CUDA and images, and what fleet says of each.

Each test quotes its claim. What the catalogue holds of them is in tests/catalogue/test_claims.py; here it is what a
person is told: verdicts, the sentences of findings, proposals of tags.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from fleet.audit.findings import Severity
from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image, NoSuchTag
from fleet.catalogue.versions import release
from fleet.cli.main import main
from tests.audit.compatibility.asking import Answer, ask
from tests.truth import rows

#: With a driver that is supported and patched, so that nothing but the claim is spoken of.
NOW = "580.178.04"


def tag(torch: str, cuda: str, flavour: str = "runtime") -> str:
    return f"pytorch/pytorch:{torch}-cuda{cuda}-cudnn9-{flavour}"


def said(gpu: str | list[str], driver: str, image: str | None, **more: Any) -> Answer:
    return ask({"gpu": gpu, "driver": driver, "image": image, **more})


def shown(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What ``fleet catalogue show`` prints, with single spaces."""
    assert main(["catalogue", "show", kind, name]) == 0
    return " ".join(capsys.readouterr().out.split())


def about_the_driver(answer: Answer) -> set[str]:
    """What is said of floors, without age and weaknesses of the branch."""
    aged = {"audit.driver.end_of_life", "audit.driver.security"}
    return {rule.removeprefix("audit.") for rule in answer.rules if rule not in aged}


def test_claim_1_cuda_11_8_needs_450_80_02() -> None:
    """That is the floor of minor-version compatibility; native is 520.61.05, and 450 knows neither Ada nor Hopper."""
    image = tag("2.7.0", "11.8")
    old = said("T4", "450.80.02", image)
    assert old.status == "runs_with_warnings"
    minor = old.finding("driver.minor_version")
    assert "450.80.02" in minor.what
    assert "520.61.05" in f"{minor.what} {minor.limit}"
    assert about_the_driver(said("T4", "520.61.05", image)) == set()
    for gpu, first in (("RTX 4090", "520.56.06"), ("H100 PCIe", "520.56.06"), ("L40S", "535.104.05")):
        floor = said(gpu, "450.80.02", image)
        assert floor.status == "does_not_run"
        assert first in f"{floor.finding('driver.floor_gpu').what} {floor.finding('driver.floor_gpu').limit}"
        assert "driver.floor_gpu" not in about_the_driver(said(gpu, first, image))
    assert "2023-07" in f"{old.finding('driver.end_of_life').what} {old.finding('driver.end_of_life').limit}"


def test_claim_2_cuda_12_1_needs_530_30_01() -> None:
    """530.30.02 is native; below it, from 525.60.13 on, it runs by minor-version compatibility."""
    image = "pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime"
    assert about_the_driver(said("T4", "530.30.02", image)) == set()
    claimed = said("T4", "530.30.01", image)
    assert about_the_driver(claimed) == {"driver.minor_version"}
    minor = claimed.finding("driver.minor_version")
    assert "530.30.02" in f"{minor.what} {minor.limit}"
    assert about_the_driver(said("T4", "525.60.13", image)) == {"driver.minor_version"}
    below = said("T4", "525.60.11", image)
    assert below.status == "does_not_run"
    assert (
        "525.60.13" in f"{below.finding('driver.floor_cuda').what} {below.finding('driver.floor_cuda').limit}"
    )


def test_claim_3_525_is_enough_for_cuda_12_and_h100() -> None:
    """The exact floor is 525.60.13, and it is not enough for GPUs that came later; the branch ended in 2023."""
    image = tag("2.6.0", "12.4")
    h100 = said("H100 PCIe", "525.60.13", image)
    assert about_the_driver(h100) == {"driver.minor_version"}
    assert {"audit.driver.end_of_life", "audit.driver.security"} <= set(h100.rules)
    for gpu in ("NVIDIA H100 80GB HBM3", "L40S", "H200", "H100 NVL"):
        assert "driver.floor_gpu" in about_the_driver(said(gpu, "525.60.13", image))
    assert "driver.floor_gpu" in about_the_driver(said("B200", "525.147.05", tag("2.7.0", "12.8")))


@pytest.mark.parametrize(
    ("cuda", "oldest", "maxwell", "blackwell"),
    [
        ("11.8", "3.7", "runs", "does_not_run"),
        ("12.6", "5.0", "runs", "does_not_run"),
        ("12.8", "7.5", "does_not_run", "runs"),
    ],
)  # fmt: skip
def test_claim_4_pytorch_2_7_supports_compute_capability_5_0(
    cuda: str, oldest: str, maxwell: str, blackwell: str
) -> None:
    """It depends on the variant: those with Maxwell are without Blackwell, and the other way round."""
    image = tag("2.7.0", cuda)
    held = load().images.look_up(image)
    assert isinstance(held, Image)
    assert held.arch_list is not None
    assert held.arch_list[0] == oldest
    assert said("Tesla M60", NOW, image).status == maxwell
    assert said("RTX 5090", NOW, image).status == said("B200", NOW, image).status == blackwell


def test_claim_4_volta_came_back_for_a_while() -> None:
    verdicts = {
        torch: said("Tesla V100-SXM2-16GB", NOW, tag(torch, "12.8")).status
        for torch in ("2.7.0", "2.8.0", "2.9.0", "2.10.0", "2.11.0")
    }
    assert verdicts == {
        "2.7.0": "does_not_run", "2.8.0": "runs", "2.9.0": "runs", "2.10.0": "runs", "2.11.0": "does_not_run",
    }  # fmt: skip


def test_claim_5_the_pinned_image_2_7_0_cuda11_8_cudnn8() -> None:
    """It cannot exist: the right tag is proposed, and the proposal is an image that is held."""
    claimed = "pytorch/pytorch:2.7.0-cuda11.8-cudnn8-runtime"
    found = load().images.look_up(claimed)
    assert isinstance(found, NoSuchTag)
    assert found.proposal == "pytorch/pytorch:2.7.0-cuda11.8-cudnn9-runtime"
    assert isinstance(load().images.look_up(found.proposal), Image)
    answer = said("T4", NOW, claimed)
    assert answer.rules == {"audit.image.no_such_tag": "error"}
    assert found.proposal in answer.finding("image.no_such_tag").remedy


def test_claim_6_compute_capabilities(capsys: pytest.CaptureFixture[str]) -> None:
    """True: all five."""
    claimed = {
        "rtx3090": "8.6", "rtx4090": "8.9", "t4": "7.5", "a100-sxm4-80gb": "8.0", "h100-sxm5-80gb": "9.0",
    }  # fmt: skip
    for gpu, capability in claimed.items():
        assert f"compute capability {capability}" in shown("gpu", gpu, capsys)
    old = ask(
        {
            "gpu": "rtx4090",
            "driver": NOW,
            "image": {"reference": "a/b:1", "cuda": "12.4", "arch_list": ["9.0"]},
        }
    )
    assert "8.9" in old.finding("image.arch").what


def test_claim_7_an_a100_has_108_sms_and_an_h100_132(capsys: pytest.CaptureFixture[str]) -> None:
    """True of every A100, and of an H100 as SXM or NVL; on PCIe it has 114."""
    claimed = {
        "a100-sxm4-40gb": 108, "a100-pcie-80gb": 108, "h100-sxm5-80gb": 132, "h100-nvl": 132, "h100-pcie": 114,
    }  # fmt: skip
    for gpu, count in claimed.items():
        assert f"SMs {count} " in shown("gpu", gpu, capsys)


def test_claim_8_nvlink_is_600_on_a100_and_900_on_h100(capsys: pytest.CaptureFixture[str]) -> None:
    """Of SXM alone: a PCIe card has it only where a bridge joins two."""
    for gpu, rate in (("a100-sxm4-80gb", "600"), ("h100-sxm5-80gb", "900")):
        words = shown("gpu", gpu, capsys)
        assert f"{rate} GB/s both ways together" in words
        assert "bridge" not in words
    for gpu in ("a100-pcie-80gb", "h100-pcie", "h100-nvl"):
        assert "600 GB/s both ways together, only with a bridge" in shown("gpu", gpu, capsys)


def test_claim_9_memory_bandwidth_is_2_tb_s_on_a100_and_3_35_on_h100(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By form: 1.555 to 2.039 TB/s, and 2.0 to 3.9."""
    claimed = {
        "a100-sxm4-80gb": "2039", "a100-pcie-80gb": "1935", "a100-sxm4-40gb": "1555", "h100-sxm5-80gb": "3350",
        "h100-pcie": "2039", "h100-nvl": "3938",
    }  # fmt: skip
    for gpu, bandwidth in claimed.items():
        assert f"memory bandwidth {bandwidth} GB/s" in shown("gpu", gpu, capsys)


def test_claim_10_torch_compile_gives_25_to_40_percent_on_an_a100() -> None:
    """Plausible and no rule: nothing that the audit says of any row promises a speed."""
    promises = ("torch.compile", "speed-up", "speedup", "times faster", " % faster")
    for row in rows():
        for finding in ask(row.asked).findings:
            words = f"{finding.what} {finding.remedy}".lower()
            assert not [one for one in promises if one in words], (row.id, words)


def test_claim_11_install_with_apt_key_and_nvidia_docker2() -> None:
    """Obsolete: a host set up so is told what took its place."""
    host = {"nvidia_docker2": "2.14.0", "legacy_sources": ["/etc/apt/sources.list.d/nvidia-docker.list"]}
    answer = ask({"gpu": "T4", "host": host, "image": tag("2.7.0", "12.8")})
    assert answer.rules == {"audit.toolkit.legacy": "warning"}
    words = " ".join(
        f"{one.what} {one.remedy}" for one in answer.findings if one.id == "audit.toolkit.legacy"
    )
    assert "nvidia-docker2" in words
    assert "nvidia-container-toolkit" in words


def test_claim_12_do_not_mix_t4_and_a100_in_one_job() -> None:
    """Sound advice and no impossibility: a warning, with an image that has code for both."""
    job = ask({"gpu": "NVIDIA A100-PCIE-40GB", "driver": NOW, "image": tag("2.7.0", "12.8"), "job": ["T4"]})
    assert job.status == "runs_with_warnings"
    assert job.rules == {"audit.mixed.job": "warning"}
    assert job.finding("mixed.job").severity is Severity.WARNING
    host = said(["T4", "NVIDIA A100-PCIE-40GB"], NOW, tag("2.7.0", "12.8"))
    assert (host.status, host.rules) == ("runs_with_warnings", {"audit.mixed.host": "warning"})


def test_claim_13_ubuntu_22_04_docker_24_and_the_toolkit() -> None:
    """It runs, and is flagged: an engine that has ended without the fixes of 2024 and 2026, and cannot read CDI 0.7."""
    answer = said(
        "T4", NOW, tag("2.7.0", "12.8"), os="ubuntu-22.04", docker="24.0.9", toolkit="1.20.0"
    )  # fmt: skip
    assert answer.status == "runs_with_warnings"
    flagged = {"audit.docker.end_of_life", "audit.docker.security", "audit.toolkit.engine"}
    assert set(answer.rules) == flagged
    assert (
        "2024-06-08"
        in f"{answer.finding('docker.end_of_life').what} {answer.finding('docker.end_of_life').limit}"
    )
    weak = {one.id for one in load().advisories.lacking("engine", release("24.0.9"))}
    assert {"CVE-2024-41110", "CVE-2026-34040", "CVE-2026-41567"} <= weak
    named = set(re.findall(r"CVE-\d+-\d+", answer.finding("docker.security").what))
    assert named
    assert named <= weak
    assert said("T4", NOW, tag("2.7.0", "12.8"), os="ubuntu-22.04").status == "runs"


def test_claim_14_one_number_per_image_is_the_driver_check() -> None:
    """With one image and drivers above its number, ten machines have findings of their own."""
    image, devel = tag("2.9.1", "13.0"), tag("2.9.1", "13.0", "devel")
    asked: dict[str, dict[str, Any]] = {
        "driver.floor_cuda": {"gpu": "T4", "driver": "570.211.01", "image": image},
        "driver.forward_compatibility": {"gpu": "H100 PCIe", "driver": "570.211.01", "image": devel},
        "driver.minor_version": {"gpu": "T4", "driver": "580.178.04", "image": tag("2.14.1", "13.2")},
        "driver.floor_gpu": {"gpu": "NVIDIA B300 SXM6 AC", "driver": "580.65.06", "image": image},
        "driver.ceiling": {"gpu": "Tesla V100-PCIE-16GB", "driver": "595.91.07", "image": tag("2.9.1", "12.6")},
        "driver.modules_required_open": {"gpu": "B200", "driver": NOW, "modules": "proprietary", "image": image},
        "driver.modules_impossible_open": {"gpu": "GTX 1050", "driver": NOW, "modules": "open", "image": image},
        "image.arch": {"gpu": "GTX 1080 Ti", "driver": NOW, "image": image},
        "fabric_manager.version": {
            "gpu": "NVIDIA H100 80GB HBM3", "image": image,
            "host": {"nvswitches": ["22a3"], "fabric_manager": "580.159.03"},
        },
        "cdi.requirements": {
            "gpu": "RTX 4090", "driver": "545.29.06", "docker": "29.7.2", "toolkit": "1.20.0",
            "image": tag("2.7.0", "12.8", "devel"),
        },
    }  # fmt: skip
    for rule, question in asked.items():
        assert f"audit.{rule}" in ask(question).rules, rule
