"""What is asked of the audit beside host and image."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Literal


@dataclass(frozen=True)
class Options:
    """``allow_unknown``: what is not known counts as a warning. ``intended_memory_bytes``: what the model needs on one
    GPU. ``job_groups``: products (ids of the catalogue) whose GPUs work on one job, over all hosts of the job.
    ``where``: the image's torch in a container, or its wheels on the host itself. ``on``: the day that ends of life
    are held against.
    """

    allow_unknown: bool = False
    intended_memory_bytes: int | None = None
    job_groups: tuple[tuple[str, ...], ...] = ()
    where: Literal["container", "host"] = "container"
    on: date = field(default_factory=date.today)
