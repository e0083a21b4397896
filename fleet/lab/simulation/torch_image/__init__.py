"""Small images that stand for official ones: a Python with a simulated torch of a certain build.

They are a tenth of a real image, and behave as one in what decides whether it runs: which GPUs the build has
code for, which driver its CUDA needs, whether PTX can be compiled (``torch_stand_in.py``). ``builds.json`` says
what is in which build; it is the simulator's own, so that a mistake of the catalogue is not repeated here.
:func:`build` makes an image; :meth:`fleet.lab.lab.Lab.push` puts it into a lab's registry.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.core.errors import InputError

if TYPE_CHECKING:
    from fleet.lab.images import Images

_HERE = Path(__file__).parent
_MODULE = _HERE / "torch_stand_in.py"


def builds() -> dict[str, dict[str, Any]]:
    """Every build there is, by release and CUDA: ``2.7-cuda12.8``; versions of one release are built alike."""
    found: dict[str, dict[str, Any]] = json.loads((_HERE / "builds.json").read_text(encoding="utf-8"))[
        "builds"
    ]
    return found


def files(build: str) -> dict[str, str]:
    """Content by path below site-packages, of ``2.7.0-cuda12.8``. Raises InputError for a build that is not known."""
    torch, _, cuda = build.partition("-cuda")
    known, wanted = builds(), f"{'.'.join(torch.split('.')[:2])}-cuda{cuda}"
    if wanted not in known:
        raise InputError(
            f"the lab has no stand-in of torch {build}; it has {', '.join(sorted(known))}",
            remedy="add the build to fleet/lab/simulation/torch_image/builds.json, from what its release says",
        )
    said = {"torch": torch, "cuda": cuda, **known[wanted]}
    return {
        "torch/__init__.py": _MODULE.read_text(encoding="utf-8"),
        "torch/build.json": json.dumps(said, indent=1, sort_keys=True) + "\n",
    }


def build(images: Images, name: str) -> str:
    """Tag, on this machine, of the image that stands for ``TORCH-cudaCUDA``; it is made if it is missing."""
    content = files(name)
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    environment = f"ENV PYTORCH_VERSION={name.partition('-')[0]} NVIDIA_VISIBLE_DEVICES=all"
    return images.on_small_python(f"torch-stand-in:{name}-{digest}", content, environment)
