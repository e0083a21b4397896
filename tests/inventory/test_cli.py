"""``fleet inventory``: what it prints, what it refuses, and the shipped example."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from fleet.cli.inventory import inventory as command
from fleet.core.data import data_dir
from fleet.core.errors import InputError
from fleet.inventory import load_inventory

EXAMPLE = Path(__file__).parents[2] / "inventories" / "example.yaml"
MINIMAL = EXAMPLE.with_name("minimal.yaml")
TEXT = """\
    all:
      vars: {ansible_user: ops, rack: r0}
      children:
        gpu:
          vars: {rack: r1, fleet_jump: hop@gate:2200}
          hosts:
            "g[1:2]": {note: "line one\\nline two"}
        ctl:
          hosts:
            head: {ansible_connection: local}
            far: {ansible_port: 2222, ansible_host: "2001:db8::5"}
            odd: {ansible_ssh_common_args: -o ProxyCommand='nc -x p:1 %h %p'}
    """


@pytest.fixture
def fleet_inventory(write):
    """Run the command on TEXT with these arguments; gives its standard output."""
    write("site.yaml", TEXT)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(command, ["site.yaml", *arguments], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    return run


def test_the_list_is_aligned(fleet_inventory):
    assert fleet_inventory().splitlines() == [
        "host  address                       user  groups",
        "g1    g1 by way of hop@gate:2200    ops   gpu",
        "g2    g2 by way of hop@gate:2200    ops   gpu",
        "head  local                         ops   ctl",
        "far   [2001:db8::5]:2222            ops   ctl",
        "odd   odd by way of a ProxyCommand  ops   ctl",
        "",
        "5 hosts · 2 groups",
    ]


def test_a_limit_says_of_how_many(fleet_inventory):
    assert fleet_inventory("--limit", "gpu:!g2").splitlines()[-1] == "1 of 5 hosts · 1 group"


def test_the_graph(fleet_inventory):
    assert fleet_inventory("--graph", "-l", "g1,head").splitlines() == [
        "@all:",
        "  @gpu:",
        "    g1",
        "  @ctl:",
        "    head",
    ]


def test_one_host_with_origins(fleet_inventory):
    lines = fleet_inventory("--host", "g1").splitlines()
    assert lines[:2] == ["g1  (site.yaml:7:9)", "groups: gpu"]
    at = lines.index("  rack: r1")
    assert lines[at + 1 : at + 3] == [
        "      from site.yaml:5:20 (group gpu)",
        "      instead of the one from site.yaml:2:35 (group all)",
    ]
    assert '  note: "line one\\nline two"' in lines
    assert any(line.split() == ["jumps", "hop@gate:2200"] for line in lines)


def test_json_holds_the_same_facts(fleet_inventory):
    facts = json.loads(fleet_inventory("--json"))
    assert [host["name"] for host in facts["hosts"]] == ["g1", "g2", "head", "far", "odd"]
    assert facts["groups"]["gpu"] == {"hosts": ["g1", "g2"], "children": []}
    one = json.loads(fleet_inventory("--host", "g1", "--json"))
    assert one["variables"]["rack"]["overrides"] == ["site.yaml:2:35 (group all)"]
    assert one["connection"]["jumps"] == ["hop@gate:2200"]


def test_a_host_that_is_not_there(fleet_inventory, write):
    with pytest.raises(InputError, match=r"did you mean g[12] or g[12]"):
        fleet_inventory("--host", "g3")
    with pytest.raises(InputError, match="--host takes one host"):
        fleet_inventory("--host", "gpu")


def test_notes_go_to_standard_error(write):
    write("site.yaml", TEXT)
    write("group_vars/gpus.yml", "a: b\n")
    result = CliRunner().invoke(command, ["site.yaml"], catch_exceptions=False)
    assert (
        result.stderr == "note: group_vars/gpus.yml belongs to no group of this inventory; is it for gpu?\n"
    )


def test_a_broken_inventory_raises_with_every_problem(write):
    write("site.yaml", "all: {hosts: {a: {ansible_port: x}, b: {ansible_port: y}}}")
    result = CliRunner().invoke(command, ["site.yaml"])
    assert isinstance(result.exception, InputError)
    assert len(result.exception.problems) == 2
    assert result.stdout == ""


def test_json_on_standard_input():
    result = CliRunner().invoke(command, ["-"], input='{"gpu": {"hosts": ["g1"]}}', catch_exceptions=False)
    assert result.stdout.splitlines()[1].split() == ["g1", "g1", "me", "gpu"]


class TestShippedFiles:
    def test_the_example_loads_and_every_way_is_sound(self):
        loaded = load_inventory(EXAMPLE)
        assert len(loaded.hosts) > 20
        ways = [loaded.connector.way(host) for host in loaded.hosts.values()]
        assert any(way.jumps for way in ways)

    def test_the_least_inventory_loads(self):
        loaded = load_inventory(MINIMAL)
        assert [host.connection().endpoint.address for host in loaded.hosts.values()] == [
            f"gpu0{number}.example.net" for number in range(1, 5)
        ]

    @pytest.mark.parametrize("path", [EXAMPLE, MINIMAL], ids=["example", "minimal"])
    def test_the_examples_fit_the_schema(self, path):
        schema = json.loads((data_dir("schemas") / "inventory.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        validator.validate(yaml.load(path.read_text(encoding="utf-8"), Loader=_Tolerant))

    @pytest.mark.parametrize(
        "value",
        [
            {"all": {"host": {}}},
            {"all": {"hosts": {"g1": {"ansible_port": "twenty-two"}}}},
            {"all": {"vars": {"nvidia_driver_version": 550.9}}},
            {"all": {"hosts": {"g1": {"ansible_become_method": "su"}}}},
            {"all": {"children": {"a": {"vars": {"site": False}}}}},
        ],
    )
    def test_the_schema_refuses_what_loading_refuses(self, value):
        schema = json.loads((data_dir("schemas") / "inventory.schema.json").read_text(encoding="utf-8"))
        assert not jsonschema.Draft202012Validator(schema).is_valid(value)


class _Tolerant(yaml.SafeLoader):
    """Tags as their text: the schema sees what an editor sees."""


_Tolerant.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))
