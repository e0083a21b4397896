"""What a rollout is going to do, before anything moves: counts, order, reboots, and what keeps which host out.

:func:`make_plan` decides who takes part from what was found on each host (:class:`Preview`); the members it comes to
are those that :meth:`fleet.rollout.rollout.Rollout.register` is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleet.core.errors import InputError, Problem, RefusedError
from fleet.rollout.members import Member
from fleet.rollout.stages import stages_of
from fleet.rollout.strategy import Strategy, check, limits_of

_SHOWN = 5


@dataclass(frozen=True)
class Preview:
    """What was found on a host. None: not known, which is told apart from no.

    ``version``: what runs now. ``reboot``: whether the upgrade needs one. ``blocked``: why it may not be touched.
    ``way_back``: whether the previous packages can still be had. ``missing``: what the upgrade needs and no repository
    of this host offers; half a fleet on a version that the other half cannot get helps nobody, so it refuses the run.
    """

    version: str | None = None
    current: bool = False
    reboot: bool | None = None
    blocked: str | None = None
    remedy: str | None = None
    way_back: bool | None = None
    missing: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """A host that is only counted, why, and what would let it take part."""

    host: str
    why: str
    remedy: str | None = None


@dataclass(frozen=True)
class PlannedStage:
    """``at_once``: the most of its hosts that can be out at a time."""

    name: str
    hosts: tuple[str, ...]
    gate: bool
    at_once: int


@dataclass(frozen=True)
class Plan:
    """The plan. ``reboots`` and ``versions`` are of those that take part; ``no_way_back`` go all the same."""

    members: tuple[Member, ...]
    stages: tuple[PlannedStage, ...]
    left_out: tuple[LeftOut, ...]
    current: tuple[str, ...]
    no_way_back: tuple[str, ...]
    reboots: Mapping[bool | None, int]
    versions: Mapping[str | None, int]
    max_unavailable: int
    per_domain: Mapping[str, int]
    may_fail: int
    strategy: Strategy

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.stages

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        words = {True: "yes", False: "no", None: "unknown"}
        return {
            "stages": [
                {"name": one.name, "hosts": list(one.hosts), "gate": one.gate, "at_once": one.at_once}
                for one in self.stages
            ],
            "left_out": [{"host": one.host, "why": one.why, "remedy": one.remedy} for one in self.left_out],
            "current": list(self.current),
            "no_way_back": list(self.no_way_back),
            "reboots": {words[known]: count for known, count in self.reboots.items()},
            "versions": [{"version": version, "hosts": count} for version, count in self.versions.items()],
            "max_unavailable": self.max_unavailable,
            "max_unavailable_per_domain": dict(self.per_domain),
            "max_failures": self.may_fail,
            "strategy": self.strategy.as_json(),
        }


def make_plan(strategy: Strategy, members: Sequence[Member], previews: Mapping[str, Preview]) -> Plan:
    """The plan for these hosts.

    Raises RefusedError where what is wanted cannot be had on one of them, and InputError where what is left cannot be
    done by this strategy.
    """
    _refuse_missing(members, previews)
    left_out = _left_out(strategy, members, previews)
    sorted_out = tuple(
        replace(one, left_out=left_out[one.name].why) if one.name in left_out else one for one in members
    )
    stages = stages_of(strategy, sorted_out)
    if stages and (problems := check(strategy, sorted_out)):
        raise InputError([Problem(None, f"{key}: {message}") for key, message in problems])
    going = [host for stage in stages for host in stage.hosts]
    found = {host: previews.get(host, Preview()) for host in going}
    overall, per_domain = limits_of(strategy, sorted_out)
    current = tuple(name for name, one in left_out.items() if previews.get(name, Preview()).current)
    return Plan(
        members=sorted_out,
        stages=tuple(
            PlannedStage(one.name, one.hosts, one.gate, min(len(one.hosts), overall)) for one in stages
        ),
        left_out=tuple(one for name, one in left_out.items() if name not in current),
        current=current,
        no_way_back=tuple(host for host in going if found[host].way_back is not True),
        reboots=Counter(one.reboot for one in found.values()),
        versions=Counter(one.version for one in found.values()),
        max_unavailable=overall,
        per_domain=per_domain,
        may_fail=strategy.max_failures.of(len(going)),
        strategy=strategy,
    )


def _refuse_missing(members: Sequence[Member], previews: Mapping[str, Preview]) -> None:
    found = {
        member.name: missing
        for member in members
        if member.takes_part and (missing := previews.get(member.name, Preview()).missing) is not None
    }
    if found:
        listed = "\n".join(f"  {host}: {missing}" for host, missing in list(found.items())[:_SHOWN])
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise RefusedError(
            f"what is wanted cannot be had on {len(found)} of {len(members)} hosts; none was changed\n{listed}{more}",
            remedy="name a version that all repositories offer, or leave these hosts out with --limit",
        )


def _left_out(
    strategy: Strategy, members: Sequence[Member], previews: Mapping[str, Preview]
) -> dict[str, LeftOut]:
    """Who does not take part. A unit moves as one, so one host that may not move keeps it all back."""
    found: dict[str, LeftOut] = {}
    for member in members:
        reason = _reason(strategy, member, previews.get(member.name))
        if reason is not None:
            found[member.name] = reason
    holding = {
        member.unit: member.name
        for member in members
        if member.name in found and not previews.get(member.name, Preview()).current
    }
    for member in members:
        if member.name not in found and member.unit in holding:
            why = f"its unit {member.unit} moves as one, and {holding[member.unit]} is left out"
            found[member.name] = LeftOut(member.name, why)
    return {member.name: found[member.name] for member in members if member.name in found}


def _reason(strategy: Strategy, member: Member, preview: Preview | None) -> LeftOut | None:
    if member.left_out is not None:
        return LeftOut(member.name, member.left_out)
    if preview is None:
        return LeftOut(member.name, "nothing is known of it", "see that it can be reached, and plan again")
    if preview.current:
        return LeftOut(member.name, "has the wanted version already")
    if preview.blocked is not None:
        return LeftOut(member.name, preview.blocked, preview.remedy)
    if preview.way_back is not True and not strategy.no_rollback:
        why = "its previous packages are neither cached nor in a repository"
        if preview.way_back is None:
            why = "it is not known whether its previous packages can still be had"
        return LeftOut(member.name, why, "--no-rollback to include it")
    return None
