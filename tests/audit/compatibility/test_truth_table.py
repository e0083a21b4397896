"""The truth table itself: complete, consistent, every row with evidence. What fleet says of it: test_truth.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.truth import ERRORS, UNKNOWNS, WARNINGS, Row, evidence, rows, severities

FACTS = Path(__file__).resolve().parents[4] / "shared" / "facts"


def test_there_are_rows_enough_and_each_has_a_name_of_its_own() -> None:
    names = [row.id for row in rows()]
    assert len(names) >= 150
    assert len(names) == len(set(names))


def test_no_two_rows_ask_the_same() -> None:
    asked = [repr(sorted(row.asked.items(), key=lambda one: one[0])) for row in rows()]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_rows_verdict_follows_from_its_rules(row: Row) -> None:
    found = set(severities(row).values())
    if "error" in found:
        assert row.verdict == "does_not_run"
    elif "unknown" in found:
        assert row.verdict == "unknown"
    else:
        assert row.verdict == ("runs_with_warnings" if row.rules else "runs")
    assert list(row.rules) == sorted(set(row.rules))
    assert set(row.differing) <= set(row.rules)


def test_every_rule_that_can_be_found_is_in_a_row_where_nothing_as_bad_is_beside_it() -> None:
    """An error alone among errors, an unknown without errors, a warning without either."""
    alone = set()
    for row in rows():
        by_severity = [
            [rule for rule, severity in severities(row).items() if severity == worst]
            for worst in ("error", "unknown", "warning")
        ]
        worst = next((rules for rules in by_severity if rules), [])
        # Warnings are many on old drivers and never decide: each of them counts.
        alone |= set(worst) if len(worst) == 1 or worst is by_severity[2] else set()
    # A tag named latest says by itself that what it holds is not known.
    assert (ERRORS | UNKNOWNS | WARNINGS) - alone <= {"audit.image.latest"}
    assert {rule for row in rows() for rule in row.rules} == ERRORS | UNKNOWNS | WARNINGS
    assert any("audit.image.not_verified" in (row.informs or ()) for row in rows())


def test_the_gpus_images_and_drivers_that_must_be_there_are() -> None:
    cited = {cite for row in rows() for cite in row.cites}
    gpus = (
        "gtx1080ti rtx2080ti rtx3050 rtx3090 rtx4090 t4 a100-sxm4-40gb a100-sxm4-80gb a100-pcie-40gb a100-pcie-80gb "
        "h100-pcie h100-sxm5-80gb h100-nvl v100-sxm2 v100-pcie l40s h200-sxm b200 rtx5090 gtx1050 k80"
    )
    assert {f"gpu/{gpu}" for gpu in gpus.split()} <= cited
    variants = {cite.rpartition("-")[2] for cite in cited if cite.startswith("torch/")}
    assert {"cu118", "cu121", "cu124", "cu126", "cu128", "cu130", "cu132"} <= variants
    branches = {int(cite.partition("/")[2]) for cite in cited if cite.startswith("driver/")}
    assert {450, 470, 515, 525, 535, 550, 570, 580, 590, 595, 620} <= branches
    assert {row.asked.get("modules") for row in rows()} == {"open", "proprietary", None}


def test_every_row_cites_evidence_and_all_evidence_is_cited() -> None:
    cited = {cite for row in rows() for cite in row.cites}
    assert all(row.cites for row in rows())
    assert cited == set(evidence())
    for entry in evidence().values():
        assert all(entry[name] for name in ("file", "entry", "says", "source"))


@pytest.mark.skipif(not FACTS.is_dir(), reason="the collected facts are not beside this checkout")
def test_cited_entries_are_in_the_collected_facts() -> None:
    drivers = {one["branch"] for one in yaml.safe_load((FACTS / "drivers.yaml").read_text())["branches"]}
    gpus = {one["key"] for one in yaml.safe_load((FACTS / "gpus.yaml").read_text())["gpus"]}
    builds = {
        f"{one['torch']}-{one['variant']}"
        for one in yaml.safe_load((FACTS / "torch_builds.yaml").read_text())["builds"]
    }
    known = {
        *(f"driver/{branch}" for branch in drivers),
        *(f"gpu/{gpu}" for gpu in gpus),
        *(f"torch/{build}" for build in builds),
    }
    assert {name for name in evidence() if re.match("(driver|gpu|torch)/", name)} <= known
