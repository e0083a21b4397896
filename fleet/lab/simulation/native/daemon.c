/* nvidia-persistenced and nv-fabricmanager of a simulated host: a process that has the GPUs open, as theirs.
 *
 * What it does beside that is in a script of its own name below /usr/lib/fleet-lab-gpu/daemons, called with
 * "start" and "stop"; other arguments are the script's alone. A script itself would be called "sh" in /proc.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_FILES 20

static int run(const char *program, const char *word)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        execl(program, program, word, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int open_devices(int *files)
{
    char path[64];
    int i, count = 0;

    for (i = -1; i < MOST_FILES - 1; i++) {
        if (i < 0)
            snprintf(path, sizeof path, "/dev/nvidiactl");
        else
            snprintf(path, sizeof path, "/dev/nvidia%d", i);
        files[count] = open(path, O_RDWR | O_CLOEXEC);
        count += files[count] >= 0;
    }
    return count;
}

int main(int argc, char **argv)
{
    char script[300];
    const char *name = strrchr(argv[0], '/');
    int files[MOST_FILES], count, status, received;
    sigset_t signals;

    snprintf(script, sizeof script, "/usr/lib/fleet-lab-gpu/daemons/%.200s", name ? name + 1 : argv[0]);
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0))
        return run(script, "version");
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    status = run(script, "start");
    if (status != 0)
        return status;
    count = open_devices(files);
    run("/usr/lib/fleet-lab-gpu/modules", "refresh");
    run("/usr/bin/systemd-notify", "--ready");
    sigwait(&signals, &received);
    while (count > 0)
        close(files[--count]);
    run(script, "stop");
    run("/usr/lib/fleet-lab-gpu/modules", "refresh");
    return 0;
}
