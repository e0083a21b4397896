"""Logging in to lab hosts with plain Paramiko: the tests' own way in, which is not fleet's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import paramiko

from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab

SECONDS = 30.0


@contextlib.contextmanager
def login(lab: Lab, host: HostDefinition, *, seconds: float = SECONDS) -> Iterator[paramiko.SSHClient]:
    """An SSH connection to ``host``, through the bastion where it is behind it; host keys are verified."""
    with contextlib.ExitStack() as stack:
        channel = None
        if host.behind_bastion:
            bastion = stack.enter_context(login(lab, lab.member("bastion"), seconds=seconds))
            transport = bastion.get_transport()
            assert transport is not None
            channel = transport.open_channel("direct-tcpip", (host.address, 22), ("", 0), timeout=seconds)
        client = stack.enter_context(paramiko.SSHClient())
        client.load_host_keys(str(lab.state.directory / "known_hosts"))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(
            host.address,
            username=host.user,
            key_filename=str(lab.state.directory / "id_ed25519"),
            sock=channel,
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=seconds,
            allow_agent=False,
            look_for_keys=False,
        )
        yield client


def run(client: paramiko.SSHClient, command: str, stdin: str = "") -> tuple[int, str]:
    """(exit code, standard output and error) of ``command``."""
    sent, output, errors = client.exec_command(command, timeout=SECONDS)
    sent.write(stdin)
    sent.channel.shutdown_write()
    text = output.read().decode() + errors.read().decode()
    return output.channel.recv_exit_status(), text
