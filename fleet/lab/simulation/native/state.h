/* What the simulated GPUs are like now, read from KEY=VALUE files. See ../view.py for the files.
 *
 * Included by nvml.c and nvidia-smi.c. Files are read anew at each question, so that a fault switched
 * on shows at once. Only old symbols of the C library are used, for hosts older than the builder.
 */
#ifndef FLEET_LAB_STATE_H
#define FLEET_LAB_STATE_H
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_FOLDER "/var/lib/fleet-lab-gpu"
#define VISIBLE_FOLDER "/run/fleet-lab-gpu/visible.d"
#define LOAD_FOLDER "/run/fleet-lab-gpu/load"
#define MOST_GPUS 16
#define MOST_MIG 7
#define VALUE_SIZE 256

#define MAYBE_UNUSED __attribute__((unused))

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMED_OUT = 10, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15,
    RESET_REQUIRED = 16, LIB_RM_VERSION_MISMATCH = 18, ARGUMENT_VERSION_MISMATCH = 25, DEPRECATED = 26, UNKNOWN = 999
};

/* The last value of KEY in one file; 1 when it was there. */
static int state_read_file(const char *file, const char *key, char *value)
{
    char path[512], line[512];
    const char *folder = getenv("FLEET_LAB_GPU_STATE");
    size_t length = strlen(key);
    int found = 0;
    FILE *stream;

    snprintf(path, sizeof path, "%s/%s", folder && *folder ? folder : STATE_FOLDER, file);
    stream = fopen(path, "r");
    if (stream == NULL)
        return 0;
    while (fgets(line, sizeof line, stream) != NULL) {
        if (strncmp(line, key, length) != 0 || line[length] != '=')
            continue;
        line[strcspn(line, "\r\n")] = '\0';
        snprintf(value, VALUE_SIZE, "%s", line + length + 1);
        found = 1;
    }
    fclose(stream);
    return found;
}

/* The value of KEY; later files override earlier ones, and an empty value means "not supported". */
static int state_read(const char *key, char *value)
{
    static const char *files[] = {"hardware.view", "loaded.view", "settings.view", "fabric.view", "faults.view"};
    size_t i;
    int found = 0;

    for (i = 0; i < sizeof files / sizeof *files; i++)
        if (state_read_file(files[i], key, value))
            found = 1;
    return found && *value != '\0';
}

/* strtoll by hand: newer compilers turn the library's into a symbol that older hosts lack. */
static long long state_parse(const char *text)
{
    long long number = 0;
    int negative = *text == '-';

    for (text += negative; *text >= '0' && *text <= '9'; text++)
        number = number * 10 + (*text - '0');
    return negative ? -number : number;
}

static long long state_number(const char *key, long long otherwise)
{
    char value[VALUE_SIZE];

    return state_read(key, value) ? state_parse(value) : otherwise;
}

/* Faults may write the keys of the PCI link the way they are asked for. */
static const struct { const char *key, *spoken; } link_names[] = {
    {"pcie_width", "pcie.width"}, {"pcie_gen", "pcie.generation"}, {"pcie_load_gen", "pcie.load_generation"},
    {"pcie_max_width", "pcie.width_max"}, {"pcie_max_gen", "pcie.generation_max"},
};

static int fault_read(int gpu, const char *key, char *value)
{
    char full[128];
    size_t i;

    for (i = 0; i < sizeof link_names / sizeof *link_names; i++)
        if (strcmp(link_names[i].key, key) == 0) {
            snprintf(full, sizeof full, "gpu.%d.%s", gpu, link_names[i].spoken);
            if (state_read_file("faults.view", full, value))
                return 1;
        }
    snprintf(full, sizeof full, "gpu.%d.%s", gpu, key);
    return state_read_file("faults.view", full, value);
}

/* Whether a simulated benchmark runs on GPU: it holds a lock on a file, as long as it lives, in any container. */
static int gpu_is_busy(int gpu)
{
    const char *folder = getenv("FLEET_LAB_GPU_LOAD");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[512];
    int file, held;

    snprintf(path, sizeof path, "%s/gpu.%d", folder && *folder ? folder : LOAD_FOLDER, gpu);
    file = open(path, O_RDONLY);
    if (file < 0)
        return 0;
    held = fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(file);
    return held;
}

static int gpu_read(int gpu, const char *key, char *value);

static long long plain_number(int gpu, const char *key, long long otherwise)
{
    char full[128];

    snprintf(full, sizeof full, "gpu.%d.%s", gpu, key);
    return state_number(full, otherwise);
}

/* What KEY is while a benchmark runs; 0 where it is what it always is. */
static int busy_value(int gpu, const char *key, char *value)
{
    long long number;
    char top[64];

    if (strncmp(key, "clock_", 6) == 0 && strcmp(key, "clocks_event_reasons") != 0) {
        snprintf(top, sizeof top, "max_%.50s", key);
        number = plain_number(gpu, top, 0);
    } else if (strcmp(key, "utilization_gpu") == 0) {
        number = 98;
    } else if (strcmp(key, "utilization_memory") == 0) {
        number = 61;
    } else if (strcmp(key, "performance_state") == 0 || strcmp(key, "clocks_event_reasons") == 0) {
        number = 0;
    } else if (strcmp(key, "power_draw_mw") == 0) {
        number = plain_number(gpu, "power_set_mw", plain_number(gpu, "power_limit_mw", 0)) * 88 / 100;
    } else if (strcmp(key, "pcie_gen") == 0) {
        if (fault_read(gpu, "pcie_load_gen", value))
            return 1;
        number = plain_number(gpu, "pcie_max_gen", 0);
    } else if (strcmp(key, "memory_used_mib") == 0) {
        number = plain_number(gpu, "memory_mib", 0) / 5;
    } else if (strcmp(key, "temperature_celsius") == 0 || strcmp(key, "memory_temperature_celsius") == 0) {
        number = plain_number(gpu, key, -1);
        if (number < 0)
            return 0;
        number += 30;
    } else if (strcmp(key, "temperature_margin_celsius") == 0) {
        number = plain_number(gpu, key, -1);
        if (number < 0)
            return 0;
        number = number > 35 ? number - 30 : 5;
    } else {
        return 0;
    }
    snprintf(value, VALUE_SIZE, "%lld", number);
    return 1;
}

static int gpu_read(int gpu, const char *key, char *value)
{
    char full[128];

    if (fault_read(gpu, key, value))
        return *value != '\0';
    if (gpu_is_busy(gpu) && busy_value(gpu, key, value))
        return 1;
    snprintf(full, sizeof full, "gpu.%d.%s", gpu, key);
    return state_read(full, value);
}

static MAYBE_UNUSED long long gpu_number(int gpu, const char *key, long long otherwise)
{
    char value[VALUE_SIZE];

    return gpu_read(gpu, key, value) ? state_parse(value) : otherwise;
}

/* Negative, zero or positive as dotted version A is older than, equal to or newer than B. */
static int compare_versions(const char *a, const char *b)
{
    while (*a || *b) {
        long long x = state_parse(a), y = state_parse(b);
        if (x != y)
            return x < y ? -1 : 1;
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        a += *a != '\0';
        b += *b != '\0';
    }
    return 0;
}

/* In a container there is a directory with one file for each GPU it was given, or with one called "all". */
static int is_given(const char *name)
{
    const char *given = getenv("FLEET_LAB_GPU_VISIBLE");
    const char *folder = given ? given : VISIBLE_FOLDER;
    char path[512];

    if (access(folder, F_OK) != 0)
        return 1;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static int gpu_is_visible(int gpu)
{
    char name[32];
    int mig;

    snprintf(name, sizeof name, "%d", gpu);
    if (is_given("all") || is_given(name))
        return 1;
    for (mig = 0; mig < MOST_MIG; mig++) {
        snprintf(name, sizeof name, "%d.%d", gpu, mig);
        if (is_given(name))
            return 1;
    }
    return 0;
}

/* How many MIG devices GPU has: "gpu.N.mig_devices", and what they are in "gpu.N.mig.K.…"; none with MIG off. */
static MAYBE_UNUSED int mig_count(int gpu)
{
    long long count = gpu_number(gpu, "mig", 0) ? gpu_number(gpu, "mig_devices", 0) : 0;

    return count < 0 ? 0 : count > MOST_MIG ? MOST_MIG : (int)count;
}

static MAYBE_UNUSED int mig_read(int gpu, int mig, const char *key, char *value)
{
    char full[128];

    snprintf(full, sizeof full, "mig.%d.%s", mig, key);
    return gpu_read(gpu, full, value);
}

static MAYBE_UNUSED long long mig_number(int gpu, int mig, const char *key)
{
    char value[VALUE_SIZE];

    return mig_read(gpu, mig, key, value) ? state_parse(value) : 0;
}

/* A container was given the whole GPU ("N", "all"), or some of its MIG devices ("N.K"). */
static MAYBE_UNUSED int mig_is_visible(int gpu, int mig)
{
    char name[32];

    snprintf(name, sizeof name, "%d", gpu);
    if (is_given("all") || is_given(name))
        return 1;
    snprintf(name, sizeof name, "%d.%d", gpu, mig);
    return is_given(name);
}

/* Fills FOUND with the numbers of the MIG devices of GPU that can be seen here; how many they are. */
static MAYBE_UNUSED int visible_migs(int gpu, int found[MOST_MIG])
{
    int mig, count = 0;

    for (mig = 0; mig < mig_count(gpu); mig++)
        if (mig_is_visible(gpu, mig))
            found[count++] = mig;
    return count;
}

/* Whether the loaded driver took this GPU: on the bus, of a chip it knows, with the right modules. */
static int gpu_is_served(int gpu)
{
    char state[VALUE_SIZE], driver[VALUE_SIZE], first[VALUE_SIZE], flavour[VALUE_SIZE], needed[VALUE_SIZE];

    if (!gpu_is_visible(gpu) || (gpu_read(gpu, "state", state) && strcmp(state, "missing") == 0))
        return 0;
    if (!state_read("loaded.version", driver))
        return 0;
    if (gpu_read(gpu, "first_driver", first) && compare_versions(driver, first) < 0)
        return 0;
    if (state_parse(driver) > gpu_number(gpu, "last_branch", 100000))
        return 0;
    if (gpu_read(gpu, "modules", needed) && strcmp(needed, "any") != 0 &&
        state_read("loaded.flavour", flavour) && strcmp(flavour, needed) != 0)
        return 0;
    return 1;
}

/* Fills INDICES with the hardware's numbers of the GPUs the driver serves; how many they are. */
static int served_gpus(int indices[MOST_GPUS])
{
    int gpu, count = 0, all = (int)state_number("gpus", 0);

    for (gpu = 0; gpu < all && gpu < MOST_GPUS; gpu++)
        if (gpu_is_served(gpu))
            indices[count++] = gpu;
    return count;
}

/* The hang fault: "hang=1" stops every call, "gpu.N.hang=1" those about one GPU. For ever, as real ones do. */
static void hang_if_told(int gpu)
{
    while (state_number("hang", 0) != 0 || (gpu >= 0 && gpu_number(gpu, "hang", 0) != 0))
        sleep(1);
}

/* Whether WANTED names FUNCTION, with or without the version at its end. */
static int names_function(const char *wanted, const char *function)
{
    size_t length = strlen(wanted);

    return strncmp(wanted, function, length) == 0 && (!function[length] || strncmp(function + length, "_v", 2) == 0);
}

/* "gpu.N.hang_in=nvmlDeviceGetUtilizationRates" stops that call for one GPU; "hang_in=…" for all. */
static MAYBE_UNUSED void hang_in(int gpu, const char *function)
{
    char wanted[VALUE_SIZE];

    while ((state_read("hang_in", wanted) && names_function(wanted, function)) ||
           (gpu >= 0 && fault_read(gpu, "hang_in", wanted) && names_function(wanted, function)))
        sleep(1);
}

/* What every call about this GPU answers before it looks at anything else. */
static int gpu_condition(int gpu)
{
    char state[VALUE_SIZE];

    hang_if_told(gpu);
    if (!gpu_read(gpu, "state", state) || strcmp(state, "ok") == 0)
        return OK;
    if (strcmp(state, "lost") == 0)
        return GPU_IS_LOST;
    if (strcmp(state, "reset_required") == 0)
        return RESET_REQUIRED;
    if (strcmp(state, "missing") == 0)
        return NOT_FOUND;
    return UNKNOWN;
}

/* Error of initialisation with a library of version LIBRARY. "init.error=N" is a fault. */
static int driver_condition(const char *library)
{
    char loaded[VALUE_SIZE];

    hang_if_told(-1);
    if (state_number("init.error", 0) != 0)
        return (int)state_number("init.error", 0);
    if (!state_read("loaded.version", loaded))
        return DRIVER_NOT_LOADED;
    return strcmp(loaded, library) == 0 ? OK : LIB_RM_VERSION_MISMATCH;
}

/* State of the NVLink fabric in NVML's numbers: 0 not supported, 1 not started, 2 in progress, 3 completed. */
static MAYBE_UNUSED int fabric_state(int gpu)
{
    char manager[VALUE_SIZE], loaded[VALUE_SIZE];

    if (state_number("nvswitches", 0) == 0 || gpu_number(gpu, "nvlink_version", 0) < 4)
        return 0;
    if (gpu_number(gpu, "fabric_state", -1) >= 0)
        return (int)gpu_number(gpu, "fabric_state", 0);
    if (!state_read("fabric.version", manager) || !state_read("loaded.version", loaded))
        return 1;
    return strcmp(manager, loaded) == 0 ? 3 : 2;
}

/* Bits of the fabric's health as NVML has them, two for each question (1 yes, 2 no), four for the configuration
 * (1 right). Faults say it in words: fabric_degraded_bandwidth, fabric_route_recovery, fabric_route_unhealthy,
 * fabric_access_timeout_recovery; fabric_incorrect_configuration is NVML's number; fabric_health all of it. */
static MAYBE_UNUSED long long fabric_health(int gpu)
{
    static const char *questions[] = {"fabric_degraded_bandwidth", "fabric_route_recovery", "fabric_route_unhealthy",
                                      "fabric_access_timeout_recovery"};
    long long mask = 0;
    int i;

    if (fabric_state(gpu) != 3)
        return gpu_number(gpu, "fabric_health", 0);
    for (i = 0; i < 4; i++)
        mask |= (gpu_number(gpu, questions[i], 0) ? 1ll : 2ll) << (2 * i);
    mask |= gpu_number(gpu, "fabric_incorrect_configuration", 1) << 8;
    return gpu_number(gpu, "fabric_health", mask);
}

/* 0 not supported, 1 healthy, 2 unhealthy, 3 limited. */
static MAYBE_UNUSED long long fabric_summary(int gpu)
{
    long long mask = fabric_health(gpu), configuration = mask >> 8 & 15;
    int i, bad = configuration > 1, limited;

    for (i = 1; i < 4; i++)
        bad |= (mask >> (2 * i) & 3) == 1;
    limited = (mask & 3) == 1;
    return gpu_number(gpu, "fabric_summary", mask == 0 ? 0 : bad ? 2 : limited ? 3 : 1);
}

enum { ECC_TOTAL, ECC_SRAM, ECC_DRAM };

/* Errors of GPU. COUNTER: 0 since the driver was loaded, 1 ever. KIND: 0 corrected, 1 not. What a fault gives as
 * "ecc_volatile_uncorrected" is the memory's, but for what "ecc_volatile_sram_uncorrected" says. */
static MAYBE_UNUSED long long ecc_count(int gpu, int counter, int place, int kind)
{
    const char *since = counter ? "aggregate" : "volatile", *what = kind ? "uncorrected" : "corrected";
    long long total, sram, dram;
    char key[64];

    snprintf(key, sizeof key, "ecc_%s_%s", since, what);
    total = gpu_number(gpu, key, 0);
    snprintf(key, sizeof key, "ecc_%s_sram_%s", since, what);
    sram = gpu_number(gpu, key, 0);
    snprintf(key, sizeof key, "ecc_%s_dram_%s", since, what);
    dram = gpu_number(gpu, key, total > sram ? total - sram : 0);
    return place == ECC_SRAM ? sram : place == ECC_DRAM ? dram : total > sram + dram ? total : sram + dram;
}

/* Pascal and Volta count errors in each cache; Turing and newer in SRAM as a whole. */
static MAYBE_UNUSED int counts_by_cache(int gpu)
{
    return gpu_number(gpu, "cc_major", 9) * 10 + gpu_number(gpu, "cc_minor", 0) < 75;
}

/* NVML's number for what two GPUs meet at: 0 themselves, 10 one switch, 40 one socket, 50 none. */
static MAYBE_UNUSED long long topology_level(int a, int b)
{
    long long fault = gpu_number(a, "topology", gpu_number(b, "topology", -1));

    return a == b ? 0 : fault >= 0 ? fault : gpu_number(a, "numa_node", 0) == gpu_number(b, "numa_node", 0) ? 40 : 50;
}

static MAYBE_UNUSED void cuda_version_text(int version, char *text, size_t size)
{
    snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}
#endif
