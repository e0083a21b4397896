"""What the catalogue says of claims that circulate in articles on driver and GPU compatibility."""

from __future__ import annotations

from datetime import date

from fleet.catalogue.catalogue import load
from fleet.catalogue.entries import Files
from fleet.catalogue.versions import driver_version, release

CATALOGUE = load()


def support(gpu: str, driver: str) -> str:
    return CATALOGUE.gpus.find(gpu).support(driver_version(driver))


def test_cuda_11_8_runs_from_450_80_02_only_by_minor_version_compatibility() -> None:
    toolkit = CATALOGUE.cuda.find("11.8.0")
    assert toolkit.fit(driver_version("450.80.02")) == "minor_version"
    assert str(toolkit.native_driver) == "520.61.05"


def test_a_driver_enough_for_the_toolkit_may_not_know_the_gpu() -> None:
    assert support("rtx4090", "450.80.02") == "too_old"
    assert support("rtx4090", "520.56.06") == "supported"
    assert support("h100-pcie", "520.56.06") == "supported"
    assert support("l40", "525.60.11") == "supported"
    assert support("l40s", "525.60.13") == "not_listed"
    assert support("l40s", "535.104.05") == "supported"


def test_branch_450_has_ended() -> None:
    branch = CATALOGUE.drivers.branch_of("450.80.02")
    assert branch is not None
    assert CATALOGUE.drivers.support(branch, date(2023, 8, 1)) == "ended"


def test_cuda_12_1_needs_530_30_02_and_no_530_30_01_exists() -> None:
    for update in ("12.1.0", "12.1.1"):
        assert str(CATALOGUE.cuda.find(update).native_driver) == "530.30.02"
        assert str(CATALOGUE.cuda.find(update).minor_version_floor) == "525.60.13"
    branch = CATALOGUE.drivers.branch_of("530.30.01")
    assert branch is not None
    assert driver_version("530.30.01") not in branch.versions
    assert driver_version("530.30.02") in branch.versions


def test_525_is_the_floor_of_cuda_12_but_not_of_every_gpu() -> None:
    assert str(CATALOGUE.cuda.find("12.4.1").minor_version_floor) == "525.60.13"
    assert support("h200-sxm", "525.147.05") == "not_listed"
    assert support("b200", "525.147.05") == "too_old"
    mig = CATALOGUE.gpus.find("h100-sxm5-80gb").mig
    assert mig is not None
    assert str(mig.min_driver) == "525.85.12"
    branch = CATALOGUE.drivers.branch_of("525.60.13")
    assert branch is not None
    assert CATALOGUE.drivers.support(branch, date(2024, 1, 1)) == "ended"


def test_compute_capabilities() -> None:
    wanted = {
        "rtx3090": "8.6",
        "rtx4090": "8.9",
        "t4": "7.5",
        "a100-sxm4-80gb": "8.0",
        "h100-sxm5-80gb": "9.0",
    }
    assert {name: CATALOGUE.gpus.find(name).compute_capability for name in wanted} == wanted


def test_an_h100_has_132_sms_but_on_pcie_114() -> None:
    counts = {gpu.id: gpu.sm_count for gpu in CATALOGUE.gpus.all if gpu.id.startswith(("a100", "h100"))}
    assert {count for name, count in counts.items() if name.startswith("a100")} == {108}
    assert counts["h100-sxm5-80gb"] == counts["h100-nvl"] == 132
    assert counts["h100-pcie"] == 114


def test_nvlink_rates_hold_for_sxm_and_need_a_bridge_on_pcie() -> None:
    links = {
        name: CATALOGUE.gpus.find(name).nvlink
        for name in ("a100-sxm4-80gb", "h100-sxm5-80gb", "a100-pcie-80gb")
    }
    sxm_a100, sxm_h100, pcie_a100 = links.values()
    assert sxm_a100 is not None
    assert sxm_h100 is not None
    assert pcie_a100 is not None
    assert (sxm_a100.gb_per_s, sxm_a100.bridge) == (600, False)
    assert (sxm_h100.gb_per_s, sxm_h100.bridge) == (900, False)
    assert pcie_a100.bridge


def test_memory_bandwidth_depends_on_the_form() -> None:
    wanted = {
        "a100-sxm4-80gb": 2039,
        "a100-pcie-80gb": 1935,
        "a100-sxm4-40gb": 1555,
        "h100-sxm5-80gb": 3350,
        "h100-pcie": 2039,
        "h100-nvl": 3938,
    }
    assert {name: CATALOGUE.gpus.find(name).memory_bandwidth_gb_per_s for name in wanted} == wanted


def test_the_toolkit_is_installed_by_its_own_packages_and_not_nvidia_docker2() -> None:
    (repository,) = Files().section("container_toolkit", "repositories")
    assert "nvidia-container-toolkit" in repository["packages"]
    assert "nvidia-docker2" not in repository["packages"]
    assert repository["keyring"].startswith("/usr/share/keyrings/")


def test_a_t4_beside_an_a100_is_slower_and_has_no_bf16() -> None:
    t4, a100 = CATALOGUE.gpus.find("t4"), CATALOGUE.gpus.find("a100-sxm4-80gb")
    assert "bf16_tensor" not in t4.peaks
    assert "bf16_tensor" in a100.peaks
    assert a100.peaks["fp16_tensor"] > 4 * t4.peaks["fp16_tensor"]


def test_docker_24_has_ended_and_lacks_fixes_that_will_not_come() -> None:
    ends = {one.id: one.get("end_of_life") for one in Files().section("docker", "releases")}
    assert ends["24.0"] == "2024-06-08"
    lacking = {one.id for one in CATALOGUE.advisories.lacking("engine", release("24.0.9"))}
    assert {"CVE-2024-41110", "CVE-2026-34040", "CVE-2026-41567"} <= lacking


def test_one_number_per_image_is_not_enough() -> None:
    """580.65.06 runs CUDA 12.8 natively on a V100, 590 runs the image but has dropped the card."""
    image = CATALOGUE.cuda.find("12.8.1")
    for driver, card in (("580.65.06", "supported"), ("590.48.01", "dropped")):
        assert image.fit(driver_version(driver)) == "native"
        assert support("v100-sxm2", driver) == card
