"""``python3 -S -E -m fleet.agent report``: what the host's own timer writes down, for whoever looks later.

The facts, the record of the last container check among them, and who wrote them
(schemas/agent-report.schema.json), as one JSON file that is replaced whole; and, where asked, the few of its
values that belong on a dashboard as a node_exporter textfile (:mod:`fleet.agent.textfile`). It reads, writes
these two files, and ends: no port, no GPU handle, nothing kept between runs. docs/agent.md has the shape
and the unit.
"""

from __future__ import annotations

import os
import sys
import time

from fleet import __version__
from fleet.agent.bundle import running_digest
from fleet.agent.paths import read_bytes, write_durably
from fleet.agent.protocol import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

SCHEMA = "fleet.agent-report/1"
FILE = "report.json"  # under the state folder
EXIT_FAILED = 1
EXIT_USAGE = 64
_USAGE = "usage: report [--output FILE] [--textfile-directory DIRECTORY]"
_OPTIONS = ("--output", "--textfile-directory")


def main(argv: list[str]) -> int:
    """Write the report to ``--output`` (else to standard output) and the textfile where one is asked for.

    Returns the exit code: 1 where one of the files could not be written, and then says which.
    """
    options = _options(argv)
    if options is None:
        sys.stderr.write(_USAGE + "\n")
        return EXIT_USAGE
    from fleet.agent import textfile
    from fleet.agent.host import Host

    os.umask(0o077)
    output, folder = options.get("--output"), options.get("--textfile-directory")
    document = collect(Host(), textfile.path(folder) if folder is not None else None)
    text = canonical(document) + "\n"
    failed = False
    # First the report, which names the textfile: whoever takes the agent off finds it by that.
    if output is None:
        sys.stdout.write(text)
    else:
        failed |= not _written(output, lambda: write_durably(output, text.encode("utf-8", "replace")))
    if folder is not None:
        shown = textfile.metrics(document)
        failed |= not _written(textfile.path(folder), lambda: textfile.write(folder, shown))
    return EXIT_FAILED if failed else 0


def collect(host: Host, textfile: Optional[str] = None) -> Json:
    """The report of this host. ``textfile`` is the path of the metrics written beside it, if any are."""
    from fleet.agent import facts

    began = time.monotonic()
    found = facts.collect(host)
    document: Json = {
        "schema": SCHEMA,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "simulated": found["simulated"],
        "fleet_version": __version__,
        "bundle": running_digest(),
        "textfile": textfile,
        "facts": found,
    }
    if document["bundle"] is None:
        document["bundle_reason"] = "not_supported"  # run from a checkout
    document["duration_s"] = round(time.monotonic() - began, 6)
    return document


def recorded_textfile(state_dir: str) -> Optional[str]:
    """The textfile that the last report named, or None. A report that cannot be read named none."""
    from fleet.agent import strict_json

    try:
        found = strict_json.loads((read_bytes(state_dir + "/" + FILE) or b"null").decode("utf-8"))
    except ValueError:
        return None
    named = found.get("textfile") if isinstance(found, dict) else None
    return named if isinstance(named, str) else None


def _options(argv: list[str]) -> Optional[dict[str, str]]:
    """The options by name; None where ``argv`` is not as the usage has it."""
    found: dict[str, str] = {}
    for place in range(0, len(argv), 2):
        if argv[place] not in _OPTIONS or argv[place] in found or place + 1 == len(argv):
            return None
        found[argv[place]] = argv[place + 1]
    return found


def _written(path: str, write: Callable[[], None]) -> bool:
    """Whether a file could be written; says why not."""
    try:
        write()
    except OSError as error:
        sys.stderr.write("cannot write %s: %s\n" % (path, error.strerror or error))
        return False
    return True
