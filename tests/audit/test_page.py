"""docs/preflight.md lists every rule with what fires it; FLEET_UPDATE_GOLDEN=1 writes the table anew."""

from __future__ import annotations

import os
from pathlib import Path

from fleet.audit.findings import Severity
from fleet.audit.rule import Rule
from fleet.audit.rules import rules
from tests.facts import healthy_facts, healthy_gpu_facts

PAGE = Path(__file__).parents[2] / "docs" / "preflight.md"
START, END = "<!-- rules -->\n", "<!-- end of rules -->\n"
CONSEQUENCES = {Severity.ERROR: "refused", Severity.WARNING: "warning", Severity.INFO: "note"}


def table() -> str:
    lines = ["| rule | what is right | fires, for example | remedy | then |", "|---|---|---|---|---|"]
    lines += [row(rule) for rule in rules("preflight")]
    return "".join(f"{line}\n" for line in lines)


def row(rule: Rule) -> str:
    lay_over = healthy_gpu_facts if rule.known_bad.gpu else healthy_facts
    (finding,) = rule.evaluate(lay_over(dict(rule.known_bad.facts)), rule.known_bad.wanted)
    cells = (rule.holds.replace("``", "`"), finding.what, finding.remedy, consequence(rule))
    return f"| `{rule.id}` | {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def consequence(rule: Rule) -> str:
    if not rule.needs_leave:
        return CONSEQUENCES[rule.severity]
    if rule.severity is Severity.ERROR:
        return "waits for leave: `--disrupt`"
    return f"{CONSEQUENCES[rule.severity]}; the task waits for leave: `--disrupt`"


def test_the_page_lists_every_rule_as_it_is() -> None:
    before, start, rest = PAGE.read_text().partition(START)
    _, end, after = rest.partition(END)
    text = f"{before}{start}\n{table()}\n{end}{after}"
    if os.environ.get("FLEET_UPDATE_GOLDEN"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
