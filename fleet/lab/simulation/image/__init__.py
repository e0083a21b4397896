"""What is put into the lab's torch image: a distribution that offers a backend of benchmarks.

:func:`distribution` is what :mod:`fleet.lab.images` copies into the image's site-packages.
"""

from __future__ import annotations

from pathlib import Path

_NAME, _VERSION = "fleet_lab_benchmark", "1"


def distribution() -> dict[str, str]:
    """Content by path below site-packages: the module, and what makes it an installed distribution."""
    information = f"{_NAME}-{_VERSION}.dist-info"
    module = f"{_NAME}.py"
    return {
        module: Path(__file__).with_name(module).read_text(encoding="utf-8"),
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: fleet-lab-benchmark\nVersion: {_VERSION}\n",
        f"{information}/INSTALLER": "fleet-lab\n",
        f"{information}/entry_points.txt": f"[fleet.benchmark_backend]\nsimulated = {_NAME}:open_backend\n",
        f"{information}/RECORD": f"{module},,\n{information}/METADATA,,\n{information}/INSTALLER,,\n"
        f"{information}/entry_points.txt,,\n{information}/RECORD,,\n",
    }
