"""Lines that NVIDIA's driver writes into the kernel log when a GPU or an NVSwitch has trouble.

The texts have the shapes of the driver's own; numbers in them are made up. :func:`fleet.lab.simulation.faults.xid`
appends them to a host's log, which is a file mounted over ``/dev/kmsg``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.core.errors import InputError

# What follows the process, by code of the Xid.
TEXTS: Mapping[int, str] = {
    13: "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address",
    31: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f4c_21000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch 00000010",
    45: "Ch 00000010",
    48: "DBE (double bit error) ECC Error: An uncorrectable double bit error (DBE) has been detected on GPU "
    "in the framebuffer at partition 3, subpartition 0.",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Error writing row remapper infoROM object.",
    74: "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
    119: "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 103 (GSP_RM_ALLOC) "
    "(0x2081 0x4).",
    120: "GSP task timeout @ pc:0x4bd36c4, task: 1",
    145: "RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 0x00000000 0x00000000)",
    149: "NETIR Fatal XC1 i0 Link 02 (0x00000002 0x00000000 0x00000000 0x00000000)",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}
# Of the hardware, not of somebody's process: the line names none.
_WITHOUT_PROCESS = frozenset({74, 79, 145, 149, 154})


def xid_lines(
    code: int,
    gpu: Mapping[str, str],
    text: str | None = None,
    *,
    pid: int | None = None,
    process: str | None = None,
    gpu_instance: int | None = None,
    caused_by: int | None = None,
) -> list[str]:
    """The lines of one Xid. ``gpu``: ``pci_address`` (``0000:1b:00.0``), ``uuid``, ``serial``.

    ``gpu_instance``: of a MIG device. ``caused_by``: the Xid that this one only follows from.
    Raises InputError for a code whose text is neither known here nor given.
    """
    if text is None and code not in TEXTS:
        raise InputError(f"no text is known for Xid {code}; give one")
    place = gpu["pci_address"].rpartition(".")[0]
    instance = "" if gpu_instance is None else f" GPU-I:{gpu_instance:02d}"
    who = "pid='<unknown>', name=<unknown>, " if pid is None else f"pid={pid}, name={process or 'python3'}, "
    if pid is None and code in _WITHOUT_PROCESS:
        who = ""
    what = TEXTS[code] if text is None else text
    if caused_by is not None:
        what = f"{what} caused by previous Xid {caused_by}"
    lines = [f"NVRM: GPU at PCI:{place}: {gpu['uuid']}"]
    if gpu.get("serial"):
        lines.append(f"NVRM: GPU Board Serial Number: {gpu['serial']}")
    lines.append(f"NVRM: Xid (PCI:{place}{instance}): {code}, {who}{what}")
    if code == 79:
        lines.append(f"NVRM: GPU {gpu['pci_address']}: GPU has fallen off the bus.")
        if gpu.get("serial"):
            lines.append(f"NVRM: GPU {gpu['pci_address']}: GPU serial number is {gpu['serial']}.")
        lines.append(
            "NVRM: A GPU crash dump has been created. If possible, please run nvidia-bug-report.sh as root"
        )
    return lines


def sxid_lines(
    code: int,
    pci_address: str,
    text: str | None = None,
    *,
    switch: int = 0,
    link: int | None = None,
    fatal: bool = False,
) -> list[str]:
    """The lines of one SXid of the NVSwitch number ``switch`` at ``pci_address``."""
    what = text or "LTSSM Fault Up"
    where = f" Link {link:02d}" if link is not None else ""
    head = f"nvidia-nvswitch{switch}: SXid (PCI:{pci_address}): {code}"
    return [
        f"{head}, {'Fatal' if fatal else 'Non-fatal'},{where} {what}",
        f"{head}, Severity {int(fatal)} Engine instance {link or 0:02d} Sub-engine instance 00",
    ]


def framed(lines: Sequence[str]) -> str:
    """``lines`` for ``kernel_log`` of a host's shell functions: one each, nothing in them that breaks a record."""
    for line in lines:
        if "\n" in line or not line.isprintable():
            raise InputError(f"a record of the kernel log is one printable line, not {line!r}")
    return "".join(f"{line}\n" for line in lines)
