"""Facts can be asked for by group; what was not asked for is null and says so."""

from __future__ import annotations

import importlib

from fleet.agent.facts import GROUPS, KEYS_OF, collect
from fleet.agent.host import Host
from fleet.core.schema import validate


def test_the_table_of_keys_is_that_of_the_groups() -> None:
    assert {name: importlib.import_module(f"fleet.agent.facts.{name}").KEYS for name in GROUPS} == KEYS_OF


def test_groups_that_were_not_asked_for_are_null_with_the_reason() -> None:
    document = collect(Host(), ["identity", "kernel"])
    assert document["identity"]["hostname"]
    assert document["engine"] is None
    assert document["engine_reason"] == "not_collected"
    assert validate(document, "facts") == []
