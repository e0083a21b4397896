"""What people wrote and what went wrong: each test is one family of reports from the field (A01 to A11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.inventory import inventory as command
from fleet.core.errors import InputError
from fleet.core.secret import Secret
from fleet.inventory import LoadOptions, load_inventory


class TestRanges:
    """A01."""

    def test_good_ranges_expand_as_in_ansible(self, load):
        inventory = load("""\
            all:
              children:
                gpu:
                  hosts:
                    node[01:03]:
                    b[099:101]:
                    k[9:11]:
                    z2[4:4]:
                    row[b:c]-[1:2]:
                    t[02:08:3]:
                    dgx-[7:7].pod[1:2].lab.test:
                      gpu_count: 4
            """)
        assert " ".join(inventory.hosts) == (
            "node01 node02 node03 b099 b100 b101 k9 k10 k11 z24 rowb-1 rowb-2 rowc-1 rowc-2 "
            "t02 t05 t08 dgx-7.pod1.lab.test dgx-7.pod2.lab.test"
        )
        assert inventory.hosts["dgx-7.pod2.lab.test"].variables["gpu_count"] == 4

    def test_every_bad_range_is_refused_by_name(self, refused):
        bad = ["n[01-08]", "n[1-3,7]", "n[07:112]", "n[9:2]", "n[d:b]", "n[3:]", "n[1:9:0]", "n[01:04", "n[]"]
        text = "all:\n  hosts:\n" + "".join(f'    "{name}":\n' for name in bad)
        messages = refused(text)
        assert len(messages) == len(bad)
        for number, (name, message) in enumerate(zip(bad, messages, strict=True), 3):
            assert message.startswith(f"site.yaml:{number}:5: ")
            assert name in message

    def test_a_slurm_range_is_told_how_it_is_written_here(self, refused):
        (message,) = refused("all:\n  hosts:\n    gpu-node[001-008]:\n")
        assert message.endswith("gpu-node[001-008] is not a range of this format; write gpu-node[001:008]")


class TestClusterTree:
    """A02: null bodies, hosts in many groups, a bastion in raw ssh arguments."""

    TEXT = """\
        all:
          vars:
            ansible_user: admin
            ansible_ssh_common_args: >-
              -C -o ControlMaster=auto -o ControlPersist=30m
              -o ProxyCommand="ssh -q -W %h:%p jump@gate.lab.test"
          hosts:
            ctl: {ansible_host: 198.51.100.1}
            front: {ansible_host: 198.51.100.2}
            g1: {ansible_host: 198.51.100.11}
            g2: {ansible_host: 198.51.100.12, ansible_port: 2200}
          children:
            head:
              hosts:
                ctl:
            workers:
              hosts:
                g1:
                g2:
            slurm:
              hosts:
                g1:
                g2:
            nfs:
              hosts:
              children:
                slurm:
            spare:
            special:
              vars: {ansible_user: special}
              hosts:
                g2:
            cluster:
              children:
                head:
                workers:
        """

    def test_groups_and_hosts(self, load):
        inventory = load(self.TEXT)
        assert list(inventory.hosts) == ["ctl", "front", "g1", "g2"]
        assert inventory.groups["cluster"].hosts == ("ctl", "g1", "g2")
        assert inventory.groups["nfs"].hosts == ("g1", "g2")
        assert inventory.groups["spare"].hosts == ()

    def test_group_variables_override_those_of_all(self, load):
        way = load(self.TEXT).hosts["g2"].connection()
        assert (way.endpoint.user, way.endpoint.port, way.endpoint.address) == (
            "special",
            2200,
            "198.51.100.12",
        )

    def test_the_bastion_is_used(self, load):
        way = load(self.TEXT).hosts["g1"].connection()
        assert way.endpoint.shown == "admin@198.51.100.11:22"
        assert [jump.shown for jump in way.jumps] == ["jump@gate.lab.test:22"]
        assert way.proxy_command is None


class TestVersions:
    """A03."""

    def test_all_versions_read_as_numbers_are_named_as_written(self, refused):
        messages = refused("""\
            all:
              vars:
                nvidia_driver_version: 550.90
              children:
                a:
                  vars: {container_toolkit_version: 1.20}
                  hosts:
                    g1:
                    g2: {nvidia_driver_version: 560.00}
                    g3: {nvidia_driver_version: 565.57.01}
                    g4: {nvidia_driver_version: "550.90"}
                    g5: {nvidia_driver_version: 590.48.01-0ubuntu1}
                    g6: {nested: {some_version: 1.10}}
            """)
        assert [message.split(":")[1] for message in messages] == ["3", "6", "9", "13"]
        for written, message in zip(("550.90", "1.20", "560.00", "1.10"), messages, strict=True):
            assert f'"{written}"' in message
            assert "quotes" in message

    def test_a_whole_number_is_the_branch(self, load):
        host = load("all:\n  hosts:\n    g1: {nvidia_driver_version: 570}\n").hosts["g1"]
        assert host.variables["nvidia_driver_version"] == "570"


class TestDuplicates:
    """A04."""

    def test_a_second_group_block_is_refused_with_both_places(self, refused):
        (message,) = refused("""\
            all:
              children:
                gpus:
                  hosts:
                    g1:
                login:
                  hosts:
                    l1:
                gpus:
                  hosts:
                    g2:
            """)
        assert message == "site.yaml:9:5: gpus is here for the second time; the first is on line 3"

    def test_a_variable_given_twice_is_refused(self, refused):
        (message,) = refused("all:\n  hosts:\n    g1:\n      rack: a\n      ansible_host: h\n      rack: b\n")
        assert "site.yaml:6:7" in message
        assert "line 4" in message


class TestShapesOfHosts:
    """A05."""

    def test_bare_lines_are_explained(self, refused):
        (message,) = refused("all:\n  children:\n    gpu:\n      hosts:\n        g1\n        g2\n")
        assert message.startswith("site.yaml:5:9: hosts of group gpu")
        assert "colon" in message

    def test_a_list_has_one_meaning(self, load):
        inventory = load("all:\n  hosts:\n    - g1: {ansible_port: 2222}\n    - g[2:3]\n")
        assert list(inventory.hosts) == ["g1", "g2", "g3"]
        assert inventory.hosts["g1"].connection().endpoint.port == 2222

    @pytest.mark.parametrize("body", ["[[g1]]", "[{g1: , g2: }]", "3", "'g1,g2'", "[true]"])
    def test_other_shapes_are_refused(self, refused, body):
        messages = refused(f"all:\n  hosts: {body}\n")
        assert messages[0].startswith("site.yaml:2:")

    @pytest.mark.parametrize(
        "text", ["all:\n", "all:\n  hosts:\n", "", "# nothing\n", "all: {children: {a: }}"]
    )
    def test_no_host_at_all_is_an_error(self, refused, text):
        assert "no host" in refused(text)[0]


class TestKeysThatAreNotText:
    """A06, A07."""

    def test_numbers_are_named_as_written(self, refused):
        messages = refused("""\
            all:
              children:
                42:
                  hosts:
                    17: {ansible_host: h1}
                    0077: {ansible_host: h2}
                    088: {ansible_host: h3}
                    0xff: {ansible_host: h4}
                    2_048: {ansible_host: h5}
                    "0099": {ansible_host: h6}
            """)
        assert [message.split(" is read")[0].split("key ")[1] for message in messages] == [
            "42",
            "17",
            "0077",
            "0xff",
            "2_048",
        ]
        assert all("quotes" in message for message in messages)

    def test_quoted_numbers_are_names(self, load):
        inventory = load('all:\n  children:\n    "2911":\n      hosts: {"0043": , 089: }\n')
        assert list(inventory.hosts) == ["0043", "089"]
        assert inventory.groups["2911"].hosts == ("0043", "089")

    def test_booleans_and_null_are_named_as_written_and_collisions_told(self, refused):
        messages = refused("""\
            all:
              vars:
                site: No
                secure_boot: off
              children:
                no: {hosts: {a: }}
                NO: {hosts: {b: }}
                on: {hosts: {c: }}
                null: {hosts: {d: }}
            """)
        assert len(messages) == 5
        assert "site must be text; No is read" in messages[0]
        assert "the key no is read by YAML as the boolean false" in messages[1]
        assert "no on line 6 would be the same key" in messages[2]
        assert not any(word in "".join(messages) for word in ("False", "True", "None"))

    def test_a_boolean_field_takes_off(self, load):
        assert (
            load("all: {vars: {secure_boot: off}, hosts: {a: }}").hosts["a"].variables["secure_boot"] is False
        )


class TestBase60:
    """A08."""

    def test_times_macs_and_ports_are_named_as_written(self, refused):
        messages = refused("""\
            all:
              vars:
                maintenance_window: {start: 21:15, end: 03:15}
                forwards: [8080:22, "9090:22"]
              hosts:
                g1: {mac: 52:54:00:11:22:33, bmc_mac: 00:16:3e:00:00:02}
            """)
        assert len(messages) == 3
        assert (
            'start 21:15 is read by YAML as the base-60 number 1275; write it in quotes: "21:15"'
            in messages[0]
        )
        assert "8080:22" in messages[1]
        assert "52:54:00:11:22:33" in messages[2]

    def test_an_unknown_variable_keeps_what_was_written(self, load):
        assert load("all: {hosts: {a: {shift: 22:30}}}").hosts["a"].variables["shift"] == "22:30"


class TestLineEndsAndTabs:
    """A09."""

    def test_windows_line_ends_change_nothing(self, load):
        inventory = load("all:\r\n  vars:\r\n    ansible_user: ops\r\n  hosts:\r\n    g1:\r\n    g2:\r\n")
        assert list(inventory.hosts) == ["g1", "g2"]
        assert inventory.hosts["g1"].variables["ansible_user"] == "ops"

    def test_an_ssh_config_with_windows_line_ends(self, write, load):
        config = write(
            "config", "Host g*\r\n  ProxyJump ops@gate.lab.test:2201\r\n  IdentityFile ~/.ssh/k\r\n"
        )
        way = (
            load("all: {hosts: {g1: {ansible_host: 192.0.2.5}}}", ssh_config=config).hosts["g1"].connection()
        )
        assert [jump.shown for jump in way.jumps] == ["ops@gate.lab.test:2201"]
        assert way.endpoint.key_files == (Path.home() / ".ssh/k",)

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("all:\n  hosts:\n\tg1: {a: b}\n", "3:1"),
            ("all:\n  hosts:\n    g1:\t\n      a: b\n", "3:8"),
            ("all:\n\thosts:\n\t\tg1:\n", "2:1"),
            ("all:\n  hosts:\n    g1:\n      a:\tb\n", "4:9"),
        ],
    )
    def test_tabs_are_refused_by_name(self, refused, text, place):
        assert any(m.startswith(f"site.yaml:{place}: ") and "tab" in m for m in refused(text))

    def test_tabs_in_text_and_comments_are_fine(self, load):
        text = (
            'all:\n  hosts:\n    g1: # a\tb\n      a: "x\ty"\n      b: |\n        p\tq\n      c: p\tq\n#\tz\n'
        )
        assert load(text).hosts["g1"].variables["b"] == "p\tq\n"


class TestEncodings:
    """A10."""

    def test_a_mark_at_the_start_is_passed_over(self, load):
        assert list(load("\ufeffall:\n  hosts:\n    g1:\n").hosts) == ["g1"]

    def test_a_mark_in_the_middle_is_refused(self, refused):
        (message,) = refused("---\n\ufeffall:\n  hosts:\n    g1:\n")
        assert message.startswith("site.yaml:2:1: ")
        assert r"\ufeff" in message

    def test_utf16_is_read(self, folder):
        (folder / "wide.yaml").write_bytes("all:\n  hosts:\n    g1:\n".encode("utf-16"))
        assert list(load_inventory("wide.yaml").hosts) == ["g1"]

    def test_latin1_is_refused_at_its_byte(self, folder):
        (folder / "old.yaml").write_bytes(b"all:\n  hosts:\n    g1: {a: M\xfcnchen}\n")
        with pytest.raises(InputError, match=r"old\.yaml:3:14: this is not UTF-8 \(byte 0xfc\)"):
            load_inventory("old.yaml")


class TestSecrets:
    """A11."""

    TEXT = """\
        all:
          vars:
            ansible_become_password: open-sesame-1
            registry: {user: u, password: open-sesame-2, tokens: {pull_token: open-sesame-3}}
          hosts:
            g1: {ansible_ssh_pass: open-sesame-4, wg_ip: 192.0.2.9, api_secret: open-sesame-5}
        """

    def test_nothing_shows_a_password(self, load):
        host = load(self.TEXT).hosts["g1"]
        runs = [
            ["site.yaml", *more] for more in ([], ["--json"], ["--host", "g1"], ["--host", "g1", "--json"])
        ]
        texts = [CliRunner().invoke(command, run).output for run in runs]
        texts += [repr(dict(host.variables)), str(host.variables["registry"]), repr(host.connection())]
        assert "wg_ip" in texts[2]
        assert not any("open-sesame" in text for text in texts)
        assert host.connection().endpoint.password == Secret("open-sesame-4", "")

    def test_a_secret_of_the_wrong_type_is_refused_without_showing_it(self, refused):
        (message,) = refused("all: {hosts: {g1: {ansible_password: 01234567}}}")
        assert "quotes" in message
        assert "1234567" not in message
        assert "342391" not in message

    def test_a_vault_without_a_password_names_key_and_line(self, refused):
        (message,) = refused("""\
            all:
              vars:
                ansible_become_password: !vault |
                  $ANSIBLE_VAULT;1.1;AES256
                  61626364
              hosts: {g1: }
            """)
        assert message.startswith("site.yaml:3:30: ansible_become_password")
        assert "!vault" in message
        assert "--vault-password-file" in message

    def test_an_unknown_tag_is_refused(self, refused):
        (message,) = refused("all: {hosts: {g1: {a: !python/name:os.system x}}}")
        assert "the tag !python/name:os.system is not known" in message


def test_options_default_to_nothing():
    assert LoadOptions() == LoadOptions(None, None, False, None, {})
