"""The lab of inventories/lab-mixed.yaml, some of its hosts at a time; and what their simulated stack does.

The witness of an audit is a container: one that stands for an official image, started with all GPUs, in which a
kernel has to start on each of them. What is simulated of it and what is not: docs/lab-simulation.md.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.definition import HostDefinition, load_definition
from fleet.lab.lab import Lab
from fleet.lab.simulation import torch_image
from tests.e2e.gpu import json_variables
from tests.e2e.harness import ROOT, Finished, Fleet

INVENTORY = ROOT / "inventories" / "lab-mixed.yaml"
_SITE = "/usr/local/lib/python3.11/dist-packages"
# Counts what an inventory of hardware would, and not what a driver says.
_ON_THE_BUS = """
count=0
for device in /sys/bus/pci/devices/*; do
    [ "$(cat $device/vendor)" = 0x10de ] || continue
    case $(cat $device/class) in 0x03*) count=$((count + 1)) ;; esac
done
echo $count
"""
_SMOKE = """
import torch
torch.cuda.init()
gpus = range(torch.cuda.device_count())
print("computed", sum(torch.ones(4, device=f"cuda:{gpu}").sum().item() == 4 for gpu in gpus))
"""
_COMMIT = """
docker create --name making python:stand-in >/dev/null
docker cp /root/stand-in/torch making:{site} >/dev/null
docker commit --change 'ENV NVIDIA_VISIBLE_DEVICES=all' making {reference} >/dev/null
docker rm making >/dev/null
"""
_Item = TypeVar("_Item")


def reference(build: str) -> str:
    """The official image of ``2.7.0-cuda12.8``."""
    return f"pytorch/pytorch:{build}-cudnn9-runtime"


def build_of(image: str) -> str:
    """``2.7.0-cuda12.8`` of an official image."""
    return image.rpartition(":")[2].partition("-cudnn")[0]


def everywhere(work: Callable[[str], _Item], names: Iterable[str]) -> dict[str, _Item]:
    """``work`` of every host, at once."""
    wanted = list(names)
    with ThreadPoolExecutor(max(len(wanted), 1)) as pool:
        return dict(zip(wanted, pool.map(work, wanted), strict=True))


@dataclass(frozen=True)
class Stack:
    """What happened: GPUs on the bus, on how many of them a kernel started in a container, what host and it said."""

    on_the_bus: int
    computed: int
    said: str

    @property
    def runs(self) -> bool:
        """Whether the image runs on this host: on all its GPUs."""
        return 0 < self.on_the_bus == self.computed


class Mixed:
    """The lab. ``lab`` has those hosts that are up: three at most, for a machine of two cores runs it, too."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._all = {host.name: host for host in lab.definition.hosts}
        self._images: dict[str, set[str]] = {}
        self._archive: bytes | None = None
        lab.definition = replace(lab.definition, hosts=())

    def bring(self, *names: str) -> None:
        """Have these hosts up, and no others. A host that is up already stays as it is."""
        for host in self.lab.definition.hosts:
            if host.name not in names:
                self.lab.remove_host(host.name)
                self._images.pop(host.name, None)
        self.lab.definition = replace(self.lab.definition, hosts=tuple(self._all[name] for name in names))
        self.lab.up()

    @property
    def hosts(self) -> list[HostDefinition]:
        """Those that are up."""
        return list(self.lab.definition.hosts)

    def stack(self, host: str, build: str) -> Stack:
        """Run what stands for the official image of ``build`` on ``host``, with all GPUs."""
        self._give(host, build)
        run = ("docker", "run", "--rm", "--network", "none", "--gpus", "all", reference(build))
        done = faults.execute(self.lab, host, *run, "python3", "-c", _SMOKE, check=False)
        computed = done.stdout.partition("computed ")[2].strip()
        on_the_bus = int(faults.shell(self.lab, host, _ON_THE_BUS))
        itself = faults.execute(self.lab, host, "nvidia-smi", "-L", check=False)
        said = "".join([itself.stdout, itself.stderr, done.stdout, done.stderr])
        return Stack(on_the_bus, int(computed or 0), said)

    def _give(self, host: str, build: str) -> None:
        """Make the image on the host: Python from this machine, which takes long, once; a simulated torch on top."""
        made = self._images.setdefault(host, set())
        if not made:
            container = self.lab.place.container(host)
            self.lab.engine.docker("exec", "-i", container, "docker", "load", "-q", stdin=self._python())
            faults.execute(self.lab, host, "docker", "tag", self.lab.images.small_python(), "python:stand-in")
        if build in made:
            return
        for path, text in torch_image.files(build).items():
            target = f"/root/stand-in/{path}"
            faults.execute(self.lab, host, "install", "-D", "/dev/stdin", target, stdin=text)
        faults.shell(self.lab, host, "set -e" + _COMMIT.format(site=_SITE, reference=reference(build)))
        made.add(build)

    def _python(self) -> bytes:
        if self._archive is None:
            with tempfile.TemporaryDirectory() as folder:
                archive = Path(folder) / "python.tar"
                python = self.lab.images.ensure_small_python()
                self.lab.engine.docker("save", "--output", archive, python)
                self._archive = archive.read_bytes()
        return self._archive

    def digest(self, build: str) -> str:
        """Of the image for ``build`` in the lab's registry, where it is from now on."""
        return self.lab.push(torch_image.build(self.lab.images, build), reference(build))

    def inventory(self, folder: Path, build: str, own: dict[str, dict[str, Any]]) -> Path:
        """What a site with these hosts would write: ``build`` from its registry, and ``own`` variables of hosts."""
        fingerprints = json_variables(self.lab)
        repositories = {
            "nvidia_driver_repository": ("compute/cuda/repos", "nvidia_driver"),
            "container_toolkit_repository": ("libnvidia-container/stable/deb", "container_toolkit"),
        }
        more: dict[str, Any] = {
            variable: {
                "base_url": f"http://packages.lab/{path}",
                "key_fingerprint": fingerprints[f"lab_{key}_key_fingerprint"],
            }
            for variable, (path, key) in repositories.items()
        }
        more |= {"image": f"registry.lab:5000/{reference(build)}", "image_digest": self.digest(build)}
        groups = {f"only_{name}": {"hosts": {name: variables}} for name, variables in own.items()}
        return write_inventory(folder / "site.yaml", self.lab, self.hosts, groups=groups, **more)


@contextmanager
def mixed_lab(folder: Path) -> Iterator[Mixed]:
    """The lab under a name and in networks of its own, with no host up; taken down in the end."""
    copy = folder / "inventories" / INVENTORY.name
    copy.parent.mkdir()
    copy.write_text(INVENTORY.read_text().replace("172.28.80.", "172.28.81."))
    lab = Lab(load_definition(copy, "audit"))
    try:
        yield Mixed(lab)
    finally:
        lab.down()


def audit(fleet: Fleet, *words: str, code: int | None = None) -> tuple[dict[str, Any], Finished]:
    """``fleet audit … --json``: the document, and what the process said. ``code``: with which it has to end."""
    done = fleet("audit", *words, "--json")
    assert done.code in ((0, 4) if code is None else (code,)), done.said
    document: dict[str, Any] = json.loads(done.out)
    return document, done


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The hosts of an audit."""
    return {host["name"]: host for host in document["hosts"]}
