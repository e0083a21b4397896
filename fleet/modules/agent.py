"""The agent on the host: a timer that refreshes the host's report, and metrics for node_exporter.

Three things on the host: the bundle the unit runs (``agent_bundle``), a oneshot service and its timer.
Nothing runs between two refreshes. docs/agent.md says what is written where. A host without systemd has no
timer: its report is refreshed by runs only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.agent.protocol import STATE_DIR
from fleet.audit.facts import fact
from fleet.modules.base import (
    SERVICE_DEADLINE_S,
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    ControllerResult,
    Facts,
    Json,
)
from fleet.modules.shared.engine_settings import without_systemd

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DECIDES = True
READS_FACTS = True
SERVICE = "fleet-agent.service"
TIMER = "fleet-agent.timer"

# What may be asked for, as systemd's calendar has it: those that divide an hour or a day, since only
# calendar timers catch up on what was missed while the host was down. And the seconds of each.
_INTERVALS = {
    "5m": ("*:0/5", 300),
    "10m": ("*:0/10", 600),
    "15m": ("*:0/15", 900),
    "20m": ("*:0/20", 1200),
    "30m": ("*:0/30", 1800),
    "1h": ("hourly", 3600),
    "2h": ("0/2:00", 7200),
    "3h": ("0/3:00", 10800),
    "4h": ("0/4:00", 14400),
    "6h": ("0/6:00", 21600),
    "8h": ("0/8:00", 28800),
    "12h": ("0/12:00", 43200),
    "1d": ("daily", 86400),
}
_LONGEST_DELAY_S = 360
# Without spaces, quotes, percent signs and the like, which a unit file reads as something else.
_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_@+-][A-Za-z0-9._@+-]*)+/?\Z")

ARGUMENTS = {
    "state": Argument(default="present", choices=("present", "absent")),
    "interval": Argument(
        "plain", default="1h", choices=tuple(_INTERVALS), description="how often the report is refreshed"
    ),
    "textfile_directory": Argument(
        "path", description="node_exporter's textfile directory: fleet.prom is written there; made if missing"
    ),
}

# ReadOnlyPaths instead of ProtectKernelTunables and ProtectControlGroups: for those, systemd up to 252
# mounts a fresh /proc, without what a container's host (lxcfs) has mounted over parts of it; the facts
# would be those of another machine. DevicePolicy instead of PrivateDevices, which would hide that there are
# /dev/nvidia*, and with it who has them open. ProtectKernelModules would hide the drivers on the disk, ProtectClock
# and the usual system call filters forbid to ask whether the clock is kept right, and where executable
# memory is forbidden the ctypes of older Pythons cannot be imported.
_SERVICE = """\
# Written by fleet; changes are undone by its next run.
[Unit]
Description=fleet agent: refresh the report of this host

[Service]
Type=oneshot
WorkingDirectory={state}/agent/current
ExecStart={command}
SyslogIdentifier=fleet-agent
UMask=0077
TimeoutStartSec=120

# It gives way to everything.
Nice=19
IOSchedulingClass=idle
CPUQuota=25%
MemoryMax=256M

# It reads as root, writes these files only, can open no port, and of devices the GPUs alone, to ask them (NVML).
ProtectSystem=strict
ReadWritePaths={writable}
ReadOnlyPaths={state}/agent /proc/sys /sys
CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_SYS_PTRACE
NoNewPrivileges=yes
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
PrivateTmp=yes
ProtectHostname=yes
ProtectKernelLogs=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
"""

_TIMER = """\
# Written by fleet; changes are undone by its next run.
[Unit]
Description=fleet agent: when the report of this host is refreshed

[Timer]
OnActiveSec=1min
OnCalendar={calendar}
Persistent=true
RandomizedDelaySec={delay_s}
FixedRandomDelay=true

[Install]
WantedBy=timers.target
"""


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A directory that a unit file can name."""
    folder = args.get("textfile_directory")
    if isinstance(folder, str) and "{{" not in folder:
        problem = _folder_problem(folder)
        return [problem] if problem is not None else []
    return []


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """Why there is nothing to do on a host without systemd."""
    return [context.result("ok", "no systemd here: no timer")] if without_systemd(facts) else []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """The service, its bundle, its timer. The bundle's step takes away a textfile that is written elsewhere
    from now on, so it comes after the service has been told; the timer, which starts all this, is last."""
    if without_systemd(facts):
        return []
    if args["state"] == "absent":
        return [
            _unit(context, "timer", {"name": TIMER, "state": "absent"}),
            _unit(context, "service", {"name": SERVICE, "state": "absent"}),
            context.step("bundle", "agent_bundle", {"state": "absent"}),
        ]
    folder = _folder(args["textfile_directory"])
    bundle = {"state": "present", "textfile": None if folder is None else f"{folder}/fleet.prom"}
    service = {"name": SERVICE, "state": "present", "content": _service(facts, folder)}
    calendar, seconds = _INTERVALS[args["interval"]]
    timer = _TIMER.format(calendar=calendar, delay_s=min(seconds // 10, _LONGEST_DELAY_S))
    made = [] if folder is None else [context.step("textfile_directory", "directory", {"path": folder})]
    return [
        *made,
        _unit(context, "service", service),
        context.step("bundle", "agent_bundle", bundle),
        _unit(
            context,
            "timer",
            {"name": TIMER, "state": "present", "content": timer, "enabled": True, "started": True},
        ),
    ]


def _unit(context: Context, part: str, args: Json) -> Step:
    return context.step(part, "systemd_unit", args, deadline_s=SERVICE_DEADLINE_S)


def _service(facts: Facts, folder: str | None) -> str:
    """The unit file: the interpreter is the one that runs the agent over SSH."""
    python = str(fact(facts, "python.executable") or "/usr/bin/python3")
    command = [python, "-S", "-E", "-m", "fleet.agent", "report", "--output", f"{STATE_DIR}/report.json"]
    writable = [STATE_DIR]
    if folder is not None:
        command += ["--textfile-directory", folder]
        writable.append(folder)
    return _SERVICE.format(state=STATE_DIR, command=" ".join(command), writable=" ".join(writable))


def _folder(folder: str | None) -> str | None:
    """The textfile directory without a slash at its end. Raises ArgumentProblem."""
    if folder is None:
        return None
    problem = _folder_problem(folder)
    if problem is not None:
        raise problem
    return folder.rstrip("/")


def _folder_problem(folder: str) -> ArgumentProblem | None:
    if _PLAIN_PATH.match(folder):
        return None
    return ArgumentProblem(
        "textfile_directory must be an absolute path of letters, digits and . _ @ + - only, none of its "
        f'parts beginning with a dot, not "{folder}"',
        "textfile_directory",
    )
