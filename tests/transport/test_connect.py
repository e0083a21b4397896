"""Connecting to a real sshd: one TCP connection, one exec, an agent that answers."""

from __future__ import annotations

from tests.transport.conftest import *  # noqa: F403


def test_request(sshd, connector, settings_for):
    connection = connector.connect(settings_for(sshd))
    assert connection.hello["bundle_sent"] is True
    assert connection.request("echo", {"a": [1, "ä"]}) == {"a": [1, "ä"]}
