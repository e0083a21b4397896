/* Who has the simulated GPUs' device files open: what the kernel would count as references to its modules.
 *
 * Without arguments it prints "MODULE=COUNT" lines. With "watch" it has the modules' counts renewed
 * whenever they change, for as long as it runs: a process that ends gives its references back.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct counts { int nvidia, uvm, modeset; };

static void count_link(const char *target, struct counts *found)
{
    const char *name = "/dev/nvidia";

    if (strncmp(target, name, strlen(name)) != 0)
        return;
    target += strlen(name);
    if (strncmp(target, "-uvm", 4) == 0)
        found->uvm++;
    else if (strcmp(target, "-modeset") == 0)
        found->modeset++;
    else
        found->nvidia++;
}

static void count_process(const char *pid, struct counts *found)
{
    char path[600], target[600];
    struct dirent *entry;
    ssize_t length;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    folder = opendir(path);
    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "/proc/%.20s/fd/%.255s", pid, entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        if (length > 0) {
            target[length] = '\0';
            count_link(target, found);
        }
    }
    closedir(folder);
}

static struct counts count(void)
{
    struct counts found = {0, 0, 0};
    struct dirent *entry;
    DIR *folder = opendir("/proc");

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            count_process(entry->d_name, &found);
    if (folder != NULL)
        closedir(folder);
    return found;
}

int main(int argc, char **argv)
{
    struct counts before = count(), now;

    if (argc < 2 || strcmp(argv[1], "watch") != 0) {
        printf("nvidia=%d\nnvidia_uvm=%d\nnvidia_modeset=%d\n", before.nvidia, before.uvm, before.modeset);
        return 0;
    }
    for (;; usleep(500 * 1000)) {
        if (access("/sys/module/nvidia", F_OK) != 0)
            continue;
        now = count();
        if (memcmp(&before, &now, sizeof now) != 0 && system("/usr/lib/fleet-lab-gpu/modules refresh") == 0)
            before = now;
    }
}
