"""Runs as lists of events with fixed times, for the tests of what is shown of them."""

from __future__ import annotations

from typing import Any

from fleet.core.events import Event
from tests.facts import healthy_facts

RUN = "7f3a12c4d5e6"


class Story:
    """Writes events of one run; ``at`` is seconds after 14:00:00."""

    def __init__(self, *hosts: str, check: bool = False, diff: bool = False) -> None:
        self.events: list[Event] = []
        self.at = 0.0
        self.add(
            None,
            "run_started",
            playbook="provision",
            inventory="lab.yaml",
            hosts=list(hosts),
            operator="anna",
            check=check,
            diff=diff,
        )

    def add(self, host: str | None, kind: str, after: float = 0.0, /, **data: Any) -> None:
        """One event, ``after`` seconds after the one before."""
        self.at += after
        minutes, seconds = divmod(self.at, 60)
        at = f"2026-11-30T14:{int(minutes):02}:{seconds:06.3f}Z"
        self.events.append(Event(RUN, len(self.events) + 1, at, host, kind, data))

    def plan(self, host: str, *steps: tuple[str, str], docker: str | None = "26.1.5") -> None:
        """Hello, facts, and a plan of (id, task)."""
        self.add(host, "host_connected", 0.2, hello={"hostname": host, "python": "3.11.2", "user": "root"})
        facts = healthy_facts({"engine.present": docker is not None, "engine.version": docker})
        self.add(host, "host_facts", 0.1, facts=facts)
        planned = [{"id": step, "task": task} for step, task in steps]
        self.add(host, "host_plan", segment=1, hash="0" * 64, steps=planned)

    def check(self, host: str, step: str, status: str, **data: Any) -> None:
        """What the check pass says of a step."""
        self.add(host, "check_result", step=step, status=status, **{"diff": None, "reason": None, **data})

    def step(
        self, host: str, step: str, task: str, status: str, took: float, place: str, **data: Any
    ) -> None:
        """A step started and ended; ``place`` is ``3/21``."""
        number, total = map(int, place.split("/"))
        self.add(host, "step_started", step=step, task=task, index=number - 1, total=total)
        result = {"diff": None, "reason": None, "duration_s": took, **data}
        self.add(host, "step_result", took, step=step, task=None, status=status, **result)

    def ended(self, host: str, status: str, **data: Any) -> None:
        """The host is over."""
        defaults = {"reason": None, "remedy": None, "counts": {}, "report_path": f"reports/{RUN}/{host}.json"}
        self.add(host, "host_ended", status=status, **{**defaults, **data})

    def over(self, exit_code: int, duration_s: float, **counts: int) -> list[Event]:
        """The run is over: all its events."""
        self.add(None, "run_ended", exit_code=exit_code, counts=counts, duration_s=duration_s)
        return self.events


PACKAGES = ("1.docker_engine.packages", "docker: install packages")
IMAGE = ("2.image.pull", "image: pull pytorch-cuda")


def mixed() -> list[Event]:
    """Four hosts that end in four ways."""
    story = Story("gpu01", "gpu02", "gpu03", "gpu04")
    story.plan("gpu01", PACKAGES, IMAGE)
    story.check("gpu01", PACKAGES[0], "would_change")
    story.check("gpu01", IMAGE[0], "ok")
    difference = {"path": "docker-ce", "before": None, "after": "26.1.5"}
    story.step("gpu01", *PACKAGES, "changed", 61.5, "1/2", diff=[difference])
    story.step("gpu01", *IMAGE, "ok", 0.02, "2/2")
    story.ended("gpu01", "converged", counts={"changed": 1, "ok": 1})
    story.plan("gpu02", PACKAGES, IMAGE)
    story.ended(
        "gpu02",
        "pending",
        counts={"changed": 3},
        reason="needs leave to restart Docker: 2 containers of others are running "
        '(jupyter-anna, train-17; engine setting "default-runtime" cannot be reloaded)',
        remedy="fleet provision lab.yaml --limit gpu02 --disrupt",
    )
    story.plan("gpu03", PACKAGES, IMAGE, docker=None)
    step = ("gpu03", *IMAGE)
    story.step(*step, "failed", 3.0, "2/2", reason="manifest unknown: sha256:abcd", exit_code=1)
    story.ended(
        "gpu03",
        "failed",
        counts={"failed": 1},
        reason="manifest unknown: sha256:abcd",
        remedy="check the digest in lab.yaml",
    )
    story.ended(
        "gpu04",
        "unreachable",
        reason="no answer from 172.28.0.14:22 by way of bastion in 15 s",
        report_path=None,
    )
    return story.over(1, 151.2, converged=1, pending=1, failed=1, unreachable=1)


def second_run(count: int = 4) -> list[Event]:
    """Every host is as wanted already."""
    names = [f"gpu{number:03}" for number in range(1, count + 1)]
    story = Story(*names)
    for name in names:
        story.plan(name, PACKAGES, IMAGE)
        story.check(name, PACKAGES[0], "ok")
        story.check(name, IMAGE[0], "ok")
        story.ended(name, "converged", counts={"ok": 2})
    return story.over(0, 1.1, converged=count)


def checked() -> list[Event]:
    """Check mode: a change foreseen, and one that cannot be."""
    story = Story("gpu01", "gpu02", check=True, diff=True)
    story.plan("gpu01", PACKAGES, IMAGE)
    text = {"path": "/etc/docker/daemon.json", "before": '{\n  "a": 1\n}\n', "after": '{\n  "a": 2\n}\n'}
    version = {"path": "docker-ce.version", "before": "25.0.0", "after": "26.1.5"}
    story.check("gpu01", PACKAGES[0], "would_change", diff=[version, text])
    story.check("gpu01", IMAGE[0], "known_after_apply", reason="docker is installed by step 1")
    story.ended("gpu01", "converged", counts={"would_change": 1, "known_after_apply": 1}, report_path=None)
    story.plan("gpu02", PACKAGES, IMAGE)
    story.check("gpu02", PACKAGES[0], "ok")
    story.check("gpu02", IMAGE[0], "ok")
    story.ended("gpu02", "converged", counts={"ok": 2}, report_path=None)
    return story.over(0, 0.8, converged=2)


def same_cause(count: int = 200) -> list[Event]:
    """Many hosts that fail for one cause, worded with each host's name and address."""
    names = [f"gpu{number:03}" for number in range(1, count + 1)]
    story = Story(*names, "login1")
    for number, name in enumerate(names):
        story.ended(
            name,
            "unreachable",
            reason=f"no answer from 10.0.{number // 100}.{number % 100 + 1}:22 in 15 s",
            remedy=f"ssh {name} true, to see it by hand",
            report_path=None,
        )
    story.plan("login1", PACKAGES)
    story.ended("login1", "converged", counts={"changed": 1})
    return story.over(3, 16.0, unreachable=count, converged=1)


def outputs() -> list[Event]:
    """A long step that talks while it works."""
    story = Story("gpu01")
    story.plan("gpu01", PACKAGES, IMAGE)
    step, task = PACKAGES
    story.add("gpu01", "step_started", step=step, task=task, index=0, total=2)
    story.add("gpu01", "step_output", 5, step=step, text="Unpacking docker-ce\nSetting up docker-ce\n")
    story.add("gpu01", "step_progress", 40, step=step, text="2 of 11 packages")
    story.add("gpu01", "step_progress", 10, step=step, text="3 of 11 packages")
    story.add("gpu01", "step_progress", 25, step=step, text="3 of 11 packages")
    story.ended("gpu01", "converged", counts={"changed": 2})
    return story.over(0, 80.0, converged=1)


def said_by_the_controller(*, check: bool = False) -> list[Event]:
    """Messages, a warning, and a task that waits for a registered result."""
    story = Story("gpu01", check=check)
    finding = {"id": "preflight.toolkit", "severity": "warning", "what": "toolkit 1.17.4 has CVE-2025-23266"}
    story.add("gpu01", "controller_result", id="1", kind="message", task="debug", text="hello")
    story.add(
        "gpu01",
        "controller_result",
        id="2",
        kind="finding",
        task="preflight",
        text=finding["what"],
        finding=finding,
    )
    story.add("gpu01", "controller_result", id="3", kind="ok", task="assert", text="all as asserted")
    waits = "its arguments use the result of task 1"
    story.add("gpu01", "controller_result", id="4", kind="known_after_apply", task="copy", text=waits)
    story.plan("gpu01", PACKAGES)
    if check:
        story.check("gpu01", PACKAGES[0], "would_change")
        story.ended("gpu01", "converged", counts={"would_change": 1, "known_after_apply": 1})
    else:
        story.step("gpu01", *PACKAGES, "changed", 2.0, "1/1")
        story.ended("gpu01", "converged", counts={"changed": 1})
    return story.over(0, 2.5, converged=1)


def blocked() -> list[Event]:
    """Preflight refuses a host."""
    story = Story("gpu07")
    story.ended(
        "gpu07",
        "blocked",
        rule="preflight.next-kernel",
        reason="6.8.0-47 boots next and has no headers: after a reboot there would be no driver",
        remedy="apt-get install linux-headers-6.8.0-47-generic",
    )
    return story.over(1, 0.9, blocked=1)
