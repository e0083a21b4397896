"""Health documents as people read them: the outcome first, one line per cause, where it is, what to do."""

from __future__ import annotations

from typing import Any

from fleet.audit.findings import Finding, Severity
from fleet.report.health import causes, lines, outcome, summary
from fleet.report.style import text_of

ADDRESSES = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]


def finding(
    rule: str,
    what: str,
    gpu: str | None = None,
    severity: Severity = Severity.ERROR,
    remedy: str = "reset it",
) -> dict[str, Any]:
    return Finding(f"health.{rule}", severity, what, 1, 0, "a source", remedy, gpu=gpu).as_json()


def host(*findings: dict[str, Any], status: str = "error", **changes: Any) -> dict[str, Any]:
    gpus = [
        {"address": address, "index": place, "uuid": None, "name": "NVIDIA H100 80GB HBM3", "status": "ok"}
        for place, address in enumerate(ADDRESSES)
    ]
    return {
        "status": status if findings or changes else "healthy", "simulated": False, "collected_at": None, "age_s": None,
        "run": None, "root": True, "summary": ["8× H100 80GB HBM3"], "gpus": gpus, "findings": list(findings),
        "notes": [], "error": None, "remedy": None, **changes,
    }  # fmt: skip


def document(hosts: dict[str, dict[str, Any]], exit_code: int = 4) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for each in hosts.values():
        counts[each["status"]] = counts.get(each["status"], 0) + 1
    return {
        "source": "live",
        "hosts": hosts,
        "counts": counts,
        "causes": causes(hosts),
        "exit_code": exit_code,
    }


def shown(hosts: dict[str, dict[str, Any]], **options: Any) -> list[str]:
    return [text_of(each) for each in lines(document(hosts), **options)]


def test_the_outcome_comes_first() -> None:
    hosts = {"gpu01": host(), "gpu02": host(finding("presence.lost", "the GPU is lost", ADDRESSES[2]))}
    assert shown(hosts)[0] == "1 of 2 hosts are not healthy: 1 error · 16 GPUs · exit 4"


def test_all_healthy_is_one_line() -> None:
    hosts = {"gpu01": host(), "gpu02": host()}
    assert [text_of(each) for each in lines(document(hosts, 0))] == ["all 2 hosts are healthy · 16 GPUs"]
    assert text_of(outcome(document({"gpu01": host()}, 0))) == "gpu01 is healthy · 8 GPUs"


def test_one_cause_on_two_hundred_hosts_is_one_line() -> None:
    off = [finding("persistence.off", "persistence mode is off", gpu) for gpu in ADDRESSES]
    hosts = {f"gpu{number:03}": host(*off) for number in range(1, 201)}
    (cause,) = causes(hosts)
    assert (cause["gpus"], len(cause["hosts"])) == (1600, 200)
    assert shown(hosts)[2:] == [
        "error    persistence.off: persistence mode is off",
        "           gpu[001:200]: every GPU (8)",
        "         remedy: reset it",
    ]


def test_numbers_that_differ_are_a_range_and_addresses_are_left_open() -> None:
    hot = [
        finding(
            "thermal.slowdown",
            f"slows down at {degrees} °C, last at 2026-11-30T12:00:{degrees}Z",
            gpu,
            remedy=f"nvidia-smi -i {gpu}",
        )
        for degrees, gpu in ((51, ADDRESSES[0]), (49, ADDRESSES[1]))
    ]
    (cause,) = causes({"gpu01": host(*hot)})
    assert cause["what"] == "slows down at 49–51 °C, last at 2026-11-30T12:00:51Z"
    assert cause["remedy"] == "nvidia-smi -i ADDRESS"


def test_versions_are_not_numbers_that_may_differ() -> None:
    hosts = {
        name: host(finding("driver.library", f"the library on disk is {version}"))
        for name, version in (("gpu01", "580.126.09"), ("gpu02", "580.159.03"))
    }
    assert len(causes(hosts)) == 2


def test_worst_and_widest_first() -> None:
    mild = finding("e.f", "mild", severity=Severity.WARNING)
    hosts = {
        "gpu01": host(finding("a.b", "narrow"), finding("c.d", "wide"), mild),
        "gpu02": host(finding("c.d", "wide"), mild),
    }
    assert [cause["what"] for cause in causes(hosts)] == ["wide", "narrow", "mild"]


def test_gpus_are_named_where_they_differ() -> None:
    hosts = {
        "gpu01": host(finding("presence.lost", "the GPU is lost", ADDRESSES[0])),
        "gpu02": host(finding("presence.lost", "the GPU is lost", ADDRESSES[1])),
    }
    assert shown(hosts)[3:5] == ["           gpu01: 0000:1b:00.0", "           gpu02: 0000:43:00.0"]


def test_remarks_are_counted_and_shown_when_asked_for() -> None:
    hosts = {"gpu01": host(finding("power.limit", "lower", ADDRESSES[0], Severity.INFO), status="healthy")}
    assert shown(hosts)[-1] == "1 remark not shown: -v"
    verbose = shown(hosts, verbose=True)
    assert any("power.limit: lower" in each for each in verbose)
    assert any("0000:1b:00.0" in each and each.endswith("power.limit") for each in verbose)
    assert any("0000:43:00.0" in each and each.endswith("healthy") for each in verbose)


def test_hosts_that_say_nothing_stand_together() -> None:
    silent = host(status="unreachable", error="no answer", remedy="look at sshd", gpus=[])
    hosts = {f"gpu{number:02}": silent for number in range(1, 4)} | {
        "gpu04": host(status="no_report", gpus=[])
    }
    text = shown(hosts)
    assert text[0].startswith("4 of 4 hosts are not healthy: 3 unreachable, 1 no report")
    assert "unreachable  gpu[01:03]: no answer" in text
    assert "no report  gpu04: no report of it in the store" in text


def test_what_could_not_be_read_is_said() -> None:
    hosts = {"gpu01": host(notes=["not permitted to read: kernel_log"], status="healthy"), "gpu02": host()}
    assert shown(hosts)[-1] == "gpu01: not permitted to read: kernel_log"


def test_text_of_a_host_cannot_move_the_cursor() -> None:
    hosts = {"gpu01": host(finding("presence.lost", "lost: \x1b[2J", ADDRESSES[0]))}
    assert "\x1b" not in "".join(shown(hosts))


def test_the_recap_gets_a_line_per_cause_without_remarks() -> None:
    found = [
        finding("persistence.off", "persistence mode is off", ADDRESSES[0], Severity.WARNING),
        finding("persistence.off", "persistence mode is off", ADDRESSES[1], Severity.WARNING),
        finding("presence.lost", "the GPU is lost", ADDRESSES[2]),
        finding("power.limit", "lower", ADDRESSES[0], Severity.INFO),
        {"id": "preflight.disk", "severity": "warning"},
    ]
    assert summary(found) == [
        ("error", "presence.lost: the GPU is lost (0000:52:00.0)"),
        ("warning", "persistence.off: persistence mode is off (2 GPUs)"),
    ]


def test_reports_are_shown_with_their_age() -> None:
    told = {**document({"gpu01": host(age_s=90.0, status="healthy")}, 0), "source": "reports"}
    assert text_of(outcome(told)) == "gpu01 is healthy · 8 GPUs · oldest report 1m30s old"
