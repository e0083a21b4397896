"""What a CUDA image asks of the host's driver, read from its environment, before a container of it is started.

NVIDIA's images carry ``NVIDIA_REQUIRE_CUDA="cuda>=12.8 brand=tesla,driver>=535,driver<536 …"``: alternatives with
blanks between them, each of conditions with commas between them. The container toolkit's hook refuses an image whose
requirement is not met; where GPUs are given by CDI nobody looks, and CUDA fails inside with other words.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, Iterable, List, Optional

_CONDITION = re.compile(r"(cuda|driver)(>=|<=|!=|=|<|>)(\d+(?:\.\d+)*)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)")


def required(environment: Iterable[str]) -> List[str]:
    """The requirements among ``NAME=value`` texts; none where the image switches them off itself."""
    values: Dict[str, str] = dict(text.split("=", 1) for text in environment if "=" in text)
    if values.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true", "t"):
        return []
    return [values[name] for name in sorted(values) if name.startswith("NVIDIA_REQUIRE_") and values[name]]


def cuda_of(text: str) -> Optional[str]:
    """The CUDA version of the driver, in what nvidia-smi prints; None where it does not say."""
    match = _CUDA.search(text)
    return match.group(1) if match is not None else None


def unmet(requirement: str, known: Dict[str, Optional[str]]) -> Optional[str]:
    """The first alternative, where none can be met with the ``known`` versions of ``cuda`` and ``driver``; else
    None. What is not known, and conditions on anything else (the brand of the GPUs), count as met."""
    alternatives = requirement.split()
    if not alternatives or any(_may_hold(each, known) for each in alternatives):
        return None
    return alternatives[0]


def _may_hold(alternative: str, known: Dict[str, Optional[str]]) -> bool:
    return all(_condition_may_hold(text, known) for text in alternative.split(","))


def _condition_may_hold(text: str, known: Dict[str, Optional[str]]) -> bool:
    match = _CONDITION.fullmatch(text)
    here = known.get(match.group(1)) if match is not None else None
    if match is None or here is None:
        return True
    found, wanted = _numbers(here), _numbers(match.group(3))
    length = max(len(found), len(wanted))
    found += [0] * (length - len(found))
    wanted += [0] * (length - len(wanted))
    return {
        ">=": found >= wanted,
        "<=": found <= wanted,
        "!=": found != wanted,
        "=": found == wanted,
        "<": found < wanted,
        ">": found > wanted,
    }[match.group(2)]


def _numbers(version: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
