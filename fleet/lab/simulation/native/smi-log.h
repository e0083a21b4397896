/* Part of nvidia-smi.c: "-q" and "-q -x", written by one walk, for they hold the same in the same order.
 *
 * item() is a line of the text and an element of the XML; a tag or label that is NULL is left out of one of the two.
 * BRANCH decides what there is: elements came and were renamed with the branches of the driver.
 */
#include <stdarg.h>

#define BRANCH DRIVER_BRANCH
/* Some elements came with 595, and with a later version of the long-term branch 580, but not with 590. */
#define LATE_580 (BRANCH >= 595 || (BRANCH == 580 && compare_versions(OWN_VERSION, "580.126") >= 0))
static int as_xml, depth;

static void text_line(int level, const char *label, const char *value)
{
    printf("%*s%-*s : %s\n", level * 4, "", 54 - level * 4, label, value);
}

static void escaped(const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': printf("&amp;"); break;
        case '<': printf("&lt;"); break;
        case '>': printf("&gt;"); break;
        default: putchar(*text);
        }
}

static void tabs(void)
{
    int i;

    for (i = 0; i <= depth; i++)
        putchar('\t');
}

static void item(const char *tag, const char *label, const char *value)
{
    if (as_xml && tag) {
        tabs();
        printf("<%s>", tag);
        escaped(value);
        printf("</%s>\n", tag);
    } else if (!as_xml && label) {
        text_line(depth, label, value);
    }
}

static __attribute__((format(printf, 3, 4))) void item_of(const char *tag, const char *label, const char *format, ...)
{
    char value[VALUE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    item(tag, label, value);
}

static void begin(const char *tag, const char *label)
{
    if (as_xml && tag) {
        tabs();
        printf("<%s>\n", tag);
    } else if (!as_xml && label) {
        printf("%*s%s\n", depth * 4, "", label);
    }
    depth++;
}

static void end(const char *tag)
{
    depth--;
    if (as_xml && tag) {
        tabs();
        printf("</%s>\n", tag);
    }
}

/* ---- values ------------------------------------------------------------------------------------- */

/* The value of KEY with its unit; "N/A" where the GPU has none, and what is the matter with it where it is lost. */
static const char *shown(int gpu, const char *key, const char *unit)
{
    static char places[8][VALUE_SIZE + 16];
    static int next;
    char value[VALUE_SIZE], *place = places[next++ % 8];
    int condition = gpu_condition(gpu);

    if (condition != OK)
        return condition_text(condition);
    if (!gpu_read(gpu, key, value))
        return "N/A";
    snprintf(place, sizeof places[0], "%s%s", value, unit);
    return place;
}

static const char *watts(int gpu, const char *key)
{
    static char places[8][32];
    static int next;
    char value[VALUE_SIZE], *place = places[next++ % 8];
    int condition = gpu_condition(gpu);

    if (condition != OK)
        return condition_text(condition);
    if (!gpu_read(gpu, key, value))
        return "N/A";
    snprintf(place, sizeof places[0], "%.2f W", (double)state_parse(value) / 1000);
    return place;
}

static const char *mode(int gpu, const char *key)
{
    return gpu_condition(gpu) != OK ? condition_text(gpu_condition(gpu)) : on_off(gpu, key, "Enabled", "Disabled", "N/A");
}

static const char *yes_no(int gpu, const char *key)
{
    return gpu_condition(gpu) != OK ? condition_text(gpu_condition(gpu)) : on_off(gpu, key, "Yes", "No", "N/A");
}

static const char *counted(int gpu, int counter, int place, int kind)
{
    static char places[8][32];
    static int next;
    char *text = places[next++ % 8];

    if (gpu_condition(gpu) != OK)
        return condition_text(gpu_condition(gpu));
    if (gpu_number(gpu, "ecc", 0) == 0)
        return "N/A";
    snprintf(text, sizeof places[0], "%lld", ecc_count(gpu, counter, place, kind));
    return text;
}

/* ---- parts of one GPU ------------------------------------------------------------------------------ */

static void log_mig_device(int gpu, int mig, int index)
{
    char profile[VALUE_SIZE];
    long long slices = mig_read(gpu, mig, "profile", profile) ? state_parse(profile) : 1;
    long long memory = mig_number(gpu, mig, "memory_mib");

    begin("mig_device", "MIG Device");
    item_of("index", "Index", "%d", index);
    item_of("gpu_instance_id", "GPU Instance ID", "%lld", mig_number(gpu, mig, "gpu_instance"));
    item_of("compute_instance_id", "Compute Instance ID", "%lld", mig_number(gpu, mig, "compute_instance"));
    begin("device_attributes", "Device Attributes");
    begin("shared", "Shared");
    item_of("multiprocessor_count", "Multiprocessor count", "%lld", slices * 16);
    item_of("copy_engine_count", "Copy Engine count", "%lld", slices);
    item("encoder_count", "Encoder count", "0");
    item_of("decoder_count", "Decoder count", "%lld", slices);
    item("ofa_count", "OFA count", "0");
    item_of("jpg_count", "JPG count", "%lld", slices);
    end("shared");
    end("device_attributes");
    begin("ecc_error_count", "ECC Errors");
    begin("volatile_count", "Volatile");
    item("sram_uncorrectable", "SRAM Uncorrectable", "0");
    end("volatile_count");
    end("ecc_error_count");
    begin("fb_memory_usage", BRANCH >= 590 ? "Shared FB Memory Usage" : "FB Memory Usage");
    item_of("total", "Total", "%lld MiB", memory);
    item("reserved", "Reserved", "0 MiB");
    item("used", "Used", "0 MiB");
    item_of("free", "Free", "%lld MiB", memory);
    end("fb_memory_usage");
    begin("bar1_memory_usage", BRANCH >= 590 ? "Shared BAR1 Memory" : "BAR1 Memory Usage");
    item_of("total", "Total", "%lld MiB", memory / 2);
    item("used", "Used", "0 MiB");
    item_of("free", "Free", "%lld MiB", memory / 2);
    end("bar1_memory_usage");
    end("mig_device");
}

static void log_migs(int gpu)
{
    int migs[MOST_MIG], i, count = visible_migs(gpu, migs);

    if (BRANCH < 450)
        return;
    begin("mig_mode", "MIG Mode");
    item("current_mig", "Current", mode(gpu, "mig"));
    item("pending_mig", "Pending", mode(gpu, "mig_pending"));
    end("mig_mode");
    if (count > 0) {
        /* In the text the devices stand beside each other, with no line above them. */
        begin("mig_devices", NULL);
        depth -= !as_xml;
        for (i = 0; i < count; i++)
            log_mig_device(gpu, migs[i], i);
        depth += !as_xml;
        end("mig_devices");
    } else if (as_xml) {
        printf("\t\t<mig_devices>\n\t\t\tNone\n\t\t</mig_devices>\n");
    }
}

static void log_numbers(int gpu)
{
    char bus[32];
    const char *module = shown(gpu, "module_id", "");

    item("serial", "Serial Number", shown(gpu, "serial", ""));
    item("uuid", "GPU UUID", shown(gpu, "uuid", ""));
    if (BRANCH >= 575)
        item_of("pdi", "GPU PDI", "0x%016llx", 0x51ab000000000000ull + (unsigned)gpu);
    item_of("minor_number", "Minor Number", "%d", gpu);
    item("vbios_version", "VBIOS Version", shown(gpu, "vbios", ""));
    item("multigpu_board", "MultiGPU Board", "No");
    bus_id(gpu, bus);
    item_of("board_id", "Board ID", "0x%llx", board_of(bus));
    if (BRANCH >= 525)
        item("board_part_number", "Board Part Number", shown(gpu, "board_part_number", ""));
    /* Up to 515 the number of the board stands where later the chip's does. */
    item("gpu_part_number", "GPU Part Number", shown(gpu, BRANCH >= 525 ? "gpu_part_number" : "board_part_number", ""));
    if (BRANCH >= 535)
        item("gpu_fru_part_number", "FRU Part Number", "N/A");
    if (BRANCH >= 565) {
        begin("platformInfo", "Platform Info");
        item("chassis_serial_number", "Chassis Serial Number", "N/A");
        item("slot_number", "Slot Number", "N/A");
        item("tray_index", "Tray Index", "N/A");
        item("host_id", "Host ID", "N/A");
        item("peer_type", "Peer Type", "N/A");
        item("module_id", "Module Id", module);
        item("gpu_fabric_guid", "GPU Fabric GUID", "N/A");
        end("platformInfo");
    } else if (BRANCH >= 450) {
        item("gpu_module_id", "Module ID", module);
    }
    begin("inforom_version", "Inforom Version");
    item("img_version", "Image Version", shown(gpu, "inforom_image", ""));
    item("oem_object", "OEM Object", shown(gpu, "inforom_oem", ""));
    item("ecc_object", "ECC Object", shown(gpu, "inforom_ecc", ""));
    item("pwr_object", "Power Management Object", shown(gpu, "inforom_power", ""));
    end("inforom_version");
}

static void log_firmware(void)
{
    char flavour[VALUE_SIZE];
    int open = state_read("loaded.flavour", flavour) && strcmp(flavour, "open") == 0;

    item("gsp_firmware_version", "GSP Firmware Version", open ? OWN_VERSION : "N/A");
}

static void log_modes(int gpu)
{
    static const char *virtualization[] = {"None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA"};

    if (BRANCH >= 550) {
        begin("inforom_bbx_flush", "Inforom BBX Object Flush");
        item("latest_timestamp", "Latest Timestamp", "N/A");
        item("latest_duration", "Latest Duration", "N/A");
        end("inforom_bbx_flush");
    }
    begin("gpu_operation_mode", "GPU Operation Mode");
    item("current_gom", "Current", "N/A");
    item("pending_gom", "Pending", "N/A");
    end("gpu_operation_mode");
    if (BRANCH >= 510 && BRANCH < 550)
        log_firmware();
    if (BRANCH >= 550)
        item("c2c_mode", "GPU C2C Mode", gpu_number(gpu, "nvlink_version", 0) >= 4 ? "Disabled" : "N/A");
    begin("gpu_virtualization_mode", "GPU Virtualization Mode");
    item("virtualization_mode", "Virtualization Mode", virtualization[gpu_number(gpu, "virtualization_mode", 0) % 5]);
    if (BRANCH >= 450)
        item("host_vgpu_mode", "Host VGPU Mode", "N/A");
    if (BRANCH >= 550)
        item("vgpu_heterogeneous_mode", "vGPU Heterogeneous Mode", "N/A");
    end("gpu_virtualization_mode");
    if (BRANCH >= 535 && BRANCH < 575) {
        begin("gpu_reset_status", "GPU Reset Status");
        item("reset_required", "Reset Required", gpu_number(gpu, "recovery_action", 0) == 1 ? "Yes" : "No");
        item("drain_and_reset_recommended", "Drain and Reset Recommended",
             gpu_number(gpu, "recovery_action", 0) == 4 ? "Yes" : "No");
        end("gpu_reset_status");
    }
    if (BRANCH >= 565)
        item("gpu_recovery_action", "GPU Recovery Action", recovery_action(gpu));
    if (BRANCH >= 550)
        log_firmware();
    begin("ibmnpu", "IBMNPU");
    item("relaxed_ordering_mode", "Relaxed Ordering Mode", "N/A");
    end("ibmnpu");
}

static void log_pci(int gpu)
{
    char bus[32], id[VALUE_SIZE] = "", subsystem[VALUE_SIZE] = "", kind[VALUE_SIZE] = "";

    bus_id(gpu, bus);
    gpu_read(gpu, "pci_device_id", id);
    gpu_read(gpu, "pci_subsystem_id", subsystem);
    gpu_read(gpu, "pci_class", kind);
    upper(id);
    upper(subsystem);
    begin("pci", "PCI");
    item_of("pci_bus", "Bus", "%s%.2s", as_xml ? "" : "0x", bus + 5);
    item_of("pci_device", "Device", "%s%.2s", as_xml ? "" : "0x", bus + 8);
    item_of("pci_domain", "Domain", "%s%.4s", as_xml ? "" : "0x", bus);
    if (BRANCH >= 570) {
        item_of("pci_base_class", "Base Classcode", "%s%.1s", as_xml ? "" : "0x", kind + 1);
        item_of("pci_sub_class", "Sub Classcode", "%s%.1s", as_xml ? "" : "0x", kind + 3);
    }
    item_of("pci_device_id", "Device Id", "%s%.8s", as_xml ? "" : "0x", id);
    item_of("pci_bus_id", "Bus Id", "0000%.20s", bus);
    item_of("pci_sub_system_id", "Sub System Id", "%s%.8s", as_xml ? "" : "0x", subsystem);
    begin("pci_gpu_link_info", "GPU Link Info");
    begin("pcie_gen", "PCIe Generation");
    item("max_link_gen", "Max", shown(gpu, "pcie_max_gen", ""));
    item("current_link_gen", "Current", shown(gpu, "pcie_gen", ""));
    if (BRANCH >= 525) {
        item("device_current_link_gen", "Device Current", shown(gpu, "pcie_gen", ""));
        item("max_device_link_gen", "Device Max", shown(gpu, "pcie_gpu_gen", ""));
        item("max_host_link_gen", "Host Max", shown(gpu, "pcie_host_gen", ""));
    }
    end("pcie_gen");
    begin("link_widths", "Link Width");
    item("max_link_width", "Max", shown(gpu, "pcie_max_width", "x"));
    item("current_link_width", "Current", shown(gpu, "pcie_width", "x"));
    end("link_widths");
    end("pci_gpu_link_info");
    begin("pci_bridge_chip", "Bridge Chip");
    item("bridge_chip_type", "Type", "N/A");
    item("bridge_chip_fw", "Firmware", "N/A");
    end("pci_bridge_chip");
    item_of("replay_counter", "Replays Since Reset", "%lld", gpu_number(gpu, "pcie_replays", 0));
    item("replay_rollover_counter", "Replay Number Rollovers", "0");
    item("tx_util", "Tx Throughput", "0 KB/s");
    item("rx_util", "Rx Throughput", "0 KB/s");
    if (BRANCH >= 525) {
        item(BRANCH >= 550 ? "atomic_caps_outbound" : "atomic_caps_inbound",
             BRANCH >= 550 ? "Atomic Caps Outbound" : "Atomic Caps Inbound", "N/A");
        item(BRANCH >= 550 ? "atomic_caps_inbound" : "atomic_caps_outbound",
             BRANCH >= 550 ? "Atomic Caps Inbound" : "Atomic Caps Outbound", "N/A");
    }
    end("pci");
}

/* Bit, tag and label of each reason; DEEP ones stand below "HW Slowdown" in the text. */
static const struct { unsigned bit; const char *tag, *label; int deep; } reasons[] = {
    {0x001, "gpu_idle", "Idle", 0}, {0x002, "applications_clocks_setting", "Applications Clocks Setting", 0},
    {0x004, "sw_power_cap", "SW Power Cap", 0}, {0x008, "hw_slowdown", "HW Slowdown", 0},
    {0x040, "hw_thermal_slowdown", "HW Thermal Slowdown", 1},
    {0x080, "hw_power_brake_slowdown", "HW Power Brake Slowdown", 1}, {0x010, "sync_boost", "Sync Boost", 0},
    {0x020, "sw_thermal_slowdown", "SW Thermal Slowdown", 0},
    {0x100, "display_clocks_setting", "Display Clock Setting", 0},
};

static void log_reasons(int gpu)
{
    const char *word = BRANCH >= 535 ? "event" : "throttle";
    long long mask = gpu_number(gpu, "clocks_event_reasons", 1);
    char tag[64];
    size_t i;

    snprintf(tag, sizeof tag, "clocks_%s_reasons", word);
    if (gpu_condition(gpu) != OK) {
        item(tag, BRANCH >= 535 ? "Clocks Event Reasons" : "Clocks Throttle Reasons", condition_text(gpu_condition(gpu)));
        return;
    }
    begin(tag, BRANCH >= 535 ? "Clocks Event Reasons" : "Clocks Throttle Reasons");
    for (i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        char name[96];
        snprintf(name, sizeof name, "clocks_%s_reason_%s", word, reasons[i].tag);
        depth += !as_xml && reasons[i].deep;
        item(name, reasons[i].label, mask & reasons[i].bit ? "Active" : "Not Active");
        depth -= !as_xml && reasons[i].deep;
    }
    end(tag);
    if (BRANCH >= 575) {
        begin("clocks_event_reasons_counters", "Clocks Event Reasons Counters");
        item("clocks_event_reasons_counters_sw_power_cap", "SW Power Capping", "0 us");
        item("clocks_event_reasons_counters_sync_boost", "Sync Boost", "0 us");
        item("clocks_event_reasons_counters_sw_therm_slowdown", "SW Thermal Slowdown", "0 us");
        item("clocks_event_reasons_counters_hw_therm_slowdown", "HW Thermal Slowdown", "0 us");
        item("clocks_event_reasons_counters_hw_power_brake", "HW Power Braking", "0 us");
        end("clocks_event_reasons_counters");
    }
    if (BRANCH >= 565)
        item("sparse_operation_mode", "Sparse Operation Mode", "N/A");
}

static const char *mebibytes(int gpu, long long number)
{
    static char places[4][32];
    static int next;
    char *place = places[next++ % 4];

    if (gpu_condition(gpu) != OK)
        return condition_text(gpu_condition(gpu));
    snprintf(place, sizeof places[0], "%lld MiB", number);
    return place;
}

static void log_sessions(const char *tag, const char *label)
{
    begin(tag, label);
    item("session_count", "Active Sessions", "0");
    item("average_fps", "Average FPS", "0");
    item("average_latency", "Average Latency", "0");
    end(tag);
}

static void log_memory(int gpu)
{
    long long reserved = gpu_number(gpu, "memory_reserved_mib", 0), used = gpu_number(gpu, "memory_used_mib", 0);
    int whole = gpu_number(gpu, "mig", 0) == 0;

    begin("fb_memory_usage", "FB Memory Usage");
    item("total", "Total", shown(gpu, "memory_mib", " MiB"));
    if (BRANCH >= 510)
        item("reserved", "Reserved", shown(gpu, "memory_reserved_mib", " MiB"));
    /* Before 510 what the driver keeps for itself counted as used. */
    item("used", "Used", mebibytes(gpu, BRANCH >= 510 ? used : used + reserved));
    item("free", "Free", mebibytes(gpu, memory_free(gpu)));
    end("fb_memory_usage");
    begin("bar1_memory_usage", "BAR1 Memory Usage");
    item("total", "Total", mebibytes(gpu, gpu_number(gpu, "bar1_mib", 256)));
    item("used", "Used", mebibytes(gpu, 1));
    item("free", "Free", mebibytes(gpu, gpu_number(gpu, "bar1_mib", 256) - 1));
    end("bar1_memory_usage");
    if (BRANCH >= 535) {
        begin("cc_protected_memory_usage", "Conf Compute Protected Memory Usage");
        item("total", "Total", "0 MiB");
        item("used", "Used", "0 MiB");
        item("free", "Free", "0 MiB");
        end("cc_protected_memory_usage");
    }
    item("compute_mode", "Compute Mode", compute_mode(gpu));
    begin("utilization", "Utilization");
    item("gpu_util", BRANCH >= 570 ? "GPU" : "Gpu", whole ? shown(gpu, "utilization_gpu", " %") : "N/A");
    item("memory_util", "Memory", whole ? shown(gpu, "utilization_memory", " %") : "N/A");
    item("encoder_util", "Encoder", whole ? "0 %" : "N/A");
    item("decoder_util", "Decoder", whole ? "0 %" : "N/A");
    if (BRANCH >= 535) {
        item("jpeg_util", "JPEG", whole ? "0 %" : "N/A");
        item("ofa_util", "OFA", whole ? "0 %" : "N/A");
    }
    end("utilization");
    log_sessions("encoder_stats", "Encoder Stats");
    log_sessions("fbc_stats", "FBC Stats");
    if (BRANCH >= 570) {
        begin("dram_encryption_mode", "DRAM Encryption Mode");
        item("current_dram_encryption", "Current", "N/A");
        item("pending_dram_encryption", "Pending", "N/A");
        end("dram_encryption_mode");
    }
}

/* Up to Volta errors are counted by kind and then by the place: caches, registers, memory. */
static void log_older_ecc_kind(int gpu, int counter, int kind)
{
    const char *nothing = gpu_number(gpu, "ecc", 0) ? "0" : "N/A";

    begin(kind ? "double_bit" : "single_bit", kind ? "Double Bit" : "Single Bit");
    item("device_memory", "Device Memory", counted(gpu, counter, ECC_DRAM, kind));
    item("register_file", "Register File", nothing);
    item("l1_cache", "L1 Cache", nothing);
    item("l2_cache", "L2 Cache", counted(gpu, counter, ECC_SRAM, kind));
    item("texture_memory", "Texture Memory", "N/A");
    item("texture_shm", "Texture Shared", "N/A");
    item("cbu", "CBU", kind ? nothing : "N/A");
    item("total", "Total", counted(gpu, counter, ECC_TOTAL, kind));
    end(kind ? "double_bit" : "single_bit");
}

static void log_ecc_counter(int gpu, int counter)
{
    const char *tag = counter ? "aggregate" : "volatile";
    int split = BRANCH >= 550 && gpu_number(gpu, "sram_split", 0), has = gpu_number(gpu, "ecc", 0) != 0;

    begin(tag, counter ? "Aggregate" : "Volatile");
    if (counts_by_cache(gpu)) {
        log_older_ecc_kind(gpu, counter, 0);
        log_older_ecc_kind(gpu, counter, 1);
        end(tag);
        return;
    }
    item("sram_correctable", "SRAM Correctable", counted(gpu, counter, ECC_SRAM, 0));
    if (split) {
        item("sram_uncorrectable_parity", "SRAM Uncorrectable Parity", counted(gpu, counter, ECC_SRAM, 1));
        item("sram_uncorrectable_secded", "SRAM Uncorrectable SEC-DED", has ? "0" : "N/A");
    } else {
        item("sram_uncorrectable", "SRAM Uncorrectable", counted(gpu, counter, ECC_SRAM, 1));
    }
    item("dram_correctable", "DRAM Correctable", counted(gpu, counter, ECC_DRAM, 0));
    item("dram_uncorrectable", "DRAM Uncorrectable", counted(gpu, counter, ECC_DRAM, 1));
    if (split && counter)
        item("sram_threshold_exceeded", "SRAM Threshold Exceeded",
             !has ? "N/A" : gpu_number(gpu, "ecc_sram_threshold_exceeded", 0) ? "Yes" : "No");
    end(tag);
}

static void log_ecc(int gpu)
{
    const char *nothing = gpu_number(gpu, "ecc", 0) ? "0" : "N/A";

    begin("ecc_mode", "ECC Mode");
    item("current_ecc", "Current", mode(gpu, "ecc"));
    item("pending_ecc", "Pending", mode(gpu, "ecc_pending"));
    end("ecc_mode");
    begin("ecc_errors", "ECC Errors");
    log_ecc_counter(gpu, 0);
    log_ecc_counter(gpu, 1);
    if (BRANCH >= 550 && gpu_number(gpu, "sram_split", 0)) {
        begin("aggregate_uncorrectable_sram_sources", "Aggregate Uncorrectable SRAM Sources");
        item("sram_l2", "SRAM L2", counted(gpu, 1, ECC_SRAM, 1));
        item("sram_sm", "SRAM SM", nothing);
        item("sram_microcontroller", "SRAM Microcontroller", nothing);
        item("sram_pcie", "SRAM PCIE", nothing);
        item("sram_other", "SRAM Other", nothing);
        end("aggregate_uncorrectable_sram_sources");
    }
    if (BRANCH >= 580 && gpu_number(gpu, "sram_split", 0)) {
        item("channel_repair_pending", "Channel Repair Pending", "No");
        item("tpc_repair_pending", "TPC Repair Pending", "No");
        if (LATE_580 || BRANCH >= 590)
            item("unrepairable_memory", "Unrepairable Memory", gpu_number(gpu, "ecc", 0) ? "No" : "N/A");
    }
    end("ecc_errors");
}

static void log_retired_pages(int gpu, const char *tag, const char *label, const char *key)
{
    char page[32];
    long long count = gpu_number(gpu, key, -1), i;

    if (!as_xml) {
        item(NULL, label, shown(gpu, key, ""));
        return;
    }
    begin(tag, NULL);
    item("retired_count", NULL, shown(gpu, key, ""));
    if (count < 0 || gpu_condition(gpu) != OK) {
        item("retired_pagelist", NULL, "N/A");
    } else {
        begin("retired_pagelist", NULL);
        for (i = 0; i < count; i++) {
            snprintf(page, sizeof page, "0x%016llx", 0x10000ll * (i + 1));
            item("retired_page_addr", NULL, page);
        }
        end("retired_pagelist");
    }
    end(tag);
}

static void log_retired(int gpu)
{
    begin("retired_pages", "Retired Pages");
    log_retired_pages(gpu, "multiple_single_bit_retirement", "Single Bit ECC", "retired_single");
    log_retired_pages(gpu, "double_bit_retirement", "Double Bit ECC", "retired_double");
    if (BRANCH >= 450)
        item("pending_blacklist", "Pending Page Blacklist", yes_no(gpu, "retired_pending"));
    item("pending_retirement", BRANCH >= 450 ? NULL : "Pending", yes_no(gpu, "retired_pending"));
    end("retired_pages");
}

static void log_remapped(int gpu)
{
    static const char *banks[][3] = {{"max", "Max", "remap_banks"}, {"high", "High", "remap_high"},
                                     {"partial", "Partial", "remap_partial"}, {"low", "Low", "remap_low"},
                                     {"none", "None", "remap_none"}};
    char tag[64];
    size_t i;
    int condition = gpu_condition(gpu);

    if (BRANCH < 450)
        return;
    if (condition != OK || gpu_number(gpu, "remap_banks", -1) < 0 || gpu_number(gpu, "mig", 0)) {
        item("remapped_rows", "Remapped Rows", condition != OK ? condition_text(condition) : "N/A");
        return;
    }
    begin("remapped_rows", "Remapped Rows");
    item("remapped_row_corr", "Correctable Error", shown(gpu, "remap_corrected", ""));
    if (LATE_580)
        item("remapped_row_corr_inactive", "Inactive Correctable Error", "0");
    item("remapped_row_unc", "Uncorrectable Error", shown(gpu, "remap_uncorrected", ""));
    if (LATE_580)
        item("remapped_row_unc_inactive", "Inactive Uncorrectable Error", "0");
    item("remapped_row_pending", "Pending", yes_no(gpu, "remap_pending"));
    item("remapped_row_failure", "Remapping Failure Occurred", yes_no(gpu, "remap_failure"));
    begin("row_remapper_histogram", "Bank Remap Availability Histogram");
    for (i = 0; i < 5; i++) {
        snprintf(tag, sizeof tag, "row_remapper_histogram_%s", banks[i][0]);
        item_of(tag, banks[i][1], "%lld bank(s)", gpu_number(gpu, banks[i][2], 0));
    }
    end("row_remapper_histogram");
    end("remapped_rows");
}

static void log_temperature(int gpu)
{
    int relative = gpu_number(gpu, "tlimit_maximum_celsius", -100) > -100 && BRANCH >= 535;

    begin("temperature", "Temperature");
    item("gpu_temp", "GPU Current Temp", shown(gpu, "temperature_celsius", " C"));
    if (BRANCH >= 525)
        item("gpu_temp_tlimit", "GPU T.Limit Temp", shown(gpu, "temperature_margin_celsius", " C"));
    if (relative) {
        item("gpu_temp_max_tlimit_threshold", "GPU Shutdown T.Limit Temp", shown(gpu, "tlimit_shutdown_celsius", " C"));
        item("gpu_temp_slow_tlimit_threshold", "GPU Slowdown T.Limit Temp", shown(gpu, "tlimit_slowdown_celsius", " C"));
        item("gpu_temp_max_gpu_tlimit_threshold", "GPU Max Operating T.Limit Temp", shown(gpu, "tlimit_maximum_celsius", " C"));
    } else {
        item("gpu_temp_max_threshold", "GPU Shutdown Temp", shown(gpu, "shutdown_celsius", " C"));
        item("gpu_temp_slow_threshold", "GPU Slowdown Temp", shown(gpu, "slowdown_celsius", " C"));
        item("gpu_temp_max_gpu_threshold", "GPU Max Operating Temp", shown(gpu, "max_operating_celsius", " C"));
    }
    if (BRANCH >= 450)
        item("gpu_target_temperature", "GPU Target Temperature", shown(gpu, "target_celsius", " C"));
    item("memory_temp", "Memory Current Temp", shown(gpu, "memory_temperature_celsius", " C"));
    item(relative ? "gpu_temp_max_mem_tlimit_threshold" : "gpu_temp_max_mem_threshold",
         relative ? "Memory Max Operating T.Limit Temp" : "Memory Max Operating Temp",
         shown(gpu, relative ? "tlimit_memory_celsius" : "memory_max_celsius", " C"));
    end("temperature");
    if (BRANCH >= 450 && as_xml) {
        begin("supported_gpu_target_temp", NULL);
        item("gpu_target_temp_min", NULL, gpu_number(gpu, "target_celsius", 0) ? "65 C" : "N/A");
        item("gpu_target_temp_max", NULL, gpu_number(gpu, "target_celsius", 0) ? "91 C" : "N/A");
        end("supported_gpu_target_temp");
    }
}

/* Up to 530: "power_readings" with a limit and one that is enforced. */
static void log_older_power(int gpu, const char *limit)
{
    begin("power_readings", "Power Readings");
    item("power_state", NULL, shown(gpu, "performance_state", ""));
    item("power_management", "Power Management", "Supported");
    item("power_draw", "Power Draw", watts(gpu, "power_draw_mw"));
    item("power_limit", "Power Limit", limit);
    item("default_power_limit", "Default Power Limit", watts(gpu, "power_limit_mw"));
    item("enforced_power_limit", "Enforced Power Limit", limit);
    item("min_power_limit", "Min Power Limit", watts(gpu, "power_min_mw"));
    item("max_power_limit", "Max Power Limit", watts(gpu, "power_max_mw"));
    end("power_readings");
}

/* The same tags come again below the module and the memory. */
static void log_power_of(const char *tag, const char *label, const char *state, const char *average, const char *now,
                         const char *limits[5])
{
    static const char *names[][2] = {{"current_power_limit", "Current Power Limit"},
                                     {"requested_power_limit", "Requested Power Limit"},
                                     {"default_power_limit", "Default Power Limit"},
                                     {"min_power_limit", "Min Power Limit"}, {"max_power_limit", "Max Power Limit"}};
    int i;

    begin(tag, label);
    if (state)
        item("power_state", NULL, BRANCH >= 590 ? "Requested functionality has been deprecated" : state);
    if (BRANCH >= 565) {
        item("average_power_draw", "Average Power Draw", average);
        item("instant_power_draw", "Instantaneous Power Draw", now);
    } else {
        item("power_draw", "Power Draw", now);
    }
    for (i = 0; limits && i < 5; i++)
        item(names[i][0], names[i][1], limits[i]);
    end(tag);
}

static void log_power(int gpu)
{
    static const char *none[] = {"N/A", "N/A", "N/A", "N/A", "N/A"};
    const char *limits[5], *draw = watts(gpu, "power_draw_mw");
    char state[8], limit[32];

    snprintf(state, sizeof state, "P%lld", gpu_number(gpu, "performance_state", 0) % 100);
    snprintf(limit, sizeof limit, "%.2f W", (double)power_limit(gpu) / 1000);
    limits[0] = limits[1] = gpu_condition(gpu) == OK && power_limit(gpu) ? limit : watts(gpu, "power_limit_mw");
    if (BRANCH < 535) {
        log_older_power(gpu, limits[0]);
        return;
    }
    limits[2] = watts(gpu, "power_limit_mw");
    limits[3] = watts(gpu, "power_min_mw");
    limits[4] = watts(gpu, "power_max_mw");
    log_power_of("gpu_power_readings", "GPU Power Readings", state, draw, draw, limits);
    if (BRANCH >= 565)
        log_power_of("gpu_memory_power_readings", "GPU Memory Power Readings ", NULL, "N/A", "N/A", NULL);
    log_power_of("module_power_readings", "Module Power Readings", state, "N/A", "N/A", none);
    if (BRANCH >= 570) {
        item("power_smoothing", "Power Smoothing", "N/A");
        begin("power_profiles", "Workload Power Profiles");
        item("power_profile_requested_profiles", "Requested Profiles", "N/A");
        item("power_profile_enforced_profiles", "Enforced Profiles", "N/A");
        end("power_profiles");
    }
    if (BRANCH >= 595)
        item("edpp_multiplier", "EDPp Multiplier", "N/A");
}

static void log_clocks(int gpu)
{
    static const char *kinds[][3] = {{"graphics", "Graphics", "graphics_clock"}, {"sm", "SM", "sm_clock"},
                                     {"memory", "Memory", "mem_clock"}, {"video", "Video", "video_clock"}};
    const char *gone = "Requested functionality has been deprecated";
    int application = gpu_number(gpu, "ecc", -1) >= 0, set, i;
    char key[64];

    begin("clocks", "Clocks");
    for (i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "clock_%s_mhz", kinds[i][0]);
        item(kinds[i][2], kinds[i][1], shown(gpu, key, " MHz"));
    }
    end("clocks");
    for (set = 0; set < 2; set++) {
        begin(set ? "default_applications_clocks" : "applications_clocks", set ? "Default Applications Clocks" : "Applications Clocks");
        item("graphics_clock", "Graphics", BRANCH >= 590 ? gone : application ? shown(gpu, "max_clock_graphics_mhz", " MHz") : "N/A");
        item("mem_clock", "Memory", BRANCH >= 590 ? gone : application ? shown(gpu, "max_clock_memory_mhz", " MHz") : "N/A");
        end(set ? "default_applications_clocks" : "applications_clocks");
    }
    if (BRANCH >= 525) {
        begin("deferred_clocks", "Deferred Clocks");
        item("mem_clock", "Memory", "N/A");
        end("deferred_clocks");
    }
    begin("max_clocks", "Max Clocks");
    for (i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "max_clock_%s_mhz", kinds[i][0]);
        item(kinds[i][2], kinds[i][1], shown(gpu, key, " MHz"));
    }
    end("max_clocks");
    begin("max_customer_boost_clocks", "Max Customer Boost Clocks");
    item("graphics_clock", "Graphics", application ? shown(gpu, "max_clock_graphics_mhz", " MHz") : "N/A");
    end("max_customer_boost_clocks");
    begin("clock_policy", "Clock Policy");
    item("auto_boost", "Auto Boost", "N/A");
    item("auto_boost_default", "Auto Boost Default", "N/A");
    end("clock_policy");
    if (BRANCH >= 450 && BRANCH < 575) {
        begin("voltage", "Voltage");
        item("graphics_volt", "Graphics", "N/A");
        end("voltage");
    }
}

static const char *health_word(long long mask, int question)
{
    static const char *words[] = {"N/A", "True", "False", "N/A"};

    return words[mask >> (2 * question) & 3];
}

static void log_fabric_health(int gpu)
{
    static const char *summaries[] = {"N/A", "Healthy", "Unhealthy", "Limited Capacity"};
    static const char *configurations[] = {"N/A", "None", "Incorrect SysGuid", "Incorrect Chassis Serial Number",
                                           "No Partition", "Insufficient Nvlinks", "Incompatible GPU Firmware",
                                           "Invalid Location"};
    static const char *bandwidths[] = {"N/A", "Degraded", "Full", "N/A"};
    long long mask = fabric_health(gpu);

    begin("health", "Health");
    if (BRANCH >= 575)
        item("summary", "Summary", summaries[fabric_summary(gpu) & 3]);
    item("bandwidth", "Bandwidth", bandwidths[mask & 3]);
    if (BRANCH >= 565) {
        item("route_recovery_in_progress", "Route Recovery in progress", health_word(mask, 1));
        item("route_unhealthy", "Route Unhealthy", health_word(mask, 2));
        item("access_timeout_recovery", "Access Timeout Recovery", health_word(mask, 3));
    }
    if (BRANCH >= 575)
        item("incorrect_configuration", "Incorrect Configuration", configurations[mask >> 8 & 7]);
    if (LATE_580)
        item("partition_assigned", "Partition Assigned", "N/A");
    end("health");
}

static void log_fabric(int gpu)
{
    int state = fabric_state(gpu);

    if (BRANCH < 525)
        return;
    begin("fabric", "Fabric");
    if (gpu_condition(gpu) != OK) {
        item("state", "State", condition_text(gpu_condition(gpu)));
        item("status", "Status", condition_text(gpu_condition(gpu)));
    } else {
        item("state", "State", fabric_text(gpu));
        item("status", "Status", fabric_status_text(gpu));
    }
    if (BRANCH >= 550) {
        item_of("cliqueId", "CliqueId", state == 3 ? "%lld" : "N/A", gpu_number(gpu, "fabric_clique", 0));
        item("clusterUuid", "ClusterUUID", state == 3 ? "00000000-0000-0000-0000-000000000000" : "N/A");
        log_fabric_health(gpu);
    }
    end("fabric");
}

static void log_process(const struct process *process)
{
    char name[VALUE_SIZE];

    process_name(process->pid, name);
    if (as_xml) {
        begin("process_info", NULL);
        if (BRANCH >= 450) {
            item("gpu_instance_id", NULL, "N/A");
            item("compute_instance_id", NULL, "N/A");
        }
        item_of("pid", NULL, "%lld", process->pid);
        item_of("type", NULL, "%s", process->kind);
        item("process_name", NULL, name);
        item_of("used_memory", NULL, "%lld MiB", process->mib);
        end("process_info");
        return;
    }
    if (BRANCH >= 450)
        printf("        %-33s : N/A\n        %-33s : N/A\n", "GPU instance ID", "Compute instance ID");
    printf("        %-33s : %lld\n            %-29s : %s\n            %-29s : %s\n            %-29s : %lld MiB\n",
           "Process ID", process->pid, "Type", process->kind, "Name", name, "Used GPU Memory", process->mib);
}

static void log_processes(int gpu)
{
    struct process found[64];
    int i, count = processes_of(gpu, found, 64);

    if (count == 0 && !as_xml) {
        item(NULL, "Processes", "None");
    } else {
        begin("processes", "Processes");
        for (i = 0; i < count; i++)
            log_process(&found[i]);
        end("processes");
    }
    if (as_xml)
        printf("\t\t<accounted_processes>\n\t\t</accounted_processes>\n");
    if (BRANCH >= 570) {
        begin("capabilities", "Capabilities");
        item("egm", "EGM", "disabled");
        end("capabilities");
    }
}

static void log_gpu(int gpu)
{
    const char *gone = "Requested functionality has been deprecated";
    char bus[32];

    bus_id(gpu, bus);
    printf(as_xml ? "\t<gpu id=\"0000%s\">\n" : "\nGPU 0000%s\n", bus);
    depth = 1;
    item("product_name", "Product Name", shown(gpu, "name", ""));
    item("product_brand", "Product Brand", shown(gpu, "brand", ""));
    if (BRANCH >= 450)
        item("product_architecture", "Product Architecture", shown(gpu, "architecture", ""));
    item("display_mode", "Display Mode", BRANCH >= 570 ? gone : "Disabled");
    if (BRANCH >= 575)
        item("display_attached", "Display Attached", "No");
    item("display_active", "Display Active", "Disabled");
    item("persistence_mode", "Persistence Mode", persistence(gpu, "Enabled", "Disabled"));
    if (BRANCH >= 535)
        item("addressing_mode", "Addressing Mode", "None");
    log_migs(gpu);
    item("accounting_mode", "Accounting Mode", "Disabled");
    item("accounting_mode_buffer_size", "Accounting Mode Buffer Size", "4000");
    begin("driver_model", "Driver Model");
    item("current_dm", "Current", "N/A");
    item("pending_dm", "Pending", "N/A");
    end("driver_model");
    log_numbers(gpu);
    log_modes(gpu);
    log_pci(gpu);
    item("fan_speed", "Fan Speed", shown(gpu, "fan_percent", " %"));
    item_of("performance_state", "Performance State", "P%lld", gpu_number(gpu, "performance_state", 0));
    log_reasons(gpu);
    log_memory(gpu);
    log_ecc(gpu);
    log_retired(gpu);
    log_remapped(gpu);
    log_temperature(gpu);
    log_power(gpu);
    log_clocks(gpu);
    log_fabric(gpu);
    if (as_xml)
        item("supported_clocks", NULL, "N/A");
    log_processes(gpu);
    if (as_xml)
        printf("\t</gpu>\n");
}

/* Branch 610 has the driver's version under a new name, and a sentence beside the old one. */
static void log_versions(const char *driver, const char *cuda)
{
    depth = 0;
    if (BRANCH < 610) {
        item("driver_version", "Driver Version", driver);
        item("cuda_version", "CUDA Version", cuda);
        return;
    }
    item_of("driver_version", "Driver Version", "%s [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]", driver);
    item_of("cuda_version", "CUDA Version", "%s [Deprecated; will be removed in CUDA 14.0. Use CUDA UMD Version instead]", cuda);
    item("kmd_version", "KMD Version", driver);
    item("cuda_umd_version", "CUDA UMD Version", cuda);
}

static int log_all(int xml, const int *gpus, int count)
{
    char driver[VALUE_SIZE], cuda[16], now[64], number[16];
    time_t clock_now = time(NULL);
    int i, all[MOST_GPUS];

    as_xml = xml;
    depth = 0;
    state_read("loaded.version", driver);
    cuda_version_text(CUDA_VERSION, cuda, sizeof cuda);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", gmtime(&clock_now));
    snprintf(number, sizeof number, "%d", served_gpus(all));
    if (as_xml) {
        printf("<?xml version=\"1.0\" ?>\n");
        if (BRANCH >= 450)
            printf("<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v%d.dtd\">\n", BRANCH >= 580 ? 13 : BRANCH >= 525 ? 12 : 11);
        printf("<nvidia_smi_log>\n");
    } else {
        printf("\n==============NVSMI LOG==============\n\n");
    }
    item("timestamp", "Timestamp", now);
    log_versions(driver, cuda);
    if (!as_xml)
        printf("\n");
    item("attached_gpus", "Attached GPUs", number);
    for (i = 0; i < count; i++) {
        hang_in_any(gpus[i]);
        log_gpu(gpus[i]);
    }
    printf(as_xml ? "</nvidia_smi_log>\n" : "\n");
    return 0;
}
