"""Module files tell version, licence and signer without a process, and without being read whole."""

from __future__ import annotations

import io
import lzma
import struct
from typing import Any

import pytest

from fleet.agent.facts import modinfo
from fleet.agent.process import Result
from fleet.agent.resources.base import StepFailed

from .elf import COMMON_NAME, module

FIELDS = {"version": "580.159.03", "license": "Dual MIT/GPL", "alias": "pci:v000010DE*"}


class CountedStream(io.BytesIO):
    """Counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def no_process(*words: object, **named: object) -> None:
    pytest.fail(f"started {words}")


def test_a_large_module_is_read_at_its_section_and_its_end_only() -> None:
    stream = CountedStream(module(FIELDS, gap=1 << 22, signer="Lab key"))
    assert modinfo.read(stream) == {**FIELDS, "signer": "Lab key"}
    assert stream.taken < 1000


def test_an_unsigned_module_has_no_signer() -> None:
    assert "signer" not in modinfo.read(io.BytesIO(module(FIELDS)))


def test_a_signature_without_a_name_is_still_a_signature() -> None:
    assert modinfo.read(io.BytesIO(module(FIELDS, signer="")))["signer"] == modinfo.UNNAMED_SIGNER


def test_common_names_are_read_in_the_encodings_of_certificates() -> None:
    wide = "Schlüssel".encode("utf-16-be")
    assert modinfo.common_name(COMMON_NAME + b"\x1e" + bytes([len(wide)]) + wide) == "Schlüssel"
    assert modinfo.common_name(COMMON_NAME + b"\x13\x81\x80" + b"n" * 128 + b"rest") == "n" * 128
    assert modinfo.common_name(b"nothing of the kind") is None


def test_more_sections_than_sixteen_bits_can_count() -> None:
    data = bytearray(module(FIELDS))
    (table,) = struct.unpack_from("<Q", data, 0x28)
    struct.pack_into("<HH", data, 0x3C, 0, 0xFFFF)
    data[table : table + 64] = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 3, 2, 0, 0, 0)
    assert modinfo.read(io.BytesIO(bytes(data))) == FIELDS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version=580.159.03\n",
        module(FIELDS)[:70],
        module(FIELDS, name=b".notinfo"),
        b"\x7fELF\x01\x01" + bytes(60),
    ],
)
def test_what_is_not_a_plain_module_is_refused(data: bytes) -> None:
    with pytest.raises(modinfo.NotPlain):
        modinfo.read(io.BytesIO(data))


def test_xz_is_unpacked_without_a_process(host: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(host, "run", no_process)
    host.write("/lib/modules/1/nvidia.ko.xz", lzma.compress(module(FIELDS)))
    assert modinfo.fields_of(host, "/lib/modules/1/nvidia.ko.xz") == FIELDS


def test_another_compression_is_a_matter_for_modinfo(host: Any, monkeypatch: Any) -> None:
    asked = []

    def run(words: list[str], **_named: object) -> Result:
        asked.append(words)
        text = (
            "filename:       /x/nvidia.ko.zst\nversion:        580.159.03\nlicense:        NVIDIA\nsigner:\n"
        )
        return Result(0, text)

    monkeypatch.setattr(host, "run", run)
    host.write("/x/nvidia.ko.zst", b"\x28\xb5\x2f\xfd" + bytes(80))
    fields = modinfo.fields_of(host, "/x/nvidia.ko.zst")
    assert fields is not None
    assert (fields["version"], fields["license"]) == ("580.159.03", "NVIDIA")
    assert asked == [["modinfo", "/x/nvidia.ko.zst"]]


def test_a_file_that_is_gone_says_nothing(host: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(host, "run", no_process)
    assert modinfo.fields_of(host, "/x/nvidia.ko") is None


def test_without_modinfo_a_compressed_file_says_nothing(host: Any, monkeypatch: Any) -> None:
    def run(words: list[str], **_named: object) -> Result:
        raise StepFailed("the command modinfo was not found")

    monkeypatch.setattr(host, "run", run)
    host.write("/x/nvidia.ko.zst", b"\x28\xb5\x2f\xfd" + bytes(80))
    assert modinfo.fields_of(host, "/x/nvidia.ko.zst") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dual MIT/GPL", "open"),
        ("NVIDIA", "proprietary"),
        ("GPL and additional rights", "open"),
        ("Something else", None),
        (None, None),
    ],
)
def test_the_licence_tells_open_from_proprietary(text: str | None, expected: str | None) -> None:
    assert modinfo.flavour(text) == expected
