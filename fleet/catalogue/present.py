"""The catalogue for people and programs: tables, one entry in full, the same as JSON.

A :class:`Kind` is a word of ``fleet catalogue show``: what its table's columns are and how one entry is found and
told. Nothing is printed here. Operating systems and Xids have files of their own, :mod:`.present_systems` and
:mod:`.present_xids`; all kinds are in :mod:`fleet.catalogue.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.cuda import Toolkit
from fleet.catalogue.drivers import TYPE_NAMES, Branch, SecurityFix
from fleet.catalogue.entries import Entry, Provenance
from fleet.catalogue.gpus import Gpu

Row = tuple[str, ...]
Line = tuple[str, str]

#: What stands after a value that was not verified.
DOUBT = "  (not verified)"

UNITS = {
    "int8_tensor": "TOPS",
    "memory_bandwidth_gb_per_s": "GB/s",
    "host_link_gb_per_s": "GB/s",
    "peer_gb_per_s": "GB/s",
    "all_reduce_gb_per_s": "GB/s",
}


@dataclass(frozen=True)
class Kind:
    """One word of ``show``. ``lines`` tells one entry; ``key`` finds its id."""

    word: str
    columns: Row
    rows: Callable[[Catalogue, date], list[Row]]
    key: Callable[[Catalogue, str], str]
    lines: Callable[[Catalogue, str, date], list[Line]]
    derived: Callable[[Catalogue, str, date], dict[str, Any]]
    place: tuple[str, str]

    def entries(self, catalogue: Catalogue, today: date) -> list[dict[str, Any]]:
        """Every entry as JSON, with what follows from others under ``derived``."""
        return [
            as_json(entry) | {"derived": self.derived(catalogue, entry.id, today)}
            for entry in catalogue.files.section(*self.place)
        ]

    def entry(self, catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
        """One entry as JSON. Raises InputError with near names where there is none."""
        wanted = self.key(catalogue, name)
        return next(one for one in self.entries(catalogue, today) if one["id"] == wanted)


def as_json(entry: Entry) -> dict[str, Any]:
    """An entry with its provenance; ``sources`` maps the start of a field's path (or ``default``) to words."""
    layers = entry.provenance.layers
    return {
        "id": entry.id,
        **entry.fields,
        "verified": entry.provenance.verified,
        "unverified_fields": list(entry.provenance.unverified_fields),
        "provenance": [
            {
                "file": layer.file,
                "verified": layer.verified,
                "fields": sorted(layer.fields),
                "sources": {start or "default": words for start, words in layer.sources.items()},
            }
            for layer in layers
        ],
    }


def doubt(provenance: Provenance, *paths: str) -> str:
    """What stands after a value that rests on these fields: empty where all were verified."""
    return DOUBT if any(not provenance.vouches(path) for path in paths) else ""


def mark(provenance: Provenance) -> str:
    """The last column of a table: whether the entry was verified."""
    if not provenance.verified:
        return "no"
    return "in part" if provenance.unverified_fields else "yes"


def about(provenance: Provenance, note: str) -> Iterator[Line]:
    """The last lines of an entry told in full: its note, its files, its sources."""
    if note:
        yield "note", note
    for layer in provenance.layers:
        yield "from", f"{layer.file}: {'verified' if layer.verified else 'not verified'}"
        for start, words in layer.sources.items():
            yield "source", f"{start}: {words}" if start else words


def _gpu_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            gpu.id,
            gpu.name,
            " ".join(map(str, gpu.pci)) or "-",
            gpu.compute_capability,
            f"{gpu.memory_gb:g} GB" if gpu.memory_gb else "-",
            _drivers(gpu),
            gpu.open_kernel_modules or "-",
            mark(gpu.provenance),
        )
        for gpu in catalogue.gpus.all
    ]


def _drivers(gpu: Gpu) -> str:
    """``550.90.07 on``, ``up to 580``: from which driver on, and up to which branch."""
    first = str(gpu.min_driver or gpu.first_branch or "")
    last = f"up to {gpu.last_branch}" if gpu.last_branch else ""
    if first and last:
        return f"{first} {last}"
    return f"{first} on" if first else last or "-"


def _gpu_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.gpus.find(name).id


def _gpu_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    gpu = catalogue.gpus.find(name)
    known = gpu.provenance
    lines: list[Line] = [
        ("GPU", f"{gpu.name} ({gpu.id})"),
        ("name in NVML", gpu.nvml_name + doubt(known, "nvml_name")),
        ("PCI", (", ".join(f"10de:{pci}" for pci in gpu.pci) or "none") + doubt(known, "pci")),
        ("architecture", f"{gpu.architecture.name}, compute capability {gpu.compute_capability}"),
        ("form", f"{gpu.form_factor}, {gpu.segment}"),
        *_gpu_memory(gpu),
    ]
    if gpu.sm_count:
        lines.append(("SMs", f"{gpu.sm_count}{doubt(known, 'sm_count')}"))
    for kind, peak in gpu.peaks.items():
        unit = UNITS.get(kind, "TFLOPS")
        lines.append((kind.replace("_", " "), f"{peak:g} {unit}{doubt(known, f'peaks.{kind}')}"))
    for kind, limit in gpu.limits.items():
        unit = UNITS.get(kind, "TFLOPS")
        lines.append(
            (
                f"limit {kind.removesuffix('_gb_per_s').replace('_', ' ')}",
                f"{limit:g} {unit}{doubt(known, f'limits.{kind}')}",
            )
        )
    return [*lines, *_gpu_links(gpu), *_gpu_software(gpu), *about(known, gpu.note)]


def _gpu_memory(gpu: Gpu) -> Iterator[Line]:
    known = gpu.provenance
    if gpu.memory_gb:
        boards = f", {gpu.gpus_per_board} GPUs on a board" if gpu.gpus_per_board > 1 else ""
        yield "memory", f"{gpu.memory_gb:g} GB{boards}{doubt(known, 'memory_gb')}"
    if gpu.memory_mib:
        yield "memory in NVML", f"{gpu.memory_mib} MiB{doubt(known, 'memory_mib')}"
    if gpu.memory_bandwidth_gb_per_s:
        words = f"{gpu.memory_bandwidth_gb_per_s:g} GB/s"
        yield "memory bandwidth", words + doubt(known, "memory_bandwidth_gb_per_s")


def _gpu_links(gpu: Gpu) -> Iterator[Line]:
    known = gpu.provenance
    if gpu.nvlink:
        bridge = ", only with a bridge" if gpu.nvlink.bridge else ""
        words = f"generation {gpu.nvlink.generation}, {gpu.nvlink.gb_per_s:g} GB/s both ways together{bridge}"
        yield "NVLink", words + doubt(known, "nvlink")
    places = {
        "never": "in no system",
        "some": "in some systems (then the fabric manager is needed)",
        "always": "in every system: the fabric manager is needed",
        "external": "on switch trays outside the host: IMEX is needed",
    }
    yield "NVSwitch", places[gpu.nvswitch] + doubt(known, "nvswitch")
    if gpu.mig:
        floor = f" from {gpu.mig.min_driver}" if gpu.mig.min_driver else ""
        yield "MIG", f"up to {gpu.mig.instances} instances{floor}{doubt(known, 'mig')}"


def _gpu_software(gpu: Gpu) -> Iterator[Line]:
    known = gpu.provenance
    yield "driver", _drivers(gpu) + doubt(known, "min_driver", "first_branch")
    if gpu.first_listed:
        yield "first named by", f"{gpu.first_listed}{doubt(known, 'first_listed')}"
    yield "open modules", gpu.open_kernel_modules or "not covered by the driver packages"


def _driver_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            str(branch.number),
            TYPE_NAMES[branch.type].removesuffix(" branch"),
            branch.first_release or "-",
            branch.end_of_life or "-",
            catalogue.drivers.support(branch, today),
            str(branch.latest),
            branch.max_cuda,
            _security(branch.security_floor),
            mark(branch.provenance),
        )
        for branch in catalogue.drivers.all
    ]


def _security(fix: SecurityFix | None) -> str:
    return str(fix.version) if fix else "-"


def _driver_key(catalogue: Catalogue, name: str) -> str:
    return str(catalogue.drivers.find(name)[0].number)


def _driver_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    branch, version = catalogue.drivers.find(name)
    known = branch.provenance
    lines: list[Line] = [("branch", f"{branch.number}, {TYPE_NAMES[branch.type]}{doubt(known, 'type')}")]
    if version is not None:
        lines.append(("version", f"{version}{_version_words(branch, version.text)}"))
    end = f" (end of life {branch.end_of_life})" if branch.end_of_life else ""
    fix = branch.security_floor
    lines += [
        ("support", f"{catalogue.drivers.support(branch, today)}{end}{doubt(known, 'end_of_life')}"),
        ("latest", f"{branch.latest}{doubt(known, 'latest')}"),
        ("CUDA", f"up to {branch.max_cuda} natively{doubt(known, 'max_cuda')}"),
        ("modules", f"{' or '.join(branch.kernel_modules)}{doubt(known, 'kernel_modules')}"),
        ("architectures", ", ".join(one.name for one in catalogue.architectures_of(branch.number))),
    ]
    if fix:
        words = f"{fix.version} on (bulletin {fix.bulletin} of {fix.date}, CVSS up to {fix.max_cvss:g})"
        lines.append(("security fixes", words))
    unfixed = catalogue.drivers.unfixed(branch)
    if unfixed:
        lines.append(("no fix for", f"bulletins {', '.join(unfixed)}, which other branches got fixes for"))
    lines.append(("versions", ", ".join(map(str, branch.versions)) + doubt(known, "versions")))
    return [*lines, *about(known, branch.note)]


def _version_words(branch: Branch, text: str) -> str:
    version = next((one for one in branch.versions if one.text == text), None)
    if version is None:
        from fleet.catalogue.versions import driver_version

        beta = branch.is_beta(driver_version(text))
        return " (a developer beta: newer than its number says)" if beta else " (not in the catalogue)"
    fix = branch.security_floor
    return " (lacks security fixes)" if fix and version < fix.version else ""


def _cuda_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            toolkit.version.text,
            str(toolkit.native_driver or f"branch {toolkit.branch}"),
            toolkit.native_basis or "-",
            str(toolkit.minor_version_floor or "-"),
            mark(toolkit.provenance),
        )
        for toolkit in reversed(catalogue.cuda.all)
    ]


def _cuda_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.cuda.find(name).version.text


def _cuda_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    toolkit = catalogue.cuda.find(name)
    known = toolkit.provenance
    lines: list[Line] = [
        ("CUDA", toolkit.version.text),
        ("native", f"{_native(toolkit)}{doubt(known, 'native_driver')}"),
    ]
    floor = toolkit.minor_version_floor
    if floor:
        lines.append(("minor version", f"driver {floor} on: precompiled code only, no PTX of this toolkit"))
    if toolkit.bundled_driver:
        lines.append(("bundled", f"driver {toolkit.bundled_driver}"))
    minor = ".".join(map(str, toolkit.version.numbers[:2]))
    for one in catalogue.cuda.forward:
        if one.cuda == minor:
            bases = ", ".join(map(str, one.base_branches))
            lines.append(("forward", f"{one.package} over branches {bases}, on data centre GPUs"))
    return [*lines, *about(known, toolkit.note)]


def _native(toolkit: Toolkit) -> str:
    if toolkit.native_driver is None:
        return f"drivers of branch {toolkit.branch} on"
    basis = {
        "table": "",
        "bundled": " (the one in the runfile; an older one may do)",
        "derived": " (derived)",
    }[toolkit.native_basis]
    return f"driver {toolkit.native_driver} on{basis}"


def _gpu_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    return {"last_branch": catalogue.gpus.find(name).last_branch}


def _driver_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    branch, _ = catalogue.drivers.find(name)
    return {
        "support": catalogue.drivers.support(branch, today),
        "architectures": [one.id for one in catalogue.architectures_of(branch.number)],
        "unfixed_bulletins": list(catalogue.drivers.unfixed(branch)),
    }


def _cuda_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    floor = catalogue.cuda.find(name).minor_version_floor
    return {"minor_version_floor": str(floor) if floor else None}


KINDS = {
    kind.word: kind
    for kind in (
        Kind(
            "gpu",
            ("id", "name", "PCI", "CC", "memory", "driver", "open modules", "verified"),
            _gpu_rows,
            _gpu_key,
            _gpu_lines,
            _gpu_derived,
            ("gpus", "gpus"),
        ),
        Kind(
            "driver",
            ("branch", "type", "first", "end", "support", "latest", "CUDA", "fixes from", "verified"),
            _driver_rows,
            _driver_key,
            _driver_lines,
            _driver_derived,
            ("drivers", "branches"),
        ),
        Kind(
            "cuda",
            ("CUDA", "native driver", "basis", "minor version", "verified"),
            _cuda_rows,
            _cuda_key,
            _cuda_lines,
            _cuda_derived,
            ("cuda", "toolkits"),
        ),
    )
}


def aligned(rows: Sequence[Row]) -> list[str]:
    """Rows as lines with their columns under one another."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
