"""Runs, events, host states, plans, reports, baselines and inspections of images, kept: SQLite, or PostgreSQL by URL.

:class:`Store` (``store.py``) is the door; ``writer.py`` is the one thread that talks to the database;
``tables.py`` names the tables and ``migrations.py`` makes them. SQLAlchemy (a fifth of a second to
import) is only imported by that thread, while the caller connects to its hosts.
"""

from fleet.store.records import APPLYING, BaselineRow, HostRow, InspectionRow, RunRow
from fleet.store.store import Store

__all__ = ["APPLYING", "BaselineRow", "HostRow", "InspectionRow", "RunRow", "Store"]
