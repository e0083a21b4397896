/* Part of nvml.c: NVLink, the fabric, how GPUs reach each other and the CPUs. Next: nvml-processes.h. */

static int link_condition_for(const char *function, Device device, u32 link)
{
    int condition = whole_gpu_condition(device, function);

    if (condition != OK)
        return condition;
    if (gpu_number(device->index, "nvlink_links", 0) == 0)
        return NOT_SUPPORTED;
    return (long long)link < gpu_number(device->index, "nvlink_links", 0) ? OK : INVALID_ARGUMENT;
}
#define link_condition(device, link) link_condition_for(__func__, device, link)

/* "gpu.N.nvlink.L=0" takes a link down. With MIG on all are. */
static int link_is_active(int gpu, u32 link)
{
    char key[32];

    snprintf(key, sizeof key, "nvlink.%u", link);
    return gpu_number(gpu, "mig", 0) == 0 && gpu_number(gpu, key, 1) != 0;
}

ANSWER nvmlDeviceGetNvLinkState(Device device, u32 link, u32 *active)
{
    int result = link_condition(device, link);

    if (result == OK)
        *active = (u32)link_is_active(device->index, link);
    return result;
}

ANSWER nvmlDeviceGetNvLinkVersion(Device device, u32 link, u32 *version)
{
    static const u32 numbers[] = {0, 1, 2, 4, 6, 7}; /* NVML counts 2.2 and 3.1 too */
    int result = link_condition(device, link);

    if (result == OK)
        *version = numbers[gpu_number(device->index, "nvlink_version", 0) % 6];
    return result;
}

ANSWER nvmlDeviceGetNvLinkCapability(Device device, u32 link, int capability, u32 *answer)
{
    int result = link_condition(device, link);

    if (result == OK)
        *answer = capability != 4; /* everything but SLI bridges */
    return result;
}

/* COUNTER: 0 replay, 1 recovery, 2 CRC of flits, 3 CRC of data, 4 ECC. "gpu.N.nvlink.L.replay_errors=7" for one link. */
ANSWER nvmlDeviceGetNvLinkErrorCounter(Device device, u32 link, int counter, u64 *count)
{
    static const char *names[] = {"replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors", "ecc_errors"};
    char key[64];
    int result = link_condition(device, link);

    if (result != OK)
        return result;
    if (counter < 0 || counter > 4)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "nvlink.%u.%s", link, names[counter]);
    *count = (u64)gpu_number(device->index, key, gpu_number(device->index, "nvlink_errors", 0));
    return OK;
}

SINCE(470) nvmlDeviceGetNvLinkRemoteDeviceType(Device device, u32 link, u32 *type)
{
    int result = link_condition(device, link);

    if (result == OK)
        *type = state_number("nvswitches", 0) ? 2 : 0;
    return result;
}

/* Behind a link is a switch, in turn; without switches another GPU, in turn. */
ANSWER nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, u32 link, PciInfo *info)
{
    char key[64], address[VALUE_SIZE];
    long long switches = state_number("nvswitches", 0), others = state_number("gpus", 0) - 1;
    int peer, result = link_condition(device, link);

    if (result != OK)
        return result;
    if (!link_is_active(device->index, link) || (switches == 0 && others < 1))
        return NOT_SUPPORTED;
    if (switches == 0) {
        peer = (int)((long long)link % others);
        return pci_info(peer + (peer >= device->index), info);
    }
    snprintf(key, sizeof key, "nvswitch.%lld.pci_address", (long long)link % switches);
    if (!state_read(key, address))
        return NOT_SUPPORTED;
    pci_address_info(address, info);
    return OK;
}
ANSWER nvmlDeviceGetNvLinkRemotePciInfo(Device device, u32 link, PciInfo *info) { return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, info); }

static void fabric_answer(int gpu, unsigned char cluster[16], int *status, u32 *clique, unsigned char *state)
{
    memset(cluster, 0, 16);
    *clique = (u32)gpu_number(gpu, "fabric_clique", 0);
    *state = (unsigned char)fabric_state(gpu);
    *status = (int)gpu_number(gpu, "fabric_status", 0);
}

SINCE(525) nvmlDeviceGetGpuFabricInfo(Device device, Fabric *fabric)
{
    int condition = whole_gpu_condition(device, __func__);

    if (condition == OK)
        fabric_answer(device->index, fabric->cluster, &fabric->status, &fabric->clique, &fabric->state);
    return condition;
}

/* Versions 2 and 3 begin alike; the third, of 575 and newer, ends with a summary. */
SINCE(550) nvmlDeviceGetGpuFabricInfoV(Device device, FabricV *fabric)
{
    int condition = whole_gpu_condition(device, __func__);

    if (condition != OK)
        return condition;
    if (fabric->version >> 24 != 2 && (fabric->version >> 24 != 3 || DRIVER_BRANCH < 575))
        return ARGUMENT_VERSION_MISMATCH;
    fabric_answer(device->index, fabric->cluster, &fabric->status, &fabric->clique, &fabric->state);
    fabric->health = (u32)fabric_health(device->index);
    if (fabric->version >> 24 == 3)
        fabric->summary = (unsigned char)fabric_summary(device->index);
    return OK;
}

/* ---- between GPUs, and to the CPUs -------------------------------------------------------------------- */

static int two_gpus(const char *function, Device a, Device b)
{
    int condition = whole_gpu_condition(a, function);

    return condition != OK ? condition : whole_gpu_condition(b, function);
}

SINCE(450) nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, u32 *level)
{
    int condition = two_gpus(__func__, a, b);

    if (condition == OK)
        *level = (u32)topology_level(a->index, b->index);
    return condition;
}

ANSWER nvmlDeviceOnSameBoard(Device a, Device b, int *same)
{
    *same = a == b;
    return two_gpus(__func__, a, b);
}

/* KIND: 0 read, 1 write, 2 NVLink, 3 atomics, 4 properties. "gpu.N.p2p=4" is that status for every pair with GPU N. */
ANSWER nvmlDeviceGetP2PStatus(Device a, Device b, int kind, u32 *status)
{
    int linked, condition = two_gpus(__func__, a, b);
    long long fault;

    if (condition != OK)
        return condition;
    fault = gpu_number(a->index, "p2p", gpu_number(b->index, "p2p", 0));
    linked = gpu_number(a->index, "nvlink_links", 0) > 0 && gpu_number(b->index, "nvlink_links", 0) > 0;
    *status = (u32)(fault ? fault : kind == 2 && !linked ? 5 : kind == 3 && !linked ? 5 : 0);
    return OK;
}

static void fill_affinity(int gpu, u32 words, unsigned long *set)
{
    long long node = gpu_number(gpu, "numa_node", 0), each = state_number("cpus_per_node", 32), cpu;

    memset(set, 0, words * sizeof *set);
    for (cpu = (node < 0 ? 0 : node) * each; cpu < ((node < 0 ? 0 : node) + 1) * each; cpu++)
        if ((u64)cpu < words * 64ull)
            set[cpu / 64] |= 1ul << (cpu % 64);
}

ANSWER nvmlDeviceGetCpuAffinity(Device device, u32 words, unsigned long *set)
{
    CURRENT_STATE_OR_RETURN(device);
    fill_affinity(device->index, words, set);
    return OK;
}

SINCE(450) nvmlDeviceGetCpuAffinityWithinScope(Device device, u32 words, unsigned long *set, u32 scope)
{
    (void)scope;
    CURRENT_STATE_OR_RETURN(device);
    fill_affinity(device->index, words, set);
    return OK;
}

SINCE(450) nvmlDeviceGetMemoryAffinity(Device device, u32 words, unsigned long *set, u32 scope)
{
    (void)scope;
    CURRENT_STATE_OR_RETURN(device);
    memset(set, 0, words * sizeof *set);
    if (words > 0 && gpu_number(device->index, "numa_node", 0) >= 0)
        set[0] = 1ul << gpu_number(device->index, "numa_node", 0);
    return OK;
}

/* The node of the GPU's own memory, which only machines with coherent memory have. */
SINCE(550) nvmlDeviceGetNumaNodeId(Device device, u32 *node)
{
    (void)node;
    CURRENT_STATE_OR_RETURN(device);
    return NOT_SUPPORTED;
}
