"""``container``: a container of the local engine, recreated when what it was made from changes.

Identity is the label ``fleet.config_hash``, a hash of the arguments: a container of that name without the
label is somebody else's and never touched. Ports are published on 127.0.0.1 unless an address is written
out. The client is :mod:`fleet.agent.engine`.
"""

from __future__ import annotations

import re

from fleet.agent.digest import sha256
from fleet.agent.engine import Engine, EngineError
from fleet.agent.facts import cdi
from fleet.agent.protocol import Json, canonical
from fleet.agent.resources.base import Difference, Provides, Resource, StepFailed, difference, is_secret
from fleet.agent.resources.image import engine_failure

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


LABEL = "fleet.config_hash"
_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


class Container(Resource):
    """See the module. ``args``: name, image, command, state, env, ports, volumes, restart, labels, user,
    memory, cpus, shm_size, ipc, network, ``gpus`` ("all", a count, or a list of indexes and UUIDs) with
    ``gpu_request`` (gpus: the engine's GPU driver; cdi; auto: what the host has), ``devices`` (paths, or CDI
    names such as nvidia.com/gpu=all), ``entrypoint``, ``stop_timeout_s``.
    """

    kind = "container"

    def read(self, host: Host, args: Json) -> Json:
        """{"exists", "running", "hash": the label or None, "image": id it runs, "wanted_image": local id}."""
        try:
            found = host.docker.container(args["name"])
            image = host.docker.image(args["image"]) if args.get("image") else None
        except EngineError as error:
            raise engine_failure(error, "cannot ask for the container %s" % args["name"]) from None
        if found is None:
            return {"exists": False, "running": False, "hash": None, "image": None, "wanted_image": None}
        labels = (found.get("Config") or {}).get("Labels") or {}
        if LABEL not in labels and args.get("state") != "absent":
            raise foreign(args, found)
        return {
            "exists": True,
            "running": bool((found.get("State") or {}).get("Running")),
            "hash": labels.get(LABEL),
            "image": found.get("Image"),
            "wanted_image": None if image is None else image["Id"],
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        name, wanted = args["name"], args.get("state", "running")
        if wanted == "absent":
            return [difference(name, "exists", None)] if state["exists"] else []
        if not state["exists"]:
            return [difference(name, None, "%s, %s" % (wanted, args["image"]))]
        differences: List[Difference] = []
        if state["hash"] != config_hash(args):
            differences.append(difference("%s configuration" % name, "different", "recreated"))
        if state["wanted_image"] not in (None, state["image"]):
            differences.append(difference("%s image" % name, state["image"], state["wanted_image"]))
        if state["running"] != (wanted == "running"):
            differences.append(difference(name, "running" if state["running"] else "stopped", wanted))
        return differences

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        try:
            return self._apply(host, args, report)
        except EngineError as error:
            raise self._failure(error, args) from None

    def _apply(self, host: Host, args: Json, report: Reporter) -> Optional[Json]:
        docker: Engine = host.docker
        name, wanted = args["name"], args.get("state", "running")
        state = self.read(host, args)
        replace = state["exists"] and state["hash"] != config_hash(args)
        replace = replace or (state["exists"] and state["wanted_image"] not in (None, state["image"]))
        grace = int(args.get("stop_timeout_s") or 10)
        if wanted == "absent" and state["exists"] and state["hash"] is None:
            raise foreign(args, docker.container(name) or {})
        if state["running"] and (replace or wanted != "running"):
            report.progress("stopping container %s" % name)
            docker.stop_container(name, grace)
        if state["exists"] and (replace or wanted == "absent"):
            docker.remove_container(name)
        if wanted == "absent":
            return None
        if replace or not state["exists"]:
            report.progress("creating container %s" % name)
            docker.create_container(name, configuration(host, args))
        if wanted == "running":
            docker.start_container(name)
            self._check_alive(docker, name)
        return None

    def _check_alive(self, docker: Engine, name: str) -> None:
        state = (docker.container(name) or {}).get("State") or {}
        # A restart policy hides a container that ends at once behind "restarting".
        if state.get("Running") and not state.get("Restarting"):
            return
        logs = docker.logs(name, 20).strip()
        raise StepFailed(
            "container %s ended at once, exit code %s%s"
            % (name, state.get("ExitCode"), ": " + logs if logs else " and no output"),
            "docker logs %s ; docker inspect %s  # on the host" % (name, name),
        )

    def _failure(self, error: EngineError, args: Json) -> StepFailed:
        text = error.message.lower()
        if error.status == 404 and "no such image" in text:
            return StepFailed(
                "container %s: the image %s is not on this host" % (args["name"], args["image"]),
                "put an image task for it before this one",
            )
        if "port is already allocated" in text or "address already in use" in text:
            return StepFailed(
                "container %s: %s" % (args["name"], error.message), "ss -ltnp  # shows what uses that port"
            )
        from fleet.agent.gpu_failures import explained

        known = explained(error.message) if args.get("gpus") or args.get("devices") else None
        if known is not None:
            what = "container %s: %s: %s" % (args["name"], known.reason, known.words)
            return StepFailed(what, known.remedy)
        return engine_failure(error, "container %s" % args["name"])

    def requires(self, args: Json) -> Provides:
        return Provides(engine=True)

    def forecast(self, args: Json, provided: Provides) -> str:
        from fleet.agent.resources.image import RESOURCE

        return RESOURCE.forecast({"state": args.get("state", "running")}, provided)


def foreign(args: Json, found: Json) -> StepFailed:
    """A container of this name is somebody else's."""
    return StepFailed(
        "there is already a container %s (%s), and fleet did not make it"
        % (args["name"], (found.get("Config") or {}).get("Image", "unknown image")),
        "give the task another name, or remove it by hand: docker rm -f %s" % args["name"],
    )


def config_hash(args: Json) -> str:
    """SHA-256 over what the container is made from. ``state`` is not part of it; a secret counts by being
    there, not by its value, which must not be guessable from a label."""
    shape = {key: value for key, value in args.items() if key not in ("state", "stop_timeout_s")}
    return sha256(canonical(_without_secrets(shape)).encode("utf-8", "surrogateescape")).hex()


def _without_secrets(value: Any) -> Any:
    if is_secret(value):
        return "$secret"
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value


def configuration(host: Host, args: Json) -> Json:
    """The body of POST /containers/create."""
    bindings, exposed = ports(args.get("ports") or [])
    labels = dict(args.get("labels") or {})
    labels[LABEL] = config_hash(args)
    environment = {key: host.secret(value) for key, value in (args.get("env") or {}).items()}
    host_config: Json = {
        "Binds": list(args.get("volumes") or []),
        "PortBindings": bindings,
        "RestartPolicy": {"Name": args.get("restart") or "no"},
        "Devices": [],
        "DeviceRequests": [],
    }
    _resources(host_config, args)
    _devices(host_config, args)
    if args.get("gpus"):
        request = args.get("gpu_request") or "gpus"
        by = gpu_way(host, host.docker) if request == "auto" else request
        host_config["DeviceRequests"].insert(0, device_request(args["gpus"], by))
    if args.get("network"):
        host_config["NetworkMode"] = args["network"]
    body: Json = {
        "Image": args["image"],
        "Env": ["%s=%s" % (key, environment[key]) for key in sorted(environment)],
        "Labels": labels,
        "ExposedPorts": exposed,
        "HostConfig": host_config,
    }
    for key, field in (("command", "Cmd"), ("entrypoint", "Entrypoint"), ("user", "User")):
        if args.get(key) is not None:
            body[field] = args[key]
    return body


def _resources(host_config: Json, args: Json) -> None:
    if args.get("memory"):
        host_config["Memory"] = size_bytes(args["memory"])
    if args.get("shm_size"):
        host_config["ShmSize"] = size_bytes(args["shm_size"])
    if args.get("cpus"):
        host_config["NanoCpus"] = round(float(args["cpus"]) * 1e9)
    if args.get("ipc"):
        host_config["IpcMode"] = args["ipc"]


def _devices(host_config: Json, args: Json) -> None:
    for device in args.get("devices") or []:
        if device.startswith("/"):
            entry = {"PathOnHost": device, "PathInContainer": device, "CgroupPermissions": "rwm"}
            host_config["Devices"].append(entry)
        else:
            host_config["DeviceRequests"].append({"Driver": "cdi", "DeviceIDs": [device]})


def device_request(gpus: Any, by: str) -> Json:
    """The engine's request for GPUs: "all", a count, or a list of indexes and UUIDs.

    ``by`` "gpus" asks its GPU driver, as ``docker run --gpus`` does; "cdi" names devices of the CDI
    specification, which has no counts: the first ones are taken.
    """
    whole = gpus == "all"
    names = [str(name) for name in gpus] if isinstance(gpus, list) else []
    if by == "cdi":
        names = ["all"] if whole else names or [str(number) for number in range(int(gpus))]
        return {"Driver": "cdi", "DeviceIDs": ["%s=%s" % (cdi.GPUS, name) for name in names]}
    request: Json = {"Driver": "", "Capabilities": [["gpu"]]}
    if names:
        request["DeviceIDs"] = names
    else:
        request["Count"] = -1 if whole else int(gpus)
    return request


def gpu_way(host: Host, docker: Engine) -> str:
    """How this host gives GPUs to containers now: "cdi" where the engine has it and a specification of
    NVIDIA GPUs is there, else "gpus"."""
    return "cdi" if cdi.of_gpus(host) and docker.info().get("CDISpecDirs") else "gpus"


def ports(entries: List[Any]) -> Tuple[Dict[str, List[Json]], Dict[str, Json]]:
    """``[ADDRESS:]HOST:CONTAINER[/udp]`` -> (port bindings, exposed ports). Without an address: 127.0.0.1."""
    bindings: Dict[str, List[Json]] = {}
    exposed: Dict[str, Json] = {}
    for entry in entries:
        text, _, protocol = str(entry).partition("/")
        match = re.fullmatch(r"(?:(\[[0-9a-fA-F:]+\]|[0-9.]+):)?(\d+):(\d+)", text)
        if match is None:
            raise StepFailed(
                "%r is not a port mapping" % entry, "write [ADDRESS:]HOST_PORT:CONTAINER_PORT[/udp]"
            )
        address = (match.group(1) or "127.0.0.1").strip("[]")
        key = "%s/%s" % (match.group(3), protocol or "tcp")
        exposed[key] = {}
        bindings.setdefault(key, []).append({"HostIp": address, "HostPort": match.group(2)})
    return bindings, exposed


def size_bytes(value: Any) -> int:
    """``8g``, ``512m``, ``64MiB`` or a number of bytes; binary units, as docker reads them."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(value).strip().lower())
    if match is None:
        raise StepFailed("%r is not a size" % value, "write for example 8g or 512m")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


RESOURCE = Container()
