"""What DKMS built: from its tree, and from what the command prints in the shapes of its versions."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.facts import dkms

TREE = "/var/lib/dkms"
KERNEL = "6.1.0-28-amd64"

TWO = """\
nvidia, 470.256.02, 5.10.0-30-amd64, x86_64: installed
nvidia, 470.256.02, 5.10.0-31-amd64, x86_64: built
nvidia, 470.82.01, 5.10.9-200.el8.x86_64, x86_64: installed (original_module exists)
nvidia, 535.309.01: added
"""
THREE = """\
nvidia/570.211.01, 6.8.0-60-generic, x86_64: installed
nvidia/570.211.01, 6.8.0-62-generic, x86_64: installed (WARNING! Diff between built and installed module!)
nvidia/580.159.03: added
nvidia-current/535.309.01, 6.1.0-28, x86_64: installed (original_module exists) (WARNING! Missing some built modules!)
bbswitch/0.8, 6.1.0-28-amd64, x86_64: installed
nvidia/590.48.01, 6.8.0-62-generic, aarch64: broken
"""


def rows(builds: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    keys = ("module", "version", "kernel", "architecture", "state", "remark")
    assert all(set(build) == set(keys) for build in builds)
    return [tuple(build[key] for key in keys) for build in builds]


def test_the_listing_of_version_two() -> None:
    builds, errors = dkms.parse_status(TWO)
    assert errors == []
    assert rows(builds) == [
        ("nvidia", "470.256.02", "5.10.0-30-amd64", "x86_64", "installed", None),
        ("nvidia", "470.256.02", "5.10.0-31-amd64", "x86_64", "built", None),
        ("nvidia", "470.82.01", "5.10.9-200.el8.x86_64", "x86_64", "installed", "original_module exists"),
        ("nvidia", "535.309.01", None, None, "added", None),
    ]


def test_the_listing_of_version_three() -> None:
    builds, errors = dkms.parse_status(THREE)
    assert errors == []
    assert rows(builds)[1:4] == [
        ("nvidia", "570.211.01", "6.8.0-62-generic", "x86_64", "installed", dkms.DIFFERS),
        ("nvidia", "580.159.03", None, None, "added", None),
        (
            "nvidia-current",
            "535.309.01",
            "6.1.0-28",
            "x86_64",
            "installed",
            f"original_module exists, {dkms.MISSING}",
        ),
    ]
    assert rows(builds)[5] == ("nvidia", "590.48.01", "6.8.0-62-generic", "aarch64", "broken", None)


def test_a_stale_tree_is_an_error_that_names_it_and_hides_nothing() -> None:
    text = (
        "nvidia/580.159.03: added\n"
        "Error! Could not locate dkms.conf file.\n"
        f"File: {TREE}/nvidia/418.226.00/source/dkms.conf does not exist.\n"
        "bbswitch/0.8: added\n"
    )
    builds, errors = dkms.parse_status(text)
    assert [build["module"] for build in builds] == ["nvidia", "bbswitch"]
    assert errors == [
        f"Could not locate dkms.conf file. File: {TREE}/nvidia/418.226.00/source/dkms.conf does not exist."
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia", True),
        ("nvidia-current", True),
        ("nvidia-current-open", True),
        ("nvidia-open", True),
        ("nvidia-tesla-470", True),
        ("nvidia-legacy-390xx", True),
        ("nvidia-340", True),
        ("nvidia-fs", False),
        ("nvidia-peermem", False),
        ("bbswitch", False),
    ],
)
def test_names_that_mean_the_driver(name: str, expected: bool) -> None:
    assert dkms.is_driver(name) is expected


def source(host: Any, module: str, version: str) -> None:
    host.write(f"/usr/src/{module}-{version}/dkms.conf", f'PACKAGE_NAME="{module}"\n')
    host.link(f"{TREE}/{module}/{version}/source", f"/usr/src/{module}-{version}")


def built(host: Any, module: str, version: str, kernel: str = KERNEL, *, content: str = "module") -> None:
    source(host, module, version)
    host.write(f"{TREE}/{module}/{version}/{kernel}/x86_64/module/{module}.ko", content)


def installed(host: Any, module: str, version: str, kernel: str = KERNEL, *, content: str = "module") -> None:
    built(host, module, version, kernel)
    host.write(f"/lib/modules/{kernel}/updates/dkms/{module}.ko", content)
    host.link(f"{TREE}/{module}/kernel-{kernel}-x86_64", f"{version}/{kernel}/x86_64")


def states(host: Any) -> list[tuple[Any, ...]]:
    builds, errors = dkms.read(host)
    assert errors == []
    return rows(builds)


def test_no_tree_no_builds(host: Any) -> None:
    assert dkms.read(host) == ([], [])


def test_the_tree_tells_added_built_and_installed(host: Any) -> None:
    source(host, "nvidia", "590.48.01")
    installed(host, "nvidia", "580.159.03")
    built(host, "nvidia", "580.159.03", "6.1.0-30-amd64")
    built(host, "nvidia", "570.211.01")  # the link says that another version is installed
    assert states(host) == [
        ("nvidia", "570.211.01", KERNEL, "x86_64", "built", None),
        ("nvidia", "580.159.03", KERNEL, "x86_64", "installed", None),
        ("nvidia", "580.159.03", "6.1.0-30-amd64", "x86_64", "built", None),
        ("nvidia", "590.48.01", None, None, "added", None),
    ]


def test_a_failed_build_leaves_its_log_and_no_build(host: Any) -> None:
    source(host, "nvidia", "580.159.03")
    host.write(f"{TREE}/nvidia/580.159.03/build/make.log", "make: *** Error 2\n")
    assert states(host) == [("nvidia", "580.159.03", None, None, "added", None)]


@pytest.mark.parametrize(
    ("content", "remark"), [("module", None), ("another one", dkms.DIFFERS), (None, dkms.MISSING)]
)
def test_an_installed_module_that_is_not_the_built_one_is_remarked(
    host: Any, content: str | None, remark: str | None
) -> None:
    installed(host, "nvidia", "580.159.03", content=content or "")
    if content is None:
        host.remove(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
    assert states(host) == [("nvidia", "580.159.03", KERNEL, "x86_64", "installed", remark)]


def test_a_replaced_module_of_the_kernel_is_remarked(host: Any) -> None:
    installed(host, "nvidia", "580.159.03")
    host.write(f"{TREE}/nvidia/original_module/{KERNEL}/x86_64/nvidia.ko", "old")
    assert states(host)[0][5] == dkms.ORIGINAL


def test_a_tree_whose_source_is_gone_is_broken_and_hides_nothing(host: Any) -> None:
    host.link(f"{TREE}/nvidia/418.226.00/source", "/usr/src/nvidia-418.226.00")
    installed(host, "nvidia", "580.159.03")
    builds, errors = dkms.read(host)
    assert rows(builds) == [
        ("nvidia", "418.226.00", None, None, "broken", None),
        ("nvidia", "580.159.03", KERNEL, "x86_64", "installed", None),
    ]
    assert errors == [
        f"Could not locate dkms.conf file. File: {TREE}/nvidia/418.226.00/source/dkms.conf does not exist."
    ]
