"""The hardware file of a lab host: which GPUs and switches it would have, as one JSON document.

:func:`hardware` makes a document for a number of equal GPUs, whose identities (UUID, serial, PCI
address) follow from a seed, so that the same host has the same GPUs each time it is made.
``hardware.schema.json`` beside this file says what a document may hold. Next: :mod:`.view`,
:mod:`.pci`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from fleet.agent import strict_json
from fleet.core.errors import InputError, Problem

Json = dict[str, Any]

SCHEMA_NAME = "fleet-lab.hardware/1"
_HERE = Path(__file__).parent
# Where GPUs sit on the bus of an eight-GPU board; other machines have one root port after another.
_BOARD_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
_SWITCH_BUSES = (0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C)
# PCI device of the switch chip and how many of them a board has, by model of its GPUs.
# Memory that a MIG device of so many GB says it has (driver 590, H100).
_MIG_MEMORY_MIB = {10: 9984, 20: 20096, 40: 40448}
_SWITCHES: Mapping[str, tuple[str, int]] = {
    "h100-sxm": ("22a3", 4),
    "h200": ("22a3", 4),
    "a100-sxm4-80gb": ("1af1", 6),
    "v100-sxm2": ("1ac2", 6),
}


def models() -> dict[str, Json]:
    """Every GPU model there is, by key; units are in the field names."""
    found: dict[str, Json] = json.loads((_HERE / "models.json").read_text())
    return found


def hardware(
    model: str | Sequence[str],
    count: int = 1,
    *,
    seed: str = "lab",
    nvswitch: bool | None = None,
    kernel: str = "6.1.0-90-amd64",
    secure_boot: str = "disabled",
    nouveau: bool | None = None,
    mig: Sequence[str] = (),
) -> Json:
    """A machine with ``count`` GPUs of ``model``, or of each of several models, in their order on the bus.

    ``nvswitch``: whether the GPUs hang on switches; by default eight of a model that is sold that
    way do. ``kernel``: the release it boots. ``secure_boot``: disabled, enabled, setup_mode or
    no_efi. ``nouveau``: whether the kernel's own driver takes the GPUs at boot if nothing forbids it; by
    default it does so with graphics cards. ``mig``: profiles (``1g.10gb``) that each GPU is split into.
    Raises InputError for a model that is not known, for none, or for more than 16 GPUs.
    """
    known = models()
    names = [model] if isinstance(model, str) else list(model)
    if not names:
        raise InputError(f"a lab host's GPUs are of a model; there are {', '.join(sorted(known))}")
    for name in names:
        if name not in known:
            raise InputError(f"there is no GPU model {name}; there are {', '.join(sorted(known))}")
    total = count * len(names)
    if not 0 <= total <= 16:
        raise InputError(f"a lab host has 0 to 16 GPUs, not {total}")
    switched = nvswitch if nvswitch is not None else (names[0] in _SWITCHES and total == 8)
    document: Json = {
        "schema": SCHEMA_NAME,
        "kernel": {"release": kernel},
        "secure_boot": secure_boot,
        "nouveau": nouveau if nouveau is not None else any(known[n]["class"] == "030000" for n in names),
        "gpus": [
            _gpu(known[name], name, index, total, seed, mig)
            for index, name in enumerate(name for name in names for _ in range(count))
        ],
        "nvswitches": _switches(names[0]) if switched else [],
    }
    validate(document)
    return document


def validate(document: Mapping[str, Any], where: str = "hardware file") -> None:
    """InputError listing everything in which ``document`` is not a hardware file."""
    schema = json.loads((_HERE / "hardware.schema.json").read_text())
    problems = []
    for error in Draft202012Validator(schema).iter_errors(document):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        problems.append(Problem(None, f"{where}: {place.lstrip('.') or 'the document'}: {error.message}"))
    addresses = [str(gpu.get("pci_address")) for gpu in document.get("gpus", []) if isinstance(gpu, Mapping)]
    for address in sorted({address for address in addresses if addresses.count(address) > 1}):
        problems.append(Problem(None, f"{where}: two GPUs have the PCI address {address}"))
    if problems:
        raise InputError(problems)


def load(path: Path) -> Json:
    """Read and check the hardware file ``path``. Raises InputError."""
    try:
        document = strict_json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read hardware file {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: a hardware file is a JSON object")
    validate(document, str(path))
    return document


def _gpu(model: Json, key: str, index: int, count: int, seed: str, profiles: Sequence[str]) -> Json:
    digest = hashlib.sha256(f"{seed}/{key}/{index}".encode()).digest()
    bus = _BOARD_BUSES[index] if count == 8 else index + 1
    gpu = dict(model)
    has_serial = gpu.pop("serial")
    gpu |= {
        "model": key,
        "pci_address": f"0000:{bus:02x}:00.0",
        "numa_node": index * 2 // count if count > 1 else 0,
        "uuid": f"GPU-{uuid.UUID(bytes=digest[:16])}",
        "serial": f"16{int.from_bytes(digest[16:22], 'big') % 10**11:011d}" if has_serial else None,
        "module_id": index + 1 if count == 8 else None,
    }
    if profiles:
        if not gpu.get("mig"):
            raise InputError(f"a GPU of model {key} cannot be split (mig)")
        gpu["mig_devices"] = mig_devices(gpu["uuid"], profiles)
    return gpu


def mig_devices(seed: str, profiles: Sequence[str]) -> list[Json]:
    """The MIG devices of one GPU, in the order NVML lists them; ids as the driver gives them out."""
    first = {"7": 0, "4": 1, "3": 1, "2": 3, "1": 7}
    taken: set[int] = set()
    found = []
    for number, profile in enumerate(profiles):
        instance = next(n for n in range(first.get(profile[0], 7), 99) if n not in taken)
        taken.add(instance)
        gigabytes = int(profile.partition("g.")[2].partition("gb")[0] or 0)
        digest = hashlib.sha256(f"{seed}/{number}/{profile}".encode()).digest()
        found.append(
            {
                "profile": profile,
                "uuid": f"MIG-{uuid.UUID(bytes=digest[:16])}",
                "gpu_instance": instance,
                "compute_instance": 0,
                "memory_mib": _MIG_MEMORY_MIB.get(gigabytes, gigabytes * 1024 - 256),
            }
        )
    return found


def _switches(model: str) -> list[Json]:
    device, count = _SWITCHES.get(model, ("22a3", 4))
    return [
        {
            "pci_address": f"0000:{bus:02x}:00.0",
            "vendor": "10de",
            "device": device,
            "subsystem_vendor": "10de",
            "subsystem_device": "1796",
            "class": "068000",
            "numa_node": 0,
        }
        for bus in _SWITCH_BUSES[:count]
    ]
