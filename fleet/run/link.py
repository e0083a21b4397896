"""One host's connection over the life of a run: opened, lost, opened again, until a deadline.

A lost connection costs nothing by itself, since the work goes on in a worker on the host. The link
reconnects with growing pauses; it gives up only when its deadline has passed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import ConnectionLost, HostFailed, HostKeyMismatch, HostKeyUnknown, HostUnreachable
from fleet.core.secret import Secret, referenced
from fleet.run.control import Control


class Agent(Protocol):
    """What the engine needs of a connection (see fleet.transport.AgentConnection)."""

    @property
    def hello(self) -> Mapping[str, Any]:
        """What the agent said first."""

    @property
    def seen_from(self) -> str | None:
        """The address the host sees the connection come from, as far as it is known."""

    @property
    def alive(self) -> bool:
        """Whether requests can still be made, as far as is known now."""

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        secrets_in: bool = False,
        deadline_s: float = 60.0,
    ) -> Any:
        """Ask and wait for the answer; errors of the agent are raised as fleet errors."""

    def pump(self, seconds: float) -> Sequence[Mapping[str, Any]]:
        """What the agent sent unasked (records, output), waiting at most ``seconds``."""

    def close(self) -> None:
        """Say goodbye if possible and free everything."""


Connect = Callable[[ConnectionSettings], Agent]


class Link:
    """Holds the current connection to one host and makes a new one when it is lost."""

    RECONNECT_DEADLINE_S = 300.0
    PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)

    def __init__(self, settings: ConnectionSettings, connect: Connect, control: Control) -> None:
        self._settings = settings
        self._connect = connect
        self._control = control
        self._agent: Agent | None = None

    @property
    def agent(self) -> Agent:
        """The live connection; opened on first use."""
        if self._agent is None:
            self._agent = self._connect(self._settings)
        return self._agent

    def answers(self, queries: Sequence[Mapping[str, Any]], deadline_s: float) -> Mapping[str, Any]:
        """The agent's answers by query; secrets in the queries travel beside them."""
        found: dict[str, Secret] = {}
        asked = [referenced(query, f"{query['id']}:", found) for query in queries]
        params: dict[str, Any] = {"queries": asked}
        if found:
            params["secrets"] = {name: secret.reveal() for name, secret in found.items()}
        answer = self.agent.request("query", params, secrets_in=bool(found), deadline_s=deadline_s)
        answers: Mapping[str, Any] = answer["answers"]
        return answers

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that has not been seen to fail."""
        return self._agent is not None and self._agent.alive

    def close(self) -> None:
        """Close the connection, if any."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()

    def reconnect(self, deadline_s: float = RECONNECT_DEADLINE_S) -> Agent:
        """A new connection to the same machine, or the last error once ``deadline_s`` has passed."""
        return self._retry(deadline_s, lambda agent: True)

    def after_reboot(self, old_boot_id: str, deadline_s: float) -> Agent:
        """A connection to the machine once it runs with another valid boot id than ``old_boot_id``."""
        return self._retry(deadline_s, lambda agent: _rebooted(agent.hello, old_boot_id))

    def _retry(self, deadline_s: float, accept: Callable[[Agent], bool]) -> Agent:
        self.close()
        until = self._control.now() + deadline_s
        last: HostUnreachable | None = None
        attempt = 0
        while self._control.now() < until:
            self._control.raise_if_detached(self._settings.name)
            try:
                agent = self._connect(self._settings)
            except (HostKeyMismatch, HostKeyUnknown):
                raise  # another machine answers: waiting does not mend that
            except HostUnreachable as error:
                last = error  # a host that is still booting refuses logins, too (pam_nologin)
            else:
                if accept(agent):
                    self._agent = agent
                    return agent
                agent.close()
            pause = self.PAUSES_S[min(attempt, len(self.PAUSES_S) - 1)]
            self._control.wait(pause * random.uniform(0.75, 1.25))  # noqa: S311 - jitter, not cryptography
            attempt += 1
        raise self._gave_up(last, deadline_s)

    def _gave_up(self, last: HostUnreachable | None, deadline_s: float) -> HostUnreachable | HostFailed:
        name = self._settings.name
        if last is None:
            return HostFailed(
                f"still the same boot {deadline_s:.0f} s after the reboot was asked for",
                host=name,
                remedy=f"look at the console of {name}; something holds its shutdown up",
            )
        return ConnectionLost(
            f"not back within {deadline_s:.0f} s; last: {last.what}",
            host=name,
            remedy="the work on the host goes on without fleet; once it answers, resume the run",
        )


def _rebooted(hello: Mapping[str, Any], old_boot_id: str) -> bool:
    """Only two valid boot ids are compared: an unreadable one proves nothing."""
    boot_id = hello.get("boot_id")
    return bool(boot_id) and bool(old_boot_id) and boot_id != old_boot_id
