"""The simulated packages and the repositories they lie in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.lab.simulation import deb, docker_repository, native, packages, site
from fleet.lab.simulation.deb import Entry, Package
from fleet.lab.simulation.repository import Key, publish_dists, resign


def output(*argv: object) -> str:
    return subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def www(tmp_path_factory: pytest.TempPathFactory, native_cache: Path) -> Path:
    """A small site: two drivers for one Debian and one Ubuntu."""
    if shutil.which("gpg") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("needs gpg and dpkg-deb")
    folder = tmp_path_factory.mktemp("site")
    arguments = {"distributions": ("debian12", "ubuntu2204"), "drivers": ("570.211.01", "580.159.03")}
    site.build(folder / "www", folder / "keys", native_cache, lambda _line: None, **arguments)
    return folder / "www"


def test_dpkg_reads_what_is_built(tmp_path: Path) -> None:
    package = Package(
        "thing", "1:2.0-1", "a thing", {"Depends": ("other (= 1)",)},
        {"usr/bin/thing": Entry(b"#!/bin/sh\n", 0o755), "usr/lib/thing.so": Entry(link="thing.so.1")},
        {"postinst": "true\n"},
    )  # fmt: skip
    path = tmp_path / package.file_name
    path.write_bytes(deb.build(package))
    assert path.name == "thing_2.0-1_amd64.deb"
    assert output("dpkg-deb", "-f", path, "Version", "Depends") == "Version: 1:2.0-1\nDepends: other (= 1)\n"
    listed = output("dpkg-deb", "-c", path)
    assert "-rwxr-xr-x" in listed
    assert "./usr/lib/thing.so -> thing.so.1" in listed
    assert deb.build(package) == path.read_bytes()


def names(www: Path, distribution: str) -> set[str]:
    index = (www / "compute/cuda/repos" / distribution / "x86_64/Packages").read_text()
    return {line.partition(": ")[2] for line in index.splitlines() if line.startswith("Package: ")}


def test_debian_has_debians_names_and_ubuntu_ubuntus(www: Path) -> None:
    debian, ubuntu = names(www, "debian12"), names(www, "ubuntu2204")
    both = {"nvidia-open-580", "cuda-drivers-570", "nvidia-fabricmanager-570", "nvidia-fabricmanager"}
    both |= {"nvidia-driver-pinning-580", "cuda-keyring", "libnvidia-nscq-570", "libnvidia-nscq"}
    assert both <= debian & ubuntu
    assert {"nvidia-kernel-open-dkms", "nvidia-driver-cuda", "libnvidia-ml1"} <= debian - ubuntu
    assert {"nvidia-driver-570-open", "libnvidia-compute-580", "nvidia-dkms-580"} <= ubuntu - debian


def test_the_branch_left_ubuntus_names_with_590(native_cache: Path) -> None:
    found = {
        p.name
        for p in packages.driver_packages("ubuntu2404", "595.71.05", native.build("595.71.05", native_cache))
    }
    assert {"nvidia-driver-open", "libnvidia-compute", "nvidia-open-595"} <= found
    assert "libnvidia-compute-595" not in found


def test_every_dependency_is_served_or_debians(www: Path) -> None:
    """Each dependency on one of our own exact versions is met by that version in the same repository."""
    for distribution in ("debian12", "ubuntu2204"):
        text = (www / "compute/cuda/repos" / distribution / "x86_64/Packages").read_text()
        provided, wanted = set(), set()
        for paragraph in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
            provided.add(f"{fields['Package']} (= {fields['Version']})")
            provided |= set(fields.get("Provides", "").split(", "))
            wanted |= set(filter(None, fields.get("Depends", "").split(", ")))
        assert wanted - provided == {"dkms"}


def test_the_signature_is_good_until_the_key_is_rotated(www: Path, tmp_path: Path) -> None:
    repository = www / "compute/cuda/repos/debian12/x86_64"
    shutil.copytree(repository, tmp_path / "copy")
    ring = tmp_path / "ring.gpg"
    ring.write_bytes(Key(www.parent / "keys/cuda", "cudatools").binary())
    verify = ["gpgv", "--keyring", str(ring), str(tmp_path / "copy/InRelease")]
    assert subprocess.run(verify, capture_output=True, timeout=60, check=False).returncode == 0
    other = Key.make(tmp_path / "other", "somebody else")
    assert len(other.fingerprint) == 40
    resign(tmp_path / "copy/Release", other)
    assert subprocess.run(verify, capture_output=True, timeout=60, check=False).returncode != 0


def test_a_key_is_made_and_signs_in_a_folder_of_a_long_name(tmp_path: Path) -> None:
    """The agent of gpg listens on a socket in its home, and a socket's path may have 107 bytes."""
    home = tmp_path / ("long-" * 20) / "keys" / "cuda"
    key = Key.make(home, "cudatools")
    (tmp_path / "ring.gpg").write_bytes(key.binary())
    (tmp_path / "signed").write_bytes(key.clear_sign("Origin: lab\n"))
    verify = ["gpgv", "--keyring", str(tmp_path / "ring.gpg"), str(tmp_path / "signed")]
    assert subprocess.run(verify, capture_output=True, timeout=60, check=False).returncode == 0


def test_no_agent_of_gpg_is_left_behind(tmp_path: Path) -> None:
    Key.make(tmp_path / "home", "cudatools").clear_sign("Origin: lab\n")
    mine = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, str(tmp_path))]
    assert mine == []
    assert not list((tmp_path / "home").glob("S.gpg-agent*"))


def _has(path: Path, word: str) -> bool:
    try:
        return word.encode() in path.read_bytes()
    except OSError:
        return False


def test_a_withdrawn_package_is_gone_from_a_valid_index(www: Path, tmp_path: Path) -> None:
    shutil.copytree(www / "compute/cuda/repos/debian12/x86_64", tmp_path / "copy")
    site.withdraw(tmp_path / "copy", Key(www.parent / "keys/cuda", "cudatools"), "libcuda1")
    index = (tmp_path / "copy/Packages").read_text()
    assert "Package: libcuda1\n" not in index
    assert "Package: libnvidia-ml1\n" in index


def test_a_second_build_makes_nothing_anew(www: Path, native_cache: Path) -> None:
    index = www / "kernels/Packages"
    written = index.stat().st_mtime_ns
    arguments = {"distributions": ("debian12", "ubuntu2204"), "drivers": ("570.211.01", "580.159.03")}
    site.build(www, www.parent / "keys", native_cache, lambda _line: None, **arguments)
    assert index.stat().st_mtime_ns == written


def test_the_layout_of_docker_has_a_suite(tmp_path: Path) -> None:
    key = Key.make(tmp_path / "key", "docker")
    publish_dists(
        tmp_path / "debian", "bookworm", [Package("docker-ce", "5:28.5.2-1", "engine")], key, origin="Docker"
    )
    release = (tmp_path / "debian/dists/bookworm/Release").read_text()
    assert "stable/binary-amd64/Packages" in release
    assert "Codename: bookworm" in release
    assert (tmp_path / "debian/dists/bookworm/pool/stable/amd64/docker-ce_28.5.2-1_amd64.deb").exists()


def test_what_is_built_is_unpacked_the_same() -> None:
    files = {"usr/bin/thing": Entry(b"#!/bin/sh\n", 0o755), "usr/lib/thing.so": Entry(link="thing.so.1")}
    assert deb.unpack(deb.build(Package("thing", "1", "a thing", files=files))) == files
    with pytest.raises(ValueError, match="not a Debian package"):
        deb.unpack(b"!<arch>\n")


def test_another_version_of_the_engine_is_as_long_as_its_own() -> None:
    for genuine, other in (("26.1.5", "26.1.4"), ("20.10.20", "20.10.21")):
        binary = {"usr/sbin/dockerd": Entry(b"\0abc" + genuine.encode() + b"+dfsg1xyz")}
        assert docker_repository.versions(binary) == (genuine, other)


def test_the_newest_kernel_is_one_of_the_labs() -> None:
    """The metapackages are newer than any that the distributions have for these kernels."""
    versions = {p.name: p.version for p in packages.kernel_metapackages("debian12")}
    assert versions == {"linux-image-amd64": "6.1.991-1", "linux-headers-amd64": "6.1.991-1"}
    assert {p.version for p in packages.kernel_metapackages("debian13")} == {"6.12.990-1", "6.12.991-1"}
    assert {p.version for p in packages.kernel_metapackages("ubuntu2204")} == {
        "5.15.0-170.170",
        "5.15.0-171.171",
    }


def test_an_old_branch_is_where_it_was_and_has_no_open_modules(native_cache: Path) -> None:
    everything = (*packages.DRIVERS, *packages.OLD_DRIVERS)
    assert "470.256.02" in packages.drivers_of("debian11", everything)
    assert "470.256.02" not in packages.drivers_of("debian12", everything)
    made = {
        one.name
        for one in packages.driver_packages(
            "debian11", "470.256.02", native.build("470.256.02", native_cache)
        )
    }
    assert "cuda-drivers-470" in made
    assert not {name for name in made if "open" in name}


def test_what_is_installed_by_hand_can_be_open_and_have_another_fabric_manager() -> None:
    words = packages.installed_by_hand(
        "debian12", "550.163.01", switches=True, flavour="open", manager="535.183.06"
    )
    assert "nvidia-kernel-open-dkms=550.163.01-1" in words
    assert words[-1] == "nvidia-fabricmanager-535=535.183.06-1"
    assert "nvidia-dkms-570-open=570.211.01-0ubuntu1" in packages.installed_by_hand(
        "ubuntu2204", "570.211.01", switches=False, flavour="open"
    )
