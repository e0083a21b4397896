"""The digest is SHA-256, with the built-in module and without it."""

from __future__ import annotations

import pytest

from fleet.agent import digest

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1


def test_with_the_built_in_module_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest.sha256(b"abc").hex() == ABC

    def missing(data: bytes) -> bytes:
        raise ImportError("no _sha256")

    monkeypatch.setattr(digest, "_builtin_sha256", missing)
    assert digest.sha256(b"abc").hex() == ABC
