"""The hardware file, and the PCI tree and the view made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.core.errors import InputError
from fleet.lab.simulation.hardware import hardware, load, models, validate
from fleet.lab.simulation.pci import pci_files, slot_files
from fleet.lab.simulation.view import benchmarks_view, hardware_view


@pytest.mark.parametrize("model", sorted(models()))
@pytest.mark.parametrize("count", [0, 1, 8])
def test_every_model_makes_a_valid_machine(model: str, count: int) -> None:
    document = hardware(model, count)
    validate(document)
    assert len(document["gpus"]) == count


def test_the_same_seed_makes_the_same_gpus_and_another_others() -> None:
    assert hardware("t4", 2, seed="a") == hardware("t4", 2, seed="a")
    uuids = {gpu["uuid"] for seed in "ab" for gpu in hardware("t4", 2, seed=seed)["gpus"]}
    assert len(uuids) == 4


def test_eight_h100_hang_on_switches_and_two_do_not() -> None:
    assert len(hardware("h100-sxm", 8)["nvswitches"]) == 4
    assert hardware("h100-sxm", 2)["nvswitches"] == []


def test_an_unknown_model_names_those_there_are() -> None:
    with pytest.raises(InputError, match="rtx-4090"):
        hardware("h1000")


def test_a_wrong_file_is_told_with_the_place(tmp_path: Path) -> None:
    document = hardware("t4", 2)
    document["gpus"][1]["device"] = "1EB8"
    document["gpus"][1]["pci_address"] = document["gpus"][0]["pci_address"]
    path = tmp_path / "hardware.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        load(path)
    assert "gpus[1].device" in str(caught.value)
    assert "two GPUs have the PCI address 0000:01:00.0" in str(caught.value)


def test_the_pci_tree_has_the_gpus_the_switches_and_others() -> None:
    files = pci_files(hardware("h100-sxm", 8))
    nvidia = [path for path, content in files.items() if path.endswith("/vendor") and content == "0x10de\n"]
    assert len(nvidia) == 12
    assert files["0000:1b:00.0/device"] == "0x2330\n"
    assert files["0000:1b:00.0/class"] == "0x030200\n"
    assert files["0000:1b:00.0/max_link_speed"] == "32.0 GT/s PCIe\n"
    assert files["0000:07:00.0/device"] == "0x22a3\n"
    assert any(content == "0x15b3\n" for content in files.values())


def test_each_gpu_sits_in_a_slot() -> None:
    slots = slot_files(hardware("h100-sxm", 8))
    assert (len(slots), slots["1/address"], slots["8/address"]) == (8, "0000:1b:00\n", "0000:df:00\n")


def test_every_model_has_rates_and_the_view_for_benchmarks_has_them_all() -> None:
    for name, model in models().items():
        lines = benchmarks_view(hardware(name, 2)).splitlines()
        assert len(lines) == 2 * len(model["benchmarks"]) > 20
        assert f"gpu.1.rate.matrix_product.fp32={model['benchmarks']['matrix_product.fp32']}" in lines


def test_a_consumer_card_rests_at_a_slower_link() -> None:
    files = pci_files(hardware("rtx-4090"))
    assert files["0000:01:00.0/current_link_speed"] == "2.5 GT/s PCIe\n"
    assert files["0000:01:00.0/max_link_speed"] == "16.0 GT/s PCIe\n"


def test_the_view_leaves_out_what_the_gpu_lacks() -> None:
    lines = hardware_view(hardware("rtx-4090")).splitlines()
    assert "gpu.0.name=NVIDIA GeForce RTX 4090" in lines
    assert not any(line.startswith(("gpu.0.ecc", "gpu.0.serial", "gpu.0.mig")) for line in lines)


def test_a_host_with_two_models_has_them_in_order_and_nouveau_takes_the_cards() -> None:
    document = hardware(["t4", "rtx-4090"], 2, seed="mixed")
    assert [gpu["model"] for gpu in document["gpus"]] == ["t4", "t4", "rtx-4090", "rtx-4090"]
    assert len({gpu["pci_address"] for gpu in document["gpus"]}) == 4
    assert len({gpu["uuid"] for gpu in document["gpus"]}) == 4
    assert document["nouveau"]
    assert not hardware("t4")["nouveau"]
    with pytest.raises(InputError, match="0 to 16 GPUs, not 18"):
        hardware(["t4", "rtx-4090"], 9)
