"""Do the host and the controller agree on what time it is?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Sample, Wanted, rule

LIMIT_S = 300.0


@rule(
    "preflight.clock",
    gate=True,
    reads=("clock.unix",),
    known_bad=Sample({"clock.unix": 1_700_000_000.0}, {"now_unix": 1_700_000_301.0}),
)
def clock(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The clocks are within 5 minutes. Reads ``now_unix``, the controller's clock when the facts arrived."""
    now = wanted.get("now_unix")
    if now is None:
        return
    ahead = float(fact(facts, "clock.unix")) - float(now)
    if abs(ahead) > LIMIT_S:
        yield self.finding(
            f"the clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the controller's",
            observed=round(ahead, 1),
            limit=LIMIT_S,
            source="apt refuses release files, and TLS certificates, that are not valid yet or no longer",
            remedy="set it: systemctl enable --now systemd-timesyncd (or chrony), and check with timedatectl",
        )
