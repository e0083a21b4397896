"""NVIDIA's driver: from NVIDIA's repository or the distribution's, or one that is there already and only checked.

Everything is decided before the host is touched: which flavour and branch serve its cards
(:mod:`fleet.modules.driver.gpus`), which packages in which exact versions (:mod:`fleet.modules.driver.packages`),
and whether anybody uses what would have to be unloaded. Where somebody does, nothing of it is done and the host is
``pending``. A driver that is installed and serves stays: ``branch`` and ``auto`` upgrade nothing by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleet.audit.facts import fact, releases
from fleet.audit.pending import reboot_words
from fleet.catalogue.catalogue import load as load_catalogue
from fleet.catalogue.driver_packages import driver_repository
from fleet.modules.base import (
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    ControllerResult,
    Facts,
    Json,
)
from fleet.modules.driver import preinstalled as driver_preinstalled
from fleet.modules.driver import steps as driver_steps
from fleet.modules.driver.gpus import Card, Refused, cards, not_listed
from fleet.modules.driver.leave import held_back, may_reboot
from fleet.modules.driver.packages import (
    Choice,
    NotOffered,
    choose,
    names_to_ask,
    newest_installed,
)
from fleet.modules.driver.steps import build_packages, kernels, repository
from fleet.modules.shared import repository_key
from fleet.modules.shared.engine_settings import without_systemd

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DECIDES = True
READS_FACTS = True
_REPOSITORY_KEYS = ("base_url", "distribution", *repository_key.KEYS)
ARGUMENTS = {
    "source": Argument(
        default="nvidia",
        choices=("nvidia", "distribution", "preinstalled"),
        description="whose packages; preinstalled: none, what is there is checked",
    ),
    "version": Argument("plain", description='exactly this one, as NVIDIA writes it: "580.159.03"'),
    "branch": Argument(
        "plain", description='the newest offered of a branch, "580"; an installed one of it stays'
    ),
    "modules": Argument(
        default="auto", choices=("auto", "open", "proprietary"), description="flavour of the kernel modules"
    ),
    "fabric_manager": Argument(
        default="auto",
        choices=("auto", "absent"),
        description="auto: in the driver's version, where NVSwitches are; absent: not fleet's business",
    ),
    "persistence": Argument("boolean", default=True, description="run the persistence daemon"),
    "headers": Argument(
        "boolean", default=True, description="headers of the running kernel and of the one that boots next"
    ),
    "hold": Argument(
        "boolean", default=True, description="keep others from upgrading or removing the driver"
    ),
    "allow_downgrade": Argument(
        "boolean", default=False, description="an older driver may replace a newer one"
    ),
    "also_allowed": Argument(
        "list", default=[], description="packages not of the driver that its transaction may upgrade"
    ),
    "repository": Argument(
        "mapping",
        default={},
        description="of source: nvidia: base_url, distribution (debian12), key(_file, _url), key_fingerprint, trusted",
    ),
    "reboot": Argument(
        default="never",
        choices=("never", "if_needed"),
        description="if_needed: where the loaded driver cannot be replaced otherwise",
    ),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """What can be told of the arguments alone."""
    problems = []
    version, branch = args.get("version"), args.get("branch")
    if _written(version) and _written(branch):
        problems.append(ArgumentProblem("give version or branch, not both", "branch"))
    if isinstance(version, float) or (isinstance(version, int) and not isinstance(version, bool)):
        problems.append(
            ArgumentProblem("a version without quotes has lost digits: write it in quotes", "version")
        )
    elif _written(version) and not re.fullmatch(r"\d{3}(\.\d{1,3}){1,2}", str(version)):
        message = f'version must be a driver version such as "580.159.03", not {version}'
        problems.append(ArgumentProblem(message, "version"))
    if _written(branch) and not re.fullmatch(r"\d{3}", str(branch)):
        message = f'branch must be the number of a branch such as "580", not {branch}'
        problems.append(ArgumentProblem(message, "branch"))
    return problems + repository_key.problems(args.get("repository"), _REPOSITORY_KEYS)


def _written(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and "{{" not in str(value)


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """Which versions there are, unless the driver is installed whole; headers and dkms where they are not."""
    if args["source"] == "preinstalled" or not _answerable(args, facts):
        return []
    found = cards(facts)
    queries: list[Json] = []
    built = True
    try:
        built = not choose(args, facts, found, None).prebuilt
    except NotOffered:
        query: Json = {
            "id": "versions",
            "kind": "package_versions",
            "names": names_to_ask(args, facts, found),
        }
        if args["source"] == "nvidia":
            query["repositories"] = [repository(args, facts, context)]
        queries.append(query)
    except Refused:
        return []
    absent = [name for name in build_packages(args, facts) if name not in _installed(facts)]
    if absent and built:
        queries.append({"id": "build", "kind": "package_versions", "names": absent})
    return queries


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """Why there is nothing to do, or this driver cannot be had (``failed``), or must wait for leave (``pending``)."""
    if not cards(facts):
        return [_no_cards(facts, context)]
    if args["source"] == "preinstalled":
        return driver_preinstalled.results(args, facts, context)
    try:
        choice = _choice(args, facts, answers)
    except Refused as problem:
        return [context.result("failed", problem.what, remedy=problem.remedy, stops=True)]
    found = [
        context.result(
            "finding", f"NVIDIA does not list {card} for driver {choice.version}: it may run, unsupported"
        )
        for card in _once(not_listed(cards(facts), choice.version))
    ]
    waits = held_back(choice, facts, context)
    if waits is not None:
        return [*found, context.result("pending", waits, remedy=context.disrupt_command)]
    return found + _by_a_reboot(args, facts, context) + _by_whoever_starts_this_host(args, facts, context)


def _by_a_reboot(args: Json, facts: Facts, context: Context) -> list[ControllerResult]:
    """What else the reboot does that this driver may need, said before it."""
    also = reboot_words(facts) if may_reboot(args, facts, context) else None
    return [context.result("finding", also)] if also is not None else []


def _by_whoever_starts_this_host(args: Json, facts: Facts, context: Context) -> list[ControllerResult]:
    """The services of a host without systemd: nothing of fleet's starts them. GPUs behind NVSwitches do not work
    without a fabric manager; without the persistence daemon they only take longer to wake."""
    said = []
    if without_systemd(facts):
        wanted = driver_steps.services(args, cards(facts), facts)
        if "persistence" in wanted and not fact(facts, "driver.persistence_daemon.active"):
            text = f"no systemd here: whoever starts this host runs {driver_steps.PERSISTENCE}"
            said.append(context.result("message", text))
        if "fabric_manager" in wanted and not fact(facts, "driver.fabric_manager.active"):
            text = (
                f"no systemd here, and {driver_steps.FABRIC_MANAGER} does not run: CUDA fails with error 802"
            )
            remedy = "start nv-fabricmanager as this host starts its services, then run again"
            said.append(context.result("pending", text, remedy=remedy))
    return said


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """Repository, packages in one transaction, what keeps them as they are, modules, then services."""
    found = cards(facts)
    if not found:
        return []
    if args["source"] == "preinstalled":
        there = driver_preinstalled.to_load(facts)
        return [driver_steps.load_step(*there, context)] if there is not None else []
    choice = _choice(args, facts, answers)
    if held_back(choice, facts, context) is not None:
        return []
    return driver_steps.steps(args, facts, answers, choice, found, context)


# --- what is wanted -----------------------------------------------------------------------------


def _answerable(args: Json, facts: Facts) -> bool:
    """Whether asking makes sense: there are cards, and a package manager that can be asked."""
    return bool(cards(facts)) and fact(facts, "packages.manager") == "apt"


def _no_cards(facts: Facts, context: Context) -> ControllerResult:
    gpus = fact(facts, "gpus")
    if gpus is None:
        what = "this host's PCI devices could not be read, so its GPUs are not known"
        return context.result("failed", what, remedy="see the errors among its facts", stops=True)
    if gpus:
        return context.result("ok", "every NVIDIA GPU here is handed on to virtual machines (vfio-pci)")
    return context.result("ok", "no NVIDIA GPU here")


def _choice(args: Json, facts: Facts, answers: Answers) -> Choice:
    """The driver to have. Raises Refused for one that cannot be: by cards, repositories, age or system."""
    found = cards(facts)
    asked = answers.get("versions")
    offered = {} if asked is None and fact(facts, "packages.manager") == "apt" else asked
    try:
        choice = choose(args, facts, found, offered)
    except NotOffered:
        if fact(facts, "packages.manager") == "dnf":
            raise _by_hand(args, facts, found) from None
        raise
    newest = newest_installed(facts)
    if newest is not None and newest > choice.version and not args["allow_downgrade"]:
        raise Refused(
            f"downgrade_refused: driver {newest} is installed, and {choice.version} is older",
            "set allow_downgrade: true (the variable nvidia_driver_allow_downgrade) if that is meant",
        )
    _refuse_missing_headers(args, facts, answers)
    return choice


def _refuse_missing_headers(args: Json, facts: Facts, answers: Answers) -> None:
    for name, versions in sorted((answers.get("build") or {}).items()):
        if versions or name not in build_packages(args, facts, answers.get("build")):
            continue
        kernel = next((one for one in kernels(facts) if name.endswith(str(one["release"]))), None)
        if kernel is None:
            raise Refused(
                f"not_offered: no repository of this host has {name}, and the driver is built with it",
                f"let a repository of this host carry {name}",
            )
        which = "the running kernel" if kernel.get("running") else "the kernel that boots next"
        raise Refused(
            f"headers_not_offered: {which} is {kernel['release']}, and no repository of this host has {name}",
            f"boot a kernel whose headers are offered, or let a repository carry {name}",
        )


def _by_hand(args: Json, facts: Facts, found: Sequence[Card]) -> Refused:
    """On dnf hosts the agent can neither add NVIDIA's repository nor choose a module stream nor ask for versions."""
    version = args["version"] or args["branch"] or "BRANCH"
    branch = str(version).partition(".")[0]
    release = load_catalogue().systems.release(*releases(facts))
    family = release.family if release is not None else None
    flavour = "proprietary" if args["modules"] == "proprietary" else "open"
    number = int(branch) if branch.isdecimal() else None
    stream = family.module_stream(flavour, number) if family is not None and number is not None else None
    names = family.driver(flavour) if family is not None else None
    where = (
        f"{driver_repository().base_url}/{release.cuda_repository}/"
        if release is not None
        else "NVIDIA's repository"
    )
    enable = f"dnf module enable {stream}; " if stream else ""
    return Refused(
        "not_by_dnf: on this system fleet cannot yet add NVIDIA's repository, enable a module stream or ask which "
        "versions are offered; a driver that is installed it keeps, holds and loads",
        f"by hand, once: add {where}; {enable}dnf install {' '.join(names or ('nvidia-open',))}; then run again",
    )


def _installed(facts: Facts) -> Json:
    return fact(facts, "packages.installed") or {}


def _once(found: Sequence[Card]) -> list[Card]:
    """One card of each kind."""
    return list({card.device: card for card in reversed(found)}.values())
