"""The simulated nvidia-smi: formats and exit codes."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fleet.lab.simulation import native
from fleet.lab.simulation.hardware import hardware
from tests.lab.simulation.conftest import DRIVER, Machine


def test_the_table_has_the_widths_of_the_real_one(machine: Machine) -> None:
    done = machine.smi()
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert {len(line) for line in lines[1:] if line} == {91}
    assert lines[2] == (
        f"| NVIDIA-SMI {DRIVER}             Driver Version: {DRIVER}     CUDA Version: 13.0     |"
    )
    assert (
        "|   0  NVIDIA H100 80GB HBM3          Off |   00000000:1B:00.0 Off |                    0 |" in lines
    )
    assert (
        "| N/A   29C    P0             69W /  700W |       0MiB /  81559MiB |      0%      Default |" in lines
    )


def test_list(machine: Machine) -> None:
    uuid = hardware("h100-sxm", 8)["gpus"][7]["uuid"]
    assert machine.smi("-L").stdout.splitlines()[7] == f"GPU 7: NVIDIA H100 80GB HBM3 (UUID: {uuid})"


def test_query_with_and_without_header_and_units(machine: Machine) -> None:
    query = "--query-gpu=index,memory.total,power.draw,pci.bus_id,mig.mode.current,remapped_rows.pending"
    full = machine.smi(query, "--format=csv", "-i", "0").stdout
    assert full == (
        "index, memory.total [MiB], power.draw [W], pci.bus_id, mig.mode.current, remapped_rows.pending\n"
        "0, 81559 MiB, 69.00 W, 00000000:1B:00.0, Disabled, No\n"
    )
    bare = machine.smi(query, "--format=csv,noheader,nounits", "-i", "0").stdout
    assert bare == "0, 81559, 69.00, 00000000:1B:00.0, Disabled, No\n"


def test_what_a_gpu_lacks_is_not_available(machine: Machine) -> None:
    machine.install(hardware("rtx-4090"))
    done = machine.smi("--query-gpu=serial,ecc.mode.current,fan.speed", "--format=csv,noheader")
    assert done.stdout == "[N/A], [N/A], 0 %\n"


def test_an_unknown_field_is_refused(machine: Machine) -> None:
    done = machine.smi("--query-gpu=name,colour", "--format=csv")
    assert done.returncode == 2
    assert done.stdout.startswith('Field "colour" is not a valid field to query.')


def test_without_a_driver_it_says_so_and_ends_with_9(machine: Machine) -> None:
    (machine.state / "loaded.view").unlink()
    done = machine.smi()
    assert done.returncode == 9
    assert done.stdout.startswith(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    )


def test_another_driver_loaded_is_a_mismatch_on_standard_output(machine: Machine) -> None:
    machine.load("570.211.01")
    done = machine.smi()
    assert (done.returncode, done.stderr) == (18, "")
    assert done.stdout.splitlines() == [
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVML library version: 580.159",
    ]


def test_no_library_and_no_devices(machine: Machine) -> None:
    machine.install(hardware("h100-sxm", 0))
    assert (machine.smi().returncode, machine.smi().stdout) == (6, "No devices were found\n")
    machine.library.unlink()
    assert machine.smi().returncode == 12


def test_a_lost_gpu_ends_with_15_and_the_query_still_gives_the_others(machine: Machine) -> None:
    machine.fault("gpu.1.state=lost")
    assert machine.smi().returncode == 15
    done = machine.smi("--query-gpu=index,name", "--format=csv,noheader")
    assert done.returncode == 15
    lines = done.stdout.splitlines()
    assert lines[1].startswith("Unable to determine the device handle for GPU0000:43:00.0: GPU is lost.")
    assert lines[2] == "[GPU is lost], [GPU is lost]"
    assert lines[3] == "2, NVIDIA H100 80GB HBM3"


def test_an_unknown_error_leaves_an_err_row_in_the_table(machine: Machine) -> None:
    machine.fault("gpu.1.state=unknown_error")
    done = machine.smi()
    assert "|   1  ERR!" in done.stdout
    assert {len(line) for line in done.stdout.splitlines()[1:] if line} == {91}


@pytest.mark.parametrize(
    ("driver", "document_type", "power"),
    [
        ("470.256.02", "v11", "power_readings"),
        ("535.309.01", "v12", "gpu_power_readings"),
        (DRIVER, "v13", "gpu_power_readings"),
    ],
)
def test_the_xml_is_that_of_the_drivers_generation(
    machine: Machine, native_cache: Path, driver: str, document_type: str, power: str
) -> None:
    machine.install(hardware("t4", 2))
    machine.load(driver)
    machine.tools = native.build(driver, native_cache)
    versioned = machine.library.with_name(f"libnvidia-ml.so.{driver}")
    shutil.copy(machine.tools / "libnvidia-ml.so.1", versioned)
    machine.library.unlink()
    machine.library.symlink_to(versioned)
    text = machine.smi("-q", "-x").stdout
    assert f"nvsmi_device_{document_type}.dtd" in text
    root = ElementTree.fromstring(text)
    assert root.findtext("driver_version") == driver
    assert root.findtext("attached_gpus") == "2"
    gpu = root.find("gpu")
    assert gpu is not None
    assert gpu.find(power) is not None
    assert gpu.findtext("remapped_rows") == "N/A"


def test_driver_610_renames_what_it_calls_the_driver(machine: Machine, native_cache: Path) -> None:
    machine.tools = native.build("610.57.04", native_cache)
    machine.load(DRIVER)
    head = machine.smi().stdout.splitlines()[2]
    assert "KMD Version" in head
    assert "Driver Version" not in head
    assert len(head) == 91


def test_nvlink_status_is_empty_without_nvlink(machine: Machine) -> None:
    machine.fault("gpu.0.nvlink.3=0")
    lines = machine.smi("nvlink", "-s", "-i", "0").stdout.splitlines()
    assert lines[1] == "\t Link 0: 26.562 GB/s"
    assert lines[4] == "\t Link 3: <inactive>"
    machine.install(hardware("t4", 2))
    assert machine.smi("nvlink", "-s").stdout == ""


def test_settings_stick_until_the_driver_goes(machine: Machine) -> None:
    assert machine.smi("-pm", "1").returncode == 0
    assert machine.smi("-pl", "500").returncode == 0
    query = ("--query-gpu=persistence_mode,power.limit", "--format=csv,noheader", "-i", "0")
    assert machine.smi(*query).stdout == "Enabled, 500.00 W\n"
    assert machine.smi("-pl", "5000").returncode == 2
    (machine.state / "settings.view").unlink()
    assert machine.smi(*query).stdout == "Disabled, 700.00 W\n"


def test_processes_are_in_the_table_and_in_their_own_query(machine: Machine) -> None:
    machine.fault("gpu.2.processes=1:512")
    lines = machine.smi().stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    row = next(line for line in lines if line.startswith("|    2   N/A  N/A"))
    assert row.split()[4:6] == ["1", "C"]
    assert row.endswith("512MiB |")
    apps = machine.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
    assert apps.stdout == "1, 512 MiB\n"


def test_the_long_form_is_text_without_x(machine: Machine) -> None:
    machine.fault("gpu.1.remap_pending=1", "gpu.7.state=lost")
    lines = machine.smi("-q").stdout.splitlines()
    assert f"{'Driver Version':54} : {DRIVER}" in lines
    assert f"{'Attached GPUs':54} : 8" in lines
    assert lines.count(f"        {'Pending':46} : Yes") == 1
    assert f"    {'GPU UUID':50} : GPU is lost" in lines


def test_mig_devices_are_listed_below_their_gpu(machine: Machine) -> None:
    document = hardware("h100-sxm", 1, mig=["3g.40gb", "1g.10gb"])
    machine.install(document)
    first, second = (device["uuid"] for device in document["gpus"][0]["mig_devices"])
    assert machine.smi("-L").stdout.splitlines()[1:] == [
        f"  MIG 3g.40gb     Device  0: (UUID: {first})",
        f"  MIG 1g.10gb     Device  1: (UUID: {second})",
    ]
    assert "|  0    7   0   1  |               0MiB /  9984MiB    |" in machine.smi().stdout
    assert {len(line) for line in machine.smi().stdout.splitlines()[1:] if line} == {91}
    assert "not supported for Devices in MIG mode" in machine.smi("nvlink", "-s").stdout


def test_a_container_sees_the_mig_device_it_was_given(machine: Machine, tmp_path: Path) -> None:
    machine.install(hardware("h100-sxm", 2, mig=["1g.10gb"] * 3))
    visible = tmp_path / "visible"
    visible.mkdir()
    (visible / "1.2").touch()
    environment = {**machine.environment, "FLEET_LAB_GPU_VISIBLE": str(visible)}
    argv = [machine.tools / "nvidia-smi", "-L"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=True)
    gpu, mig = done.stdout.splitlines()
    assert gpu.startswith("GPU 0: ")
    assert "MIG 1g.10gb     Device  0:" in mig


def test_the_topology_says_nvlink_or_the_sockets(machine: Machine) -> None:
    rows = [line.split("\t") for line in machine.smi("topo", "-m").stdout.splitlines()[:9]]
    assert rows[0] == ["", *["\x1b[4mGPU0", *(f"GPU{n}" for n in range(1, 8))], "CPU Affinity", "NUMA Affinity",
                       "GPU NUMA ID\x1b[0m"]  # fmt: skip
    assert rows[8][1:9] == [*["NV18"] * 7, " X "]
    assert [row[10] for row in rows[1:]] == list("00001111")
    machine.install(hardware("t4", 2))
    assert machine.smi("topo", "-m").stdout.splitlines()[1].split("\t")[1:3] == [" X ", "SYS"]
