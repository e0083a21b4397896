"""The current tables, as SQLAlchemy Core needs them to word statements. ``migrations.py`` makes them.

Importing this module imports SQLAlchemy: only ``writer.py`` and ``statements.py`` do, in the thread.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, Table, Text

METADATA = MetaData()

RUNS = Table(
    "runs",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("playbook", Text),
    Column("inventory", Text),
    Column("operator", Text),
    Column("controller", Text),
    Column("check_mode", Integer),
    Column("hosts", Text),
    Column("arguments", Text),
    Column("fleet_version", Text),
    Column("created_at", Text),
    Column("ended_at", Text),
    Column("exit_code", Integer),
    Column("duration_s", Float),
    Column("counts", Text),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("at", Text),
    Column("host", Text),
    Column("kind", Text),
    Column("data", Text),
)

HOST_STATES = Table(
    "host_states",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("state", Text),
    Column("detail", Text),
    Column("at", Text),
    Column("touched", Integer),
)

TRANSITIONS = Table(
    "transitions",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("state", Text),
    Column("detail", Text),
    Column("at", Text),
)

PLANS = Table(
    "plans",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("segment", Integer, primary_key=True),
    Column("plan_hash", Text, primary_key=True),
    Column("plan", Text),
    Column("at", Text),
)

REPORTS = Table(
    "reports",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("at", Text),
    Column("document", Text),
)

BASELINES = Table(
    "baselines",
    METADATA,
    Column("host", Text, primary_key=True),
    Column("gpu", Text, primary_key=True),
    Column("test", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Float),
    Column("unit", Text),
    Column("run", Text),
    Column("at", Text),
    Column("record", Text),
)

INSPECTIONS = Table(
    "inspections",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("reader", Integer),
    Column("place", Text),
    Column("at", Text),
    Column("facts", Text),
)
