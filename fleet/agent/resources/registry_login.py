"""``registry_login``: credentials for a registry, verified; stored on the host only with ``persist``.

Without ``persist`` the step has no state of its own: nothing is stored, its check always says ok and
contacts nobody; the credentials are verified by the pull that uses them (``auth`` of ``image``). With
``persist`` the entry in root's ``.docker/config.json`` is compared without any network; when it differs,
the credentials are verified through the engine before they are written. ``ca``, a file on the host, is put
where the engine looks for the registry's certificate authority.
"""

from __future__ import annotations

import base64
import json
import os

from fleet.agent import strict_json
from fleet.agent.engine import EngineError, EngineUnavailable
from fleet.agent.files import make_folders, read_bytes
from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, Json
from fleet.agent.resources.base import MASK, Difference, Provides, Resource, StepFailed, difference

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


CONFIG = "/root/.docker/config.json"
DOCKER_HUB = "https://index.docker.io/v1/"


class RegistryLogin(Resource):
    """See the module. ``args``: CONTRACT §2."""

    kind = "registry_login"

    def read(self, host: Host, args: Json) -> Json:
        """{"stored": an entry exists, "matches": it is the wanted one, "mode": of the file or None, "ca":
        the authority is in place, or none is wanted}."""
        ca = not args.get("ca") or read_bytes(host, ca_path(args)) == _authority(host, args)
        if not args.get("persist"):
            return {"stored": False, "matches": True, "mode": None, "ca": ca}
        config, mode = _load(host.path(CONFIG))
        entry = (config.get("auths") or {}).get(entry_name(args["registry"]))
        matches = isinstance(entry, dict) and entry.get("auth") == _encoded(host, args)
        return {"stored": bool(entry), "matches": matches, "mode": mode, "ca": ca}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        differences = [] if state["ca"] else [difference(ca_path(args), None, args["ca"])]
        if not args.get("persist"):
            return differences
        if not state["matches"]:
            before = MASK if state["stored"] else None
            differences.append(difference("%s %s" % (CONFIG, args["registry"]), before, MASK))
        elif state["mode"] != "0600":
            differences.append(difference("%s mode" % CONFIG, state["mode"], "0600"))
        return differences

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        state = self.read(host, args)
        if not state["ca"]:
            _write(host.path(ca_path(args)), _authority(host, args), 0o644, 0o755)
        if not args.get("persist"):
            return None
        if not state["matches"]:
            verify(host, args, report)
        path = host.path(CONFIG)
        config, _ = _load(path)
        for key in ("credsStore", "credHelpers"):
            helper = config.get(key)
            if isinstance(helper, str) or (isinstance(helper, dict) and args["registry"] in helper):
                raise StepFailed(
                    "%s hands credentials to a helper (%s), so an entry in it would not be used"
                    % (CONFIG, key),
                    "log in by hand on the host (docker login %s), or drop persist" % args["registry"],
                )
        config.setdefault("auths", {})[entry_name(args["registry"])] = {"auth": _encoded(host, args)}
        _write(path, (json.dumps(config, indent="\t") + "\n").encode("utf-8"), 0o600, 0o700)
        return None

    def requires(self, args: Json) -> Provides:
        return Provides(engine=bool(args.get("persist")), files=[args["ca"]] if args.get("ca") else [])

    def forecast(self, args: Json, provided: Provides) -> str:
        """Once the authority is where the engine looks for it, there is nothing left to do."""
        there = not args.get("persist") and args.get("ca") == ca_path(args)
        return OK if there else KNOWN_AFTER_APPLY


def ca_path(args: Json) -> str:
    """Where the engine looks for the certificate authority of this registry alone."""
    return "/etc/docker/certs.d/%s/ca.crt" % args["registry"]


def _authority(host: Host, args: Json) -> bytes:
    content = read_bytes(host, args["ca"])
    if content is None:
        raise StepFailed(
            "there is no %s on this host, the certificate authority of %s" % (args["ca"], args["registry"]),
            "copy it there first, with a copy task",
        )
    return content


def verify(host: Host, args: Json, report: Reporter) -> None:
    """Ask the registry, through the engine, whether it takes the credentials; StepFailed when not."""
    registry = args["registry"]
    report.progress("checking the credentials for %s" % registry)
    auth = {"username": host.secret(args["username"]), "password": host.secret(args["password"])}
    try:
        host.docker.authenticate(entry_name(registry), auth)
    except EngineUnavailable as error:
        from fleet.agent.resources.image import engine_failure

        raise engine_failure(error, "cannot check the credentials for %s" % registry) from None
    except EngineError as error:
        if error.status == 401 or "unauthorized" in error.message.lower():
            raise StepFailed(
                "%s does not take these credentials" % registry, "check username and password (or token)"
            ) from None
        from fleet.agent.resources.image import pull_failure

        failure = pull_failure(error, host, {"reference": registry + "/login-check"})
        raise StepFailed(
            "cannot check the credentials for %s: %s" % (registry, error.message), failure.remedy
        ) from None


def entry_name(registry: str) -> str:
    """The name docker gives a registry in its configuration."""
    return DOCKER_HUB if registry in ("docker.io", "index.docker.io", "") else registry


def _encoded(host: Host, args: Json) -> str:
    text = "%s:%s" % (host.secret(args["username"]), host.secret(args["password"]))
    return base64.b64encode(text.encode("utf-8")).decode("ascii")


def _load(path: str) -> Tuple[Json, Optional[str]]:
    """(the parsed file or {}, its mode or None). A file that does not parse is refused, not replaced."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
            mode = "%04o" % (os.fstat(stream.fileno()).st_mode & 0o7777)
    except FileNotFoundError:
        return {}, None
    try:
        config = strict_json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise StepFailed("%s is not valid JSON: %s" % (path, error), "mend or remove that file") from None
    if not isinstance(config, dict):
        raise StepFailed("%s does not hold a JSON object" % path, "mend or remove that file")
    return config, mode


def _write(path: str, content: bytes, mode: int, directory_mode: int) -> None:
    """Atomically; never for a moment with a wider mode."""
    make_folders(os.path.dirname(path), directory_mode)
    temporary = path + ".fleet-new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


RESOURCE = RegistryLogin()
