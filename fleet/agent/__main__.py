"""``python3 -S -E -m fleet.agent session|worker|probe|report``: the ways to start the agent."""

from __future__ import annotations

import os
import sys

_USAGE = "usage: python3 -m fleet.agent session | worker --run RUN --attempt N | probe | report [OPTIONS]"


def main(argv: list[str]) -> int:
    """Start the part of the agent that ``argv`` names; its exit code."""
    # The folder this code lies in, in full: what is imported later must not depend on where we stand.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    what = argv[0] if argv else ""
    if what == "session":
        from fleet.agent import session

        return session.main(argv[1:], None)
    if what == "worker":
        from fleet.agent import worker

        return worker.main(argv[1:])
    if what == "report":
        from fleet.agent import report

        return report.main(argv[1:])
    if what == "probe":
        import importlib

        from fleet.agent.host import Host
        from fleet.agent.protocol import canonical

        document = importlib.import_module("fleet.agent.facts").collect(Host())
        sys.stdout.write(canonical(document) + "\n")
        return 0
    sys.stderr.write(_USAGE + "\n")
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
