"""A PostgreSQL of the test's own where psycopg and the server's programs are installed.

Or the empty database that ``FLEET_TEST_POSTGRESQL`` names by URL.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

GIVEN = "FLEET_TEST_POSTGRESQL"


@pytest.fixture
def postgresql_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if given := os.environ.get(GIVEN):
        yield lambda: given
        return
    programs = {name: shutil.which(name) for name in ("initdb", "pg_ctl")}
    if not all(programs.values()):
        pytest.skip("no PostgreSQL server programs (initdb, pg_ctl) on PATH")
    if getpass.getuser() == "root":
        pytest.skip(f"a PostgreSQL server does not start as root; name one with {GIVEN}")
    data, sockets = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("s")
    subprocess.run([str(programs["initdb"]), "-D", data, "-A", "trust", "-U", "fleet"], check=True)
    options = f"-k {sockets} -c listen_addresses=''"
    server = [str(programs["pg_ctl"]), "-D", str(data), "-w"]
    subprocess.run([*server, "-l", str(Path(data) / "log"), "-o", options, "start"], check=True)
    yield lambda: f"postgresql+psycopg://fleet@/postgres?host={sockets}"
    subprocess.run([*server, "-m", "immediate", "stop"], check=True)
