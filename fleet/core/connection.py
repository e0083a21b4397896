"""How one host is reached and how root is had there: what inventory produces and transport uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from fleet.core.secret import Secret


class HostKeyPolicy(Enum):
    """What to do about a host key that is not on file. A *changed* key always stops that host."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"


@dataclass(frozen=True)
class Endpoint:
    """One SSH server to log in to: a host, or a bastion on the way to it."""

    address: str
    port: int = 22
    user: str = "root"
    password: Secret | None = None
    key_files: tuple[Path, ...] = ()
    identities_only: bool = False
    known_hosts: tuple[Path, ...] = ()
    host_key_policy: HostKeyPolicy = HostKeyPolicy.STRICT
    host_key_alias: str | None = None

    @property
    def shown(self) -> str:
        """``user@address:port``, as messages name it."""
        return f"{self.user}@{self.address}:{self.port}"


@dataclass(frozen=True)
class Become:
    """Escalation to root: once, for the whole agent, by sudo."""

    enabled: bool = False
    user: str = "root"
    password: Secret | None = None


@dataclass(frozen=True)
class Deadlines:
    """Every wait has one. Seconds."""

    connect: float = 15.0
    banner: float = 15.0
    authentication: float = 30.0
    channel: float = 30.0
    hello: float = 60.0
    silence: float = 30.0


@dataclass(frozen=True)
class ConnectionSettings:
    """Everything needed to open one connection to one inventory host.

    ``jumps`` are bastions in the order they are passed; ``proxy_command`` excludes them.
    ``python`` is a fixed interpreter path, or None to let the host be searched.
    """

    name: str
    endpoint: Endpoint
    jumps: tuple[Endpoint, ...] = ()
    proxy_command: str | None = None
    become: Become = field(default_factory=Become)
    python: str | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    local: bool = False
