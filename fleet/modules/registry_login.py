"""Credentials for a registry are verified and, with ``persist: true``, kept on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import Answers, Argument, Context, Facts, Json

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "registry": Argument("plain", required=True, aliases=("registry_url",), description="host, or host:port"),
    "username": Argument(required=True, description="the user"),
    "password": Argument(required=True, description="a secret"),
    "ca": Argument("path", description="certificate authority of the registry, a file on the host"),
    "persist": Argument(
        "boolean", default=False, description="write them to the host's config.json, readable by root"
    ),
}


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``registry_login`` step."""
    wanted = {name: args[name] for name in ("registry", "username", "password", "ca", "persist")}
    return [context.step("login", "registry_login", wanted, deadline_s=120.0)]
