"""The agent with fake kinds of resources and a machine that can be told its boot id: run as a script.

Written for Python 3.9 and the standard library alone, as the agent is. The fakes live in folders named
by the environment: FAKE_WORLD is the host's state, one file per thing; ``applied`` in it has a line per
apply that took effect. FAKE_CRASH (``before:N`` or ``after:N``) kills the worker around the N-th record
of its journal, once.
"""

from __future__ import annotations

import os
import signal
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, ROOT)

from fleet.agent import resources, session, worker  # noqa: E402
from fleet.agent.journal import Journal  # noqa: E402
from fleet.agent.machine import Machine  # noqa: E402
from fleet.agent.resources.base import (  # noqa: E402
    Provides,
    RebootRequested,
    Resource,
    StepCancelled,
    StepFailed,
    StepPending,
    expect,
)

WORLD = os.environ.get("FAKE_WORLD", "")


def in_world(name):
    return os.path.join(WORLD, name)


def read_world(name):
    try:
        with open(in_world(name), encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def write_world(name, text, mode="w"):
    with open(in_world(name), mode, encoding="utf-8") as stream:
        stream.write(text)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Thing(Resource):
    """``{"name", "value", "say"?, "crash"?: "before"|"after", "refuse"?, "fail"?, "leave"?}``: a file with a value."""

    kind = "thing"

    def read(self, host, args):
        return {"value": read_world(args["name"])}

    def diff(self, state, args):
        if args.get("restart"):
            return [{"path": args["name"], "before": "running", "after": "restarted"}]
        wanted = "********" if isinstance(args["value"], dict) else args["value"]
        if state["value"] == (read_world("secret") if isinstance(args["value"], dict) else args["value"]):
            return []
        return [{"path": args["name"], "before": state["value"], "after": wanted}]

    def apply(self, host, args, differences, report):
        if args.get("crash") == "before" and read_world("crashed") is None:
            write_world("crashed", "")
            die()
        if args.get("say"):
            report.output(host.secret(args["say"]))
        if args.get("fail") and read_world("repaired") is None:
            raise StepFailed("cannot make " + args["name"], "repair it")
        if args.get("leave") and read_world("leave") is None:
            raise StepPending("somebody uses " + args["name"], args["leave"])
        if args.get("bug"):
            raise KeyError("a bug")
        if not args.get("refuse"):
            write_world(args["name"], host.secret(args["value"]))
        write_world("applied", args["name"] + "\n", "a")
        if args.get("crash") == "after" and read_world("crashed") is None:
            write_world("crashed", "")
            die()

    def rereads(self, args):
        return not args.get("restart")

    def provides(self, args):
        return Provides(files=[args["name"]])

    def requires(self, args):
        return Provides(files=args.get("needs", ()))


class Once(Thing):
    """A command that may not be repeated: always differs, is not read again."""

    kind = "once"
    repeatable = False
    converges = False

    def diff(self, state, args):
        return [{"path": "command", "before": None, "after": args["name"]}]

    def apply(self, host, args, differences, report):
        super().apply(host, args, differences, report)
        return {"exit_code": args.get("exit_code", 0), "stdout": "done", "registered": {"rc": 0}}

    def rereads(self, args):
        return False


class Shell(Resource):
    """A real command, by ``host.run``."""

    kind = "shell"
    converges = False

    def read(self, host, args):
        return {}

    def diff(self, state, args):
        return [{"path": "command", "before": None, "after": args["argv"]}]

    def apply(self, host, args, differences, report):
        result = host.run(args["argv"], interrupt=args.get("interrupt"), on_output=report.output)
        expect(result, "the command")
        return {"exit_code": result.exit_code, "stdout": result.stdout}


class Wait(Resource):
    """Blocks in plain Python until ``go`` appears; says ``waiting`` first. ``asks``: notices a cancel."""

    kind = "wait"

    def read(self, host, args):
        return {"done": read_world("waited") is not None}

    def diff(self, state, args):
        return [] if state["done"] else [{"path": "waited", "before": False, "after": True}]

    def apply(self, host, args, differences, report):
        report.output("waiting\n")
        while read_world("go") is None:
            if args.get("asks") and host.cancelled():
                raise StepCancelled("the wait was cancelled")
            time.sleep(0.005)
        write_world("waited", "")
        write_world("applied", "waited\n", "a")


class Reboot(Resource):
    kind = "reboot"
    converges = False

    def read(self, host, args):
        return {}

    def diff(self, state, args):
        return [{"path": "boot", "before": "this", "after": "another"}]

    def apply(self, host, args, differences, report):
        raise RebootRequested(args.get("deadline_s", 600.0))


KINDS = (Thing(), Once(), Shell(), Wait(), Reboot())


def register():
    for resource in KINDS:
        resources.register(resource.kind, resource)


class FakeMachine(Machine):
    def boot_id(self):
        return read_world("boot_id") or "11111111-1111-1111-1111-111111111111"

    def systemd(self):
        return False

    def worker_command(self):
        return [sys.executable, "-S", "-E", os.path.abspath(__file__), "worker"]

    def reboot(self):
        write_world("reboots", "asked\n", "a")
        return read_world("reboot_refused")


class CrashingJournal(Journal):
    """Kills its process around one record."""

    def append(self, kind, **fields):
        moment, _, number = os.environ.get("FAKE_CRASH", ":0").partition(":")
        mine = self.last_seq + 1 == int(number) and read_world("crashed") is None
        if mine:
            write_world("crashed", "")
        if mine and moment == "before":
            die()
        record = super().append(kind, **fields)
        if mine:
            die()
        return record


def main(argv):
    register()
    if argv[0] == "session":
        return session.main(argv[1:], None, FakeMachine())
    worker.Journal = CrashingJournal
    return worker.main(argv[1:], FakeMachine())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
