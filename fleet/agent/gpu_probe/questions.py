"""What is asked of NVML: which function fills which field of a Device (:mod:`.device`).

Pure data: (paths it fills, functions, arguments after the handle). Of several functions the first is the
newest; the next is called where the library has not got it (drivers 418 to 620), or where it says that it
does not know the version of the structure. A whole number in ``functions`` is a field of
nvmlDeviceGetFieldValues. The answers are read in :mod:`.readers`; what is asked per NVLink, per pair of GPUs
and of the library itself has lists of its own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Tuple, Union

    Question = Tuple[Tuple[str, ...], Tuple[Union[str, int], ...], Tuple[int, ...]]

# Fields of nvmlDeviceGetFieldValues, by nvml.h's NVML_FI_DEV_*.
MEMORY_TEMP = 82
NVLINK_SPEED_MBPS_L0 = 84  # to L5
NVLINK_SPEED_MBPS_L6 = 132  # to L11
NVLINK_SPEED_MBPS_COMMON = 90
NVLINK_GET_SPEED = 164  # the link is the scope
GPU_RECOVERY_ACTION = 230

NVLINK_MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS; older libraries refuse the upper ones as invalid arguments

# Asked once, before any GPU.
SYSTEM = (
    ("driver_version", "nvmlSystemGetDriverVersion"),
    ("nvml_version", "nvmlSystemGetNVMLVersion"),
    ("cuda_version", "nvmlSystemGetCudaDriverVersion_v2"),
)
# How the GPUs are found, and which is which.
ENUMERATION = (
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo_v3",
)

_IDENTITY: Tuple[Question, ...] = (
    (("index",), ("nvmlDeviceGetIndex",), ()),
    (("minor",), ("nvmlDeviceGetMinorNumber",), ()),
    (("uuid",), ("nvmlDeviceGetUUID",), ()),
    (("serial",), ("nvmlDeviceGetSerial",), ()),
    (("name",), ("nvmlDeviceGetName",), ()),
    (("brand",), ("nvmlDeviceGetBrand",), ()),
    (("architecture",), ("nvmlDeviceGetArchitecture",), ()),
    (("compute_capability",), ("nvmlDeviceGetCudaComputeCapability",), ()),
    (
        ("printed_address", "device_id", "subsystem_vendor_id", "subsystem_id"),
        ("nvmlDeviceGetPciInfo_v3",),
        (),
    ),
    (("board_id",), ("nvmlDeviceGetBoardId",), ()),
    (("board_part_number",), ("nvmlDeviceGetBoardPartNumber",), ()),
    (("vbios_version",), ("nvmlDeviceGetVbiosVersion",), ()),
    (("inforom_image_version",), ("nvmlDeviceGetInforomImageVersion",), ()),
    (("inforom_oem_version",), ("nvmlDeviceGetInforomVersion",), (0,)),
    (("inforom_ecc_version",), ("nvmlDeviceGetInforomVersion",), (1,)),
    (("inforom_power_version",), ("nvmlDeviceGetInforomVersion",), (2,)),
    (("gsp_firmware_version",), ("nvmlDeviceGetGspFirmwareVersion",), ()),
    (("gsp_firmware_enabled",), ("nvmlDeviceGetGspFirmwareMode",), ()),
    (("module_id",), ("nvmlDeviceGetModuleId",), ()),
)

_MEMORY: Tuple[Question, ...] = (
    (
        ("memory_total_mib", "memory_used_mib", "memory_free_mib", "memory_reserved_mib"),
        ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
        (),
    ),
    (("bar1_total_mib", "bar1_used_mib"), ("nvmlDeviceGetBAR1MemoryInfo",), ()),
)

# The last argument: NVML_CLOCK_GRAPHICS, SM, MEM, VIDEO.
_CLOCKS: Tuple[Question, ...] = (
    (("graphics_clock_mhz",), ("nvmlDeviceGetClockInfo",), (0,)),
    (("sm_clock_mhz",), ("nvmlDeviceGetClockInfo",), (1,)),
    (("memory_clock_mhz",), ("nvmlDeviceGetClockInfo",), (2,)),
    (("video_clock_mhz",), ("nvmlDeviceGetClockInfo",), (3,)),
    (("max_graphics_clock_mhz",), ("nvmlDeviceGetMaxClockInfo",), (0,)),
    (("max_sm_clock_mhz",), ("nvmlDeviceGetMaxClockInfo",), (1,)),
    (("max_memory_clock_mhz",), ("nvmlDeviceGetMaxClockInfo",), (2,)),
    (("max_video_clock_mhz",), ("nvmlDeviceGetMaxClockInfo",), (3,)),
    (("performance_state",), ("nvmlDeviceGetPerformanceState",), ()),
    (
        ("clocks_event_reasons",),
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        (),
    ),
)

_POWER_AND_HEAT: Tuple[Question, ...] = (
    (("power_draw_w",), ("nvmlDeviceGetPowerUsage",), ()),
    (("power_limit_w",), ("nvmlDeviceGetPowerManagementLimit",), ()),
    (("power_limit_default_w",), ("nvmlDeviceGetPowerManagementDefaultLimit",), ()),
    (("power_limit_min_w", "power_limit_max_w"), ("nvmlDeviceGetPowerManagementLimitConstraints",), ()),
    (("power_limit_enforced_w",), ("nvmlDeviceGetEnforcedPowerLimit",), ()),
    (("energy_mj",), ("nvmlDeviceGetTotalEnergyConsumption",), ()),
    # NVML_TEMPERATURE_GPU
    (("temperature_c",), ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), (0,)),
    (("memory_temperature_c",), (MEMORY_TEMP,), ()),
    (("temperature_margin_c",), ("nvmlDeviceGetMarginTemperature",), ()),
    # NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, SHUTDOWN, GPU_MAX
    (("temperature_slowdown_c",), ("nvmlDeviceGetTemperatureThreshold",), (1,)),
    (("temperature_shutdown_c",), ("nvmlDeviceGetTemperatureThreshold",), (0,)),
    (("temperature_max_operating_c",), ("nvmlDeviceGetTemperatureThreshold",), (3,)),
    (("fan_speed_percent",), ("nvmlDeviceGetFanSpeed",), ()),
    (("gpu_utilization_percent", "memory_utilization_percent"), ("nvmlDeviceGetUtilizationRates",), ()),
)

# Arguments: NVML_MEMORY_ERROR_TYPE_CORRECTED or UNCORRECTED, NVML_VOLATILE_ECC or AGGREGATE_ECC, and of the
# counters by place NVML_MEMORY_LOCATION_SRAM (7) or DRAM (2).
_ERRORS: Tuple[Question, ...] = (
    (("ecc_mode", "ecc_mode_pending"), ("nvmlDeviceGetEccMode",), ()),
    (("ecc.volatile_corrected",), ("nvmlDeviceGetTotalEccErrors",), (0, 0)),
    (("ecc.volatile_uncorrected",), ("nvmlDeviceGetTotalEccErrors",), (1, 0)),
    (("ecc.aggregate_corrected",), ("nvmlDeviceGetTotalEccErrors",), (0, 1)),
    (("ecc.aggregate_uncorrected",), ("nvmlDeviceGetTotalEccErrors",), (1, 1)),
    (("ecc.volatile_sram_uncorrected",), ("nvmlDeviceGetMemoryErrorCounter",), (1, 0, 7)),
    (("ecc.aggregate_sram_uncorrected",), ("nvmlDeviceGetMemoryErrorCounter",), (1, 1, 7)),
    (("ecc.volatile_dram_uncorrected",), ("nvmlDeviceGetMemoryErrorCounter",), (1, 0, 2)),
    (("ecc.aggregate_dram_uncorrected",), ("nvmlDeviceGetMemoryErrorCounter",), (1, 1, 2)),
    (("ecc.sram_threshold_exceeded",), ("nvmlDeviceGetSramEccErrorStatus",), ()),
    # NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, DOUBLE_BIT_ECC_ERROR
    (("retired_pages.single_bit",), ("nvmlDeviceGetRetiredPages_v2", "nvmlDeviceGetRetiredPages"), (0,)),
    (("retired_pages.double_bit",), ("nvmlDeviceGetRetiredPages_v2", "nvmlDeviceGetRetiredPages"), (1,)),
    (("retired_pages.pending",), ("nvmlDeviceGetRetiredPagesPendingStatus",), ()),
    (
        (
            "remapped_rows.corrected",
            "remapped_rows.uncorrected",
            "remapped_rows.pending",
            "remapped_rows.failure",
        ),
        ("nvmlDeviceGetRemappedRows",),
        (),
    ),
    (("remapped_rows.histogram",), ("nvmlDeviceGetRowRemapperHistogram",), ()),
    (("recovery_action",), (GPU_RECOVERY_ACTION,), ()),
)

_LINKS: Tuple[Question, ...] = (
    (("pcie.generation",), ("nvmlDeviceGetCurrPcieLinkGeneration",), ()),
    (("pcie.width",), ("nvmlDeviceGetCurrPcieLinkWidth",), ()),
    (("pcie.generation_max_gpu",), ("nvmlDeviceGetGpuMaxPcieLinkGeneration",), ()),
    (("pcie.generation_max",), ("nvmlDeviceGetMaxPcieLinkGeneration",), ()),
    (("pcie.width_max",), ("nvmlDeviceGetMaxPcieLinkWidth",), ()),
    (("pcie.replays",), ("nvmlDeviceGetPcieReplayCounter",), ()),
    (
        ("fabric.state", "fabric.status", "fabric.cluster_uuid", "fabric.clique_id", "fabric.health"),
        ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"),
        (),
    ),
)

_MODES: Tuple[Question, ...] = (
    (("mig.mode", "mig.mode_pending"), ("nvmlDeviceGetMigMode",), ()),
    (("mig.max_devices",), ("nvmlDeviceGetMaxMigDeviceCount",), ()),
    (("cpu_affinity",), ("nvmlDeviceGetCpuAffinity",), ()),
    (("persistence_mode",), ("nvmlDeviceGetPersistenceMode",), ()),
    (("compute_mode",), ("nvmlDeviceGetComputeMode",), ()),
    (("virtualization_mode",), ("nvmlDeviceGetVirtualizationMode",), ()),
)

# One path, one or more functions each; asked one after the other.
QUESTIONS: Tuple[Question, ...] = (
    *_IDENTITY,
    *_MODES,
    *_MEMORY,
    *_CLOCKS,
    *_POWER_AND_HEAT,
    *_ERRORS,
    *_LINKS,
)

# The path ``processes``: one question per kind.
PROCESSES = (
    (
        "compute",
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        ),
    ),
    (
        "graphics",
        (
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v2",
        ),
    ),
    (
        "mps",
        (
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        ),
    ),
)

# The path ``nvlinks``, per link: (key, functions, argument after the link). The speed is read of fields.
NVLINK_STATE = "nvmlDeviceGetNvLinkState"
NVLINK = (
    ("version", ("nvmlDeviceGetNvLinkVersion",), ()),
    ("remote_type", ("nvmlDeviceGetNvLinkRemoteDeviceType",), ()),
    ("remote_address", ("nvmlDeviceGetNvLinkRemotePciInfo",), ()),
    # NVML_NVLINK_ERROR_DL_REPLAY, RECOVERY, CRC_FLIT, CRC_DATA
    ("replay_errors", ("nvmlDeviceGetNvLinkErrorCounter",), (0,)),
    ("recovery_errors", ("nvmlDeviceGetNvLinkErrorCounter",), (1,)),
    ("crc_flit_errors", ("nvmlDeviceGetNvLinkErrorCounter",), (2,)),
    ("crc_data_errors", ("nvmlDeviceGetNvLinkErrorCounter",), (3,)),
)

# ``mig.devices``, per device of nvmlDeviceGetMigDeviceHandleByIndex.
MIG_DEVICE = (
    ("uuid", "nvmlDeviceGetUUID"),
    ("profile", "nvmlDeviceGetName"),
    ("gpu_instance", "nvmlDeviceGetGpuInstanceId"),
    ("compute_instance", "nvmlDeviceGetComputeInstanceId"),
    ("memory_total_mib", "nvmlDeviceGetMemoryInfo"),
)

# ``topology``, per pair of GPUs.
TOPOLOGY = ("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus")

# No function of NVML tells these: reason ``not_collected``, or the host's own files (sysfs) fill them.
NOT_ASKED = ("gpu_part_number", "numa_node", "pcie.generation_max_host")
