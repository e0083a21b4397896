"""The store's shape, version by version. A released version's statements never change again.

Each entry of :data:`MIGRATIONS` lifts the store by one version, inside one transaction that also
notes it in ``schema_version``. Statements are the SQL that SQLite and PostgreSQL share. For every
released version ``tests/store/dumps`` keeps a dump, and a test opens each with the current code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.core.errors import RefusedError
from fleet.core.ids import utc_now

if TYPE_CHECKING:
    from sqlalchemy import Connection

Statements = tuple[str, ...]

_ADVISORY_LOCK = 0x666C656574  # "fleet"

VERSION_1: Statements = (
    """
    CREATE TABLE runs (
        run TEXT PRIMARY KEY,
        playbook TEXT NOT NULL,
        inventory TEXT NOT NULL,
        operator TEXT NOT NULL,
        controller TEXT NOT NULL,
        check_mode INTEGER NOT NULL,
        hosts TEXT NOT NULL,
        arguments TEXT NOT NULL,
        fleet_version TEXT NOT NULL,
        created_at TEXT NOT NULL,
        ended_at TEXT,
        exit_code INTEGER,
        duration_s DOUBLE PRECISION,
        counts TEXT
    )""",
    "CREATE INDEX runs_created_at ON runs (created_at)",
    """
    CREATE TABLE events (
        run TEXT NOT NULL,
        seq BIGINT NOT NULL,
        at TEXT NOT NULL,
        host TEXT,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    )""",
    "CREATE INDEX events_host ON events (run, host, seq)",
    """
    CREATE TABLE host_states (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        touched INTEGER NOT NULL,
        PRIMARY KEY (run, host)
    )""",
    """
    CREATE TABLE transitions (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        number BIGINT NOT NULL,
        state TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run, host, number)
    )""",
    """
    CREATE TABLE plans (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        segment INTEGER NOT NULL,
        plan_hash TEXT NOT NULL,
        plan TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (run, host, segment, plan_hash)
    )""",
    """
    CREATE TABLE reports (
        run TEXT NOT NULL,
        host TEXT NOT NULL,
        at TEXT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (run, host)
    )""",
)

VERSION_2: Statements = (
    """
    CREATE TABLE baselines (
        host TEXT NOT NULL,
        gpu TEXT NOT NULL,
        test TEXT NOT NULL,
        key TEXT NOT NULL,
        value DOUBLE PRECISION NOT NULL,
        unit TEXT NOT NULL,
        run TEXT NOT NULL,
        at TEXT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (host, gpu, test, key)
    )""",
)

VERSION_3: Statements = (
    """
    CREATE TABLE inspections (
        digest TEXT NOT NULL,
        source TEXT NOT NULL,
        reader INTEGER NOT NULL,
        place TEXT NOT NULL,
        at TEXT NOT NULL,
        facts TEXT NOT NULL,
        PRIMARY KEY (digest, source)
    )""",
)

#: Position 0 makes version 1, and so on.
MIGRATIONS: tuple[Statements, ...] = (VERSION_1, VERSION_2, VERSION_3)


def migrate(connection: Connection, migrations: Sequence[Statements] = MIGRATIONS) -> int:
    """Bring the store to the newest version within the open transaction; return the version it had.

    Raises RefusedError when a newer fleet wrote the store.
    """
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE already keeps others out
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, at TEXT NOT NULL)"
    )
    found = connection.exec_driver_sql("SELECT MAX(version) FROM schema_version").scalar()
    had = int(found or 0)
    if had > len(migrations):
        raise RefusedError(
            f"the store is of version {had}; this fleet knows up to {len(migrations)}",
            remedy="use the newer fleet that wrote it, or another store (FLEET_STATE_DIR)",
        )
    for version in range(had + 1, len(migrations) + 1):
        for statement in migrations[version - 1]:
            connection.exec_driver_sql(statement)
        # Both values are fleet's own, and drivers differ in how a parameter is spelt.
        connection.exec_driver_sql(f"INSERT INTO schema_version VALUES ({version}, '{utc_now()}')")  # noqa: S608
    return had
