"""The state directory: identity that is made once and readable by its owner only."""

from __future__ import annotations

import stat
from pathlib import Path

from cryptography import x509

from fleet.lab.state import State


def test_keys_passwords_and_certificates_are_made_once(tmp_path: Path) -> None:
    def everything() -> object:
        state = State(tmp_path / "lab")
        return (
            state.token(),
            state.password("registry_password"),
            state.public_key(),
            state.host_keys("gpu01", "172.28.0.11"),
            state.certificates(),
        )

    assert everything() == everything()


def test_private_files_are_their_owners_alone(tmp_path: Path) -> None:
    state = State(tmp_path / "lab")
    state.public_key()
    state.password("registry_password")
    state.certificates()
    state.host_keys("gpu01", "172.28.0.11")
    assert stat.S_IMODE(state.directory.stat().st_mode) == 0o700
    private = ["id_ed25519", "registry_password", "registry.key", "hosts/gpu01/ssh_host_ecdsa_key"]
    assert [stat.S_IMODE((state.directory / name).stat().st_mode) for name in private] == [0o600] * 4


def test_known_hosts_names_every_host_by_its_address(tmp_path: Path) -> None:
    state = State(tmp_path / "lab")
    state.host_keys("gpu01", "172.28.0.11")
    state.host_keys("gpu02", "172.28.0.12")
    state.write_known_hosts()
    lines = [line.split()[:2] for line in (state.directory / "known_hosts").read_text().splitlines()]
    assert lines == [
        ["172.28.0.11", "ecdsa-sha2-nistp256"],
        ["172.28.0.11", "ssh-ed25519"],
        ["172.28.0.12", "ecdsa-sha2-nistp256"],
        ["172.28.0.12", "ssh-ed25519"],
    ]
    state.forget_host("gpu01")
    state.write_known_hosts()
    assert "172.28.0.11" not in (state.directory / "known_hosts").read_text()


def test_the_registrys_certificate_is_good_for_its_name_under_the_labs_authority(tmp_path: Path) -> None:
    made = State(tmp_path / "lab").certificates()
    authority = x509.load_pem_x509_certificate(made["ca.crt"].encode())
    server = x509.load_pem_x509_certificate(made["registry.crt"].encode())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "registry.lab" in names.get_values_for_type(x509.DNSName)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_forgetting_leaves_nothing(tmp_path: Path) -> None:
    state = State(tmp_path / "states" / "lab")
    with state.locked():
        state.public_key()
        state.remove()
    assert list(tmp_path.iterdir()) == []
