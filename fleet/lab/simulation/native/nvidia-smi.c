/* nvidia-smi of a simulated host: the formats and exit codes of the real one, by driver branch.
 *
 * Statically linked, so that it runs on every host and in every container it is mounted into. Like the
 * real one it needs the NVML library: it reads which version libnvidia-ml.so.1 is a link to.
 */
#include "state.h"
#include <time.h>

static const char *OWN_VERSION = DRIVER_VERSION;

static const char *library_places[] = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.1"};

/* The version of the installed NVML library, from the name of the file that its link leads to. */
static int library_version(char *version)
{
    char resolved[4096];
    const char *given = getenv("FLEET_LAB_GPU_LIBRARY"), *name;
    size_t i;

    for (i = 0; i < sizeof library_places / sizeof *library_places; i++) {
        if (realpath(given ? given : library_places[i], resolved) == NULL)
            continue;
        name = strstr(resolved, "libnvidia-ml.so.");
        name = name ? name + strlen("libnvidia-ml.so.") : "";
        /* In a container the file is mounted under the name of the link. */
        snprintf(version, VALUE_SIZE, "%s", strcmp(name, "1") == 0 ? OWN_VERSION : name);
        return 1;
    }
    return 0;
}

/* Two parts of three, as nvidia-smi writes the version of the library: 580.173.02 is 580.173. */
static void short_version(const char *version, char *text)
{
    size_t first = strcspn(version, "."), second;

    second = version[first] ? first + 1 + strcspn(version + first + 1, ".") : first;
    snprintf(text, VALUE_SIZE, "%.*s", (int)second, version);
}

static int fail_to_start(int condition, const char *library)
{
    char text[VALUE_SIZE];

    if (condition == DRIVER_NOT_LOADED) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
               "Make sure that the latest NVIDIA driver is installed and running.\n\n");
    } else if (condition == LIB_RM_VERSION_MISMATCH) {
        short_version(library, text);
        printf("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: %s\n", text);
    } else {
        printf("Failed to initialize NVML: Unknown Error\n");
        return 255;
    }
    return condition;
}

/* ---- one GPU --------------------------------------------------------------------------------- */

static void bus_id(int gpu, char *text)
{
    char address[VALUE_SIZE];
    size_t i;

    if (!gpu_read(gpu, "pci_address", address))
        snprintf(address, sizeof address, "0000:00:00.0");
    for (i = 0; address[i]; i++)
        address[i] = address[i] >= 'a' && address[i] <= 'f' ? (char)(address[i] - 32) : address[i];
    snprintf(text, 32, "%.16s", address);
}

static const char *condition_text(int condition)
{
    return condition == GPU_IS_LOST      ? "GPU is lost"
           : condition == RESET_REQUIRED ? "GPU requires reset"
                                         : "Unknown Error";
}

/* The sentence in place of a GPU that gives no handle; the exit status that goes with it. */
static int complain(int gpu, int condition)
{
    char address[32];

    bus_id(gpu, address);
    printf("Unable to determine the device handle for GPU%s: %s%s\n", address, condition_text(condition),
           condition == GPU_IS_LOST ? ".  Reboot the system to recover this GPU" : "");
    return condition == GPU_IS_LOST ? 15 : 255;
}

static long long memory_free(int gpu)
{
    return gpu_number(gpu, "memory_mib", 0) - gpu_number(gpu, "memory_reserved_mib", 0) -
           gpu_number(gpu, "memory_used_mib", 0);
}

static long long power_limit(int gpu)
{
    return gpu_number(gpu, "power_set_mw", gpu_number(gpu, "power_limit_mw", 0));
}

static const char *on_off(int gpu, const char *key, const char *on, const char *off, const char *absent)
{
    long long number = gpu_number(gpu, key, -1);

    return number < 0 ? absent : number ? on : off;
}

static const char *compute_mode(int gpu)
{
    static const char *names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};

    return names[gpu_number(gpu, "compute_mode", 0) & 3];
}

static const char *persistence(int gpu, const char *on, const char *off)
{
    return gpu_number(gpu, "persistence", state_number("persistence", 0)) ? on : off;
}

static const char *recovery_action(int gpu)
{
    static const char *names[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain",
                                  "Bus Reset", "System Reboot"};

    return names[gpu_number(gpu, "recovery_action", 0) & 7];
}

/* A call that hangs hangs nvidia-smi where it asks for everything. */
static void hang_in_any(int gpu)
{
    char wanted[VALUE_SIZE];

    while (state_read("hang_in", wanted) || gpu_read(gpu, "hang_in", wanted))
        sleep(1);
}

static void upper(char *text)
{
    for (; *text; text++)
        *text = *text >= 'a' && *text <= 'z' ? (char)(*text - 32) : *text;
}

/* NVML's number of a board: bus and device of "0000:1B:00.0". */
static long long board_of(const char *address)
{
    int i;
    long long number = 0;

    for (i = 5; i < 10; i++)
        if (address[i] != ':')
            number = number * 16 + (address[i] <= '9' ? address[i] - '0' : (address[i] | 32) - 'a' + 10);
    return number;
}

/* What the fabric manager answered, where it is through. */
static const char *fabric_status_text(int gpu)
{
    long long status = gpu_number(gpu, "fabric_status", 0);

    return fabric_state(gpu) != 3        ? "N/A"
           : status == 0                 ? "Success"
           : status == NOT_SUPPORTED     ? "Not Supported"
           : status == INSUFFICIENT_SIZE ? "Insufficient Resources"
                                         : "Unknown Error";
}

static const char *fabric_text(int gpu)
{
    static const char *names[] = {"N/A", "Not Started", "In Progress", "Completed"};

    return names[fabric_state(gpu) & 3];
}

/* ---- --query-gpu --------------------------------------------------------------------------------- */

/* kind: t text, n number with unit, w milliwatts, y Yes/No, e Enabled/Disabled, x hexadecimal id. */
static const struct { const char *field, *key; char kind; const char *unit; int first_branch; } query_fields[] = {
    {"name", "name", 't', "", 0}, {"gpu_name", "name", 't', "", 0}, {"uuid", "uuid", 't', "", 0},
    {"gpu_uuid", "uuid", 't', "", 0}, {"serial", "serial", 't', "", 0}, {"gpu_serial", "serial", 't', "", 0},
    {"vbios_version", "vbios", 't', "", 0}, {"pci.device_id", "pci_device_id", 'x', "", 0},
    {"pci.sub_device_id", "pci_subsystem_id", 'x', "", 0},
    {"memory.total", "memory_mib", 'n', " MiB", 0}, {"memory.reserved", "memory_reserved_mib", 'n', " MiB", 470},
    {"memory.used", "memory_used_mib", 'n', " MiB", 0},
    {"temperature.gpu", "temperature_celsius", 'n', "", 0}, {"temperature.memory", "memory_temperature_celsius", 'n', "", 0},
    {"temperature.gpu.tlimit", "temperature_margin_celsius", 'n', "", 530},
    {"power.draw", "power_draw_mw", 'w', " W", 0}, {"power.draw.average", "power_draw_mw", 'w', " W", 530},
    {"power.draw.instant", "power_draw_mw", 'w', " W", 530},
    {"power.default_limit", "power_limit_mw", 'w', " W", 0}, {"power.min_limit", "power_min_mw", 'w', " W", 0},
    {"power.max_limit", "power_max_mw", 'w', " W", 0},
    {"utilization.gpu", "utilization_gpu", 'n', " %", 0}, {"utilization.memory", "utilization_memory", 'n', " %", 0},
    {"fan.speed", "fan_percent", 'n', " %", 0},
    {"clocks.current.graphics", "clock_graphics_mhz", 'n', " MHz", 0}, {"clocks.gr", "clock_graphics_mhz", 'n', " MHz", 0},
    {"clocks.current.sm", "clock_sm_mhz", 'n', " MHz", 0}, {"clocks.sm", "clock_sm_mhz", 'n', " MHz", 0},
    {"clocks.current.memory", "clock_memory_mhz", 'n', " MHz", 0}, {"clocks.mem", "clock_memory_mhz", 'n', " MHz", 0},
    {"clocks.max.graphics", "max_clock_graphics_mhz", 'n', " MHz", 0}, {"clocks.max.sm", "max_clock_sm_mhz", 'n', " MHz", 0},
    {"clocks.max.memory", "max_clock_memory_mhz", 'n', " MHz", 0},
    {"pcie.link.gen.current", "pcie_gen", 'n', "", 0}, {"pcie.link.gen.max", "pcie_max_gen", 'n', "", 0},
    {"pcie.link.gen.gpumax", "pcie_gpu_gen", 'n', "", 525}, {"pcie.link.gen.hostmax", "pcie_host_gen", 'n', "", 525},
    {"pcie.link.gen.gpucurrent", "pcie_gen", 'n', "", 525},
    {"pcie.link.width.current", "pcie_width", 'n', "", 0}, {"pcie.link.width.max", "pcie_max_width", 'n', "", 0},
    {"ecc.mode.current", "ecc", 'e', "", 0}, {"ecc.mode.pending", "ecc_pending", 'e', "", 0},
    {"mig.mode.current", "mig", 'e', "", 450}, {"mig.mode.pending", "mig_pending", 'e', "", 450},
    {"remapped_rows.correctable", "remap_corrected", 'n', "", 460},
    {"remapped_rows.uncorrectable", "remap_uncorrected", 'n', "", 460},
    {"remapped_rows.pending", "remap_pending", 'y', "", 460}, {"remapped_rows.failure", "remap_failure", 'y', "", 460},
    {"retired_pages.single_bit_ecc.count", "retired_single", 'n', "", 0},
    {"retired_pages.double_bit.count", "retired_double", 'n', "", 0}, {"retired_pages.pending", "retired_pending", 'y', "", 0},
    {"module_id", "module_id", 'n', "", 550}, {"platform.module_id", "module_id", 'n', "", 565},
    {"inforom.img", "inforom_image", 't', "", 0}, {"inforom.oem", "inforom_oem", 't', "", 0},
    {"inforom.ecc", "inforom_ecc", 't', "", 0}, {"inforom.pwr", "inforom_power", 't', "", 0},
    {"clocks.current.video", "clock_video_mhz", 'n', " MHz", 0}, {"clocks.video", "clock_video_mhz", 'n', " MHz", 0},
    {"remapped_rows.histogram.max", "remap_banks", 'n', "", 580}, {"remapped_rows.histogram.high", "remap_high", 'n', "", 580},
    {"remapped_rows.histogram.partial", "remap_partial", 'n', "", 580}, {"remapped_rows.histogram.low", "remap_low", 'n', "", 580},
    {"remapped_rows.histogram.none", "remap_none", 'n', "", 580},
};

/* "ecc.errors.KIND.SINCE.PLACE": totals, the device's memory, SRAM; the caches' own are gone since Turing. */
static int ecc_field(int gpu, const char *field, char *out)
{
    const char *rest = field + strlen("ecc.errors.");
    int kind, counter, place;

    if (strncmp(field, "ecc.errors.", 11) != 0)
        return 0;
    kind = strncmp(rest, "uncorrected.", 12) == 0;
    rest += kind ? 12 : strncmp(rest, "corrected.", 10) == 0 ? 10 : strlen(rest);
    counter = strncmp(rest, "aggregate.", 10) == 0;
    rest += counter ? 10 : strncmp(rest, "volatile.", 9) == 0 ? 9 : strlen(rest);
    place = strcmp(rest, "total") == 0 ? ECC_TOTAL : strcmp(rest, "dram") == 0 || strcmp(rest, "device_memory") == 0 ? ECC_DRAM
            : strcmp(rest, counts_by_cache(gpu) ? "l2_cache" : "sram") == 0 ? ECC_SRAM : -1;
    if (*rest == '\0')
        return 0;
    if (place < 0 || gpu_number(gpu, "ecc", 0) == 0)
        snprintf(out, VALUE_SIZE, "[N/A]");
    else
        snprintf(out, VALUE_SIZE, "%lld", ecc_count(gpu, counter, place, kind));
    return 1;
}

/* "clocks_event_reasons.NAME", before 535 and still after it "clocks_throttle_reasons.NAME". */
static int reason_field(int gpu, const char *field, char *out)
{
    static const struct { const char *name; unsigned bit; } names[] = {
        {"gpu_idle", 1}, {"applications_clocks_setting", 2}, {"sw_power_cap", 4}, {"hw_slowdown", 8}, {"sync_boost", 16},
        {"sw_thermal_slowdown", 32}, {"hw_thermal_slowdown", 64}, {"hw_power_brake_slowdown", 128}};
    const char *name = strchr(field, '.');
    long long mask = gpu_number(gpu, "clocks_event_reasons", 1);
    size_t i;

    if (name == NULL || (strncmp(field, "clocks_throttle_reasons.", 24) != 0 &&
                         (DRIVER_BRANCH < 535 || strncmp(field, "clocks_event_reasons.", 21) != 0)))
        return 0;
    if (strcmp(name + 1, "active") == 0 || strcmp(name + 1, "supported") == 0) {
        snprintf(out, VALUE_SIZE, "0x%016llx", strcmp(name + 1, "active") == 0 ? mask : 0x1ffll);
        return 1;
    }
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name + 1) == 0) {
            snprintf(out, VALUE_SIZE, "%s", mask & names[i].bit ? "Active" : "Not Active");
            return 1;
        }
    return 0;
}

/* Fields that are computed. 1 when FIELD is one of them. */
static int computed_field(int gpu, int position, const char *field, int units, char *out)
{
    char value[VALUE_SIZE];
    int branch = (int)state_parse(OWN_VERSION);

    if (strcmp(field, "index") == 0) {
        snprintf(out, VALUE_SIZE, "%d", position);
    } else if (strcmp(field, "count") == 0) {
        int indices[MOST_GPUS];
        snprintf(out, VALUE_SIZE, "%d", served_gpus(indices));
    } else if (strcmp(field, "driver_version") == 0 || (branch >= 610 && strcmp(field, "kmd_version") == 0)) {
        state_read("loaded.version", out);
    } else if (strcmp(field, "pci.bus_id") == 0 || strcmp(field, "gpu_bus_id") == 0) {
        bus_id(gpu, value);
        snprintf(out, VALUE_SIZE, "0000%.20s", value);
    } else if (strcmp(field, "compute_cap") == 0) {
        snprintf(out, VALUE_SIZE, "%lld.%lld", gpu_number(gpu, "cc_major", 0), gpu_number(gpu, "cc_minor", 0));
    } else if (strcmp(field, "pstate") == 0) {
        snprintf(out, VALUE_SIZE, "P%lld", gpu_number(gpu, "performance_state", 0));
    } else if (strcmp(field, "memory.free") == 0) {
        snprintf(out, VALUE_SIZE, "%lld%s", memory_free(gpu), units ? " MiB" : "");
    } else if (strcmp(field, "power.limit") == 0 || strcmp(field, "enforced.power.limit") == 0) {
        snprintf(out, VALUE_SIZE, "%.2f%s", (double)power_limit(gpu) / 1000, units ? " W" : "");
    } else if (strcmp(field, "persistence_mode") == 0) {
        snprintf(out, VALUE_SIZE, "%s", persistence(gpu, "Enabled", "Disabled"));
    } else if (strcmp(field, "compute_mode") == 0) {
        snprintf(out, VALUE_SIZE, "%s", compute_mode(gpu));
    } else if (strcmp(field, "minor_number") == 0) {
        snprintf(out, VALUE_SIZE, "%d", gpu);
    } else if (strcmp(field, "pci.domain") == 0 || strcmp(field, "pci.bus") == 0 || strcmp(field, "pci.device") == 0) {
        bus_id(gpu, value);
        snprintf(out, VALUE_SIZE, "0x%.*s", field[4] == 'd' && field[5] == 'o' ? 4 : 2, value + (field[4] == 'b' ? 5 : field[5] == 'o' ? 0 : 8));
    } else if (strcmp(field, "gpu_recovery_action") == 0 && branch >= 565) {
        snprintf(out, VALUE_SIZE, "%s", recovery_action(gpu));
    } else if (strcmp(field, "fabric.state") == 0 && branch >= 535) {
        snprintf(out, VALUE_SIZE, "%s", fabric_state(gpu) ? fabric_text(gpu) : "[N/A]");
    } else if (strcmp(field, "fabric.status") == 0 && branch >= 535) {
        snprintf(out, VALUE_SIZE, "%s", fabric_state(gpu) == 3 ? fabric_status_text(gpu) : "[N/A]");
    } else {
        return 0;
    }
    return 1;
}

/* The value of FIELD of one GPU. 0 where the field is none of this driver's. */
static int query_value(int gpu, int position, const char *field, int units, char *out)
{
    char value[VALUE_SIZE];
    size_t i;

    if (computed_field(gpu, position, field, units, out) || ecc_field(gpu, field, out) || reason_field(gpu, field, out))
        return 1;
    for (i = 0; i < sizeof query_fields / sizeof *query_fields; i++) {
        if (strcmp(query_fields[i].field, field) != 0 || state_parse(OWN_VERSION) < query_fields[i].first_branch)
            continue;
        if (!gpu_read(gpu, query_fields[i].key, value) ||
            (gpu_number(gpu, "mig", 0) && (query_fields[i].kind == 'y' || strncmp(field, "utilization", 11) == 0))) {
            snprintf(out, VALUE_SIZE, "[N/A]");
            return 1;
        }
        switch (query_fields[i].kind) {
        case 'w': snprintf(out, VALUE_SIZE, "%.2f%s", (double)state_parse(value) / 1000, units ? " W" : ""); break;
        case 'y': snprintf(out, VALUE_SIZE, "%s", state_parse(value) ? "Yes" : "No"); break;
        case 'e': snprintf(out, VALUE_SIZE, "%s", state_parse(value) ? "Enabled" : "Disabled"); break;
        case 'x': snprintf(out, VALUE_SIZE, "0x%.8s", value); break;
        default: snprintf(out, VALUE_SIZE, "%.200s%s", value, units ? query_fields[i].unit : "");
        }
        return 1;
    }
    return 0;
}

static const char *header_unit(const char *field)
{
    size_t i;

    if (strcmp(field, "memory.free") == 0)
        return " [MiB]";
    if (strcmp(field, "power.limit") == 0 || strcmp(field, "enforced.power.limit") == 0)
        return " [W]";
    for (i = 0; i < sizeof query_fields / sizeof *query_fields; i++)
        if (strcmp(query_fields[i].field, field) == 0)
            return strcmp(query_fields[i].unit, " MiB") == 0   ? " [MiB]"
                   : strcmp(query_fields[i].unit, " W") == 0   ? " [W]"
                   : strcmp(query_fields[i].unit, " %") == 0   ? " [%]"
                   : strcmp(query_fields[i].unit, " MHz") == 0 ? " [MHz]"
                                                               : "";
    return "";
}

static int split(char *list, char *parts[], int room)
{
    int count = 0;

    while (list != NULL && count < room) {
        char *comma = strchr(list, ',');
        if (comma)
            *comma = '\0';
        list += strspn(list, " ");
        parts[count++] = list;
        list = comma ? comma + 1 : NULL;
    }
    return count;
}

static int query_gpus(char *list, const char *format, const int *gpus, const int *positions, int count)
{
    char *parts[256], value[VALUE_SIZE];
    int fields = split(list, parts, 256), i, j, status = 0, units = strstr(format, "nounits") == NULL;

    for (j = 0; j < fields; j++)
        if (!query_value(gpus[0], 0, parts[j], units, value) && strcmp(parts[j], "timestamp") != 0) {
            printf("Field \"%s\" is not a valid field to query.\n\n", parts[j]);
            return 2;
        }
    if (strstr(format, "noheader") == NULL) {
        for (j = 0; j < fields; j++)
            printf("%s%s%s", j ? ", " : "", parts[j], units ? header_unit(parts[j]) : "");
        printf("\n");
    }
    for (i = 0; i < count; i++) {
        int condition = gpu_condition(gpus[i]);
        if (condition != OK && condition != RESET_REQUIRED)
            status = complain(gpus[i], condition);
        for (j = 0; j < fields; j++) {
            if (condition != OK)
                snprintf(value, sizeof value, "[%s]", condition_text(condition));
            else if (strcmp(parts[j], "timestamp") == 0)
                snprintf(value, sizeof value, "2026/01/01 00:00:00.000");
            else
                query_value(gpus[i], positions[i], parts[j], units, value);
            printf("%s%s", j ? ", " : "", value);
        }
        printf("\n");
    }
    return status;
}

/* ---- --query-remapped-rows --------------------------------------------------------------------------- */

static int remapped_rows(char *list, const char *format, const int *gpus, const int *positions, int count)
{
    char *parts[16], value[VALUE_SIZE];
    int fields = split(list, parts, 16), i, j;

    for (j = 0; j < fields; j++)
        if (strncmp(parts[j], "remapped_rows.", 14) != 0 && strncmp(parts[j], "gpu_", 4) != 0 && strcmp(parts[j], "timestamp") != 0) {
            printf("Field \"%s\" is not a valid field to query.\n\n", parts[j]);
            return 2;
        }
    if (strstr(format, "noheader") == NULL) {
        for (j = 0; j < fields; j++)
            printf("%s%s", j ? ", " : "", parts[j]);
        printf("\n");
    }
    for (i = 0; i < count; i++) {
        for (j = 0; j < fields; j++) {
            if (gpu_condition(gpus[i]) != OK)
                snprintf(value, sizeof value, "[%s]", condition_text(gpu_condition(gpus[i])));
            else if (!query_value(gpus[i], positions[i], parts[j], 1, value))
                snprintf(value, sizeof value, "[N/A]");
            printf("%s%s", j ? ", " : "", value);
        }
        printf("\n");
    }
    return 0;
}

/* ---- --query-compute-apps ------------------------------------------------------------------------------ */

struct process { long long pid, mib; const char *kind; };

static int processes_in(int gpu, const char *key, const char *kind, struct process *found, int room)
{
    char value[VALUE_SIZE], path[64];
    const char *text = value;
    int count = 0;

    if (!gpu_read(gpu, key, value))
        return 0;
    while (*text && count < room) {
        found[count].pid = state_parse(text);
        found[count].kind = kind;
        text += strspn(text, "0123456789");
        found[count].mib = *text == ':' ? state_parse(text + 1) : 0;
        text += strcspn(text, ",");
        text += *text == ',';
        snprintf(path, sizeof path, "/proc/%lld", found[count].pid);
        count += access(path, F_OK) == 0;
    }
    return count;
}

/* The processes of a GPU whose pids live; how many were put into FOUND. */
static int processes_of(int gpu, struct process *found, int room)
{
    int count;

    if (gpu_condition(gpu) != OK)
        return 0;
    count = processes_in(gpu, "processes", "C", found, room);
    count += processes_in(gpu, "mps_processes", "M+C", found + count, room - count);
    return count + processes_in(gpu, "graphics_processes", "G", found + count, room - count);
}

/* The name a process has, as far as its command line tells. */
static void process_name(long long pid, char *name)
{
    char path[64];
    FILE *stream;
    size_t length = 0;

    snprintf(path, sizeof path, "/proc/%lld/cmdline", pid);
    stream = fopen(path, "r");
    if (stream != NULL) {
        length = fread(name, 1, VALUE_SIZE - 1, stream);
        fclose(stream);
    }
    name[length] = '\0';
    if (length == 0)
        snprintf(name, VALUE_SIZE, "[Not Found]");
}

static int compute_apps(char *list, const char *format, const int *gpus, int count)
{
    struct process found[64];
    char *parts[16], value[VALUE_SIZE];
    int fields = split(list, parts, 16), i, j, k, units = strstr(format, "nounits") == NULL;

    if (strstr(format, "noheader") == NULL) {
        for (j = 0; j < fields; j++)
            printf("%s%s%s", j ? ", " : "", parts[j], units && strstr(parts[j], "memory") ? " [MiB]" : "");
        printf("\n");
    }
    for (i = 0; i < count; i++) {
        int all = processes_of(gpus[i], found, 64);
        for (k = 0; k < all; k++) {
            if (strcmp(found[k].kind, "G") == 0)
                continue;
            for (j = 0; j < fields; j++) {
                if (strcmp(parts[j], "pid") == 0)
                    snprintf(value, sizeof value, "%lld", found[k].pid);
                else if (strstr(parts[j], "memory"))
                    snprintf(value, sizeof value, "%lld%s", found[k].mib, units ? " MiB" : "");
                else if (strncmp(parts[j], "gpu_", 4) == 0)
                    query_value(gpus[i], i, parts[j], 1, value);
                else
                    process_name(found[k].pid, value);
                printf("%s%s", j ? ", " : "", value);
            }
            printf("\n");
        }
    }
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------------------- */

static void print_name(const char *name, int width, char *out)
{
    if ((int)strlen(name) <= width)
        snprintf(out, VALUE_SIZE, "%-*s", width, name);
    else
        snprintf(out, VALUE_SIZE, "%.*s ...", width - 4, name);
}

static void table_row(int gpu, int position)
{
    char name[VALUE_SIZE], shown[VALUE_SIZE], bus[32], fan[16], ecc[16], use[16];

    bus_id(gpu, bus);
    if (gpu_condition(gpu) != OK) {
        printf("| %3d  ERR!                           %-3s |   0000%s Off |                 ERR! |\n", position,
               persistence(gpu, "On", "Off"), bus);
        printf("|ERR!  ERR! ERR!              ERR! / ERR! | %7sMiB / %6lldMiB |    ERR!      Default |\n", "0",
               gpu_number(gpu, "memory_mib", 0));
        printf("|                                         |                        |                 ERR! |\n");
        return;
    }
    gpu_read(gpu, "name", name);
    print_name(name, 27, shown);
    snprintf(ecc, sizeof ecc, "%lld", ecc_count(gpu, 0, ECC_TOTAL, 1));
    snprintf(fan, sizeof fan, "%lld%%", gpu_number(gpu, "fan_percent", 0));
    printf("| %3d  %s    %-3s |   0000%s Off | %20s |\n", position, shown, persistence(gpu, "On", "Off"), bus,
           gpu_number(gpu, "ecc", 0) ? ecc : gpu_number(gpu, "ecc", -1) == 0 ? "Off" : "N/A");
    if (gpu_number(gpu, "mig", 0))
        snprintf(use, sizeof use, "N/A ");
    else
        snprintf(use, sizeof use, "%lld%%", gpu_number(gpu, "utilization_gpu", 0));
    printf("| %3s  %3lldC    P%-2lld %13lldW / %4lldW | %7lldMiB / %6lldMiB | %7s %12s |\n",
           gpu_number(gpu, "fan_percent", -1) >= 0 ? fan : "N/A", gpu_number(gpu, "temperature_celsius", 0),
           gpu_number(gpu, "performance_state", 0), gpu_number(gpu, "power_draw_mw", 0) / 1000,
           power_limit(gpu) / 1000, gpu_number(gpu, "memory_used_mib", 0), gpu_number(gpu, "memory_mib", 0), use,
           "Default");
    printf("|                                         |                        | %20s |\n",
           on_off(gpu, "mig", "Enabled", "Disabled", "N/A"));
}

static void table_processes(const int *gpus, const int *positions, int count)
{
    struct process found[64];
    char name[VALUE_SIZE];
    int i, k, printed = 0;

    for (i = 0; i < count; i++) {
        int all = processes_of(gpus[i], found, 64);
        for (k = 0; k < all; k++, printed++) {
            process_name(found[k].pid, name);
            printf("|  %3d   N/A  N/A %15lld %6s   %-36.36s%7lldMiB |\n", positions[i], found[k].pid, found[k].kind, name,
                   found[k].mib);
        }
    }
    if (printed == 0)
        printf("|  No running processes found                                                             |\n");
}

static void table_migs(const int *gpus, const int *positions, int count)
{
    const char *line = "+------------------+----------------------------------+-----------+-----------------------+\n";
    int migs[MOST_MIG], i, k, found, all = 0;

    for (i = 0; i < count; i++)
        all += visible_migs(gpus[i], migs);
    if (all == 0)
        return;
    printf("\n+-----------------------------------------------------------------------------------------+\n"
           "| MIG devices:                                                                            |\n%s"
           "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |\n"
           "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |\n"
           "|                  |                                  |        ECC|                       |\n"
           "|==================+==================================+===========+=======================|\n", line);
    for (i = 0; i < count; i++) {
        found = visible_migs(gpus[i], migs);
        for (k = 0; k < found; k++)
            printf("| %2d  %3lld  %2lld  %2d  |               0MiB / %5lldMiB    | N/A     0 |  1   0    1    0    1 |\n%s",
                   positions[i], mig_number(gpus[i], migs[k], "gpu_instance"),
                   mig_number(gpus[i], migs[k], "compute_instance"), k, mig_number(gpus[i], migs[k], "memory_mib"), line);
    }
}

static int table(const int *gpus, const int *positions, int count)
{
    const char *line = "+-----------------------------------------+------------------------+----------------------+\n";
    const char *wide = "+-----------------------------------------------------------------------------------------+\n";
    char driver[VALUE_SIZE], cuda[16], now[64];
    time_t clock_now = time(NULL);
    int i, newer = state_parse(OWN_VERSION) >= 610;

    for (i = 0; i < count; i++)
        if (gpu_condition(gpus[i]) == GPU_IS_LOST)
            return complain(gpus[i], GPU_IS_LOST);
    state_read("loaded.version", driver);
    cuda_version_text(CUDA_VERSION, cuda, sizeof cuda);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", gmtime(&clock_now));
    printf("%s       \n%s", now, wide);
    if (newer)
        printf("| NVIDIA-SMI %-23sKMD Version: %-14sCUDA UMD Version: %-9s|\n", OWN_VERSION, driver, cuda);
    else
        printf("| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|\n", OWN_VERSION, driver, cuda);
    printf("%s", line);
    printf("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n");
    printf("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n");
    printf("|                                         |                        |               MIG M. |\n");
    printf("|=========================================+========================+======================|\n");
    for (i = 0; i < count; i++) {
        hang_in_any(gpus[i]);
        table_row(gpus[i], positions[i]);
        printf("%s", line);
    }
    table_migs(gpus, positions, count);
    printf("\n%s| Processes:                                                                              |\n", wide);
    printf("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n");
    printf("|        ID   ID                                                               Usage      |\n");
    printf("|=========================================================================================|\n");
    table_processes(gpus, positions, count);
    printf("%s", wide);
    return 0;
}

/* ---- -L, nvlink, -q -x --------------------------------------------------------------------------------- */

static void list_migs(int gpu)
{
    char profile[VALUE_SIZE], uuid[VALUE_SIZE];
    int migs[MOST_MIG], i, count = visible_migs(gpu, migs);

    for (i = 0; i < count; i++)
        if (mig_read(gpu, migs[i], "profile", profile) && mig_read(gpu, migs[i], "uuid", uuid))
            printf("  MIG %-11s Device %2d: (UUID: %s)\n", profile, i, uuid);
}

static int list_gpus(const int *gpus, const int *positions, int count)
{
    char name[VALUE_SIZE], uuid[VALUE_SIZE];
    int i, status = 0;

    for (i = 0; i < count; i++) {
        int condition = gpu_condition(gpus[i]);
        if (condition != OK && condition != RESET_REQUIRED) {
            status = complain(gpus[i], condition);
            continue;
        }
        gpu_read(gpus[i], "name", name);
        gpu_read(gpus[i], "uuid", uuid);
        printf("GPU %d: %s (UUID: %s)\n", positions[i], name, uuid);
        list_migs(gpus[i]);
    }
    return status;
}

/* How the GPUs A and B reach each other: NVLink where both have it, else by the bus of their sockets. */
static void connection(int a, int b, char *text)
{
    long long links = gpu_number(a, "nvlink_links", 0), bridged = state_number("nvswitches", 0) > 0 || links > 0;

    if (a == b)
        strcpy(text, " X ");
    else if (links && bridged && gpu_number(b, "nvlink_links", 0) && !gpu_number(a, "mig", 0) && !gpu_number(b, "mig", 0))
        snprintf(text, 16, "NV%lld", links);
    else
        strcpy(text, gpu_number(a, "numa_node", 0) == gpu_number(b, "numa_node", 0) ? "NODE" : "SYS");
}

static int topology(const int *gpus, const int *positions, int count)
{
    char text[16];
    int i, j;

    printf("\t\033[4m");
    for (i = 0; i < count; i++)
        printf("GPU%d\t", positions[i]);
    printf("CPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n");
    for (i = 0; i < count; i++) {
        long long node = gpu_number(gpus[i], "numa_node", 0);
        printf("GPU%d\t", positions[i]);
        for (j = 0; j < count; j++) {
            connection(gpus[i], gpus[j], text);
            printf("%s\t", text);
        }
        printf("%lld-%lld\t%lld\t\tN/A\n", node * 32, node * 32 + 31, node);
    }
    printf("\nLegend:\n\n  X    = Self\n"
           "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
           "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node\n"
           "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)\n"
           "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)\n"
           "  PIX  = Connection traversing at most a single PCIe bridge\n"
           "  NV#  = Connection traversing a bonded set of # NVLinks\n\n");
    return 0;
}

static int nvlink_status(const int *gpus, const int *positions, int count)
{
    char key[32], name[VALUE_SIZE], uuid[VALUE_SIZE];
    int i, link;

    for (i = 0; i < count; i++) {
        if (gpu_condition(gpus[i]) != OK || gpu_number(gpus[i], "nvlink_links", 0) == 0)
            continue;
        if (gpu_number(gpus[i], "mig", 0)) {
            gpu_read(gpus[i], "name", name);
            gpu_read(gpus[i], "uuid", uuid);
            printf("GPU %d: %s (UUID: %s)\nNvlink queries are not supported for Devices in MIG mode\n", positions[i], name, uuid);
            continue;
        }
        list_gpus(gpus + i, positions + i, 1);
        for (link = 0; link < gpu_number(gpus[i], "nvlink_links", 0); link++) {
            snprintf(key, sizeof key, "nvlink.%d", link);
            if (gpu_number(gpus[i], key, 1))
                printf("\t Link %d: %.3f GB/s\n", link, (double)gpu_number(gpus[i], "nvlink_speed_mbps", 0) / 1000);
            else
                printf("\t Link %d: <inactive>\n", link);
        }
    }
    return 0;
}

#include "smi-log.h"

/* ---- settings, options, main -------------------------------------------------------------------------------- */

static int set(const char *format, int gpu, long long value)
{
    const char *folder = getenv("FLEET_LAB_GPU_STATE");
    char path[512];
    FILE *stream;

    snprintf(path, sizeof path, "%s/settings.view", folder && *folder ? folder : STATE_FOLDER);
    stream = fopen(path, "a");
    if (stream == NULL) {
        printf("Unable to change the mode: Insufficient Permissions\n");
        return 4;
    }
    fprintf(stream, format, gpu, value);
    fclose(stream);
    return 0;
}

static int change_settings(const char *option, const char *argument, const int *gpus, int count)
{
    char bus[32];
    int i, status = 0;

    for (i = 0; i < count && status == 0; i++) {
        bus_id(gpus[i], bus);
        if (strcmp(option, "-pm") == 0 || strncmp(option, "--persistence-mode", 18) == 0) {
            status = set("gpu.%d.persistence=%lld\n", gpus[i], argument[0] == '1' || argument[0] == 'E');
            printf("%s persistence mode for GPU 0000%s.\n", argument[0] == '0' ? "Disabled" : "Enabled", bus);
        } else {
            long long watts = state_parse(argument);
            if (watts * 1000 < gpu_number(gpus[i], "power_min_mw", 0) || watts * 1000 > gpu_number(gpus[i], "power_max_mw", 0)) {
                printf("Provided power limit %lld.00 W is not a valid power limit which should be between %.2f W and %.2f W for GPU 0000%s\n",
                       watts, (double)gpu_number(gpus[i], "power_min_mw", 0) / 1000, (double)gpu_number(gpus[i], "power_max_mw", 0) / 1000, bus);
                return 2;
            }
            status = set("gpu.%d.power_set_mw=%lld\n", gpus[i], watts * 1000);
            printf("Power limit for GPU 0000%s was set to %lld.00 W.\n", bus, watts);
        }
    }
    if (status == 0)
        printf("All done.\n");
    return status;
}

static int print_version(const char *library)
{
    char driver[VALUE_SIZE], cuda[16], text[VALUE_SIZE];

    short_version(library, text);
    cuda_version_text(CUDA_VERSION, cuda, sizeof cuda);
    if (!state_read("loaded.version", driver))
        snprintf(driver, sizeof driver, "N/A");
    if (state_parse(OWN_VERSION) >= 610) {
        printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : Deprecated, see \"KMD version\" instead\nCUDA version        : Deprecated, see \"CUDA UMD version\" instead\n", OWN_VERSION, text);
        printf("KMD version         : %s\nCUDA UMD version    : %s\n", driver, cuda);
    } else {
        printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n", OWN_VERSION, text, driver, cuda);
    }
    return 0;
}

/* Narrow the GPUs to those that -i names by number, UUID or PCI address. */
static int choose(char *list, int *gpus, int *positions, int count)
{
    char *parts[MOST_GPUS], value[VALUE_SIZE], bus[32];
    int wanted = split(list, parts, MOST_GPUS), kept = 0, i, j;

    for (i = 0; i < count; i++)
        for (j = 0; j < wanted; j++) {
            bus_id(gpus[i], bus);
            int number = parts[j][0] >= '0' && parts[j][0] <= '9' && strchr(parts[j], ':') == NULL;
            if ((number && state_parse(parts[j]) == positions[i]) || strstr(parts[j], bus) ||
                (gpu_read(gpus[i], "uuid", value) && strcmp(value, parts[j]) == 0)) {
                gpus[kept] = gpus[i];
                positions[kept++] = positions[i];
                break;
            }
        }
    return kept;
}

static const char *after(const char *argument, const char *prefix)
{
    return strncmp(argument, prefix, strlen(prefix)) == 0 ? argument + strlen(prefix) : NULL;
}

struct options { char *query, *apps, *rows, *chosen; const char *format, *setting, *value; int list, xml, full, version, nvlink, topology; };

/* 0, or the exit status for a word that is no option. */
static int read_options(int argc, char **argv, struct options *wanted)
{
    int i;

    memset(wanted, 0, sizeof *wanted);
    wanted->format = "";
    for (i = 1; i < argc; i++) {
        const char *value, *next = i + 1 < argc ? argv[i + 1] : "";
        if ((value = after(argv[i], "--query-gpu=")) != NULL)
            wanted->query = (char *)value;
        else if ((value = after(argv[i], "--query-compute-apps=")) != NULL)
            wanted->apps = (char *)value;
        else if ((value = after(argv[i], "--query-remapped-rows=")) != NULL)
            wanted->rows = (char *)value;
        else if ((value = after(argv[i], "--format=")) != NULL)
            wanted->format = value;
        else if ((value = after(argv[i], "--id=")) != NULL)
            wanted->chosen = (char *)value;
        else if (strcmp(argv[i], "-i") == 0)
            wanted->chosen = argv[++i < argc ? i : argc - 1];
        else if (strcmp(argv[i], "-L") == 0 || strcmp(argv[i], "--list-gpus") == 0)
            wanted->list = 1;
        else if (strcmp(argv[i], "-q") == 0 || strcmp(argv[i], "--query") == 0)
            wanted->full = 1;
        else if (strcmp(argv[i], "-x") == 0 || strcmp(argv[i], "--xml-format") == 0)
            wanted->xml = 1;
        else if (strcmp(argv[i], "-qx") == 0)
            wanted->xml = wanted->full = 1;
        else if (strcmp(argv[i], "--version") == 0)
            wanted->version = 1;
        else if (strcmp(argv[i], "nvlink") == 0)
            wanted->nvlink = 1;
        else if (strcmp(argv[i], "topo") == 0 && strcmp(next, "-m") == 0)
            wanted->topology = 1, i++;
        else if (strcmp(argv[i], "-s") == 0 || strcmp(argv[i], "--status") == 0)
            continue;
        else if (strcmp(argv[i], "-pm") == 0 || strcmp(argv[i], "-pl") == 0)
            wanted->setting = argv[i], wanted->value = next, i++;
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
            return 2;
        }
    }
    if ((wanted->query || wanted->apps || wanted->rows) && strncmp(wanted->format, "csv", 3) != 0) {
        printf("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n");
        return 2;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options wanted;
    char library[VALUE_SIZE];
    int gpus[MOST_GPUS], positions[MOST_GPUS], count, i, condition = read_options(argc, argv, &wanted);

    if (condition != 0)
        return condition;
    if (!library_version(library)) {
        printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA "
               "Display Driver is properly installed and present in your system.\nPlease also try adding directory "
               "that contains libnvidia-ml.so to your system PATH.\n");
        return 12;
    }
    condition = driver_condition(library);
    if (wanted.version && condition == OK)
        return print_version(library);
    if (condition != OK)
        return fail_to_start(condition, library);
    count = served_gpus(gpus);
    if (count == 0) {
        printf("No devices were found\n");
        return 6;
    }
    for (i = 0; i < count; i++)
        positions[i] = i;
    if (wanted.chosen && (count = choose(wanted.chosen, gpus, positions, count)) == 0) {
        printf("No devices were found\n");
        return 6;
    }
    if (wanted.setting)
        return change_settings(wanted.setting, wanted.value, gpus, count);
    if (wanted.query)
        return query_gpus(wanted.query, wanted.format, gpus, positions, count);
    if (wanted.apps)
        return compute_apps(wanted.apps, wanted.format, gpus, count);
    if (wanted.rows)
        return remapped_rows(wanted.rows, wanted.format, gpus, positions, count);
    if (wanted.list)
        return list_gpus(gpus, positions, count);
    if (wanted.topology)
        return topology(gpus, positions, count);
    if (wanted.nvlink)
        return nvlink_status(gpus, positions, count);
    if (wanted.full)
        return log_all(wanted.xml, gpus, count);
    return table(gpus, positions, count);
}
