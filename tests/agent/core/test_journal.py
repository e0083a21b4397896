"""The journal: what is read back after any damage is a prefix of what was written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.agent import journal as journal_module
from fleet.agent.journal import CHUNK, Journal, Tail, decode_record, encode_record, read_journal

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.tuples(st.sampled_from(["intent", "output", "result"]), VALUES), min_size=1, max_size=4)


def open_journal(path: Path) -> Journal:
    return Journal(str(path), clock=lambda: 1000.5, clean=lambda fields: fields)


def write(path: Path, entries: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    journal = open_journal(path)
    written = [journal.append(kind, step="s", value=value) for kind, value in entries]
    journal.close()
    return written


def without_crc(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "crc"} for record in records]


@given(RECORDS)
@settings(max_examples=50, deadline=None)
def test_what_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, entries: Any) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    written = write(path, entries)
    assert without_crc(read_journal(str(path))) == written


@given(RECORDS)
@settings(max_examples=3, deadline=None)
def test_cut_at_every_byte_a_prefix_is_left_and_the_writer_goes_on_from_it(
    tmp_path_factory: pytest.TempPathFactory, entries: Any
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    written = write(path, entries)
    data = path.read_bytes()
    for length in range(len(data) + 1):
        whole = data[:length].count(b"\n")
        for rest in (b"", b"\0" * 100, b"\xff" * 10):
            path.write_bytes(data[:length] + rest)
            assert without_crc(read_journal(str(path))) == written[:whole]
    path.write_bytes(data[: len(data) - 3] + b"\0" * 50)
    write(path, [("result", "after the crash")])
    again = read_journal(str(path))
    assert [record["seq"] for record in again] == list(range(1, len(written) + 1))
    assert again[-1]["value"] == "after the crash"


@given(RECORDS, st.integers(0, 7), st.data())
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_cuts_the_journal_there(
    tmp_path_factory: pytest.TempPathFactory, entries: Any, bit: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal"
    written = write(path, entries)
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << bit
    path.write_bytes(bytes(raw))
    before = path.read_bytes()[:place].count(b"\n")
    assert without_crc(read_journal(str(path))) == written[:before]


def test_what_was_cut_off_does_not_come_back_behind_a_new_record_of_the_same_length(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, [("result", "aaa"), ("result", "bbb"), ("result", "ccc")])
    data = path.read_bytes()
    path.write_bytes(data.replace(b"bbb", b"bXb"))
    write(path, [("result", "ddd")])
    assert [record["value"] for record in read_journal(str(path))] == ["aaa", "ddd"]


def test_a_record_moved_or_dropped_is_noticed_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written = write(path, [("intent", 1), ("result", 2), ("intent", 3)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    assert without_crc(read_journal(str(path))) == written[:1]


def test_a_tail_sees_records_as_they_are_completed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(str(path), after_seq=1)
    assert tail.read() == []
    journal = open_journal(path)
    for number in range(3):
        journal.append("output", text=str(number))
    assert [record["text"] for record in tail.read()] == ["1", "2"]
    assert tail.read() == []
    line = encode_record({"seq": 4, "kind": "output", "text": "x" * 100})
    descriptor = os.open(path, os.O_WRONLY)
    place = tail.offset
    for cut in (1, 50, len(line) - 1):
        os.pwrite(descriptor, line[:cut], place)
        assert tail.read() == [], "a line that is not whole is not shown"
    os.pwrite(descriptor, line, place)
    assert [record["seq"] for record in tail.read()] == [4]
    os.close(descriptor)
    tail.close()
    journal.close()


def test_a_tail_reads_records_longer_than_its_buffer(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, [("output", "y" * 3_000_000), ("output", "z")])
    assert [len(record["value"]) for record in read_journal(str(path))] == [3_000_000, 1]


def test_space_is_allocated_ahead_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = open_journal(path)
    journal.append("begin")
    assert path.stat().st_size == CHUNK
    journal.close()
    assert path.stat().st_size == path.read_bytes().rindex(b"\n") + 1


def test_a_full_disk_refuses_the_intent_and_leaves_the_journal_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    journal = open_journal(path)
    journal.append("begin")

    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal_module.os, "posix_fallocate", full)
    monkeypatch.setattr(journal_module, "RESERVE", CHUNK)
    with pytest.raises(OSError, match="No space left"):
        journal.append("intent", step="s")
    journal.append("end", status="failed")  # fits in what was allocated before
    assert [record["kind"] for record in read_journal(str(path))] == ["begin", "end"]


def test_the_durable_kinds_are_synced_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(tmp_path / "journal")
    journal.append("begin")
    synced: list[int] = []
    real: Callable[[int], None] = os.fdatasync
    monkeypatch.setattr(journal_module.os, "fdatasync", lambda fd: (synced.append(fd), real(fd)))
    for kind, expected in (("output", 0), ("intent", 1), ("progress", 1), ("result", 2), ("reboot", 3)):
        journal.append(kind)
        assert len(synced) == expected, kind


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"seq":1}', b'{"crc":1,"seq":1}', b"\xff", b"[" * 100_000]
)
def test_nonsense_is_no_record(line: bytes) -> None:
    assert decode_record(line) is None
