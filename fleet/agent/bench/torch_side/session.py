"""One process' run over its tests: each result is printed as it comes, and no test spoils another.

What a test is given is a :class:`Bench`. What it raises of the outside world becomes its result
(:mod:`.failures`); a bug of this code is printed as a traceback, the other tests still run, and the exit code
is 70. Tests that would begin after the deadline are ``skipped``, ``deadline``.
"""

from __future__ import annotations

import sys
import time
import traceback

from fleet.agent.bench.torch_side import results
from fleet.agent.bench.torch_side.failures import OUTSIDE, NotRunnable, explained
from fleet.agent.bench.torch_side.plan import budget_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Optional

    from fleet.agent.bench.torch_side.backend import Backend

    Json = dict[str, Any]
    Test = Callable[["Bench", str], Json]

BUG = 70
# The GPU takes no more work from this process (a fault leaves a CUDA context unusable): another must go on.
UNUSABLE = 75


class Bench:
    """What a test runs with: the backend, the GPU it drives (``index``), and the suite's time budget.

    ``gpus``: uuids for the result. ``parameters``: of the request.
    """

    def __init__(
        self, backend: Backend, index: int, gpus: Sequence[str], suite: str, parameters: Mapping[str, Any]
    ) -> None:
        self.backend = backend
        self.index = index
        self.gpus = list(gpus)
        self.suite = suite
        self.parameters = parameters
        self.budget_s = budget_s(suite)
        backend.use(index)

    @property
    def device(self) -> Any:
        """The ``torch.device`` of this process' GPU."""
        return self.backend.device(self.index)

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability: ``(9, 0)``."""
        major, _, minor = self.description["compute_capability"].partition(".")
        return int(major), int(minor or 0)

    @property
    def description(self) -> Json:
        """The backend's entry of this GPU."""
        return self.backend.devices()[self.index]

    def note(self, text: str) -> None:
        """One line for whoever watches."""
        results.note("%s: %s" % (self.gpus[0][:12] if self.gpus else "host", text))


def run_tests(bench: Bench, tests: Iterable[tuple[str, Test]], started: Optional[float] = None) -> int:
    """Run ``tests`` one after the other and print their results; the exit code of the process.

    ``started``: ``time.monotonic()`` from which ``parameters["deadline_s"]`` counts.
    """
    begin = time.monotonic() if started is None else started
    deadline = bench.parameters.get("deadline_s")
    code = 0
    for name, test in tests:
        if deadline is not None and time.monotonic() - begin > deadline:
            words = "the time for this group (%.0f s) was over before it began" % deadline
            results.emit(results.not_measured(name, bench.gpus, "skipped", "deadline", words))
            continue
        result = _result_of(bench, name, test)
        if result is None:
            code = BUG
        else:
            results.emit(result)
        if not _usable(bench, result):
            return UNUSABLE
    return code


def _usable(bench: Bench, result: Optional[Json]) -> bool:
    """Give back memory; whether the device still takes work."""
    try:
        if result is None or result["status"] != "measured":
            bench.backend.synchronise()
        bench.backend.release()
    except RuntimeError:
        return False
    return True


def _result_of(bench: Bench, name: str, test: Test) -> Optional[Json]:
    """What the test says, or what it raised, in the words of a result; None for a bug."""
    try:
        return test(bench, name)
    except (NotRunnable, *OUTSIDE) as error:
        return results.not_measured(name, bench.gpus, *explained(error))
    except Exception:  # a bug: it is shown as one, and the other tests are still worth having
        sys.stderr.write("bug in the test %s:\n%s" % (name, traceback.format_exc()))
        sys.stderr.flush()
        return None
