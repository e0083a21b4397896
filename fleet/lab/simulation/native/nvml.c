/* libnvidia-ml.so.1 of a simulated host: NVML answered from the hardware file and the loaded driver.
 *
 * Compiled once per driver version with -DDRIVER_VERSION and -DCUDA_VERSION (see ../native.py), as the
 * real library belongs to one driver: with another one loaded it answers LIB_RM_VERSION_MISMATCH.
 * Signatures and structures are those of NVIDIA's public nvml.h. A value the hardware lacks is
 * NOT_SUPPORTED; a function that is not here gives FUNCTION_NOT_FOUND in the Python binding.
 */
#include "state.h"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct gpu_handle { int index, mig; } *Device; /* mig: -1, or which MIG device of the GPU */
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
typedef struct { u32 version, domain, bus, device, id, subsystem, base_class, sub_class; char bus_id[32]; } PciInfoExt;
typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } Process;
typedef struct { u32 field, scope; long long timestamp, latency; u32 type; int result; u64 value; } FieldValue;
typedef struct { u32 version; unsigned char cluster[16]; int status; u32 clique; unsigned char state; u32 health; unsigned char summary; } FabricV;
typedef struct { unsigned char cluster[16]; int status; u32 clique; unsigned char state; } Fabric;

#define ANSWER __attribute__((visibility("default"))) int
/* Functions that came with a branch: the libraries of older ones do not export them. */
#define SINCE(branch) SINCE_(branch)
#define SINCE_(branch) SINCE_##branch
#if DRIVER_BRANCH >= 450
#define SINCE_450 ANSWER
#else
#define SINCE_450 int
#endif
#if DRIVER_BRANCH >= 470
#define SINCE_470 ANSWER
#else
#define SINCE_470 int
#endif
#if DRIVER_BRANCH >= 510
#define SINCE_510 ANSWER
#else
#define SINCE_510 int
#endif
#if DRIVER_BRANCH >= 525
#define SINCE_525 ANSWER
#else
#define SINCE_525 int
#endif
#if DRIVER_BRANCH >= 535
#define SINCE_535 ANSWER
#else
#define SINCE_535 int
#endif
#if DRIVER_BRANCH >= 550
#define SINCE_550 ANSWER
#else
#define SINCE_550 int
#endif
#if DRIVER_BRANCH >= 570
#define SINCE_570 ANSWER
#else
#define SINCE_570 int
#endif
#if DRIVER_BRANCH >= 575
#define SINCE_575 ANSWER
#else
#define SINCE_575 int
#endif
#if DRIVER_BRANCH >= 590
#define SINCE_590 ANSWER
#else
#define SINCE_590 int
#endif
#define CURRENT_STATE_OR_RETURN(device)                                                        \
    do {                                                                                       \
        int condition_ = device_condition(device, __func__);                                   \
        if (condition_ != OK)                                                                  \
            return condition_;                                                                 \
    } while (0)

static struct gpu_handle handles[MOST_GPUS], mig_handles[MOST_GPUS * MOST_MIG];
static int initialized;

/* What FUNCTION answers about DEVICE before it looks at anything else. */
static int device_condition(Device device, const char *function)
{
    if (!initialized)
        return UNINITIALIZED;
    if ((device < handles || device >= handles + MOST_GPUS) &&
        (device < mig_handles || device >= mig_handles + MOST_GPUS * MOST_MIG))
        return INVALID_ARGUMENT;
    hang_in(device->index, function);
    return gpu_condition(device->index);
}

/* What is asked of GPUs only. */
static int whole_gpu_condition(Device device, const char *function)
{
    int condition = device_condition(device, function);

    return condition == OK && device->mig >= 0 ? NOT_SUPPORTED : condition;
}

#define answer_number(device, key, scale, number) answer_number_for(__func__, device, key, scale, number)
static int answer_number_for(const char *function, Device device, const char *key, long long scale, u32 *number)
{
    char value[VALUE_SIZE];
    int condition = whole_gpu_condition(device, function);

    if (condition != OK)
        return condition;
    if (number == NULL)
        return INVALID_ARGUMENT;
    if (!gpu_read(device->index, key, value))
        return NOT_SUPPORTED;
    *number = (u32)(state_parse(value) * scale);
    return OK;
}

static int copy_text(const char *text, char *buffer, u32 size)
{
    if (buffer == NULL)
        return INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return OK;
}

#define answer_text(device, key, buffer, size) answer_text_for(__func__, device, key, buffer, size)
static int answer_text_for(const char *function, Device device, const char *key, char *buffer, u32 size)
{
    char value[VALUE_SIZE];
    int condition = whole_gpu_condition(device, function);

    if (condition != OK)
        return condition;
    return gpu_read(device->index, key, value) ? copy_text(value, buffer, size) : NOT_SUPPORTED;
}

/* ---- library and system ------------------------------------------------------------------ */

ANSWER nvmlInit_v2(void)
{
    int gpu, mig, condition = driver_condition(DRIVER_VERSION);

    hang_in(-1, __func__);
    if (condition != OK)
        return condition;
    for (gpu = 0; gpu < MOST_GPUS; gpu++) {
        handles[gpu].index = gpu;
        handles[gpu].mig = -1;
        for (mig = 0; mig < MOST_MIG; mig++) {
            mig_handles[gpu * MOST_MIG + mig].index = gpu;
            mig_handles[gpu * MOST_MIG + mig].mig = mig;
        }
    }
    initialized++;
    return OK;
}
ANSWER nvmlInit(void) { return nvmlInit_v2(); }
ANSWER nvmlInitWithFlags(u32 flags) { (void)flags; return nvmlInit_v2(); }

ANSWER nvmlShutdown(void)
{
    if (!initialized)
        return UNINITIALIZED;
    initialized--;
    return OK;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int error)
{
    switch (error) {
    case OK: return "The operation was successful";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMED_OUT: return "Timeout";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    case DEPRECATED: return "Requested functionality has been deprecated";
    default: return "Unknown Error";
    }
}

ANSWER nvmlSystemGetDriverVersion(char *version, u32 size)
{
    char loaded[VALUE_SIZE];

    if (!initialized)
        return UNINITIALIZED;
    return state_read("loaded.version", loaded) ? copy_text(loaded, version, size) : DRIVER_NOT_LOADED;
}

/* The library says its version with the branch of CUDA before it ("13.580.159.03"). */
ANSWER nvmlSystemGetNVMLVersion(char *version, u32 size)
{
    char text[VALUE_SIZE];

    snprintf(text, sizeof text, "%d.%s", CUDA_VERSION / 1000, DRIVER_VERSION);
    return copy_text(text, version, size);
}

ANSWER nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (version == NULL)
        return INVALID_ARGUMENT;
    *version = CUDA_VERSION;
    return OK;
}
ANSWER nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* ---- finding devices ----------------------------------------------------------------------- */

ANSWER nvmlDeviceGetCount_v2(u32 *count)
{
    int indices[MOST_GPUS];

    if (!initialized)
        return UNINITIALIZED;
    hang_in(-1, __func__);
    hang_if_told(-1);
    *count = (u32)served_gpus(indices);
    return OK;
}
ANSWER nvmlDeviceGetCount(u32 *count) { return nvmlDeviceGetCount_v2(count); }

static int handle_of(int gpu, Device *device)
{
    int condition = gpu_condition(gpu);

    /* A GPU that needs a reset still has a handle; one that is lost or unknown has none. */
    if (condition != OK && condition != RESET_REQUIRED)
        return condition;
    *device = &handles[gpu];
    return OK;
}

ANSWER nvmlDeviceGetHandleByIndex_v2(u32 index, Device *device)
{
    int indices[MOST_GPUS];

    if (!initialized)
        return UNINITIALIZED;
    if (device == NULL || (int)index >= served_gpus(indices))
        return INVALID_ARGUMENT;
    return handle_of(indices[index], device);
}
ANSWER nvmlDeviceGetHandleByIndex(u32 index, Device *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

/* NVML takes 00000000:1B:00.0, 0000:1b:00.0 and 1b:00.0 alike: compare from the end. */
static int same_address(const char *a, const char *b)
{
    size_t x = strlen(a), y = strlen(b), i;
    size_t common = x < y ? x : y;

    for (i = 1; i <= common; i++) {
        char p = a[x - i], q = b[y - i];
        p = p >= 'A' && p <= 'F' ? (char)(p + 32) : p;
        q = q >= 'A' && q <= 'F' ? (char)(q + 32) : q;
        if (p != q)
            return 0;
    }
    return common >= 7;
}

static int handle_by(const char *key, const char *wanted, Device *device)
{
    int indices[MOST_GPUS], count, i;
    char value[VALUE_SIZE];

    if (!initialized)
        return UNINITIALIZED;
    if (wanted == NULL || device == NULL)
        return INVALID_ARGUMENT;
    count = served_gpus(indices);
    for (i = 0; i < count; i++) {
        if (!gpu_read(indices[i], key, value))
            continue;
        if (strcmp(value, wanted) == 0 || (strcmp(key, "pci_address") == 0 && same_address(value, wanted)))
            return handle_of(indices[i], device);
    }
    return NOT_FOUND;
}

static int mig_handle_by_uuid(const char *uuid, Device *device)
{
    int indices[MOST_GPUS], migs[MOST_MIG], count, found, i, j;
    char value[VALUE_SIZE];

    if (!initialized)
        return UNINITIALIZED;
    count = served_gpus(indices);
    for (i = 0; i < count; i++) {
        found = visible_migs(indices[i], migs);
        for (j = 0; j < found; j++)
            if (mig_read(indices[i], migs[j], "uuid", value) && strcmp(value, uuid) == 0) {
                *device = &mig_handles[indices[i] * MOST_MIG + migs[j]];
                return OK;
            }
    }
    return NOT_FOUND;
}

ANSWER nvmlDeviceGetHandleByUUID(const char *uuid, Device *device)
{
    if (uuid != NULL && device != NULL && strncmp(uuid, "MIG-", 4) == 0)
        return mig_handle_by_uuid(uuid, device);
    return handle_by("uuid", uuid, device);
}
ANSWER nvmlDeviceGetHandleBySerial(const char *serial, Device *device) { return handle_by("serial", serial, device); }
ANSWER nvmlDeviceGetHandleByPciBusId_v2(const char *address, Device *device) { return handle_by("pci_address", address, device); }
ANSWER nvmlDeviceGetHandleByPciBusId(const char *address, Device *device) { return handle_by("pci_address", address, device); }

ANSWER nvmlDeviceGetIndex(Device device, u32 *index)
{
    int indices[MOST_GPUS], count, i;

    CURRENT_STATE_OR_RETURN(device);
    if (device->mig >= 0)
        return NOT_SUPPORTED;
    count = served_gpus(indices);
    for (i = 0; i < count; i++)
        if (indices[i] == device->index) {
            *index = (u32)i;
            return OK;
        }
    return NOT_FOUND;
}

/* ---- identity -------------------------------------------------------------------------------- */

#define TEXT(function, key) \
    ANSWER function(Device device, char *text, u32 size) { return answer_text(device, key, text, size); }
#define NUMBER(function, key, scale) NUMBER_SINCE(ANSWER, function, key, scale)
#define NUMBER_SINCE(since, function, key, scale) \
    since function(Device device, u32 *number) { return answer_number(device, key, scale, number); }

ANSWER nvmlDeviceGetName(Device device, char *text, u32 size)
{
    char name[VALUE_SIZE], profile[VALUE_SIZE], full[VALUE_SIZE];

    CURRENT_STATE_OR_RETURN(device);
    if (device->mig < 0)
        return answer_text(device, "name", text, size);
    if (!gpu_read(device->index, "name", name) || !mig_read(device->index, device->mig, "profile", profile))
        return NOT_SUPPORTED;
    snprintf(full, sizeof full, "%.120s MIG %.100s", name, profile);
    return copy_text(full, text, size);
}

ANSWER nvmlDeviceGetUUID(Device device, char *text, u32 size)
{
    char uuid[VALUE_SIZE];

    CURRENT_STATE_OR_RETURN(device);
    if (device->mig < 0)
        return answer_text(device, "uuid", text, size);
    return mig_read(device->index, device->mig, "uuid", uuid) ? copy_text(uuid, text, size) : NOT_SUPPORTED;
}

TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom_image")

ANSWER nvmlDeviceGetInforomVersion(Device device, int object, char *text, u32 size)
{
    static const char *keys[] = {"inforom_oem", "inforom_ecc", "inforom_power"};

    return object >= 0 && object <= 2 ? answer_text(device, keys[object], text, size) : INVALID_ARGUMENT;
}
NUMBER(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board", 1)
NUMBER_SINCE(SINCE(470), nvmlDeviceGetMemoryBusWidth, "memory_bus_bits", 1)
NUMBER_SINCE(SINCE(535), nvmlDeviceGetModuleId, "module_id", 1)
NUMBER_SINCE(SINCE(470), nvmlDeviceGetNumGpuCores, "cores", 1)

ANSWER nvmlDeviceGetMinorNumber(Device device, u32 *minor)
{
    CURRENT_STATE_OR_RETURN(device);
    *minor = (u32)device->index;
    return OK;
}

ANSWER nvmlDeviceGetBrand(Device device, u32 *brand)
{
    char name[VALUE_SIZE];

    CURRENT_STATE_OR_RETURN(device);
    if (!gpu_read(device->index, "brand", name))
        return NOT_SUPPORTED;
    *brand = strcmp(name, "Tesla") == 0 ? 2 : strcmp(name, "GeForce") == 0 ? 5 : strcmp(name, "NVIDIA") == 0 ? 14 : 0;
    return OK;
}

SINCE(450) nvmlDeviceGetArchitecture(Device device, u32 *number)
{
    static const char *names[] = {"", "", "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"};
    char name[VALUE_SIZE];
    u32 i;

    CURRENT_STATE_OR_RETURN(device);
    if (!gpu_read(device->index, "architecture", name))
        return NOT_SUPPORTED;
    for (i = 2; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *number = i;
            return OK;
        }
    *number = 0xffffffffu;
    return OK;
}

ANSWER nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    CURRENT_STATE_OR_RETURN(device);
    *major = (int)gpu_number(device->index, "cc_major", 0);
    *minor = (int)gpu_number(device->index, "cc_minor", 0);
    return OK;
}

static u32 hexadecimal(const char *text, size_t digits)
{
    u32 number = 0;

    for (; digits > 0 && *text; digits--, text++) {
        char c = *text;
        number = number * 16 + (u32)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return number;
}

static void pci_address_info(char *address, PciInfo *info)
{
    size_t i;

    memset(info, 0, sizeof *info);
    for (i = 0; address[i]; i++)
        address[i] = address[i] >= 'a' && address[i] <= 'f' ? (char)(address[i] - 32) : address[i];
    snprintf(info->legacy, sizeof info->legacy, "%.12s", address);
    snprintf(info->bus_id, sizeof info->bus_id, "0000%.12s", address);
    info->domain = hexadecimal(address, 4);
    info->bus = hexadecimal(address + 5, 2);
    info->device = hexadecimal(address + 8, 2);
}

static int pci_info(int gpu, PciInfo *info)
{
    char address[VALUE_SIZE], value[VALUE_SIZE];

    if (!gpu_read(gpu, "pci_address", address))
        return UNKNOWN;
    pci_address_info(address, info);
    info->id = gpu_read(gpu, "pci_device_id", value) ? hexadecimal(value, 8) : 0;
    info->subsystem = gpu_read(gpu, "pci_subsystem_id", value) ? hexadecimal(value, 8) : 0;
    return OK;
}

ANSWER nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info)
{
    CURRENT_STATE_OR_RETURN(device);
    return pci_info(device->index, info);
}
ANSWER nvmlDeviceGetPciInfo_v2(Device device, PciInfo *info) { return nvmlDeviceGetPciInfo_v3(device, info); }
ANSWER nvmlDeviceGetPciInfo(Device device, PciInfo *info) { return nvmlDeviceGetPciInfo_v3(device, info); }

SINCE(535) nvmlDeviceGetPciInfoExt(Device device, PciInfoExt *ext)
{
    PciInfo info;
    char kind[VALUE_SIZE];
    int result = nvmlDeviceGetPciInfo_v3(device, &info);

    if (result != OK)
        return result;
    ext->domain = info.domain, ext->bus = info.bus, ext->device = info.device;
    ext->id = info.id, ext->subsystem = info.subsystem;
    ext->base_class = gpu_read(device->index, "pci_class", kind) ? hexadecimal(kind, 2) : 0;
    ext->sub_class = ext->base_class ? hexadecimal(kind + 2, 2) : 0;
    memcpy(ext->bus_id, info.bus_id, sizeof ext->bus_id);
    return OK;
}

/* A board is where its bridge is: bus and device of its address. */
ANSWER nvmlDeviceGetBoardId(Device device, u32 *board)
{
    PciInfo info;
    int result = whole_gpu_condition(device, __func__);

    if (result == OK && (result = nvmlDeviceGetPciInfo_v3(device, &info)) == OK)
        *board = info.bus << 8 | info.device;
    return result;
}

typedef struct { u32 version; char guid[16], chassis[16]; unsigned char slot, tray, host, peer, module; } PlatformV2;
SINCE(570) nvmlDeviceGetPlatformInfo(Device device, PlatformV2 *platform)
{
    u32 module;
    int result = answer_number(device, "module_id", 1, &module);

    if (result != OK)
        return result;
    if (platform->version >> 24 != 1 && platform->version >> 24 != 2)
        return ARGUMENT_VERSION_MISMATCH;
    memset((char *)platform + sizeof platform->version, 0, sizeof *platform - sizeof platform->version);
    platform->module = (unsigned char)module;
    return OK;
}

/* ---- memory, heat, power, clocks -------------------------------------------------------------- */

SINCE(510) nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *memory)
{
    const u64 mib = 1024 * 1024;

    CURRENT_STATE_OR_RETURN(device);
    if (memory->version != ((2u << 24) | (u32)sizeof *memory))
        return ARGUMENT_VERSION_MISMATCH;
    if (device->mig >= 0) {
        memory->total = memory->free = (u64)mig_number(device->index, device->mig, "memory_mib") * mib;
        memory->reserved = memory->used = 0;
        return OK;
    }
    memory->total = (u64)gpu_number(device->index, "memory_mib", 0) * mib;
    memory->reserved = (u64)gpu_number(device->index, "memory_reserved_mib", 0) * mib;
    memory->used = (u64)gpu_number(device->index, "memory_used_mib", 0) * mib;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

/* The first version counts what the driver keeps for itself as used. */
ANSWER nvmlDeviceGetMemoryInfo(Device device, Memory *memory)
{
    MemoryV2 full;
    int result;

    full.version = (2u << 24) | (u32)sizeof full;
    result = nvmlDeviceGetMemoryInfo_v2(device, &full);
    if (result == OK)
        memory->total = full.total, memory->free = full.free, memory->used = full.total - full.free;
    return result;
}

ANSWER nvmlDeviceGetBAR1MemoryInfo(Device device, Memory *memory)
{
    CURRENT_STATE_OR_RETURN(device);
    memory->total = (u64)gpu_number(device->index, "bar1_mib", 256) * 1024 * 1024;
    memory->used = 1024 * 1024;
    memory->free = memory->total - memory->used;
    return OK;
}

NUMBER(nvmlDeviceGetPowerUsage, "power_draw_mw", 1)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_mw", 1)
NUMBER(nvmlDeviceGetFanSpeed, "fan_percent", 1)
ANSWER nvmlDeviceGetFanSpeed_v2(Device device, u32 fan, u32 *percent)
{
    return fan == 0 ? answer_number(device, "fan_percent", 1, percent) : INVALID_ARGUMENT;
}
SINCE(470) nvmlDeviceGetNumFans(Device device, u32 *fans)
{
    CURRENT_STATE_OR_RETURN(device);
    *fans = gpu_number(device->index, "fan_percent", -1) >= 0;
    return OK;
}
ANSWER nvmlDeviceGetPowerManagementMode(Device device, u32 *mode)
{
    CURRENT_STATE_OR_RETURN(device);
    *mode = gpu_number(device->index, "power_limit_mw", 0) > 0;
    return *mode ? OK : NOT_SUPPORTED;
}
NUMBER(nvmlDeviceGetPerformanceState, "performance_state", 1)
NUMBER(nvmlDeviceGetPowerState, "performance_state", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_gen", 1)
NUMBER_SINCE(SINCE(525), nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gpu_gen", 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width", 1)

ANSWER nvmlDeviceGetPcieReplayCounter(Device device, u32 *count)
{
    CURRENT_STATE_OR_RETURN(device);
    *count = (u32)gpu_number(device->index, "pcie_replays", 0);
    return OK;
}

ANSWER nvmlDeviceGetPowerManagementLimit(Device device, u32 *milliwatts)
{
    if (answer_number(device, "power_set_mw", 1, milliwatts) == OK)
        return OK;
    return answer_number(device, "power_limit_mw", 1, milliwatts);
}
ANSWER nvmlDeviceGetEnforcedPowerLimit(Device device, u32 *milliwatts) { return nvmlDeviceGetPowerManagementLimit(device, milliwatts); }

ANSWER nvmlDeviceGetPowerManagementLimitConstraints(Device device, u32 *least, u32 *most)
{
    int result = answer_number(device, "power_min_mw", 1, least);

    return result == OK ? answer_number(device, "power_max_mw", 1, most) : result;
}

ANSWER nvmlDeviceGetTotalEnergyConsumption(Device device, u64 *millijoules)
{
    CURRENT_STATE_OR_RETURN(device);
    *millijoules = (u64)gpu_number(device->index, "energy_mj", 0);
    return OK;
}

ANSWER nvmlDeviceGetTemperature(Device device, int sensor, u32 *celsius)
{
    return sensor == 0 ? answer_number(device, "temperature_celsius", 1, celsius) : INVALID_ARGUMENT;
}

typedef struct { u32 version; int sensor, celsius; } TemperatureV1;
SINCE(575) nvmlDeviceGetTemperatureV(Device device, TemperatureV1 *temperature)
{
    return nvmlDeviceGetTemperature(device, temperature->sensor, (u32 *)&temperature->celsius);
}

typedef struct { u32 version; int celsius; } MarginV1;
SINCE(570) nvmlDeviceGetMarginTemperature(Device device, MarginV1 *margin)
{
    return answer_number(device, "temperature_margin_celsius", 1, (u32 *)&margin->celsius);
}

/* Hopper and Ada have relative limits only; the older absolute ones are not supported there. */
ANSWER nvmlDeviceGetTemperatureThreshold(Device device, int threshold, u32 *celsius)
{
    static const char *keys[] = {"shutdown_celsius", "slowdown_celsius", "memory_max_celsius", "max_operating_celsius"};

    CURRENT_STATE_OR_RETURN(device);
    if (threshold == 5) /* the temperature that the fan's control aims at */
        return answer_number(device, "target_celsius", 1, celsius);
    return threshold >= 0 && threshold <= 3 ? answer_number(device, keys[threshold], 1, celsius) : NOT_SUPPORTED;
}

static int answer_clock(const char *function, Device device, const char *kind, int clock, u32 *megahertz)
{
    static const char *names[] = {"graphics", "sm", "memory", "video"};
    char key[64];

    if (clock < 0 || clock > 3)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s_%s_mhz", kind, names[clock]);
    return answer_number_for(function, device, key, 1, megahertz);
}
ANSWER nvmlDeviceGetClockInfo(Device device, int clock, u32 *mhz) { return answer_clock(__func__, device, "clock", clock, mhz); }
ANSWER nvmlDeviceGetMaxClockInfo(Device device, int clock, u32 *mhz) { return answer_clock(__func__, device, "max_clock", clock, mhz); }
/* Graphics cards have none, and the branch 590 has none any more. They are the highest clocks. */
ANSWER nvmlDeviceGetApplicationsClock(Device device, int clock, u32 *mhz)
{
    CURRENT_STATE_OR_RETURN(device);
    if (DRIVER_BRANCH >= 590)
        return DEPRECATED;
    return gpu_number(device->index, "ecc", -1) < 0 ? NOT_SUPPORTED : answer_clock(__func__, device, "max_clock", clock, mhz);
}
ANSWER nvmlDeviceGetDefaultApplicationsClock(Device device, int clock, u32 *mhz) { return nvmlDeviceGetApplicationsClock(device, clock, mhz); }
ANSWER nvmlDeviceGetMaxCustomerBoostClock(Device device, int clock, u32 *mhz) { return answer_clock(__func__, device, "max_clock", clock, mhz); }
ANSWER nvmlDeviceGetClock(Device device, int clock, int kind, u32 *mhz)
{
    return kind == 0 ? nvmlDeviceGetClockInfo(device, clock, mhz) : nvmlDeviceGetApplicationsClock(device, clock, mhz);
}

SINCE(535) nvmlDeviceGetCurrentClocksEventReasons(Device device, u64 *mask)
{
    CURRENT_STATE_OR_RETURN(device);
    *mask = (u64)gpu_number(device->index, "clocks_event_reasons", 1);
    return OK;
}
ANSWER nvmlDeviceGetCurrentClocksThrottleReasons(Device device, u64 *mask) { return nvmlDeviceGetCurrentClocksEventReasons(device, mask); }
SINCE(535) nvmlDeviceGetSupportedClocksEventReasons(Device device, u64 *mask)
{
    CURRENT_STATE_OR_RETURN(device);
    *mask = 0x1ff;
    return OK;
}

ANSWER nvmlDeviceGetUtilizationRates(Device device, u32 utilization[2])
{
    CURRENT_STATE_OR_RETURN(device);
    if (device->mig >= 0 || gpu_number(device->index, "mig", 0))
        return NOT_SUPPORTED;
    utilization[0] = (u32)gpu_number(device->index, "utilization_gpu", 0);
    utilization[1] = (u32)gpu_number(device->index, "utilization_memory", 0);
    return OK;
}

ANSWER nvmlDeviceGetEncoderUtilization(Device device, u32 *utilization, u32 *period)
{
    *period = 1000000;
    return answer_number(device, "utilization_encoder", 1, utilization);
}
ANSWER nvmlDeviceGetDecoderUtilization(Device device, u32 *utilization, u32 *period)
{
    *period = 1000000;
    return answer_number(device, "utilization_decoder", 1, utilization);
}

/* ---- modes ---------------------------------------------------------------------------------------- */

ANSWER nvmlDeviceGetPersistenceMode(Device device, u32 *mode)
{
    CURRENT_STATE_OR_RETURN(device);
    *mode = (u32)gpu_number(device->index, "persistence", state_number("persistence", 0));
    return OK;
}

ANSWER nvmlDeviceGetComputeMode(Device device, u32 *mode)
{
    CURRENT_STATE_OR_RETURN(device);
    *mode = (u32)gpu_number(device->index, "compute_mode", 0);
    return OK;
}

static int answer_pair(const char *function, Device device, const char *current, const char *pending, u32 *a, u32 *b)
{
    int result = answer_number_for(function, device, current, 1, a);

    return result == OK ? answer_number_for(function, device, pending, 1, b) : result;
}
ANSWER nvmlDeviceGetEccMode(Device device, u32 *now, u32 *next) { return answer_pair(__func__, device, "ecc", "ecc_pending", now, next); }
SINCE(450) nvmlDeviceGetMigMode(Device device, u32 *now, u32 *next) { return answer_pair(__func__, device, "mig", "mig_pending", now, next); }

SINCE(450) nvmlDeviceGetMaxMigDeviceCount(Device device, u32 *count)
{
    CURRENT_STATE_OR_RETURN(device);
    *count = gpu_number(device->index, "mig", -1) >= 0 ? 7 : 0;
    return OK;
}

SINCE(450) nvmlDeviceGetMigDeviceHandleByIndex(Device device, u32 index, Device *mig)
{
    int migs[MOST_MIG], count;

    CURRENT_STATE_OR_RETURN(device);
    if (device->mig >= 0 || mig == NULL)
        return INVALID_ARGUMENT;
    if (gpu_number(device->index, "mig", 0) == 0)
        return NOT_SUPPORTED;
    count = visible_migs(device->index, migs);
    if ((int)index >= count)
        return NOT_FOUND;
    *mig = &mig_handles[device->index * MOST_MIG + migs[index]];
    return OK;
}

SINCE(450) nvmlDeviceIsMigDeviceHandle(Device device, u32 *answer)
{
    CURRENT_STATE_OR_RETURN(device);
    *answer = device->mig >= 0;
    return OK;
}

SINCE(450) nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device mig, Device *device)
{
    CURRENT_STATE_OR_RETURN(mig);
    if (mig->mig < 0)
        return INVALID_ARGUMENT;
    *device = &handles[mig->index];
    return OK;
}

static int mig_part(const char *function, Device device, const char *key, u32 *number)
{
    int condition = device_condition(device, function);

    if (condition != OK)
        return condition;
    if (device->mig < 0)
        return NOT_SUPPORTED;
    *number = (u32)mig_number(device->index, device->mig, key);
    return OK;
}
SINCE(450) nvmlDeviceGetGpuInstanceId(Device device, u32 *id) { return mig_part(__func__, device, "gpu_instance", id); }
SINCE(450) nvmlDeviceGetComputeInstanceId(Device device, u32 *id) { return mig_part(__func__, device, "compute_instance", id); }

ANSWER nvmlDeviceGetVirtualizationMode(Device device, u32 *mode)
{
    CURRENT_STATE_OR_RETURN(device);
    *mode = (u32)gpu_number(device->index, "virtualization_mode", 0);
    return OK;
}

SINCE(525) nvmlDeviceGetGspFirmwareMode(Device device, u32 *enabled, u32 *by_default)
{
    char flavour[VALUE_SIZE];

    CURRENT_STATE_OR_RETURN(device);
    *by_default = *enabled = state_read("loaded.flavour", flavour) && strcmp(flavour, "open") == 0;
    return OK;
}

SINCE(525) nvmlDeviceGetGspFirmwareVersion(Device device, char *version)
{
    u32 enabled, by_default;
    int result = nvmlDeviceGetGspFirmwareMode(device, &enabled, &by_default);

    if (result == OK)
        strcpy(version, enabled ? DRIVER_VERSION : "");
    return result;
}

#include "nvml-errors.h"
#include "nvml-links.h"
#include "nvml-processes.h"
