"""Benchmarks as lines for people: a line per GPU, the worst first; below it what is wrong, each thing once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from fleet.audit.benchmarks import Verdict
from fleet.audit.benchmarks.verdict import FAIL, INVALID, NOT_JUDGED, PASS, UNKNOWN, rank
from fleet.audit.benchmarks.verdict import WARN as WARN_VERDICT
from fleet.report.benchmarks.benched import COULD_NOT_RUN, Benched, HostBench, host_rank, worst_of
from fleet.report.benchmarks.problems import Trouble, troubles
from fleet.report.columns import Cell, Column
from fleet.report.columns import table as in_columns
from fleet.report.style import BAD, DIM, GOOD, PLAIN, STRONG, WARN, Line, Span, line
from fleet.report.words import duration, plural, printable, ranges, run_name, wrapped

ROLES = {FAIL: BAD, INVALID: BAD, COULD_NOT_RUN: BAD, WARN_VERDICT: WARN, UNKNOWN: WARN, PASS: GOOD}
UNITS = {
    "tflops": "TFLOPS",
    "tops": "TOPS",
    "gb_s": "GB/s",
    "us": "µs",
    "images_s": "images/s",
    "tokens_s": "tokens/s",
    "samples_s": "samples/s",
    "percent": "%",
    "count": "",
    "mhz": "MHz",
    "gib": "GiB",
}

#: Columns in the order in which they are given room; others follow as the record has them.
COLUMNS = (
    "matrix_product.bf16",
    "matrix_product.fp16",
    "memory.copy",
    "host_link.to_device",
    "matrix_product.fp8",
    "resnet50.amp",
    "transformer.amp",
    "matrix_product.fp32",
)
SHORT = {
    "memory.copy": "copy",
    "memory.triad": "triad",
    "host_link.to_device": "to device",
    "host_link.from_device": "from device",
}


#: With more GPUs than these, those of a host that are well share a line.
ALL_SHOWN = 32
_SHOWN_DIGEST = len("sha256:") + 12


@dataclass(frozen=True)
class Row:
    """One GPU's line, or that of several that are well: then with their medians."""

    host: str
    gpu: str
    verdicts: tuple[Verdict, ...]

    @property
    def worst(self) -> str:
        return worst_of(self.verdicts)

    def of(self, test: str) -> Verdict | None:
        return next((one for one in self.verdicts if one.test == test), None)


def table(
    benched: Benched, *, width: int = 100, verbose: bool = False, quiet: bool = False, told: bool = False
) -> list[Line]:
    """All that is told of a run's benchmarks, at most ``width`` columns where names allow it.

    ``verbose``: every result has a line of its own. ``quiet``: only what is wrong, and the totals. ``told``: why
    hosts could not be measured stands above already, in the run's own recap.
    """
    hosts = sorted(benched.hosts.values(), key=host_rank)
    lines: list[Line] = []
    rows = [] if quiet else [row for host in hosts for row in _rows(host)]
    if len(rows) > ALL_SHOWN:
        rows = _folded(rows)
    if rows:
        lines += [*_columns(rows, width), []]
    together = [] if quiet else [one for host in hosts for one in _together(host)]
    lines += [*together, []] if together else []
    if verbose:
        lines += [one for host in hosts for one in every_result(host)] + [[]]
    for trouble in troubles(benched):
        lines += _told(trouble, benched, width)
    if not told:
        lines += [one for host in hosts for one in _not_run(host)]
    lines += [line(Span(printable(note), DIM)) for note in benched.notes]
    return [*lines, _totals(benched)]


def short(host: HostBench) -> list[Line]:
    """A few lines of one host: what was measured in what, the verdicts counted, what is wrong."""
    record = host.record
    if record is None:
        return []
    counted = Counter(one.verdict for one in host.verdicts)
    words = " · ".join(f"{counted[word]} {word.replace('_', ' ')}" for word in sorted(counted, key=rank))
    head = f"  benchmarks  {record['suite']} of {record['ended_at']} in {printable(_image(host))}  "
    lines: list[Line] = [
        line(head, Span(host.worst.replace("_", " "), ROLES.get(host.worst, PLAIN)), f"  {words}")
    ]
    for trouble in troubles(Benched("", "", record["suite"], {host.host: host})):
        what = ", ".join(trouble.tests[:3]) + (
            f" and {len(trouble.tests) - 3} more" if len(trouble.tests) > 3 else ""
        )
        where = _few(list(dict.fromkeys(gpus for _, gpus, _ in trouble.places if gpus)))
        shown = Span(f"    {trouble.verdict.replace('_', ' '):<11}", ROLES.get(trouble.verdict, DIM))
        lines.append(line(shown, f"{where}  {what}  ", printable("; ".join(trouble.reasons))))
    return lines


def every_result(host: HostBench) -> list[Line]:
    """One line for each verdict on a host."""
    lines: list[Line] = []
    for one in host.verdicts:
        shown = Span(f"{one.verdict.replace('_', ' '):<11}", ROLES.get(one.verdict, DIM))
        place = f"{host.host}  {host.gpus_name(one.gpus):<8}  "
        compared = "; ".join(filter(None, (_figures(one), *_comparisons(one), *one.reasons)))
        lines.append(line(shown, f"{place}{one.test:<24}  ", printable(compared)))
    return lines


def _rows(host: HostBench) -> list[Row]:
    """A row for each GPU that has results of its own, the worst first."""
    if host.record is None:
        return []
    rows = []
    for gpu in host.record["gpus"]:
        own = tuple(one for one in host.verdicts if one.gpus == (gpu["uuid"],))
        if own:
            rows.append(Row(host.host, host.gpu_name(gpu["uuid"]), own))
    return sorted(rows, key=lambda row: rank(row.worst))


def _folded(rows: Sequence[Row]) -> list[Row]:
    """The GPUs of a host that are well as one row, in the place of the first of them; those not judged likewise."""
    well: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.worst in (PASS, NOT_JUDGED):
            well.setdefault((row.host, row.worst), []).append(row)
    first = {id(alike[0]): alike for alike in well.values()}
    kept = (row for row in rows if row.worst not in (PASS, NOT_JUDGED) or id(row) in first)
    return [_median_row(first[id(row)]) if len(first.get(id(row), ())) > 1 else row for row in kept]


def _median_row(rows: Sequence[Row]) -> Row:
    tests = dict.fromkeys(one.test for row in rows for one in row.verdicts)
    found = ([one for row in rows if (one := row.of(test))] for test in tests)
    return Row(rows[0].host, plural(len(rows), "GPU"), tuple(map(_median_verdict, found)))


def _median_verdict(alike: Sequence[Verdict]) -> Verdict:
    """The verdict in the middle by value."""
    ordered = sorted(alike, key=lambda one: -1.0 if one.value is None else one.value)
    return ordered[len(ordered) // 2]


def _columns(rows: Sequence[Row], width: int) -> list[Line]:
    """The table: of the tests as many as the width has room for."""
    tests = dict.fromkeys(
        one.test for row in rows for one in row.verdicts if one.value is not None and "watch." not in one.test
    )
    ordered = [*(test for test in COLUMNS if test in tests), *(test for test in tests if test not in COLUMNS)]
    room = width - max(4, *(len(row.host) for row in rows)) - max(len(row.gpu) for row in rows) - 16
    columns = [Column("host"), Column("GPU"), Column("verdict")]
    verdicts = [Cell(f"{row.worst.replace('_', ' '):<10}", ROLES.get(row.worst, PLAIN)) for row in rows]
    cells = [[Cell(row.host), Cell(row.gpu), own] for row, own in zip(rows, verdicts, strict=True)]
    for test in ordered:
        title = _title(test, rows)
        shown = [_cell(row.of(test)) for row in rows]
        wide = max(map(len, (title, *shown))) + 2
        if wide > room:
            continue
        room -= wide
        columns.append(Column(title, right=True))
        for row, own, text in zip(rows, cells, shown, strict=True):
            own.append(Cell(text, _cell_role(row.of(test))))
    return in_columns(columns, cells)


def _title(test: str, rows: Sequence[Row]) -> str:
    unit = next(found.unit for row in rows if (found := row.of(test)))
    return f"{SHORT.get(test, test.removeprefix('matrix_product.'))} {UNITS.get(unit, unit)}".strip()


def _cell(verdict: Verdict | None) -> str:
    """``745 75%``; behind it what is no pass."""
    if verdict is None:
        return "-"
    if verdict.value is None:
        return verdict.verdict.replace("_", " ")
    share = "" if verdict.share_of_peak is None else f" {verdict.share_of_peak:.0%}"
    word = "" if verdict.verdict in (PASS, NOT_JUDGED) else f" {verdict.verdict}"
    return f"{number(verdict.value)}{share}{word}"


def _cell_role(verdict: Verdict | None) -> str:
    return PLAIN if verdict is None or verdict.verdict == PASS else ROLES.get(verdict.verdict, DIM)


def number(value: float) -> str:
    """Three digits or more: ``0.4``, ``71.2``, ``2950``."""
    if value == int(value):
        return str(int(value))
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _together(host: HostBench) -> Iterator[Line]:
    """What several GPUs do together: a line for each test of a host."""
    several: dict[str, list[Verdict]] = {}
    for _, verdict in host.results():
        if len(verdict.gpus) > 1:
            several.setdefault(verdict.test, []).append(verdict)
    for test, found in several.items():
        worst = worst_of(found)
        shown = Span(f"{worst.replace('_', ' '):<10}", ROLES.get(worst, PLAIN))
        yield line(f"{host.host}  ", shown, f"  {test:<24}  {_of_several(found)}")


def _of_several(found: Sequence[Verdict]) -> str:
    measured = [one for one in found if one.value is not None]
    if not measured:
        return "not measured"
    if len(found) == 1:
        return f"{_figures(found[0])}  {len(found[0].gpus)} GPUs"
    values = [one.value for one in measured if one.value is not None]
    unit = UNITS.get(measured[0].unit, "")
    return f"{number(median(values))} {unit} (median of {len(values)} pairs, {number(min(values))} the least)"


def _figures(one: Verdict) -> str:
    if one.value is None:
        return ""
    share = "" if one.share_of_peak is None else f", {one.share_of_peak:.0%} of peak"
    return f"{number(one.value)} {UNITS.get(one.unit, one.unit)}".rstrip() + share


def _comparisons(one: Verdict) -> Iterator[str]:
    if one.baseline is not None and one.baseline_change_percent is not None:
        yield f"{one.baseline_change_percent:+.1f} % to its baseline {number(one.baseline)}"
    if one.peer_median is not None:
        yield f"peers {number(one.peer_median)}"


def _told(trouble: Trouble, benched: Benched, width: int) -> list[Line]:
    """One trouble: what, where, and below it why."""
    tests = trouble.tests
    what = ", ".join(tests) if len(tests) <= 3 else f"{len(tests)} tests"
    if len(trouble.hosts) == 1:
        gpus = list(dict.fromkeys(gpus for _, gpus, _ in trouble.places if gpus))
        where = f"{trouble.hosts[0]} {_few(gpus)}"
    else:
        where = f"{plural(len(trouble.hosts), 'host')}: {ranges(trouble.hosts)}"
    figures = _figures(trouble.measured) if trouble.measured else ""
    head = "  ".join(word for word in (where.strip(), what, figures) if word)
    shown = Span(f"{trouble.verdict.replace('_', ' '):<12}", ROLES.get(trouble.verdict, DIM))
    reasons = list(trouble.reasons)
    if _is_of_image(trouble, benched):
        reasons.append(f"this is the image, not the hosts: {_image(benched.hosts[trouble.hosts[0]])}")
    lines: list[Line] = [line(shown, printable(head))]
    for reason in reasons:
        lines += [line(" " * 12, words) for words in wrapped(printable(reason), width - 12)]
    return lines


def _few(gpus: Sequence[str]) -> str:
    return ", ".join(gpus) if len(gpus) <= 4 else plural(len(gpus), "GPU")


def _is_of_image(trouble: Trouble, benched: Benched) -> bool:
    """Whether it comes with the image: not runnable on every host that was measured in it."""
    if trouble.verdict != NOT_JUDGED:
        return False
    same = [
        one.host for one in benched.hosts.values() if one.record is not None and one.image == trouble.image
    ]
    return set(same) == set(trouble.hosts)


def _not_run(host: HostBench) -> list[Line]:
    if host.record is not None:
        return []
    role = ROLES.get(host.worst, DIM)
    lines: list[Line] = [
        line(
            Span(f"{host.worst.replace('_', ' '):<12}", role),
            f"{host.host}  {printable(host.reason or host.status)}",
        )
    ]
    return [*lines, line(" " * 12, f"remedy: {printable(host.remedy)}")] if host.remedy else lines


def _image(host: HostBench) -> str:
    """``registry/name:tag (sha256:0123456789ab)``."""
    image = (host.record or {}).get("image") or {}
    reference, digest = image.get("reference"), str(image.get("digest") or "")[:_SHOWN_DIGEST]
    if reference and digest:
        return f"{reference} ({digest})"
    return str(reference or digest or "the host's Python")


def _totals(benched: Benched) -> Line:
    counted = Counter(host.worst for host in benched.hosts.values())
    pieces: list[Span] = []
    if benched.simulated:
        pieces.append(Span("simulated hardware", STRONG))
    order = sorted(counted, key=lambda word: -1 if word == COULD_NOT_RUN else rank(word))
    pieces += [
        Span(f"{plural(counted[word], 'host')} {word.replace('_', ' ')}", ROLES.get(word, PLAIN))
        for word in order
    ]
    longest = max((host.record["duration_s"] for host in benched.hosts.values() if host.record), default=None)
    if longest is not None:
        pieces.append(Span(duration(longest)))
    if benched.run:
        pieces.append(Span(f"run {run_name(benched.run)}"))
    pieces.append(Span(f"exit {int(benched.exit_code)}", STRONG))
    return [part for piece in pieces for part in (Span(" · ", DIM), piece)][1:]
