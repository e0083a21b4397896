"""What the audit says of every row of the truth table."""

from __future__ import annotations

import pytest

from fleet.audit.compatibility.registry import ALL
from tests.audit.compatibility.asking import ask
from tests.truth import Row, rows, severities


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_the_audit_says_what_is_true(row: Row) -> None:
    said = ask(row.asked)
    assert (said.status, said.rules) == (row.verdict, severities(row)), [one.what for one in said.findings]
    if row.informs is not None:
        assert said.informs == row.informs


def test_every_rule_is_in_the_table() -> None:
    table = {rule for row in rows() for rule in (*row.rules, *(row.informs or ()))}
    assert {rule.id for rule in ALL} == table
