"""The conversation before the protocol, byte by byte, and the command line that starts it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core.connection import Become, ConnectionSettings, Deadlines, Endpoint
from fleet.core.errors import BecomeFailed, HostUnreachable, ProtocolError, PythonMissing
from fleet.core.secret import Secret
from fleet.transport import Bundle, python_install, stage
from fleet.transport.bootstrap import bootstrap
from tests.transport.accounts import need

BUNDLE = Bundle.of({"fleet/__init__.py": b"x" * 100})
PASSWORD = "correct horse"


class ScriptedHost:
    """A channel that says what it is told, split as it is told, and keeps what is written to it."""

    def __init__(self, *events):
        self.events = list(events)  # (stdout, stderr) templates; {n} is the nonce
        self.written = []
        self.written_after = []
        self.said = 0
        self.ended = False

    def open(self, command):
        words = shlex.split(command)  # as a shell would
        self.nonce = words[words.index("fleet") + 1].encode()
        return self

    def receive(self, seconds):
        del seconds
        if not self.events:
            return b"", b"", True
        out, err = self.events.pop(0)
        self.said += 1
        return out.replace(b"{n}", self.nonce), err.replace(b"{n}", self.nonce), False

    def send(self, data, deadline):
        del deadline
        self.written.append(data)
        self.written_after.append(self.said)

    def end(self):
        self.ended = True


def start(host, *, become=True, password=PASSWORD, install=False):
    secret = Secret(password, "sudo password") if password else None
    wanted = ConnectionSettings(
        "gpu01",
        Endpoint("h", user="alice"),
        become=Become(become, password=secret),
        deadlines=Deadlines(hello=5),
    )
    return bootstrap(host.open, wanted, BUNDLE, install=install)


noise = st.binary(max_size=60).filter(lambda data: b"FLEET" not in data)
READY = b"\nFLEET-READY-{n} %d\n"


@given(noise, noise, noise, st.binary(max_size=40), st.data())
@settings(max_examples=100, deadline=None)
def test_any_noise_split_anywhere(before, lecture, between, after, data):
    """The password follows the prompt, the bundle follows the marker, and what follows is kept whole."""
    nonce = b"0" * 24  # of the length of a real one, so that splitting in templates is splitting in fact
    prompt = lecture + b"FLEET-SUDO-" + nonce + b": "
    ready = between + READY.replace(b"{n}", nonce) % 0 + after
    events = [(b"", part) for part in pieces(prompt, data)] + [(part, b"") for part in pieces(ready, data)]
    host = ScriptedHost((before, before), *events)
    prompts = 1 + len([1 for part in events if part[1]])

    with patch("fleet.transport.bootstrap.secrets.token_hex", lambda size: nonce.decode()):
        started = start(host)
    assert host.written == [PASSWORD.encode() + b"\n", BUNDLE.data]
    assert 1 < host.written_after[0] <= prompts
    rest = started.rest + b"".join(out for out, _ in host.events)
    assert rest == after


def pieces(text, data):
    """``text`` cut at a few drawn places."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    found = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [piece for piece in found if piece]


def test_nothing_is_written_before_the_prompt_or_the_marker():
    host = ScriptedHost((b"Password: ", b"[sudo] password for alice: "), (READY % 1, b""))
    start(host)
    assert host.written == []


def test_a_marker_with_another_nonce_is_noise():
    host = ScriptedHost((b"FLEET-READY-abcdef 1\n", b"FLEET-SUDO-abcdef: "))
    with pytest.raises(ProtocolError, match="did not start"):
        start(host)
    assert host.written == []
    assert host.ended


def test_an_echo_of_the_command_line_is_noise():
    """A shell that traces what it runs prints the nonce, but never joined to a marker or prompt."""
    host = ScriptedHost()
    nonce = "ab" * 12
    line = stage.session_command(nonce, BUNDLE, python=None, become="root")
    assert not re.search(f"FLEET-[A-Z]+-{nonce}", line)
    assert host.written == []


@pytest.mark.parametrize(
    ("events", "error", "text"),
    [
        ([(b"", b"FLEET-SUDO-{n}: "), (b"", b"Sorry\nFLEET-SUDO-{n}: ")], BecomeFailed, "sent once"),
        ([(b"", b"FLEET-SUDO-{n}: FLEET-SUDO-{n}: ")], BecomeFailed, "sent once"),
        ([(b"FLEET-NOSUDO-{n}\n", b"")], BecomeFailed, "no sudo"),
        ([(READY[:-4] + b"7\n", b"")], ProtocolError, "ready marker that says '7'"),
        ([(b"FLEET-DAMAGED-{n}\n", b"")], ProtocolError, "did not start"),
        ([(b"FLEET-NOPYTHON-{n} debian\n", b"")], PythonMissing, "apt-get install -y python3"),
        (
            [(b"FLEET-NOPYTHON-{n} rocky rhel centos fedora\n", b"")],
            PythonMissing,
            "dnf install -y python3.11",
        ),
        ([(b"FLEET-NOPYTHON-{n} plan9\n", b"")], PythonMissing, "ansible_python_interpreter"),
        ([(b"", b"ModuleNotFoundError: No module named 'zlib'\n")], PythonMissing, "zlib"),
        ([(b"", b"Unknown option: -I\n")], PythonMissing, "too old"),
        ([(b"x" * 600_000, b""), (b"x" * 600_000, b"")], ProtocolError, "1 MiB of noise"),
        ([(b"", b"\x1b[2Jbash: exec: fork: no memory\n")], ProtocolError, r"\\x1b\[2Jbash"),
        ([], ProtocolError, "did not start"),
    ],
)
def test_starts_that_fail(events, error, text):
    host = ScriptedHost(*events)
    with pytest.raises(error, match=text) as caught:
        start(host)
    assert host.ended
    assert isinstance(caught.value, HostUnreachable)
    assert PASSWORD not in str(caught.value)


def test_an_incomplete_python_names_what_is_missing():
    host = ScriptedHost(
        (b"FLEET-PYTHON-{n} lacks:json,shutil 3.11.2 /usr/bin/python3\nFLEET-NOPYTHON-{n} debian\n", b"")
    )
    with pytest.raises(PythonMissing) as caught:
        start(host)
    assert str(caught.value) == (
        "its Python is incomplete: /usr/bin/python3 is 3.11.2 and lacks the modules json, shutil "
        "(python3-minimal instead of python3?)\n"
        "  remedy: on the host: apt-get install -y python3 (or run again with --install-python), "
        "or set ansible_python_interpreter"
    )


def test_installing_python_goes_through_sudo_and_refreshes_the_lists_once():
    asks = (b"", b"FLEET-SUDO-{n}: ")
    failed, done = (b"\nFLEET-INSTALLED-{n} 100\n", b"E: no candidate\n"), (b"\nFLEET-INSTALLED-{n} 0\n", b"")
    host = ScriptedHost(
        asks,
        (b"FLEET-NOPYTHON-{n} ubuntu debian\n", b""),
        asks,
        failed,
        asks,
        done,
        asks,
        (b"x" * 3_000_000, b""),
        done,
        asks,
        (READY % 1, b""),
    )
    commands = []
    host.open, opened = lambda command: commands.append(command) or opened(command), host.open
    start(host, install=True)
    assert host.written == [PASSWORD.encode() + b"\n"] * 5
    assert [shlex.split(command)[-1] for command in commands[1:4]] == [
        "apt-get install -y python3",
        "apt-get update",
        "apt-get install -y python3",
    ]


def test_an_installation_that_fails_is_told_with_its_last_words():
    failed = (b"\nFLEET-INSTALLED-{n} 100\n", b"E: Could not get lock /var/lib/dpkg/lock-frontend\n")
    host = ScriptedHost((b"FLEET-NOPYTHON-{n} debian\n", b""), failed, failed, failed)
    with pytest.raises(PythonMissing, match="Could not get lock"):
        start(host, become=False, install=True)


def test_every_distribution_we_support_has_a_command():
    for word in ("debian", "ubuntu", "rhel"):
        assert python_install.install_command([word])


def test_the_stage_is_small():
    assert len(stage.STAGE.encode()) <= stage.STAGE_LIMIT


@pytest.mark.parametrize("become", [None, "root"])
def test_the_command_line_is_safe_in_every_shell(become):
    line = stage.session_command("ab" * 12, BUNDLE, python="/opt/py thon/bin/python3", become=become)
    assert not set("\n!`\\") & set(line)
    assert len(line) < 6000


def test_a_word_that_no_quoting_carries_is_refused():
    with pytest.raises(ValueError, match="every login shell"):
        stage.session_command("ab", BUNDLE, python="/bin/it's", become=None)


@pytest.mark.parametrize(
    "shell", ["dash", "bash", "tcsh", *filter(shutil.which, ["fish", "zsh", "ksh", "mksh"])]
)
def test_shells_pass_the_words_on_unchanged(shell):
    """The scripts and arguments arrive at /bin/sh as they were, whatever the login shell."""
    need(shell, root=False)
    path = shutil.which(shell)
    assert path
    line = stage.session_command("ab" * 12, BUNDLE, python=None, become="root")
    probe = line.replace("exec /bin/sh -c", "exec printf %s@", 1)
    direct = subprocess.run(["/bin/sh", "-c", probe], capture_output=True)
    through = subprocess.run([path, "-c", probe], capture_output=True)
    assert through.stdout == direct.stdout
    assert through.stdout.count(b"@") >= 8


def old_pythons():
    """Pythons on this machine that are too old for the agent."""
    names = ["python2.7", "python3.5", "python3.6", "python3.7", "python3.8"]
    found = [path for path in map(shutil.which, names) if path]
    return [path for path in found if not subprocess.run([path, "-V"], capture_output=True).returncode]


@pytest.mark.parametrize("python", [sys.executable, *old_pythons()])
def test_the_stage_says_in_band_that_a_python_is_too_old(python):
    """It compiles on the old ones that are here; ours only pretends."""
    pretend = "import sys; sys.version_info = min(tuple(sys.version_info), (3, 8, 0)); exec(sys.argv[1])"
    done = subprocess.run(
        [python, "-S", "-c", pretend, stage.STAGE, "n0", "0" * 64, "1"], capture_output=True, text=True
    )
    assert done.returncode == 97
    assert re.fullmatch(r"\nFLEET-PYTHON-n0 old [23]\.\d+\.\d+ \S+\n", done.stdout)
