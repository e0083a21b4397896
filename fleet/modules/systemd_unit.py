"""A systemd unit written by the playbook: its file, and whether it runs and starts at boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import (
    SERVICE_DEADLINE_S,
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    Facts,
    Json,
    given,
)

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

_SUFFIXES = (".service", ".timer", ".socket", ".path", ".mount", ".target", ".slice")
ARGUMENTS = {
    "name": Argument(
        "plain", required=True, description="the unit with its suffix, such as fleet-agent.timer"
    ),
    "content": Argument(description="the unit file"),
    "src": Argument("plain", description="the unit file, a template in templates/ next to the playbook"),
    "enabled": Argument("boolean", description="at boot"),
    "started": Argument("boolean", description="now"),
    "state": Argument(default="present", choices=("present", "absent")),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A name with a suffix, and one source for the file."""
    problems = []
    name = args.get("name")
    if isinstance(name, str) and "{{" not in name and not name.endswith(_SUFFIXES):
        problems.append(ArgumentProblem(f"name must end with one of {', '.join(_SUFFIXES)}", "name"))
    sources = [each for each in ("content", "src") if args.get(each) is not None]
    if args.get("state", "present") == "present" and len(sources) != 1:
        problems.append(ArgumentProblem("systemd_unit needs content or src, and only one of them"))
    return problems


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``systemd_unit`` step."""
    wanted = given(args, ("name", "state", "enabled", "started"))
    if args["state"] == "present":
        content = args["content"]
        wanted["content"] = context.render_template(args["src"]) if content is None else content
    return [context.step("unit", "systemd_unit", wanted, deadline_s=SERVICE_DEADLINE_S)]
