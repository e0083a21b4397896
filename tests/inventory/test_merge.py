"""Who wins: layers against a plain reference, and the files beside the inventory."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.errors import InputError
from fleet.inventory import LoadOptions, load_inventory

NAMES = ("a", "b", "c")
LAYERS = ("all", "parent", "child", "file all", "file parent", "file child", "host", "file host")
# The order that Ansible documents: group files come after every group's inline variables.


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.fixed_dictionaries({layer: st.sets(st.sampled_from(NAMES)) for layer in LAYERS}))
def test_the_last_layer_that_sets_a_variable_wins(folder, write, chosen):
    values = {layer: {name: f"{layer}/{name}" for name in names} for layer, names in chosen.items()}
    child = {"vars": values["child"], "hosts": {"h": values["host"]}}
    tree = {
        "all": {
            "vars": values["all"],
            "children": {"parent": {"vars": values["parent"], "children": {"child": child}}},
        }
    }
    write("site.yaml", json.dumps(tree))
    for owner in ("all", "parent", "child"):
        write(f"group_vars/{owner}.json", json.dumps(values[f"file {owner}"]))
    write("host_vars/h", json.dumps(values["file host"]))
    expected = {}
    for layer in LAYERS:
        expected.update(values[layer])
    host = load_inventory("site.yaml").hosts["h"]
    assert {name: host.variables[name] for name in NAMES if name in host.variables} == expected
    for name in expected:
        setters = [layer for layer in LAYERS if name in values[layer]]
        assert len(host.origin(name).overrides) == len(setters) - 1


TREE = """\
    all:
      vars: {labels: {a: 1, b: [x, y]}, rack: r0}
      children:
        east:
          vars: {rack: r1}
          hosts:
            g1: {rack: r2}
            g2:
        fast:
          vars: {rack: r9, ansible_group_priority: 5}
          hosts:
            g2:
        zone:
          vars: {rack: r5}
          hosts:
            g2:
    """


def test_priority_beats_name_among_groups_of_equal_depth(load):
    inventory = load(TREE)
    assert inventory.hosts["g2"].groups == ("east", "zone", "fast")
    assert inventory.hosts["g2"].variables["rack"] == "r9"


def test_origins_name_place_layer_and_what_was_overridden(load):
    origin = load(TREE).hosts["g1"].origin("rack")
    assert str(origin) == "site.yaml:7:20 (host g1)"
    assert [str(older) for older in origin.overrides] == [
        "site.yaml:5:20 (group east)",
        "site.yaml:2:43 (group all)",
    ]


def test_parts_of_a_value_have_their_own_place(load):
    host = load(TREE).hosts["g1"]
    assert str(host.origin("labels", "b", 1).position) == "site.yaml:2:32"
    assert str(host.origin("labels", "nowhere").position) == "site.yaml:2:18"
    with pytest.raises(KeyError):
        host.origin("nothing")


def test_mappings_replace_each_other_whole(load):
    host = load("all: {vars: {m: {a: 1, b: 2}}, hosts: {h: {m: {c: 3}}}}").hosts["h"]
    assert host.variables["m"] == {"c": 3}


def test_a_folder_of_files_is_read_by_name_and_hides_the_file(write, load):
    write("group_vars/gpu/20-b.yml", "x: second\n")
    write("group_vars/gpu/10-a", "x: first\ny: first\n")
    write("group_vars/gpu/.hidden.yml", "x: no\n")
    write("group_vars/gpu/notes.txt", "not read\n")
    write("group_vars/gpu.yml", "x: no\n")
    write("group_vars/gpus.yml", "x: no\n")
    write("group_vars/of_another_inventory.yml", "x: no\n")
    inventory = load("all: {children: {gpu: {hosts: {h: }}}}")
    assert {name: inventory.hosts["h"].variables[name] for name in "xy"} == {"x": "second", "y": "first"}
    assert str(inventory.hosts["h"].origin("x").position) == "group_vars/gpu/20-b.yml:1:4"
    assert inventory.notes == (
        "group_vars/gpu.yml is not read: group_vars/gpu comes before it",
        "group_vars/gpus.yml belongs to no group of this inventory; is it for gpu?",
    )


def test_problems_of_every_file_are_told_at_once(write, refused):
    write("group_vars/all.yml", "ansible_port: twenty-two\n")
    write("host_vars/h.yml", "- a list\n")
    messages = refused("all: {hosts: {h: {nvidia_driver_version: 1.10}}}")
    assert [message.split(": ")[0] for message in messages] == [
        "group_vars/all.yml:1:15",
        "host_vars/h.yml:1:1",
        "site.yaml:1:42",
    ]


def test_extra_variables_override_everything(load):
    with pytest.raises(InputError, match="ansible_port must be a number from 1 to 65535"):
        load("all: {hosts: {h: {rack: a}}}", extra_vars={"ansible_port": "x"})
    host = load("all: {hosts: {h: {rack: a}}}", extra_vars={"rack": "b"}).hosts["h"]
    assert host.variables["rack"] == "b"
    assert [older.layer for older in host.origin("rack").overrides] == ["host h"]


def test_magic_variables(load, folder):
    variables = load(TREE).hosts["g2"].variables
    assert variables["inventory_hostname"] == "g2"
    assert variables["inventory_dir"] == str(folder)
    assert variables["inventory_file"] == str(folder / "site.yaml")
    assert variables["group_names"] == ["east", "fast", "zone"]
    assert variables["groups"]["east"] == ["g1", "g2"]  # type: ignore[index]
    assert variables["hostvars"]["g1"]["rack"] == "r2"  # type: ignore[index]


class TestShape:
    """Groups: unknown keys, circles, ports in names."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("all: {host: {h: }}", "did you mean hosts?"),
            ("all: {hosts: {h: }, ansible_user: x}", "variables of a group stand under vars:"),
            ("all: {hosts: {h: }, gpus: {hosts: {g: }}}", "put it under children:"),
            ("all: {hosts: {h: 22}}", 'must be a mapping of variables, not "22"'),
            ("all: {hosts: {h: }, vars: [a]}", "vars of group all must be a mapping, not a list"),
            ("all: {children: {a: {children: {all: }}}}", "cannot be a child"),
            ("- hosts: all\n", "a playbook?"),
            ("all: {hosts: {'a b': }}", "it holds a space"),
            ("all: {hosts: {h: {ansible_prot: 22}}}", "did you mean ansible_port?"),
            ("all: {hosts: {h: }}\n---\nall: {hosts: {h: }}", "a second document"),
            ("all: {hosts: {h: *x}}", "the alias *x has no anchor before it"),
            ("[gpu]\ng1\n[gpu:vars]\na=b\n", "Ansible's INI format"),
            ("#!/bin/sh\necho '{}'\n", "this is a script"),
        ],
    )
    def test_slips_are_refused_with_advice(self, refused, text, words):
        messages = refused(text)
        assert any(words in message for message in messages), messages
        assert all(message.startswith("site.yaml:") for message in messages)

    def test_groups_in_a_circle(self, refused):
        (message,) = refused("a: {children: {b: }}\nb: {children: {c: }}\nc: {children: {a: }, hosts: {h: }}")
        assert "in a circle: " in message

    def test_ports_and_ipv6_addresses_in_names(self, load):
        hosts = load('all: {hosts: {"g[1:2]:2222": , "[2001:db8::1]:2022": , "2001:db8::2": }}').hosts
        assert [(h.name, h.connection().endpoint.port) for h in hosts.values()] == [
            ("g1", 2222),
            ("g2", 2222),
            ("2001:db8::1", 2022),
            ("2001:db8::2", 22),
        ]

    def test_anchors_and_merge_keys(self, load):
        inventory = load("""\
            all:
              hosts:
                g1: &base {rack: a, ansible_port: 2222}
                g2: {<<: *base, rack: b}
            """)
        assert inventory.hosts["g2"].variables["rack"] == "b"
        assert inventory.hosts["g2"].connection().endpoint.port == 2222
        assert str(inventory.hosts["g2"].origin("ansible_port").position) == "site.yaml:3:39"

    def test_a_file_that_is_not_there(self):
        with pytest.raises(InputError, match=r"gone\.yaml does not exist"):
            load_inventory("gone.yaml")
        with pytest.raises(InputError, match="is a directory"):
            load_inventory(".")


GOOD_JSON = {
    "_meta": {"hostvars": {"g1": {"ansible_host": "192.0.2.1"}, "lone": {"x": 1}}},
    "all": {"children": ["ungrouped", "gpu", "old"]},
    "gpu": {"hosts": ["g1", "g2"], "vars": {"rack": "a"}, "children": ["fast"]},
    "fast": {"hosts": ["g2"]},
    "old": ["g1"],
}


class TestJson:
    """Ansible's --list on standard input."""

    def loaded(self, text):
        return load_inventory("-", stdin=io.StringIO(text), options=LoadOptions())

    def test_groups_hosts_and_variables(self):
        inventory = self.loaded(json.dumps(GOOD_JSON, indent="\t"))
        assert list(inventory.hosts) == ["g1", "g2", "lone"]
        assert inventory.groups["gpu"].children == ("fast",)
        assert inventory.groups["old"].hosts == ("g1",)
        assert inventory.hosts["g1"].variables["rack"] == "a"
        assert inventory.hosts["g1"].connection().endpoint.address == "192.0.2.1"
        assert inventory.hosts["lone"].groups == ("ungrouped",)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "<stdin>:1:1: this is not JSON"),
            ('{"all": }', "<stdin>:1:9: this is not JSON"),
            ("[]", "an object of groups, not a list"),
            ('{"a": {"hosts": "g1"}}', "hosts of group a must be a list of names"),
            ('{"a": {"hosts": ["g1"]}, "_meta": {"hostvars": {"g1": {"ansible_port": 0}}}}', "1:72"),
            ('{"a": ["g1"], "a": ["g2"]}', "second time"),
            ('{"a": {"hosts": []}}', "no host"),
        ],
    )
    def test_what_is_wrong_has_its_place(self, text, words):
        with pytest.raises(InputError) as caught:
            self.loaded(text)
        assert words in str(caught.value)

    def test_escapes_and_numbers_are_those_of_json(self):
        text = '{"a": {"hosts": ["g1"], "vars": {"s": "\\ud83d\\ude00\\/", "n": 1e3, "t": "22:30"}}}'
        variables = self.loaded(text).hosts["g1"].variables
        assert (variables["s"], variables["n"], variables["t"]) == ("\U0001f600/", 1000.0, "22:30")

    def test_bytes_that_are_not_utf8_have_their_place(self):
        stream = io.TextIOWrapper(io.BytesIO(b'{"a":\n ["\xff"]}'), encoding="utf-8")
        with pytest.raises(InputError, match=r"<stdin>:2:4: this is not UTF-8 \(byte 0xff\)"):
            load_inventory("-", stdin=stream)


def test_whole_numbers_become_text_where_text_is_wanted(load):
    variables = (
        load("all: {hosts: {g1: {ansible_user: 1000, site: 7, password: 1234, other: 5}}}")
        .hosts["g1"]
        .variables
    )
    assert (variables["ansible_user"], variables["site"], variables["other"]) == ("1000", "7", 5)
    assert variables["password"].reveal() == "1234"
