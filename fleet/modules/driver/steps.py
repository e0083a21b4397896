"""The steps that make a chosen driver true: repository, packages, what keeps them, modules, services. Pure.

Their order is what matters: the repository before packages, the whole driver in one transaction, modules once it
is built, services once the modules are those of their version. What is chosen, and whether it may be done now, is
:mod:`fleet.modules.nvidia_driver`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleet.audit.facts import fact, releases
from fleet.catalogue.catalogue import load as load_catalogue
from fleet.catalogue.driver_packages import driver_repository, of_the_driver, patterns_of_the_driver
from fleet.modules.base import (
    PACKAGE_DEADLINE_S,
    SERVICE_DEADLINE_S,
    Answers,
    ArgumentProblem,
    Context,
    Facts,
    Json,
)
from fleet.modules.driver.gpus import Card, fabric
from fleet.modules.driver.leave import FORBIDDEN, may_reboot, may_unload, replaced
from fleet.modules.driver.packages import Choice, leftovers, may_also_change, to_remove
from fleet.modules.package import package_step
from fleet.modules.shared import repository_key
from fleet.modules.shared.engine_settings import without_systemd

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

MODPROBE = "/etc/modprobe.d/fleet-nvidia.conf"
AT_BOOT = "/etc/modules-load.d/fleet-nvidia.conf"
PREFERENCES = "/etc/apt/preferences.d/fleet-nvidia.pref"
UNATTENDED = "/etc/apt/apt.conf.d/52fleet-nvidia"
LOADED = ("nvidia", "nvidia_uvm")
PERSISTENCE = "nvidia-persistenced"
FABRIC_MANAGER = "nvidia-fabricmanager"
BUILD_DEADLINE_S = 5400.0  # DKMS builds for each kernel that has headers
INITRAMFS_DEADLINE_S = 900.0
MODULES_DEADLINE_S = 600.0
REBOOT_DEADLINE_S = 900.0


def steps(
    args: Json, facts: Facts, answers: Answers, choice: Choice, found: Sequence[Card], context: Context
) -> list[Step]:
    """All of them. ``found`` are the host's cards."""
    made = _package_steps(args, facts, answers, choice, context)
    rebuilt = {"files": [MODPROBE]}
    made.append(context.step("initramfs", "initramfs", rebuilt, deadline_s=INITRAMFS_DEADLINE_S))
    made += _link_steps(args, found, facts, context)
    made.append(_modules_step(args, choice, facts, context))
    made += _service_steps(args, found, facts, context)
    made += _removal("leftovers", leftovers(facts, choice), context)
    if may_reboot(args, facts, context):
        wanted = {"deadline_s": REBOOT_DEADLINE_S, "only_if_required": True}
        made.append(context.step("reboot", "reboot", wanted, deadline_s=REBOOT_DEADLINE_S, disruptive=True))
    return made


def _unused_step(choice: Choice, facts: Facts, context: Context) -> list[Step]:
    """Asked once more right before the packages, which stop services and change libraries under who is at work."""
    replacing = replaced(choice, facts)
    if replacing is None or context.disrupt:
        return []
    wanted = {"purpose": f"to replace {replacing}", "remedy": context.disrupt_command}
    return [context.step("unused", "gpus_unused", wanted)]


def load_step(version: str | None, flavour: str | None, context: Context) -> Step:
    """The modules of a driver that somebody else installed, loaded where none is. Nothing is unloaded for it."""
    wanted = {
        "version": version,
        "flavour": flavour,
        "load": list(LOADED),
        "forbid": [],
        "services": [],
        "may_unload": False,
        "remedy": context.disrupt_command,
        "defer_to_reboot": False,
    }
    return context.step("modules", "nvidia_modules", wanted, deadline_s=MODULES_DEADLINE_S)


def _package_steps(
    args: Json, facts: Facts, answers: Answers, choice: Choice, context: Context
) -> list[Step]:
    apt = choice.packages.manager == "apt"
    made: list[Step] = []
    if args["source"] == "nvidia" and apt:
        wanted = repository(args, facts, context)
        made.append(context.step("repository", "apt_repository", wanted, deadline_s=PACKAGE_DEADLINE_S))
    if apt:
        made.append(_preferences_step(args, choice, context))
    made.append(_file_step("modprobe", MODPROBE, _modprobe_text(), context))
    made.append(_file_step("boot_modules", AT_BOOT, "".join(f"{name}\n" for name in LOADED), context))
    build = [] if choice.prebuilt else build_packages(args, facts, answers.get("build"))
    made += _unused_step(choice, facts, context)
    made.append(_packages_step(args, facts, build, choice, context))
    made += _removal("other_modules", to_remove(facts, choice), context)
    if apt:
        made.append(_file_step("unattended_upgrades", UNATTENDED, _unattended_text(), context))
    return made


def _removal(part: str, names: list[str], context: Context) -> list[Step]:
    if not names:
        return []
    entries: list[Json] = [{"name": name} for name in names]
    step = package_step(entries, {"also_allowed": names}, context, removal=True, part=part)
    step["args"]["may_be_gone"] = True
    return [step]


def repository(args: Json, facts: Facts, context: Context) -> Json:
    """NVIDIA's repository for this release, or the site's copy of it, as an ``apt_repository``."""
    upstream, site = driver_repository(), args["repository"]
    if not site.get("base_url") and not context.public_internet:
        message = "public_internet is false here; name the site's copy of NVIDIA's repositories: base_url in repository"
        raise ArgumentProblem(message, "repository")
    release = load_catalogue().systems.release(*releases(facts))
    distribution = site.get("distribution") or (release.cuda_repository if release is not None else None)
    if distribution is None:
        message = f"NVIDIA's repository for {' '.join(releases(facts))} is not known; name distribution in repository"
        raise ArgumentProblem(message, "repository")
    machine = str(fact(facts, "kernel.architecture") or "x86_64")
    architecture = "sbsa" if machine == "aarch64" else machine
    if (
        not site.get("base_url")
        and release is not None
        and architecture not in release.repository_architectures
    ):
        message = (
            f"NVIDIA publishes no {architecture} packages for {release.name}; name a repository that has them"
        )
        raise ArgumentProblem(message, "repository")
    base = str(site.get("base_url") or upstream.base_url).rstrip("/")
    address = f"{base}/{distribution}/{architecture}/"
    key_url, fingerprint = (
        address + upstream.key_file(str(distribution)),
        upstream.fingerprint(str(distribution)),
    )
    lists = [
        name.format(distribution=distribution, architecture=architecture) for name in upstream.keyring_lists
    ]
    return {
        "name": "nvidia-driver",
        "uris": [address],
        "suites": ["/"],
        "components": [],
        "architectures": None,
        "key": repository_key.key(site, key_url, fingerprint, context),
        "trusted": bool(site.get("trusted", False)),
        "options": {},
        "replaces": [f"/etc/apt/sources.list.d/{name}" for name in lists],
        "state": "present",
    }


def _packages_step(args: Json, facts: Facts, build: list[str], choice: Choice, context: Context) -> Step:
    """One transaction: what building needs, the driver in exact versions, what its fabric needs."""
    support = [name for name in choice.apart if name not in build]
    names: list[Json] = [{"name": name, "hold": None} for name in build]
    names += [{"name": name, "version": version} for name, version in choice.driver]
    names += [
        {"name": name} if of_the_driver([name]) else {"name": name, "hold": None}
        for name in (*support, *choice.prebuilt)
    ]
    if choice.prebuilt:  # a newer kernel has no modules of a driver that is held: both are held, or neither
        names += [{"name": name} for name in _kernel_metapackages(facts)]
    wanted = {
        "hold": args["hold"],
        "allow_downgrade": args["allow_downgrade"],
        "also_allowed": [*may_also_change(facts, choice), *args["also_allowed"]],
    }
    step = package_step(names, wanted, context)
    step["deadline_s"] = BUILD_DEADLINE_S
    # A daemon that its package starts ends at once where no module is loaded yet: nothing is promised of it then.
    if choice.packages.starts and fact(facts, "driver.loaded"):
        step["args"]["starts"] = list(choice.packages.starts)
    return step


def build_packages(args: Json, facts: Facts, offered: Mapping[str, Any] | None = None) -> list[str]:
    """Headers of the kernels that run and boot next, by name; the metapackage only where the kernel's is; dkms.

    A headers' metapackage that ``offered`` says nobody has is left out: not every kernel metapackage has one.
    """
    if fact(facts, "packages.manager") != "apt":
        return []
    installed = fact(facts, "packages.installed") or {}
    names: list[str] = []
    if args["headers"]:
        for kernel in kernels(facts):
            name = f"linux-headers-{kernel['release']}"
            # Headers that are there without the package are those of a kernel somebody built.
            if name in installed or not kernel.get("headers"):
                names.append(name)
        metapackages = [
            f"linux-headers-{name.removeprefix('linux-image-')}"
            for name in _kernel_metapackages(facts)
            if name.startswith("linux-image-")
        ]
        names += [name for name in metapackages if name in installed or (offered or {}).get(name) != []]
    return [*dict.fromkeys(names), "dkms"]


def _kernel_metapackages(facts: Facts) -> list[str]:
    """Those installed that bring the newest kernel of a kind: linux-generic, linux-image-generic …"""
    pattern = r"linux-(generic|(image|headers)-[a-z][a-z0-9.-]*)"
    found = [name for name in fact(facts, "packages.installed") or {} if re.fullmatch(pattern, name)]
    return sorted(name for name in found if "unsigned" not in name and "dbg" not in name)


def kernels(facts: Facts) -> list[Json]:
    """The kernel that runs and the one that boots next, as the driver's facts tell them."""
    known = fact(facts, "driver.kernels")
    if known:
        return [one for one in known if one.get("running") or one.get("next")]
    running, following = fact(facts, "kernel.release"), fact(facts, "kernel.next_release")
    releases_known = dict.fromkeys(one for one in (running, following or running) if one is not None)
    return [{"release": one, "running": one == running} for one in releases_known]


def _preferences_step(args: Json, choice: Choice, context: Context) -> Step:
    """Packages that the names do not cover come in the same version too; the distribution's need no such word."""
    if args["source"] != "nvidia":
        return context.step("preferences", "file", {"path": PREFERENCES, "state": "absent"})
    text = (
        "# Written by fleet: of everything that belongs to NVIDIA's driver, this version is the candidate.\n"
        f"Package: {' '.join(patterns_of_the_driver())}\n"
        f"Pin: version {choice.modules_version}\n"
        f"Pin-Priority: {1001 if args['allow_downgrade'] else 1000}\n"  # above 1000 an older one replaces a newer
    )
    return _file_step("preferences", PREFERENCES, text, context)


def _modprobe_text() -> str:
    lines = ["# Written by fleet: NVIDIA's driver serves the GPUs here, not the kernel's own.", *(
        f"blacklist {name}" for name in (*FORBIDDEN, "nova_drm")
    ), "options nouveau modeset=0"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _unattended_text() -> str:
    """Regular expressions over names, from their start; whatever origin offers the packages."""
    names = (
        "nvidia-(?!container|docker)",
        "libnvidia-(?!container)",
        "libcuda1$",
        "libcudadebugger1$",
        "libnvcuvid1$",
        "libnvoptix1$",
        "cuda-drivers",
        "firmware-nvidia-",
        "xserver-xorg-video-nvidia",
        "linux-(modules|objects|signatures)-nvidia-",
    )
    lines = "".join(f'    "{name}";\n' for name in names)
    head = "// Written by fleet: the driver changes when fleet is asked to, since its library and module must agree.\n"
    return f"{head}Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"


def _file_step(part: str, path: str, text: str, context: Context) -> Step:
    return context.step(part, "file", {"path": path, "content": text, "mode": "0644", "state": "present"})


def _link_steps(args: Json, found: Sequence[Card], facts: Facts, context: Context) -> list[Step]:
    """NVLink 5 is managed over InfiniBand's user interface."""
    wanted = {"name": "ib_umad", "state": "loaded", "persist": True}
    needed = args["fabric_manager"] == "auto" and any("ib_umad" in one.needs for one in fabric(found, facts))
    return [context.step("ib_umad", "kernel_module", wanted)] if needed else []


def _modules_step(args: Json, choice: Choice, facts: Facts, context: Context) -> Step:
    wanted = {
        "version": choice.version.text,
        "flavour": choice.flavour,
        "load": list(LOADED),
        "forbid": list(FORBIDDEN),
        "services": _services(facts),
        "may_unload": may_unload(facts, context),
        "leave": context.disrupt,
        "remedy": context.disrupt_command,
        "defer_to_reboot": may_reboot(args, facts, context),
    }
    unloads = replaced(choice, facts) is not None
    return context.step(
        "modules", "nvidia_modules", wanted, deadline_s=MODULES_DEADLINE_S, disruptive=unloads
    )


def _services(facts: Facts) -> list[str]:
    """Services that hold the GPUs by their nature: stopped to unload, started again afterwards."""
    if without_systemd(facts):
        return []
    holders = fact(facts, "driver.holders") or ()
    units = {str(one["unit"]) for one in holders if one.get("kind") == "service" and one.get("unit")}
    own = (PERSISTENCE, FABRIC_MANAGER)
    return [*own, *sorted({unit.removesuffix(".service") for unit in units} - set(own))]


def services(args: Json, found: Sequence[Card], facts: Facts) -> dict[str, str]:
    """The driver's services that are to run: part of the step's id -> unit."""
    names = {"persistence": PERSISTENCE} if args["persistence"] else {}
    needed = [name for one in fabric(found, facts) for name in one.needs]
    if args["fabric_manager"] == "auto" and "fabric_manager" in needed:
        names["fabric_manager"] = FABRIC_MANAGER
    return names


def _service_steps(args: Json, found: Sequence[Card], facts: Facts, context: Context) -> list[Step]:
    """After the modules: a fabric manager never meets another version than its own."""
    made: list[Step] = []
    for part, name in ({} if without_systemd(facts) else services(args, found, facts)).items():
        if not may_reboot(args, facts, context):
            wanted: Json = {"name": name, "state": "started", "enabled": True, "disruptive": False}
            made.append(context.step(part, "service", wanted, deadline_s=SERVICE_DEADLINE_S))
            continue
        # The modules may have to wait for the reboot, and these are then started by it.
        made.append(
            context.step(f"{part}_at_boot", "service", {"name": name, "enabled": True, "disruptive": False})
        )
        started = {"name": name, "state": "started", "disruptive": False}
        step = context.step(part, "service", started, deadline_s=SERVICE_DEADLINE_S)
        step["when"] = {"reboot_required": False}
        made.append(step)
    return made
