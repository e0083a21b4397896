"""Images the lab's hosts are made of, built once and kept under a tag that names their recipe.

::

    base-RELEASE      debootstrap --variant=minbase            (one per Debian release)
    host-RELEASE-…    + systemd, sshd, sudo and the packages of one kind of host
    pytorch-…         base-bookworm + Python + a real CPU torch
    pytorch-lab-…     + the backend of simulated benchmarks (what hosts are provisioned to run)
tiny-…            a static busybox (fault tests; work of others)
torch-stand-in-…  base-bookworm + Python + a simulated torch of one build (simulation/torch_image)
    registry-…        base-bookworm + docker-registry that already holds the two above

A recipe is everything an image depends on, hashed; a second ``up`` finds the tag and builds nothing.
No key, machine id or password is in any of them.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import ssl
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.core.errors import RefusedError
from fleet.lab.definition import RELEASES, HostDefinition
from fleet.lab.engine import Engine, LabFailed, Progress, run, wait_until
from fleet.lab.simulation import image

REPOSITORY = "fleet-lab"
PYTORCH = "pytorch-cuda:2.7-lab"
TINY = "tiny:1"
TORCH_VERSION = "2.13.0"
TORCH_PACKAGES = (f"torch=={TORCH_VERSION}", "numpy==2.3.5")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
HOST_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "libpam-systemd",
    "openssh-server",
    "sudo",
    "iproute2",
    "kmod",
)
# Device management, consoles that do not exist, and timers that would take apt's lock at random.
MASKED_UNITS = (
    "systemd-udevd.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    "getty.target",
    "console-getty.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
)


@dataclass(frozen=True)
class Machine:
    """What this machine's apt can reach and how, given to every host alike."""

    mirror: str
    security: str
    apt_options: str
    certificates: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls) -> Machine:
        """From this machine's own apt sources and settings; debootstrap's default where there is none of Debian."""
        mirror = _default_mirror()
        security = f"{mirror}-security"
        if shutil.which("apt-get"):
            listed = run(
                ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], check=False
            )
            sites = [uri.rstrip("/") for uri in listed.stdout.split()]
            mirror = next((uri for uri in sites if uri.endswith("/debian")), mirror)
            security = next((uri for uri in sites if uri.endswith("/debian-security")), security)
        return cls(mirror, security, _apt_options(), _own_certificates())

    def sources(self, release: str, components: str = "main") -> str:
        """``sources.list`` of a host with ``release``."""
        return "".join(
            f"deb {uri} {suite} {components}\n"
            for uri, suite in (
                (self.mirror, release),
                (self.mirror, f"{release}-updates"),
                (self.security, f"{release}-security"),
            )
        )


def _default_mirror(debootstrap: Path = Path("/usr/sbin/debootstrap")) -> str:
    """FLEET_LAB_MIRROR, else what debootstrap itself takes (an Ubuntu machine's own sources have no Debian)."""
    named = os.environ.get("FLEET_LAB_MIRROR", "")
    if named:
        return named.rstrip("/")
    with contextlib.suppress(OSError):
        found = re.search(r'^DEF_MIRROR="(\S+)"', debootstrap.read_text(), re.MULTILINE)
        return found[1].rstrip("/") if found else ""
    return ""


def _apt_options() -> str:
    """The settings without which apt here would not reach its mirror: proxies, TLS, date checks."""
    if not shutil.which("apt-config"):
        return ""
    kept = re.compile(r"^Acquire::(https?|ftp)?::?(Proxy|CaInfo|Verify|.*-Date|Check-)", re.IGNORECASE)
    dump = run(["apt-config", "dump", "Acquire"], check=False).stdout.splitlines()
    wanted = [line for line in dump if kept.search(line) or line.startswith("Acquire::Check-")]
    return "".join(f"{line}\n" for line in wanted)


def _own_certificates() -> tuple[tuple[str, str], ...]:
    folder = Path("/usr/local/share/ca-certificates")
    return tuple((path.name, path.read_text()) for path in sorted(folder.glob("*.crt")))


class Images:
    """Builds what is missing. ``progress`` gets one line for everything that takes long."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine = engine
        self._progress = progress
        self.machine = Machine.read()
        self._base_locks = {release: threading.Lock() for release in RELEASES}

    def host(self, host: HostDefinition) -> str:
        """Tag of the image ``host`` is made of."""
        recipe = _hash(self.base(host.release), _BOOT_SCRIPT, HOST_PACKAGES, MASKED_UNITS, host.all_packages)
        return f"{REPOSITORY}/host-{host.release}:{recipe}"

    def base(self, release: str) -> str:
        """Tag of the bootstrapped release."""
        recipe = _hash(release, self.machine.sources(release), self.machine.apt_options)
        recipe = _hash(recipe, self.machine.certificates, _CLEAN, "ca-certificates")
        return f"{REPOSITORY}/base-{release}:{recipe}"

    def torch(self) -> str:
        """Tag of the image with torch and nothing of the lab's."""
        return f"{REPOSITORY}/pytorch:{_hash(self.base('bookworm'), TORCH_PACKAGES)}"

    def small_python(self) -> str:
        """Tag of the image with Python alone, on which stand-ins of other images are made."""
        return f"{REPOSITORY}/python:{_hash(self.base('bookworm'), 'python3', _CLEAN)}"

    def pytorch(self) -> str:
        """Tag of the image with torch and the backend of simulated benchmarks."""
        return f"{REPOSITORY}/pytorch-lab:{_hash(self.torch(), sorted(image.distribution().items()))}"

    def tiny(self) -> str:
        """Tag of the busybox image."""
        return f"{REPOSITORY}/tiny:{_hash(self.base('bookworm'), 'busybox-static', _TINY_COMMAND)}"

    def registry(self) -> str:
        """Tag of the registry that holds :data:`PYTORCH` and :data:`TINY`."""
        return f"{REPOSITORY}/registry:{_hash(self.pytorch(), self.tiny(), _STOCKED_CONFIG, 1)}"

    def digests(self) -> dict[str, str]:
        """``{"pytorch-cuda:2.7-lab": "sha256:…"}`` of what the registry image holds."""
        found = self._engine.inspect("image", self.registry())
        if found is None:
            raise LabFailed(f"image {self.registry()} is missing")
        digests: dict[str, str] = json.loads(found["Config"]["Labels"]["fleet.lab.digests"])
        return digests

    def build(self, hosts: list[HostDefinition], *, registry: bool) -> None:
        """Make every image that ``hosts`` (and the registry) need and that is not there yet."""
        if not self._missing(hosts, registry):
            return
        with _one_builder():
            self._remove_abandoned()
            jobs = self._missing(hosts, registry)
            with concurrent.futures.ThreadPoolExecutor(max(len(jobs), 1)) as pool:
                for done in [pool.submit(job) for job in jobs]:
                    done.result()

    def _missing(self, hosts: list[HostDefinition], registry: bool) -> list[Callable[[], None]]:
        """One piece of work per Debian release, and one for everything in containers."""
        by_tag = {self.host(host): host for host in hosts}
        absent = [host for tag, host in by_tag.items() if self._engine.image_id(tag) is None]
        jobs: list[Callable[[], None]] = [
            functools.partial(self._build_hosts, [host for host in absent if host.release == release])
            for release in sorted({host.release for host in absent})
        ]
        if registry and self._engine.image_id(self.registry()) is None:
            jobs.append(self._build_registry)
        elif any(host.foreign_containers for host in hosts) and self._engine.image_id(self.tiny()) is None:
            jobs.append(self._build_tiny)
        return jobs

    def _remove_abandoned(self) -> None:
        """Containers of a build that was killed: nobody else builds now, so whatever is there is one."""
        listed = self._engine.docker("ps", "--all", "--quiet", "--filter", f"name=^{_BUILDING}")
        if listed.stdout.split():
            self._engine.docker("rm", "--force", "--volumes", *listed.stdout.split())

    def purge(self) -> list[str]:
        """Remove every image the lab ever built here; the tags removed. RefusedError while any lab is up."""
        if others := self._engine.all_names():
            raise RefusedError(
                f"the images are in use: {len(others)} hosts of other labs are up ({', '.join(others[:3])} …)",
                remedy="take those labs down first; their next `up` would have to make the images again",
            )
        listed = self._engine.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
        tags = [tag for tag in listed if tag.startswith(f"{REPOSITORY}/")]
        for tag in tags:
            self._engine.docker("image", "rm", "--force", tag, check=False)
        return tags

    def _build_base(self, release: str) -> str:
        tag = self.base(release)
        with self._base_locks[release]:
            if self._engine.image_id(tag) is None:
                self._progress(f"image base-{release}: bootstrapping from this machine's Debian mirror")
                self._bootstrap(release, tag)
        return tag

    def _bootstrap(self, release: str, tag: str) -> None:
        if shutil.which("debootstrap") is None:
            raise RefusedError(
                "the lab's images are made with debootstrap, which is not on this machine",
                remedy="run ./scripts/setup as root, or install debootstrap",
            )
        with _work_folder() as folder:
            root = folder / "root"
            include = "--include=ca-certificates"
            run(["debootstrap", "--variant=minbase", include, release, root, self.machine.mirror])
            (root / "etc/apt/sources.list").write_text(self.machine.sources(release))
            (root / "etc/apt/apt.conf.d/90machine").write_text(self.machine.apt_options)
            for name, text in self.machine.certificates:
                (root / "usr/local/share/ca-certificates" / name).write_text(text)
            if self.machine.certificates:
                run(["chroot", root, "update-ca-certificates"])
            run(["chroot", root, "sh", "-c", _CLEAN])
            archive = folder / "root.tar"
            run(["tar", "--directory", root, "--create", "--file", archive, "--one-file-system", "."])
            self._engine.docker("import", archive, tag)

    def _build_hosts(self, hosts: list[HostDefinition]) -> None:
        for host in hosts:
            base = self._build_base(host.release)
            wanted = [*HOST_PACKAGES, *host.all_packages]
            self._progress(f"image host-{host.release}: adding {', '.join(wanted)}")
            with self._container(base) as container:
                self._install(container, wanted)
                self._shell(container, f"systemctl mask {' '.join(MASKED_UNITS)}")
                self._shell(container, f"rm -f /etc/ssh/ssh_host_* /etc/machine-id; {_CLEAN}")
                self._shell(
                    container, "cat > /sbin/fleet-lab-boot && chmod 755 /sbin/fleet-lab-boot", _BOOT_SCRIPT
                )
                self._commit(container, self.host(host), 'CMD ["/sbin/fleet-lab-boot"]')

    def download(self, release: str, packages: Sequence[str]) -> list[bytes]:
        """Debian's own ``.deb`` files of ``release``, in memory."""
        found = []
        with self._container(self._build_base(release)) as container, _work_folder() as folder:
            fetch = f"apt-get update -q && cd /srv && apt-get download -q {' '.join(packages)}"
            self._shell(container, fetch)
            self._engine.docker("cp", f"{container}:/srv/.", folder)
            for path in sorted(folder.glob("*.deb")):
                found.append(path.read_bytes())
        return found

    def ensure_tiny(self) -> str:
        """The tag of the busybox image, which is made if it is not here (the registry holds it in any case)."""
        self._build_tiny()
        return self.tiny()

    def _build_tiny(self) -> None:
        if self._engine.image_id(self.tiny()) is not None:
            return
        base = self._build_base("bookworm")
        self._progress("image tiny: a static busybox")
        with _work_folder() as folder, self._container(base) as container:
            self._install(container, ["busybox-static"])
            root = folder / "root"
            (root / "bin").mkdir(parents=True)
            self._engine.docker("cp", f"{container}:/bin/busybox", root / "bin/busybox")
            for name in ("sh", "sleep", "echo", "cat", "true", "false", "env", "id", "ls", "wget", "nc"):
                (root / "bin" / name).symlink_to("busybox")
            archive = folder / "root.tar"
            run(["tar", "--directory", root, "--create", "--file", archive, "--owner=0", "--group=0", "."])
            self._engine.docker("import", "-c", f"CMD {json.dumps(_TINY_COMMAND)}", archive, self.tiny())

    def _build_pytorch(self) -> None:
        """The small part on top of torch, which changes oftener."""
        if self._engine.image_id(self.pytorch()) is not None:
            return
        self._build_torch()
        self._progress("image pytorch-lab: putting the backend of simulated benchmarks into it")
        with _work_folder() as folder, self._container(self.torch()) as container:
            for path, text in image.distribution().items():
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text(text, encoding="utf-8")
            self._engine.docker("cp", f"{folder}/.", f"{container}:{_SITE}")
            self._shell(
                container,
                f"chown -R root:root {_SITE}/fleet_lab* && python3 -m compileall -q {_SITE}/fleet_lab*",
            )
            self._commit(container, self.pytorch(), 'CMD ["python3"]')

    def ensure_pytorch(self) -> str:
        """The tag of the image with torch, which is made if it is not here."""
        with _one_builder():
            self._build_pytorch()
        return self.pytorch()

    def ensure_small_python(self) -> str:
        """The tag of the image with Python alone, which is made if it is not here."""
        with _one_builder():
            self._build_small_python()
        return self.small_python()

    def on_small_python(self, name: str, files: Mapping[str, str], *changes: str) -> str:
        """Tag of an image ``name`` of Python with ``files`` in its site-packages; made if it is not here."""
        tag = f"{REPOSITORY}/{name}"
        with _one_builder():
            if self._engine.image_id(tag) is not None:
                return tag
            self._build_small_python()
            self._progress(f"image {name}: putting a simulated torch into it")
            with _work_folder() as folder, self._container(self.small_python()) as container:
                for path, text in files.items():
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_text(text, encoding="utf-8")
                self._engine.docker("cp", f"{folder}/.", f"{container}:{_SITE}")
                self._shell(container, f"chown -R root:root {_SITE}")
                self._commit(container, tag, 'CMD ["python3"]', *changes)
        return tag

    def _build_small_python(self) -> None:
        if self._engine.image_id(self.small_python()) is not None:
            return
        self._progress("image python: putting Python into it")
        with self._container(self._build_base("bookworm")) as container:
            self._install(container, ["python3"])
            self._shell(container, _CLEAN)
            self._commit(container, self.small_python())

    def _build_torch(self) -> None:
        if self._engine.image_id(self.torch()) is not None:
            return
        with _work_folder() as folder:
            self._progress(f"image pytorch: fetching {', '.join(TORCH_PACKAGES)}")
            _fetch_torch(folder / "site")
            base = self._build_base("bookworm")
            with self._container(base) as container:
                self._install(container, ["python3"])
                self._progress("image pytorch: putting torch into it")
                self._engine.docker("cp", f"{folder / 'site'}/.", f"{container}:{_SITE}")
                # Without bytecode every `docker run` would compile torch's 2,000 files anew.
                self._shell(
                    container, f"chown -R root:root {_SITE} && python3 -m compileall -q -j 2 {_SITE} || true"
                )
                self._shell(container, f"python3 -c 'import torch' && {_CLEAN}")
                self._commit(
                    container, self.torch(), 'CMD ["python3"]', f"ENV PYTORCH_VERSION={TORCH_VERSION}"
                )

    def _build_registry(self) -> None:
        """A registry image with the two images in it, and their digests in its label."""
        self._build_pytorch()
        self._build_tiny()
        base = self._build_base("bookworm")
        self._progress("image registry: pushing pytorch and tiny into it")
        with self._container(base, "--publish", "127.0.0.1::5000") as container:
            self._install(container, ["docker-registry"])
            self._shell(container, "cat > /etc/docker/registry/config.yml", _STOCKED_CONFIG)
            self._engine.docker("exec", "--detach", container, "docker-registry", "serve", REGISTRY_CONFIG)
            address = self._engine.docker("port", container, "5000/tcp").stdout.split()[0]
            wait_until(lambda: http_answers(address), "the registry being built answers")
            digests = {
                name: push(self._engine, local, f"{address}/{name}")
                for name, local in ((PYTORCH, self.pytorch()), (TINY, self.tiny()))
            }
            label = f"LABEL fleet.lab.digests={json.dumps(json.dumps(digests))}"
            self._shell(container, _CLEAN)
            self._commit(
                container, self.registry(), f'CMD ["docker-registry", "serve", "{REGISTRY_CONFIG}"]', label
            )

    @contextlib.contextmanager
    def _container(self, image: str, *options: str) -> Iterator[str]:
        """A container to build in, whose services do not start while packages are installed."""
        policy = "printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d"
        name = f"{_BUILDING}{secrets.token_hex(4)}"
        self._engine.docker("run", "--detach", "--name", name, *options, image, "sleep", "infinity")
        try:
            self._shell(name, policy)
            yield name
        finally:
            self._engine.docker("rm", "--force", "--volumes", name, check=False)

    def _shell(self, container: str, script: str, stdin: str | None = None) -> None:
        self._engine.docker("exec", "--interactive", container, "sh", "-ec", script, stdin=stdin)

    def _install(self, container: str, packages: list[str]) -> None:
        install = "DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends"
        self._shell(container, f"apt-get update -q && {install} {' '.join(packages)}")

    def _commit(self, container: str, tag: str, *changes: str) -> None:
        self._shell(container, "rm -f /usr/sbin/policy-rc.d")
        self._engine.docker("stop", "--time", "1", container)
        options = [word for change in changes for word in ("--change", change)]
        self._engine.docker("commit", *options, container, tag)


def push(engine: Engine, local: str, reference: str, configuration: Path | None = None) -> str:
    """Push a local image as ``reference``; the digest the registry now has it under.

    ``configuration``: a DOCKER_CONFIG directory with the login, where one is needed.
    """
    options = ["--config", str(configuration)] if configuration else []
    engine.docker("tag", local, reference)
    try:
        pushed = engine.docker(*options, "push", reference)
    finally:
        engine.docker("image", "rm", reference, check=False)
    found = re.search(r"digest: (sha256:[0-9a-f]{64})", pushed.stdout)
    if found is None:
        raise LabFailed(f"pushing {reference} gave no digest: {pushed.stdout[-300:]}")
    return found.group(1)


def http_answers(address: str, *, tls: bool = False) -> bool:
    """Whether a registry answers at ``address`` (any status counts)."""
    scheme = "https" if tls else "http"
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{scheme}://{address}/v2/", timeout=5, context=context):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _fetch_torch(target: Path) -> None:
    """Unpack the wheels for Debian 12's own Python 3.11 into ``target``.

    Where the machine's package index has no CPU build of that version, PyTorch's own index is asked.
    """
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in (28, 27, 24, 17)] + [
        f"manylinux2014_{machine}"
    ]
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"]
    argv += ["--implementation", "cp", "--python-version", "3.11", "--target", str(target)]
    argv += [word for name in platforms for word in ("--platform", name)]
    argv += [f"{TORCH_PACKAGES[0]}+cpu", *TORCH_PACKAGES[1:]]
    if run(argv, check=False).returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        run([*argv, "--extra-index-url", TORCH_INDEX])


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """A temporary directory for gigabytes and device nodes: /tmp is often in memory, and mounted nodev."""
    where = os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="fleet-lab-", dir=where) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _one_builder() -> Iterator[None]:
    """Two labs starting at once build each image once: the second waits and finds it there."""
    with (Path(tempfile.gettempdir()) / "fleet-lab-images.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


_SITE = "/usr/local/lib/python3.11/dist-packages"
_BUILDING = "fleet-lab-build-"
_CLEAN = "rm -rf /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/lib/apt/lists/* /var/log/*.log"

# As PID 1 a plain sleep ignores SIGTERM, and every stop of it would take Docker's ten seconds.
_TINY_COMMAND = ["sh", "-c", "trap exit TERM; sleep infinity & wait"]

REGISTRY_CONFIG = "/etc/docker/registry/config.yml"
_STOCKED_CONFIG = """\
version: 0.1
storage:
  filesystem: {rootdirectory: /srv/registry}
http: {addr: ":5000"}
"""

# PID 1 until it hands over to systemd. The boot id a container sees is the outer kernel's and never
# changes, so each start gets one of its own. FLEET_LAB_UNREACHABLE_FROM is the gateway through which
# this machine would otherwise reach a host that is meant to be behind the bastion.
_BOOT_SCRIPT = """\
#!/bin/sh
cat /proc/sys/kernel/random/uuid > /run/fleet-lab-boot-id
chmod 444 /run/fleet-lab-boot-id
mount --bind /run/fleet-lab-boot-id /proc/sys/kernel/random/boot_id
if [ -n "$FLEET_LAB_UNREACHABLE_FROM" ]; then
    ip route add blackhole "$FLEET_LAB_UNREACHABLE_FROM/32"
fi
exec /sbin/init
"""
