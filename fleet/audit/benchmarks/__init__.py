"""Judging benchmarks: records of many hosts in, a verdict for every result out. Pure: same input, same bytes.

:func:`fleet.audit.benchmarks.judge.judge` is the way in. What a result is held to: its own state
(:mod:`~fleet.audit.benchmarks.validity`), the GPU's peak and limits (:mod:`~fleet.audit.benchmarks.reference`),
its baseline, and its peers (:mod:`~fleet.audit.benchmarks.peers`); all in
:mod:`~fleet.audit.benchmarks.comparisons`. What of a host as a whole is watched is in
:mod:`~fleet.audit.benchmarks.watch`. docs/benchmarks/reading-results.md says it in prose.
"""

from fleet.audit.benchmarks.judge import judge
from fleet.audit.benchmarks.subject import Baseline
from fleet.audit.benchmarks.verdict import Verdict

__all__ = ["Baseline", "Verdict", "judge"]
