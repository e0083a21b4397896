"""Three pages list every rule with what fires it; FLEET_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from fleet.audit import health
from fleet.audit.compatibility.registry import ALL
from fleet.audit.compatibility.rule import AuditRule
from fleet.audit.findings import Severity
from fleet.audit.rule import Rule
from fleet.audit.rules import rules
from tests.audit.compatibility.test_compatibility_rules import bad_case
from tests.facts import health_facts, healthy_facts, healthy_gpu_facts

DOCS = Path(__file__).parents[2] / "docs"
START, END = "<!-- rules -->\n", "<!-- end of rules -->\n"
CONSEQUENCES = {Severity.ERROR: "refused", Severity.WARNING: "warning", Severity.INFO: "note"}


def preflight() -> list[list[str]]:
    rows = [["rule", "what is right", "fires, for example", "remedy", "then"]]
    for rule in rules("preflight"):
        lay_over = healthy_gpu_facts if rule.known_bad.gpu else healthy_facts
        (finding,) = rule.evaluate(lay_over(dict(rule.known_bad.facts)), rule.known_bad.wanted)
        rows.append([f"`{rule.id}`", holds(rule), finding.what, finding.remedy, consequence(rule)])
    return rows


def health_rules() -> list[list[str]]:
    rows = [["rule", "what is right", "fires, for example", "limit from", "remedy", "severity"]]
    for rule in health.rules():
        facts = health_facts(rule.known_bad.model, rule.known_bad.facts)
        (finding,) = rule.evaluate(facts, rule.known_bad.wanted)
        severity = "remark" if rule.severity is Severity.INFO else rule.severity.value
        cells = [finding.what, finding.limit_source, finding.remedy, severity]
        rows.append([f"`{rule.id}`", holds(rule), *cells])
    return rows


def audit_rules() -> list[list[str]]:
    rows = [["rule", "what is right", "fires, for example", "limit from", "remedy", "severity"]]
    for rule in ALL:
        finding = rule.evaluate(bad_case(rule))[0]
        severity = {Severity.INFO: "remark", Severity.UNKNOWN: "not known"}.get(
            rule.severity, rule.severity.value
        )
        cells = [finding.what, finding.limit_source, finding.remedy, severity]
        rows.append([f"`{rule.id}`", holds(rule), *cells])
    return rows


def holds(rule: Rule | AuditRule) -> str:
    return rule.holds.replace("``", "`")


def consequence(rule: Rule) -> str:
    if not rule.needs_leave:
        return CONSEQUENCES[rule.severity]
    if rule.severity is Severity.ERROR:
        return "waits for leave: `--disrupt`"
    return f"{CONSEQUENCES[rule.severity]}; the task waits for leave: `--disrupt`"


def table(rows: Iterable[list[str]]) -> str:
    head, *rest = rows
    lines = [line(head), "|" + "---|" * len(head), *map(line, rest)]
    return "".join(f"{each}\n" for each in lines)


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


@pytest.mark.parametrize(
    ("page", "rows"), [("preflight.md", preflight), ("health.md", health_rules), ("audit.md", audit_rules)]
)
def test_the_page_lists_every_rule_as_it_is(page: str, rows: object) -> None:
    assert callable(rows)
    file = DOCS / page
    before, start, rest = file.read_text().partition(START)
    _, end, after = rest.partition(END)
    text = f"{before}{start}\n{table(rows())}\n{end}{after}"
    if os.environ.get("FLEET_UPDATE_GOLDEN"):
        file.write_text(text)
    assert file.read_text() == text
