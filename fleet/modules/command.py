"""A command, run without a shell.

``creates``, ``removes``, ``unless`` and ``only_if`` say when it is already done. Without one of these it
runs on every play, and if the worker dies in it the host stops for the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.core.secret import Secret
from fleet.modules.base import (
    COMMAND_DEADLINE_S,
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

FREE_FORM = "cmd"
SHARED = {
    "creates": Argument("path", description="done if this path exists"),
    "removes": Argument("path", description="done if this path does not exist"),
    "unless": Argument(description="a shell command: done if it succeeds"),
    "only_if": Argument(description="a shell command: done if it fails"),
    "repeatable": Argument("boolean", default=False, description="may be run again if it was interrupted"),
    "stdin": Argument(description="its standard input; the place for secrets"),
    "env": Argument("mapping", default={}, description="further environment variables"),
    "chdir": Argument("path", aliases=("cwd",), description="the directory it runs in"),
    "exit_codes": Argument("integers", default=[0], description="those that mean success"),
    "changed_when": Argument("boolean", default=True, description="whether running it counts as a change"),
    "executable": Argument(refused="name the interpreter in the command"),
    "warn": Argument(refused="leave it out"),
    "stdin_add_newline": Argument(refused="stdin is passed as it is written"),
    "strip_empty_ends": Argument(refused="output is kept as it is"),
}
ARGUMENTS = {
    "cmd": Argument(
        "any", description="the command as one line; quotes group words, nothing else is special"
    ),
    "argv": Argument("any", description="the command as a list of words"),
    **SHARED,
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """Exactly one of ``cmd`` and ``argv``."""
    if (args.get("cmd") is None) == (args.get("argv") is None):
        return [ArgumentProblem("command needs cmd or argv, and only one of them")]
    return []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``command`` step with an argument vector."""
    from fleet.modules.arguments import convert

    name = "cmd" if args["cmd"] is not None else "argv"
    no_secrets(args, name)
    argv = convert(name, args[name], Argument("command"))
    if not argv:
        raise ArgumentProblem(f"{name} is empty", name)
    return [command_step({"argv": argv}, args, context)]


def command_step(what: Json, args: Json, context: Context) -> Step:
    """The ``command`` step; shared with shell."""
    wanted = {**what, **given(args, ("creates", "removes", "unless", "only_if", "stdin"))}
    wanted["repeatable"] = args["repeatable"]
    wanted["exit_codes"] = args["exit_codes"]
    wanted["changed_when"] = "always" if args["changed_when"] else "never"
    if args["env"]:
        wanted["env"] = {name: str(value) for name, value in args["env"].items()}
    if args["chdir"] is not None:
        wanted["cwd"] = args["chdir"]
    return context.step("command", "command", wanted, deadline_s=COMMAND_DEADLINE_S)


def no_secrets(args: Json, *names: str) -> None:
    """Refuse secrets where any user of the host could read them: in the process list or an environment."""
    for name in (*names, "unless", "only_if", "env"):
        secret = _secret_in(args.get(name))
        if secret is not None:
            raise ArgumentProblem(
                f"{name} holds the secret {secret.name}, which any user of the host could read in the process"
                " list; pass it by stdin:",
                name,
            )


def _secret_in(value: Any) -> Secret | None:
    if isinstance(value, Secret):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(_secret_in, parts) if found is not None), None)
