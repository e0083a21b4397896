"""The driver in the running kernel: who must be off the GPUs first, and what is left to a reboot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.driver import seen
from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY
from fleet.agent.resources.base import Provides, Silent, StepCancelled, StepFailed, StepPending
from fleet.agent.resources.nvidia_modules import RESOURCE
from tests.agent.driver.conftest import KERNEL, NEW, OLD, GpuHost
from tests.agent.resources.fakes import converge, differences

LEAVE = "fleet provision lab.yaml --limit gpu01 --disrupt"
ARGS: dict[str, Any] = {
    "version": NEW,
    "flavour": "open",
    "load": ["nvidia", "nvidia_uvm", "nvidia-modeset", "nvidia_drm"],
    "forbid": ["nouveau", "nova_core"],
    "services": ["nvidia-persistenced", "dcgm"],
    "may_unload": True,
    "remedy": LEAVE,
    "defer_to_reboot": False,
}
SERVICE = "nvidia-persistenced.service"
TRAINING = {
    "pid": 40335, "command": "python", "uid": 1000, "user": "anna", "container_id": "3f2a" * 16, "unit": None,
    "devices": ["/dev/nvidia0"], "kind": "work",
}  # fmt: skip
DAEMON = {
    "pid": 2077, "command": "nvidia-persistenced", "uid": 0, "user": "root", "container_id": None,
    "unit": SERVICE, "devices": ["/dev/nvidia0"], "kind": "service",
}  # fmt: skip
SCREEN = dict(DAEMON, pid=1310, command="Xorg", unit="session-2.scope", kind="display")


def apply(host: GpuHost, **changed: Any) -> Any:
    args = {**ARGS, **changed}
    return RESOURCE.apply(host, args, differences(host, RESOURCE, args), Silent())


def services_leave_when_stopped(host: GpuHost) -> None:
    """The daemon has the device open for as long as its unit runs."""
    host.users = [dict(DAEMON)]
    answer = host.answer

    def watch(argv: list[str], stdin: str | None) -> Result:
        if argv[:2] == ["systemctl", "stop"]:
            host.users = []
        return answer(argv, stdin)

    host.answer = watch


def test_where_nothing_is_loaded_the_driver_is_loaded_and_no_service_is_touched(host: GpuHost) -> None:
    found = converge(host, RESOURCE, ARGS)
    assert found[0] == {"path": "loaded", "before": None, "after": f"{NEW} (open)"}
    assert [entry["path"] for entry in found[1:]] == ["nvidia_uvm", "nvidia_modeset", "nvidia_drm"]
    assert host.did() == [
        f"modprobe {name}" for name in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")
    ]


def test_as_wanted_nothing_differs_and_nothing_runs(host: GpuHost) -> None:
    converge(host, RESOURCE, ARGS)
    host.commands.clear()
    assert differences(host, RESOURCE, ARGS) == []
    assert host.commands == []


def test_another_driver_leaves_in_order_with_its_services_stopped_meanwhile(host: GpuHost) -> None:
    host.old_driver("nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
    host.write("/sys/module/nvidia/refcnt", "3\n")
    services_leave_when_stopped(host)
    found = converge(host, RESOURCE, ARGS)
    assert found == [{"path": "loaded", "before": f"{OLD} (proprietary)", "after": f"{NEW} (open)"}]
    assert host.did() == [
        f"systemctl stop -- {SERVICE}",
        "rmmod nvidia_drm",
        "rmmod nvidia_modeset",
        "rmmod nvidia_uvm",
        "rmmod nvidia_peermem",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "modprobe nvidia_modeset",
        "modprobe nvidia_drm",
        "modprobe nvidia_peermem",
        f"systemctl start -- {SERVICE}",
    ]
    assert host.active(SERVICE)
    assert not host.active("dcgm.service"), "it did not run before"


@pytest.mark.parametrize("user", [TRAINING, SCREEN, dict(DAEMON, unit=None, container_id="9" * 64)])
def test_anybody_on_a_gpu_ends_the_step_pending_before_anything_is_stopped(host: GpuHost, user: Any) -> None:
    host.old_driver("nvidia_uvm")
    host.users = [dict(DAEMON), user]
    with pytest.raises(StepPending) as caught:
        apply(host, defer_to_reboot=True)
    assert f"{user['command']} (pid {user['pid']}, user {user['user']}" in caught.value.what
    assert str(DAEMON["pid"]) not in caught.value.what or user["pid"] == DAEMON["pid"]
    assert caught.value.remedy == LEAVE
    assert host.did() == []
    assert not (host.folder / "run/reboot-required").exists()


def test_a_holder_in_a_container_is_named_by_it(host: GpuHost) -> None:
    host.old_driver()
    host.users = [TRAINING]
    with pytest.raises(StepPending, match=r"python \(pid 40335, user anna, container 3f2a3f2a3f2a\)"):
        apply(host)


def test_where_nothing_may_be_unloaded_the_step_waits_though_nobody_is_there(host: GpuHost) -> None:
    host.old_driver()
    with pytest.raises(StepPending, match="nvidia would have to be unloaded") as caught:
        apply(host, may_unload=False, defer_to_reboot=True)
    assert caught.value.remedy == LEAVE
    assert host.did() == []
    host.unload("nvidia")
    converge(host, RESOURCE, {**ARGS, "may_unload": False})


def test_somebody_who_comes_while_the_services_stop_is_left_alone(host: GpuHost) -> None:
    host.old_driver()

    def comes(argv: list[str], stdin: str | None) -> Result:
        if argv[:2] == ["systemctl", "stop"]:
            host.users = [TRAINING]
        return host.answered(argv, stdin)

    host.answer = comes
    with pytest.raises(StepPending, match="pid 40335") as caught:
        apply(host, defer_to_reboot=True)
    assert caught.value.remedy == LEAVE
    assert host.active(SERVICE)
    assert not (host.folder / "run/reboot-required").exists()


def test_with_leave_a_process_on_a_gpu_leaves_only_a_reboot(host: GpuHost) -> None:
    host.old_driver("nvidia_uvm")
    host.users = [dict(DAEMON), TRAINING]
    with pytest.raises(StepPending, match="until a reboot") as caught:
        apply(host, leave=True)
    assert "reboot the host" in str(caught.value.remedy)
    extras = apply(host, leave=True, defer_to_reboot=True)
    assert extras["registered"] == {"reboot_required": True}
    assert "pid 40335" in extras["reason"]
    assert host.did() == [], "stopping services would win nothing"
    assert (host.folder / "run/reboot-required").exists()
    assert host.text("/run/reboot-required.pkgs") == "nvidia driver\n"
    assert not RESOURCE.rereads({**ARGS, "defer_to_reboot": True})


def test_a_reference_without_a_process_is_found_before_anything_is_unloaded(host: GpuHost) -> None:
    host.old_driver("nvidia_uvm")
    host.write("/sys/module/nvidia_uvm/refcnt", "4\n")
    with pytest.raises(StepPending, match="nvidia_uvm is used 4 times by what shows no process"):
        apply(host)
    assert host.did() == [f"systemctl stop -- {SERVICE}", f"systemctl start -- {SERVICE}"]
    assert host.active(SERVICE)
    apply(host, defer_to_reboot=True)
    assert not [text for text in host.did() if text.startswith("rmmod")]


def test_a_foreign_module_on_top_of_the_driver_is_named(host: GpuHost) -> None:
    host.old_driver()
    (host.folder / "sys/module/nvidia/holders/vendor_thing").mkdir(parents=True)
    with pytest.raises(StepPending, match="nvidia is used by the module vendor_thing"):
        apply(host)


def test_when_unloading_fails_half_way_what_was_unloaded_is_put_back_and_a_reboot_planned(
    host: GpuHost,
) -> None:
    host.old_driver("nvidia_uvm")
    host.stuck["nvidia"] = "is in use"
    extras = apply(host, defer_to_reboot=True)
    assert "Module nvidia is in use" in extras["reason"]
    assert host.has("nvidia_uvm")
    assert host.active(SERVICE)


def fails(host: GpuHost) -> None:
    host.modprobe = lambda name: Result(
        1, "", f"modprobe: ERROR: could not insert '{name}': No such device\n"
    )


def is_cancelled(host: GpuHost) -> None:
    host.modprobe = lambda name: Result(None, signal=15, cancelled=True)


def is_stuck(host: GpuHost) -> None:
    host.stuck["nvidia"] = "is in use"


def dies(host: GpuHost) -> None:
    def stop(name: str) -> Result:
        raise KeyboardInterrupt

    host.modprobe = stop


@pytest.mark.parametrize(
    ("breaks", "error"),
    [(fails, StepFailed), (is_cancelled, StepCancelled), (is_stuck, StepPending), (dies, KeyboardInterrupt)],
)
def test_services_are_started_again_whatever_happens(
    host: GpuHost, breaks: Callable[[GpuHost], None], error: type[BaseException]
) -> None:
    host.old_driver()
    breaks(host)
    with pytest.raises(error):
        apply(host)
    assert f"systemctl stop -- {SERVICE}" in host.did()
    assert host.active(SERVICE)
    assert not Path(host.state_dir, "stopped-for-the-driver.json").exists()


def test_services_that_a_killed_worker_left_stopped_are_started_by_the_next_attempt(host: GpuHost) -> None:
    host.old_driver()

    class Killed(BaseException):
        pass

    def killed(argv: list[str], stdin: str | None) -> Result:
        if argv[0] in ("rmmod", "modprobe") or argv[:2] == ["systemctl", "start"]:
            raise Killed
        return host.answered(argv, stdin)

    host.answer = killed
    with pytest.raises(Killed):
        apply(host)
    assert not host.active(SERVICE)
    host.answer = host.answered
    found = converge(host, RESOURCE, ARGS)
    assert {"path": SERVICE, "before": "stopped by fleet", "after": "started"} in found
    assert host.active(SERVICE)


def test_a_service_that_does_not_start_again_fails_the_step_and_is_not_forgotten(host: GpuHost) -> None:
    host.old_driver()

    def refuses(argv: list[str], stdin: str | None) -> Result:
        if argv[:2] == ["systemctl", "start"]:
            return Result(1, "", "Job for nvidia-persistenced.service failed.")
        return host.answered(argv, stdin)

    host.answer = refuses
    with pytest.raises(StepFailed, match=r"not started again: nvidia-persistenced\.service: Job for"):
        apply(host)
    assert [entry["path"] for entry in differences(host, RESOURCE, ARGS)][-1] == SERVICE


def test_nouveau_leaves_and_a_busy_one_waits_for_a_reboot(host: GpuHost) -> None:
    host.put("nouveau")
    found = converge(host, RESOURCE, ARGS)
    assert found[0] == {"path": "nouveau", "before": "loaded", "after": "unloaded"}
    assert not host.has("nouveau")


def test_a_console_on_nouveau_keeps_it_until_a_reboot(host: GpuHost) -> None:
    host.put("nouveau", references=1)
    with pytest.raises(StepPending, match="nouveau is used 1 time by what shows no process"):
        apply(host)
    assert apply(host, defer_to_reboot=True)["registered"] == {"reboot_required": True}
    assert host.did()[-1] == f"systemctl start -- {SERVICE}"


def test_no_second_reboot_is_planned_unless_something_changed_in_between(host: GpuHost) -> None:
    host.put("nouveau", references=1)
    host.write(f"/boot/initrd.img-{KERNEL}", "old")
    apply(host, defer_to_reboot=True)
    apply(host, defer_to_reboot=True)  # the same boot: it is still due
    host.write("/proc/sys/kernel/random/boot_id", "second\n")
    with pytest.raises(
        StepFailed, match="was rebooted for this, and it is as before: nouveau is used"
    ) as caught:
        apply(host, defer_to_reboot=True)
    assert "initramfs" in str(caught.value.remedy)
    host.write(f"/boot/initrd.img-{KERNEL}", "with the blacklist")
    assert apply(host, defer_to_reboot=True)["registered"] == {"reboot_required": True}


def test_once_the_driver_is_in_a_later_reboot_may_be_planned_again(host: GpuHost) -> None:
    host.put("nouveau", references=1)
    apply(host, defer_to_reboot=True)
    host.put("nouveau", references=0)
    converge(host, RESOURCE, ARGS)
    assert not Path(host.state_dir, "driver-reboot.json").exists()


def test_what_is_built_on_nova_core_goes_before_it(host: GpuHost) -> None:
    host.put("nova_core", references=1)
    host.put("nova")
    converge(host, RESOURCE, ARGS)
    assert [text for text in host.did() if text.startswith("rmmod")] == ["rmmod nova", "rmmod nova_core"]
    assert not [text for text in host.did() if "modprobe nova" in text]


def test_a_builtin_nouveau_needs_the_command_line(host: GpuHost) -> None:
    host.write("/sys/module/nouveau/parameters/modeset", "1\n")
    with pytest.raises(StepFailed, match="built into this kernel") as caught:
        apply(host)
    assert "module_blacklist=nouveau" in str(caught.value.remedy)


# -- the module on the disk ---------------------------------------------------------------------------


def test_another_version_or_flavour_on_the_disk_is_refused_before_anything_is_unloaded(host: GpuHost) -> None:
    host.old_driver()
    host.driver = {"version": "570.1", "flavour": "open", "path": "/lib/nvidia.ko", "signer": None}
    with pytest.raises(StepFailed, match=rf"has driver 570\.1 on its disk .*wanted is {NEW}"):
        apply(host)
    host.driver = {"version": NEW, "flavour": "proprietary", "path": "/lib/nvidia.ko", "signer": None}
    with pytest.raises(StepFailed, match=r"has the proprietary modules .*wanted are the open ones"):
        apply(host)
    assert host.did() == []


def test_a_module_that_dkms_could_not_build_is_named_with_its_cause(host: GpuHost) -> None:
    host.driver = None
    host.write(
        f"/var/lib/dkms/nvidia/{NEW}/build/make.log",
        f"DKMS make.log for nvidia-{NEW} for kernel {KERNEL} (x86_64)\n"
        "  The kernel was built by: gcc-12 (Debian 12.2.0-14) 12.2.0\n"
        "  You are using:           gcc-11 (Debian 11.3.0-12) 11.3.0\n"
        "cc1: error: unknown argument: '-mfoo'\n",
    )
    with pytest.raises(StepFailed, match=rf"nvidia {NEW} does not build for kernel {KERNEL}: gcc-12 needed"):
        apply(host)


def test_without_headers_there_is_nothing_to_build_with(host: GpuHost) -> None:
    host.driver = None
    (host.folder / f"var/lib/dkms/nvidia/{NEW}").mkdir(parents=True)
    with pytest.raises(StepFailed, match=f"no headers for kernel {KERNEL}") as caught:
        apply(host)
    assert f"linux-headers-{KERNEL}" in str(caught.value.remedy)


def test_a_kernel_without_any_module_is_named(host: GpuHost) -> None:
    host.driver = None
    with pytest.raises(StepFailed, match=f"no nvidia module for the running kernel {KERNEL}"):
        apply(host)


def test_without_a_version_the_one_on_the_disk_is_wanted(host: GpuHost) -> None:
    args = {**ARGS, "version": None, "flavour": None}
    converge(host, RESOURCE, args)
    host.in_kernel = {"version": OLD, "flavour": "open"}
    assert differences(host, RESOURCE, args)[0]["after"] == NEW


# -- why the kernel does not take it --------------------------------------------------------------------


@pytest.mark.parametrize("said", ["Key was rejected by service", "Required key not available"])
def test_a_rejected_signature_names_its_signer_and_the_step_at_the_console(
    host: GpuHost, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.driver = {"version": NEW, "flavour": "open", "path": "/x", "signer": "gpu01 Module Signature key"}
    host.modprobe = lambda name: Result(1, "", f"modprobe: ERROR: could not insert '{name}': {said}\n")
    with pytest.raises(
        StepFailed, match=r"rejects the signature of nvidia.*'gpu01 Module Signature key'"
    ) as caught:
        apply(host)
    assert "mokutil --import /var/lib/dkms/mok.pub" in str(caught.value.remedy)
    assert "at the console" in str(caught.value.remedy)
    assert "disable" not in str(caught.value.remedy)
    monkeypatch.setattr(seen, "enrolment_pending", lambda host: True)
    with pytest.raises(StepFailed, match="needs the console at the next boot"):
        apply(host)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("modprobe: ERROR: could not insert 'nvidia': Exec format error", "built for another kernel"),
        (
            f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{KERNEL}",
            r"/lib/nvidia\.ko.*modprobe does not know it",
        ),
        ("modprobe: ERROR: could not insert 'nvidia': Operation not permitted", "lockdown"),
        ("modprobe: ERROR: could not insert 'nvidia': Cannot allocate memory", "Cannot allocate memory"),
    ],
)
def test_other_refusals(host: GpuHost, said: str, words: str) -> None:
    host.modprobe = lambda name: Result(1, "", said + "\n")
    with pytest.raises(StepFailed, match=words):
        apply(host)


@pytest.mark.parametrize("name", ["nvidia", "nvidia-current"])
def test_a_kernel_that_is_not_the_one_shown_is_named_with_what_modprobe_says(
    host: GpuHost, name: str
) -> None:
    """In a container modprobe looks for the modules of the machine's kernel, whatever the container shows."""
    said = f"modprobe: FATAL: Module {name} not found in directory /lib/modules/6.18.5-outer"
    host.modprobe = lambda _name: Result(1, "", said + "\n")
    with pytest.raises(StepFailed) as caught:
        apply(host)
    assert str(caught.value).startswith(f"the kernel that runs is 6.18.5-outer and not the {KERNEL}")
    assert f"driver {NEW} is there (/lib/nvidia.ko)" in str(caught.value)
    assert f"Module {name} not found in directory /lib/modules/6.18.5-outer" in str(caught.value)
    assert f"boot {KERNEL}" in (caught.value.remedy or "")


def test_a_module_that_goes_with_the_driver_and_is_not_there_is_named(host: GpuHost) -> None:
    def load(name: str) -> Result:
        if name == "nvidia":
            return host.load(name)
        return Result(1, "", f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{KERNEL}\n")

    host.modprobe = load
    with pytest.raises(StepFailed, match=f"there is no module nvidia_uvm for the running kernel {KERNEL}"):
        apply(host)


def test_no_such_device_is_explained_by_what_the_kernel_said_since(host: GpuHost) -> None:
    host.log = ["[1.0] NVRM: GPU 0000:99:00.0 is already bound to NovaCore."]

    def refuse(name: str) -> Result:
        host.log += [
            "[9.0] NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:1b38)",
            "      NVRM: installed in this system is not supported by open",
            "      NVRM: nvidia.ko because it does not include the required GPU",
            "      NVRM: System Processor (GSP).",
        ]
        return Result(1, "", "modprobe: ERROR: could not insert 'nvidia': No such device\n")

    host.modprobe = refuse
    with pytest.raises(StepFailed, match=r"10de:1b38 at 0000:1b:00\.0 needs the proprietary kernel modules"):
        apply(host)


def test_no_such_device_without_a_log_looks_at_who_has_the_gpu(host: GpuHost) -> None:
    fails(host)
    host.gpus[0]["driver"] = "nova_core"
    with pytest.raises(StepFailed, match=r"0000:1b:00\.0 is bound to nova_core"):
        apply(host)
    host.gpus[0]["driver"] = "vfio-pci"
    with pytest.raises(StepFailed, match="No such device"):
        apply(host)


def test_one_of_equal_gpus_that_is_not_taken_is_broken(host: GpuHost) -> None:
    def load(name: str) -> Result:
        result = host.load(name)
        host.gpus[1]["driver"] = None
        host.log = [
            "NVRM: The NVIDIA GPU 0000:2b:00.0 (PCI ID: 10de:2330) installed in this system",
            f"      is not supported by the NVIDIA {NEW} driver release.",
        ]
        return result

    host.modprobe = load
    with pytest.raises(StepFailed, match=r"0000:2b:00\.0 has a hardware fault: 1 equal GPUs") as caught:
        apply(host)
    assert "driver" not in str(caught.value.remedy)
    assert [entry["path"] for entry in differences(host, RESOURCE, ARGS)] == ["GPU 0000:2b:00.0"]


# -- the check pass -----------------------------------------------------------------------------------


def test_a_bare_host_is_never_called_ok_or_failed(host: GpuHost) -> None:
    host.driver = None
    found = differences(host, RESOURCE, ARGS)
    assert found
    packages = Provides(packages=["nvidia-open"])
    assert RESOURCE.outlook(ARGS, found, packages) == KNOWN_AFTER_APPLY
    assert RESOURCE.outlook(ARGS, found, Provides()) is None, "would change"


def test_a_driver_to_be_replaced_is_certain_to_change(host: GpuHost) -> None:
    host.old_driver()
    packages = Provides(packages=["nvidia-open"])
    assert RESOURCE.outlook(ARGS, differences(host, RESOURCE, ARGS), packages) is None
    unpinned = {**ARGS, "version": None}
    assert RESOURCE.outlook(unpinned, differences(host, RESOURCE, unpinned), packages) == KNOWN_AFTER_APPLY


def test_it_brings_its_modules_for_what_comes_after() -> None:
    provided = RESOURCE.provides(ARGS)
    assert provided.contains("modules", "nvidia")
    assert provided.contains("modules", "nvidia_modeset")


def test_its_state_is_a_document(host: GpuHost) -> None:
    json.dumps(RESOURCE.read(host, ARGS))
