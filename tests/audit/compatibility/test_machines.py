"""The machines of the truth table are documents that the agent could have written."""

from __future__ import annotations

import pytest

from fleet.core import schema as schemas
from tests.audit.compatibility.machines import facts_of
from tests.truth import Row, rows

HOSTS = [row for row in rows() if "host" in row.asked]


@pytest.mark.parametrize("row", HOSTS, ids=lambda row: row.id)
def test_a_machine_is_a_facts_document(row: Row) -> None:
    assert schemas.validate(facts_of(row.asked), "facts") == []


def test_no_machine_is_like_another_unless_the_image_differs() -> None:
    documents = [repr((facts_of(row.asked), row.asked.get("image"))) for row in HOSTS]
    assert len(set(documents)) == len(HOSTS)
