"""apt's words, read: each text is in the form that apt prints."""

from __future__ import annotations

import pytest

from fleet.agent.package_manager import apt_messages

SIMULATION = """\
NOTE: This is only a simulation!
      apt-get needs root privileges for real execution.
Reading package lists...
The following NEW packages will be installed:
  docker.io runc
Remv docker-ce [5:24.0.7-1] [containerd.io:amd64 ]
Inst runc (1.1.5+ds1-1+deb12u1 Debian:12.7/oldstable [amd64])
Inst libc6 [2.36-9+deb12u7] (2.36-9+deb12u9 Debian:12.9/oldstable, Debian-Security:12 [amd64]) []
Inst libc6:i386 [2.36-9+deb12u7] (2.36-9+deb12u9 Debian:12.9/oldstable [i386])
Conf runc (1.1.5+ds1-1+deb12u1 Debian:12.7/oldstable [amd64])
"""


def test_a_simulation_is_read() -> None:
    transaction = apt_messages.parse_simulation(SIMULATION)
    assert transaction.removes == [("docker-ce", "5:24.0.7-1")]
    assert transaction.installs == [
        ("runc", None, "1.1.5+ds1-1+deb12u1"),
        ("libc6", "2.36-9+deb12u7", "2.36-9+deb12u9"),
        ("libc6:i386", "2.36-9+deb12u7", "2.36-9+deb12u9"),
    ]


def test_policy_gives_installed_candidate_and_all_versions() -> None:
    text = """\
libexample-tools:
  Installed: 1.14.3-1
  Candidate: 1.14.4-1
  Version table:
     1.14.4-1 600
        600 https://repo.example.net/ubuntu2204/x86_64  Packages
 *** 1.14.3-1 600
        600 https://repo.example.net/ubuntu2204/x86_64  Packages
        100 /var/lib/dpkg/status
     1.14.2-1 600
        600 https://repo.example.net/ubuntu2204/x86_64  Packages
awk:
  Installed: (none)
  Candidate: (none)
  Version table:
"""
    assert apt_messages.parse_policy(text) == {
        "libexample-tools": {
            "installed": "1.14.3-1",
            "candidate": "1.14.4-1",
            "versions": ["1.14.4-1", "1.14.3-1", "1.14.2-1"],
        },
        "awk": {"installed": None, "candidate": None, "versions": []},
    }


def test_madison_gives_each_version_once_and_no_sources() -> None:
    text = """\
      curl | 7.88.1-10+deb12u12 | http://deb.example.net/debian bookworm/main amd64 Packages
      curl | 7.88.1-10+deb12u12 | http://deb.example.net/debian bookworm-updates/main amd64 Packages
      curl | 7.88.1-10+deb12u5 | http://deb.example.net/security bookworm-security/main amd64 Packages
      curl | 7.88.1-10+deb12u12 | http://deb.example.net/debian bookworm/main Sources
"""
    assert apt_messages.parse_madison(text) == {"curl": ["7.88.1-10+deb12u12", "7.88.1-10+deb12u5"]}


LOCK = """\
E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)
N: Be aware that removing the lock file is not a solution and may break your system.
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?
"""
LOCK_OLD = """\
E: Could not get lock /var/lib/dpkg/lock-frontend - open (11: Resource temporarily unavailable)
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?
"""
HELD = """\
The following held packages will be changed:
  libexample-tools libexample1
The following packages will be upgraded:
  libexample-tools libexample1
E: Held packages were changed and -y was used without --allow-change-held-packages.
"""
DOWNGRADE = """\
The following packages will be DOWNGRADED:
  example-toolkit example-toolkit-base
0 upgraded, 0 newly installed, 2 downgraded, 0 to remove and 0 not upgraded.
E: Packages were downgraded and -y was used without --allow-downgrades.
"""
UNMET = """\
The following packages have unmet dependencies:
 cuda-drivers : Depends: nvidia-driver-550 (>= 550.54.14) but it is not going to be installed
E: Unable to correct problems, you have held broken packages.
"""
NO_KEY = """\
W: GPG error: https://repo.example.net/ubuntu2404/x86_64  InRelease: The following signatures couldn't be \
verified because the public key is not available: NO_PUBKEY 0123456789ABCDEF
E: The repository 'https://repo.example.net/ubuntu2404/x86_64  InRelease' is not signed.
"""
CONFLICT = """\
E: Conflicting values set for option Signed-By regarding source https://repo.example.net/ubuntu2404/ /: \
/usr/share/keyrings/a.gpg !=
E: The list of sources could not be read.
"""
SYNC = """\
Err:4 https://repo.example.net/ubuntu2404  Packages
  File has unexpected size (1797735 != 1778230). Mirror sync in progress? [IP: 192.0.2.80 443]
E: Some index files failed to download. They have been ignored, or old ones used instead.
"""
PAGE = """\
Err:1 https://repo.example.net/ubuntu2404  InRelease
  Clearsigned file isn't valid, got 'NOSPLIT' (does the network require authentication?)
E: The repository 'https://repo.example.net/ubuntu2404  InRelease' is no longer signed.
"""
NOT_FOUND = """\
Ign:1 http://repo.example.net/debian nosuite InRelease
Err:2 http://repo.example.net/debian nosuite Release
  404  Not Found [IP: 192.0.2.80 80]
E: The repository 'http://repo.example.net/debian nosuite Release' does not have a Release file.
"""
GONE = """\
E: Failed to fetch http://repo.example.net/pool/x_1_amd64.deb  404  Not Found [IP: 192.0.2.80 80]
E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?
"""
EXPIRED = """\
E: Release file for http://repo.example.net/debian/dists/stable/InRelease is expired (invalid since 3d). \
Updates for this repository will not be applied.
"""
INTERRUPTED = (
    "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem. \n"
)


@pytest.mark.parametrize(
    ("text", "reason", "words", "transient"),
    [
        (LOCK, "lock_held", "unattended-upgr (pid 4711)", True),
        (LOCK_OLD, "lock_held", "another process", True),
        (INTERRUPTED, "dpkg_interrupted", "was interrupted", False),
        (HELD, "held_package", "libexample-tools, libexample1", False),
        (DOWNGRADE, "downgrade_refused", "example-toolkit, example-toolkit-base", False),
        (UNMET, "unmet_dependency", "nvidia-driver-550", False),
        (NO_KEY, "no_public_key", "0123456789ABCDEF", False),
        (CONFLICT, "signed_by_conflict", "(/usr/share/keyrings/a.gpg and none)", False),
        (PAGE, "no_repository", "https://repo.example.net/ubuntu2404", False),
        (SYNC, "mirror_sync", "https://repo.example.net/ubuntu2404", True),
        (NOT_FOUND, "not_found", "http://repo.example.net/debian nosuite Release", False),
        (GONE, "not_found", "http://repo.example.net/pool/x_1_amd64.deb", False),
        (EXPIRED, "release_time", "expired", False),
        ("E: Unable to locate package foo\n", "not_offered", "foo", False),
        ("E: Package 'foo' has no installation candidate\n", "not_offered", "foo", False),
        ("E: Version '9' for 'foo' was not found\n", "version_not_offered", "foo in version 9", False),
        ("  Temporary failure resolving 'repo.example.net'\n", "network", "repo.example.net", True),
        ("E: You don't have enough free space in /var/cache/apt/archives/.\n", "no_space", "room", False),
    ],
)
def test_errors_become_reasons(text: str, reason: str, words: str, transient: bool) -> None:
    problem = apt_messages.explain(text)
    assert problem is not None
    assert problem["reason"] == reason
    assert words in problem["what"]
    assert problem["transient"] is transient
    assert problem["remedy"]


def test_details_of_errors() -> None:
    assert apt_messages.explain(LOCK)["holder"] == {"pid": 4711, "command": "unattended-upgr"}  # type: ignore[index]
    assert apt_messages.explain(LOCK_OLD)["holder"] is None  # type: ignore[index]
    assert apt_messages.explain(NO_KEY)["repository"] == "https://repo.example.net/ubuntu2404/x86_64"  # type: ignore[index]
    assert apt_messages.explain("Reading package lists...\n") is None


def test_a_refresh_that_exits_well_can_have_failed() -> None:
    assert (
        apt_messages.refresh_problem("Hit:1 http://x bookworm InRelease\nReading package lists...\n") is None
    )
    strange = "W: Failed to fetch http://x/InRelease  something new\n"
    assert apt_messages.refresh_problem(strange)["reason"] == "refresh_failed"  # type: ignore[index]


def test_progress_counts_packages_over_pieces_of_output() -> None:
    said: list[str] = []
    progress = apt_messages.Progress(2, said.append)
    progress.feed("Get:1 http://x/debian bookworm/main amd64 runc amd64 1.1 [2,710 kB]\nUnpa")
    progress.feed("cking runc (1.1) ...\nSetting up runc (1.1) ...\nProcessing triggers for man-db ...\n")
    progress.feed("Setting up docker.io (26.1) ...\n")
    assert said == [
        "downloading runc",
        "unpacking runc (1 of 2 packages)",
        "installing runc (1 of 2 packages)",
        "installing docker.io (2 of 2 packages)",
    ]


def test_missing_translations_are_no_failure() -> None:
    text = (
        "Get:3 http://x ./ Packages\nErr:4 http://x ./ Translation-en\n  404  Not Found [IP: 192.0.2.1]\n"
        "Ign:4 http://x ./ Translation-en\nReading package lists...\n"
    )
    assert apt_messages.refresh_problem(text) is None
