"""The benchmarks of a run, judged: per host what became of it, its record, the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.audit.benchmarks import Verdict
from fleet.audit.benchmarks.verdict import FAIL, INVALID, NOT_JUDGED, PASS, rank
from fleet.core.errors import ExitCode, overall

Json = Mapping[str, Any]

COULD_NOT_RUN = "not_run"
WATCH = "watch."

#: What a host without a record contributes to the exit code, by how the run ended there.
_ENDS = {
    "converged": ExitCode.DONE,
    "unreachable": ExitCode.UNREACHABLE,
    "pending": ExitCode.PENDING,
    "cancelled": ExitCode.INTERRUPTED,
}


@dataclass(frozen=True)
class HostBench:
    """One host. ``status``, ``reason`` and ``remedy`` are the run's; no ``record``: nothing was measured.

    The first verdicts are those of the record's results, in their order.
    """

    host: str
    status: str
    reason: str | None = None
    remedy: str | None = None
    record: Json | None = None
    verdicts: Sequence[Verdict] = ()

    @property
    def worst(self) -> str:
        """The worst verdict, of those that say something; where nothing was measured, ``not_run`` or ``skipped``."""
        if self.record is None and not self.verdicts:
            return "skipped" if self.status == "converged" else COULD_NOT_RUN
        return worst_of(self.verdicts)

    @property
    def exit_code(self) -> ExitCode:
        """4 where a verdict is fail; 1 where nothing could be measured, or not validly; else 0."""
        if any(one.verdict == FAIL for one in self.verdicts):
            return ExitCode.FINDINGS
        if self.record is None:
            return _ENDS.get(self.status, ExitCode.FAILED)
        results: list[Json] = [one for one in self.record["results"] if one["gpus"]]
        nothing = bool(self.record["gpus"]) and not any(one["status"] == "measured" for one in results)
        invalid = any(one.verdict == INVALID for one in self.verdicts)
        return ExitCode.FAILED if nothing or invalid else ExitCode.DONE

    def results(self) -> list[tuple[Json, Verdict]]:
        """Every result with its verdict."""
        return list(zip(self.record["results"], self.verdicts, strict=False)) if self.record else []

    def gpu_name(self, uuid: str) -> str:
        """``GPU 3``, ``GPU 0 1g.10gb``; the UUID where the record has no index."""
        for gpu in (self.record or {}).get("gpus", ()):
            if gpu["uuid"] == uuid and gpu["index"] is not None:
                return " ".join(word for word in (f"GPU {gpu['index']}", gpu["mig_profile"]) if word)
        return uuid

    def gpus_name(self, uuids: Sequence[str]) -> str:
        """One GPU by name, a pair with its direction, a group by its number."""
        if not uuids:
            return ""
        if len(uuids) == 1:
            return self.gpu_name(uuids[0])
        if len(uuids) == 2:
            return f"{self.gpu_name(uuids[0])} to {self.gpu_name(uuids[1]).removeprefix('GPU ')}"
        return f"{len(uuids)} GPUs"

    @property
    def image(self) -> str:
        """The image measured in, by its digest; ``the host's Python``."""
        if self.record is None:
            return ""
        image = self.record["image"] or {}
        return str(image.get("digest") or image.get("reference") or "the host's Python")


@dataclass(frozen=True)
class Benched:
    """A run of ``fleet bench``. ``notes`` are remarks on the whole, as lines."""

    run: str
    inventory: str
    suite: str | None
    hosts: Mapping[str, HostBench]
    run_exit_code: ExitCode = ExitCode.DONE
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def exit_code(self) -> ExitCode:
        """By the published precedence, over hosts and the run itself."""
        return overall([self.run_exit_code, *(host.exit_code for host in self.hosts.values())])

    @property
    def simulated(self) -> bool:
        """Whether any figure is of simulated hardware."""
        return any(host.record is not None and host.record["simulated"] for host in self.hosts.values())


def host_rank(host: HostBench) -> int:
    """Place among hosts, worst first."""
    return -1 if host.worst == COULD_NOT_RUN else rank(host.worst)


def worst_of(verdicts: Iterable[Verdict]) -> str:
    """The worst verdict; ``not_judged`` where there is no other.

    That nothing is to be said against what is watched of a host makes no ``pass`` where no result is one.
    """
    said = [one.verdict for one in verdicts if not (one.verdict == PASS and one.test.startswith(WATCH))]
    return min((word for word in said if word != NOT_JUDGED), key=rank, default=NOT_JUDGED)
