"""Who holds the GPUs: found in /proc, named without their arguments, sorted by what may be done to them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fleet.agent.facts import gpu_holders, process_owner

CONTAINER = "0123456789abcdef" * 4


def process(
    host: Any,
    pid: int,
    command: str,
    *,
    devices: tuple[str, ...] = (),
    cgroup: str = "0::/user.slice/user-1000.slice/session-3.scope",
    arguments: str = "",
    maps: str = "",
) -> None:
    """A process as /proc shows it; its owner is whoever runs the test."""
    place = f"/proc/{pid}/"
    host.write(place + "comm", os.path.basename(command)[:15] + "\n")
    host.write(place + "cmdline", "\0".join([command, *arguments.split()]) + "\0")
    host.write(place + "cgroup", cgroup + "\n")
    host.write(place + "maps", "7f00-7f01 r--p 00000000 08:01 12 /usr/lib/libc.so.6\n" + maps)
    for number, device in enumerate(("/dev/null", *devices)):
        host.link(f"{place}fd/{number}", device)


def found(host: Any) -> dict[int, dict[str, Any]]:
    entries, complete = gpu_holders.holders(host)
    assert complete
    return {entry["pid"]: entry for entry in entries}


def test_services_displays_and_work_are_told_apart(host: Any) -> None:
    process(host, 1, "/sbin/init", cgroup="0::/init.scope")
    process(host, 900, "/usr/bin/nv-hostengine", devices=("/dev/nvidia0", "/dev/nvidiactl"))
    process(host, 1310, "/usr/lib/xorg/Xorg", devices=("/dev/nvidia0",))
    service = "0::/system.slice/nvidia-persistenced.service"
    process(host, 2077, "/usr/bin/nvidia-persistenced", devices=("/dev/nvidia0",), cgroup=service)
    process(
        host, 40335, "python", devices=("/dev/nvidia0", "/dev/nvidia-uvm"), arguments="train.py --token hush"
    )
    process(host, 50000, "/usr/bin/bash")
    holders = found(host)
    assert {pid: (one["command"], one["kind"]) for pid, one in holders.items()} == {
        900: ("nv-hostengine", "service"),
        1310: ("Xorg", "display"),
        2077: ("nvidia-persistenced", "service"),
        40335: ("python", "work"),
    }
    assert holders[40335]["devices"] == ["/dev/nvidia-uvm", "/dev/nvidia0"]
    assert holders[2077]["unit"] == "nvidia-persistenced.service"
    assert holders[40335]["unit"] == "session-3.scope"
    assert "hush" not in str(holders)


def test_the_owner_has_a_name_or_only_a_number(host: Any) -> None:
    process(host, 12, "python", devices=("/dev/nvidia0",))
    assert (found(host)[12]["uid"], found(host)[12]["user"]) == (os.getuid(), None)
    host.write("/etc/passwd", f"anna:x:{os.getuid()}:1000::/home/anna:/bin/bash\n")
    assert found(host)[12]["user"] == "anna"


def test_a_mapped_device_counts_when_its_file_was_closed(host: Any) -> None:
    maps = "7f10-7f20 rw-s 00000000 00:05 513 /dev/nvidia3\n7f30-7f40 rw-s 00000000 00:05 9 /dev/nvidiactl (deleted)\n"
    process(host, 12, "python", maps=maps)
    assert found(host)[12]["devices"] == ["/dev/nvidia3", "/dev/nvidiactl"]


def test_a_device_that_was_removed_meanwhile_keeps_its_name(host: Any) -> None:
    process(host, 12, "python", devices=("/dev/nvidia0 (deleted)",))
    assert found(host)[12]["devices"] == ["/dev/nvidia0"]


def test_fleets_own_processes_are_left_out(host: Any) -> None:
    process(host, os.getpid(), "python3", devices=("/dev/nvidia0",))
    process(host, 12, "python3", devices=("/dev/nvidia0",), cgroup="0::/system.slice/fleet-r1-1.service")
    process(host, 13, "python3", devices=("/dev/nvidia0",), cgroup="0::/system.slice/fleetwood.service")
    assert list(found(host)) == [13]


def test_a_probe_of_another_session_is_left_out_and_nobody_elses_of_that_name(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(host, 12, "fleet-probe", devices=("/dev/nvidia0",))
    assert list(found(host)) == []
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    if os.stat(host.path("/proc/12")).st_uid == 0:
        os.chown(host.path("/proc/12"), 4343, -1)
    assert list(found(host)) == [12]


@pytest.mark.parametrize(
    ("cgroup", "base", "expected"),
    [
        (f"0::/system.slice/docker-{CONTAINER}.scope", "", (CONTAINER, None)),
        (f"12:cpu:/x\n1:name=systemd:/docker/{CONTAINER}", "", (CONTAINER, None)),
        (f"0::/kubepods.slice/pod1.slice/cri-containerd-{CONTAINER}.scope", "", (CONTAINER, None)),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope/container", "", (CONTAINER, None)),
        ("0::/system.slice/jupyter.service", "", (None, "jupyter.service")),
        ("0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope", "", (None, "x.scope")),
        # A host that is a container itself: what is left of its own cgroup is inside of it.
        (f"0::/docker/{CONTAINER}/system.slice/a.service", f"/docker/{CONTAINER}", (None, "a.service")),
        ("0::/", "", (None, None)),
        ("", "", (None, None)),
    ],
)
def test_the_container_or_the_unit_of_a_process(
    cgroup: str, base: str, expected: tuple[str | None, str | None]
) -> None:
    assert process_owner.place_of(cgroup, base) == expected


def test_the_tree_of_a_host_that_is_a_container_begins_at_its_first_process(host: Any) -> None:
    base = f"/docker/{CONTAINER}"
    process(host, 1, "/sbin/init", cgroup=f"1:name=systemd:{base}/init.scope")
    unit = f"1:name=systemd:{base}/system.slice/jupyter.service"
    process(host, 12, "python", devices=("/dev/nvidia0",), cgroup=unit)
    assert (found(host)[12]["container_id"], found(host)[12]["unit"]) == (None, "jupyter.service")


@pytest.mark.parametrize(
    ("comm", "command_line", "expected"),
    [
        ("nvidia-persiste", b"/usr/bin/nvidia-persistenced\0--verbose\0", "nvidia-persistenced"),
        ("nvidia-device-p", b"nvidia-device-plugin --mig=none\0", "nvidia-device-plugin"),
        ("python3", b"/opt/venv/bin/python3\0train.py\0", "python3"),
        ("a-renamed-threa", b"/usr/bin/other\0", "a-renamed-threa"),
        ("a-renamed-threa", b"", "a-renamed-threa"),
    ],
)
def test_the_kernels_short_name_is_made_whole(comm: str, command_line: bytes, expected: str) -> None:
    assert process_owner.full_command(comm, command_line) == expected


def test_a_process_that_may_not_be_looked_at_makes_the_answer_incomplete(host: Any, monkeypatch: Any) -> None:
    process(host, 12, "python", devices=("/dev/nvidia0",))
    process(host, 13, "python", devices=("/dev/nvidia0",))
    look = gpu_holders._devices_of

    def refused(where: Any, pid: int) -> set[str]:
        if pid == 13:
            raise PermissionError(13, "Permission denied")
        return look(where, pid)

    monkeypatch.setattr(gpu_holders, "_devices_of", refused)
    entries, complete = gpu_holders.holders(host)
    assert ([entry["pid"] for entry in entries], complete) == ([12], False)


def test_a_process_that_ended_meanwhile_holds_nothing(host: Any) -> None:
    host.write("/proc/12/comm", "python\n")  # its fd folder is gone
    assert found(host) == {}
