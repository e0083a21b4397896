"""An audit as people read it: table and Markdown, from the document alone."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.subject import Subject
from fleet.catalogue.catalogue import load
from fleet.report.audit import age_words, lines, outcome
from fleet.report.audit_causes import merged
from fleet.report.audit_markdown import markdown
from fleet.report.style import text_of
from fleet.run.audit import Wanted, document, judged
from fleet.run.audit_sources import HostAudit

CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
NOW = datetime(2026, 12, 1, 12, 0, tzinfo=timezone.utc)
PASCAL = {"gpu": "GTX 1080 Ti", "driver": "580.159.03"}

Json = dict[str, Any]


def host(name: str, **asked: Any) -> HostAudit:
    subject = Subject.from_question(**{"gpu": "T4", "driver": "580.159.03", **asked})
    return HostAudit(name, subject=subject, gpus=tuple((None, gpu.name) for gpu in subject.products))


def made(hosts: list[HostAudit], source: str = "live", **wanted: Any) -> Json:
    asked = Wanted(**{"image": CU128, "options": Options(on=NOW.date()), **wanted})
    return document(judged(hosts, asked, load()), asked, load(), source=source, inventory="site.yaml")


def shown(found: Json, **options: Any) -> list[str]:
    return [text_of(line) for line in lines(found, now=NOW, **{"width": 110, **options})]


def fleet() -> list[HostAudit]:
    old = [host(f"lab{number:02}", **PASCAL) for number in range(1, 10)]
    return [*old, host("inf01", driver="515.105.01"), *(host(f"gpu{number:03}") for number in range(1, 191))]


def test_the_outcome_comes_first_then_causes_with_the_smallest_change() -> None:
    text = shown(made(fleet()))
    assert text[0] == f"{CU128} on site.yaml: runs on 190 of 200 hosts"
    assert text[2].split() == ["hosts", "finding", "smallest", "change"]
    assert text[3].startswith("     9  compute capability 6.1 is not in this image")
    assert text[3].endswith("image 2.7.0-cuda12.6-cudnn9-runtime")
    assert "lab[01:09]" in text[4] + text[5]
    assert text[-1] == "exit 4"
    assert len(text) < 20


def test_a_fleet_where_it_runs_is_said_in_a_line() -> None:
    assert text_of(outcome(made(fleet()[10:]))) == f"{CU128} on site.yaml: runs on all 190 hosts"


def test_one_host_has_no_columns_of_numbers() -> None:
    text = shown(made([host("lab01", **PASCAL)]))
    assert text[0] == f"{CU128} on lab01: does not run"
    assert "hosts" not in text[2]
    assert text[3].startswith("        compute capability 6.1")


def test_a_narrow_screen_has_the_change_below() -> None:
    text = shown(made(fleet()), width=60)
    assert max(map(len, text[1:])) <= 60
    assert "smallest change: image" in " ".join(" ".join(text).split())


def test_words_that_differ_stand_together() -> None:
    assert (
        merged(["driver 515.86.01 is old", "driver 515.105.01 is old"])
        == "driver 515.86.01/515.105.01 is old"
    )
    many = [f"driver 5{number}.1 is old" for number in (70, 15, 35, 50, 80)]
    assert merged(many) == "driver 515.1…580.1 is old"
    assert merged(["the same", "the same"]) == "the same"


def test_versions_that_differ_are_one_cause() -> None:
    hosts = [host("a", driver="515.105.01"), host("b", driver="515.86.01")]
    (cause,) = [one for one in made(hosts)["causes"] if one["id"] == "audit.driver.floor_cuda"]
    assert cause["what"].startswith("driver 515.86.01/515.105.01 is below 525.60.13")
    assert cause["hosts"] == ["a", "b"]


def test_hosts_on_request_each_with_what_is_said_of_it() -> None:
    text = shown(made(fleet()[:1] + fleet()[-1:]), hosts=True)
    start = next(number for number, line in enumerate(text) if line.startswith("  lab01"))
    assert "does not run" in text[start]
    assert any("smallest change: image 2.7.0-cuda12.6-cudnn9-runtime" in line for line in text[start:])
    assert any(line.startswith("  gpu190") and "runs, with warnings" in line for line in text)


def test_remarks_limits_and_remedies_with_verbose() -> None:
    plain, verbose = shown(made(fleet())), shown(made(fleet()), verbose=True)
    assert not any("limit: " in line for line in plain)
    assert any("audit.image.arch · limit: " in line for line in verbose)


def test_the_best_image_of_each_group_and_the_refused_in_a_sentence() -> None:
    hosts = [
        host("old", **PASCAL),
        host("new", gpu="RTX 5090"),
        host("both", gpu=["GTX 1080 Ti", "RTX 5090"]),
    ]
    text = shown(made(hosts, best=True))
    start = text.index("  no image runs on all 3 hosts; one per group:")
    assert [line.split()[-1] for line in text[start + 1 : start + 5]][1::2] == ["new", "old"]
    assert text[start + 5].startswith("     1  none both: ")


def test_age_is_told_so_that_asking_again_says_the_same() -> None:
    assert age_words("2026-12-01T11:30:00Z", NOW) == "under an hour"
    assert age_words("2026-12-01T06:30:00Z", NOW) == "5 hours"
    assert age_words("2026-11-20T06:30:00Z", NOW) == "11 days"


def test_how_old_the_reports_are() -> None:
    hosts = fleet()[-2:]
    hosts[0].collected_at, hosts[1].collected_at = "2026-11-20T06:30:00Z", "2026-12-01T06:30:00Z"
    text = shown(made(hosts, "store"))
    assert "  reports from 2026-11-20 06:30 to 2026-12-01 06:30 UTC; the oldest is 11 days old" in text


def test_markdown_says_the_same() -> None:
    page = markdown(made(fleet(), best=True), now=NOW)
    assert page.startswith(f"# {CU128} on site.yaml\n\n**{CU128} on site.yaml: runs on 190 of 200 hosts**\n")
    (row,) = [line for line in page.splitlines() if "audit.image.arch" in line]
    assert row.startswith("| 9 | error | compute capability 6.1 is not in this image")
    assert "lab[01:09] | image 2.7.0-cuda12.6-cudnn9-runtime |" in row
    assert "| gpu[001:190] | runs with warnings |" in page


@pytest.mark.parametrize("name", ["a|b", "<img src=x>", "a\nb\x1b[31m"])
def test_a_hosts_name_breaks_neither_table_nor_page(name: str) -> None:
    found = made([host(name, **PASCAL), host("other")])
    page = markdown(found, now=NOW)
    assert "\x1b" not in page + "".join(shown(found, hosts=True))
    assert "<img" not in page
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") in (5, 7) for row in rows)
