"""Simulated GPU hardware for lab hosts: what a machine would have, and the software that sees it.

::

    hardware.py    the hardware file of a host, and builders of some well-known machines
    pci.py         what of it stands in /sys/bus/pci/devices
    view.py        the same, and the faults, as KEY=VALUE lines for programs that cannot read JSON
    native/        NVML and nvidia-smi in C, which answer from these lines and from the loaded driver
    host/          what runs on the host: module loading, dkms, uname; all of it POSIX shell
    kernel_log.py  the driver's lines about trouble, for a host's kernel log
    image/         the backend of simulated benchmarks in the lab's torch image
    packages.py    .deb files named as NVIDIA's, which install the above
    repository.py  signed apt repositories of these packages

It shares no data with the catalogue of the product: a mistake there must not be repeated here.
docs/lab-simulation.md tells how it hangs together.
"""
