"""The report of a host: collected, validated, written whole; an invalid one is kept as evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import story

from fleet.core.events import Event
from fleet.core.schema import validate
from fleet.core.secret import Scrubber, Secret
from fleet.report.host_report import Ending, HostReportBuilder, file_name, write_report
from tests.facts import healthy_facts


def built(events: list[Event]) -> HostReportBuilder:
    builder = HostReportBuilder("desk")
    for event in events:
        builder.handle(event)
    builder.close()
    return builder


def document(**changes: Any) -> dict[str, Any]:
    found = built(story.mixed()).document("gpu01", Ending("converged"), ended_at="2026-11-30T14:01:02.000Z")
    return {**found, **changes}


def test_the_report_says_what_happened_step_by_step_and_validates() -> None:
    report = document()
    assert validate(report, "report") == []
    assert (report["host"], report["status"], report["controller"]) == ("gpu01", "converged", "desk")
    assert report["started_at"] == "2026-11-30T14:00:00.200Z"
    assert [(step["id"], step["status"]) for step in report["steps"]] == [
        ("1.docker_engine.packages", "changed"),
        ("2.image.pull", "ok"),
    ]
    assert report["steps"][0]["duration_s"] == 61.5
    assert report["counts"] == {"changed": 1, "ok": 1}
    assert report["facts"]["engine"]["version"] == "26.1.5"
    assert report["simulated"] is False


def test_a_host_never_heard_has_a_valid_report_too() -> None:
    report = built(story.mixed()).document("gpu04", Ending("unreachable", "no answer in 15 s", None))
    assert validate(report, "report") == []
    assert (report["facts"], report["simulated"], report["steps"]) == (None, None, [])


def test_what_the_container_check_found_is_a_part_of_its_own() -> None:
    found = {
        "passed": True,
        "reason": None,
        "key": {"boot": "b", "driver": "580.159.03", "image": "sha256:" + "a" * 64},
        "reference": "pytorch-cuda:v2.7",
        "digest": "sha256:" + "a" * 64,
        "checked_at": "2026-11-30T14:00:30Z",
        "simulated": True,
        "versions": {"python": "3.11.2", "torch": "2.7.0", "cuda": "12.8"},
    }
    builder = built(story.mixed())
    facts = healthy_facts({"container_check": found})
    builder.handle(Event(story.RUN, 999, "2026-11-30T14:01:01.000Z", "gpu01", "host_facts", {"facts": facts}))
    report = builder.document("gpu01", Ending("converged"))
    assert report["container_check"] == found
    assert validate(report, "report") == []
    assert document()["container_check"] is None


def test_steps_behind_the_end_are_not_reached_and_not_counted() -> None:
    builder = built(story.mixed())
    report = builder.document("gpu02", Ending("pending", "busy", "fleet provision lab.yaml --disrupt"))
    assert {step["status"] for step in report["steps"]} == {"not_reached"}
    assert builder.counts("gpu02") == {}


def test_a_step_that_waits_for_leave_is_reported_as_such() -> None:
    tale = story.Story("gpu01")
    tale.plan("gpu01", story.PACKAGES)
    tale.step("gpu01", *story.PACKAGES, "pending", 0.2, "1/1", reason="pid 4711 uses the GPU")
    builder = built(tale.events)
    report = builder.document(
        "gpu01", Ending("pending", "pid 4711 uses the GPU", "fleet provision --disrupt")
    )
    assert validate(report, "report") == []
    assert report["steps"][0]["status"] == "pending"
    assert builder.counts("gpu01") == {"pending": 1}


def test_a_change_foreseen_but_never_made_is_no_change() -> None:
    tale = story.Story("gpu01")
    tale.plan("gpu01", story.PACKAGES)
    tale.check("gpu01", story.PACKAGES[0], "would_change")
    report = built(tale.events).document("gpu01", Ending("cancelled"))
    assert report["steps"][0]["status"] == "not_reached"


def test_behind_a_failure_nothing_is_called_ok_because_of_the_check_before_it() -> None:
    """The check pass says ok of a service that a package would bring and start; the package never came."""
    tale, service = story.Story("gpu01"), ("1.docker_engine.service", "Docker Engine")
    tale.plan("gpu01", story.PACKAGES, service)
    tale.check("gpu01", story.PACKAGES[0], "would_change")
    tale.check("gpu01", service[0], "ok")
    tale.step("gpu01", *story.PACKAGES, "failed", 1.0, "1/2", reason="refused")
    builder = built(tale.events)
    statuses = [step["status"] for step in builder.document("gpu01", Ending("failed"))["steps"]]
    assert statuses == ["failed", "not_reached"]
    assert builder.counts("gpu01") == {"failed": 1}


def test_in_check_mode_steps_say_what_would_be() -> None:
    builder = built(story.checked())
    report = builder.document("gpu01", Ending("converged"))
    assert validate(report, "report") == []
    assert report["check"] is True
    assert builder.counts("gpu01") == {"would_change": 1, "known_after_apply": 1}


def test_findings_and_what_could_not_be_planned_are_in_the_report() -> None:
    builder = built(story.said_by_the_controller(check=True))
    report = builder.document("gpu01", Ending("converged"))
    assert validate(report, "report") == []
    assert [finding["id"] for finding in report["findings"]] == ["preflight.toolkit"]
    assert [(step["task"], step["status"]) for step in report["steps"]] == [
        ("docker: install packages", "would_change"),
        ("copy", "known_after_apply"),
    ]
    played = built(story.said_by_the_controller()).document("gpu01", Ending("converged"))
    assert [step["task"] for step in played["steps"]] == ["docker: install packages"]


def test_a_valid_report_is_written_whole_and_alone(tmp_path: Path) -> None:
    written = write_report(tmp_path / "run", document())
    assert written.problems == ()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["gpu01.json"]
    assert json.loads(written.path.read_text()) == document()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"status": "fine"}, '$.status: must be one of "converged"'),
        ({"status": "failed"}, "$.reason: must be string, not null"),
        ({"extra": 1}, "$.extra: is not known here"),
        ({"counts": {"ok": -1}}, "$.counts.ok: must be at least 0, not -1"),
        ({"facts": healthy_facts({"uptime_s": float("nan")})}, "$: holds NaN"),
    ],
)
def test_an_invalid_report_is_kept_as_evidence_beside_its_problems(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    written = write_report(tmp_path, document(**changes))
    assert written.problems[0].startswith(problem)
    assert [path.name for path in tmp_path.iterdir()] == ["gpu01.invalid.json"]
    evidence = json.loads(written.path.read_text())
    assert evidence["problems"] == list(written.problems)
    assert evidence["document"]["host"] == "gpu01"


def test_secrets_are_scrubbed_from_the_file(tmp_path: Path) -> None:
    scrub = Scrubber([Secret("hunter2!", "sudo password")])
    written = write_report(tmp_path, document(facts=healthy_facts({"identity.hostname": "hunter2!"})), scrub)
    assert written.problems == ()
    assert "hunter2" not in written.path.read_text()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpu01.json").mkdir()
    with pytest.raises(OSError, match=r"gpu01\.json"):
        write_report(tmp_path, document())
    assert [path.name for path in tmp_path.iterdir()] == ["gpu01.json"]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu01.example.org", "gpu01.example.org"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("..", "%2E."),
        ("", "%00"),
        ("fe80::1", "fe80::1"),
        ("a b\n", "a%20b%0A"),
    ],
)
def test_no_host_name_leads_out_of_the_folder(host: str, name: str) -> None:
    assert file_name(host) == name
