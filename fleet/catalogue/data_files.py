"""Reads the catalogue's YAML files, once each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

#: Where the shipped files lie.
FOLDER = Path(__file__).parent / "data"


@cache
def data_names() -> tuple[str, ...]:
    """The names of the shipped files, without ``.yaml``, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def data(name: str) -> Any:
    """The content of ``fleet/catalogue/data/NAME.yaml``. Callers must not change it."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=loader)  # noqa: S506 - both loaders are the safe one


def version_key(text: str) -> tuple[int, ...]:
    """Sort key of a release number: ``22.04`` < ``24.04``; parts that are no numbers count as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def within(version: str, lowest: str | None, highest: str | None) -> bool:
    """Whether a release lies between two others, both included; None is no bound."""
    key = version_key(version)
    above = lowest is None or key >= version_key(lowest)
    return above and (highest is None or key[: len(version_key(highest))] <= version_key(highest))
