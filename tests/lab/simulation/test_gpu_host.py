"""Simulated GPU hosts, real otherwise: apt, dpkg, systemd, Docker Engine and reboots are what they are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.lab import faults
from fleet.lab.definition import load_definition
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from fleet.lab.simulation import faults as gpu_faults

pytestmark = pytest.mark.lab

OLD, NEW = "570.158.01", "580.159.03"
_INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -qy"
_SOURCES = """
python3 - << 'PYTHON'
import urllib.request
def fetch(path, target):
    open(target, "wb").write(urllib.request.urlopen("http://packages.lab/" + path).read())
fetch("compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb", "/root/keyring.deb")
fetch("libnvidia-container/gpgkey", "/usr/share/keyrings/toolkit.asc")
PYTHON
dpkg -i /root/keyring.deb
echo "deb [signed-by=/usr/share/keyrings/toolkit.asc] http://packages.lab/libnvidia-container/stable/deb/amd64 /" \\
    > /etc/apt/sources.list.d/toolkit.list
apt-get update -q
"""


@pytest.fixture(scope="module")
def gpu_lab(lab_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab of the inventory beside this file; it goes when these tests end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEET_LAB_STATE", str(tmp_path_factory.mktemp("lab")))
        lab = Lab(load_definition(Path(__file__).with_name("inventory.yaml"), "simulation"))
    lab.up()
    yield lab
    lab.down()


def driver_set(version: str) -> str:
    names = ["libnvidia-ml1", "libcuda1", "nvidia-persistenced", "nvidia-modprobe", "nvidia-kernel-open-dkms"]
    names += ["nvidia-kernel-common", "firmware-nvidia-gsp", "nvidia-driver-cuda", "nvidia-driver"]
    names += ["nvidia-fabricmanager" if version >= "580" else f"nvidia-fabricmanager-{version[:3]}"]
    return " ".join(f"{name}={version}-1" for name in names)


def smi(lab: Lab, host: str, *arguments: str) -> tuple[int, str]:
    done = faults.execute(lab, host, "nvidia-smi", *arguments, check=False)
    return done.returncode, done.stdout


def test_a_bare_host_shows_its_hardware_and_nothing_else(gpu_lab: Lab) -> None:
    shown = faults.shell(gpu_lab, "board", "uname -r; cat /sys/bus/pci/devices/0000:1b:00.0/device; ls /boot")
    assert shown.split() == [
        *("6.1.0-90-amd64", "0x2330", "config-6.1.0-90-amd64"),
        *("initrd.img-6.1.0-90-amd64", "vmlinuz-6.1.0-90-amd64"),
    ]
    assert faults.shell(gpu_lab, "board", "ls /sys/module") == ""
    assert faults.shell(gpu_lab, "board", "cat /sys/bus/pci/slots/1/address") == "0000:1b:00\n"
    assert faults.shell(gpu_lab, "board", "mokutil --sb-state") == "SecureBoot disabled\n"
    assert faults.execute(gpu_lab, "board", "modprobe", "nvidia", check=False).returncode == 1
    for host in ("board", "desk"):
        assert faults.execute(gpu_lab, host, "systemctl", "--failed", "--no-legend").stdout == ""


def test_nouveau_holds_a_graphics_card_and_the_host_is_dressed(gpu_lab: Lab) -> None:
    script = "readlink /sys/bus/pci/devices/0000:01:00.0/driver; . /etc/os-release; echo $ID $VERSION_ID"
    assert faults.shell(gpu_lab, "desk", script).split() == [
        "../../../../bus/pci/drivers/nouveau", "ubuntu", "24.04",
    ]  # fmt: skip
    assert "nouveau" in faults.shell(gpu_lab, "desk", "lsmod")


def test_a_driver_from_bare_to_a_container_and_through_an_upgrade(gpu_lab: Lab) -> None:
    run = lambda script: faults.shell(gpu_lab, "board", script)  # noqa: E731
    run(_SOURCES)
    run(f"{_INSTALL} linux-headers-$(uname -r) {driver_set(OLD)}")
    assert run("dkms status") == f"nvidia/{OLD}, 6.1.0-90-amd64, x86_64: installed\n"
    assert smi(gpu_lab, "board")[0] == 9

    faults.reboot(gpu_lab, "board")
    code, listed = smi(gpu_lab, "board", "-L")
    assert (code, len(listed.splitlines())) == (0, 8)
    assert run("cat /sys/module/nvidia/version") == f"{OLD}\n"
    run("systemctl start nvidia-fabricmanager")
    assert smi(gpu_lab, "board", "--query-gpu=fabric.state", "--format=csv,noheader", "-i", "0") == (
        0, "Completed\n",
    )  # fmt: skip

    run(f"{_INSTALL} nvidia-container-toolkit && systemctl restart docker")
    in_container = run("docker run --rm --gpus all other:local nvidia-smi -L")
    assert in_container == listed
    one = run("docker run --rm --gpus device=5 other:local nvidia-smi -L")
    assert one.split("UUID")[1] == listed.splitlines()[5].split("UUID")[1] + "\n"

    run(f"{_INSTALL} {driver_set(NEW)}")
    code, text = smi(gpu_lab, "board")
    assert (code, text.splitlines()[0]) == (18, "Failed to initialize NVML: Driver/library version mismatch")
    run("systemctl stop nvidia-persistenced nvidia-fabricmanager; modprobe -r nvidia-drm nvidia-uvm || true")
    run("modprobe -r nvidia-uvm; modprobe nvidia-uvm")
    assert run("cat /sys/module/nvidia/version") == f"{NEW}\n"
    assert smi(gpu_lab, "board")[0] == 0


def test_another_kernel_and_a_gpu_that_does_not_come_back(gpu_lab: Lab) -> None:
    run = lambda script: faults.shell(gpu_lab, "board", script)  # noqa: E731
    run(f"{_INSTALL} linux-image-6.1.0-91-amd64")
    assert run("cat /run/reboot-required.pkgs") == "linux-image-6.1.0-91-amd64\n"
    gpu_faults.switch(gpu_lab, "board", {"gpu.5.state": "missing"})
    faults.reboot(gpu_lab, "board")
    assert run("uname -r") == "6.1.0-91-amd64\n"
    assert run("ls /sys/module") == ""
    run(f"{_INSTALL} linux-headers-6.1.0-91-amd64 && modprobe nvidia")
    assert len(smi(gpu_lab, "board", "-L")[1].splitlines()) == 7
    gpu_faults.switch(gpu_lab, "board", {})


_HELD = """
import fcntl, sys
held = open("/run/fleet-lab-gpu/load/gpu.1")
fcntl.lockf(held, fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_kernel_log_is_the_hosts_own_and_begins_anew_with_a_boot(gpu_lab: Lab) -> None:
    run = lambda script: faults.shell(gpu_lab, "board", script)  # noqa: E731
    gpu_faults.xid(gpu_lab, "board", 79, 3)
    gpu_faults.xid(gpu_lab, "board", 31, 1, pid=4711, process="train")
    gpu_faults.sxid(gpu_lab, "board", 20034, link=7, fatal=True)
    records = run("cat /dev/kmsg").splitlines()
    assert [int(record.split(",")[1]) for record in records] == list(range(len(records)))
    log = run("dmesg")
    assert "NVRM: loading NVIDIA UNIX Open Kernel Module" in log
    assert "NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n" in log
    assert "NVRM: Xid (PCI:0000:43:00): 31, pid=4711, name=train, Ch 00000008" in log
    assert "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 07" in log
    refused = faults.execute(gpu_lab, "board", "cat", "/dev/kmsg", user="nobody", check=False)
    assert refused.returncode == 1
    written = faults.execute(gpu_lab, "board", "sh", "-c", "echo noise > /dev/kmsg", check=False)
    assert (written.returncode != 0, run("cat /dev/kmsg").splitlines()) == (True, records)
    faults.reboot(gpu_lab, "board")
    assert "Xid" not in run("cat /dev/kmsg")
    assert "Linux version 6.1.0-91-amd64" in run("dmesg")


def test_links_on_the_bus_and_work_on_a_gpu_show(gpu_lab: Lab) -> None:
    run = lambda script: faults.shell(gpu_lab, "board", script)  # noqa: E731
    run("modprobe nvidia")
    with gpu_faults.switched(gpu_lab, "board", {"gpu.1.pcie.width": 8}):
        assert run("cat /sys/bus/pci/devices/0000:43:00.0/current_link_width") == "8\n"
        query = "nvidia-smi --query-gpu=pcie.link.width.current,utilization.gpu --format=csv,noheader,nounits -i 0,1"
        assert run(query) == "16, 0\n8, 0\n"
        container = f"docker run --rm --gpus device=1 other:local {query.replace(' -i 0,1', '')}"
        assert run(container) == "8, 0\n"
        hold = ("docker", "exec", "--interactive", f"fleet-lab-{gpu_lab.name}-board", "python3", "-c", _HELD)
        with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "held\n"
            assert run(query) == "16, 0\n8, 98\n"
            assert run(container) == "8, 98\n"
            process.stdin.close()
    assert run("cat /sys/bus/pci/devices/0000:43:00.0/current_link_width") == "16\n"
    read_only = "docker run --rm --gpus all other:local sh -c 'echo x > /var/lib/fleet-lab-gpu/faults.view'"
    assert faults.execute(gpu_lab, "board", "sh", "-c", read_only, check=False).returncode != 0


def test_faults_of_repositories_are_undone(gpu_lab: Lab) -> None:
    update = ("apt-get", "update", "-q")
    with gpu_faults.rotated_key(gpu_lab, "debian12") as fingerprint:
        done = faults.execute(gpu_lab, "board", *update, check=False)
        assert f"NO_PUBKEY {fingerprint[-16:]}" in done.stdout + done.stderr
    with gpu_faults.vanished_package(gpu_lab, "debian12", "libcuda1"):
        faults.execute(gpu_lab, "board", *update)
        assert "590.48.01" not in faults.shell(gpu_lab, "board", "apt-cache policy libcuda1")
    faults.execute(gpu_lab, "board", *update)
    assert "590.48.01" in faults.shell(gpu_lab, "board", "apt-cache policy libcuda1")


def test_whoever_has_a_gpu_open_keeps_the_module(gpu_lab: Lab) -> None:
    run = lambda script: faults.shell(gpu_lab, "board", script)  # noqa: E731
    run("systemctl stop nvidia-persistenced nvidia-fabricmanager; modprobe nvidia-uvm")
    before = int(run("modprobe -r nvidia-uvm; modprobe nvidia; cat /sys/module/nvidia/refcnt"))
    with gpu_faults.process_on_gpu(gpu_lab, "board", (1, 4)) as pid:
        assert int(run("cat /sys/module/nvidia/refcnt")) > before
        assert run("nvidia-smi --query-compute-apps=pid --format=csv,noheader") == f"{pid}\n{pid}\n"
        assert "/dev/nvidia4" in run(f"ls -l /proc/{pid}/fd")
        assert faults.execute(gpu_lab, "board", "modprobe", "-r", "nvidia", check=False).returncode == 1
    wait_until(lambda: int(run("cat /sys/module/nvidia/refcnt")) == before, "the count is back", deadline=20)


def test_a_container_with_a_mig_device(gpu_lab: Lab) -> None:
    uuids = gpu_faults.mig(gpu_lab, "board", 2, ["3g.40gb", "1g.10gb"])
    listed = faults.shell(gpu_lab, "board", "nvidia-smi -L")
    assert all(f"UUID: {uuid}" in listed for uuid in uuids)
    ask = ("docker", "run", "--rm", "--gpus", f'"device={uuids[1]}"', "other:local", "nvidia-smi", "-L")
    inside = faults.execute(gpu_lab, "board", *ask).stdout
    assert uuids[1] in inside
    assert uuids[0] not in inside
    assert len(inside.splitlines()) == 2
    gpu_faults.mig(gpu_lab, "board", 2, [])
    assert "MIG" not in faults.shell(gpu_lab, "board", "nvidia-smi -L")


def test_a_host_that_does_not_come_back(gpu_lab: Lab) -> None:
    gpu_faults.switch(gpu_lab, "desk", {"boot": "never"})
    faults.execute(gpu_lab, "desk", "systemctl", "reboot", check=False)
    shown = lambda: faults.execute(gpu_lab, "desk", "ip", "-br", "link", "show", "eth0", check=False).stdout  # noqa: E731
    wait_until(lambda: " DOWN " in shown(), "it hangs at boot", deadline=60)
    gpu_faults.switch(gpu_lab, "desk", {})
    faults.stop(gpu_lab, "desk", power=True)
    faults.start(gpu_lab, "desk")


def test_a_held_lock_is_held_by_the_pid_that_is_told(gpu_lab: Lab) -> None:
    with gpu_faults.package_lock_held(gpu_lab, "board") as pid:
        done = faults.execute(gpu_lab, "board", "apt-get", "install", "-qy", "hello", check=False)
        assert done.returncode == 100
        assert f"held by process {pid}" in done.stdout + done.stderr
