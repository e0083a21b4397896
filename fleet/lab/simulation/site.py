"""Everything the lab's package server serves, as one folder.

========================================  ====================================================
compute/cuda/repos/DISTRIBUTION/x86_64/   flat, as developer.download.nvidia.com has it
libnvidia-container/stable/deb/amd64/     flat, as nvidia.github.io has it
kernels/                                  flat: kernels, headers and dkms that only the lab has
kernels/DISTRIBUTION/                     flat: the metapackages of its kernels
========================================  ====================================================

Each has a signing key of its own, in ``keys/`` beside the folder (not served).
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from fleet.lab.simulation import native, packages
from fleet.lab.simulation.repository import Key, publish_flat, write_signed

NAME = "packages.lab"
CUDA_KEY_FILES = {"debian13": "8793F200.pub"}  # as NVIDIA names them; everywhere else 3bf863cc.pub


def build(
    folder: Path,
    keys: Path,
    cache: Path,
    progress: Callable[[str], None],
    *,
    distributions: Sequence[str] = packages.DISTRIBUTIONS,
    drivers: Sequence[str] = (*packages.OLD_DRIVERS, *packages.DRIVERS),
    toolkits: Sequence[str] = packages.TOOLKITS,
) -> None:
    """Make the whole site in ``folder``, unless it is there already and made from the same.

    ``keys``: where the signing keys are kept. ``cache``: where compiled programs are. Takes some
    seconds, most of them in the compiler. Raises RefusedError where there is none.
    """
    made_from = folder / ".made-from"
    recipe = _recipe(distributions, drivers, toolkits)
    if made_from.exists() and made_from.read_text() == recipe:
        return
    progress(f"packages: making {len(drivers)} driver versions for {', '.join(distributions)}")
    tools = {driver: native.build(driver, cache) for driver in drivers}
    signing_keys = make_keys(keys)
    cuda = signing_keys["nvidia_driver"]
    for distribution in distributions:
        target = folder / "compute/cuda/repos" / distribution / "x86_64"
        url = f"http://{NAME}/compute/cuda/repos/{distribution}/x86_64"
        found = [packages.keyring_package(distribution, cuda.binary(), url)]
        for driver in packages.drivers_of(distribution, drivers):
            found += packages.driver_packages(distribution, driver, tools[driver])
        publish_flat(target, found, cuda, origin="NVIDIA", label="NVIDIA CUDA")
        (target / CUDA_KEY_FILES.get(distribution, "3bf863cc.pub")).write_text(cuda.armored())
    toolkit = signing_keys["container_toolkit"]
    target = folder / "libnvidia-container/stable/deb/amd64"
    found = list(packages.toolkit_packages(toolkits))
    publish_flat(target, found, toolkit, origin="https://nvidia.github.io/libnvidia-container")
    (folder / "libnvidia-container/gpgkey").write_text(toolkit.armored())
    lab = Key.make(keys / "lab", "fleet lab")
    publish_flat(
        folder / "kernels", packages.kernel_packages(native.build_references(cache)), lab, origin="fleet lab"
    )
    for distribution in packages.KERNELS:
        found = list(packages.kernel_metapackages(distribution))
        publish_flat(folder / "kernels" / distribution, found, lab, origin="fleet lab")
    made_from.write_text(recipe)


def make_keys(folder: Path) -> dict[str, Key]:
    """The keys that sign what stands for others' repositories, by the product's name for what is in them."""
    return {
        "nvidia_driver": Key.make(folder / "cuda", "cudatools"),
        "container_toolkit": Key.make(folder / "toolkit", "NVIDIA CORPORATION (Open Source Projects)"),
    }


def withdraw(repository: Path, key: Key, package: str) -> None:
    """Take every version of ``package`` out of a flat repository: it has vanished upstream."""
    index = (repository / "Packages").read_text().split("\n\n")
    kept = [paragraph for paragraph in index if not paragraph.startswith(f"Package: {package}\n")]
    content = "\n\n".join(kept).encode()
    files = {"Packages": content, "Packages.gz": gzip.compress(content, mtime=0)}
    write_signed(repository, files, key, "NVIDIA", {"Label": "NVIDIA CUDA"})


def _recipe(*parts: Sequence[str]) -> str:
    """A hash of the code and the lists that the site is made from."""
    digest = hashlib.sha256(repr(parts).encode())
    here = Path(__file__).parent
    for path in sorted(path for path in here.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(path.read_bytes())
    return digest.hexdigest()
