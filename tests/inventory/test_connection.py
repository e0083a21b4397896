"""How hosts are reached: variables, ssh_config, bastions."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.connection import Become, HostKeyPolicy
from fleet.core.errors import InputError
from fleet.core.secret import Secret
from fleet.inventory.ssh_config import SshConfig

ONE = "all: {{hosts: {{g1: {{{}}}}}}}"


@pytest.fixture
def way(load):
    """The settings of the one host with these variables."""

    def settings(variables: str, **options):
        return load(ONE.format(variables), **options).hosts["g1"].connection()

    return settings


class TestVariables:
    def test_nothing_given(self, way):
        settings = way("")
        assert settings.endpoint.shown == "me@g1:22"
        assert settings.endpoint.known_hosts == (
            Path.home() / ".ssh/known_hosts",
            Path("/etc/ssh/ssh_known_hosts"),
        )
        assert settings.endpoint.host_key_policy is HostKeyPolicy.STRICT
        assert settings.become == Become()
        assert (settings.jumps, settings.proxy_command, settings.python, settings.local) == (
            (),
            None,
            None,
            False,
        )

    def test_everything_given(self, way, folder):
        settings = way(
            "ansible_host: 192.0.2.7, ansible_port: '2222', ansible_user: ops, ansible_password: pw-one, "
            "ansible_ssh_private_key_file: keys/id, ansible_become: 'yes', ansible_become_user: boss, "
            "ansible_become_password: pw-two, ansible_python_interpreter: /opt/python3, "
            "ansible_ssh_timeout: 7, "
            "fleet_known_hosts: [known, ~/more]"
        )
        assert settings.endpoint.shown == "ops@192.0.2.7:2222"
        assert settings.endpoint.password == Secret("pw-one", "")
        assert settings.endpoint.key_files == (folder / "keys/id",)
        assert settings.endpoint.known_hosts[:2] == (folder / "known", Path.home() / "more")
        assert settings.become == Become(True, "boss", Secret("pw-two", ""))
        assert settings.python == "/opt/python3"
        assert settings.deadlines.connect == 7.0

    def test_older_names_and_null(self, way):
        settings = way("ansible_ssh_host: h, ansible_ssh_port: 2, ansible_ssh_user: u, ansible_host: null")
        assert settings.endpoint.shown == "u@h:2"

    def test_templates_are_rendered_and_checked(self, load, way):
        assert (
            way("ansible_host: '{{ inventory_hostname }}.{{ zone }}', zone: lab.test").endpoint.address
            == "g1.lab.test"
        )
        assert way("ansible_port: '{{ base + 7 }}', base: 2200").endpoint.port == 2207
        with pytest.raises(
            InputError, match=r"site\.yaml:1:34: ansible_port must be a number from 1 to 65535"
        ):
            way("ansible_port: '{{ base }}', base: 99999")
        with pytest.raises(InputError, match=r"site\.yaml:1:34: .*'nowhere' is undefined"):
            way("ansible_host: '{{ nowhere }}'")

    def test_a_password_by_way_of_another_variable(self, way):
        password = way("ansible_become_password: '{{ pw }}', pw: plain-text-pw").become.password
        assert password == Secret("plain-text-pw", "")

    def test_the_password_asked_for_serves_hosts_that_have_none(self, load):
        inventory = load(
            "all: {hosts: {a: , b: {ansible_become_pass: own}}}",
            become_password=Secret("asked", "sudo password"),
        )
        assert [inventory.hosts[name].connection().become.password.reveal() for name in "ab"] == [
            "asked",
            "own",
        ]

    @pytest.mark.parametrize("word", ["auto", "auto_silent", "auto_legacy"])
    def test_python_is_searched_for(self, way, word):
        assert way(f"ansible_python_interpreter: {word}").python is None

    def test_local(self, way):
        assert way("ansible_connection: local").local is True

    @pytest.mark.parametrize(
        ("variables", "words"),
        [
            ("ansible_port: twenty-two", 'ansible_port must be a number from 1 to 65535, not "twenty-two"'),
            ("ansible_port: 0x16", 'not "0x16"'),
            ("ansible_port: 22:30", 'not "22:30"'),
            ("ansible_port: 65536", 'not "65536"'),
            ("ansible_user: no", "no is read by YAML as the boolean false"),
            ("ansible_host: 10.1", '"10.1"'),
            ("ansible_host: [a]", "not a list"),
            ("ansible_host: 'gate:2222'", "the port goes to ansible_port"),
            ("ansible_host: -oProxyCommand=x", "must be a host name or address"),
            ("ansible_user: 'a b'", 'must be a user name, not "a b"'),
            ("ansible_host: ''", "not empty"),
            ("ansible_become: perhaps", 'must be yes or no, not "perhaps"'),
            ("ansible_become_method: su", 'must be sudo, not "su"'),
            ("ansible_connection: winrm", 'must be ssh or paramiko or smart or local, not "winrm"'),
            ("ansible_ssh_timeout: 0", "a number of seconds above 0"),
            ("ansible_host_key_checking: false", "host keys are always checked"),
            ("ansible_ssh_common_args: -o StrictHostKeyChecking=no", "accept-new"),
            ("ansible_ssh_common_args: -o UserKnownHostsFile=/dev/null", "fleet_known_hosts"),
            ("ansible_ssh_common_args: -L 1:h:2", "ansible_ssh_common_args: -L 1:h:2 is not understood"),
            (
                "ansible_ssh_extra_args: -o Ciphers=x",
                "ansible_ssh_extra_args: the option Ciphers is not understood",
            ),
            ("ansible_ssh_common_args: -F conf", "--ssh-config"),
            ("ansible_ssh_common_args: -o 'ProxyJump", "a quote is left open"),
            ("ansible_ssh_common_args: gate", '"gate" is not an option of ssh'),
            ("fleet_jump: a@b@c", '"a@b@c" is not a jump host'),
            ("fleet_jump: gate:70000", "no port from 1 to 65535"),
        ],
    )
    def test_what_cannot_be_is_refused_at_its_place(self, refused, variables, words):
        (message,) = refused(ONE.format(variables))
        assert message.startswith("site.yaml:1:")
        assert words in message


class TestArguments:
    def test_what_matters_is_honoured_and_tuning_passed_over(self, way):
        settings = way(
            "ansible_ssh_common_args: '-C -q -o ControlMaster=auto -o ServerAliveInterval=5 "
            "-oStrictHostKeyChecking=accept-new'"
            ", ansible_ssh_extra_args: '-o Port=2022 -o \"User ops\" -i ~/.ssh/extra -o ConnectTimeout=4'"
        )
        assert settings.endpoint.shown == "ops@g1:2022"
        assert settings.endpoint.host_key_policy is HostKeyPolicy.ACCEPT_NEW
        assert settings.endpoint.key_files == (Path.home() / ".ssh/extra",)
        assert settings.deadlines.connect == 4.0

    def test_variables_come_before_arguments(self, way):
        assert way("ansible_port: 1, ansible_user: u, ansible_ssh_args: -p 2 -l v").endpoint.shown == "u@g1:1"

    @pytest.mark.parametrize(
        ("args", "jumps"),
        [
            ("-J ops@gate:2200", ["ops@gate:2200"]),
            ("-o ProxyJump=a,ops@b", ["me@a:22", "ops@b:22"]),
            ('-o ProxyCommand="ssh -p 2200 -W %h:%p -q ops@gate"', ["ops@gate:2200"]),
            ("-o ProxyCommand='ssh -l ops -W [%h]:%p gate 2>/dev/null'", ["ops@gate:22"]),
            ("-o 'ProxyCommand ssh -J a -W %h:%p b'", ["me@a:22", "me@b:22"]),
            ("-o ProxyCommand='ssh ops@gate nc -w 5 %h %p'", ["ops@gate:22"]),
            ("-J ssh://ops@gate:22", ["ops@gate:22"]),
            ("-J [2001:db8::1]:2200", ["me@2001:db8::1:2200"]),
            ("-o ProxyJump=none", []),
        ],
    )
    def test_bastions(self, way, args, jumps):
        quoted = args.replace("'", "''")
        settings = way(f"ansible_ssh_common_args: '{quoted}'")
        assert [jump.shown for jump in settings.jumps] == jumps
        assert settings.proxy_command is None

    @pytest.mark.parametrize(
        "command",
        ["nc -X 5 -x proxy:1080 %h %p", "ssh gate nc %h %p | tee log", "ssh -o Ciphers=x -W %h:%p gate"],
    )
    def test_other_commands_are_kept_as_they_are(self, way, command):
        settings = way(f'ansible_ssh_common_args: -o ProxyCommand="{command}"')
        assert (settings.jumps, settings.proxy_command) == ((), command)

    def test_an_unchecked_bastion_is_refused(self, refused):
        args = '-o ProxyCommand="ssh -o StrictHostKeyChecking=no -W %h:%p gate"'
        (message,) = refused(ONE.format(f"ansible_ssh_common_args: {args}"))
        assert "would accept any host key" in message


class TestJumps:
    TEXT = """\
        all:
          vars: {fleet_jump: gate, ansible_user: ops, ansible_ssh_private_key_file: /keys/k}
          hosts:
            gate: {ansible_host: 192.0.2.1, ansible_port: 2200, ansible_user: hop}
            g1: {ansible_host: 10.0.0.1}
            g2: {fleet_jump: [gate, "ops@inner:2222"]}
            g3: {fleet_jump: none}
            g4: {fleet_jump: other@gate}
        """

    def test_a_bastion_may_be_a_host_of_the_inventory(self, load):
        hosts = load(self.TEXT).hosts
        assert [jump.shown for jump in hosts["g1"].connection().jumps] == ["hop@192.0.2.1:2200"]
        assert [jump.shown for jump in hosts["g2"].connection().jumps] == [
            "hop@192.0.2.1:2200",
            "ops@inner:2222",
        ]
        assert hosts["g3"].connection().jumps == ()
        assert [jump.shown for jump in hosts["g4"].connection().jumps] == ["other@192.0.2.1:2200"]

    def test_the_bastion_itself_is_reached_directly(self, load):
        assert load(self.TEXT).hosts["gate"].connection().jumps == ()

    def test_a_bastion_outside_is_offered_the_hosts_keys(self, load):
        assert load(self.TEXT).hosts["g2"].connection().jumps[1].key_files == (Path("/keys/k"),)

    def test_a_circle_is_refused(self, refused):
        messages = refused("all: {hosts: {a: {fleet_jump: b}, b: {fleet_jump: a}}}")
        assert all("the jump hosts form a circle: " in message for message in messages)

    def test_a_bastions_bastion_is_passed_first(self, load):
        hosts = load("all: {hosts: {a: , b: {fleet_jump: a}, c: {fleet_jump: b}}}").hosts
        assert [jump.address for jump in hosts["c"].connection().jumps] == ["a", "b"]


class TestSshConfig:
    def entry(self, write, text, *names, **more):
        return SshConfig((write("c", text),), home=Path("/h"), local_user="me").entry(*names, **more)

    def test_the_first_value_counts_and_identity_files_add_up(self, write):
        entry = self.entry(
            write, "Host a*\n Port 1\n IdentityFile k1\nHost *\n Port 2\n User=u\n IdentityFile k2\n", "ab"
        )
        assert (entry.port, entry.user, entry.identity_files) == (1, "u", ("k1", "k2"))

    @pytest.mark.parametrize(
        ("block", "name", "holds"),
        [
            ("Host g? !g2", "g1", True),
            ("Host g? !g2", "g2", False),
            ("Host !g2 *", "g1", True),
            ("Host *.lab.test", "x.lab.test", True),
            ("Host [ab]", "a", False),
            ("Match host g*", "g1", True),
            ("Match originalhost x,g1", "g1", True),
            ("Match host g1 user ops", "g1", True),
            ("Match host g1 !user ops", "g1", False),
            ("Match localuser me", "g1", True),
            ("Match all", "g1", True),
            ('Match exec "true"', "g1", False),
            ("Match final", "g1", False),
        ],
    )
    def test_blocks(self, write, block, name, holds):
        entry = self.entry(write, f"{block}\n  Port 7\n", name, user="ops")
        assert entry.port == (7 if holds else None)

    def test_match_host_sees_the_name_after_hostname(self, write):
        text = "Host g1\n HostName %h.lab.test\nMatch host *.lab.test\n User deep\n"
        entry = self.entry(write, text, "g1")
        assert (entry.hostname, entry.user) == ("g1.lab.test", "deep")

    def test_includes_stand_under_the_block_they_are_in(self, write, folder):
        write("conf.d/a", "Port 7\nHost other\n Port 8\n")
        text = f"Host g1\n Include {folder}/conf.d/*\n User u\n"
        assert self.entry(write, text, "g1").port == 7
        assert self.entry(write, text, "other").port is None
        assert self.entry(write, text, "g1").user == "u"

    def test_a_file_that_includes_itself(self, write, folder):
        with pytest.raises(InputError, match="files deep"):
            self.entry(write, f"Include {folder}/c\n", "x")

    def test_quotes_comments_and_equal_signs(self, write):
        text = '# c\nHost "a b" g1 # tail\n  IdentityFile "~/my keys/k"\n  User = u\n'
        entry = self.entry(write, text, "g1")
        assert (entry.identity_files, entry.user) == (("~/my keys/k",), "u")

    def test_a_bad_port_is_told_with_its_line(self, write):
        with pytest.raises(InputError, match=r"c:2:2: Port must be"):
            self.entry(write, "Host *\n Port x\n", "g1")

    def test_the_inventory_comes_first_and_the_users_file_is_read(self, write, load):
        write(
            "home/.ssh/config",
            "Host g1\n Port 1\n User u\n HostName real\nHost 192.0.2.*\n IdentitiesOnly yes\n",
        )
        hosts = load("all: {hosts: {g1: , g2: {ansible_host: 192.0.2.9}, g3: {ansible_port: 5}}}").hosts
        assert hosts["g1"].connection().endpoint.shown == "u@real:1"
        assert hosts["g2"].connection().endpoint.identities_only
        assert hosts["g3"].connection().endpoint.port == 5

    def test_jumps_go_through_the_jump_hosts_own_entry(self, write, load):
        write(
            "home/.ssh/config",
            "Host g*\n ProxyJump inner\nHost inner\n ProxyJump ops@outer\n HostName 10.9.9.9\n Port 23\n"
            "Host outer\n User no\n",
        )
        jumps = load("all: {hosts: {g1: }}").hosts["g1"].connection().jumps
        assert [jump.shown for jump in jumps] == ["ops@outer:22", "me@10.9.9.9:23"]

    def test_a_jump_that_covers_its_own_bastion_is_no_circle(self, write, load):
        write("home/.ssh/config", "Host *\n ProxyJump gate\n")
        assert [j.address for j in load("all: {hosts: {g1: }}").hosts["g1"].connection().jumps] == ["gate"]

    def test_a_command_may_follow_the_jump_none(self, write):
        entry = self.entry(write, "Host *\n ProxyJump none\n ProxyCommand nc %h %p\n ProxyJump x\n", "g1")
        assert (entry.proxy_jump, entry.proxy_command) == (None, "nc %h %p")

    def test_a_circle_in_ssh_config_is_refused(self, write, refused):
        write("home/.ssh/config", "Host g1\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n")
        (message,) = refused("all: {hosts: {g1: }}")
        assert "the jump hosts form a circle: a → b → a" in message

    def test_none_ends_a_jump(self, write, load):
        write("home/.ssh/config", "Host g1\n ProxyJump none\nHost *\n ProxyJump gate\n")
        assert load("all: {hosts: {g1: }}").hosts["g1"].connection().jumps == ()

    def test_unchecked_keys_in_ssh_config_are_not_followed(self, write, load):
        write("home/.ssh/config", "Host *\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n")
        endpoint = load("all: {hosts: {g1: }}").hosts["g1"].connection().endpoint
        assert endpoint.host_key_policy is HostKeyPolicy.STRICT
        assert endpoint.known_hosts[0] == Path.home() / ".ssh/known_hosts"

    def test_accept_new_holds_for_bastions_too(self, load):
        way = load(ONE.format("fleet_jump: gate"), accept_new=True).hosts["g1"].connection()
        assert {way.endpoint.host_key_policy, way.jumps[0].host_key_policy} == {HostKeyPolicy.ACCEPT_NEW}
