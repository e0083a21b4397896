"""The real agent over the real transport: hello, facts, goodbye; and the worker's folder used next time."""

from __future__ import annotations

import io
import os
import socket
import sys
import zipfile

import pytest

from fleet.core.errors import ConnectionLost
from fleet.transport import Bundle


@pytest.fixture
def real(make_connector):
    return make_connector(bundle=Bundle.of_agent())


def test_hello_and_facts_and_goodbye(sshd, real, settings_for):
    connection = real.connect(settings_for(sshd))
    hello = connection.hello
    assert hello["protocol"] == 1
    assert hello["python_complete"] is True
    assert hello["hostname"] == socket.gethostname()
    assert hello["uid"] == os.getuid()
    assert hello["bundle_on_disk"] is False
    facts = connection.request("facts", {"groups": ["kernel"]})
    assert facts["kernel"]["release"] == os.uname().release
    assert connection.request("bye") == {}
    with pytest.raises(ConnectionLost):
        connection.pump(20)
    assert not (sshd.folder / "state").exists()  # a session that only reads writes nothing


def test_the_unpacked_bundle_is_used_when_it_is_there(sshd, real, settings_for):
    bundle = Bundle.of_agent()
    place = sshd.folder / "state" / "agent" / bundle.sha256
    place.mkdir(parents=True)
    zipfile.ZipFile(io.BytesIO(bundle.data)).extractall(place)
    assert real.connect(settings_for(sshd)).hello["bundle_on_disk"] is True


def test_on_this_machine_without_ssh(sshd, real, settings_for, tmp_path, monkeypatch):
    monkeypatch.setenv("FLEET_AGENT_STATE_DIR", str(tmp_path / "state"))
    connection = real.connect(settings_for(sshd, local=True, python=sys.executable))
    assert connection.hello["hostname"] == socket.gethostname()
    assert sshd.logged("Accepted publickey") == 0
