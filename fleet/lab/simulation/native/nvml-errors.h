/* Part of nvml.c: errors of memory (ECC counters, retired pages, remapped rows). Next: nvml-links.h. */

ANSWER nvmlDeviceGetDefaultEccMode(Device device, u32 *mode)
{
    return answer_number(device, "ecc", 1, mode);
}

static int ecc_condition(const char *function, Device device)
{
    int condition = whole_gpu_condition(device, function);

    return condition != OK ? condition : gpu_number(device->index, "ecc", 0) ? OK : NOT_SUPPORTED;
}

ANSWER nvmlDeviceGetTotalEccErrors(Device device, int kind, int counter, u64 *count)
{
    int result = ecc_condition(__func__, device);

    if (result == OK)
        *count = (u64)ecc_count(device->index, counter, ECC_TOTAL, kind);
    return result;
}

/* Places that are counted: 2 the device's memory, and 7 SRAM as a whole or, up to Volta, 0 to 3 caches and registers. */
ANSWER nvmlDeviceGetMemoryErrorCounter(Device device, int kind, int counter, int location, u64 *count)
{
    int result = ecc_condition(__func__, device), older;

    if (result != OK)
        return result;
    older = counts_by_cache(device->index);
    if (location != 2 && (older ? location < 0 || location > 3 : location != 7))
        return NOT_SUPPORTED;
    if (location == 2)
        *count = (u64)ecc_count(device->index, counter, ECC_DRAM, kind);
    else
        *count = location == 7 || location == 1 ? (u64)ecc_count(device->index, counter, ECC_SRAM, kind) : 0;
    return OK;
}

typedef struct { u64 l1, l2, memory, registers; } DetailedEcc;
ANSWER nvmlDeviceGetDetailedEccErrors(Device device, int kind, int counter, DetailedEcc *found)
{
    int result = ecc_condition(__func__, device);

    if (result != OK)
        return result;
    memset(found, 0, sizeof *found);
    found->l2 = (u64)ecc_count(device->index, counter, ECC_SRAM, kind);
    found->memory = (u64)ecc_count(device->index, counter, ECC_DRAM, kind);
    return OK;
}

typedef struct {
    u32 version;
    u64 aggregate_parity, aggregate_secded, aggregate_corrected, volatile_parity, volatile_secded, volatile_corrected;
    u64 l2, sm, pcie, microcontroller, other;
    u32 threshold_exceeded;
} SramStatus;

/* Of GPUs that tell parity from SEC-DED: Hopper, Blackwell, and Ada for data centres. */
SINCE(550) nvmlDeviceGetSramEccErrorStatus(Device device, SramStatus *status)
{
    int gpu, result = ecc_condition(__func__, device);

    if (result != OK)
        return result;
    if (status->version >> 24 != 1)
        return ARGUMENT_VERSION_MISMATCH;
    gpu = device->index;
    if (gpu_number(gpu, "sram_split", 0) == 0)
        return NOT_SUPPORTED;
    memset((char *)status + sizeof status->version, 0, sizeof *status - sizeof status->version);
    status->aggregate_parity = (u64)ecc_count(gpu, 1, ECC_SRAM, 1);
    status->volatile_parity = (u64)ecc_count(gpu, 0, ECC_SRAM, 1);
    status->aggregate_corrected = (u64)ecc_count(gpu, 1, ECC_SRAM, 0);
    status->volatile_corrected = (u64)ecc_count(gpu, 0, ECC_SRAM, 0);
    status->l2 = status->aggregate_parity;
    status->threshold_exceeded = gpu_number(gpu, "ecc_sram_threshold_exceeded", 0) != 0;
    return OK;
}

SINCE(450) nvmlDeviceGetRemappedRows(Device device, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failure)
{
    int result = answer_number(device, "remap_corrected", 1, corrected);

    if (result != OK)
        return result;
    if (gpu_number(device->index, "mig", 0))
        return NOT_SUPPORTED;
    *uncorrected = (u32)gpu_number(device->index, "remap_uncorrected", 0);
    *pending = (u32)gpu_number(device->index, "remap_pending", 0);
    *failure = (u32)gpu_number(device->index, "remap_failure", 0);
    return OK;
}

typedef struct { u32 corrected, corrected_inactive, uncorrected, uncorrected_inactive, pending, failure; } RemappedV2;
SINCE(590) nvmlDeviceGetRemappedRows_v2(Device device, RemappedV2 *rows)
{
    memset(rows, 0, sizeof *rows);
    return nvmlDeviceGetRemappedRows(device, &rows->corrected, &rows->uncorrected, &rows->pending, &rows->failure);
}

SINCE(450) nvmlDeviceGetRowRemapperHistogram(Device device, u32 histogram[5])
{
    int result = answer_number(device, "remap_banks", 1, &histogram[0]);

    if (result != OK)
        return result;
    if (gpu_number(device->index, "mig", 0))
        return NOT_SUPPORTED;
    histogram[1] = (u32)gpu_number(device->index, "remap_high", 0);
    histogram[2] = (u32)gpu_number(device->index, "remap_partial", 0);
    histogram[3] = (u32)gpu_number(device->index, "remap_low", 0);
    histogram[4] = (u32)gpu_number(device->index, "remap_none", 0);
    return OK;
}

/* Pages were retired up to Volta and Turing; GPUs that remap rows do not. */
static int retired_pages(const char *function, Device device, int cause, u32 *count, u64 *addresses)
{
    u32 retired = 0, i;
    int result = answer_number_for(function, device, cause ? "retired_double" : "retired_single", 1, &retired);

    if (result != OK)
        return result;
    if (*count < retired || (addresses == NULL && retired > 0)) {
        *count = retired;
        return INSUFFICIENT_SIZE;
    }
    for (i = 0; i < retired; i++)
        addresses[i] = 0x10000ull * (i + 1);
    *count = retired;
    return OK;
}

ANSWER nvmlDeviceGetRetiredPages(Device device, int cause, u32 *count, u64 *addresses)
{
    return retired_pages(__func__, device, cause, count, addresses);
}

ANSWER nvmlDeviceGetRetiredPages_v2(Device device, int cause, u32 *count, u64 *addresses, u64 *timestamps)
{
    u32 i;
    int result = retired_pages(__func__, device, cause, count, addresses);

    for (i = 0; result == OK && timestamps != NULL && i < *count; i++)
        timestamps[i] = 0;
    return result;
}
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", 1)
