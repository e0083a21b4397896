"""Would NVIDIA's driver still be there after a reboot? Asked right before one.

A host runs well until it boots a kernel that has no module, or whose initramfs lets another driver take the GPUs.
A reboot that fleet sends must not be what breaks it. Read here, not in the plan: the packages before it may have
brought a kernel. The same is told beforehand by the rules of ``fleet/audit/rules/kernels.py``.
"""

from __future__ import annotations

from fleet.agent.driver import build_errors, seen
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from fleet.agent.host import Host


def must_keep_the_driver(host: Host) -> None:
    """StepFailed, before anything is sent, where the kernel that boots next would serve the GPUs no more.

    A host whose GPUs are none or virtual machines', or that has no driver now, loses nothing.
    """
    if all(gpu["driver"] == "vfio-pci" for gpu in seen.gpus(host)):
        return
    kernels = seen.kernels(host)
    running, following = kernels[0], kernels[-1]
    if not seen.has_module(host, following):
        if seen.loaded(host) is not None or seen.has_module(host, running):
            raise _no_module(host, following)
        return
    older = seen.initramfs_lacks(host, following)
    if older:
        raise StepFailed(
            "the reboot was not sent: nouveau and nova are forbidden, and the initramfs of kernel %s, which boots"
            " next, is older than %s: one of them could take the GPUs" % (following, ", ".join(older)),
            "update-initramfs -u -k %s (dracut -f --kver %s), then run again" % (following, following),
        )


def _no_module(host: Host, release: str) -> StepFailed:
    what = (
        "module_missing_for_kernel %s: the reboot was not sent, since that kernel boots next and has no nvidia"
        " module: there would be no driver" % release
    )
    build = "dkms autoinstall -k %s" % release
    if not seen.has_headers(host, release):
        install = "apt-get install linux-headers-" if host.which("apt-get") else "dnf install kernel-devel-"
        return StepFailed(
            what + ", nor are there headers to build it", install + "%s && %s" % (release, build)
        )
    return StepFailed(
        what, "%s  # why it fails: %s/nvidia/VERSION/build/make.log" % (build, build_errors.DKMS_TREE)
    )
