"""The connected agent: says hello, answers requests, and streams a journal while a worker writes it.

A bootstrap stage calls :func:`main` right after the ready marker; standard input and output are the
wire. Nothing here applies anything: that is the worker's (:mod:`fleet.agent.worker`), which goes on
when this process ends. Requests and messages are specified in docs/protocol.md; those that concern
runs are answered by :mod:`fleet.agent.run_requests`.
"""

from __future__ import annotations

import os
import sys

from fleet.agent.hello import make_hello, minimal_hello, missing_modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleet.agent.channel import Channel
    from fleet.agent.machine import Machine
    from fleet.agent.paths import Paths
    from fleet.agent.protocol import Json
    from fleet.agent.run_requests import RunRequests


def main(argv: list[str], bundle: Optional[bytes] = None, machine: Optional[Machine] = None) -> int:
    """Serve one connection on standard input and output until it closes. Returns the exit code.

    ``bundle`` is the zip this code came in, where it runs from memory; None when it runs from a folder.
    ``argv`` may hold ``--bundle SHA256``, the bundle's expected digest.
    """
    os.umask(0o077)
    sink = os.dup(1)
    os.dup2(2, 1)
    missing = missing_modules()
    if "json" in missing or "threading" in missing:
        os.write(sink, minimal_hello(missing))
        return 0
    from fleet.agent.channel import Channel, Closed
    from fleet.agent.machine import Machine
    from fleet.agent.paths import Paths

    channel = Channel(0, sink)
    session = Session(channel, Paths.from_environment(os.environ), machine or Machine(), bundle)
    try:
        session.greet(missing)
        session.serve()
    except Closed:
        pass  # the end of every session
    sys.stderr.flush()
    os._exit(0)  # do not wait for the thread that reads


class RequestError(Exception):
    """A request that is answered with an error: its kind, message, and further fields."""

    def __init__(self, kind: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields: Json = dict(fields, kind=kind, message=message)


class Session:
    """Answers requests one at a time; between them, and while waiting, streams the followed journal."""

    def __init__(self, channel: Channel, paths: Paths, machine: Machine, bundle: Optional[bytes]) -> None:
        self._channel = channel
        self._paths = paths
        self._machine = machine
        self._bundle = bundle
        self._runs: Optional[RunRequests] = None
        self._methods: dict[str, Callable[[Any, Json], Json]] = {
            "facts": self._facts,
            "query": self._query,
            "check": self._check,
            "exec": self._exec,
        }
        self._bye = False

    def greet(self, missing: list[str]) -> None:
        """Send hello."""
        on_disk = self._bundle is None
        self._channel.send(make_hello(self._paths, self._machine, missing, bundle_on_disk=on_disk))

    def serve(self) -> None:
        """Answer until bye. Raises Closed when the controller goes."""
        while not self._bye:
            wait_s = 30.0 if self._runs is None else self._runs.stream()
            message = self._channel.receive(wait_s)
            if message is not None:
                self._answer(message)

    def _answer(self, message: Json) -> None:
        """One response for one request, whatever happens in between."""
        response: Json = {"type": "response", "id": message.get("id")}
        try:
            response["result"] = self._dispatch(message)
        except RequestError as error:
            response["error"] = error.fields
        except PermissionError as error:
            response["error"] = RequestError("permission", str(error), remedy="set become: true").fields
        except OSError as error:
            response["error"] = RequestError("failed", str(error)).fields
        except Exception as error:
            import traceback

            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            what = "%s: %s" % (type(error).__name__, error)
            response["error"] = {
                "kind": "bug",
                "message": "bug in fleet: " + what,
                "traceback": text[-16384:],
            }
        self._respond(response, message)

    def _respond(self, response: Json, message: Json) -> None:
        """Send a response, scrubbed of the secrets its request brought; too long a one is an error."""
        from fleet.agent.protocol import ERROR_FAILED, FramingError
        from fleet.agent.scrub import Scrubber

        response = Scrubber(_secret_values(message.get("params"))).value(response)
        try:
            self._channel.send(response)
        except FramingError as error:
            refusal = {"kind": ERROR_FAILED, "message": "the answer is too long: %s" % error}
            self._channel.send({"type": "response", "id": response["id"], "error": refusal})

    def _dispatch(self, message: Json) -> Json:
        method, params = message.get("method"), message.get("params", {})
        if message["type"] != "request":
            raise RequestError("bad_request", "a request belongs here, not a %s" % message["type"])
        if not isinstance(params, dict) or not isinstance(method, str):
            raise RequestError("bad_request", "a request has a method (text) and params (an object)")
        if method == "bye":
            self._bye = True
            return {}
        if method in self._methods:
            return self._methods[method](message.get("id"), params)
        return self._run_requests().answer(method, params)

    def _run_requests(self) -> RunRequests:
        """What answers requests about runs; made, with its imports, when the first comes."""
        if self._runs is None:
            from fleet.agent.run_requests import RunRequests

            self._runs = RunRequests(self._channel, self._paths, self._machine, self._bundle)
        return self._runs

    # -- requests that change nothing, and exec --------------------------------------------------------

    def _facts(self, request: Any, params: Json) -> Json:
        from fleet.agent.host import Host

        try:
            document: Json = _module("facts").collect(Host(), params.get("groups"))
        except ValueError as error:
            raise RequestError("bad_request", str(error)) from None
        return document

    def _query(self, request: Any, params: Json) -> Json:
        from fleet.agent.host import Host

        asked = _field(params, "queries", list)
        return {"answers": _module("queries").answer(Host(secrets=params.get("secrets") or {}), asked)}

    def _check(self, request: Any, params: Json) -> Json:
        return self._run_requests().check(params)

    def _exec(self, request: Any, params: Json) -> Json:
        from fleet.agent.execute import execute
        from fleet.agent.host import Host
        from fleet.agent.resources.base import StepFailed

        shell = params.get("shell")
        argv = ["/bin/sh", "-c", shell] if isinstance(shell, str) else params.get("argv")
        if not argv or not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            raise RequestError("bad_request", "exec needs argv (a list of texts) or shell (a text)")
        user = params.get("become_user")
        try:
            account = Host().account(user) if user not in (None, "root") else None
        except StepFailed as error:
            raise RequestError("failed", error.what, remedy=error.remedy) from None
        try:
            return execute(
                argv,
                account=account,
                stdin=params.get("stdin"),
                deadline_s=float(params.get("deadline_s") or 3600.0),
                on_output=lambda stream, text: self._channel.send(
                    {"type": "output", "id": request, "stream": stream, "text": text}
                ),
                gone=self._channel.gone,
            )
        except FileNotFoundError:
            remedy = "install what brings it; a whole shell line is run by: -- sh -c 'LINE'"
            raise RequestError("failed", "the command %s was not found" % argv[0], remedy=remedy) from None


def _module(name: str) -> Any:
    """A module of the agent, imported when it is first needed."""
    import importlib

    return importlib.import_module("fleet.agent." + name)


def _secret_values(params: Any) -> list[str]:
    """The values of the secrets that came with a request, well formed or not."""
    secrets = params.get("secrets") if isinstance(params, dict) else None
    found = secrets.values() if isinstance(secrets, dict) else ()
    return [value for value in found if isinstance(value, str)]


def _field(params: Json, name: str, kind: type) -> Any:
    """A parameter that must be there, of one type."""
    value = params.get(name)
    if not isinstance(value, kind):
        raise RequestError("bad_request", "params.%s must be of type %s" % (name, kind.__name__))
    return value
