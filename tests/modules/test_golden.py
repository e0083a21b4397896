"""Every module against golden files: {args, facts, answers, context} → {queries, steps, results}.

A file is tests/modules/<name>/<situation>.json. ``facts`` are values by dotted path laid over the healthy
document of tests/audit/healthy.json; with ``"host": "gpu"`` over that of healthy_gpu.json, with ``"host": "rented"``
over that of rented.json.
FLEET_UPDATE_GOLDEN=1 writes what came out into ``expect``; review it as data before it is committed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleet.core.secret import Secret
from fleet.modules import known_names, load, short_name
from fleet.modules.arguments import canonical_names, converted
from fleet.modules.base import ArgumentProblem, Context
from tests.facts import healthy_facts, healthy_gpu_facts, rented_facts

HERE = Path(__file__).parent
# The systems that modules are made for, as far as facts tell them apart.
SYSTEMS: dict[str, dict[str, Any]] = {
    "debian-11": {"os.id": "debian", "os.version_id": "11", "os.codename": "bullseye"},
    "debian-12": {"os.id": "debian", "os.version_id": "12", "os.codename": "bookworm"},
    "debian-13": {"os.id": "debian", "os.version_id": "13", "os.codename": "trixie"},
    "ubuntu-22.04": {"os.id": "ubuntu", "os.version_id": "22.04", "os.codename": "jammy"},
    "ubuntu-24.04": {"os.id": "ubuntu", "os.version_id": "24.04", "os.codename": "noble"},
    "el-9": {"os.id": "rocky", "os.version_id": "9.4", "os.codename": None, "packages.manager": "dnf"},
}
# What these do depends on the system; they have files for each.
BY_SYSTEM = ("docker_engine", "container_toolkit", "nvidia_driver", "preflight")
APT_ONLY = ("apt", "apt_repository")
BY_MANAGER = ("proxy",)  # apt hosts are alike, and there is a file for dnf
CASES = sorted(HERE.glob("*/*.json"))


def revived(value: Any) -> Any:
    """``{"$given_secret": text}`` in a case is a Secret."""
    if isinstance(value, dict):
        if set(value) == {"$given_secret"}:
            return Secret(value["$given_secret"], "given")
        return {key: revived(item) for key, item in value.items()}
    return [revived(item) for item in value] if isinstance(value, list) else value


def shown(value: Any) -> Any:
    """The reverse, for comparing: a Secret in a step is ``{"$given_secret": text}``."""
    if isinstance(value, Secret):
        return {"$given_secret": value.reveal()}
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def outcome(name: str, case: dict[str, Any]) -> dict[str, Any]:
    module = load(name)
    hosts = {"gpu": healthy_gpu_facts, "rented": rented_facts}
    facts = hosts.get(case.get("host", ""), healthy_facts)(case.get("facts"))
    files = case.get("files", {})
    context = Context(
        prefix=f"7.{name}",
        task="the task",
        rerun="fleet provision lab.yaml --limit gpu01",
        read_file=lambda file: files[file].encode(),
        render_template=lambda file: files[file],
        **case.get("context", {}),
    )
    args, problems = canonical_names(revived(case["args"]), module.arguments)
    assert not problems
    assert not module.check(args, context.in_handler)
    if not module.any_arguments:
        args = converted(args, module.arguments, module.name)
    answers = case.get("answers", {})
    results = module.results(args, facts, answers, context)
    stops = any(result.stops for result in results)
    return {
        "queries": module.needs(args, facts, context),
        "steps": [] if stops else shown(module.steps(args, facts, answers, context)),
        "results": [result.as_json() for result in results],
    }


@pytest.mark.parametrize("path", CASES, ids=[f"{path.parent.name}/{path.stem}" for path in CASES])
def test_module_makes_exactly_these_steps(path: Path) -> None:
    case = json.loads(path.read_text())
    found = json.loads(json.dumps(outcome(path.parent.name, case)))
    if os.environ.get("FLEET_UPDATE_GOLDEN"):
        case["expect"] = found
        path.write_text(json.dumps(case, indent=2, ensure_ascii=False) + "\n")
    assert found == case["expect"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_other_modules_do_the_same_on_every_system(system: str) -> None:
    looked_at = 0
    for path in CASES:
        case = json.loads(path.read_text())
        of_a_system = any(key.startswith(("os.", "packages.")) for key in case.get("facts", {}))
        other_manager = system == "el-9" and path.parent.name in BY_MANAGER
        if path.parent.name in BY_SYSTEM or of_a_system or other_manager:
            continue
        case["facts"] = {**case.get("facts", {}), **SYSTEMS[system]}
        if system == "el-9" and path.parent.name in APT_ONLY:
            with pytest.raises(ArgumentProblem, match="but this host has dnf"):
                outcome(path.parent.name, case)
            continue
        assert json.loads(json.dumps(outcome(path.parent.name, case))) == case["expect"], path
        looked_at += 1
    assert looked_at > 50


def test_every_module_has_a_golden_file() -> None:
    covered = {load(path.parent.name).name for path in CASES}
    assert {load(name).name for name in known_names()} == covered


def test_a_module_is_found_by_all_its_names() -> None:
    assert load("ansible.builtin.systemd_service") is load("ansible.builtin.systemd_service")
    assert load("systemd").name == load("service").name == "service"
    assert short_name("ansible.builtin.copy") == "copy"
