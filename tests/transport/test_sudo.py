"""Becoming root: the real sudo with throwaway accounts, and stand-ins for what cannot be had here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.core.connection import Become
from fleet.core.errors import BecomeFailed
from fleet.core.secret import Secret
from fleet.transport import stage
from tests.transport.accounts import account
from tests.transport.sshd import Sshd

RULE = "ALL=(ALL) {tag}ALL"


@pytest.fixture
def as_user(start_sshd, settings_for):
    """Settings for logging in as an account and becoming root with a password (None: without)."""

    def make(user, password):
        become = Become(True, password=None if password is None else Secret(password, "sudo password"))
        return settings_for(start_sshd(), endpoint={"user": user.name}, become=become)

    return make


def test_with_the_right_password(as_user, connector):
    with account(sudo=RULE.format(tag="")) as user:
        connection = connector.connect(as_user(user, user.password))
        assert connection.hello["uid"] == 0
        assert connection.request("echo", {}) == {}


def test_in_a_shell_of_csh_s_family(as_user, connector):
    with account(sudo=RULE.format(tag=""), shell="/bin/tcsh") as user:
        assert connector.connect(as_user(user, user.password)).hello["uid"] == 0


def test_the_password_is_in_no_argument_vector_or_environment_on_the_host(as_user, connector):
    with account(sudo=RULE.format(tag="")) as user:
        connector.connect(as_user(user, user.password))
        secret = user.password.encode()
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    data = (process / name).read_bytes()
                except OSError:
                    continue
                assert secret not in data, f"{process}/{name}"


def test_with_nopasswd_the_password_is_never_written(as_user, connector):
    """Would it be written, the agent's bundle or protocol would begin with it and fail."""
    with account(sudo=RULE.format(tag="NOPASSWD: ")) as user:
        connection = connector.connect(as_user(user, user.password))
        assert connection.hello["uid"] == 0
        assert connection.request("echo", {"n": 1}) == {"n": 1}


def test_with_nopasswd_and_no_password(as_user, connector):
    with account(sudo=RULE.format(tag="NOPASSWD: ")) as user:
        assert connector.connect(as_user(user, None)).hello["uid"] == 0


def test_a_wrong_password_is_sent_once(as_user, connector):
    with (
        account(sudo=RULE.format(tag="")) as user,
        pytest.raises(BecomeFailed, match=r"did not accept the password to become root \(it was sent once\)"),
    ):
        connector.connect(as_user(user, "not-the-password"))


def test_no_password_where_one_is_needed(as_user, connector):
    with account(sudo=RULE.format(tag="")) as user:
        with pytest.raises(BecomeFailed, match="needs a password") as caught:
            connector.connect(as_user(user, None))
        assert "-K or ansible_become_password" in str(caught.value)


def test_a_user_who_may_not(as_user, connector):
    with account() as user, pytest.raises(BecomeFailed, match="does not permit it to this user"):
        connector.connect(as_user(user, user.password))


def test_becoming_the_user_who_logs_in_needs_no_sudo(start_sshd, settings_for, connector):
    server = start_sshd(options="SetEnv PATH=/nowhere\n")
    settings = settings_for(server, become=Become(True, user=server.user))
    assert connector.connect(settings).request("echo", {}) == {}


FAKE_SUDO = """\
#!/bin/sh
# A sudo that takes the options fleet gives, then does what the test says.
while :; do case $1 in
  -S|-H) shift;; -p) prompt=$2; shift 2;; -u) user=$2; shift 2;; *) break;;
esac; done
ask() { printf '%s' "$1" >&2; read -r password; }
"""


@pytest.fixture
def with_fake_sudo(start_sshd, settings_for, tmp_path):
    """Settings for a server whose sudo does ``body``, a piece of sh."""

    def make(body, password="swordfish"):
        folder = tmp_path / "bin"
        folder.mkdir()
        fake = folder / "sudo"
        fake.write_text(FAKE_SUDO + body + "\n")
        fake.chmod(0o755)
        path = f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin"
        server: Sshd = start_sshd(options=f"SetEnv PATH={path} FLEET_AGENT_STATE_DIR=/nowhere\n")
        become = Become(
            True, user="somebody", password=Secret(password, "sudo password") if password else None
        )
        return settings_for(server, become=become)

    return make


def test_sudo_rs_wraps_the_prompt(with_fake_sudo, connector):
    body = 'ask "[sudo: $prompt] Password: "; [ "$password" = swordfish ] && exec "$@"'
    assert connector.connect(with_fake_sudo(body)).request("echo", {}) == {}


def test_a_lecture_before_and_a_warning_after_the_prompt(with_fake_sudo, connector):
    body = (
        'echo "We trust you have received the usual lecture. Password:" >&2; echo "Password: "; '
        'ask "$prompt"; echo "sudo: unable to resolve host gpu01" >&2; [ "$password" = swordfish ] && exec "$@"'
    )
    assert connector.connect(with_fake_sudo(body)).request("echo", {}) == {}


def test_a_second_prompt_gets_no_second_password(with_fake_sudo, connector, tmp_path):
    body = f'ask "$prompt"; echo "$password" >> {tmp_path}/got; echo "Sorry, try again." >&2; ask "$prompt"; '
    body += f'echo "second:$password" >> {tmp_path}/got'
    with pytest.raises(BecomeFailed, match="sent once"):
        connector.connect(with_fake_sudo(body))
    assert (tmp_path / "got").read_text().splitlines()[0] == "swordfish"
    assert "second:swordfish" not in (tmp_path / "got").read_text()


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("alice is not in the sudoers file.", "does not permit it"),
        ("sudo: I'm sorry alice. I'm afraid I can't do that", "does not permit it"),
        ("Sorry, user alice is not allowed to execute '/bin/sh' as root on gpu01.", "does not permit it"),
        (
            'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.',
            "no_new_privs",
        ),
        ("sudo: sorry, you must have a tty to run sudo", "requiretty"),
        (
            "sudo: effective uid is not 0, is /usr/bin/sudo on a file system with the 'nosuid' option",
            "set-user-id",
        ),
        ("sudo: unknown user: somebody", "does not exist"),
        ("sudo: account validation failure, is your account locked?", "PAM refuses"),
        (">>> /etc/sudoers: syntax error near line 3 <<<\nsudo: parse error", "sudoers file is damaged"),
        ("sudo: something new", "sudo failed: sudo: something new"),
    ],
)
def test_what_sudo_says_becomes_a_clear_answer(with_fake_sudo, connector, words, meaning):
    quoted = words.replace("'", "'\\''")
    with pytest.raises(BecomeFailed, match=meaning) as caught:
        connector.connect(with_fake_sudo(f"printf '%s\\n' '{quoted}' >&2; exit 1"))
    assert caught.value.remedy
    assert caught.value.host == "gpu01"


def test_no_sudo_at_all(tmp_path):
    """The script that escalates, run with a PATH that has no sudo anywhere (its own additions removed)."""
    script = stage.ESCALATE.replace(stage.PATHS, "")
    command = ["/bin/sh", "-c", script, "fleet", "0123", "root", "exit 9"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout.strip() == "FLEET-NOSUDO-0123"
