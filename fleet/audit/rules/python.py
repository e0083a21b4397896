"""Can the agent run here in full?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Sample, Wanted, rule

LOWEST = (3, 9)


@rule(
    "preflight.python",
    gate=True,
    reads=("python.version", "python.complete"),
    known_bad=Sample({"python.version": "3.6.8"}),
)
def python(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Python is new enough and has its whole standard library."""
    version = str(fact(facts, "python.version"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < LOWEST:
        yield self.finding(
            f"Python {version} is too old for the agent",
            observed=version,
            limit="3.9",
            source="the agent is written in the Python of Debian 11",
            remedy="install a newer Python and name it in ansible_python_interpreter",
        )
    elif not fact(facts, "python.complete"):
        yield self.finding(
            f"Python {version} lacks parts of its standard library (python3-minimal?)",
            observed="incomplete",
            limit="complete",
            source="the agent uses the standard library only, but all of it",
            remedy="apt-get install python3",
        )
