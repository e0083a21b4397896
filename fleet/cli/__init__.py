"""The command line: one file per command, each parses, calls and prints; no logic.

``main.py`` holds the group that loads a command only when it is asked for, and turns errors into
messages and exit codes; ``options.py`` the options that commands share.
"""

from fleet.cli.main import main

__all__ = ["main"]
