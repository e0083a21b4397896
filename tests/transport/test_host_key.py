"""Host keys against a real sshd: strict by default, pinned on request, a changed key stops that host."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet.core.connection import HostKeyPolicy
from fleet.core.errors import HostKeyMismatch, HostKeyUnknown
from fleet.transport.known_hosts import fingerprint
from tests.transport.sshd import make_key, public


def fingerprint_by_ssh_keygen(key):
    return subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, text=True).stdout.split()[
        1
    ]


def test_an_unknown_key_is_refused_before_anything_is_sent(sshd, connector, settings_for):
    with pytest.raises(HostKeyUnknown) as caught:
        connector.connect(settings_for(sshd, trust=False))
    text = str(caught.value)
    assert f"[127.0.0.1]:{sshd.port}" in text
    assert fingerprint_by_ssh_keygen(sshd.host_keys["ed25519"]) in text
    assert "--accept-new" in text
    assert sshd.logged("Accepted") == 0


def test_a_changed_key_names_both_fingerprints_the_line_and_the_remedy(
    sshd, connector, settings_for, home, tmp_path
):
    other = make_key(tmp_path / "other")
    file = home / ".ssh" / "known_hosts"
    file.write_text(f"# a comment\n[127.0.0.1]:{sshd.port} {public(other)}\n")
    with pytest.raises(HostKeyMismatch) as caught:
        connector.connect(settings_for(sshd, trust=False))
    text = str(caught.value)
    assert fingerprint_by_ssh_keygen(other) in text
    assert fingerprint_by_ssh_keygen(sshd.host_keys["ed25519"]) in text
    assert f"{file}:2" in text
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {file}" in text
    assert sshd.logged("Accepted") == 0


def test_accept_new_does_not_accept_a_changed_key(sshd, make_connector, settings_for, home, tmp_path):
    other = make_key(tmp_path / "other")
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {public(other)}\n")
    with pytest.raises(HostKeyMismatch):
        make_connector(accept_new=True).connect(settings_for(sshd, trust=False))


def test_a_key_of_another_type_than_the_one_on_file_is_a_changed_key(
    sshd, make_connector, settings_for, home, tmp_path
):
    other = make_key(tmp_path / "other", "ecdsa")
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {public(other)}\n")
    with pytest.raises(HostKeyMismatch, match="shows ssh-ed25519 SHA256"):
        make_connector(accept_new=True).connect(settings_for(sshd, trust=False))


def test_accept_new_pins_once_and_then_holds_to_it(sshd, make_connector, settings_for, home):
    file = home / ".ssh" / "known_hosts"
    file.write_text("old.example ssh-ed25519 AAAAdamaged")  # without a newline at its end
    connector = make_connector(accept_new=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: connector.connect(settings_for(sshd, trust=False)).close(), range(4)))
    lines = file.read_text().splitlines()
    assert lines == ["old.example ssh-ed25519 AAAAdamaged", sshd.known_hosts().strip()]
    assert make_connector().connect(settings_for(sshd, trust=False)).request("echo", {}) == {}


def test_accept_new_by_the_host_s_own_policy_and_file(sshd, connector, settings_for, tmp_path):
    file = tmp_path / "new" / "pins"
    endpoint = {"host_key_policy": HostKeyPolicy.ACCEPT_NEW, "known_hosts": (file,)}
    connector.connect(settings_for(sshd, trust=False, endpoint=endpoint))
    assert file.read_text() == sshd.known_hosts()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_pin_file_that_cannot_be_written_is_an_error(sshd, connector, settings_for):
    from pathlib import Path

    endpoint = {"host_key_policy": HostKeyPolicy.ACCEPT_NEW, "known_hosts": (Path("/proc/pins"),)}
    with pytest.raises(HostKeyUnknown, match="could not be written to /proc/pins"):
        connector.connect(settings_for(sshd, trust=False, endpoint=endpoint))


def test_hashed_entries_match(sshd, connector, settings_for, home):
    file = home / ".ssh" / "known_hosts"
    file.write_text(sshd.known_hosts())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "127.0.0.1" not in file.read_text()
    assert connector.connect(settings_for(sshd, trust=False)).request("echo", {}) == {}


def test_a_correct_rsa_entry_is_no_mismatch_for_a_server_with_more_keys(
    start_sshd, connector, settings_for, home
):
    """paramiko #2411: it negotiates ed25519 and then finds only ssh-rsa on file."""
    server = start_sshd(host_keys=("ed25519", "ecdsa", "rsa"))
    (home / ".ssh" / "known_hosts").write_text(server.known_hosts("rsa"))
    assert connector.connect(settings_for(server, trust=False)).request("echo", {}) == {}


def test_an_entry_without_the_port_serves_if_it_is_the_right_key(sshd, connector, settings_for, home):
    (home / ".ssh" / "known_hosts").write_text(f"127.0.0.1 {public(sshd.host_keys['ed25519'])}\n")
    assert connector.connect(settings_for(sshd, trust=False)).request("echo", {}) == {}


def test_an_entry_without_the_port_says_nothing_against_another_key(
    sshd, make_connector, settings_for, home, tmp_path
):
    other = make_key(tmp_path / "other")
    (home / ".ssh" / "known_hosts").write_text(f"127.0.0.1 {public(other)}\n")
    with pytest.raises(HostKeyUnknown):
        make_connector().connect(settings_for(sshd, trust=False))
    assert make_connector(accept_new=True).connect(settings_for(sshd, trust=False)).alive


def test_an_alias_is_looked_up_instead_of_the_address(sshd, connector, settings_for, home):
    (home / ".ssh" / "known_hosts").write_text(f"rack7 {public(sshd.host_keys['ed25519'])}\n")
    settings = settings_for(sshd, trust=False, endpoint={"host_key_alias": "rack7"})
    assert connector.connect(settings).request("echo", {}) == {}


def test_a_revoked_key_is_refused_though_it_is_on_file(sshd, make_connector, settings_for, home):
    line = sshd.known_hosts().strip()
    (home / ".ssh" / "known_hosts").write_text(f"{line}\n@revoked {line}\n")
    with pytest.raises(HostKeyMismatch, match="marked @revoked"):
        make_connector(accept_new=True).connect(settings_for(sshd, trust=False))


def test_fingerprints_are_as_ssh_keygen_prints_them(tmp_path):
    import base64

    key = make_key(tmp_path / "key")
    assert fingerprint(base64.b64decode(public(key).split()[1])) == fingerprint_by_ssh_keygen(key)
