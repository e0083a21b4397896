"""Bringing labs up and down: idempotent, side by side, and leaving nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.lab import lab as commands
from fleet.core.errors import InputError, RefusedError
from fleet.lab import faults, leftovers
from fleet.lab.engine import Engine
from fleet.lab.hosts import MARKER
from fleet.lab.lab import Lab, control_groups, owner_of

pytestmark = pytest.mark.lab
SMALL = """
all:
  vars: {{lab_subnet: 172.28.{third}.0/24, lab_state: "{{{{ inventory_dir }}}}/state/{name}"}}
  hosts:
    only: {{ansible_host: 172.28.{third}.11, lab_release: bookworm}}
"""


@pytest.fixture
def second(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab of one host, defined, not up; taken down when the test ends."""
    monkeypatch.delenv("FLEET_LAB_STATE", raising=False)
    inventory = tmp_path / "second.yaml"
    inventory.write_text(SMALL.format(name="second", third=_free_third_octet(lab.engine)))
    found = Lab.load(inventory)
    yield found
    found.down()


def _free_third_octet(engine: Engine) -> int:
    """Of a network 172.28.N.0/24 that nobody on this machine has."""
    return next(
        third for third in range(100, 250) if not owner_of(engine, IPv4Network(f"172.28.{third}.0/24"))
    )


def containers(lab: Lab) -> dict[str, tuple[str, str]]:
    """{container: (id, running since)} of a lab, without hosts that other tests added meanwhile."""
    found = {}
    for host in (
        *(member.name for member in lab.members),
        *(["registry"] if lab.definition.registry else []),
        *(["packages"] if lab.definition.has_packages else []),
    ):
        name = lab.place.container(host)
        document = lab.engine.inspect("container", name)
        assert document is not None
        found[name] = (document["Id"], document["State"]["StartedAt"])
    return found


def files(lab: Lab) -> dict[str, bytes]:
    """{path: hash of the content} of the state directory, without what concerns hosts that other tests added."""
    own = [path for path in lab.state.directory.rglob("*") if path.is_file() and "extra-" not in str(path)]
    return {
        str(path): hashlib.sha256(path.read_bytes()).digest() for path in own if path.name != "known_hosts"
    }


def things(lab: Lab) -> list[str]:
    """Every container, volume and network of a lab."""
    return [name for kind in ("container", "volume", "network") for name in lab.engine.names(kind, lab.name)]


def test_up_again_changes_nothing(lab: Lab) -> None:
    before = containers(lab), files(lab)
    lab.up()
    assert (containers(lab), files(lab)) == before


def test_two_labs_stand_side_by_side_and_down_leaves_nothing_of_one(lab: Lab, second: Lab) -> None:
    standing = containers(lab)
    second.up()
    assert faults.shell(second, "only", "hostname").strip() == "only"
    assert second.name in leftovers.labs(second.engine)
    assert second.down()
    assert things(second) == []
    assert not second.state.directory.exists()
    assert not second.state.directory.parent.exists()
    assert containers(lab) == standing


def test_down_leaves_nothing_of_containers_inside_hosts(lab: Lab, second: Lab) -> None:
    """Inner engines share this machine's control groups, where a killed host would leave some."""
    text = second.definition.inventory.read_text()
    second.definition.inventory.write_text(
        text.replace("lab_release: bookworm", "lab_release: bookworm, lab_foreign_containers: [work]")
    )
    busy = Lab.load(second.definition.inventory)
    busy.up()
    inside = faults.shell(busy, "only", "docker ps --quiet --no-trunc").split()
    assert len(inside) == 1
    assert control_groups(inside[0])
    busy.down()
    assert control_groups(inside[0]) == []


def test_a_host_left_half_made_is_made_anew_and_a_stopped_one_started(second: Lab) -> None:
    second.up()
    first = containers(second)
    faults.execute(second, "only", "rm", MARKER)
    second.up()
    again = containers(second)
    assert again.keys() == first.keys()
    assert again != first
    faults.stop(second, "only", power=True)
    assert second.status()["up"] is False
    second.up()
    assert second.status()["up"] is True
    assert {name: made[0] for name, made in containers(second).items()} == {
        name: made[0] for name, made in again.items()
    }


def test_a_taken_network_is_refused_by_name(lab: Lab, tmp_path: Path) -> None:
    inventory = tmp_path / "third.yaml"
    inventory.write_text(SMALL.format(name="third", third=0))
    third = Lab.load(inventory)
    try:
        with pytest.raises(RefusedError, match=rf"172\.28\.0\.0/24 .* taken by .*fleet-lab-{lab.name}-outer"):
            third.up()
    finally:
        third.down()
    assert things(third) == []


def test_a_lab_of_the_same_name_from_elsewhere_is_left_alone_unless_replaced(
    second: Lab, tmp_path: Path
) -> None:
    second.up()
    elsewhere = tmp_path / "elsewhere" / "second.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(second.definition.inventory.read_text())
    other = Lab.load(elsewhere)
    before = containers(second)
    with pytest.raises(RefusedError, match=str(second.state.directory)):
        other.up()
    assert containers(second) == before
    other.up(take_over=True)
    assert containers(other) != before


def test_what_an_ended_session_left_is_removed_whole(
    second: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second.up()
    monkeypatch.setattr(leftovers, "labs", lambda engine: {second.name})  # not the other labs here
    leftovers.main()
    assert "removed what was left of lab second" in capsys.readouterr().err
    assert things(second) == []


def test_the_command_line_says_how_it_is(second: Lab) -> None:
    run = CliRunner().invoke
    inventory = str(second.definition.inventory)
    down = run(commands, ["status", inventory, "--json"])
    assert down.exit_code == 1
    assert json.loads(down.stdout)["hosts"][0]["state"] == "absent"
    up = run(commands, ["up", inventory])
    assert up.exit_code == 0, up.output
    address = second.definition.host("only").address
    assert f"only: up at {address} (bookworm, root)" in up.output
    status = run(commands, ["status", inventory])
    assert status.exit_code == 0
    assert "lab second is up" in status.output
    gone = run(commands, ["down", inventory])
    assert "lab second is down" in gone.output
    assert isinstance(run(commands, ["up", "nowhere.yaml"]).exception, InputError)
