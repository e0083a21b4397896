"""What the torch side prints, line by line: results and software, notes for whoever watches, and all else, which
explains failures.

Results come from another program: each is brought into the record's shape, and a value that is no number is none.
"""

from __future__ import annotations

import time

from fleet.agent import strict_json
from fleet.agent.bench import explain
from fleet.agent.bench.record import finite
from fleet.agent.bench.torch_side.units import unit_of
from fleet.agent.process import last_lines

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from fleet.agent.protocol import Json


KEPT_LINES = 400
KEPT_NCCL_LINES = 40
LONGEST_LINE = 1024 * 1024
STATUSES = ("measured", "failed", "skipped", "timeout", "invalid", "not_runnable")
REASONS = frozenset(
    "torch_missing torch_cpu_build cuda_init_failed arch_mismatch no_compiler libcuda_link_missing shm_too_small"
    " collective_timeout out_of_memory deadline gpu_occupied gpu_became_occupied mig_without_instance no_gpus"
    " no_samples non_finite wrong_result hw_slowdown hw_thermal_slowdown peer_access_unavailable one_gpu"
    " dtype_not_supported needs_recovery container_failed".split()
)
SOFTWARE = ("python", "torch", "cuda", "cudnn", "nccl", "arch_list", "compiler")
_EMPTY: Json = {
    "status": "failed",
    "reason": None,
    "message": None,
    "value": None,
    "samples": 0,
    "minimum": None,
    "maximum": None,
    "spread_percent": None,
    "parameters": {},
    "correctness": None,
    "points": None,
    "clocks_event_reasons": None,
    "notes": [],
}


def result(test: str, gpus: List[str], **more: Any) -> Json:
    """A result with every key, of what is known."""
    made = {"test": test, "gpus": list(gpus), "unit": unit_of(test), **_EMPTY, "parameters": {}, "notes": []}
    return {**made, **more}


class Output:
    """The output of one group as it comes. ``progress`` gets a line now and then."""

    def __init__(self, progress: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self.results: List[Json] = []
        self.ended_at: List[float] = []  # of each result, on the clock of ``now``
        self.software: Optional[Json] = None
        self.loads: List[
            Tuple[str, float, float]
        ] = []  # (uuid, from, to): it was kept at work, on the same clock
        self._loaded_since: Dict[str, float] = {}
        self.lines: List[str] = []
        self._nccl: List[str] = []
        self._rest = ""
        self._progress = progress
        self._now = now

    def feed(self, text: str) -> None:
        """Take in a piece of output, which need not end with a line."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line.rstrip("\r"))
        if len(self._rest) > LONGEST_LINE:
            self._line(self._rest[:LONGEST_LINE])
            self._rest = ""

    def close(self) -> None:
        """The end: what has no line break is a line, too."""
        if self._rest:
            self._line(self._rest)
        self._rest = ""

    @property
    def text(self) -> str:
        """What was printed besides results: the last lines, and NCCL's before them."""
        early = [line for line in self._nccl if line not in self.lines]
        return "\n".join([*early, *self.lines])

    def last_words(self) -> str:
        """The last lines for a message; NCCL's where there are any."""
        return last_lines(explain.nccl_lines(self._nccl) or self.lines)[:600] or "no output"

    def _line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "fleet:result":
            self._result(rest)
        elif word == "fleet:software":
            self._software(rest)
        elif word == "fleet:load":
            self._load(rest)
        elif word == "fleet:note":
            self._progress(rest[:500])
        else:
            self._keep(line)

    def _keep(self, line: str) -> None:
        line = line[:2000]
        self.lines.append(line)
        del self.lines[:-KEPT_LINES]
        if explain.nccl_lines([line]):
            self._nccl.append(line)
            del self._nccl[:-KEPT_NCCL_LINES]

    def _result(self, text: str) -> None:
        try:
            found = _parsed(text)
        except ValueError as error:
            self._keep("a result that is no JSON (%s): %s" % (error, text))
            return
        if not isinstance(found, dict) or not isinstance(found.get("test"), str):
            self._keep("a result that names no test: %s" % text)
            return
        try:
            shaped = shape(found)
        except (KeyError, TypeError, ValueError) as error:
            self._keep("a result that cannot be read (%s: %s): %s" % (type(error).__name__, error, text))
            return
        self.results.append(shaped)
        self.ended_at.append(self._now())
        self._progress(_told(shaped))

    def _load(self, text: str) -> None:
        """A GPU is kept at work from now on, or no longer."""
        try:
            found = _parsed(text)
            gpus, on = [str(uuid) for uuid in found["gpus"]], bool(found["on"])
        except (KeyError, TypeError, ValueError) as error:
            self._keep("a load that cannot be read (%s): %s" % (error, text))
            return
        for uuid in gpus:
            since = self._loaded_since.pop(uuid, None)
            if on:
                self._loaded_since[uuid] = self._now()
            elif since is not None:
                self.loads.append((uuid, since, self._now()))

    def _software(self, text: str) -> None:
        try:
            found = _parsed(text)
        except ValueError as error:
            self._keep("software that is no JSON (%s): %s" % (error, text))
            return
        if isinstance(found, dict):
            clean, _ = finite(found)
            self.software = {name: _text_of(name, clean.get(name)) for name in SOFTWARE}


def shape(found: Json) -> Json:
    """A result in the record's shape: every key, no other one, finite numbers, and a reason where one is due."""
    clean, lost = finite(found)
    known = {key: clean[key] for key in (*_EMPTY, "unit") if clean.get(key) is not None}
    made = result(str(clean["test"]), [str(name) for name in clean.get("gpus") or []], **known)
    other = {key: value for key, value in clean.items() if key not in made}
    made["parameters"] = {**made["parameters"], **other}
    if made["status"] not in STATUSES:
        made.update(status="failed", reason="container_failed", message="unknown status %s" % made["status"])
    if lost and made["status"] == "measured":
        text = "not a finite number: %s" % ", ".join(lost)
        made.update(status="invalid", reason="non_finite", message=text)
    elif made["status"] == "measured" and (made["value"] is None or not made["samples"]):
        made.update(
            status="failed", reason="no_samples", value=None, message=made["message"] or _discarded(clean)
        )
    if made["status"] == "measured":
        made["reason"] = None
    elif made["reason"] not in REASONS:
        known_text = explain.explained(str(made["message"] or ""))
        made["reason"] = known_text.reason if known_text is not None else "container_failed"
    if made["status"] in ("skipped", "not_runnable"):
        made["value"] = None
    return made


def _discarded(found: Json) -> str:
    discarded = found.get("discarded")
    return "there is no sample to go by%s" % (" (%s were thrown away)" % discarded if discarded else "")


def _parsed(text: str) -> Any:
    """JSON; Python's NaN and Infinity are let through here, to be found and named by :func:`shape`."""
    return strict_json.loads(text, any_number=True)


def _text_of(name: str, value: Any) -> Any:
    """Versions are texts in a record: cuDNN's is a number as torch gives it."""
    if name in ("arch_list", "compiler") or value is None:
        return value
    return str(value)


def _told(found: Json) -> str:
    if found["status"] == "measured":
        return "%s: %.6g %s" % (found["test"], found["value"], found["unit"])
    return "%s: %s (%s)" % (found["test"], found["status"], found["reason"])
