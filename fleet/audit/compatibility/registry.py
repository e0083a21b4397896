"""All rules of the compatibility audit, by theme, then as written."""

from __future__ import annotations

from types import ModuleType

from fleet.audit.compatibility.rule import AuditRule
from fleet.audit.compatibility.rules import (
    cdi,
    docker,
    driver_floor,
    driver_gpu,
    driver_state,
    driver_support,
    image,
    image_name,
    interconnect,
    mixed,
    require_cuda,
    system,
    toolkit,
    unknown,
)

THEMES: tuple[ModuleType, ...] = (
    unknown, driver_floor, driver_gpu, driver_support, driver_state, image, image_name, toolkit, cdi, require_cuda,
    docker,
    system, interconnect, mixed,
)  # fmt: skip

ALL: tuple[AuditRule, ...] = tuple(
    value for theme in THEMES for value in vars(theme).values() if isinstance(value, AuditRule)
)
