"""The container engine: what runs, where it stores, its daemon.json, containers and networks.

Asked over the socket (:mod:`fleet.agent.engine`) with 2 s of patience: a hanging engine is a fact, too.
"""

from __future__ import annotations

import os

from fleet.agent.engine import Engine, EngineError, EngineUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("engine",)
DAEMON_JSON = "/etc/docker/daemon.json"
DEFAULT_ROOT = "/var/lib/docker"
CONTAINERD_ROOT = "/var/lib/containerd"
TIMEOUT_S = 2.0
INSPECTED = 200  # running containers asked for their pid; a host with more is not a GPU host

_BINARIES = ("/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd", "/snap/bin/dockerd")
_FROM_ENGINE = (
    "version",
    "api_version",
    "root_dir",
    "image_store_dir",
    "storage_driver",
    "cgroup_version",
    "cgroup_driver",
    "default_runtime",
    "runtimes",
    "cdi",
    "containers",
    "gpu_containers",
    "networks",
    "images",
)


def daemon_json(data: Optional[bytes]) -> Json:
    """{"exists", "parsed", "error"} for the contents of daemon.json (None: no file). Empty counts as {}.

    Read by whom fleet changes it with, so that what is said of it beforehand is what would stop a change.
    """
    if data is None:
        return {"exists": False, "parsed": None, "error": None}
    from fleet.agent.resources.json_file import NoObject, object_in

    try:
        return {"exists": True, "parsed": object_in(data), "error": None}
    except NoObject as fault:
        return _broken(fault.words, fault.line, fault.column)


def _broken(message: str, line: int, column: int) -> Json:
    return {"exists": True, "parsed": None, "error": {"message": message, "line": line, "column": column}}


def read_daemon_json(host: Host) -> Json:
    try:
        with open(host.path(DAEMON_JSON), "rb") as stream:
            return daemon_json(stream.read(1 << 20))
    except FileNotFoundError:
        return daemon_json(None)
    except OSError as error:
        return _broken("cannot be read: %s" % (error.strerror or error), 1, 1)


def configured_store(configuration: Json) -> str:
    """Where images will be stored, by daemon.json alone: for a host whose engine does not run."""
    parsed = configuration["parsed"] or {}
    features = parsed.get("features")
    if isinstance(features, dict) and features.get("containerd-snapshotter") is True:
        return CONTAINERD_ROOT
    root = parsed.get("data-root") or parsed.get("graph")
    return root if isinstance(root, str) and root.startswith("/") else DEFAULT_ROOT


def address_pools(configuration: Json) -> List[Json]:
    """``default-address-pools`` of daemon.json; [] means the engine's built-in ones."""
    pools = (configuration["parsed"] or {}).get("default-address-pools")
    if not isinstance(pools, list):
        return []
    return [
        {"base": str(pool["base"]), "size": pool["size"]}
        for pool in pools
        if isinstance(pool, dict) and "base" in pool and isinstance(pool.get("size"), int)
    ]


def from_answers(version: Json, info: Json) -> Json:
    """What /_ping or /version, and /info say, in the words of the facts document."""
    status = dict(
        pair for pair in info.get("DriverStatus") or [] if isinstance(pair, list) and len(pair) == 2
    )
    containerd = str(status.get("driver-type", "")).startswith("io.containerd.snapshotter")
    return {
        "version": version.get("Version") or info.get("ServerVersion"),
        "api_version": version.get("ApiVersion"),
        "root_dir": info.get("DockerRootDir"),
        "image_store_dir": CONTAINERD_ROOT if containerd else info.get("DockerRootDir"),
        "storage_driver": info.get("Driver"),
        "cgroup_version": info.get("CgroupVersion") or "1",
        "cgroup_driver": info.get("CgroupDriver"),
        "default_runtime": info.get("DefaultRuntime"),
        "runtimes": sorted(info.get("Runtimes") or {}),
        # Engines before 25 have no CDI at all; later ones name their directories only while it is on.
        "cdi": bool(info.get("CDISpecDirs")),
    }


def container(listed: Json, inspected: Optional[Json]) -> Json:
    """One container; ``pid`` and ``started_at`` are null when it does not run."""
    state = (inspected or {}).get("State") or {}
    names = listed.get("Names") or []
    started = state.get("StartedAt")
    return {
        "id": listed.get("Id"),
        "name": names[0].lstrip("/") if names else None,
        "image": listed.get("Image"),
        "labels": listed.get("Labels") or {},
        "state": listed.get("State"),
        "pid": state.get("Pid") or None,
        "started_at": started if started and not started.startswith("0001-") else None,
    }


def has_gpus(inspected: Json) -> bool:
    """Whether a container was given GPUs: by a device request, or by NVIDIA's runtime and its variable."""
    settings = inspected.get("HostConfig") or {}
    if settings.get("DeviceRequests"):
        return True
    if "nvidia" not in str(settings.get("Runtime") or ""):
        return False
    variables = (inspected.get("Config") or {}).get("Env") or []
    chosen = [text.partition("=")[2] for text in variables if text.startswith("NVIDIA_VISIBLE_DEVICES=")]
    return bool(chosen) and chosen[-1] not in ("", "void", "none")


def image(listed: Json) -> Json:
    """One image: its tags, the digests it was pulled by (``sha256:…``), its size on disk."""
    digests = {str(name).partition("@")[2] for name in listed.get("RepoDigests") or []}
    tags = [str(name) for name in listed.get("RepoTags") or [] if name != "<none>:<none>"]
    size = listed.get("Size")
    return {
        "id": listed.get("Id"),
        "tags": tags,
        "digests": sorted(digest for digest in digests if digest.startswith("sha256:")),
        "size_bytes": size if isinstance(size, int) else None,
    }


def network(listed: Json) -> Json:
    configurations = (listed.get("IPAM") or {}).get("Config") or []
    subnets = [entry["Subnet"] for entry in configurations if isinstance(entry, dict) and entry.get("Subnet")]
    return {"name": listed.get("Name"), "subnets": subnets}


def is_podman(host: Host, version: Json) -> bool:
    """Whether "docker" is podman in disguise (the podman-docker package)."""
    names = [part.get("Name", "") for part in version.get("Components") or [] if isinstance(part, dict)]
    if any("podman" in name.lower() for name in names):
        return True
    try:
        with open(host.path("/usr/bin/docker"), "rb") as stream:
            head = stream.read(512)
    except OSError:
        return False
    return head.startswith(b"#!") and b"podman" in head


def collect(host: Host) -> Json:
    """The ``engine`` part. Its values are null with a reason when no engine answers."""
    path = host.path("/var/run/docker.sock")
    configuration = read_daemon_json(host)
    part: Json = {
        "present": os.path.exists(path) or any(os.path.exists(host.path(binary)) for binary in _BINARIES),
        "responding": False,
        "daemon_json": configuration,
        "address_pools": address_pools(configuration),
        "snap": os.path.exists(host.path("/var/snap/docker"))
        or os.path.exists(host.path("/snap/bin/docker")),
    }
    engine = Engine(path, timeout_s=TIMEOUT_S)
    version: Json = {}
    try:
        version = engine.short_version()
        part.update(from_answers(version, engine.info()))
        part["containers"], part["gpu_containers"] = _containers(engine)
        part["images"] = [image(item) for item in engine.images()]
        part["networks"] = [network(item) for item in engine.networks()]
        part["responding"] = True
    except EngineError as error:
        reason = "error"
        if isinstance(error, EngineUnavailable):
            reason = {"absent": "not_supported", "permission": "permission"}.get(error.reason, "error")
        part["responding_message"] = error.message
        for key in _FROM_ENGINE:
            part[key] = None
            part[key + "_reason"] = reason
    finally:
        engine.close()
    part["podman_docker"] = is_podman(host, version)
    return {"engine": part}


def _containers(engine: Engine) -> Tuple[List[Json], List[Json]]:
    """(every container, {"id", "name"} of the running ones with GPUs)."""
    found: List[Json] = []
    with_gpus: List[Json] = []
    for listed in engine.containers():
        running = listed.get("State") == "running" and len(found) < INSPECTED
        inspected = engine.container(str(listed["Id"])) if running else None
        found.append(container(listed, inspected))
        if inspected is not None and has_gpus(inspected):
            with_gpus.append({"id": found[-1]["id"], "name": found[-1]["name"]})
    return found, with_gpus
