"""What the lab's hosts are like to whoever logs in to them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import paramiko
import pytest

from fleet.lab import faults
from fleet.lab.definition import HostDefinition
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from tests.lab import ssh

pytestmark = pytest.mark.lab
HostFactory = Callable[..., HostDefinition]


def test_every_host_is_a_machine_of_its_own(lab: Lab) -> None:
    names = [host.name for host in lab.members]
    for command in (
        "cat /etc/machine-id",
        "cat /proc/sys/kernel/random/boot_id",
        "cat /etc/ssh/*_ed25519_key.pub",
    ):
        assert len({faults.shell(lab, name, command) for name in names}) == len(names), command
    for name in names:
        assert faults.shell(lab, name, "hostname").strip() == name
        marker = json.loads(faults.shell(lab, name, "cat /etc/fleet-lab.json"))
        assert marker == {"lab": lab.name, "host": name}


def test_every_host_takes_a_login_with_the_keys_on_file(lab: Lab) -> None:
    releases = {}
    for host in lab.definition.hosts:
        with ssh.login(lab, host) as client:
            code, text = ssh.run(
                client, 'id -un; . /etc/os-release; echo "$VERSION_CODENAME"; python3 --version'
            )
            assert code == 0
            user, release, python = text.splitlines()
            assert user == host.user
            releases[release] = python
    assert sorted(releases) == ["bookworm", "bullseye", "jammy", "trixie"]
    assert releases["bullseye"].startswith("Python 3.9.")


def test_systemd_is_up_with_nothing_failed(lab: Lab) -> None:
    for host in lab.members:
        assert faults.execute(lab, host.name, "systemctl", "--failed", "--no-legend").stdout == ""
        faults.execute(lab, host.name, "systemctl", "is-active", "systemd-logind.service", "ssh.service")


def test_a_reboot_brings_a_new_boot_id_and_keeps_files_address_and_keys(
    lab: Lab, lab_host: HostFactory
) -> None:
    host = lab_host()
    before = faults.boot_id(lab, host.name)
    faults.shell(lab, host.name, "echo kept > /root/kept")
    faults.reboot(lab, host.name)
    assert faults.boot_id(lab, host.name) != before
    with ssh.login(lab, host) as client:
        assert ssh.run(client, "cat /root/kept") == (0, "kept\n")


def test_the_host_behind_the_bastion_does_not_answer_directly(lab: Lab) -> None:
    host = lab.definition.host("gpu04")
    with pytest.raises(TimeoutError), socket.create_connection((host.address, 22), timeout=3):
        pass
    assert faults.shell(lab, "gpu04", "apt-get update -qq && echo reaches the package mirror").strip()


def test_a_logout_kills_what_was_left_running_except_a_unit(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host(release="trixie", login="sudo_nopasswd", kill_user_processes=True)
    with ssh.login(lab, host) as client:
        left_behind = "sudo sh -c 'setsid sleep 86401 >/dev/null 2>&1 </dev/null &'"
        assert ssh.run(client, left_behind)[0] == 0
        assert ssh.run(client, "sudo systemd-run --unit=kept --quiet sleep 86402")[0] == 0
        assert _sleeps(lab, host) == {"86401", "86402"}
    wait_until(lambda: "86401" not in _sleeps(lab, host), "logind has killed the session", host=host.name)
    assert _sleeps(lab, host) == {"86402"}


def _sleeps(lab: Lab, host: HostDefinition) -> set[str]:
    """Arguments of the sleep processes on the host."""
    listed = faults.shell(
        lab, host.name, r"for f in /proc/[0-9]*/cmdline; do cat $f 2>/dev/null | tr '\0' ' '; echo; done"
    )
    commands = [line.split() for line in listed.splitlines()]
    return {words[1] for words in commands if len(words) == 2 and words[0].endswith("sleep")}


def test_sudo_takes_the_right_password_only(lab: Lab) -> None:
    host = lab.definition.host("gpu03")
    password = (lab.state.directory / "gpu03.sudo_password").read_text().strip()
    with ssh.login(lab, host) as client:
        assert ssh.run(client, "sudo -n true")[0] != 0
        assert ssh.run(client, "sudo -k -S -p '' id -un", "wrong\n")[0] != 0
        assert ssh.run(client, "sudo -k -S -p '' id -un", f"{password}\n") == (0, "root\n")


def test_somebody_works_on_gpu02_and_configured_its_engine_by_hand(lab: Lab) -> None:
    listed = faults.execute(lab, "gpu02", "docker", "ps", "--format", "{{.Names}} {{.State}}").stdout
    assert "jupyter-anna running" in listed
    written = json.loads(faults.shell(lab, "gpu02", "cat /etc/docker/daemon.json"))
    assert written["labels"] == ["owner=anna"]
    assert "owner=anna" in faults.execute(lab, "gpu02", "docker", "info", "--format", "{{.Labels}}").stdout


def test_odd_hosts_are_as_odd_as_asked(lab: Lab, lab_host: HostFactory) -> None:
    bare = lab_host(python="none", shell="csh", noisy_profile=True)
    with ssh.login(lab, bare) as client:
        code, text = ssh.run(client, 'echo "shell is $shell"')
        assert code == 0
        assert "shell is /bin/csh" in text
        assert ssh.run(client, "python3 --version")[0] != 0
    minimal = lab_host(python="minimal", login="no_sudo", noisy_profile=True)
    with ssh.login(lab, minimal) as client:
        assert ssh.run(client, "python3 -c 'import shutil'")[0] != 0
        code, text = ssh.run(client, "python3 -c 'print(1)'")
        assert code == 0
        assert "Authorised use only" in text
        assert ssh.run(client, "sudo -n true")[0] != 0


def test_a_changed_host_key_is_not_the_one_on_file(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host()
    with (
        faults.changed_host_key(lab, host.name),
        pytest.raises(paramiko.BadHostKeyException),
        ssh.login(lab, host),
    ):
        pass
    with ssh.login(lab, host):
        pass


def test_a_frozen_sshd_accepts_and_never_speaks(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host()
    with (
        faults.frozen_sshd(lab, host.name),
        socket.create_connection((host.address, 22), timeout=10) as connection,
    ):
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    with ssh.login(lab, host):
        pass


def test_a_silent_host_drops_off_the_network_and_comes_back(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host()
    with faults.silent(lab, host.name), pytest.raises(TimeoutError):
        socket.create_connection((host.address, 22), timeout=2)
    with ssh.login(lab, host):
        pass


def test_cut_connections_end_and_new_ones_are_taken(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host()
    with ssh.login(lab, host) as client:
        _, output, _ = client.exec_command("cat", timeout=ssh.SECONDS)
        assert faults.cut_connections(lab, host.name) >= 1
        assert output.read() == b""
        transport = client.get_transport()
        assert transport is not None
        transport.join(ssh.SECONDS)
        assert not transport.is_active()
    with ssh.login(lab, host):
        pass


def test_power_goes_and_comes_back(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host()
    before = faults.boot_id(lab, host.name)
    faults.stop(lab, host.name, power=True)
    with pytest.raises(OSError):
        socket.create_connection((host.address, 22), timeout=3)
    faults.start(lab, host.name)
    assert faults.boot_id(lab, host.name) != before
