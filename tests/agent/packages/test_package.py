"""The package resource: what differs, what is refused, and the exact commands of a change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.facts import packages as package_facts
from fleet.agent.history import History, Work
from fleet.agent.journal import Journal, read_journal
from fleet.agent.package_manager import Request, Transaction, dnf, dpkg_version, refusals
from fleet.agent.package_manager.apt import Apt
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.process import Result
from fleet.agent.resources import load
from fleet.agent.resources.base import Provides, StepCancelled, StepFailed
from fleet.agent.resources.package import transact
from fleet.agent.scrub import Scrubber
from fleet.agent.segment import Segment

OK = Result(0)


def stanza(name: str, version: str, status: str = "install ok installed") -> str:
    return f"Package: {name}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\n\n"


def policy(name: str, *versions: str) -> Result:
    lines = [f"{name}:", "  Installed: (none)", f"  Candidate: {versions[0] if versions else '(none)'}"]
    lines.append("  Version table:")
    for version in versions:
        lines += [f"     {version} 500", "        500 http://x/debian bookworm/main amd64 Packages"]
    return Result(0, "\n".join(lines) + "\n")


def differences(host: Any, **args: Any) -> list[dict[str, Any]]:
    package = load("package")
    return package.diff(package.read(host, args), args)


def apply(host: Any, report: Any, **args: Any) -> Any:
    package = load("package")
    return package.apply(host, args, package.diff(package.read(host, args), args), report)


def test_what_differs(host: Any) -> None:
    host.write(
        "/var/lib/dpkg/status",
        stanza("runc", "1.1")
        + stanza("dkms", "3.0", "install ok half-configured")
        + stanza("old", "1", "deinstall ok config-files")
        + stanza("held", "2", "hold ok installed"),
    )
    names = [{"name": name} for name in ("runc", "dkms", "old", "new")]
    assert differences(host, names=names, state="present") == [
        {"path": "dkms", "before": "3.0, half-configured", "after": "installed"},
        {"path": "old", "before": None, "after": "installed"},
        {"path": "new", "before": None, "after": "installed"},
    ]
    assert differences(host, names=[{"name": "runc", "version": "1.2"}], state="present") == [
        {"path": "runc", "before": "1.1", "after": "1.2"}
    ]
    assert differences(host, names=[{"name": "runc"}, {"name": "held"}], state="present", hold=True) == [
        {"path": "runc hold", "before": False, "after": True}
    ]
    assert differences(host, names=[{"name": "old"}, {"name": "new"}], state="absent") == []
    assert differences(host, names=[{"name": "dkms"}], state="absent") == [
        {"path": "dkms", "before": "3.0, half-configured", "after": None}
    ]


def test_a_no_op_runs_no_command(host: Any) -> None:
    host.write("/var/lib/dpkg/status", stanza("runc", "1.1"))
    assert differences(host, names=[{"name": "runc", "version": "1.1"}], state="present", hold=False) == []
    assert host.ran == []


def test_installing_an_exact_version(host: Any, report: Any) -> None:
    def install(argv: Any) -> Result:
        host.write("/var/lib/dpkg/status", stanza("runc", "1.1"))
        return Result(0, "Unpacking runc (1.1) ...\nSetting up runc (1.1) ...\n")

    host.on("apt-cache", "policy", answer=policy("runc", "1.2", "1.1"))
    host.on(
        "apt-get", "-s", answer=Result(0, "Inst runc (1.1 Debian [amd64])\nConf runc (1.1 Debian [amd64])\n")
    )
    host.on("apt-get", "-y", answer=install)
    host.on("dpkg", "--set-selections", answer=OK)
    apply(host, report, names=[{"name": "runc", "version": "1.1"}], state="present", hold=True)
    assert host.ran[2] == [
        "apt-get",
        "-y",
        "-o",
        "Dpkg::Use-Pty=0",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
        "--no-install-recommends",
        "install",
        "--",
        "runc=1.1",
    ]
    assert host.environments[2] == {
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_MODE": "l",
        "NEEDRESTART_SUSPEND": "1",
        "UCF_FORCE_CONFFOLD": "1",
        "APT_LISTCHANGES_FRONTEND": "none",
    }
    assert host.options[2]["interrupt"] == "sigint_leader"
    assert host.ran[3] == ["dpkg", "--set-selections"]
    assert host.options[3]["stdin"] == "runc hold\n"
    assert "installing runc (1 of 1 packages)" in report.lines
    assert Path(host.state_dir, "holds").read_text() == "runc\n"


def test_a_version_nobody_offers_is_refused_after_one_refresh(host: Any, report: Any) -> None:
    host.on("apt-cache", "policy", answer=policy("runc", "1.2", "1.1"))
    host.on("apt-get", "update", answer=OK)
    with pytest.raises(StepFailed, match=r"runc in version 9 \(offered: 1\.2, 1\.1\)"):
        apply(host, report, names=[{"name": "runc", "version": "9"}], state="present")
    assert [argv[:2] for argv in host.ran] == [
        ["apt-cache", "policy"],
        ["apt-get", "update"],
        ["apt-cache", "policy"],
    ]


def test_a_broken_source_list_stops_before_any_installation(host: Any, report: Any) -> None:
    said = "E: Conflicting values set for option Signed-By regarding source http://x/ /: a.gpg != b.gpg\n"
    host.on("apt-cache", "policy", answer=Result(100, "", said))
    with pytest.raises(StepFailed, match="two source lists") as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    assert "remove all but one" in (caught.value.remedy or "")
    assert len(host.ran) == 1


@pytest.mark.parametrize(
    ("simulated", "words", "remedy"),
    [
        ("Remv docker-ce [24.0]\nInst runc (1.1 D [amd64])\n", "remove docker-ce 24.0", "[docker-ce]"),
        (
            "Inst libc6 [2.36] (2.37 D [amd64])\nInst runc (1.1 D [amd64])\n",
            "upgrade libc6 from 2.36 to 2.37",
            "[libc6]",
        ),
        ("Inst libc6 [2.36] (2.35 D [amd64])\n", "downgrade libc6 from 2.36 to 2.35", "[libc6]"),
        ("Inst runc [1.2] (1.1 D [amd64])\n", "downgrade runc from 1.2 to 1.1", "allow_downgrade"),
    ],
)
def test_a_transaction_that_does_more_is_refused(
    host: Any, report: Any, simulated: str, words: str, remedy: str
) -> None:
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, simulated))
    with pytest.raises(StepFailed, match=f"refused: .*{words}") as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    assert remedy in (caught.value.remedy or "")
    assert not any(argv[:2] == ["apt-get", "-y"] for argv in host.ran)


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("2.37", "; or bring them up to date first: apt-get install --only-upgrade perl-base libc6"),
        ("2.35", ""),
    ],
    ids=["only-upgrades", "a-downgrade"],
)
def test_where_others_need_only_be_up_to_date_the_remedy_says_how(
    host: Any, report: Any, version: str, command: str
) -> None:
    """Not every task takes also_allowed; the command helps with all of them."""
    simulated = f"Inst perl-base [5.1] (5.2 D [amd64])\nInst libc6 [2.36] ({version} D [amd64])\n"
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, simulated))
    with pytest.raises(StepFailed) as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    allowed = "if that may happen, say so in the task: also_allowed: [perl-base, libc6]"
    assert caught.value.remedy == allowed + command


def test_what_is_allowed_is_not_refused() -> None:
    transaction = Transaction(
        [("runc", "1.2", "1.1"), ("libnvidia-cfg1:amd64", "550", "580"), ("new", None, "1")],
        [("nvidia-driver-550", "550")],
    )
    request = Request(
        {"runc": "1.1"}, allow_downgrade=True, also_allowed=("libnvidia-*", "nvidia-driver-550")
    )
    assert refusals(transaction, request, dpkg_version.compare) == []


def test_removing_takes_nothing_else_along() -> None:
    request = Request({"libjq1": None}, remove=True)
    transaction = Transaction([], [("libjq1", "1.6"), ("jq", "1.6")])
    assert refusals(transaction, request, dpkg_version.compare) == [("jq", "remove jq 1.6")]


def test_a_hold_of_somebody_else_is_respected(host: Any, report: Any) -> None:
    host.write("/var/lib/dpkg/status", stanza("runc", "1.0", "hold ok installed"))
    with pytest.raises(StepFailed, match="on hold, and fleet did not set that hold") as caught:
        apply(host, report, names=[{"name": "runc", "version": "1.1"}], state="present", hold=True)
    assert "apt-mark unhold runc" in (caught.value.remedy or "")
    assert host.ran == []


def test_a_hold_of_fleet_is_changed_and_kept(host: Any, report: Any) -> None:
    def install(argv: Any) -> Result:
        host.write("/var/lib/dpkg/status", stanza("runc", "1.1", "hold ok installed"))
        return OK

    host.write("/state/holds", "runc\n")
    host.write("/var/lib/dpkg/status", stanza("runc", "1.0", "hold ok installed"))
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, "Inst runc [1.0] (1.1 D [amd64])\n"))
    host.on("apt-get", "-y", answer=install)
    apply(host, report, names=[{"name": "runc", "version": "1.1"}], state="present", hold=True)
    assert "--allow-change-held-packages" in host.ran[-1]


def test_a_package_may_have_a_hold_of_its_own_or_none(host: Any, report: Any) -> None:
    host.write(
        "/var/lib/dpkg/status",
        stanza("dkms", "3") + stanza("libcuda1", "580") + stanza("old", "1", "hold ok installed"),
    )
    names = [{"name": "dkms", "hold": None}, {"name": "libcuda1"}, {"name": "old", "hold": False}]
    assert differences(host, names=names, state="present", hold=True) == [
        {"path": "libcuda1 hold", "before": False, "after": True},
        {"path": "old hold", "before": True, "after": False},
    ]
    host.on("dpkg", "--set-selections", answer=OK)
    apply(host, report, names=names, state="present", hold=True)
    assert [each["stdin"] for each in host.options] == ["libcuda1 hold\n", "old install\n"]


@pytest.mark.parametrize(("owner", "changes"), [("libcuda-old", True), ("", False)], ids=["fleet", "another"])
def test_what_may_go_too_may_only_if_its_hold_is_of_fleet(
    host: Any, report: Any, owner: str, changes: bool
) -> None:
    def install(argv: Any) -> Result:
        host.write("/var/lib/dpkg/status", stanza("libcuda-new", "2"))
        return OK

    host.write("/state/holds", f"{owner}\n")
    host.write("/var/lib/dpkg/status", stanza("libcuda-old", "1", "hold ok installed"))
    host.on("apt-cache", "policy", answer=policy("libcuda-new", "2"))
    simulated = "Remv libcuda-old [1]\nInst libcuda-new (2 x [amd64])\nConf libcuda-new (2 x [amd64])\n"
    host.on("apt-get", "-s", answer=Result(0, simulated))
    host.on("apt-get", "-y", answer=install)
    wanted = {"names": [{"name": "libcuda-new", "version": "2"}], "also_allowed": ["libcuda-old"]}
    if changes:
        apply(host, report, state="present", **wanted)
        assert "--allow-change-held-packages" in host.ran[-1]
    else:
        with pytest.raises(StepFailed, match="the transaction would remove libcuda-old"):
            apply(host, report, state="present", **wanted)


def test_what_an_earlier_transaction_may_take_is_not_promised_to_be_removed(host: Any) -> None:
    host.write("/var/lib/dpkg/status", stanza("libcuda-old", "1"))
    wanted = {"names": [{"name": "libcuda-old"}], "state": "absent", "may_be_gone": True}
    found, package = differences(host, **wanted), load("package")
    assert package.outlook(wanted, found, Provides(packages=["libcuda-new"])) == "known_after_apply"
    assert package.outlook(wanted, found, Provides()) is None
    assert (
        package.outlook({**wanted, "may_be_gone": False}, found, Provides(packages=["libcuda-new"])) is None
    )


def test_freeing_forgets_the_hold(host: Any, report: Any) -> None:
    host.write("/state/holds", "jq\nrunc\n")
    host.write("/var/lib/dpkg/status", stanza("runc", "1.0", "hold ok installed"))
    host.on("dpkg", "--set-selections", answer=OK)
    apply(host, report, names=[{"name": "runc"}], state="present", hold=False)
    assert host.options[-1]["stdin"] == "runc install\n"
    assert Path(host.state_dir, "holds").read_text() == "jq\n"


def test_an_interrupted_installation_is_finished_first(host: Any, report: Any) -> None:
    def configure(argv: Any) -> Result:
        host.write("/var/lib/dpkg/status", stanza("dkms", "3.0"))
        return OK

    host.write("/var/lib/dpkg/status", stanza("dkms", "3.0", "install ok half-configured"))
    host.on("dpkg", "--force-confdef", "--force-confold", "--configure", "-a", answer=configure)
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, "Inst runc (1.1 D [amd64])\n"))
    host.on("apt-get", "-y", answer=OK)
    apply(host, report, names=[{"name": "runc"}], state="present")
    assert [argv[0] for argv in host.ran] == ["dpkg", "apt-cache", "apt-get", "apt-get"]
    assert any("was interrupted (dkms)" in text for text in report.texts)


def test_a_stranger_that_stays_broken_stops_the_step(host: Any, report: Any) -> None:
    host.write("/var/lib/dpkg/status", stanza("nvidia-dkms", "580", "install ok half-configured"))
    host.on("dpkg", answer=Result(1, "", "dkms: build failed"))
    with pytest.raises(StepFailed, match="does not get these packages configured: nvidia-dkms"):
        apply(host, report, names=[{"name": "runc"}], state="present")


def test_what_was_cut_off_while_unpacking_is_installed_again(host: Any, report: Any) -> None:
    def mend(argv: Any) -> Result:
        if "--reinstall" in argv:
            host.write("/var/lib/dpkg/status", stanza("perl", "5.40"))
        return OK

    def simulate(argv: Any) -> Result:
        name = "perl [5.40] (5.40" if "--reinstall" in argv else "runc (1.1"
        return Result(0, f"Inst {name} D [amd64])\n")

    host.write("/var/lib/dpkg/status", stanza("perl", "5.40", "install reinstreq half-installed"))
    host.on("dpkg", answer=Result(1, "", "perl is in a very bad inconsistent state"))
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=simulate)
    host.on("apt-get", "-y", answer=mend)
    apply(host, report, names=[{"name": "runc"}], state="present")
    assert [argv[-1] for argv in host.ran if argv[:2] == ["apt-get", "-y"]] == ["perl", "runc"]


def test_a_repair_that_would_change_more_is_not_done(host: Any, report: Any) -> None:
    host.write("/var/lib/dpkg/status", stanza("perl", "5.40", "install reinstreq half-installed"))
    host.on("dpkg", answer=Result(1))
    host.on("apt-get", "-s", answer=Result(0, "Remv git [2]\nInst perl [5.40] (5.40 D [amd64])\n"))
    with pytest.raises(StepFailed, match="does not get these packages configured: perl"):
        apply(host, report, names=[{"name": "runc"}], state="present")


def test_after_a_bad_end_dpkg_is_put_in_order(host: Any, report: Any) -> None:
    def breaks(argv: Any) -> Result:
        host.write("/var/lib/dpkg/status", stanza("runc", "1.1", "install ok unpacked"))
        return Result(100, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)\n")

    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, "Inst runc (1.1 D [amd64])\n"))
    host.on("apt-get", "-y", answer=breaks)
    host.on("dpkg", answer=OK)
    with pytest.raises(StepFailed, match="Sub-process /usr/bin/dpkg") as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    assert host.ran[-1][-2:] == ["--configure", "-a"]
    assert host.options[-1]["cancellable"] is False
    assert caught.value.exit_code == 100


BUILD_LOG = "/var/lib/dkms/nvidia/570.86.15/build/make.log"
BUILD_FAILED = f"""\
Error! Bad return status for module build on kernel: 6.8.0-1040-aws (x86_64)
Consult {BUILD_LOG} for more information.
dpkg: error processing package nvidia-dkms-570-open (--configure):
 installed nvidia-dkms-570-open package post-installation script subprocess returned error exit status 10
Errors were encountered while processing:
 nvidia-dkms-570-open
 nvidia-headless-570-open
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
OTHER_COMPILER = """\
warning: the compiler differs from the one used to build the kernel
  The kernel was built by: x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0
  You are using:           cc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'
"""
DRIVER = {"names": [{"name": "nvidia-dkms-570-open"}], "state": "present"}


def module_does_not_build(host: Any) -> None:
    def breaks(argv: Any) -> Result:
        host.write("/var/lib/dpkg/status", stanza("nvidia-dkms-570-open", "1", "install ok half-configured"))
        return Result(100, "", BUILD_FAILED)

    host.write(BUILD_LOG, OTHER_COMPILER)
    host.on("apt-cache", "policy", answer=policy("nvidia-dkms-570-open", "1"))
    host.on("apt-get", "-s", answer=Result(0, "Inst nvidia-dkms-570-open (1 D [amd64])\n"))
    host.on("apt-get", "-y", answer=breaks)


def test_a_module_that_does_not_build_is_named_with_its_cause_and_not_built_again(
    host: Any, report: Any
) -> None:
    module_does_not_build(host)
    with pytest.raises(
        StepFailed, match=r"nvidia 570\.86\.15 does not build for kernel 6\.8\.0-1040-aws"
    ) as caught:
        apply(host, report, **DRIVER)
    assert "gcc-12 needed" in caught.value.what
    assert "cc 11.4.0" in caught.value.what
    assert "half installed: nvidia-dkms-570-open, nvidia-headless-570-open" in caught.value.what
    assert "apt-get install gcc-12" in (caught.value.remedy or "")
    assert [argv[0] for argv in host.ran] == ["apt-cache", "apt-get", "apt-get"], (
        "configuring would build again"
    )


def test_after_a_module_that_does_not_build_the_host_is_not_rebooted(host: Any, tmp_path: Path) -> None:
    module_does_not_build(host)
    paths = Paths(str(tmp_path / "fleet"), str(tmp_path / "run"))
    journal = Journal(paths.journal("run-1"), clock=lambda: 0.0, clean=lambda fields: fields)
    steps = [
        {"id": "driver", "resource": "package", "args": DRIVER},
        {"id": "reboot", "resource": "reboot", "args": {}},
    ]
    status, reason = Segment(
        {"format": 1, "run": "run-1", "host": "h", "segment": 0, "last": True, "steps": steps},
        Work(0, "hash"),
        History(),
        journal=journal,
        host=host,
        scrubber=Scrubber(),
        load=load,
        pending=Pending(paths),
        boot_id="b",
        alarm=False,
    ).run()
    assert status == "failed"
    assert "does not build" in str(reason)
    assert "reboot" not in [record["kind"] for record in read_journal(paths.journal("run-1"))]


HELD = """\
The following held packages will be changed:
  libexample-tools libexample1
E: Held packages were changed and -y was used without --allow-change-held-packages.
"""
DOWNGRADED = """\
The following packages will be DOWNGRADED:
  example-toolkit
E: Packages were downgraded and -y was used without --allow-downgrades.
"""
UNMET = """\
The following packages have unmet dependencies:
 cuda-drivers : Depends: nvidia-driver-550 (>= 550.54.14) but it is not going to be installed
E: Unable to correct problems, you have held broken packages.
"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (HELD, "on hold: libexample-tools, libexample1"),
        (DOWNGRADED, "would downgrade example-toolkit"),
        (UNMET, "unmet dependencies: cuda-drivers: Depends: nvidia-driver-550"),
    ],
)
def test_what_apt_refuses_is_not_tried_again(host: Any, report: Any, said: str, words: str) -> None:
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(100, said))
    with pytest.raises(StepFailed, match=words) as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    assert ("hold" in str(caught.value)) is (said is HELD)
    assert [argv[1] for argv in host.ran] == ["policy", "-s"]
    assert not any("--allow" in word for argv in host.ran for word in argv)


def test_an_interruption_that_apt_reports_is_repaired_once_at_most(host: Any, report: Any) -> None:
    said = (
        "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem. \n"
    )
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(100, "", said))
    with pytest.raises(StepFailed, match="was interrupted") as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    assert caught.value.remedy == "dpkg --configure -a"
    assert [argv[1] for argv in host.ran] == ["policy", "-s"]


UNKNOWN_KEY = """\
W: GPG error: https://x/cuda  InRelease: The following signatures couldn't be verified because the public \
key is not available: NO_PUBKEY 0123456789ABCDEF
E: The repository 'https://x/cuda  InRelease' is not signed.
"""
SYNC = """\
Err:4 https://x/cuda  Packages
  File has unexpected size (1797735 != 1778230). Mirror sync in progress? [IP: 192.0.2.80 443]
E: Some index files failed to download. They have been ignored, or old ones used instead.
"""


@pytest.mark.parametrize(
    ("exit_code", "said", "words", "refreshes"),
    [
        (100, UNKNOWN_KEY, "key 0123456789ABCDEF", 1),
        (0, SYNC, "being changed", 3),
        (100, SYNC, "being changed", 3),
    ],
)
def test_nothing_is_installed_from_lists_that_could_not_be_refreshed(
    host: Any, report: Any, monkeypatch: Any, exit_code: int, said: str, words: str, refreshes: int
) -> None:
    clock = Clock()
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "update", answer=Result(exit_code, said))
    manager = Apt(host, sleep=clock.sleep, clock=clock)
    with pytest.raises(StepFailed, match=words):
        transact(manager, Request({"runc": "1.2"}), report)
    assert [argv[1] for argv in host.ran] == ["policy"] + ["update"] * refreshes
    assert not any("unauthenticated" in word or "trusted" in word for argv in host.ran for word in argv)


def test_two_lists_with_different_keys_are_named(host: Any, report: Any) -> None:
    host.write(
        "/etc/apt/sources.list.d/cuda.list", "deb [signed-by=/usr/share/keyrings/a.gpg] https://x/cuda/ /\n"
    )
    host.write("/etc/apt/sources.list.d/old.list", "deb https://x/cuda/ /\n")
    said = (
        "E: Conflicting values set for option Signed-By regarding source https://x/cuda/ /: "
        "/usr/share/keyrings/a.gpg != \nE: The list of sources could not be read.\n"
    )
    host.on("apt-cache", "policy", answer=Result(100, "", said))
    with pytest.raises(StepFailed, match="apt is unusable") as caught:
        apply(host, report, names=[{"name": "runc"}], state="present")
    assert "/etc/apt/sources.list.d/cuda.list" in caught.value.what
    assert "/etc/apt/sources.list.d/old.list" in caught.value.what
    assert len(host.ran) == 1


def test_a_cancelled_installation_is_cancelled_not_failed(host: Any, report: Any) -> None:
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, "Inst runc (1.1 D [amd64])\n"))
    host.on("apt-get", "-y", answer=Result(0, cancelled=True))
    with pytest.raises(StepCancelled):
        apply(host, report, names=[{"name": "runc"}], state="present")


def test_files_gone_from_the_server_are_answered_by_fresh_lists_once(host: Any, report: Any) -> None:
    answers = [Result(100, "", "E: Failed to fetch http://x/runc_1.1.deb  404  Not Found [IP: 1]\n"), OK]
    host.on("apt-cache", "policy", answer=policy("runc", "1.1"))
    host.on("apt-get", "-s", answer=Result(0, "Inst runc (1.1 D [amd64])\n"))
    host.on("apt-get", "-y", answer=lambda argv: answers.pop(0))
    host.on("apt-get", "update", answer=OK)
    apply(host, report, names=[{"name": "runc"}], state="present")
    assert [argv[1] for argv in host.ran] == ["policy", "-s", "-y", "update", "-s", "-y"]


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


HOLDER = {"pid": 2448, "command": "unattended-upgrade", "file": "/var/lib/dpkg/lock-frontend"}


def test_waiting_for_the_lock_ends_by_naming_the_holder(host: Any, report: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(package_facts, "lock_holder", lambda host: HOLDER)
    clock = Clock()
    with pytest.raises(StepFailed, match=r"held by unattended-upgrade \(pid 2448\) after 60 s") as caught:
        Apt(host, sleep=clock.sleep, clock=clock).wait_for_lock(60, report)
    assert "ps -fp 2448" in (caught.value.remedy or "")
    assert report.lines[0].startswith("waiting for unattended-upgrade (pid 2448)")
    assert len(report.lines) == 4  # every 15 s, not every look


def test_waiting_for_the_lock_ends_when_it_is_free(host: Any, report: Any, monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(package_facts, "lock_holder", lambda host: HOLDER if clock.now < 3 else None)
    Apt(host, sleep=clock.sleep, clock=clock).wait_for_lock(60, report)
    assert clock.now == 3


def test_a_mirror_in_the_middle_of_a_change_is_tried_again(host: Any, report: Any) -> None:
    clock = Clock()
    said = "Err:4 http://x  Packages\n  File has unexpected size (1 != 2). Mirror sync in progress?\n"
    answers = [Result(0, said), Result(0, "Reading package lists...\n")]
    host.on("apt-get", "update", answer=lambda argv: answers.pop(0))
    Apt(host, sleep=clock.sleep, clock=clock).refresh([], report)
    assert len(host.ran) == 2
    host.on("apt-get", "update", answer=Result(0, said))
    with pytest.raises(StepFailed, match="being changed"):
        Apt(host, sleep=clock.sleep, clock=clock).refresh([], report)


def test_provides_an_engine() -> None:
    package = load("package")
    provided = package.provides({"names": [{"name": "docker.io", "version": "26"}], "state": "present"})
    assert provided.engine
    assert provided.contains("packages", "docker.io")
    assert provided.contains("units", "docker.service")
    assert not package.provides({"names": [{"name": "docker.io"}], "state": "absent"})


# --- dnf


def test_dnf_reads_rpm_and_the_version_locks(host: Any) -> None:
    os.unlink(host.path("/usr/bin/apt-get"))
    os.unlink(host.path("/var/lib/dpkg/status"))
    host.write("/usr/bin/dnf", "").chmod(0o755)
    host.write("/etc/dnf/plugins/versionlock.list", "# x\ndocker-ce-3:26.1.4-1.el9.*\n")
    said = "docker-ce\t3\t26.1.4-1.el9\npackage nosuch is not installed\njq\t0\t1.6-15.el9\n"
    host.on("rpm", "-q", answer=Result(1, said))
    names = [{"name": "docker-ce", "version": "3:26.1.4-1.el9"}, {"name": "nosuch"}, {"name": "jq"}]
    assert differences(host, names=names, state="present", hold=True) == [
        {"path": "nosuch", "before": None, "after": "installed"},
        {"path": "nosuch hold", "before": False, "after": True},
        {"path": "jq hold", "before": False, "after": True},
    ]
    assert len(host.ran) == 1


TABLE = """\
Dependencies resolved.
================================================================================
 Package          Architecture  Version              Repository        Size
================================================================================
Installing:
 docker-ce        x86_64        3:26.1.4-1.el9       docker-ce-stable  27 M
     replacing  podman-docker.noarch 4:4.9-1.el9
Installing dependencies:
 containerd.io    x86_64        1.6.33-3.1.el9       docker-ce-stable  34 M
Upgrading:
 selinux-policy   noarch        38.1.35-2.el9        baseos            44 k
Removing:
 runc             x86_64        4:1.1.12-2.el9       @appstream        12 M

Transaction Summary
================================================================================
Install  2 Packages
"""


def test_a_dnf_transaction_is_judged_like_any_other(host: Any, report: Any) -> None:
    host.on("dnf", "--assumeno", answer=Result(1, TABLE + "Operation aborted.\n"))
    host.on("rpm", "-q", answer=Result(0, "selinux-policy\t0\t38.1.11-1.el9\n"))
    manager = dnf.Dnf(host)
    request = Request({"docker-ce": None})
    assert refusals(manager.simulate(request), request, manager.compare) == [
        ("runc", "remove runc 4:1.1.12-2.el9"),
        ("selinux-policy", "upgrade selinux-policy from 38.1.11-1.el9 to 38.1.35-2.el9"),
    ]


def test_dnf_commands(host: Any) -> None:
    manager = dnf.Dnf(host)
    assert manager.command(Request({"docker-ce": "26.1.4-1.el9", "jq": None})) == [
        "--setopt=install_weak_deps=False",
        "install",
        "docker-ce-26.1.4-1.el9",
        "jq",
    ]
    assert manager.command(Request({"jq": None}, remove=True))[-3:] == ["--noautoremove", "remove", "jq"]
