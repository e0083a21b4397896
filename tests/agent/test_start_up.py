"""What the agent does not import on its way from hello to a check: each of these costs milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fleet

KINDS = ("package", "directory", "file", "service", "user", "line")  # those of benchmarks/noop.yaml
GPU = ("nvidia_modules", "initramfs", "cdi_specification")
CHECK = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from fleet.agent import facts, hello, queries, session, run_requests
from fleet.agent.protocol import plan_hash
from fleet.agent.resources import load
for kind in sys.argv[2:]:
    load(kind)
plan_hash({})
print(json.dumps(sorted(sys.modules)))
"""
EXPENSIVE = {"typing", "_hashlib", "subprocess", "dataclasses", "pathlib", "asyncio", "logging", "tempfile"}


@pytest.mark.parametrize("kinds", [KINDS, ("apt_repository", "container", "image", "registry_login"), GPU])
def test_nothing_expensive_is_imported_for_a_check(kinds: tuple[str, ...]) -> None:
    root = str(Path(fleet.__file__).parents[1])
    command = [sys.executable, "-S", "-E", "-c", CHECK, root, *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert EXPENSIVE & set(json.loads(done.stdout)) == set()
