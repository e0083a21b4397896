"""Somebody uses the GPU host: provision touches nothing of theirs, says who it is, and how to go on.

The witnesses are the pids and start times of their processes and of dockerd, never fleet's own word.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.lab import faults
from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import process_on_gpu
from fleet.lab.simulation.hardware import hardware
from fleet.lab.snapshot import snapshot
from tests.conftest import HostFactory
from tests.e2e import gpu
from tests.e2e.harness import Finished, Fleet

pytestmark = pytest.mark.lab

SLURM = """\
ClusterName=lab
SlurmctldHost={host}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName={host} CPUs=1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


def used_host(make: HostFactory, *packages: str, **fields: object) -> HostDefinition:
    """A host with a T4, an older driver that somebody installed, and an engine."""
    t4 = hardware("t4", 1, seed="used")
    return make(hardware=t4, driver=gpu.OLD_DRIVER, packages=("docker.io", *packages), **fields)


@pytest.fixture(scope="module")
def cluster_host(module_host: HostFactory) -> HostDefinition:
    """A host with Slurm installed. Nothing may be changed on it, so tests can share it."""
    return used_host(module_host, "slurm-wlm", "munge")


@pytest.fixture
def slurmd(lab: Lab, cluster_host: HostDefinition) -> Iterator[int]:
    """A real slurmctld and slurmd that is ready for jobs; slurmd's pid."""
    host = cluster_host.name
    faults.execute(lab, host, "sh", "-c", "cat > /etc/slurm/slurm.conf", stdin=SLURM.format(host=host))
    faults.shell(lab, host, "systemctl restart munge slurmctld slurmd")
    ready = "for try in $(seq 100); do sinfo -h -o %T | grep -q idle && exit 0; sleep .2; done; sinfo; exit 1"
    faults.shell(lab, host, ready)
    yield gpu.unit_pid(lab, host, "slurmd")
    faults.shell(lab, host, "systemctl stop slurmd slurmctld munge")


@pytest.fixture
def kubelet(lab: Lab, cluster_host: HostDefinition) -> Iterator[int]:
    """A process that looks like a kubelet, by its unit and its name; its pid."""
    host = cluster_host.name
    faults.shell(lab, host, "cp /bin/sleep /usr/local/bin/kubelet")
    faults.execute(lab, host, "systemd-run", "--quiet", "--unit=kubelet", "/usr/local/bin/kubelet", "86400")
    yield gpu.unit_pid(lab, host, "kubelet")
    faults.shell(lab, host, "systemctl stop kubelet; rm /usr/local/bin/kubelet")


def provision(fleet: Fleet, lab: Lab, host: HostDefinition, *words: str) -> Finished:
    """``fleet provision`` of that one host."""
    inventory = gpu.gpu_inventory(fleet.folder, lab, [host])
    return fleet("provision", str(inventory), *words)


def untouched(lab: Lab, fleet: Fleet, host: HostDefinition, pid: int) -> Finished:
    """Provision ends pending, and what ran before runs still, as it was, with the driver it has."""
    engine = gpu.unit_pid(lab, host.name, "docker")
    before = [gpu.process_start(lab, host.name, each) for each in (pid, engine)]
    assert all(before)
    installed, versions = gpu.set_versions(lab, host.name), gpu.versions(lab, host.name)
    boot = faults.boot_id(lab, host.name)
    done = provision(fleet, lab, host)
    assert done.code == 5, done.said
    assert [gpu.process_start(lab, host.name, each) for each in (pid, engine)] == before
    assert gpu.unit_pid(lab, host.name, "docker") == engine
    assert gpu.versions(lab, host.name) == versions
    assert {name: gpu.set_versions(lab, host.name).get(name) for name in installed} == installed
    assert faults.boot_id(lab, host.name) == boot
    assert f"--limit {host.name} --disrupt" in done.said
    return done


def test_beside_an_active_slurmd(lab: Lab, cluster_host: HostDefinition, slurmd: int, fleet: Fleet) -> None:
    before = snapshot(lab, cluster_host.name)
    done = untouched(lab, fleet, cluster_host, slurmd)
    assert "slurmd" in done.said
    assert "scontrol update nodename=" in done.said
    assert before.differences(snapshot(lab, cluster_host.name)) == []


def test_beside_a_kubelet(lab: Lab, cluster_host: HostDefinition, kubelet: int, fleet: Fleet) -> None:
    before = snapshot(lab, cluster_host.name)
    done = untouched(lab, fleet, cluster_host, kubelet)
    assert "kubelet" in done.said
    assert "kubectl drain" in done.said
    assert before.differences(snapshot(lab, cluster_host.name)) == []


def test_beside_a_process_on_the_gpu(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> None:
    """It is named with its pid; when it is gone the host converges without leave, and stays so under the next."""
    host = used_host(lab_host)
    with process_on_gpu(lab, host.name, user="daemon") as pid:
        done = untouched(lab, fleet, host, pid)
    assert f"pid {pid}, user daemon" in done.said
    after = provision(fleet, lab, host)
    assert after.code == 0, after.said
    loaded = gpu.versions(lab, host.name)
    assert loaded["loaded"].startswith(f"{gpu.BRANCH}.")
    assert len(set(loaded.values())) == 1
    with process_on_gpu(lab, host.name, user="daemon") as pid:
        begun = gpu.process_start(lab, host.name, pid)
        again = provision(fleet, lab, host)
        assert again.code == 0, again.said
        assert "changed=0" in again.out
        assert gpu.process_start(lab, host.name, pid) == begun


def test_beside_a_container_of_others(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> None:
    """Named; and with leave the host converges, and stays so while the container runs again."""
    host = used_host(lab_host, foreign_containers=("train-17",))
    inspect = ("docker", "inspect", "--format", "{{.State.Pid}}", "train-17")
    pid = int(faults.execute(lab, host.name, *inspect).stdout)
    done = untouched(lab, fleet, host, pid)
    assert "train-17" in done.said
    with_leave = provision(fleet, lab, host, "--disrupt")
    assert with_leave.code == 0, with_leave.said
    assert gpu.versions(lab, host.name)["loaded"].startswith(f"{gpu.BRANCH}.")
    again = provision(fleet, lab, host)
    assert again.code == 0, again.said
    assert "changed=0" in again.out
    assert int(faults.execute(lab, host.name, *inspect).stdout) > 0
