"""Who is refused, and how it is said: other runs, other names, wrong passwords, odd hosts, bad input."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.lab import faults
from fleet.lab.access import connection_variables, write_inventory
from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from tests.e2e import harness
from tests.e2e.harness import Fleet, count

HostFactory = Callable[..., HostDefinition]


def play(fleet: Fleet, inventory: Path, folder: Path, *words: str) -> harness.Finished:
    book = harness.playbook(folder, [count("once")])
    return fleet("run", str(inventory), str(book), *words)


@pytest.mark.lab
def test_a_second_controller_is_refused_naming_the_first_run(
    lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host()
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host])
    (tmp_path / "second").mkdir()
    slow = harness.playbook(
        tmp_path, [{"command": {"argv": ["sh", "-c", "touch /run/in-apt; sleep 20"]}}, count("first")]
    )
    running = fleet.start("run", str(inventory), str(slow))
    harness.in_apt(lab, host.name)
    other = Fleet(tmp_path / "second")
    refused = play(other, inventory, tmp_path / "second")
    first = running.finish()
    assert first.code == 0, first.said
    assert refused.code == 1, refused.said
    run = next(iter((tmp_path / "reports").iterdir())).name
    assert run in refused.said
    assert getpass.getuser() in refused.said
    assert harness.counted(lab, host.name) == ["first"]


@pytest.mark.lab
def test_two_names_for_one_machine(lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path) -> None:
    host = lab_host()
    alias = replace(host, name="another-name")
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host, alias])
    done = play(fleet, inventory, tmp_path)
    assert done.code == 1, done.said
    assert "one machine" in done.said
    assert host.name in done.said
    assert "another-name" in done.said
    assert harness.counted(lab, host.name) == ["once"]


@pytest.mark.lab
def test_a_wrong_sudo_password(lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path) -> None:
    host = lab_host(login="sudo_password")
    inventory = changed_inventory(lab, host, tmp_path, ansible_become_password="not-the-password")
    done = play(fleet, inventory, tmp_path)
    assert done.code == 3, done.said
    assert "wrong" in done.said
    assert "sudo" in done.said
    assert "not-the-password" not in done.said


@pytest.mark.lab
def test_a_sudo_password_that_nobody_gave(
    lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host(login="sudo_password")
    inventory = changed_inventory(lab, host, tmp_path, ansible_become_password=None)
    done = play(fleet, inventory, tmp_path)
    assert done.code == 3, done.said
    assert "-K" in done.said


@pytest.mark.lab
def test_nopasswd_with_a_password_given(
    lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host(login="sudo_nopasswd")
    inventory = changed_inventory(lab, host, tmp_path, ansible_become_password="never-asked-for")
    done = play(fleet, inventory, tmp_path)
    assert done.code == 0, done.said


@pytest.mark.lab
@pytest.mark.parametrize(
    "fields",
    [
        {"noisy_profile": True},
        {"shell": "csh"},
        {"login": "sudo_password", "shell": "csh", "noisy_profile": True},
    ],
    ids=["noisy profile", "csh", "csh, noisy, sudo"],
)
def test_logins_that_trip_others(
    fields: dict[str, Any], lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host(**fields)
    done = play(fleet, write_inventory(tmp_path / "site.yaml", lab, [host]), tmp_path)
    assert done.code == 0, done.said
    assert harness.counted(lab, host.name) == ["once"]


@pytest.mark.lab
@pytest.mark.parametrize("python", ["minimal", "none"])
def test_no_usable_python(python: str, lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path) -> None:
    host = lab_host(python=python)
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host])
    refused = play(fleet, inventory, tmp_path)
    assert refused.code == 3, refused.said
    assert "apt-get install" in refused.said
    assert ("python3-minimal" in refused.said) == (python == "minimal")
    installed = play(fleet, inventory, tmp_path, "--install-python")
    assert installed.code == 0, installed.said
    assert harness.counted(lab, host.name) == ["once"]


@pytest.mark.lab
def test_a_host_switched_off_costs_only_itself(
    lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    off, on = lab_host(), lab_host()
    faults.stop(lab, off.name)
    done = play(fleet, write_inventory(tmp_path / "site.yaml", lab, [off, on]), tmp_path)
    assert done.code == 3, done.said
    assert harness.counted(lab, on.name) == ["once"]
    assert "unreachable" in done.said
    assert off.address in done.said


@pytest.mark.lab
def test_a_changed_host_key_stops_that_host_and_names_both_fingerprints(
    lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    changed, same = lab_host(), lab_host()
    inventory = write_inventory(tmp_path / "site.yaml", lab, [changed, same])
    with faults.changed_host_key(lab, changed.name):
        done = play(fleet, inventory, tmp_path)
    assert done.code == 3, done.said
    assert done.said.count("SHA256:") >= 2
    assert harness.counted(lab, changed.name) == []
    assert harness.counted(lab, same.name) == ["once"]


@pytest.mark.lab
def test_a_frozen_sshd_is_noticed_and_the_run_goes_on_when_it_thaws(
    lab: Lab, lab_host: HostFactory, fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host()
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host])
    script = "touch /run/in-apt; sleep 20; echo slept >> /var/tmp/counter"
    book = harness.playbook(tmp_path, [{"command": {"argv": ["sh", "-c", script]}}, count("after")])
    running = fleet.start("run", str(inventory), str(book))
    harness.in_apt(lab, host.name)
    with faults.frozen_sshd(lab, host.name):
        harness.wait_until(
            lambda: running.says("no sign of life"), "the silence is noticed", deadline=40, host=host.name
        )
    done = running.finish()
    assert done.code == 0, done.said
    assert harness.counted(lab, host.name) == ["slept", "after"]


BROKEN = {
    "tab": ("all:\n  hosts:\n\tgpu01:\n", "3:1", "tab"),
    "port": ("all:\n  hosts:\n    gpu01: {ansible_port: twenty-two}\n", "3:27", "twenty-two"),
    "range": ("all:\n  hosts:\n    gpu[001-008]:\n", "3:5", "[001:008]"),
    "duplicate": ("all:\n  hosts:\n    gpu01:\n    gpu01:\n", "4:5", "gpu01"),
    "version": ("all:\n  vars: {nvidia_driver_version: 580.10}\n  hosts:\n    gpu01:\n", "2:33", "580.10"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_inventory_is_refused_with_its_place(name: str, fleet: Fleet, tmp_path: Path) -> None:
    text, place, word = BROKEN[name]
    (tmp_path / "site.yaml").write_text(text)
    done = fleet("provision", "site.yaml")
    assert done.code == 2, done.said
    assert f"site.yaml:{place}: " in done.err
    assert word in done.err
    assert "nothing was touched" in done.err
    assert "Traceback" not in done.said
    assert not (tmp_path / "reports").exists()


def test_provisioning_a_lab_that_is_down_says_how_to_bring_it_up(fleet: Fleet, tmp_path: Path) -> None:
    state = tmp_path / "no-lab-here"
    text = f"""
lab:
  vars: {{lab_state: {state}, lab_subnet: 172.28.200.0/24, lab_release: bookworm}}
  hosts:
    gpu01:
      ansible_host: 172.28.200.11
      ansible_user: root
      ansible_ssh_private_key_file: "{{{{ lab_state }}}}/id_ed25519"
"""
    (tmp_path / "down.yaml").write_text(text)
    done = fleet("provision", "down.yaml")
    assert done.code == 2, done.said
    assert "fleet lab up down.yaml" in done.err


def changed_inventory(lab: Lab, host: HostDefinition, folder: Path, **changes: Any) -> Path:
    """An inventory of ``host`` with other connection variables; None takes one away."""
    variables = {**connection_variables(lab, host), **changes}
    plain = {key: value for key, value in variables.items() if value is not None}
    path = folder / "site.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "all": {
                    "hosts": {
                        host.name: {k: str(v) if k != "ansible_become" else v for k, v in plain.items()}
                    }
                }
            }
        )
    )
    return path
