"""``nvidia-smi -q`` and ``-q -x`` of the simulated hosts, by generation of the driver."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fleet.lab.simulation.hardware import hardware
from tests.lab.simulation.conftest import Machine


def xml(machine: Machine, gpu: int = 0) -> ElementTree.Element:
    """The element of one GPU."""
    root = ElementTree.fromstring(machine.smi("-q", "-x").stdout)
    return root.findall("gpu")[gpu]


def lines(machine: Machine) -> dict[str, str]:
    """The long text of the first GPU: value by "Section/Label"."""
    found: dict[str, str] = {}
    sections: list[str] = []
    text = machine.smi("-q", "-i", "0").stdout
    for line in text[text.index("\nGPU ") + 1 :].splitlines()[1:]:
        level = (len(line) - len(line.lstrip())) // 4
        label, separator, value = line.strip().partition(" : ")
        sections[level - 1 :] = [label.strip()]
        if separator:
            found["/".join(sections)] = value
    return found


@pytest.mark.parametrize(
    ("driver", "flavour", "document", "present", "absent"),
    [
        ("418.226.00", "proprietary", None,
         ["clocks_throttle_reasons/clocks_throttle_reason_sw_power_cap", "power_readings/enforced_power_limit"],
         ["product_architecture", "mig_mode", "remapped_rows", "fb_memory_usage/reserved", "fabric", "gpu_module_id"]),
        ("515.105.01", "proprietary", "v11",
         ["product_architecture", "mig_mode/current_mig", "power_readings/power_limit", "fb_memory_usage/reserved",
          "gpu_module_id", "clocks_throttle_reasons/clocks_throttle_reason_gpu_idle"],
         ["fabric", "gpu_power_readings", "board_part_number", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen"]),
        ("535.309.01", "open", "v12",
         ["clocks_event_reasons/clocks_event_reason_gpu_idle", "gpu_power_readings/current_power_limit",
          "gpu_power_readings/power_draw", "gpu_reset_status/reset_required", "fabric/state", "board_part_number"],
         ["clocks_throttle_reasons", "power_readings", "gpu_recovery_action", "fabric/health", "platformInfo"]),
        ("570.211.01", "open", "v12",
         ["gpu_recovery_action", "platformInfo/module_id", "fabric/health/bandwidth", "pci/pci_base_class"],
         ["gpu_module_id", "fabric/health/summary", "remapped_rows/remapped_row_corr_inactive", "pdi"]),
        ("580.159.03", "open", "v13",
         ["gpu_power_readings/instant_power_draw", "fabric/health/summary", "capabilities/egm"],
         ["gpu_power_readings/power_draw", "power_readings"]),
        ("610.57.04", "open", "v13", ["gpu_power_readings/average_power_draw"], ["gpu_module_id"]),
    ],
)  # fmt: skip
def test_each_generation_has_its_own_elements(
    machine: Machine,
    native_cache: Path,
    driver: str,
    flavour: str,
    document: str | None,
    present: list[str],
    absent: list[str],
) -> None:
    machine.install(hardware("t4", 2))
    machine.use(driver, native_cache, flavour)
    text = machine.smi("-q", "-x").stdout
    assert re.findall(r"nvsmi_device_(v\d+)\.dtd", text) == ([document] if document else [])
    gpu = xml(machine)
    assert [path for path in present if gpu.find(path) is None] == []
    assert [path for path in absent if gpu.find(path) is not None] == []


_SAMPLES = Path(__file__).parents[3] / ".." / "shared" / "samples"
_UNLIKE = ("supported_clocks", "mig_devices", "processes", "accounted_processes")


def elements(parent: ElementTree.Element, above: str = "") -> list[str]:
    """Paths of all elements in order, but for what lists as many things as there are."""
    found = []
    for child in parent:
        found.append(above + child.tag)
        if child.tag not in _UNLIKE:
            found += elements(child, f"{above}{child.tag}/")
    return found


@pytest.mark.parametrize(
    ("sample", "model"),
    [
        ("smi-qx_gtx-1660-ti.xml", "rtx-4090"),
        ("smi-qx_tesla-t4.xml", "t4"),
        ("smi-qx_rtx-3090_v12.xml", "rtx-4090"),
        ("smi-qx_h100.xml", "h100-sxm"),
        ("smi-qx_b200.xml", "b200-sxm"),
        ("smi-qx_h200x2_580.159.04.xml", "h200"),
        ("smi-qx_t4.xml", "t4"),
        ("smi-qx_rtx-3080_v13.xml", "rtx-4090"),
    ],
)
def test_the_elements_are_those_of_a_capture(
    machine: Machine, native_cache: Path, sample: str, model: str
) -> None:
    if not (_SAMPLES / sample).exists():
        pytest.skip("captures of real GPUs are not part of the repository")
    root = ElementTree.parse(_SAMPLES / sample).getroot()
    real = root.find("gpu")
    assert real is not None
    document = hardware(model, 8)
    for gpu in document["gpus"]:  # a card of today stands for one that this driver knew
        gpu["first_driver"] = "1"
    machine.install(document)
    machine.use(str(root.findtext("driver_version")), native_cache)
    machine.write("fabric.view", f"fabric.version={root.findtext('driver_version')}\n")
    assert elements(xml(machine)) == elements(real)


def test_the_lines_are_those_of_a_capture(machine: Machine, native_cache: Path) -> None:
    sample = _SAMPLES / "smi-q_h200x2_580.159.04.txt"
    if not sample.exists():
        pytest.skip("captures of real GPUs are not part of the repository")
    machine.install(hardware("h200", 8))
    machine.use("580.159.04", native_cache)
    machine.write("fabric.view", "fabric.version=580.159.04\n")
    labels = [
        [line.partition(" : ")[0].rstrip() for line in text[text.index("\nGPU 0") + 1 :].splitlines()[1:150]]
        for text in (sample.read_text(), machine.smi("-q").stdout)
    ]
    assert labels[1] == labels[0]


def test_volta_counts_errors_by_cache(machine: Machine, native_cache: Path) -> None:
    machine.install(hardware("v100-sxm2"))
    machine.use("535.309.01", native_cache, "proprietary")
    machine.fault("gpu.0.ecc_volatile_uncorrected=3", "gpu.0.ecc_volatile_sram_uncorrected=1")
    errors = xml(machine).find("ecc_errors/volatile/double_bit")
    assert errors is not None
    assert {element.tag: element.text for element in errors} == {
        "device_memory": "2", "register_file": "0", "l1_cache": "0", "l2_cache": "1", "texture_memory": "N/A",
        "texture_shm": "N/A", "cbu": "0", "total": "3",
    }  # fmt: skip
    assert lines(machine)["ECC Errors/Volatile/Double Bit/Device Memory"] == "2"


def test_610_says_the_driver_by_its_new_name_and_a_sentence_by_the_old(
    machine: Machine, native_cache: Path
) -> None:
    machine.use("610.57.04", native_cache)
    root = ElementTree.fromstring(machine.smi("-q", "-x").stdout)
    assert (root.findtext("kmd_version"), root.findtext("cuda_umd_version")) == ("610.57.04", "13.3")
    assert str(root.findtext("driver_version")).startswith("610.57.04 [Deprecated")
    head = machine.smi("-q").stdout.splitlines()
    assert f"{'KMD Version':54} : 610.57.04" in head
    assert any(line.startswith("Driver Version") and "Use KMD Version instead]" in line for line in head)
    assert machine.smi("--version").stdout.splitlines() == [
        "NVIDIA-SMI version  : 610.57.04",
        "NVML version        : 610.57",
        'DRIVER version      : Deprecated, see "KMD version" instead',
        'CUDA version        : Deprecated, see "CUDA UMD version" instead',
        "KMD version         : 610.57.04",
        "CUDA UMD version    : 13.3",
    ]


def test_the_xml_has_all_parts_of_a_board(machine: Machine) -> None:
    machine.write("fabric.view", "fabric.version=580.159.03\n")
    gpu = xml(machine)
    wanted = {
        "board_id": "0x1b00", "board_part_number": "692-2G520-0200-000", "gpu_part_number": "2330-885-A1",
        "inforom_version/ecc_object": "7.16", "platformInfo/module_id": "1", "gpu_recovery_action": "None",
        "gsp_firmware_version": "580.159.03", "gpu_virtualization_mode/virtualization_mode": "None",
        "pci/pci_bus": "1B", "pci/pci_device_id": "233010DE", "pci/pci_sub_system_id": "16C110DE",
        "pci/pci_bus_id": "00000000:1B:00.0", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen": "5",
        "pci/pci_gpu_link_info/link_widths/current_link_width": "16x", "ecc_mode/current_ecc": "Enabled",
        "ecc_errors/aggregate/sram_threshold_exceeded": "No", "retired_pages/pending_retirement": "N/A",
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": "2560 bank(s)",
        "temperature/gpu_temp_max_tlimit_threshold": "-8 C", "temperature/gpu_temp_tlimit": "58 C",
        "gpu_power_readings/default_power_limit": "700.00 W", "module_power_readings/instant_power_draw": "N/A",
        "clocks/sm_clock": "1980 MHz", "max_clocks/mem_clock": "2619 MHz", "fabric/state": "Completed",
        "fabric/status": "Success", "fabric/health/summary": "Healthy", "fabric/health/bandwidth": "Full",
        "fabric/health/route_unhealthy": "False", "fabric/health/incorrect_configuration": "None",
    }  # fmt: skip
    assert {path: gpu.findtext(path) for path in wanted} == wanted


def test_text_and_xml_say_the_same(machine: Machine) -> None:
    machine.install(hardware("t4", 2))
    text, gpu = lines(machine), xml(machine)
    for label, path in {
        "GPU UUID": "uuid",
        "Board Part Number": "board_part_number",
        "PCI/GPU Link Info/PCIe Generation/Max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
        "PCI/GPU Link Info/Link Width/Current": "pci/pci_gpu_link_info/link_widths/current_link_width",
        "Clocks Event Reasons/Idle": "clocks_event_reasons/clocks_event_reason_gpu_idle",
        "FB Memory Usage/Free": "fb_memory_usage/free",
        "ECC Errors/Volatile/DRAM Uncorrectable": "ecc_errors/volatile/dram_uncorrectable",
        "Retired Pages/Double Bit ECC": "retired_pages/double_bit_retirement/retired_count",
        "Retired Pages/Pending Page Blacklist": "retired_pages/pending_blacklist",
        "Remapped Rows": "remapped_rows",
        "Temperature/GPU Shutdown Temp": "temperature/gpu_temp_max_threshold",
        "GPU Power Readings/Instantaneous Power Draw": "gpu_power_readings/instant_power_draw",
        "Clocks/SM": "clocks/sm_clock",
        "Max Clocks/Memory": "max_clocks/mem_clock",
        "Fabric/State": "fabric/state",
    }.items():
        assert text[label] == gpu.findtext(path), label
    assert text["Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown"] == "Not Active"
    assert text["PCI/Device Id"] == f"0x{gpu.findtext('pci/pci_device_id')}"


def test_faults_show(machine: Machine) -> None:
    machine.write("fabric.view", "fabric.version=580.159.03\n")
    machine.fault(
        "gpu.0.pcie.width=8", "gpu.0.pcie.generation=1", "gpu.0.clocks_event_reasons=72", "gpu.0.recovery_action=4",
        "gpu.0.ecc_volatile_sram_uncorrected=2", "gpu.0.ecc_aggregate_uncorrected=6", "gpu.0.remap_failure=1",
        "gpu.0.fabric_route_unhealthy=1", "gpu.0.fabric_degraded_bandwidth=1", "gpu.0.temperature_celsius=91",
        "gpu.0.ecc_sram_threshold_exceeded=1",
    )  # fmt: skip
    gpu = xml(machine)
    reasons = gpu.find("clocks_event_reasons")
    assert reasons is not None
    assert {element.tag[20:] for element in reasons if element.text == "Active"} == {
        "hw_slowdown",
        "hw_thermal_slowdown",
    }
    wanted = {
        "pci/pci_gpu_link_info/link_widths/current_link_width": "8x", "gpu_recovery_action": "Drain and Reset",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "1", "temperature/gpu_temp": "91 C",
        "ecc_errors/volatile/sram_uncorrectable_parity": "2", "ecc_errors/aggregate/dram_uncorrectable": "6",
        "ecc_errors/aggregate/sram_threshold_exceeded": "Yes", "remapped_rows/remapped_row_failure": "Yes",
        "fabric/health/summary": "Unhealthy", "fabric/health/bandwidth": "Degraded",
        "fabric/health/route_unhealthy": "True",
    }  # fmt: skip
    assert {path: gpu.findtext(path) for path in wanted} == wanted
    assert xml(machine, 1).findtext("fabric/health/summary") == "Healthy"


def test_mig_devices_stand_in_both(machine: Machine) -> None:
    machine.install(hardware("h100-sxm", 1, mig=["3g.40gb", "1g.10gb"]))
    gpu = xml(machine)
    devices = gpu.findall("mig_devices/mig_device")
    assert [device.findtext("gpu_instance_id") for device in devices] == ["1", "7"]
    assert devices[1].findtext("fb_memory_usage/total") == "9984 MiB"
    assert gpu.findtext("remapped_rows") == gpu.findtext("utilization/gpu_util") == "N/A"
    assert machine.smi("-q").stdout.count("\n    MIG Device\n        Index ") == 2
    machine.install(hardware("h100-sxm", 1))
    assert str(xml(machine).findtext("mig_devices")).strip() == "None"


def test_processes_stand_in_both(machine: Machine) -> None:
    assert lines(machine)["Processes"] == "None"
    machine.fault("gpu.0.processes=1:512", "gpu.0.graphics_processes=1:3")
    found = xml(machine).findall("processes/process_info")
    assert [(p.findtext("pid"), p.findtext("type"), p.findtext("used_memory")) for p in found] == [
        ("1", "C", "512 MiB"),
        ("1", "G", "3 MiB"),
    ]
    text = machine.smi("-q", "-i", "0").stdout
    assert f"    Processes\n        {'GPU instance ID':33} : N/A\n" in text
    assert f"            {'Used GPU Memory':29} : 512 MiB\n" in text


def test_retired_pages_are_listed_by_address(machine: Machine) -> None:
    machine.install(hardware("t4"))
    machine.fault("gpu.0.retired_double=2", "gpu.0.retired_pending=1")
    pages = xml(machine).find("retired_pages")
    assert pages is not None
    assert pages.findtext("double_bit_retirement/retired_count") == "2"
    assert len(pages.findall("double_bit_retirement/retired_pagelist/retired_page_addr")) == 2
    assert pages.findtext("multiple_single_bit_retirement/retired_count") == "0"
    assert pages.findtext("pending_retirement") == "Yes"


def test_a_lost_gpu_has_sentences_for_values(machine: Machine) -> None:
    machine.fault("gpu.0.state=lost")
    gpu = xml(machine)
    for path in ("remapped_rows", "temperature/gpu_temp", "gpu_power_readings/instant_power_draw", "fabric/state",
                 "ecc_errors/volatile/dram_uncorrectable", "fb_memory_usage/total"):  # fmt: skip
        assert gpu.findtext(path) == "GPU is lost", path
    assert xml(machine, 1).findtext("temperature/gpu_temp") == "29 C"


def test_fields_of_errors_and_reasons_can_be_queried(machine: Machine) -> None:
    machine.fault("gpu.0.ecc_volatile_sram_uncorrected=2", "gpu.0.clocks_event_reasons=4")
    fields = (
        "ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.volatile.sram,"
        "ecc.errors.uncorrected.volatile.l1_cache,clocks_event_reasons.active,clocks_event_reasons.sw_power_cap,"
        "clocks_throttle_reasons.hw_slowdown,inforom.ecc,pci.bus,pcie.link.gen.gpumax,pcie.link.gen.hostmax"
    )
    done = machine.smi(f"--query-gpu={fields}", "--format=csv,noheader", "-i", "0")
    assert done.stdout == "2, 2, [N/A], 0x0000000000000004, Active, Not Active, 7.16, 0x1B, 5, [N/A]\n"
    rows = "--query-remapped-rows=gpu_bus_id,remapped_rows.correctable,remapped_rows.pending"
    assert machine.smi(rows, "--format=csv", "-i", "0").stdout.splitlines() == [
        "gpu_bus_id, remapped_rows.correctable, remapped_rows.pending",
        "00000000:1B:00.0, 0, No",
    ]


def test_work_shows_in_the_table_and_in_queries(machine: Machine) -> None:
    machine.install(hardware("t4", 2))
    query = (
        "--query-gpu=utilization.gpu,pstate,clocks.sm,pcie.link.gen.current",
        "--format=csv,noheader",
        "-i",
        "1",
    )
    assert machine.smi(*query).stdout == "0 %, P8, 300 MHz, 1\n"
    with machine.busy(1):
        assert machine.smi(*query).stdout == "98 %, P0, 1590 MHz, 3\n"
        rows = [line for line in machine.smi().stdout.splitlines() if "Default" in line]
        assert ["98%" in row for row in rows] == [False, True]
        assert {len(line) for line in machine.smi().stdout.splitlines()[1:] if line} == {91}
