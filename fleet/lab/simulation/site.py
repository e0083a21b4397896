"""Everything the lab's package server serves, as one folder.

========================================  ====================================================
compute/cuda/repos/DISTRIBUTION/x86_64/   flat, as developer.download.nvidia.com has it
libnvidia-container/stable/deb/amd64/     flat, as nvidia.github.io has it
kernels/                                  flat: kernels, headers and dkms that only the lab has
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
KERNELS = ("6.1.0-90-amd64", "6.1.0-91-amd64", "5.15.0-170-generic", "5.15.0-171-generic")
CUDA_KEY_FILE = "3bf863cc.pub"


def build(
    folder: Path,
    keys: Path,
    cache: Path,
    progress: Callable[[str], None],
    *,
    distributions: Sequence[str] = packages.DISTRIBUTIONS,
    drivers: Sequence[str] = packages.DRIVERS,
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
    cuda = Key.make(keys / "cuda", "cudatools")
    for distribution in distributions:
        target = folder / "compute/cuda/repos" / distribution / "x86_64"
        url = f"http://{NAME}/compute/cuda/repos/{distribution}/x86_64"
        found = [packages.keyring_package(cuda.armored().encode(), url)]
        for driver in drivers:
            found += packages.driver_packages(distribution, driver, tools[driver])
        publish_flat(target, found, cuda, origin="NVIDIA")
        (target / CUDA_KEY_FILE).write_text(cuda.armored())
    toolkit = Key.make(keys / "toolkit", "NVIDIA CORPORATION (Open Source Projects)")
    target = folder / "libnvidia-container/stable/deb/amd64"
    found = list(packages.toolkit_packages(toolkits))
    publish_flat(target, found, toolkit, origin="https://nvidia.github.io/libnvidia-container")
    (folder / "libnvidia-container/gpgkey").write_text(toolkit.armored())
    lab = Key.make(keys / "lab", "fleet lab")
    publish_flat(folder / "kernels", packages.kernel_packages(KERNELS), lab, origin="fleet lab")
    made_from.write_text(recipe)


def withdraw(repository: Path, key: Key, package: str) -> None:
    """Take every version of ``package`` out of a flat repository: it has vanished upstream."""
    index = (repository / "Packages").read_text().split("\n\n")
    kept = [paragraph for paragraph in index if not paragraph.startswith(f"Package: {package}\n")]
    content = "\n\n".join(kept).encode()
    files = {"Packages": content, "Packages.gz": gzip.compress(content, mtime=0)}
    write_signed(repository, files, key, "NVIDIA", {})


def _recipe(*parts: Sequence[str]) -> str:
    """A hash of the code and the lists that the site is made from."""
    digest = hashlib.sha256(repr((parts, KERNELS)).encode())
    here = Path(__file__).parent
    for path in sorted(path for path in here.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(path.read_bytes())
    return digest.hexdigest()
