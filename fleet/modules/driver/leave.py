"""What of a driver that is in use would have to go for the wanted one, and whether that needs somebody's leave."""

from __future__ import annotations

from fleet.audit.facts import fact
from fleet.audit.leave import reasons_against
from fleet.modules.base import Context, Facts, Json
from fleet.modules.driver.packages import Choice

FORBIDDEN = ("nouveau", "nova_core")


def held_back(choice: Choice, facts: Facts, context: Context) -> str | None:
    """What waits for whose leave, in words; None where nothing loaded is in the way, or nobody uses the host."""
    old = replaced(choice, facts)
    if old is None or context.disrupt:
        return None
    reasons = reasons_against(facts)
    return f"needs leave to replace {old}: {'; '.join(reasons)}" if reasons else None


def replaced(choice: Choice, facts: Facts) -> str | None:
    """``driver 550.163.01 by 580.159.03``: what is loaded and would have to go, and what comes."""
    loaded = fact(facts, "driver.loaded")
    if loaded is not None and loaded["version"] != choice.version.text:
        return f"driver {loaded['version']} by {choice.version}"
    if loaded is not None and loaded.get("flavour") not in (None, choice.flavour):
        return (
            f"the {loaded['flavour']} kernel modules of driver {choice.version} by the {choice.flavour} ones"
        )
    names = fact(facts, "driver.modules") or {}
    bound = {one.get("driver") for one in fact(facts, "gpus") or ()}
    there = next((name for name in FORBIDDEN if name in names or name in bound), None)
    return f"{there} by driver {choice.version}" if there is not None else None


def may_unload(facts: Facts, context: Context) -> bool:
    """Whether modules may be unloaded: nobody uses the host, or leave was given."""
    return context.disrupt or not reasons_against(facts)


def may_reboot(args: Json, facts: Facts, context: Context) -> bool:
    """Whether the host may be rebooted for the driver, as the task says and its users permit."""
    return args["reboot"] == "if_needed" and may_unload(facts, context)
