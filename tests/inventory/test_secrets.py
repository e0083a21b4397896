"""Secrets: tags, vaults written by ansible-vault itself, and what is fetched when."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fleet.cli.inventory import inventory as command
from fleet.core.errors import InputError
from fleet.core.secret import Secret
from fleet.core.template import SecretTemplate
from fleet.core.yaml import parse_yaml
from fleet.inventory import LoadOptions
from fleet.inventory.secrets import SecretSource
from fleet.inventory.vault import VaultError, decrypt, read_password

# Both written by ansible-vault (ansible-core 2.19) with the password "correct horse".
BLOCK = """\
$ANSIBLE_VAULT;1.1;AES256
33663336356362333530613866636662666439653432616363626333613037383430393166303264
6135333063623032343330363338333465363562633338320a626238633230653534646566323731
62383330623161383261306462396661383735323761653961666433633865313339316133346564
3063323534303736390a373031633231363338633335646433383431623561393636346365366338
6263
"""
FILE = """\
$ANSIBLE_VAULT;1.2;AES256;lab
62393133623532306438623962326563376539386632396663366536633531613961663036623030
3031336637623366623330386533343063383839663132320a663237356239303832653264663237
65336131326463303638316462383435376531383564363035343831653161636333623337623633
6130306165646464370a356561643637613765303062323465396534316565396632393530656232
33316639353233616365343439326431383439323434333066653437326135333764393966633466
6336613936653863353235643165646633333230643338343733
"""
PASSWORD = Secret("correct horse", "vault password")


def with_block(name: str = "ansible_become_password") -> str:
    indented = "".join(f"        {line}\n" for line in BLOCK.splitlines())
    return f"all:\n  hosts:\n    g1:\n      {name}: !vault |\n{indented}"


class TestVault:
    def test_a_block_is_opened(self, load):
        host = load(with_block(), vault_password=PASSWORD).hosts["g1"]
        assert host.connection().become.password.reveal() == "swordfish-77"

    def test_a_wrong_password_is_noticed_at_once(self, refused):
        (message,) = refused(with_block(), vault_password=Secret("wrong", "x"))
        assert message.startswith("site.yaml:4:32: ansible_become_password: this !vault cannot be read")
        assert "does not open it" in message

    def test_a_whole_file_is_opened_and_its_texts_kept_secret(self, write, load):
        write("group_vars/all.yml", FILE)
        variables = load("all: {hosts: {g1: }}", vault_password=PASSWORD).hosts["g1"].variables
        assert variables["db_user"] == Secret("anna", "db_user")
        assert variables["port"] == 5
        assert variables["list"] == [Secret("a", ""), Secret("b", "")]

    def test_a_whole_file_without_a_password_is_told(self, write, refused):
        write("group_vars/all.yml", FILE)
        (message,) = refused("all: {hosts: {g1: }}")
        assert message.startswith("group_vars/all.yml:1:1: this file is encrypted with ansible-vault")

    def test_the_password_file_of_the_environment(self, write, load, monkeypatch):
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(write("pw", "correct horse\n")))
        assert load(with_block("x")).hosts["g1"].variables["x"] == Secret("swordfish-77", "")

    def test_a_password_program_is_run(self, write):
        program = write("pw.sh", "#!/bin/sh\necho correct horse\n")
        program.chmod(0o755)
        assert read_password(program) == PASSWORD
        program.write_text("#!/bin/sh\nexit 3\n")
        with pytest.raises(InputError, match="cannot be used"):
            read_password(program)

    @pytest.mark.parametrize(
        "text",
        [
            "plain",
            "$ANSIBLE_VAULT;1.1;AES\n6162",
            "$ANSIBLE_VAULT;1.1;AES256\n61626364",
            "$ANSIBLE_VAULT;1.1;AES256\n6162zz",
            BLOCK[:-60],
            BLOCK.replace("6263\n", "6264\n"),
        ],
    )
    def test_damage_is_told(self, text):
        with pytest.raises(VaultError):
            decrypt(text, PASSWORD)


class TestSources:
    def test_environment_file_and_command(self, write, load, monkeypatch):
        monkeypatch.setenv("REGISTRY_PASSWORD", "from-env")
        write("keys/db", "from-file\n")
        variables = (
            load("""\
            all:
              hosts:
                g1:
                  a: !secret env REGISTRY_PASSWORD
                  b: !secret file keys/db
                  c: !secret command printf '%s' "$REGISTRY_PASSWORD-2"
                  d: {e: [!secret env REGISTRY_PASSWORD]}
            """)
            .hosts["g1"]
            .variables
        )
        assert [variables[name].reveal() for name in "abc"] == ["from-env", "from-file", "from-env-2"]
        assert variables["d"]["e"][0] == Secret("from-env", "")

    def test_a_file_is_relative_to_the_file_that_names_it(self, write, load):
        write("group_vars/all.yml", "a: !secret file here\n")
        write("group_vars/here", "found")
        assert load("all: {hosts: {g1: }}").hosts["g1"].variables["a"] == Secret("found", "")

    def test_what_is_missing_matters_only_to_who_uses_it(self, load):
        inventory = load("""\
            all:
              hosts:
                g1: {a: !secret file gone, b: !secret env GONE, c: !secret 'command echo oops >&2; exit 4'}
                g2:
            """)
        inventory.hosts["g2"].connection()
        for name, words in {"a": "cannot be read", "b": "GONE is not set", "c": "ended with 4: oops"}.items():
            with pytest.raises(InputError) as caught:
                inventory.hosts["g1"].variables[name]
            assert words in str(caught.value)
            assert str(caught.value.problems[0].position).startswith("site.yaml:3:")
            assert caught.value.remedy

    def test_a_command_runs_once_for_all_hosts(self, load, folder):
        inventory = load("""\
            all:
              vars: {p: !secret command echo x >> ran; echo secret-of-once}
              hosts: {"g[1:5]": }
            """)
        assert {host.variables["p"].reveal() for host in inventory.hosts.values()} == {"secret-of-once"}
        assert (folder / "ran").read_text() == "x\n"

    @pytest.mark.parametrize("text", ["hunter2hunter2", "env", "vaulted x", "''"])
    def test_a_form_that_is_none_is_refused_without_showing_it(self, refused, text):
        (message,) = refused(f"all: {{hosts: {{g1: {{a: !secret {text}}}}}}}")
        assert "write !secret env NAME" in message
        assert "hunter2" not in message

    def test_a_secret_where_a_port_is_wanted_is_not_shown(self, refused, monkeypatch):
        monkeypatch.setenv("ODD", "tell-nobody")
        (message,) = refused("all: {hosts: {g1: {ansible_port: !secret env ODD}}}")
        assert message.startswith("site.yaml:1:34: ansible_port must be a number from 1 to 65535; the secret")
        assert "tell-nobody" not in message

    def test_listing_fetches_no_secret(self, write, folder):
        write(
            "site.yaml",
            "all: {hosts: {g1: {ansible_password: !secret command touch fetched, r: {p: !secret env GONE}}}}",
        )
        for arguments in ([], ["--host", "g1"], ["--host", "g1", "--json"], ["--graph"]):
            result = CliRunner().invoke(command, ["site.yaml", *arguments], catch_exceptions=False)
            assert result.exit_code == 0
        assert not (folder / "fetched").exists()

    def test_a_tagged_value_outside_an_inventory_is_named_by_its_place(self, folder):
        source = SecretSource(None, lambda file: folder)
        root = parse_yaml("a: !secret env GONE\nb: !unsafe '{{ x }}'\n", "play.yml").root
        assert source.value(root.children["b"]) == "{{ x }}"
        with pytest.raises(InputError, match=r"play\.yml:1:4: .*GONE is not set"):
            source.value(root.children["a"])

    def test_unsafe_text_is_no_template(self, load):
        host = load("all: {hosts: {g1: {a: !unsafe '{{ b }}', c: '{{ a }}'}}}").hosts["g1"]
        assert host.templar.render(host.variables["c"]) == "{{ b }}"

    def test_a_password_that_is_a_template_stays_secret(self, load):
        host = load("all: {hosts: {g1: {ansible_password: 'x-{{ n }}', n: 7}}}").hosts["g1"]
        assert isinstance(host.variables["ansible_password"], SecretTemplate)
        assert host.connection().endpoint.password.reveal() == "x-7"


def test_options_hold_no_secret_in_their_text():
    assert "correct" not in repr(LoadOptions(vault_password=PASSWORD))
