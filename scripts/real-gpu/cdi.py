#!/usr/bin/env python3
"""A CDI specification of this machine's GPUs, for a machine that has no nvidia-ctk.

Makes what ``nvidia-ctk cdi generate`` would on a machine whose driver is already there, in the same form,
without its hooks: device nodes, and each of the driver's libraries and programs mounted read-only where it
lies. A container finds them as it finds them on the machine: in the loader's default folders, or through
LD_LIBRARY_PATH, which NVIDIA's own images set to /usr/local/nvidia/lib64. Standard library only.

    cdi.py [--output=FILE]      the ``cdi_command`` of fleet's container_toolkit; without FILE it prints
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DEVICES = Path("/dev")
VERSION_FILE = Path("/proc/driver/nvidia/version")
ROOT_LIBRARY = "libnvidia-ml.so.1"
PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
COMMON_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
USUAL_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)


def driver_version() -> str:
    """The loaded driver's version. Raises SystemExit where no driver is loaded."""
    try:
        text = VERSION_FILE.read_text()
    except OSError as error:
        raise SystemExit(f"no NVIDIA driver is loaded: {error}") from None
    found = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", text)
    if not found:
        raise SystemExit(f"{VERSION_FILE} names no version")
    return found.group(1)


def library_folder() -> Path:
    """Where the driver's libraries lie: as the loader has it, else the usual places."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    folders = [
        Path(line.split("=>")[1].strip()).parent
        for line in cache.splitlines()
        if line.strip().startswith(ROOT_LIBRARY + " ") and "64" in line
    ]
    folders += [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    for folder in [*folders, *map(Path, USUAL_FOLDERS)]:
        if (folder / ROOT_LIBRARY).exists():
            return folder
    raise SystemExit(f"{ROOT_LIBRARY} is nowhere on this machine; name its folder in LD_LIBRARY_PATH")


def libraries(folder: Path, version: str) -> list[Path]:
    """The driver's libraries of this version, and the names that lead to them (libcuda.so.1)."""
    mine = [entry for entry in folder.iterdir() if entry.is_file() and entry.resolve().name.endswith(version)]
    return sorted(entry for entry in mine if ".so" in entry.name)


def programs(folder: Path) -> list[Path]:
    """The driver's programs, beside the libraries or on PATH; a script there that starts one is not one."""
    places = [str(folder.parent / "bin"), *os.environ.get("PATH", "").split(":"), "/usr/bin"]
    found = []
    for name in PROGRAMS:
        candidates = [Path(place) / name for place in places if place]
        path = next((each for each in candidates if is_program(each)), None)
        if path is not None:
            found.append(path)
    return found


def is_program(path: Path) -> bool:
    """Whether there is an ELF file."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


def gpus() -> list[str]:
    """Minor numbers of the GPUs that have a device node, in order."""
    numbers = [entry.name[len("nvidia") :] for entry in DEVICES.glob("nvidia*")]
    return sorted((number for number in numbers if number.isdigit()), key=int)


def specification() -> Iterator[str]:
    """The lines of the document, YAML."""
    version, minors = driver_version(), gpus()
    folder = library_folder()
    if not minors:
        raise SystemExit("there is no /dev/nvidia0 on this machine")
    yield from ("---", "cdiVersion: 0.5.0", "kind: nvidia.com/gpu", "devices:")
    for name, nodes in [*((minor, [minor]) for minor in minors), ("all", minors)]:
        yield f'- name: "{name}"' if name != "all" else "- name: all"
        yield from ("  containerEdits:", "    deviceNodes:")
        yield from (f"    - path: {DEVICES}/nvidia{minor}" for minor in nodes)
    yield from ("containerEdits:", "  env:", "  - NVIDIA_VISIBLE_DEVICES=void")
    if str(folder) not in USUAL_FOLDERS:
        yield f"  - LD_LIBRARY_PATH={folder}"
    yield "  deviceNodes:"
    yield from (f"  - path: {DEVICES / name}" for name in COMMON_DEVICES if (DEVICES / name).exists())
    yield "  mounts:"
    mounts = [(path, path) for path in libraries(folder, version)]
    mounts += [(path, Path("/usr/bin") / path.name) for path in programs(folder)]
    for path, inside in mounts:
        yield from (f"  - hostPath: {path.resolve()}", f"    containerPath: {inside}", "    options:")
        yield from (f"    - {option}" for option in ("ro", "nosuid", "nodev", "bind"))


def main() -> None:
    """The document into the file that is named, else to standard output; nothing of it where it cannot be whole."""
    parser = argparse.ArgumentParser(description="A CDI specification of this machine's GPUs.")
    parser.add_argument("--output", type=Path, help="a file; else standard output")
    output = parser.parse_args().output
    text = "\n".join(specification()) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text)


if __name__ == "__main__":
    main()
