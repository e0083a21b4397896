/* Part of nvml.c: processes on a GPU, and field values. */

/* "gpu.N.KEY=PID:MIB,PID:MIB"; a pid that is gone is gone from the list. */
static u32 list_processes(int gpu, const char *key, Process *found, u32 room)
{
    char value[VALUE_SIZE], path[64];
    const char *text = value;
    u32 count = 0;

    if (!gpu_read(gpu, key, value))
        return 0;
    while (*text) {
        Process process = {0, 0, 0xffffffffu, 0xffffffffu};
        process.pid = (u32)state_parse(text);
        text += strspn(text, "0123456789");
        if (*text == ':')
            process.memory = (u64)state_parse(text + 1) * 1024 * 1024;
        snprintf(path, sizeof path, "/proc/%u", process.pid);
        if (access(path, F_OK) == 0) {
            if (count < room)
                found[count] = process;
            count++;
        }
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return count;
}

static int answer_processes(const char *function, Device device, const char *key, u32 *count, Process *found)
{
    int condition = device_condition(device, function);
    u32 room, all;

    if (condition != OK)
        return condition;
    room = found ? *count : 0;
    all = list_processes(device->index, key, found, room);
    *count = all;
    return all <= room ? OK : INSUFFICIENT_SIZE;
}

#define PROCESSES(since, function, key) \
    since function(Device device, u32 *count, Process *found) { return answer_processes(__func__, device, key, count, found); }
PROCESSES(SINCE(510), nvmlDeviceGetComputeRunningProcesses_v3, "processes")
PROCESSES(SINCE(450), nvmlDeviceGetComputeRunningProcesses_v2, "processes")
PROCESSES(SINCE(510), nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_processes")
PROCESSES(SINCE(450), nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics_processes")
PROCESSES(SINCE(510), nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_processes")
PROCESSES(SINCE(470), nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps_processes")

/* The first version knew of no instances: its entries are shorter. */
typedef struct { u32 pid; u64 memory; } ProcessV1;
static int first_processes(const char *function, Device device, const char *key, u32 *count, ProcessV1 *found)
{
    Process all[64];
    u32 room = found ? *count : 0, many = 64, i;
    int result = answer_processes(function, device, key, &many, all);

    if (result != OK)
        return result;
    for (i = 0; i < many && i < room; i++)
        found[i].pid = all[i].pid, found[i].memory = all[i].memory;
    *count = many;
    return many <= room ? OK : INSUFFICIENT_SIZE;
}
ANSWER nvmlDeviceGetComputeRunningProcesses(Device device, u32 *count, ProcessV1 *found) { return first_processes(__func__, device, "processes", count, found); }
ANSWER nvmlDeviceGetGraphicsRunningProcesses(Device device, u32 *count, ProcessV1 *found) { return first_processes(__func__, device, "graphics_processes", count, found); }

ANSWER nvmlSystemGetProcessName(u32 pid, char *name, u32 size)
{
    char path[64];
    size_t length;
    FILE *stream;

    if (!initialized)
        return UNINITIALIZED;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    stream = fopen(path, "r");
    if (stream == NULL || name == NULL || size == 0) {
        if (stream != NULL)
            fclose(stream);
        return stream == NULL ? NOT_FOUND : INVALID_ARGUMENT;
    }
    length = fread(name, 1, size - 1, stream);
    fclose(stream);
    name[length] = '\0';
    return OK;
}

/* FIRST: the branch that knows the field first. A negative number is a value too: limits below the margin. */
static const struct { u32 field; const char *key; int first; } fields[] = {
    {1, "ecc", 0}, {2, "ecc_pending", 0}, {29, "retired_single", 0}, {30, "retired_double", 0},
    {31, "retired_pending", 0}, {82, "memory_temperature_celsius", 0}, {83, "energy_mj", 0},
    {90, "nvlink_speed_mbps", 0}, {91, "nvlink_links", 0}, {94, "pcie_replays", 0}, {95, "pcie_replay_rollovers", 0},
    {142, "remap_corrected", 450}, {143, "remap_uncorrected", 450}, {144, "remap_pending", 450},
    {145, "remap_failure", 450}, {185, "power_draw_mw", 530}, {186, "power_draw_mw", 530}, {187, "power_min_mw", 530},
    {188, "power_max_mw", 530}, {189, "power_limit_mw", 530}, {193, "tlimit_shutdown_celsius", 535},
    {194, "tlimit_slowdown_celsius", 535}, {195, "tlimit_memory_celsius", 535}, {196, "tlimit_maximum_celsius", 535},
};

/* Fields 3 to 10: totals of ECC errors, volatile before aggregate, in pairs corrected and uncorrected. */
static int ecc_field(int gpu, u32 field, u64 *count)
{
    u32 number = field - 3;

    if (field < 3 || field > 6 || gpu_number(gpu, "ecc", 0) == 0)
        return NOT_SUPPORTED;
    *count = (u64)ecc_count(gpu, number >= 2, ECC_TOTAL, number % 2);
    return OK;
}

static int link_field(int gpu, const FieldValue *value, u64 *found)
{
    u32 link = value->scope;

    if (value->field >= 84 && value->field <= 89)
        link = value->field - 84;
    else if (value->field >= 132 && value->field <= 137)
        link = value->field - 132 + 6;
    else if (value->field < 164 || value->field > 166)
        return NOT_SUPPORTED;
    if (gpu_number(gpu, "nvlink_links", 0) <= link)
        return gpu_number(gpu, "nvlink_links", 0) ? INVALID_ARGUMENT : NOT_SUPPORTED;
    if (value->field == 165)
        *found = (u64)link_is_active(gpu, link);
    else if (value->field == 166)
        *found = (u64)gpu_number(gpu, "nvlink_version", 0);
    else
        *found = link_is_active(gpu, link) ? (u64)gpu_number(gpu, "nvlink_speed_mbps", 0) : 0;
    return OK;
}

static int field_value(int gpu, FieldValue *value)
{
    char text[VALUE_SIZE];
    size_t i;

    if (value->field == 230 && DRIVER_BRANCH >= 565) { /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */
        value->value = (u64)gpu_number(gpu, "recovery_action", 0);
        return OK;
    }
    if (ecc_field(gpu, value->field, &value->value) == OK)
        return OK;
    if ((value->field >= 84 && value->field <= 89) || (value->field >= 132 && value->field <= 137) ||
        (value->field >= 164 && value->field <= 166))
        return DRIVER_BRANCH < 525 && value->field >= 164 ? INVALID_ARGUMENT : link_field(gpu, value, &value->value);
    for (i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].field == value->field && DRIVER_BRANCH >= fields[i].first && gpu_read(gpu, fields[i].key, text)) {
            value->value = (u64)state_parse(text);
            return OK;
        }
    return NOT_SUPPORTED;
}

ANSWER nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values)
{
    int i;

    CURRENT_STATE_OR_RETURN(device);
    for (i = 0; i < count; i++) {
        values[i].type = 1; /* unsigned int */
        values[i].value = 0;
        values[i].result = field_value(device->index, &values[i]);
        if (values[i].field >= 193 && values[i].field <= 196)
            values[i].type = 5; /* signed int */
    }
    return OK;
}
