"""Which name of which format fills which field of a Device: one table for XML, text and CSV.

A row: (path in the Device, kind of :mod:`.values`, XML, text, CSV). Each of the last three lists
alternatives, newest first: of the first that was printed with a value that value is taken. ``a + b`` is
the sum of both, and applies only where both were printed. Names are those of drivers 390 to 610 as seen in
outputs; a path is written as :meth:`.tree.Node.at` reads it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Tuple

    Names = Tuple[str, ...]
    Field = Tuple[str, str, Names, Names, Names]

XML, TEXT, CSV = 2, 3, 4  # the place of each format in a row

# The address comes first in every format: the attribute ``id``, the heading ``GPU …``, and this.
ADDRESS_IN_CSV = ("pci.bus_id", "gpu_bus_id")
DRIVER_VERSION = (
    "driver_version",
    "version",
    ("kmd_version", "driver_version"),
    ("KMD Version", "Driver Version"),
    ("kmd_version", "driver_version"),
)
CUDA_VERSION = (
    "cuda_version",
    "version",
    ("cuda_umd_version", "cuda_version"),
    ("CUDA UMD Version", "CUDA Version"),
    (),
)
NVML_VERSION = ("nvml_version", "version", ("nvml_version",), ("NVML Version",), ())
GPU_COUNT = ("attached_gpus", "count", ("attached_gpus",), ("Attached GPUs",), ("count",))

_IDENTITY: Tuple[Field, ...] = (
    ("index", "count", (), (), ("index",)),
    ("minor", "count", ("minor_number",), ("Minor Number",), ()),
    ("uuid", "uuid", ("uuid",), ("GPU UUID",), ("uuid", "gpu_uuid")),
    ("serial", "text", ("serial",), ("Serial Number",), ("serial", "gpu_serial")),
    ("name", "text", ("product_name",), ("Product Name",), ("name", "gpu_name")),
    ("brand", "brand", ("product_brand",), ("Product Brand",), ()),
    ("architecture", "architecture", ("product_architecture",), ("Product Architecture",), ()),
    ("compute_capability", "capability", (), (), ("compute_cap",)),
    ("device_id", "nvidia_device", ("pci/pci_device_id",), ("PCI/Device Id",), ("pci.device_id",)),
    (
        "subsystem_vendor_id",
        "pci_vendor",
        ("pci/pci_sub_system_id",),
        ("PCI/Sub System Id",),
        ("pci.sub_device_id",),
    ),
    (
        "subsystem_id",
        "pci_device",
        ("pci/pci_sub_system_id",),
        ("PCI/Sub System Id",),
        ("pci.sub_device_id",),
    ),
    ("board_id", "hexadecimal", ("board_id",), ("Board ID",), ()),
    ("board_part_number", "text", ("board_part_number",), ("Board Part Number",), ()),
    ("gpu_part_number", "text", ("gpu_part_number",), ("GPU Part Number",), ()),
    ("vbios_version", "text", ("vbios_version",), ("VBIOS Version",), ("vbios_version",)),
    (
        "inforom_image_version",
        "text",
        ("inforom_version/img_version",),
        ("Inforom Version/Image Version",),
        ("inforom.img", "inforom.image"),
    ),
    (
        "inforom_oem_version",
        "text",
        ("inforom_version/oem_object",),
        ("Inforom Version/OEM Object",),
        ("inforom.oem",),
    ),
    (
        "inforom_ecc_version",
        "text",
        ("inforom_version/ecc_object",),
        ("Inforom Version/ECC Object",),
        ("inforom.ecc",),
    ),
    (
        "inforom_power_version",
        "text",
        ("inforom_version/pwr_object",),
        ("Inforom Version/Power Management Object",),
        ("inforom.pwr", "inforom.power"),
    ),
    ("gsp_firmware_version", "text", ("gsp_firmware_version",), ("GSP Firmware Version",), ()),
    # The version is printed only where the firmware runs.
    ("gsp_firmware_enabled", "firmware", ("gsp_firmware_version",), ("GSP Firmware Version",), ()),
    ("gsp_firmware_enabled", "enabled", (), (), ("gsp.mode.current",)),
    (
        "module_id",
        "count",
        ("platformInfo/module_id", "gpu_module_id"),
        ("Platform Info/Module Id", "Module ID", "GPU Module ID"),
        ("platform.module_id",),
    ),
)

_MEMORY: Tuple[Field, ...] = (
    ("memory_total_mib", "mib", ("fb_memory_usage/total",), ("FB Memory Usage/Total",), ("memory.total",)),
    ("memory_used_mib", "mib", ("fb_memory_usage/used",), ("FB Memory Usage/Used",), ("memory.used",)),
    ("memory_free_mib", "mib", ("fb_memory_usage/free",), ("FB Memory Usage/Free",), ("memory.free",)),
    (
        "memory_reserved_mib",
        "mib",
        ("fb_memory_usage/reserved",),
        ("FB Memory Usage/Reserved",),
        ("memory.reserved",),
    ),
    ("bar1_total_mib", "mib", ("bar1_memory_usage/total",), ("BAR1 Memory Usage/Total",), ()),
    ("bar1_used_mib", "mib", ("bar1_memory_usage/used",), ("BAR1 Memory Usage/Used",), ()),
)

_CLOCKS: Tuple[Field, ...] = (
    (
        "graphics_clock_mhz",
        "mhz",
        ("clocks/graphics_clock",),
        ("Clocks/Graphics",),
        ("clocks.current.graphics", "clocks.gr"),
    ),
    ("sm_clock_mhz", "mhz", ("clocks/sm_clock",), ("Clocks/SM",), ("clocks.current.sm", "clocks.sm")),
    (
        "memory_clock_mhz",
        "mhz",
        ("clocks/mem_clock",),
        ("Clocks/Memory",),
        ("clocks.current.memory", "clocks.mem"),
    ),
    (
        "video_clock_mhz",
        "mhz",
        ("clocks/video_clock",),
        ("Clocks/Video",),
        ("clocks.current.video", "clocks.video"),
    ),
    (
        "max_graphics_clock_mhz",
        "mhz",
        ("max_clocks/graphics_clock",),
        ("Max Clocks/Graphics",),
        ("clocks.max.graphics", "clocks.max.gr"),
    ),
    ("max_sm_clock_mhz", "mhz", ("max_clocks/sm_clock",), ("Max Clocks/SM",), ("clocks.max.sm",)),
    (
        "max_memory_clock_mhz",
        "mhz",
        ("max_clocks/mem_clock",),
        ("Max Clocks/Memory",),
        ("clocks.max.memory", "clocks.max.mem"),
    ),
    ("max_video_clock_mhz", "mhz", ("max_clocks/video_clock",), ("Max Clocks/Video",), ()),
    ("performance_state", "performance_state", ("performance_state",), ("Performance State",), ("pstate",)),
)

# The draw at the moment before an average; the limit that was asked for before the one in force, as NVML has
# them. Up to driver 530 the power group is power_readings, from 535 gpu_power_readings, and in 610 the limits
# have a group of their own within it.
_POWER_AND_HEAT: Tuple[Field, ...] = (
    (
        "power_draw_w",
        "w",
        (
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "power_readings/power_draw",
        ),
        (
            "GPU Power Readings/Instantaneous Power Draw",
            "GPU Power Readings/Power Draw",
            "GPU Power Readings/Average Power Draw",
            "Power Readings/Power Draw",
        ),
        ("power.draw.instant", "power.draw", "power.draw.average"),
    ),
    (
        "power_limit_w",
        "w",
        (
            "gpu_power_readings/**/requested_power_limit",
            "gpu_power_readings/**/current_power_limit",
            "power_readings/power_limit",
        ),
        (
            "GPU Power Readings/**/Requested Power Limit",
            "GPU Power Readings/**/Current Power Limit",
            "Power Readings/Power Limit",
        ),
        ("power.limit",),
    ),
    (
        "power_limit_enforced_w",
        "w",
        ("gpu_power_readings/**/current_power_limit", "power_readings/enforced_power_limit"),
        ("GPU Power Readings/**/Current Power Limit", "Power Readings/Enforced Power Limit"),
        ("enforced.power.limit",),
    ),
    (
        "power_limit_default_w",
        "w",
        ("gpu_power_readings/**/default_power_limit", "power_readings/default_power_limit"),
        ("GPU Power Readings/**/Default Power Limit", "Power Readings/Default Power Limit"),
        ("power.default_limit",),
    ),
    (
        "power_limit_min_w",
        "w",
        ("gpu_power_readings/**/min_power_limit", "power_readings/min_power_limit"),
        ("GPU Power Readings/**/Min Power Limit", "Power Readings/Min Power Limit"),
        ("power.min_limit",),
    ),
    (
        "power_limit_max_w",
        "w",
        ("gpu_power_readings/**/max_power_limit", "power_readings/max_power_limit"),
        ("GPU Power Readings/**/Max Power Limit", "Power Readings/Max Power Limit"),
        ("power.max_limit",),
    ),
    (
        "temperature_c",
        "celsius",
        ("temperature/gpu_temp",),
        ("Temperature/GPU Current Temp",),
        ("temperature.gpu",),
    ),
    (
        "memory_temperature_c",
        "celsius",
        ("temperature/memory_temp",),
        ("Temperature/Memory Current Temp",),
        ("temperature.memory",),
    ),
    (
        "temperature_margin_c",
        "celsius",
        ("temperature/gpu_temp_tlimit",),
        ("Temperature/GPU T.Limit Temp", "Temperature/GPU Current T.Limit Temp"),
        ("temperature.gpu.tlimit",),
    ),
    # Hopper and Ada give these relative to the limit, under other names: those are no temperatures.
    (
        "temperature_slowdown_c",
        "celsius",
        ("temperature/gpu_temp_slow_threshold",),
        ("Temperature/GPU Slowdown Temp",),
        (),
    ),
    (
        "temperature_shutdown_c",
        "celsius",
        ("temperature/gpu_temp_max_threshold",),
        ("Temperature/GPU Shutdown Temp",),
        (),
    ),
    (
        "temperature_max_operating_c",
        "celsius",
        ("temperature/gpu_temp_max_gpu_threshold",),
        ("Temperature/GPU Max Operating Temp",),
        (),
    ),
    ("fan_speed_percent", "percent", ("fan_speed",), ("Fan Speed",), ("fan.speed",)),
    (
        "gpu_utilization_percent",
        "percent",
        ("utilization/gpu_util",),
        ("Utilization/GPU", "Utilization/Gpu"),
        ("utilization.gpu",),
    ),
    (
        "memory_utilization_percent",
        "percent",
        ("utilization/memory_util",),
        ("Utilization/Memory",),
        ("utilization.memory",),
    ),
)


def _sram(since: str) -> Tuple[Names, Names]:
    """SRAM's uncorrectable errors in XML and in text: one count, from Ampere on drivers 535 and later two."""
    xml, text = (
        "ecc_errors/%s/sram_uncorrectable" % since,
        "ECC Errors/%s/SRAM Uncorrectable" % since.capitalize(),
    )
    return (xml, "%s_parity + %s_secded" % (xml, xml)), (text, "%s Parity + %s SEC-DED" % (text, text))


def _ecc(since: str) -> Tuple[Field, ...]:
    """Counters since the last load of the driver (volatile) or ever (aggregate).

    Up to Volta by single_bit and double_bit; from Turing by place.
    """
    xml, text = "ecc_errors/%s/" % since, "ECC Errors/%s/" % since.capitalize()
    csv = "ecc.errors.%%s.%s.%%s" % since
    sram_xml, sram_text = _sram(since)
    dram_xml, dram_text = xml + "dram_uncorrectable", text + "DRAM Uncorrectable"
    return (
        (
            "ecc.%s_corrected" % since,
            "count",
            (xml + "sram_correctable + " + xml + "dram_correctable", xml + "single_bit/total"),
            (text + "SRAM Correctable + " + text + "DRAM Correctable", text + "Single Bit/Total"),
            (csv % ("corrected", "total"),),
        ),
        (
            "ecc.%s_uncorrected" % since,
            "count",
            (*(sram + " + " + dram_xml for sram in sram_xml), xml + "double_bit/total"),
            (*(sram + " + " + dram_text for sram in sram_text), text + "Double Bit/Total"),
            (csv % ("uncorrected", "total"),),
        ),
        ("ecc.%s_sram_uncorrected" % since, "count", sram_xml, sram_text, (csv % ("uncorrected", "sram"),)),
        (
            "ecc.%s_dram_uncorrected" % since,
            "count",
            (dram_xml, xml + "double_bit/device_memory"),
            (dram_text, text + "Double Bit/Device Memory"),
            (csv % ("uncorrected", "dram"), csv % ("uncorrected", "device_memory")),
        ),
    )


_ERRORS: Tuple[Field, ...] = (
    (
        "ecc_mode",
        "mode",
        ("ecc_mode/current_ecc",),
        ("ECC Mode/Current", "Ecc Mode/Current"),
        ("ecc.mode.current",),
    ),
    (
        "ecc_mode_pending",
        "mode",
        ("ecc_mode/pending_ecc",),
        ("ECC Mode/Pending", "Ecc Mode/Pending"),
        ("ecc.mode.pending",),
    ),
    *_ecc("volatile"),
    *_ecc("aggregate"),
    (
        "ecc.sram_threshold_exceeded",
        "yes",
        ("ecc_errors/aggregate/sram_threshold_exceeded",),
        ("ECC Errors/Aggregate/SRAM Threshold Exceeded",),
        ("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",),
    ),
    (
        "retired_pages.single_bit",
        "count",
        ("retired_pages/multiple_single_bit_retirement/retired_count",),
        ("Retired Pages/Single Bit ECC",),
        ("retired_pages.single_bit_ecc.count", "retired_pages.sbe"),
    ),
    (
        "retired_pages.double_bit",
        "count",
        ("retired_pages/double_bit_retirement/retired_count",),
        ("Retired Pages/Double Bit ECC",),
        ("retired_pages.double_bit.count", "retired_pages.dbe"),
    ),
    (
        "retired_pages.pending",
        "yes",
        ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        ("Retired Pages/Pending Page Blacklist", "Retired Pages/Pending"),
        ("retired_pages.pending",),
    ),
    (
        "remapped_rows.corrected",
        "count",
        ("remapped_rows/remapped_row_corr",),
        ("Remapped Rows/Correctable Error",),
        ("remapped_rows.correctable",),
    ),
    (
        "remapped_rows.uncorrected",
        "count",
        ("remapped_rows/remapped_row_unc",),
        ("Remapped Rows/Uncorrectable Error",),
        ("remapped_rows.uncorrectable",),
    ),
    (
        "remapped_rows.pending",
        "yes",
        ("remapped_rows/remapped_row_pending",),
        ("Remapped Rows/Pending",),
        ("remapped_rows.pending",),
    ),
    (
        "remapped_rows.failure",
        "yes",
        ("remapped_rows/remapped_row_failure",),
        ("Remapped Rows/Remapping Failure Occurred",),
        ("remapped_rows.failure",),
    ),
    (
        "recovery_action",
        "recovery_action",
        ("gpu_recovery_action",),
        ("GPU Recovery Action",),
        ("gpu_recovery_action",),
    ),
)

_XML_LINK, _TEXT_LINK = "pci/pci_gpu_link_info/", "PCI/GPU Link Info/"
_LINK: Tuple[Field, ...] = (
    (
        "pcie.generation",
        "generation",
        (_XML_LINK + "pcie_gen/device_current_link_gen", _XML_LINK + "pcie_gen/current_link_gen"),
        (_TEXT_LINK + "PCIe Generation/Device Current", _TEXT_LINK + "PCIe Generation/Current"),
        ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
    ),
    (
        "pcie.width",
        "width",
        (_XML_LINK + "link_widths/current_link_width",),
        (_TEXT_LINK + "Link Width/Current",),
        ("pcie.link.width.current",),
    ),
    (
        "pcie.generation_max_gpu",
        "generation",
        (_XML_LINK + "pcie_gen/max_device_link_gen",),
        (_TEXT_LINK + "PCIe Generation/Device Max",),
        ("pcie.link.gen.gpumax",),
    ),
    (
        "pcie.generation_max",
        "generation",
        (_XML_LINK + "pcie_gen/max_link_gen",),
        (_TEXT_LINK + "PCIe Generation/Max",),
        ("pcie.link.gen.max",),
    ),
    (
        "pcie.generation_max_host",
        "generation",
        (_XML_LINK + "pcie_gen/max_host_link_gen",),
        (_TEXT_LINK + "PCIe Generation/Host Max",),
        ("pcie.link.gen.hostmax",),
    ),
    (
        "pcie.width_max",
        "width",
        (_XML_LINK + "link_widths/max_link_width",),
        (_TEXT_LINK + "Link Width/Max",),
        ("pcie.link.width.max",),
    ),
    (
        "pcie.replays",
        "count",
        ("pci/replay_counter",),
        ("PCI/Replays Since Reset", "PCI/Replays since reset"),
        (),
    ),
)

_MODES: Tuple[Field, ...] = (
    ("fabric.state", "fabric_state", ("fabric/state",), ("Fabric/State",), ("fabric.state",)),
    ("fabric.status", "fabric_status", ("fabric/status",), ("Fabric/Status",), ("fabric.status",)),
    (
        "fabric.cluster_uuid",
        "text",
        ("fabric/clusterUuid",),
        ("Fabric/ClusterUUID",),
        ("fabric.clusterUuid",),
    ),
    ("fabric.clique_id", "count", ("fabric/cliqueId",), ("Fabric/CliqueId",), ("fabric.cliqueId",)),
    ("mig.mode", "mode", ("mig_mode/current_mig",), ("MIG Mode/Current",), ("mig.mode.current",)),
    ("mig.mode_pending", "mode", ("mig_mode/pending_mig",), ("MIG Mode/Pending",), ("mig.mode.pending",)),
    ("persistence_mode", "enabled", ("persistence_mode",), ("Persistence Mode",), ("persistence_mode",)),
    ("compute_mode", "compute_mode", ("compute_mode",), ("Compute Mode",), ("compute_mode",)),
    (
        "virtualization_mode",
        "virtualization_mode",
        ("gpu_virtualization_mode/virtualization_mode",),
        ("GPU Virtualization Mode/Virtualization Mode", "GPU Virtualization Mode/Virtualization mode"),
        (),
    ),
)

FIELDS: Tuple[Field, ...] = (
    *_IDENTITY,
    *_MEMORY,
    *_CLOCKS,
    *_POWER_AND_HEAT,
    *_ERRORS,
    *_LINK,
    *_MODES,
)

# -- parts that are null as a whole where nothing in them is known ------------------------------------

HISTOGRAM: Tuple[Field, ...] = tuple(
    (
        name,
        "count",
        ("remapped_rows/row_remapper_histogram/row_remapper_histogram_%s" % name,),
        ("Remapped Rows/Bank Remap Availability Histogram/%s" % name.capitalize(),),
        ("remapped_rows.histogram.%s" % name,),
    )
    for name in ("max", "high", "partial", "low", "none")
)
HEALTH: Tuple[Field, ...] = (
    (
        "degraded_bandwidth",
        "degraded",
        ("fabric/health/bandwidth",),
        ("Fabric/Health/Bandwidth",),
        ("fabric.health.bandwidth",),
    ),
    (
        "route_recovery",
        "yes",
        ("fabric/health/route_recovery_in_progress",),
        ("Fabric/Health/Route Recovery in progress",),
        ("fabric.health.route_recovery_in_progress",),
    ),
    (
        "route_unhealthy",
        "yes",
        ("fabric/health/route_unhealthy",),
        ("Fabric/Health/Route Unhealthy",),
        ("fabric.health.route_unhealthy",),
    ),
    (
        "access_timeout_recovery",
        "yes",
        ("fabric/health/access_timeout_recovery",),
        ("Fabric/Health/Access Timeout Recovery",),
        ("fabric.health.access_timeout_recovery",),
    ),
    (
        "incorrect_configuration",
        "incorrect_configuration",
        ("fabric/health/incorrect_configuration",),
        ("Fabric/Health/Incorrect Configuration",),
        ("fabric.health.incorrect_configuration",),
    ),
)
# Up to driver 575; later ones print a sentence about deprecation in their place.
RESET_REQUIRED = (
    "reset_required",
    "yes",
    ("gpu_reset_status/reset_required",),
    ("GPU Reset Status/Reset Required",),
    ("reset_status.reset_required",),
)
DRAIN_AND_RESET = (
    "drain_and_reset_recommended",
    "yes",
    ("gpu_reset_status/drain_and_reset_recommended",),
    ("GPU Reset Status/Drain and Reset Recommended",),
    ("reset_status.drain_and_reset_recommended",),
)
# By the word of the contract; CSV has a column each, or all as bits in the first.
CLOCKS_EVENT_BITS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
CLOCKS_EVENT_GROUPS = (
    (),
    (),
    ("clocks_event_reasons", "clocks_throttle_reasons"),
    ("Clocks Event Reasons", "Clocks Throttle Reasons"),
    (),
)
# Ends of names that are not the contract's word.
CLOCKS_EVENT_WORDS = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}
CLOCKS_EVENT_PREFIXES = (
    "clocks_event_reason_",
    "clocks_throttle_reason_",
    "clocks_event_reasons.",
    "clocks_throttle_reasons.",
)
# (XML, text) of one process, and of one MIG device.
PROCESS_XML = {"pid": "pid", "type": "type", "command": "process_name", "memory": "used_memory"}
PROCESS_TEXT = {"pid": "Process ID", "type": "Type", "command": "Name", "memory": "Used GPU Memory"}
PROCESS_CSV = {
    "pid": ("pid",),
    "command": ("process_name", "name"),
    "memory": ("used_gpu_memory", "used_memory"),
}
MIG_DEVICE: Tuple[Field, ...] = (
    ("uuid", "uuid", ("uuid",), ("UUID", "MIG UUID"), ()),
    ("gpu_instance", "count", ("gpu_instance_id",), ("GPU Instance ID",), ()),
    ("compute_instance", "count", ("compute_instance_id",), ("Compute Instance ID",), ()),
    (
        "memory_total_mib",
        "mib",
        ("fb_memory_usage/total",),
        ("Shared FB Memory Usage/Total", "FB Memory Usage/Total"),
        (),
    ),
)
