"""A command of the operator's own: run unless its guards say that it is not needed.

Nobody knows what a command changes, so nothing is read afterwards; its exit code decides. One that was
interrupted is run again only if guards make that safe or ``repeatable`` says so.
"""

from __future__ import annotations

import os

from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
    expect,
    is_secret,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

GUARD_DEADLINE_S = 60.0
SHELL = "/bin/sh"


class Command(Resource):
    """args: argv | shell, creates, removes, unless, only_if, repeatable, stdin, env, cwd, exit_codes,
    changed_when always|never.

    Guards: ``creates`` (not when this is there), ``removes`` (only when this is there), ``unless`` (not
    when this shell command succeeds), ``only_if`` (only when it does). Guards run in a check as well
    and must only look.
    """

    kind = "command"
    converges = False
    repeatable = False

    def read(self, host: Host, args: Json) -> Json:
        """{"needed", "reason"}: whether the guards let it run, and which one does not."""
        _refuse_secrets(args)
        for path, wanted in ((args.get("creates"), False), (args.get("removes"), True)):
            if path is not None and _exists(host, path) != wanted:
                return {"needed": False, "reason": "%s %s" % (path, "is not there" if wanted else "is there")}
        for guard, wanted in ((args.get("unless"), False), (args.get("only_if"), True)):
            if guard is not None and _succeeds(host, args, guard) != wanted:
                said = "fails" if wanted else "succeeds"
                return {"needed": False, "reason": "%s %s" % (guard, said)}
        return {"needed": True, "reason": None}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """What would run."""
        return [difference("run", None, _shown(args))] if state["needed"] else []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`. ``registered`` holds rc, stdout and stderr (their last MiB)."""
        _refuse_secrets(args)
        argv = list(args["argv"]) if args.get("argv") else [SHELL, "-c", args["shell"]]
        result = host.run(
            argv, stdin=args.get("stdin"), env=args.get("env"), cwd=args.get("cwd"), on_output=report.output
        )
        codes = args.get("exit_codes") or [0]
        remedy = "exit codes that mean success: %s; others that do belong into exit_codes" % ", ".join(
            str(code) for code in codes
        )
        expect(result, _shown(args), remedy, codes)
        registered = {"rc": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}
        extras = {"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}
        return {**extras, "registered": registered, "changed": args.get("changed_when") != "never"}

    def may_repeat(self, args: Json) -> bool:
        """With a guard, or when the task says so."""
        guards = ("creates", "removes", "unless", "only_if")
        return bool(args.get("repeatable")) or any(args.get(guard) is not None for guard in guards)

    def provides(self, args: Json) -> Provides:
        """What it says it creates or removes."""
        return Provides(files=[args[name] for name in ("creates", "removes") if args.get(name)])

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """A guard may see another world once earlier steps have changed it."""
        if args.get("changed_when") == "never":
            return OK
        if provided and (args.get("unless") is not None or args.get("only_if") is not None):
            return KNOWN_AFTER_APPLY
        places = [args[name] for name in ("creates", "removes") if args.get(name)]
        guarded = Provides(files=places, directories=places)
        return KNOWN_AFTER_APPLY if guarded.common(provided) else None


def _refuse_secrets(args: Json) -> None:
    """Arguments and environments are for every user of the host to read."""
    places = [*(args.get("argv") or ()), args.get("shell"), args.get("unless"), args.get("only_if")]
    if any(is_secret(value) for value in places):
        raise StepFailed(
            "a secret in a command's arguments would show in the process list",
            "hand it over with stdin, or put it into a file with mode 0600 by a copy task",
        )
    if any(is_secret(value) for value in (args.get("env") or {}).values()):
        raise StepFailed(
            "a secret in a command's environment can be read by other programs of that user",
            "hand it over with stdin, or put it into a file with mode 0600 by a copy task",
        )
    if not args.get("argv") and not args.get("shell"):
        raise StepFailed("there is no command to run", "give argv or shell")


def _exists(host: Host, path: str) -> bool:
    """Whether a path, or anything that a pattern with wildcards stands for, is there."""
    if not any(sign in path for sign in "*?["):
        return os.path.lexists(host.path(path))
    import glob

    return bool(glob.glob(host.path(path)))


def _succeeds(host: Host, args: Json, guard: str) -> bool:
    result = host.run(
        [SHELL, "-c", guard], deadline_s=GUARD_DEADLINE_S, env=args.get("env"), cwd=_guard_folder(host, args)
    )
    if result.timed_out or result.cancelled:
        expect(result, "the guard " + guard, "make it answer faster")
    return result.ok


def _guard_folder(host: Host, args: Json) -> Optional[str]:
    folder = args.get("cwd")
    return folder if folder is not None and os.path.isdir(host.path(folder)) else None


def _shown(args: Json) -> str:
    """The command as a person would type it."""
    if args.get("shell"):
        return str(args["shell"])
    import shlex

    return " ".join(shlex.quote(word) for word in args["argv"])


RESOURCE = Command()
