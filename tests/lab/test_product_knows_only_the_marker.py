"""Product code behaves on lab hosts as on any other: it knows the marker file and nothing else.

The command line may ask :mod:`fleet.lab.presence` whether a lab is down; that is a person's help.
"""

from __future__ import annotations

import re
from pathlib import Path

import fleet
from fleet.lab.hosts import MARKER

PACKAGE = Path(fleet.__file__).parent
OF_THE_LAB = re.compile(r"fleet[-_.]lab|registry\.lab|\blab_[a-z]+|lab\.json")


def test_product_code_names_nothing_of_the_lab_but_its_marker() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] in ("lab", "cli"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if OF_THE_LAB.search(line.replace(MARKER, "")):
                found.append(f"{relative}:{number}: {line.strip()}")
    assert found == []
