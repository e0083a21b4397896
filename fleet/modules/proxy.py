"""The way out through proxies: for apt, for Docker Engine's pulls, and for what fleet asks of repositories.

Each proxy is a variable of a site. Taken out of the inventory, it is taken off the host: the files here bear
fleet's name and are nobody else's. An engine that runs must be restarted to go another way, which stops
containers: where others use the host, the engine's part is left and the host is ``pending``.

One way for every engine: variables in its unit's environment. daemon.json has ``proxies`` only from 23.0 on, and
an older engine does not start with a key that it does not know; it is also read into facts and reports, where a
password of a proxy has no business. The values are in a file of root's, not in the drop-in itself, because
``systemctl show`` tells everybody what stands in units. Read next: :mod:`fleet.modules.shared.engine_settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fleet.audit.facts import fact
from fleet.core.secret import Secret
from fleet.modules.base import (
    SERVICE_DEADLINE_S,
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    ControllerResult,
    Facts,
    Json,
)
from fleet.modules.shared.engine_settings import engine_present, restart_permitted, restart_refused

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

READS_FACTS = True
DECIDES = True
APT = "/etc/apt/apt.conf.d/99fleet-proxy"
APT_EXEMPT = "/etc/apt/fleet-no-proxy"
ENGINE_FOLDER = "/etc/systemd/system/docker.service.d"
ENGINE_DROP_IN = f"{ENGINE_FOLDER}/fleet-proxy.conf"
ENGINE_VALUES = f"{ENGINE_FOLDER}/fleet-proxy.env"
ARGUMENTS = {
    "http": Argument(description="for http addresses: http://[user:password@]host:port"),
    "https": Argument(description="for https addresses; the same as http where it is not given"),
    "no_proxy": Argument(
        "list", default=[], description="hosts and domains that are reached without; networks: Docker only"
    ),
}
_WRITTEN = "Written by fleet: http_proxy, https_proxy and no_proxy of the inventory."
# No more than Go, apt and systemd take as it is: a dockerd that cannot read an address quotes it in its error.
_CREDENTIALS = r"(?:[A-Za-z0-9._~!&()*+,=:-]|%[0-9A-Fa-f]{2})+@"
_PROXY = re.compile(
    rf"https?://(?:{_CREDENTIALS})?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/?"
)
_LOGIN = re.compile(r"https?://[^/@]*:[^/@]*@")
_EXEMPT = re.compile(r"(?:\*|(?:\*?\.)?[A-Za-z0-9-][A-Za-z0-9.:/-]*)")


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """Addresses and names of the forms that apt and Docker both read. No value is quoted: it may hold a login."""
    problems = []
    for name in ("http", "https"):
        value = args.get(name)
        text = value.reveal() if isinstance(value, Secret) else value
        if isinstance(text, str) and text and "{{" not in text and not _PROXY.fullmatch(text):
            message = (
                f"{name} must be the address of a proxy, http://host:port; other characters in a login as %40"
            )
            problems.append(ArgumentProblem(message, name))
    exempt = args.get("no_proxy")
    for entry in exempt if isinstance(exempt, list) else []:
        if isinstance(entry, Secret) or ("{{" not in str(entry) and not _EXEMPT.fullmatch(str(entry))):
            message = "no_proxy must be names, domains (.example.net), addresses or networks"
            problems.append(ArgumentProblem(message, "no_proxy"))
    return problems


def proxies(args: Json) -> Json | None:
    """What questions about repositories are asked through: ``http``, ``https``, ``no_proxy``; None: nothing."""
    http = _kept_secret("http", args["http"])
    https = _kept_secret("https", args["https"]) or http
    if not https:
        return None
    return {"http": http or None, "https": https, "no_proxy": list(args["no_proxy"])}


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """Without proxies: which files fleet has left. With them: whether the engine already has these, where it could
    not be restarted for others."""
    wanted = proxies(args)
    if wanted is None:
        return [
            {"id": "apt", "kind": "path", "path": APT},
            {"id": "values", "kind": "path", "path": ENGINE_VALUES},
        ]
    if not _has_systemd(facts) or restart_permitted(facts, context):
        return []
    return [{"id": "engine", "kind": "file_is", "path": ENGINE_VALUES, "content": _engine_text(wanted)}]


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """A restart that needs leave (``pending``), and what must be done by hand."""
    wanted = proxies(args)
    why = _held_back(facts, answers, context)
    if why:
        text = f"needs leave to restart Docker: {why}"
        return [context.result("pending", text, remedy=context.disrupt_command)]
    said = []
    if wanted and fact(facts, "packages.manager") == "dnf":
        text = "dnf is not told of proxies yet: set proxy= in /etc/dnf/dnf.conf by hand"
        said.append(context.result("message", text))
    if wanted and not _has_systemd(facts):
        text = "no systemd here: whoever starts the engine gives it HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
        said.append(context.result("message", text))
    return said


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """apt's files, then the engine's, and a restart of an engine that is older than these."""
    wanted = proxies(args)
    made = _apt_steps(wanted, facts, answers, context)
    if not _has_systemd(facts) or not restart_permitted(facts, context):
        return made
    if wanted is not None:
        return [*made, *_engine_steps(wanted, facts, context)]
    if not _left(answers, "values"):
        return made
    # The values go last: while they are there, a restart that was cut short is not forgotten.
    drop_in = _file("drop_in", ENGINE_DROP_IN, None, context)
    return [*made, drop_in, *_restart(facts, context), _file("values", ENGINE_VALUES, None, context)]


def _apt_steps(wanted: Json | None, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """The settings, and the program that they name: there before them, gone after them."""
    if fact(facts, "packages.manager") != "apt" or (wanted is None and not _left(answers, "apt")):
        return []
    program = _exempt_text(wanted["no_proxy"] if wanted else [])
    exempt = _file("apt_exempt", APT_EXEMPT, program, context, "0755")
    settings = _file("apt", APT, _apt_text(wanted) if wanted else None, context)
    return [exempt, settings] if program else [settings, exempt]


def _engine_steps(wanted: Json, facts: Facts, context: Context) -> list[Step]:
    drop_in = f"# {_WRITTEN}\n[Service]\nEnvironmentFile={ENGINE_VALUES}\n"
    return [
        context.step("folder", "directory", {"path": ENGINE_FOLDER, "state": "present"}),
        _file("values", ENGINE_VALUES, _engine_text(wanted), context),
        _file("drop_in", ENGINE_DROP_IN, drop_in, context),
        *_restart(facts, context),
    ]


def _restart(facts: Facts, context: Context) -> list[Step]:
    """An engine to come starts with what is there."""
    if not engine_present(facts):
        return []
    wanted: Json = {"name": "docker", "reflects": [ENGINE_VALUES, ENGINE_DROP_IN]}
    return [context.step("engine", "service", wanted, deadline_s=SERVICE_DEADLINE_S, disruptive=True)]


def _left(answers: Answers, which: str) -> bool:
    return bool((answers.get(which) or {}).get("exists"))


def _held_back(facts: Facts, answers: Answers, context: Context) -> str | None:
    due = _left(answers, "values") or (answers.get("engine") or {}).get("same") is False
    return restart_refused(["its proxies change"] if due else [], facts, context)


def _has_systemd(facts: Facts) -> bool:
    return fact(facts, "systemd.present") is not False


def _file(part: str, path: str, content: str | Secret | None, context: Context, mode: str = "0644") -> Step:
    """A file of fleet's own, for root alone where a secret is in it; without content it is taken away."""
    if content is None:
        return context.step(part, "file", {"path": path, "state": "absent"})
    wanted = {"path": path, "content": content, "state": "present"}
    wanted["mode"] = "0600" if isinstance(content, Secret) else mode
    return context.step(part, "file", wanted)


def _apt_text(wanted: Json) -> str | Secret:
    def text(shown: Callable[[str], str]) -> str:
        lines = [f"// {_WRITTEN}"]
        for scheme in ("http", "https"):
            if wanted[scheme]:
                lines.append(f'Acquire::{scheme}::Proxy "{shown(scheme)}";')
                if _exempt_text(wanted["no_proxy"]):
                    lines.append(f'Acquire::{scheme}::Proxy-Auto-Detect "{APT_EXEMPT}";')
        return "".join(f"{line}\n" for line in lines)

    return _with_secrets(text, wanted)


def _engine_text(wanted: Json) -> str | Secret:
    def text(shown: Callable[[str], str]) -> str:
        lines = [f"# {_WRITTEN}"]
        lines += [f"{scheme.upper()}_PROXY={shown(scheme)}" for scheme in ("http", "https") if wanted[scheme]]
        if wanted["no_proxy"]:
            lines.append(f"NO_PROXY={','.join(wanted['no_proxy'])}")
        return "".join(f"{line}\n" for line in lines)

    return _with_secrets(text, wanted)


def _exempt_text(exempt: list[str]) -> str | None:
    """The program that apt asks for each address, because apt itself knows no domains and no ``no_proxy``.

    Of an address that it says nothing about apt takes the proxy of the settings.
    """
    patterns: list[str] = []
    for entry in exempt:
        if "/" in entry:
            continue  # a network: apt's addresses are names
        name = entry.removeprefix("*")
        forms = [name] if entry == "*" else [f"*{name}"] if name.startswith(".") else [name, f"*.{name}"]
        patterns += ["*"] if entry == "*" else [each for form in forms for each in (form, f"{form}:*")]
    if not patterns:
        return None
    return (
        f"#!/bin/sh\n# {_WRITTEN}\n# apt asks it which proxy to take for an address.\n"
        "server=${1#*://}\nserver=${server%%/*}\n"
        f'case "${{server##*@}}" in\n{"|".join(patterns)}) echo DIRECT ;;\nesac\n'
    )


def _with_secrets(text: Callable[[Callable[[str], str]], str], wanted: Json) -> str | Secret:
    """``text`` of the proxies' addresses; a secret where one of them is."""

    def plain(scheme: str) -> str:
        value = wanted[scheme]
        return value.reveal() if isinstance(value, Secret) else str(value)

    secret = next((each for each in (wanted["http"], wanted["https"]) if isinstance(each, Secret)), None)
    return Secret(text(plain), secret.name) if secret is not None else text(plain)


def _kept_secret(name: str, value: Any) -> Any:
    """An address with a password in it is a secret, whoever forgot to say so. Empty is none."""
    if isinstance(value, Secret) and not value.reveal():
        return None
    if isinstance(value, str) and _LOGIN.match(value):
        return Secret(value, f"{name} proxy")
    return value
