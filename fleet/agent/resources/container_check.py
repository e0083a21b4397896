"""``container_check``: a container of the pinned image sees the same GPUs as the host.

The host is asked by nvidia-smi, then a container with all GPUs, then, where there are several, one with one.
The image runs by digest, with no network. What was seen is kept in ``checks/container.json`` of the state
directory, beside the key of what it depends on; while the key is equal nothing is run again. What the texts of
a failure mean: :mod:`fleet.agent.gpu_failures`. The record is read by :mod:`fleet.agent.facts.checks`.
"""

from __future__ import annotations

import os

from fleet.agent.container_check.record import keep, key, record
from fleet.agent.container_check.seen import (
    PROBE,
    SCRIPT,
    chosen,
    compare,
    failed,
    host_gpus,
    judge_cuda,
    judge_requirement,
    pinned,
    rows,
    tail,
    versions,
)
from fleet.agent.engine import Engine, EngineCancelled, EngineError, EngineUnavailable
from fleet.agent.gpu_failures import explained, is_missing_hook
from fleet.agent.protocol import KNOWN_AFTER_APPLY, SIMULATED_MARKER, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Resource,
    StepCancelled,
    StepFailed,
    StepPending,
    difference,
)
from fleet.agent.resources.container import LABEL, device_request, foreign, gpu_way
from fleet.agent.resources.image import engine_failure

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


NAME = "fleet-container-check"
HOOK = "/usr/bin/nvidia-container-runtime-hook"
CONTAINER_DEADLINE_S = 300.0


class ContainerCheck(Resource):
    """See the module. ``args``: reference, digest (None: not pinned), request "auto" | "gpus" | "cdi",
    ``gpus`` ("all", or a list of indexes and UUIDs), ``addresses`` (PCI addresses that the host must show),
    ``go_on`` (the command that gives leave to restart the engine, where it needs leave; else None),
    deadline_s, and ``reflects``: files that the check pass takes to change its outcome."""

    kind = "container_check"

    def read(self, host: Host, args: Json) -> Json:
        """{"key": what the outcome depends on now, "record": what was found last or None}."""
        try:
            image = host.docker.image(pinned(args))
            info = host.docker.info()
        except EngineError as error:
            raise engine_failure(error, "cannot ask for the image %s" % args["reference"]) from None
        if image is None:
            raise StepFailed(
                "the image %s is not on this host" % pinned(args), "put an image task for it before this one"
            )
        return {"key": key(host, args, image, info), "record": record(host)}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """One difference: the check has not passed, or not with what it depends on as it is now."""
        now, last = state["key"], state["record"]
        if last is None:
            return [difference("container check", None, "passed")]
        if not last.get("passed"):
            return [difference("container check", "failed: %s" % last.get("reason"), "passed")]
        before = last.get("key") or {}
        changed = [name for name in now if before.get(name) != now[name]]
        if not changed:
            return []
        return [difference("container check", "passed with another %s" % ", ".join(changed), "passed")]

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Look, compare, keep what was seen. Raises StepFailed with the reason first."""
        found: Json = {"key": self.read(host, args)["key"], "passed": False, "reason": None}
        found.update(
            reference=args["reference"],
            digest=args.get("digest"),
            simulated=os.path.exists(host.path(SIMULATED_MARKER)),
        )
        try:
            self._look(host, args, found, report)
        except StepCancelled:
            raise
        except StepFailed as failure:
            found["reason"] = failure.what
            keep(host, found)
            raise
        found["passed"] = True
        keep(host, found)
        return {"registered": {"container_check": found}}

    def _look(self, host: Host, args: Json, found: Json, report: Reporter) -> None:
        report.progress("asking the host for its GPUs")
        gpus = host_gpus(host, args.get("addresses") or [])
        wanted = chosen(gpus, args.get("gpus") or "all")
        found["gpus"] = wanted
        judge_requirement(host, args, gpus)
        checked = _Checked(host, args)
        found["request"] = checked.by
        report.progress("running %s with %d GPU(s)" % (args["reference"], len(wanted)))
        inside, said = checked.run(args.get("gpus") or "all", PROBE)
        found["versions"] = versions(said)
        found["container_gpus"] = [gpu["uuid"] for gpu in inside]
        compare(wanted, inside)
        if not found["simulated"]:
            judge_cuda(found["versions"], said)
        if len(wanted) > 1:
            report.progress("running %s with one GPU" % args["reference"])
            one, _ = checked.run([wanted[0]["index"]], "")
            compare(wanted[:1], one)
            found["one_gpu"] = one[0]["uuid"]

    def requires(self, args: Json) -> Provides:
        return Provides(engine=True, images=[args["reference"]])

    def forecast(self, args: Json, provided: Provides) -> str:
        """What an earlier step changes, this one judges anew."""
        return KNOWN_AFTER_APPLY


class _Checked:
    """Containers of the pinned image, one after the other, each removed at once."""

    def __init__(self, host: Host, args: Json) -> None:
        self._host = host
        self._args = args
        self._docker: Engine = host.docker
        request = args.get("request") or "auto"
        self.by = gpu_way(host, self._docker) if request == "auto" else request

    def run(self, gpus: Any, probe: str) -> Tuple[List[Json], str]:
        """(GPUs that nvidia-smi shows inside, everything that was printed)."""
        try:
            self._remove_left_over()
            self._docker.create_container(NAME, self._configuration(gpus, probe))
            try:
                text = self._output()
            finally:
                self._docker.remove_container(NAME, force=True)
        except EngineCancelled:
            raise StepCancelled("the container check was cancelled") from None
        except EngineError as error:
            raise self._refused(error) from None
        shown, _, rest = text.partition("fleet:exit ")
        if not rest:
            raise failed(explained(text), "container_failed", "sh did not run in it: " + tail(text))
        failure = explained(shown)
        if failure is not None or not rest.startswith("0"):
            said = "nvidia-smi in the container ended with %s: %s" % (rest.split()[0], tail(shown))
            raise failed(failure, "container_failed", said)
        return rows(shown), rest

    def _output(self) -> str:
        self._docker.start_container(NAME)
        deadline_s = float(self._args.get("deadline_s") or CONTAINER_DEADLINE_S)
        try:
            self._docker.wait_container(NAME, deadline_s, self._host.cancelled)
        except EngineUnavailable as error:
            if error.reason != "timeout":
                raise
            raise StepFailed(
                "container_timeout: the container did not end within %d s: %s"
                % (deadline_s, tail(self._docker.logs(NAME, None))),
                "run it by hand: docker run --rm --gpus all %s nvidia-smi" % self._args["reference"],
            ) from None
        return self._docker.logs(NAME, None)

    def _remove_left_over(self) -> None:
        """A worker that died leaves its container behind."""
        there = self._docker.container(NAME)
        if there is None:
            return
        if LABEL not in ((there.get("Config") or {}).get("Labels") or {}):
            raise foreign({"name": NAME}, there)
        self._docker.remove_container(NAME, force=True)

    def _configuration(self, gpus: Any, probe: str) -> Json:
        return {
            "Image": pinned(self._args),
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", SCRIPT, "sh", probe],
            "Labels": {LABEL: "container_check"},
            "HostConfig": {"NetworkMode": "none", "DeviceRequests": [device_request(gpus, self.by)]},
        }

    def _refused(self, error: EngineError) -> StepFailed:
        """The engine's or the hook's refusal. An engine that is older than the hook waits for leave."""
        go_on = self._args.get("go_on")
        if go_on and is_missing_hook(error.message) and os.path.exists(self._host.path(HOOK)):
            what = "needs leave to restart Docker: it was started before the container toolkit was installed"
            return StepPending(what, go_on)
        failure = explained(error.message)
        if failure is None:
            return engine_failure(error, "container_failed: the check of %s" % self._args["reference"])
        return failed(failure, "", "")


RESOURCE = ContainerCheck()
