"""NVIDIA's Container Toolkit: what gives GPUs to containers, by the engine's hook or by CDI (:mod:`.cdi`)."""

from __future__ import annotations

import os
import re

from fleet.agent.facts import cdi, links, text_or_empty
from fleet.agent.package_manager.dpkg_version import split

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("container_toolkit",)

TOOLKIT = "nvidia-container-toolkit"
PACKAGES = (
    TOOLKIT,
    "nvidia-container-toolkit-base",
    "libnvidia-container1",
    "libnvidia-container-tools",
    "nvidia-container-runtime",
    "nvidia-docker2",
)
CONFIGURATION = "/etc/nvidia-container-runtime/config.toml"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
YUM_REPOSITORIES = "/etc/yum.repos.d"

# Repositories that were given up, and those of single distributions, by the paths on whatever server.
_GIVEN_UP = re.compile(r"/(nvidia-docker|nvidia-container-runtime)(/|$)")
_SINGLE_DISTRIBUTION = re.compile(
    r"/libnvidia-container/((stable|experimental)/)?(ubuntu|debian|centos|rhel|amzn|fedora)"
)


def parse_mode(text: str) -> Optional[str]:
    """``mode`` of the section [nvidia-container-runtime] of config.toml."""
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.split("#", 1)[0].strip().strip("[]")
        match = re.match(r"mode\s*=\s*[\"']([^\"']*)[\"']", line)
        if match is not None and section == "nvidia-container-runtime":
            return match.group(1) or None
    return None


def is_legacy(uri: str, signed_by: str, trusted: bool) -> bool:
    """Whether a source of the toolkit's should be replaced: its repository was given up, or it relies on the
    keys in /etc/apt/trusted.gpg*, which vouch for every repository."""
    if _GIVEN_UP.search(uri) or _SINGLE_DISTRIBUTION.search(uri):
        return True
    return "/libnvidia-container/" in uri and not signed_by and not trusted


def legacy_sources(host: Host) -> List[str]:
    """The ``legacy_sources`` part; a list that apt itself cannot read is a matter of ``packages``."""
    found = _apt_lists(host)
    for name in links.names_in(host, YUM_REPOSITORIES):
        path = YUM_REPOSITORIES + "/" + name
        urls = re.findall(r"^\s*baseurl\s*=\s*(\S+)", text_or_empty(host, path), re.MULTILINE)
        if name.endswith(".repo") and any(is_legacy(url, "a key of its own", False) for url in urls):
            found.append(path)
    return found


def _apt_lists(host: Host) -> List[str]:
    from fleet.agent.package_manager import apt_sources

    found = []
    for path, text in apt_sources.read_all(host).items():
        if "nvidia" not in text:
            continue
        try:
            sources = apt_sources.parse(path, text)
        except apt_sources.Unreadable:
            continue
        trusted = re.search(r"\btrusted(=|:\s*)yes\b", text, re.IGNORECASE) is not None
        if any(is_legacy(source.uri + "/", source.signed_by, trusted) for source in sources):
            found.append(path)
    return found


def from_packages(installed: Dict[str, str]) -> Json:
    """{"version", "packages", "nvidia_docker2"} by the versions of all ``installed`` packages."""
    mine = {name: installed[name] for name in sorted(PACKAGES) if installed.get(name)}
    part: Json = {"version": split(mine[TOOLKIT])[1] if TOOLKIT in mine else None, "packages": mine}
    part["nvidia_docker2"] = mine.get("nvidia-docker2")
    return part


def refresh_unit(host: Host) -> bool:
    """Whether nvidia-cdi-refresh, of toolkits since 1.18, is there and not masked."""
    for folder in UNIT_FOLDERS:
        path = folder + "/nvidia-cdi-refresh.service"
        if os.path.lexists(host.path(path)):
            return links.resolve(host, path) != "/dev/null"
    return False


def collect(host: Host) -> Json:
    """The ``container_toolkit`` part."""
    part = from_packages({name: host.dpkg.installed(name) for name in PACKAGES})
    part["runtime_hook"] = _program(host, "nvidia-container-runtime-hook", "nvidia-container-toolkit")
    part["runtime"] = _program(host, "nvidia-container-runtime")
    part["mode"] = parse_mode(text_or_empty(host, CONFIGURATION))
    part["legacy_sources"] = legacy_sources(host)
    part["cdi"] = {"specifications": cdi.specifications(host), "refresh_unit": refresh_unit(host)}
    return {"container_toolkit": part}


def _program(host: Host, *names: str) -> Optional[str]:
    found = (host.which(name) for name in names)
    return next((path for path in found if path is not None), None)
