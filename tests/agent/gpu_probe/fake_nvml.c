/* A library with a few functions of NVML's and as many GPUs as FAKE_NVML_GPUS says, for what the lab's simulated
 * one does not do: FAKE_NVML holds words "FUNCTION.GPU=hang|crash|NUMBER" (GPU "-" for what has no GPU).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;

static int gpus[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static int behave(const char *function, int gpu)
{
    char word[128], owner[16];
    const char *said = getenv("FAKE_NVML"), *found;

    if (gpu < 0)
        strcpy(owner, "-");
    else
        snprintf(owner, sizeof owner, "%d", gpu);
    snprintf(word, sizeof word, "%s.%s=", function, owner);
    found = said ? strstr(said, word) : NULL;
    if (found == NULL)
        return 0;
    found += strlen(word);
    if (strncmp(found, "hang", 4) == 0)
        for (;;)
            pause();
    if (strncmp(found, "crash", 5) == 0)
        raise(SIGSEGV);
    return atoi(found);
}

#define OR_RETURN(gpu) do { int code = behave(__func__, gpu); if (code) return code; } while (0)

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; OR_RETURN(-1); return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake library"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "470.1.1"); return 0; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    const char *text = getenv("FAKE_NVML_GPUS");
    OR_RETURN(-1);
    *count = text ? (unsigned)atoi(text) : 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **handle) { OR_RETURN((int)index); *handle = &gpus[index]; return 0; }

int nvmlDeviceGetPciInfo_v3(int *handle, Pci *pci)
{
    OR_RETURN(*handle);
    memset(pci, 0, sizeof *pci);
    pci->id = 0x233010de;
    pci->subsystem = 0x16c110de;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", *handle + 1);
    return 0;
}

int nvmlDeviceGetSerial(int *handle, char *text, unsigned size)
{
    OR_RETURN(*handle);
    if (getenv("FAKE_NVML_SERIAL"))
        snprintf(text, size, "%s", getenv("FAKE_NVML_SERIAL"));
    else
        snprintf(text, size, "serial-%d", *handle);
    return 0;
}

int nvmlDeviceGetMemoryInfo(int *handle, unsigned long long *memory)
{
    OR_RETURN(*handle);
    memory[0] = memory[1] = memory[2] = 1 << 30;
    return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(int *a, int *b, int *level) { (void)b; OR_RETURN(*a); *level = 30; return 0; }
