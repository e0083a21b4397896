"""What an inventory must say for a lab to be made of it. No engine is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.errors import ExitCode, InputError, RefusedError
from fleet.lab.definition import LabDefinition, load_definition
from fleet.lab.engine import Engine
from fleet.lab.presence import refuse_if_down

REPOSITORY = Path(__file__).resolve().parents[2]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def _no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEET_LAB_STATE", raising=False)


def test_the_shipped_lab_is_the_four_hosts_of_the_readme() -> None:
    lab = load_definition(REPOSITORY / "inventories" / "lab.yaml")
    hosts = {host.name: host for host in lab.hosts}
    assert lab.name == "lab"
    assert lab.state == (REPOSITORY / ".lab").resolve() / "lab"
    assert [(name, host.release) for name, host in hosts.items()] == [
        ("gpu01", "bookworm"),
        ("gpu02", "bookworm"),
        ("gpu03", "trixie"),
        ("gpu04", "bullseye"),
    ]
    assert "docker.io" in hosts["gpu02"].all_packages
    assert hosts["gpu02"].foreign_containers == ("jupyter-anna",)
    assert (hosts["gpu02"].dress, hosts["gpu02"].driver) == ("ubuntu2204", "550.163.01")
    assert {"docker.io", "unattended-upgrades"} <= set(hosts["gpu02"].all_packages)
    machines = {name: host.hardware or {} for name, host in hosts.items()}
    assert [(len(m["gpus"]), len(m["nvswitches"]), m["nouveau"]) for m in machines.values()] == [
        *((8, 4, False), (8, 4, False)),
        *((1, 0, True), (2, 0, False)),
    ]
    assert [m["kernel"]["release"] for m in machines.values()] == [
        *("6.1.0-90-amd64", "5.15.0-170-generic"),
        *("6.12.990+deb13-amd64", "5.10.0-90-amd64"),
    ]
    assert hosts["gpu03"].login == "sudo_password"
    assert hosts["gpu03"].kill_user_processes
    assert hosts["gpu04"].behind_bastion
    assert lab.bastion is not None
    assert all("docker.io" not in hosts[name].all_packages for name in ("gpu01", "gpu03", "gpu04"))


def test_the_lab_of_mixed_gpus_is_eight_hosts_with_what_others_left_on_them() -> None:
    lab = load_definition(REPOSITORY / "inventories" / "lab-mixed.yaml")
    hosts = {host.name: host for host in lab.hosts}
    models = {name: [gpu["model"] for gpu in (host.hardware or {})["gpus"]] for name, host in hosts.items()}
    assert {model for found in models.values() for model in found} == {
        *("gtx-1080-ti", "rtx-2080-ti", "rtx-3050", "rtx-3090", "rtx-4090", "rtx-5090"),
        *("t4", "a100-sxm4-80gb", "h100-sxm", "generic"),
    }
    assert (len(hosts), models["mix03"]) == (8, ["gtx-1080-ti", "rtx-5090"])
    assert (hosts["mix02"].driver_modules, hosts["mix03"].driver_modules) == ("open", "proprietary")
    assert (hosts["mix05"].driver, hosts["mix05"].driver_upgraded) == ("570.158.01", "570.211.01")
    assert (hosts["mix07"].driver, hosts["mix07"].fabric_manager) == ("550.163.01", "535.183.06")
    assert [hosts[name].toolkit for name in ("mix01", "mix05", "mix08")] == ["1.20.0", None, "1.17.8"]
    assert (hosts["mix06"].login, hosts["mix06"].user) == ("no_sudo", "guest")


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ("lab_driver: '550.1', lab_gpus: {model: t4}", "lab_driver must be one of 535"),
        ("lab_driver: 550.163.01", "lab_driver needs lab_gpus"),
        ("lab_driver: 470.256.02, lab_gpus: {model: t4}", "lab_driver must be one of 535"),
        ("lab_driver_upgraded: 550.163.01, lab_gpus: {model: t4}", "lab_driver_upgraded needs lab_driver"),
        ("lab_fabric_manager: '1', lab_gpus: {model: t4}", "lab_fabric_manager must be one of 535"),
        ("lab_driver_modules: closed", "lab_driver_modules must be one of proprietary, open"),
        ("lab_toolkit: 1.20.0", "lab_toolkit needs lab_gpus"),
        ("lab_toolkit: '9', lab_gpus: {model: t4}", "lab_toolkit must be one of 1.13.5"),
        ("lab_gpus: {model: [t4, t5]}", "there is no GPU model t5"),
        ("lab_gpus: {model: []}", "a lab host's GPUs are of a model"),
        ("lab_gpus: {model: t4, mig: [1g.5gb]}", "cannot be split"),
        ("lab_real_modules: true", "lab_real_modules needs lab_gpus"),
        ("lab_real_modules: true, lab_gpus: {model: t4}, lab_dress: ubuntu2204", "nothing in disguise"),
    ],
)
def test_a_driver_that_cannot_be_is_told(tmp_path: Path, variables: str, problem: str) -> None:
    text = f"all: {{hosts: {{a: {{ansible_host: 172.28.0.11, lab_release: bookworm, {variables}}}}}}}"
    with pytest.raises(InputError, match=problem):
        load_definition(write(tmp_path / "small.yaml", text))


def test_a_host_variable_wins_over_its_group_and_group_over_all(tmp_path: Path) -> None:
    write(tmp_path / "group_vars" / "all.yaml", "lab_release: bullseye\nlab_memory: 100m\n")
    write(tmp_path / "group_vars" / "odd" / "main.yml", "lab_memory: 200m\n")
    inventory = write(
        tmp_path / "small.yaml",
        "all: {children: {odd: {hosts: {a: {ansible_host: 172.28.0.11, lab_release: trixie},"
        " b: {ansible_host: 172.28.0.12}}}}}",
    )
    first, second = load_definition(inventory).hosts
    assert (first.release, first.memory) == ("trixie", "200m")
    assert (second.release, second.memory) == ("bullseye", "200m")


def test_the_state_lies_beside_the_inventory_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "all: {hosts: {a: {ansible_host: 172.28.0.11, lab_release: trixie}}}"
    inventory = write(tmp_path / "small.yaml", text)
    assert load_definition(inventory).state == tmp_path / ".lab" / "small"
    assert load_definition(inventory, "other").state == tmp_path / ".lab" / "other"
    monkeypatch.setenv("FLEET_LAB_STATE", str(tmp_path / "elsewhere"))
    assert load_definition(inventory).state == tmp_path / "elsewhere" / "small"


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    inventory = write(
        tmp_path / "bad.yaml",
        """
all:
  vars: {lab_subnet: 172.28.0.0/24}
  hosts:
    a: {ansible_host: 10.0.0.1, lab_release: bookworm}
    b: {ansible_host: 172.28.0.2, lab_release: woody}
    c: {ansible_host: 172.28.0.13, lab_release: trixie, lab_login: sudo_password}
    d: {ansible_host: 172.28.0.13, lab_release: trixie, lab_shell: ksh}
""",
    )
    with pytest.raises(InputError) as caught:
        load_definition(inventory)
    text = str(caught.value)
    assert "a: ansible_host must be an address in lab_subnet 172.28.0.0/24, not '10.0.0.1'" in text
    assert "b: lab_release must be one of bookworm, trixie, bullseye, not 'woody'" in text
    assert "b: address 172.28.0.2 is taken by the bastion" in text
    assert "c: lab_login sudo_password does not go with ansible_user root" in text
    assert "d: lab_shell must be one of bash, csh, fish, not 'ksh'" in text
    assert "d: address 172.28.0.13 is taken by c" in text


def test_an_inventory_of_real_hosts_describes_no_lab(tmp_path: Path) -> None:
    inventory = write(tmp_path / "site.yaml", "all: {hosts: {node1: {ansible_host: 10.0.0.1}}}")
    with pytest.raises(InputError, match="describes no lab"):
        load_definition(inventory)


def test_yaml_that_does_not_parse_is_told_with_its_place(tmp_path: Path) -> None:
    inventory = write(tmp_path / "bad.yaml", "all:\n  hosts: {a: [}\n")
    with pytest.raises(InputError) as caught:
        load_definition(inventory)
    assert f"{inventory}:2:" in str(caught.value)


def test_a_lab_that_is_down_is_refused_with_the_command_that_brings_it_up(tmp_path: Path) -> None:
    text = "all: {hosts: {a: {ansible_host: 172.28.0.11, lab_release: trixie}}}"
    inventory = write(tmp_path / "small.yaml", text)
    with pytest.raises(RefusedError) as caught:
        refuse_if_down(str(inventory))
    assert caught.value.exit_code is ExitCode.BAD_INPUT
    assert caught.value.remedy == f"run fleet lab up {inventory}"


def test_an_inventory_that_describes_no_lab_is_no_concern_of_it(tmp_path: Path) -> None:
    refuse_if_down(str(write(tmp_path / "site.yaml", "all: {hosts: {node1: {ansible_host: 10.0.0.1}}}")))
    refuse_if_down(str(write(tmp_path / "bad.yaml", "all: [lab_release")))
    refuse_if_down(str(tmp_path / "nowhere.yaml"))
    refuse_if_down("-")


def test_a_machine_without_docker_is_told_how_to_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError) as caught:
        Engine().require()
    assert caught.value.exit_code is ExitCode.BAD_INPUT
    assert "./scripts/setup" in (caught.value.remedy or "")


def test_simulated_gpus_are_described_by_model_and_count(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yaml"
    inventory.write_text(
        "all: {hosts: {one: {ansible_host: 172.28.0.11, lab_release: bookworm,"
        " lab_gpus: {model: t4, count: 2}, lab_dress: ubuntu2204}}}\n"
    )
    definition = load_definition(inventory)
    host = definition.hosts[0]
    assert host.hardware is not None
    assert [gpu["model"] for gpu in host.hardware["gpus"]] == ["t4", "t4"]
    assert (host.dress, definition.has_packages) == ("ubuntu2204", True)
    assert definition.packages_address(host) == "172.28.0.4"


def test_gpus_that_cannot_be_and_the_package_servers_address_are_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yaml"
    inventory.write_text(
        "all:\n  hosts:\n"
        "    one: {ansible_host: 172.28.0.11, lab_release: bookworm, lab_gpus: {model: t5}}\n"
        "    two: {ansible_host: 172.28.0.4, lab_release: bookworm, lab_gpus: {model: t4, colour: red}}\n"
        "    three: {ansible_host: 172.28.0.4, lab_release: bookworm, lab_gpus: {model: t4}}\n"
    )
    with pytest.raises(InputError) as caught:
        load_definition(inventory)
    text = str(caught.value)
    assert "one: lab_gpus: there is no GPU model t5" in text
    assert "colour" in text
    assert "three: address 172.28.0.4 is taken by" in text


def test_what_needs_a_package_server_has_one(tmp_path: Path) -> None:
    """Simulated GPUs, Docker's repository, a mirror for hosts without the internet; a plain lab has none."""

    def lab(variables: str) -> LabDefinition:
        text = f"all: {{hosts: {{a: {{ansible_host: 172.28.0.11, lab_release: bookworm{variables}}}}}}}"
        return load_definition(write(tmp_path / "small.yaml", text))

    assert not lab("").has_packages
    assert lab(", lab_gpus: {model: t4}").has_packages
    assert lab(", lab_docker_repository: true").docker_systems == {"debian12"}
    closed = lab(", lab_public_internet: false")
    assert closed.has_packages
    assert "iptables" in closed.hosts[0].all_packages
