"""What a lab consists of, read from the variables of its inventory.

A host variable that begins with ``lab_`` describes the host the lab makes; the others describe how
fleet reaches it, as in any inventory. ``docs/lab.md`` lists them all. Group variables describe the
lab as a whole: ``lab_subnet``, ``lab_inner_subnet``, ``lab_registry``,
``lab_docker_repository``, ``lab_state``.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.core.errors import InputError, Problem
from fleet.lab.simulation.docker_repository import SUITES
from fleet.lab.simulation.hardware import hardware, validate
from fleet.lab.simulation.packages import DEBIANS, DRIVERS, KERNELS, OLD_DRIVERS, TOOLKITS, drivers_of
from fleet.lab.variables import load_variables

RELEASES = ("bookworm", "trixie", "bullseye")
LOGINS = ("root", "sudo_password", "sudo_nopasswd", "no_sudo")
PYTHONS = ("full", "minimal", "none")
SHELLS = ("bash", "csh", "fish")
DRESSES = ("ubuntu2204", "ubuntu2404")

BASTION_OCTET = 2
REGISTRY_OCTET = 3
PACKAGES_OCTET = 4
REGISTRY_NAME = "registry.lab"
REGISTRY_PORT = 5000


@dataclass(frozen=True)
class HostDefinition:
    """One host of the lab.

    ``login``: how root is had; any but ``root`` makes the user ``user``. ``memory`` is Docker's
    ``--memory`` (``"512m"``). ``daemon_json`` is written before the host's engine first starts;
    ``foreign_containers`` are started in it and stand for the work of others. ``hardware`` is the hardware
    file of a simulated GPU host (:mod:`fleet.lab.simulation`); ``driver`` the version somebody installed on
    it by hand; ``dress`` the system it pretends to be. Without ``public_internet`` it reaches the lab only.
    ``real_modules``: Debian's own kernel, headers, dkms and modprobe, and its component non-free; only the
    PCI bus and the kernel's release are simulated.
    """

    name: str
    address: str
    release: str = "bookworm"
    login: str = "root"
    user: str = "root"
    python: str = "full"
    shell: str = "bash"
    packages: tuple[str, ...] = ()
    foreign_containers: tuple[str, ...] = ()
    daemon_json: Mapping[str, Any] | None = None
    kill_user_processes: bool = False
    noisy_profile: bool = False
    behind_bastion: bool = False
    memory: str | None = None
    # Not in the repr, which is part of every host's recipe: :func:`fleet.lab.hosts.recipe` adds them.
    hardware: Mapping[str, Any] | None = field(default=None, repr=False)
    dress: str | None = field(default=None, repr=False)
    driver: str | None = field(default=None, repr=False)
    driver_modules: str = field(default="proprietary", repr=False)
    driver_upgraded: str | None = field(default=None, repr=False)
    fabric_manager: str | None = field(default=None, repr=False)
    toolkit: str | None = field(default=None, repr=False)
    unattended_upgrades: bool = field(default=False, repr=False)
    public_internet: bool = field(default=True, repr=False)
    real_modules: bool = field(default=False, repr=False)

    @property
    def all_packages(self) -> tuple[str, ...]:
        """Debian packages baked into this host's image, sorted, beyond those every host has."""
        wanted = set(self.packages)
        wanted |= {"full": {"python3"}, "minimal": {"python3-minimal"}, "none": set()}[self.python]
        if self.shell != "bash":
            wanted.add(self.shell)
        if self.foreign_containers or self.daemon_json is not None:
            wanted.add("docker.io")
        if self.unattended_upgrades:
            wanted.add("unattended-upgrades")
        if not self.public_internet:
            wanted.add("iptables")
        return tuple(sorted(wanted))


@dataclass(frozen=True)
class LabDefinition:
    """A whole lab. ``inner`` is the network that only the bastion and the registry share with ``outer``."""

    name: str
    inventory: Path
    state: Path
    outer: ipaddress.IPv4Network
    inner: ipaddress.IPv4Network
    hosts: tuple[HostDefinition, ...]
    registry: bool = False
    docker_repository: bool = False
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def bastion(self) -> HostDefinition | None:
        """The bastion, where a host needs one."""
        if not any(host.behind_bastion for host in self.hosts):
            return None
        return HostDefinition("bastion", str(self.outer[BASTION_OCTET]), python="none")

    @property
    def has_packages(self) -> bool:
        """Whether the lab has a package server: for simulated GPUs, Docker's repository, or as a mirror."""
        needed = (host.hardware is not None or not host.public_internet for host in self.hosts)
        return self.docker_repository or any(needed)

    @property
    def docker_systems(self) -> frozenset[str]:
        """The systems of the hosts (``debian12``) that the stand-in for Docker's repository serves."""
        if not self.docker_repository:
            return frozenset()
        found = {host.dress or DEBIANS[host.release] for host in self.hosts}
        return frozenset(found & set(SUITES)) or frozenset({"debian12"})

    def packages_address(self, host: HostDefinition) -> str:
        """Where ``host`` finds the package server: on the network it is on."""
        return str((self.inner if host.behind_bastion else self.outer)[PACKAGES_OCTET])

    def registry_address(self, host: HostDefinition) -> str:
        """Where ``host`` finds the registry: on the network it is on."""
        return str((self.inner if host.behind_bastion else self.outer)[REGISTRY_OCTET])

    def host(self, name: str) -> HostDefinition:
        """The host called ``name``; InputError naming those there are."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise InputError(
            f"lab {self.name} has no host {name}; it has {', '.join(h.name for h in self.hosts)}"
        )


def load_definition(inventory: Path, name: str | None = None) -> LabDefinition:
    """Read the lab that ``inventory`` describes; ``name`` defaults to the file's stem.

    Raises InputError listing everything that is wrong with it.
    """
    variables = load_variables(inventory)
    hosts = {host: values for host, values in variables.items() if "lab_release" in values}
    if not hosts:
        raise InputError(
            f"{inventory} describes no lab: none of its hosts has the variable lab_release",
            remedy="see docs/lab.md for the variables of a lab, and inventories/lab.yaml for an example",
        )
    problems: list[str] = []
    common = next(iter(hosts.values()))
    lab_name = name or inventory.stem
    outer = _network(common, "lab_subnet", "172.28.0.0/24", problems)
    inner = _network(common, "lab_inner_subnet", str(_next_network(outer)), problems)
    definition = LabDefinition(
        name=lab_name,
        inventory=inventory,
        state=_state(common, inventory, lab_name),
        outer=outer,
        inner=inner,
        hosts=tuple(_host(host, values, outer, inner, problems) for host, values in hosts.items()),
        registry=bool(common.get("lab_registry", False)),
        docker_repository=bool(common.get("lab_docker_repository", False)),
        variables=hosts,
    )
    problems += _duplicates(definition)
    if problems:
        raise InputError([Problem(None, f"{inventory}: {problem}") for problem in problems])
    return definition


def _state(common: Mapping[str, Any], inventory: Path, name: str) -> Path:
    """Where keys and passwords of this lab lie: FLEET_LAB_STATE/NAME, else beside ``lab_state``."""
    root = os.environ.get("FLEET_LAB_STATE")
    if root:
        return Path(root).resolve() / name
    declared = common.get("lab_state")
    parent = Path(str(declared)).parent if declared else inventory.parent / ".lab"
    return parent.resolve() / name


def default_kernel(release: str, dress: str | None) -> str:
    """The kernel that a simulated host of ``release``, dressed as ``dress``, boots if nothing else is said."""
    return KERNELS[dress or DEBIANS[release]][0]


def _network(
    common: Mapping[str, Any], variable: str, default: str, problems: list[str]
) -> ipaddress.IPv4Network:
    text = str(common.get(variable, default))
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        problems.append(f"{variable}: {error}")
        return ipaddress.IPv4Network(default)
    if network.prefixlen > 26:
        problems.append(f"{variable}: {text} is too small; a lab needs at least a /26")
    return network


def _next_network(network: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network((int(network.network_address) + network.num_addresses, network.prefixlen))


def _host(
    name: str,
    values: Mapping[str, Any],
    outer: ipaddress.IPv4Network,
    inner: ipaddress.IPv4Network,
    problems: list[str],
) -> HostDefinition:
    def chosen(variable: str, allowed: tuple[str, ...], default: str) -> str:
        value = str(values.get(variable, default))
        if value not in allowed:
            problems.append(f"{name}: {variable} must be one of {', '.join(allowed)}, not {value!r}")
            return default
        return value

    behind = bool(values.get("lab_behind_bastion", False))
    address = str(values.get("ansible_host", name))
    network = inner if behind else outer
    try:
        inside = ipaddress.IPv4Address(address) in network
    except ValueError:
        inside = False
    if not inside:
        which = "lab_inner_subnet" if behind else "lab_subnet"
        problems.append(f"{name}: ansible_host must be an address in {which} {network}, not {address!r}")
    daemon_json = values.get("lab_daemon_json")
    if daemon_json is not None and not isinstance(daemon_json, Mapping):
        problems.append(f"{name}: lab_daemon_json must be a mapping")
    user = str(values.get("ansible_user", "root"))
    login = chosen("lab_login", LOGINS, "root" if user == "root" else "sudo_nopasswd")
    if (login == "root") != (user == "root"):
        problems.append(f"{name}: lab_login {login} does not go with ansible_user {user}")
    release = chosen("lab_release", RELEASES, "bookworm")
    dress = chosen("lab_dress", DRESSES, DRESSES[0]) if "lab_dress" in values else None
    gpus = _hardware(name, values.get("lab_gpus"), default_kernel(release, dress), problems)
    return HostDefinition(
        name=name,
        address=address,
        release=release,
        login=login,
        user=user,
        python=chosen("lab_python", PYTHONS, "full"),
        shell=chosen("lab_shell", SHELLS, "bash"),
        packages=tuple(str(package) for package in values.get("lab_packages", ())),
        foreign_containers=tuple(str(item) for item in values.get("lab_foreign_containers", ())),
        daemon_json=daemon_json,
        kill_user_processes=bool(values.get("lab_kill_user_processes", False)),
        noisy_profile=bool(values.get("lab_noisy_profile", False)),
        behind_bastion=behind,
        memory=str(values["lab_memory"]) if "lab_memory" in values else None,
        hardware=gpus,
        dress=dress,
        driver=_driver(name, values.get("lab_driver"), gpus, release, dress, problems),
        driver_modules=chosen("lab_driver_modules", ("proprietary", "open"), "proprietary"),
        driver_upgraded=_upgraded(name, "lab_driver_upgraded", values, problems),
        fabric_manager=_upgraded(name, "lab_fabric_manager", values, problems),
        toolkit=_toolkit(name, values.get("lab_toolkit"), gpus, problems),
        unattended_upgrades=bool(values.get("lab_unattended_upgrades", False)),
        public_internet=bool(values.get("lab_public_internet", True)),
        real_modules=_real_modules(name, values, release, dress, gpus, problems),
    )


def _driver(
    name: str,
    value: object,
    hardware: Mapping[str, Any] | None,
    release: str,
    dress: str | None,
    problems: list[str],
) -> str | None:
    if value is None:
        return None
    known = list(drivers_of(dress or DEBIANS[release], (*DRIVERS, *OLD_DRIVERS)))
    if str(value) not in known:
        problems.append(f"{name}: lab_driver must be one of {', '.join(known)}, not {value!r}")
    if hardware is None:
        problems.append(f"{name}: lab_driver needs lab_gpus")
    return str(value)


def _upgraded(name: str, variable: str, values: Mapping[str, Any], problems: list[str]) -> str | None:
    """A version of the driver or of a part of it, beside the one that is loaded."""
    value = values.get(variable)
    if value is None:
        return None
    if str(value) not in DRIVERS:
        problems.append(f"{name}: {variable} must be one of {', '.join(DRIVERS)}, not {value!r}")
    if "lab_driver" not in values:
        problems.append(f"{name}: {variable} needs lab_driver")
    return str(value)


def _toolkit(name: str, value: object, hardware: Mapping[str, Any] | None, problems: list[str]) -> str | None:
    if value is None:
        return None
    if str(value) not in TOOLKITS:
        problems.append(f"{name}: lab_toolkit must be one of {', '.join(TOOLKITS)}, not {value!r}")
    if hardware is None:
        problems.append(f"{name}: lab_toolkit needs lab_gpus")
    return str(value)


def _real_modules(
    name: str,
    values: Mapping[str, Any],
    release: str,
    dress: str | None,
    hardware: Mapping[str, Any] | None,
    problems: list[str],
) -> bool:
    wanted = bool(values.get("lab_real_modules", False))
    if wanted and (hardware is None or dress is not None or release == "bullseye" or "lab_driver" in values):
        problems.append(
            f"{name}: lab_real_modules needs lab_gpus, Debian 12 or newer, and nothing in disguise"
        )
    return wanted


def _hardware(name: str, value: object, kernel: str, problems: list[str]) -> Mapping[str, Any] | None:
    """``lab_gpus``: ``{model: h100-sxm, count: 8, …}`` (arguments of ``hardware``), or a whole hardware file."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        problems.append(f"{name}: lab_gpus must be a mapping such as {{model: t4, count: 2}}")
        return None
    try:
        if "schema" in value:
            validate(value, f"{name}: lab_gpus")
            return value
        return hardware(**{"seed": name, "kernel": kernel, **value})
    except (InputError, TypeError) as error:
        problems.append(f"{name}: lab_gpus: {error}")
        return None


def _duplicates(definition: LabDefinition) -> list[str]:
    """Addresses given twice, or kept for the bastion, the registry and the gateway."""
    taken: dict[str, str] = {}
    for network in (definition.outer, definition.inner):
        taken[str(network[1])] = "the gateway"
        taken[str(network[BASTION_OCTET])] = "the bastion"
        taken[str(network[REGISTRY_OCTET])] = "the registry"
        if definition.has_packages:
            taken[str(network[PACKAGES_OCTET])] = "the package server"
    found = []
    for host in definition.hosts:
        if host.address in taken:
            found.append(f"{host.name}: address {host.address} is taken by {taken[host.address]}")
        taken[host.address] = host.name
    return found
