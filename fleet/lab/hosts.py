"""Making one lab host: a container that is a machine to whoever logs in to it.

Its files are put in place before its first start (:func:`first_files`), the rest is done by a shell
script inside it (:func:`set_up_script`), and the marker ``/etc/fleet-lab.json`` is written last: a
host without it was interrupted half-way and is made anew.
"""

from __future__ import annotations

import io
import json
import secrets
import shlex
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.errors import FleetError
from fleet.lab import closed
from fleet.lab.definition import BASTION_OCTET, REGISTRY_NAME, HostDefinition, LabDefinition
from fleet.lab.engine import LABEL, Engine, bounding_capabilities, wait_until
from fleet.lab.images import Images
from fleet.lab.simulation import payload
from fleet.lab.simulation.site import NAME as PACKAGES_NAME
from fleet.lab.state import State

MARKER = "/etc/fleet-lab.json"
CONTROL_GROUPS = "/sys/fs/cgroup:/sys/fs/cgroup:rw"
# Where Debian has NVIDIA's driver, what it needs, and its firmware.
_DRIVER_COMPONENTS = "contrib non-free non-free-firmware"
NOISE = "*** Authorised use only. Maintenance on Sunday. ***"


@dataclass(frozen=True)
class File:
    """Content and mode of one file of root's."""

    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class Place:
    """Where a host stands: its lab, its networks, its files."""

    engine: Engine
    images: Images
    state: State
    definition: LabDefinition

    def container(self, host: str) -> str:
        """Name of the container of ``host``."""
        return f"fleet-lab-{self.definition.name}-{host}"

    def network(self, kind: str) -> str:
        """Name of the network ``outer`` or ``inner``."""
        return f"fleet-lab-{self.definition.name}-{kind}"

    def labels(self, host: str, recipe: str) -> list[str]:
        """``--label`` words by which ``down`` finds a thing and ``up`` knows it again."""
        pairs = {
            LABEL: self.definition.name,
            f"{LABEL}.host": host,
            f"{LABEL}.state": str(self.state.directory),
            f"{LABEL}.token": self.state.token(),
            f"{LABEL}.recipe": recipe,
        }
        return [word for name, value in pairs.items() for word in ("--label", f"{name}={value}")]

    def put(self, container: str, files: Mapping[str, File]) -> None:
        """Put root's ``files`` into ``container``, running or not."""
        self.engine.docker("cp", "-", f"{container}:/", stdin=_archive(files))


def create(place: Place, host: HostDefinition) -> None:
    """Create and start the container of ``host``; it has an address and keys, nothing else yet."""
    name = place.container(host.name)
    # Labelled, so that `down` finds it even after somebody removed the container by hand.
    label = f"{LABEL}={place.definition.name}"
    place.engine.docker("volume", "create", "--label", label, volume(name))
    command = boot_command(host)
    place.engine.docker("create", *_options(place, host), place.images.host(host), *command, deadline=300)
    if host.name == "bastion":
        inner = str(place.definition.inner[BASTION_OCTET])
        place.engine.docker("network", "connect", "--ip", inner, place.network("inner"), name)
    place.put(name, first_files(place, host))
    place.engine.docker("start", name)


def boot_command(host: HostDefinition) -> tuple[str, ...]:
    """What the container runs where it is not the image's own: what must be done before systemd starts."""
    before = [f"/{payload.REAL_BOOT if host.real_modules else payload.BOOT}"] if host.hardware else []
    before += [f"/{closed.SCRIPT}"] if not host.public_internet else []
    return ("sh", "-c", "; ".join([*before, "exec /sbin/fleet-lab-boot"])) if before else ()


def volume(container: str) -> str:
    """Name of the volume under ``/var/lib/docker`` of ``container``."""
    return f"{container}-docker"


def recipe(place: Place, host: HostDefinition) -> str:
    """What the container of ``host`` is made from; another value means it must be made anew."""
    foreign = place.images.tiny() if host.foreign_containers else ""
    simulated = f" {payload.recipe(host)}" if host.hardware or host.dress else ""
    simulated += " unattended" if host.unattended_upgrades else ""
    if not host.public_internet:
        simulated += f" {sorted(closed.files(place.definition, host, place.images.machine).items())!r}"
    return f"{place.images.host(host)} {host!r} {foreign}{simulated}"


def _options(place: Place, host: HostDefinition) -> list[str]:
    """Words of ``docker create``. Each was found necessary; docs/lab.md says for what."""
    network = place.network("inner" if host.behind_bastion else "outer")
    options = ["--name", place.container(host.name), "--hostname", host.name]
    options += place.labels(host.name, recipe(place, host))
    options += ["--restart", "unless-stopped", "--network", network, "--ip", host.address]
    for capability in sorted(bounding_capabilities()):
        options += ["--cap-add", capability]
    options += ["--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"]
    options += ["--security-opt", "apparmor=unconfined", "--device-cgroup-rule", "a *:* rwm"]
    options += ["--stop-signal", "SIGRTMIN+3", "--env", "container=docker"]
    options += ["--tmpfs", "/run", "--tmpfs", "/tmp:exec"]  # noqa: S108 - the host's own
    options += ["--cgroupns=host", "--volume", CONTROL_GROUPS]
    # On the container's own overlay an engine inside falls back to vfs, and fails on rename.
    options += ["--volume", f"{volume(place.container(host.name))}:/var/lib/docker"]
    if place.definition.registry:
        options += ["--add-host", f"{REGISTRY_NAME}:{place.definition.registry_address(host)}"]
    if place.definition.has_packages:
        options += ["--add-host", f"{PACKAGES_NAME}:{place.definition.packages_address(host)}"]
    if host.behind_bastion:
        options += ["--env", f"FLEET_LAB_UNREACHABLE_FROM={place.definition.inner[1]}"]
    if host.memory:
        options += ["--memory", host.memory]
    return options


def first_files(place: Place, host: HostDefinition) -> dict[str, File]:
    """What must lie on the host before systemd and sshd first run: identity and access."""
    files = {
        "etc/machine-id": File(secrets.token_hex(16) + "\n", 0o444),
        "root/.ssh/authorized_keys": File(place.state.public_key(), 0o600),
    }
    files |= host_key_files(place.state.host_keys(host.name, host.address))
    if host.kill_user_processes:
        files["etc/systemd/logind.conf.d/10-kill.conf"] = File("[Login]\nKillUserProcesses=yes\n")
    if host.daemon_json is not None:
        files["etc/docker/daemon.json"] = File(json.dumps(host.daemon_json, indent=4) + "\n")
    if host.hardware is not None and host.real_modules:
        real = payload.real_files(
            host.hardware, place.images.machine.sources(host.release, _DRIVER_COMPONENTS)
        )
        files |= {path: File(content, mode) for path, (content, mode) in real.items()}
    elif host.hardware is not None:
        key = (place.state.directory / "packages/www/kernels/key.asc").read_text()
        simulated = payload.files(host.hardware, key, payload.distribution(host.release, host.dress))
        files |= {path: File(content, mode) for path, (content, mode) in simulated.items()}
    if host.unattended_upgrades:
        settings = payload.unattended_upgrades(payload.distribution(host.release, host.dress))
        files |= {path: File(content, mode) for path, (content, mode) in settings.items()}
    if not host.public_internet:
        rules = closed.files(place.definition, host, place.images.machine)
        files |= {path: File(content, mode) for path, (content, mode) in rules.items()}
    if host.noisy_profile:
        files["etc/motd"] = File(f"{NOISE}\n")
        files["etc/profile.d/noise.sh"] = File(f"echo '{NOISE}'; echo '{NOISE}' >&2\n")
        files["root/.bashrc"] = File(f"echo '{NOISE}'; echo '{NOISE}' >&2\n")
        files["etc/ssh/sshd_config.d/banner.conf"] = File("Banner /etc/motd\n")
    return files


def host_key_files(keys: Mapping[str, str]) -> dict[str, File]:
    """``keys`` by file name, as files under ``/etc/ssh``."""
    return {
        f"etc/ssh/{name}": File(text, 0o644 if name.endswith(".pub") else 0o600)
        for name, text in keys.items()
    }


def set_up(place: Place, host: HostDefinition) -> None:
    """Wait until the host is up, make its users and the work of others on it, and mark it as done."""
    name = place.container(host.name)
    wait_until_up(place, host.name)
    place.engine.docker("exec", "--interactive", name, "sh", "-es", stdin=set_up_script(place, host))
    if host.login == "sudo_password":
        password = place.state.password(f"{host.name}.sudo_password")
        place.engine.docker("exec", "--interactive", name, "chpasswd", stdin=f"{host.user}:{password}\n")
    if host.foreign_containers:
        _start_foreign(place, host)
    marker = json.dumps({"lab": place.definition.name, "host": host.name}) + "\n"
    place.engine.docker(
        "exec",
        "--interactive",
        name,
        "sh",
        "-ec",
        f"cat > {MARKER}.new && mv {MARKER}.new {MARKER}",
        stdin=marker,
    )


def set_up_script(place: Place, host: HostDefinition) -> str:
    """Shell, run once as root inside the host."""
    lines = []
    home = "/root"
    if host.user != "root":
        home = f"/home/{host.user}"
        user = shlex.quote(host.user)
        lines += [
            f"id {user} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {user}",
            f"install -d -m 700 -o {user} -g {user} {home}/.ssh",
            f"install -m 600 -o {user} -g {user} /root/.ssh/authorized_keys {home}/.ssh/authorized_keys",
            "rm /root/.ssh/authorized_keys",
        ]
        if host.noisy_profile:
            lines.append(f"install -m 644 -o {user} -g {user} /root/.bashrc {home}/.bashrc")
    if host.login == "sudo_password":
        lines.append(f"usermod --append --groups sudo {host.user}")
    if host.login == "sudo_nopasswd":
        lines += [
            f"echo '{host.user} ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/{host.user}",
            f"chmod 440 /etc/sudoers.d/{host.user}",
        ]
    if host.shell != "bash":
        lines.append(f'usermod --shell "$(command -v {host.shell})" {host.user}')
    if host.dress:
        lines += payload.dress_script(host.dress)
    if host.hardware is not None and host.real_modules:
        lines += payload.real_set_up_script()
    elif host.hardware is not None:
        lines += payload.set_up_script(host.hardware)
    lines += payload.driver_script(host)
    if host.toolkit is not None:
        lines += payload.toolkit_script(host.toolkit)
    return "\n".join([*lines, "true"]) + "\n"


def _start_foreign(place: Place, host: HostDefinition) -> None:
    """Containers that fleet did not start and must leave alone."""
    name = place.container(host.name)
    wait_until(
        lambda: place.engine.docker("exec", name, "docker", "version", check=False).returncode == 0,
        "its Docker Engine answers",
        host=host.name,
    )
    with tempfile.TemporaryDirectory(prefix="fleet-lab-") as folder:
        archive = f"{folder}/tiny.tar"
        place.engine.docker("save", "--output", archive, place.images.tiny())
        place.engine.docker("cp", archive, f"{name}:/root/tiny.tar")
    inside = ("exec", name, "docker")
    place.engine.docker(*inside, "load", "--quiet", "--input", "/root/tiny.tar")
    place.engine.docker("exec", name, "rm", "/root/tiny.tar")
    for container in host.foreign_containers:
        image = f"{container}:local"
        place.engine.docker(*inside, "tag", place.images.tiny(), image)
        place.engine.docker(
            *inside, "run", "--detach", "--restart", "unless-stopped", "--name", container, image
        )
    place.engine.docker(*inside, "image", "rm", place.images.tiny())


def wait_until_up(place: Place, host: str) -> None:
    """Wait until systemd on ``host`` has started sshd."""
    name = place.container(host)
    active = ("exec", name, "systemctl", "is-active", "--quiet", "ssh.service")

    def started() -> bool:
        return place.engine.docker(*active, check=False, deadline=60).returncode == 0

    try:
        wait_until(started, "systemd has started sshd on it", host=host)
    except FleetError as error:
        logs = place.engine.docker("logs", "--tail", "10", name, check=False)
        error.remedy = f"see `docker logs {name}`: {(logs.stdout + logs.stderr).strip()[-500:]}"
        raise


def is_marked(place: Place, host: str) -> bool:
    """Whether ``host`` was set up to its end. The host may be stopped."""
    return place.engine.docker("cp", f"{place.container(host)}:{MARKER}", "-", check=False).returncode == 0


def _archive(files: Mapping[str, File]) -> bytes:
    """A tar stream of ``files`` and the directories they are in, all root's."""
    buffer = io.BytesIO()
    private = {"root/.ssh": 0o700}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in ("root/.ssh", "etc/systemd/logind.conf.d", "etc/docker"):
            if any(path.startswith(f"{folder}/") for path in files):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, private.get(folder, 0o755)
                archive.addfile(entry)
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            content = file.content.encode()
            entry.size, entry.mode = len(content), file.mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
