"""No rule covers for another: with any one of them left out, a row of the truth table comes out wrong.

Every row is judged once with all rules; which rows a rule speaks in is read from those findings, and one of them is
judged again without the rule.
"""

from __future__ import annotations

from functools import cache

import pytest

from fleet.audit.compatibility.registry import ALL
from fleet.audit.compatibility.rule import AuditRule
from tests.audit.compatibility.asking import Answer, ask
from tests.truth import Row, rows, severities


@cache
def recorded() -> tuple[tuple[Row, Answer], ...]:
    """Every row with what all rules say of it."""
    return tuple((row, ask(row.asked)) for row in rows())


def right(row: Row, said: Answer) -> bool:
    """Whether an answer is what the table says."""
    same = (said.status, said.rules) == (row.verdict, severities(row))
    return same and (row.informs is None or said.informs == row.informs)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_leaving_a_rule_out_breaks_a_row(rule: AuditRule) -> None:
    named_in = [
        row for row, said in recorded() if right(row, said) and rule.id in (*row.rules, *(row.informs or ()))
    ]
    assert named_in, f"no row that comes out right names {rule.id}"
    row = named_in[0]
    assert not right(row, ask(row.asked, tuple(one for one in ALL if one is not rule)))


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_the_others_say_what_they_said(rule: AuditRule) -> None:
    """No rule reads another's findings: without one, exactly its own are gone."""
    row, said = next(
        (row, said) for row, said in recorded() if any(one.id == rule.id for one in said.findings)
    )
    without = ask(row.asked, tuple(one for one in ALL if one is not rule))
    assert without.findings == tuple(one for one in said.findings if one.id != rule.id)
