"""Outputs of nvidia-smi as its driver generations print them, for GPUs that exist only here.

:func:`xml_of` and :func:`text_of` print the same GPU in both formats, so that a test can hold one to the other.
"""

from __future__ import annotations

import re

# driver -> (DTD, CUDA, family of names)
GENERATIONS = {
    "390.157": ("nvsmi_device_v9.dtd", None),
    "418.43": (None, "10.1"),
    "450.80.02": ("nvsmi_device_v11.dtd", "11.0"),
    "515.105.01": ("nvsmi_device_v11.dtd", "11.7"),
    "535.161.08": ("nvsmi_device_v12.dtd", "12.2"),
    "550.163.01": ("nvsmi_device_v12.dtd", "12.4"),
    "570.148.08": ("nvsmi_device_v12.dtd", "12.8"),
    "580.105.08": ("nvsmi_device_v13.dtd", "13.0"),
    "595.71.05": ("nvsmi_device_v13.dtd", "13.2"),
    "610.57.04": ("nvsmi_device_v13.dtd", "13.3"),
}
DEPRECATED = "Requested functionality has been deprecated"
UUIDS = tuple(f"GPU-5f1ee7aa-0000-4000-8000-00000000000{number}" for number in range(4))
ADDRESSES = ("00000000:1B:00.0", "00000000:3D:00.0", "00000001:00:00.0", "00008ED0:00:00.0")

# (element or group, label, text or children) of one GPU; a list is a group.
Item = tuple[str, str, object]


def branch(driver: str) -> int:
    return int(driver.split(".")[0])


def gpu(driver: str, number: int = 0, **other: str) -> list[Item]:
    """One data-centre GPU as ``driver`` shows it. ``other`` replaces texts by element name."""
    at = branch(driver)
    items: list[Item] = [
        ("product_name", "Product Name", "NVIDIA Testbed T1"),
        ("product_brand", "Product Brand", "NVIDIA" if at >= 450 else "Tesla"),
        ("persistence_mode", "Persistence Mode", "Enabled"),
        *([("product_architecture", "Product Architecture", "Ampere")] if at >= 470 else []),
        *_mig(at),
        ("serial", "Serial Number", "1320000000017"),
        ("uuid", "GPU UUID", UUIDS[number]),
        ("minor_number", "Minor Number", str(number)),
        ("vbios_version", "VBIOS Version", "92.00.45.00.03"),
        ("board_id", "Board ID", "0x1b00"),
        ("gpu_part_number", "GPU Part Number", "20B2-895-A1"),
        (
            "inforom_version",
            "Inforom Version",
            [
                ("img_version", "Image Version", "G506.0212.00.01"),
                ("oem_object", "OEM Object", "2.0"),
                ("ecc_object", "ECC Object", "6.16"),
                ("pwr_object", "Power Management Object", "N/A"),
            ],
        ),
        (
            "gpu_virtualization_mode",
            "GPU Virtualization Mode",
            [("virtualization_mode", "Virtualization Mode", "Pass-Through")],
        ),
        *_reset(at),
        *([("gsp_firmware_version", "GSP Firmware Version", driver)] if at >= 470 else []),
        _pci(at, number),
        ("fan_speed", "Fan Speed", "N/A"),
        ("performance_state", "Performance State", "P0"),
        _reasons(at),
        _memory("fb_memory_usage", "FB Memory Usage", 81920, 512, reserved=at >= 510),
        _memory("bar1_memory_usage", "BAR1 Memory Usage", 131072, 1),
        ("compute_mode", "Compute Mode", "Default"),
        ("utilization", "Utilization", [("gpu_util", "GPU", "37 %"), ("memory_util", "Memory", "5 %")]),
        (
            "ecc_mode",
            "ECC Mode",
            [("current_ecc", "Current", "Enabled"), ("pending_ecc", "Pending", "Disabled")],
        ),
        _ecc(at),
        *_pages_and_rows(at),
        _temperature(at),
        _power(at),
        (
            "clocks",
            "Clocks",
            [
                ("graphics_clock", "Graphics", "1275 MHz"),
                ("sm_clock", "SM", "1275 MHz"),
                ("mem_clock", "Memory", "1593 MHz"),
                ("video_clock", "Video", "1170 MHz"),
            ],
        ),
        (
            "max_clocks",
            "Max Clocks",
            [
                ("graphics_clock", "Graphics", "1410 MHz"),
                ("sm_clock", "SM", "1410 MHz"),
                ("mem_clock", "Memory", "1593 MHz"),
                ("video_clock", "Video", "1290 MHz"),
            ],
        ),
    ]
    return _replaced(items, other)


def _replaced(items: list[Item], other: dict[str, str]) -> list[Item]:
    out: list[Item] = []
    for name, label, value in items:
        if name in other:
            value = other[name]
        elif isinstance(value, list):
            value = _replaced(value, other)
        out.append((name, label, value))
    return out


def _mig(at: int) -> list[Item]:
    modes: list[Item] = [("current_mig", "Current", "Disabled"), ("pending_mig", "Pending", "Enabled")]
    return [("mig_mode", "MIG Mode", modes)] if at >= 450 else []


def _reset(at: int) -> list[Item]:
    if at < 510:
        return []
    says = DEPRECATED if at >= 570 else "No"
    flags: list[Item] = [
        ("reset_required", "Reset Required", says),
        ("drain_and_reset_recommended", "Drain and Reset Recommended", says),
    ]
    reset: list[Item] = [("gpu_reset_status", "GPU Reset Status", flags)]
    return [*reset, ("gpu_recovery_action", "GPU Recovery Action", "None")] if at >= 565 else reset


def _pci(at: int, number: int) -> Item:
    generation: list[Item] = [
        ("max_link_gen", "Max", "4"),
        ("current_link_gen", "Current", "3"),
        *(
            [
                ("device_current_link_gen", "Device Current", "3"),
                ("max_device_link_gen", "Device Max", "4"),
                ("max_host_link_gen", "Host Max", "5"),
            ]
            if at >= 525
            else []
        ),
    ]
    widths: list[Item] = [("max_link_width", "Max", "16x"), ("current_link_width", "Current", "8x")]
    link: list[Item] = [("pcie_gen", "PCIe Generation", generation), ("link_widths", "Link Width", widths)]
    return (
        "pci",
        "PCI",
        [
            ("pci_device_id", "Device Id", "0x20B210DE"),
            ("pci_bus_id", "Bus Id", ADDRESSES[number]),
            ("pci_sub_system_id", "Sub System Id", "0x147F10DE"),
            ("pci_gpu_link_info", "GPU Link Info", link),
            ("replay_counter", "Replays Since Reset", "7"),
        ],
    )


def _reasons(at: int) -> Item:
    word, title = ("event", "Event") if at >= 535 else ("throttle", "Throttle")
    one = f"clocks_{word}_reason_"
    slow: list[Item] = [
        (one + "hw_thermal_slowdown", "HW Thermal Slowdown", "Active"),
        (one + "hw_power_brake_slowdown", "HW Power Brake Slowdown", "Not Active"),
    ]
    return (
        f"clocks_{word}_reasons",
        f"Clocks {title} Reasons",
        [
            (one + "gpu_idle", "Idle", "Not Active"),
            (one + "sw_power_cap", "SW Power Cap", "Active"),
            (one + "hw_slowdown", "HW Slowdown", "Active"),
            *slow,
            (one + "display_clocks_setting", "Display Clock Setting", "Not Active"),
        ],
    )


def _memory(name: str, label: str, total: int, used: int, reserved: bool = False) -> Item:
    rows: list[Item] = [("total", "Total", f"{total} MiB"), ("used", "Used", f"{used} MiB")]
    if reserved:
        rows.append(("reserved", "Reserved", "518 MiB"))
    return name, label, [*rows, ("free", "Free", f"{total - used} MiB")]


def _ecc(at: int) -> Item:
    def counters(correctable: int, uncorrectable: int) -> list[Item]:
        if at < 410:
            single: list[Item] = [
                ("device_memory", "Device Memory", "0"),
                ("total", "Total", str(correctable)),
            ]
            double: list[Item] = [
                ("device_memory", "Device Memory", str(uncorrectable)),
                ("total", "Total", str(uncorrectable)),
            ]
            return [("single_bit", "Single Bit", single), ("double_bit", "Double Bit", double)]
        rows: list[Item] = [("sram_correctable", "SRAM Correctable", "0")]
        if at >= 535:
            rows += [
                ("sram_uncorrectable_parity", "SRAM Uncorrectable Parity", "0"),
                ("sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED", "0"),
            ]
        else:
            rows.append(("sram_uncorrectable", "SRAM Uncorrectable", "0"))
        return [
            *rows,
            ("dram_correctable", "DRAM Correctable", str(correctable)),
            ("dram_uncorrectable", "DRAM Uncorrectable", str(uncorrectable)),
        ]

    return (
        "ecc_errors",
        "ECC Errors",
        [("volatile", "Volatile", counters(3, 0)), ("aggregate", "Aggregate", counters(9, 2))],
    )


def _pages_and_rows(at: int) -> list[Item]:
    histogram: list[Item] = [
        (f"row_remapper_histogram_{name}", name.capitalize(), f"{count} bank(s)")
        for name, count in (("max", 639), ("high", 1), ("partial", 0), ("low", 0), ("none", 0))
    ]
    pages: Item = (
        "retired_pages",
        "Retired Pages",
        [
            ("multiple_single_bit_retirement", "Single Bit ECC", [("retired_count", "", "N/A")]),
            ("double_bit_retirement", "Double Bit ECC", [("retired_count", "", "N/A")]),
            ("pending_blacklist", "Pending Page Blacklist", "N/A"),
        ],
    )
    rows: Item = (
        "remapped_rows",
        "Remapped Rows",
        [
            ("remapped_row_corr", "Correctable Error", "0"),
            ("remapped_row_unc", "Uncorrectable Error", "2"),
            ("remapped_row_pending", "Pending", "Yes"),
            ("remapped_row_failure", "Remapping Failure Occurred", "No"),
            *(
                [("row_remapper_histogram", "Bank Remap Availability Histogram", histogram)]
                if at >= 460
                else []
            ),
        ],
    )
    return [pages, rows] if at >= 450 else [pages]


def _temperature(at: int) -> Item:
    return (
        "temperature",
        "Temperature",
        [
            ("gpu_temp", "GPU Current Temp", "63 C"),
            *([("gpu_temp_tlimit", "GPU T.Limit Temp", "21 C")] if at >= 535 else []),
            ("gpu_temp_max_threshold", "GPU Shutdown Temp", "92 C"),
            ("gpu_temp_slow_threshold", "GPU Slowdown Temp", "89 C"),
            ("gpu_temp_max_gpu_threshold", "GPU Max Operating Temp", "85 C"),
            ("memory_temp", "Memory Current Temp", "71 C"),
        ],
    )


def _power(at: int) -> Item:
    if at < 535:
        return (
            "power_readings",
            "Power Readings",
            [
                ("power_management", "Power Management", "Supported"),
                ("power_draw", "Power Draw", "244.17 W"),
                ("power_limit", "Power Limit", "350.00 W"),
                ("default_power_limit", "Default Power Limit", "400.00 W"),
                ("enforced_power_limit", "Enforced Power Limit", "350.00 W"),
                ("min_power_limit", "Min Power Limit", "100.00 W"),
                ("max_power_limit", "Max Power Limit", "400.00 W"),
            ],
        )
    limits: list[Item] = [
        ("current_power_limit", "Current Power Limit", "350.00 W"),
        ("requested_power_limit", "Requested Power Limit", "350.00 W"),
        ("default_power_limit", "Default Power Limit", "400.00 W"),
    ]
    draw: list[Item] = [("power_draw", "Power Draw", "244.17 W")]
    if at >= 550:
        draw = [
            ("average_power_draw", "Average Power Draw", "N/A" if at >= 610 else "240.02 W"),
            ("instant_power_draw", "Instantaneous Power Draw", "244.17 W"),
        ]
    return (
        "gpu_power_readings",
        "GPU Power Readings",
        [
            *draw,
            *([("gpu_ceiling_power_limit", "GPU Ceiling Power Limit", limits)] if at >= 610 else limits),
            ("min_power_limit", "Min Power Limit", "100.00 W"),
            ("max_power_limit", "Max Power Limit", "400.00 W"),
        ],
    )


# -- printing ---------------------------------------------------------------------------------------


def xml_of(driver: str, gpus: list[list[Item]] | None = None, processes: str = "") -> str:
    """What ``-q -x`` prints."""
    shown = [gpu(driver)] if gpus is None else gpus
    dtd, cuda = GENERATIONS[driver]
    lines = ['<?xml version="1.0" ?>']
    if dtd:
        lines.append(f'<!DOCTYPE nvidia_smi_log SYSTEM "{dtd}">')
    lines += ["<nvidia_smi_log>", "\t<timestamp>Wed Jan  7 10:11:12 2026</timestamp>"]
    lines.append(f"\t<driver_version>{driver}{_remark(driver, 'KMD Version')}</driver_version>")
    if cuda:
        lines.append(f"\t<cuda_version>{cuda}{_remark(driver, 'CUDA UMD Version')}</cuda_version>")
    if branch(driver) >= 610:
        lines += [f"\t<kmd_version>{driver}</kmd_version>", f"\t<cuda_umd_version>{cuda}</cuda_umd_version>"]
    lines.append(f"\t<attached_gpus>{len(shown)}</attached_gpus>")
    for items in shown:
        lines.append(f'\t<gpu id="{_address_in(items)}">')
        lines += _elements(items, 2)
        lines += ["\t\t<processes>", *processes.splitlines(), "\t\t</processes>", "\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def _remark(driver: str, name: str) -> str:
    return f" [Deprecated; will be removed. Use {name} instead]" if branch(driver) >= 610 else ""


def _elements(items: list[Item], depth: int) -> list[str]:
    tabs = "\t" * depth
    lines = []
    for name, _, value in items:
        if isinstance(value, list):
            lines += [f"{tabs}<{name}>", *_elements(value, depth + 1), f"{tabs}</{name}>"]
        else:
            digits = str(value)
            lines.append(
                f"{tabs}<{name}>{digits[2:] if name.startswith('pci_') and digits[:2] == '0x' else digits}</{name}>"
            )
    return lines


def text_of(driver: str, gpus: list[list[Item]] | None = None) -> str:
    """What ``-q`` prints."""
    shown = [gpu(driver)] if gpus is None else gpus
    _, cuda = GENERATIONS[driver]
    lines = ["", "==============NVSMI LOG==============", ""]
    lines.append(_line(0, "Timestamp", "Wed Jan  7 10:11:12 2026"))
    lines.append(_line(0, "Driver Version", driver + _remark(driver, "KMD Version")))
    if cuda:
        lines.append(_line(0, "CUDA Version", cuda + _remark(driver, "CUDA UMD Version")))
    if branch(driver) >= 610:
        lines += [_line(0, "KMD Version", driver), _line(0, "CUDA UMD Version", str(cuda))]
    lines += ["", _line(0, "Attached GPUs", str(len(shown)))]
    for items in shown:
        lines.append(f"GPU {_address_in(items)}")
        lines += _labels(items, 1)
        lines += [_line(1, "Processes", "None"), ""]
    return "\n".join([*lines, ""])


def _labels(items: list[Item], depth: int) -> list[str]:
    lines = []
    for name, label, value in items:
        if isinstance(value, list) and name.endswith("_retirement"):
            lines.append(_line(depth, label, str(value[0][2])))  # text has the count in the group's own line
        elif isinstance(value, list):
            lines += ["    " * depth + label, *_labels(value, depth + 1)]
        else:
            lines.append(_line(depth, label, str(value)))
    return lines


def _line(depth: int, label: str, value: str) -> str:
    return f"{'    ' * depth + label:<54} : {value}"


def _address_in(items: list[Item]) -> str:
    text = repr(items)
    found = re.search(r"'pci_bus_id', 'Bus Id', '([^']+)'", text)
    return found.group(1) if found else ADDRESSES[0]
