"""Debian's own NVIDIA driver, for real: its packages install, dkms builds the modules, and loading them fails honestly.

Nothing of it is simulated but the PCI bus and which of Debian's kernels is said to run. It takes minutes: what is
compiled is NVIDIA's kernel module.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.lab import faults
from fleet.lab.definition import load_definition
from fleet.lab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LAB = """\
all:
  vars: {lab_subnet: 172.28.64.0/25, lab_inner_subnet: 172.28.64.128/25}
  hosts:
    real:
      ansible_host: 172.28.64.11
      lab_release: bookworm
      lab_gpus: {model: t4, count: 2}
      lab_real_modules: true
"""
# The set that a machine without a screen needs; recommended packages would bring a desktop's libraries.
_DRIVER = "nvidia-kernel-dkms nvidia-smi libnvidia-ml1 libcuda1 nvidia-persistenced firmware-nvidia-gsp"


@pytest.fixture(scope="module")
def real_lab(lab_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One host with Debian's kernel packages, and GPUs on its bus."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "distribution-driver.yaml").write_text(_LAB)
    lab = Lab(load_definition(folder / "distribution-driver.yaml"))
    lab.up()
    yield lab
    lab.down()


def test_debians_driver_is_built_by_dkms_and_does_not_load_here(real_lab: Lab) -> None:
    def run(script: str) -> str:
        return faults.shell(real_lab, "real", script, deadline=1800)

    kernel = run("uname -r").strip()
    assert kernel == run("cat /proc/sys/kernel/osrelease").strip()
    assert f"/boot/vmlinuz-{kernel}\n" in run("ls /boot/vmlinuz-*")

    install = "DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends"
    run(f"{install} linux-headers-{kernel} {_DRIVER} >/dev/null 2>&1")

    version = run("dpkg-query -f '${Version}' -W nvidia-kernel-dkms").partition("-")[0]
    assert run("dkms status").strip() == f"nvidia-current/{version}, {kernel}, x86_64: installed"
    built = f"/lib/modules/{kernel}/updates/dkms/nvidia-current.ko"
    assert run(f"modinfo -F version {built}").strip() == version
    assert run("dpkg --audit") == ""
    refused = faults.execute(real_lab, "real", "modprobe", "nvidia", check=False)
    assert refused.returncode == 1
    assert "nvidia-current not found" in refused.stderr
    smi = faults.execute(real_lab, "real", "nvidia-smi", check=False)
    assert (smi.returncode, "couldn't communicate with the NVIDIA driver" in smi.stdout) == (9, True)
