"""The agent as one zip: what is sent to a host that does not have it yet.

With it goes NVIDIA's Python binding of NVML, as it is in the installed nvidia-ml-py: one file, whose head is
its licence (BSD). Same sources, same bytes, same SHA-256: names sorted, dates fixed, one compression level. Hosts keep
the unpacked bundle under its hash; a run resumes with the bundle that started it. Reading and zipping
some 150 files takes some 30 ms, once per process, so nothing is cached on disk.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import fleet
from fleet.core.errors import FleetError

COMPRESSION_LEVEL = 6
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold


@dataclass(frozen=True)
class Bundle:
    """``data`` is the zip, ``sha256`` its hash in 64 hex digits."""

    data: bytes = field(repr=False)
    sha256: str

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Bundle:
        """A bundle of ``files`` by their path in the zip (``fleet/agent/session.py``)."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name in sorted(files):
                member = zipfile.ZipInfo(name, EPOCH)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                member.create_system = 3  # Unix, wherever it is built
                archive.writestr(member, files[name], compresslevel=COMPRESSION_LEVEL)
        data = out.getvalue()
        return cls(data, hashlib.sha256(data).hexdigest())

    @classmethod
    def of_agent(cls) -> Bundle:
        """The bundle of the fleet that is running: ``fleet/__init__.py`` and all of ``fleet/agent``."""
        package = Path(fleet.__file__).resolve().parent
        sources = [package / "__init__.py", *(package / "agent").rglob("*.py")]
        files = {str(Path("fleet") / file.relative_to(package)): file.read_bytes() for file in sources}
        return cls.of(files | nvml_binding())


def nvml_binding() -> dict[str, bytes]:
    """pynvml and its version by their paths in the bundle; fleet.agent.gpu_probe.binding reads both.

    Raises FleetError where nvidia-ml-py is not installed, or something else calls itself pynvml.
    """
    spec = find_spec("pynvml")
    place = Path(spec.origin) if spec is not None and spec.origin else None
    versions = sorted(place.parent.glob("nvidia_ml_py-*.dist-info")) if place is not None else []
    if place is None or place.name != "pynvml.py" or not versions:
        raise FleetError(
            "NVIDIA's Python binding of NVML is not installed beside fleet, and the agent brings it to the hosts",
            remedy="pip install nvidia-ml-py, and remove the other package called pynvml if there is one",
        )
    version = versions[-1].name.removeprefix("nvidia_ml_py-").removesuffix(".dist-info")
    return {
        "pynvml.py": place.read_bytes(),
        "pynvml_version.py": f'"""The version of pynvml.py."""\n\nVERSION = "{version}"\n'.encode(),
    }
