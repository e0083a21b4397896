"""One lab: bring it up, take it down, say how it is.

``up`` is idempotent: what is there and right stays, what is missing or was left half-made is made.
``down`` finds everything by label and leaves nothing of this lab; images stay, for the next ``up``.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.core.errors import RefusedError
from fleet.lab import hosts, registry
from fleet.lab.definition import HostDefinition, LabDefinition, load_definition
from fleet.lab.engine import LABEL, Engine, Progress, default_mtu
from fleet.lab.images import PYTORCH, TINY, Images
from fleet.lab.kernel import ensure_inotify
from fleet.lab.simulation import docker_repository, server, site
from fleet.lab.state import State

AT_ONCE = 8


def quiet(_line: str) -> None:
    """Progress that nobody reads."""


class Lab:
    """The lab of one definition. Raises RefusedError (exit 2) where this machine cannot run one."""

    def __init__(self, definition: LabDefinition, *, progress: Progress = quiet) -> None:
        self.definition = definition
        self.name = definition.name
        self.state = State(definition.state)
        self.engine = Engine()
        self._progress = progress

    @classmethod
    def load(cls, inventory: Path, name: str | None = None, *, progress: Progress = quiet) -> Lab:
        """The lab that ``inventory`` describes, called ``name`` (the file's stem)."""
        return cls(load_definition(Path(inventory), name), progress=progress)

    @functools.cached_property
    def images(self) -> Images:
        """The images of this machine's labs."""
        return Images(self.engine, self._progress)

    @property
    def place(self) -> hosts.Place:
        """Where this lab's hosts stand."""
        return hosts.Place(self.engine, self.images, self.state, self.definition)

    @property
    def members(self) -> tuple[HostDefinition, ...]:
        """Everything that is a host: the inventory's, and the bastion."""
        bastion = self.definition.bastion
        return (*self.definition.hosts, *([bastion] if bastion else []))

    def member(self, name: str) -> HostDefinition:
        """The host called ``name``, the bastion included."""
        return next((host for host in self.members if host.name == name), None) or self.definition.host(name)

    def renew(self, name: str) -> None:
        """Make one host anew, as ``up`` first made it, with the host keys it had."""
        with self.state.locked():
            host = self.member(name)
            if self.engine.inspect("container", self.place.container(name)):
                _remove_host(self.engine, self.place.container(name))
            self._ensure(self.place, host)

    def add_host(self, host: HostDefinition) -> HostDefinition:
        """Add a host that is not in the inventory, for as long as the lab is up.

        An empty ``address`` is filled in; what is returned has it.
        """
        with self.state.locked():
            ensure_inotify(len(self.engine.all_names()) + 1, self._progress)
            host = host if host.address else replace(host, address=self._free_address())
            self.images.build([host], registry=False)
            self.definition = replace(self.definition, hosts=(*self.definition.hosts, host))
            if self.definition.has_packages:
                server.ensure(self.place, self._progress)
            self._ensure(self.place, host)
            self._write_access()
        return host

    def remove_host(self, name: str) -> None:
        """Take a host away that :meth:`add_host` added."""
        with self.state.locked():
            if self.engine.inspect("container", self.place.container(name)):
                _remove_host(self.engine, self.place.container(name))
            kept = tuple(host for host in self.definition.hosts if host.name != name)
            self.definition = replace(self.definition, hosts=kept)
            self.state.forget_host(name)
            self._write_access()

    def _free_address(self) -> str:
        """An address of the outer network that no host of this lab has."""
        network = self.engine.inspect("network", self.place.network("outer")) or {}
        taken = {entry["IPv4Address"].split("/")[0] for entry in network.get("Containers", {}).values()}
        taken |= {host.address for host in self.members}
        taken |= {str(self.definition.outer[number]) for number in range(100)}
        return next(str(address) for address in self.definition.outer.hosts() if str(address) not in taken)

    def push(self, local: str, name: str) -> str:
        """Push the local image ``local`` to the lab's registry as ``NAME:TAG``; its digest there."""
        return registry.push_image(self.place, local, name)

    def up(self, *, take_over: bool = False) -> None:
        """Make the lab as its inventory says. ``take_over``: also where another checkout has it up.

        Raises RefusedError where the machine lacks something, a network is taken, or the lab of this
        name belongs to another state directory; LabFailed where a step fails.
        """
        self.engine.require()
        with self.state.locked():
            self._take_over(take_over)
            ensure_inotify(len(self.engine.all_names()) + len(self.members), self._progress)
            place = self.place
            place.images.build(list(self.members), registry=self.definition.registry)
            for kind, subnet in self._networks().items():
                self._ensure_network(kind, subnet)
            self.state.public_key()
            if self.definition.has_packages:
                server.ensure(place, self._progress)
            jobs: list[Callable[[], None]] = [
                functools.partial(self._ensure, place, host) for host in self.members
            ]
            if self.definition.registry:
                jobs.insert(0, functools.partial(self._ensure_registry, place))
            _all(jobs)
            self._write_state(place)

    def down(self) -> list[str]:
        """Remove every container, volume and network of this lab, and its state; what was removed."""
        self.engine.require()
        with self.state.locked():
            removed = remove_lab(self.engine, self.name)
            self.state.remove()
        return removed

    def status(self) -> dict[str, Any]:
        """How the lab is: ``{"lab", "up", "state", "hosts": [{"name", "address", "state", …}]}``."""
        self.engine.require()
        found = []
        for host in self.members:
            document = self.engine.inspect("container", self.place.container(host.name))
            state = document["State"]["Status"] if document else "absent"
            found.append(
                {"name": host.name, "address": host.address, "release": host.release, "state": state}
                | {"login": host.login, "behind_bastion": host.behind_bastion}
            )
        if self.definition.registry:
            document = self.engine.inspect("container", self.place.container(registry.HOST))
            state = document["State"]["Status"] if document else "absent"
            found.append({"name": registry.HOST, "address": registry.reference(""), "state": state})
        if self.definition.has_packages:
            document = self.engine.inspect("container", self.place.container(server.HOST))
            state = document["State"]["Status"] if document else "absent"
            found.append({"name": server.HOST, "address": site.NAME, "state": state})
        up = self.state.is_up and all(host["state"] == "running" for host in found)
        return {"lab": self.name, "up": up, "state": str(self.state.directory), "hosts": found}

    def _networks(self) -> dict[str, ipaddress.IPv4Network]:
        networks = {"outer": self.definition.outer}
        if self.definition.bastion or self.definition.registry:
            networks["inner"] = self.definition.inner
        return networks

    def _ensure_network(self, kind: str, subnet: ipaddress.IPv4Network) -> None:
        name = self.place.network(kind)
        existing = self.engine.inspect("network", name)
        if existing and existing["IPAM"]["Config"][0]["Subnet"] == str(subnet):
            return
        if existing:
            _remove_containers(self.engine, self.name)
            self.engine.docker("network", "rm", name)
        owner = owner_of(self.engine, subnet)
        if owner:
            variable = "lab_subnet" if kind == "outer" else "lab_inner_subnet"
            raise RefusedError(
                f"network {subnet} of lab {self.name} is taken by {owner}",
                remedy=f"take that down (`fleet lab down`), or give this lab another {variable}",
            )
        mtu = f"com.docker.network.driver.mtu={default_mtu()}"
        gateway = str(subnet[1])
        self.engine.docker(
            *("network", "create", "--subnet", str(subnet), "--gateway", gateway, "--opt", mtu),
            *("--label", f"{LABEL}={self.name}", name),
        )

    def _ensure(self, place: hosts.Place, host: HostDefinition) -> None:
        name = place.container(host.name)
        existing = self.engine.inspect("container", name)
        if existing is not None:
            labels = existing["Config"]["Labels"]
            right = labels.get(f"{LABEL}.recipe") == hosts.recipe(place, host)
            if right and hosts.is_marked(place, host.name):
                if existing["State"]["Status"] != "running":
                    self._progress(f"{host.name}: starting it again")
                    self.engine.docker("start", name)
                hosts.wait_until_up(place, host.name)
                return
            reason = "it was left half-made" if right else "its definition changed"
            self._progress(f"{host.name}: making it anew, {reason}")
            _remove_host(self.engine, name)
        self.engine.docker("volume", "rm", "--force", hosts.volume(name), check=False)
        hosts.create(place, host)
        hosts.set_up(place, host)
        self._progress(f"{host.name}: up at {host.address} ({host.release}, {host.login})")

    def _ensure_registry(self, place: hosts.Place) -> None:
        name = place.container(registry.HOST)
        existing = self.engine.inspect("container", name)
        if existing is not None and existing["Config"]["Labels"].get(f"{LABEL}.recipe") != registry.recipe(
            place
        ):
            _remove_host(self.engine, name)
            existing = None
        if existing is None:
            registry.create(place)
        elif existing["State"]["Status"] != "running":
            self.engine.docker("start", name)
        registry.wait_until_answers(place)
        if existing is None:
            self._progress(f"registry: up at {registry.reference('')[:-1]}, user {registry.USER}")

    def _write_access(self) -> None:
        """``known_hosts`` and ``ssh_config`` for the hosts there are."""
        self.state.write_known_hosts()
        self.state.write_ssh_config(
            {h.name: (h.address, h.user, "bastion" if h.behind_bastion else None) for h in self.members}
        )

    def _write_state(self, place: hosts.Place) -> None:
        self._write_access()
        variables: dict[str, Any] = {}
        if self.definition.registry:
            digests = place.images.digests()
            variables = {
                "lab_pytorch_digest": digests[PYTORCH],
                "lab_tiny_digest": digests[TINY],
                "lab_pytorch_image": registry.reference(PYTORCH),
                "lab_tiny_image": registry.reference(TINY),
            }
            self.state.write("image_digest", digests[PYTORCH] + "\n", 0o644)
        self.state.write_variables({**variables, **self._repository_keys()})
        self.state.finish(self.definition, {"images": variables})

    def _repository_keys(self) -> dict[str, str]:
        """The signing keys of the package server's repositories, as files; variables with their fingerprints."""
        if not self.definition.has_packages:
            return {}
        found = {}
        folder = self.state.directory / "packages/keys"
        keys = site.make_keys(folder)
        if self.definition.docker_systems:
            keys["docker_engine"] = docker_repository.key_of(folder)
        for name, key in keys.items():
            self.state.write(f"{name}.asc", key.armored(), 0o644)
            found[f"lab_{name}_key_fingerprint"] = key.fingerprint
        return found

    def _take_over(self, wanted: bool) -> None:
        """Deal with containers of this name that another state directory made."""
        strangers = {}
        for name in self.engine.names("container", self.name):
            document = self.engine.inspect("container", name)
            labels = document["Config"]["Labels"] if document else {}
            if labels and labels.get(f"{LABEL}.token") != self.state.token():
                strangers[name] = labels.get(f"{LABEL}.state", "")
        if not strangers:
            return
        owner = next(iter(strangers.values()))
        abandoned = owner == str(self.state.directory) or not State(Path(owner)).is_up
        if not wanted and not abandoned:
            raise RefusedError(
                f"a lab called {self.name} is up already, with its state in {owner}",
                remedy=f"fleet lab up … --name OTHER, or --replace to take that one down first (or set "
                f"FLEET_LAB_STATE={Path(owner).parent} to use it)",
            )
        self._progress(f"taking down the lab {self.name} that was made from {owner}")
        remove_lab(self.engine, self.name)


def remove_lab(engine: Engine, name: str) -> list[str]:
    """Remove every container, volume and network labelled as lab ``name``'s; their names."""
    removed = _remove_containers(engine, name)
    for kind in ("volume", "network"):
        for item in engine.names(kind, name):
            engine.docker(kind, "rm", item)
            removed.append(item)
    return removed


def _remove_containers(engine: Engine, name: str) -> list[str]:
    names = engine.names("container", name)
    _all([functools.partial(_remove_host, engine, container) for container in names])
    return names


def _remove_host(engine: Engine, container: str) -> None:
    """Remove a container, its volume, and the control groups of the containers inside it."""
    inside = engine.docker(
        "exec", container, "docker", "ps", "--all", "--quiet", "--no-trunc", check=False, deadline=30
    )
    engine.docker("rm", "--force", "--volumes", container)
    engine.docker("volume", "rm", "--force", hosts.volume(container), check=False)
    for identifier in inside.stdout.split() if inside.returncode == 0 else []:
        _remove_control_groups(identifier)


def _all(jobs: Iterable[Callable[[], object]]) -> None:
    """Run ``jobs`` side by side; wait for all of them; raise the first error."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(job) for job in jobs]
    for done in running:
        done.result()


def _remove_control_groups(container: str) -> None:
    """Remove what an inner engine left under ``/sys/fs/cgroup`` (it shares this machine's tree)."""
    for path in control_groups(container):
        with contextlib.suppress(OSError):
            path.rmdir()


def control_groups(container: str) -> list[Path]:
    """Control groups of a container by its full id, named as Docker's two drivers name them."""
    tree = Path("/sys/fs/cgroup")
    return [*tree.glob(f"**/docker/{container}"), *tree.glob(f"**/docker-{container}.scope")]


def owner_of(engine: Engine, subnet: ipaddress.IPv4Network) -> str | None:
    """The Docker network or route of this machine that overlaps ``subnet``, in words."""
    for name in engine.docker("network", "ls", "--format", "{{.Name}}").stdout.split():
        found = engine.inspect("network", name)
        for config in (found or {}).get("IPAM", {}).get("Config") or []:
            other = ipaddress.ip_network(config.get("Subnet", "::/128"))
            if isinstance(other, ipaddress.IPv4Network) and other.overlaps(subnet):
                return f"the Docker network {name} ({other})"
    for device, route in routes():
        if route.prefixlen and route.overlaps(subnet):
            return f"this machine's route {route} by {device}"
    return None


def routes() -> list[tuple[str, ipaddress.IPv4Network]]:
    """(device, destination) of this machine's IPv4 routes."""
    found = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        columns = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(columns[i])[::-1], "big") for i in (1, 7))
        found.append((columns[0], ipaddress.IPv4Network((address, bin(mask).count("1")))))
    return found
