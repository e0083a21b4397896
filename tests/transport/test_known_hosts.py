"""known_hosts parsing, matching and pinning."""

from __future__ import annotations

import base64
import multiprocessing
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleet.transport.known_hosts import KnownHosts, lookup_name, parse

FILE = Path("known_hosts")


def blob(text: bytes = b"k") -> bytes:
    return b"\0\0\0\x0bssh-ed25519" + text


def line(names: str, text: bytes = b"k") -> str:
    return f"{names} ssh-ed25519 {base64.b64encode(blob(text)).decode()}"


def test_names():
    assert lookup_name("Host.Example", 22) == "host.example"
    assert lookup_name("10.0.0.1", 2222) == "[10.0.0.1]:2222"
    assert lookup_name("10.0.0.1", 2222, "Rack7") == "rack7"


def test_damaged_lines_are_skipped_and_the_others_keep_their_numbers():
    text = "\n".join(["# comment", "", "host", "host ssh-ed25519 !!!", "host ssh-rsa AAAA", line("good,other"),
                      "@cert-authority " + line("*"), "@revoked " + line("bad"), "|1|x ssh-ed25519 AAAA"])  # fmt: skip
    entries = parse(text, FILE)
    assert [(entry.names, entry.line, entry.revoked) for entry in entries] == [
        (("good", "other"), 6, False),
        (("bad",), 8, True),
    ]


def test_patterns_and_negation():
    (entry,) = parse(line("*.lab,!gpu9.lab,[10.0.0.?]:22*"), FILE)
    assert entry.matches("gpu1.lab")
    assert not entry.matches("gpu9.lab")
    assert entry.matches("[10.0.0.7]:2222")
    assert not entry.matches("10.0.0.7")


def test_hashed_names_are_those_of_ssh_keygen(tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text(line("[10.0.0.1]:2222") + "\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], capture_output=True)
    if "|1|" not in file.read_text():  # ssh-keygen wants real key material
        key = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        file.write_text("[10.0.0.1]:2222 " + Path(f"{key}.pub").read_text())
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    (entry,) = parse(file.read_text(), file)
    assert entry.matches("[10.0.0.1]:2222")
    assert not entry.matches("[10.0.0.1]:2223")


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text):
    for entry in parse(text, FILE):
        entry.matches("host")


@given(st.text(alphabet="|1=+/abc", max_size=40))
def test_no_hash_breaks_matching(text):
    for entry in parse(line("|1|" + text), FILE):
        assert not entry.matches("host")


def test_a_missing_file_has_no_entries(tmp_path):
    assert KnownHosts().lookup((tmp_path / "none", tmp_path / "no" / "folder"), "host") == []


def test_a_file_is_read_once(tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text(line("host"))
    known = KnownHosts()
    assert len(known.lookup((file,), "host")) == 1
    file.write_text("")
    assert len(known.lookup((file,), "host")) == 1


def test_what_another_process_pinned_first_decides(tmp_path):
    file = tmp_path / "known_hosts"
    known = KnownHosts()
    assert known.lookup((file,), "host") == []
    file.write_text(line("host", b"theirs") + "\n")
    (entry,) = known.pin(file, "host", "ssh-ed25519", blob(b"ours"))
    assert entry.key == blob(b"theirs")
    assert len(file.read_text().splitlines()) == 1


def pin_many(file: Path, start: int) -> None:
    known = KnownHosts()
    for number in range(start, start + 40):
        known.pin(file, f"host{number}", "ssh-ed25519", blob(str(number).encode()))


def test_processes_pinning_at_once_lose_no_line_and_tear_none(tmp_path):
    file = tmp_path / "known_hosts"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=pin_many, args=(file, start)) for start in (0, 40, 80)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    entries = parse(file.read_text(), file)
    assert sorted(entry.names[0] for entry in entries) == sorted(f"host{number}" for number in range(120))
