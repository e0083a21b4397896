"""How a row of the truth table is put to the audit, and what the audit answers in the table's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from fleet.audit.compatibility.registry import ALL
from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.compatibility.verdict import Options, Verdict, judge
from fleet.audit.findings import Severity
from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image
from tests.audit.compatibility.machines import facts_of
from tests.truth import Row

#: The day that the table's facts are of: branches end, and the rows are not to change with them.
AS_OF = date(2026, 11, 30)
#: What a reference is asked with unless the row is about its lack: which one it is decides nothing.
DIGEST = "@sha256:" + "0" * 64
