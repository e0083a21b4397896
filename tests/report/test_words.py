"""How numbers and names are written for people."""

from __future__ import annotations

import pytest

from fleet.report.words import duration, plural, printable, ranges, shortened, wrapped


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (1.1, "1.1 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1m00s"),
        (151.2, "2m31s"),
        (3599.7, "1h00m"),
        (7384, "2h03m"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gpu1", "gpu2"], "gpu1, gpu2"),
        ([f"gpu{number:03}" for number in range(1, 201)], "gpu[001:200]"),
        ([f"gpu{number}" for number in (9, 10, 8, 11)], "gpu[8:11]"),
        (["gpu09", "gpu10", "gpu011"], "gpu09, gpu10, gpu011"),
        (["a1.x", "a2.x", "a3.x", "a3.y"], "a[1:3].x, a3.y"),
        (["login", "gpu2", "gpu3", "gpu4", "gpu7"], "gpu[2:4], gpu7, login"),
        ([f"h{number}" for number in range(0, 40, 2)], "h0, h2, h4, h6, h8, h10, and 14 more"),
        ([], ""),
    ],
)
def test_names_fold_into_ranges_as_inventories_write_them(names: list[str], words: str) -> None:
    assert ranges(names) == words


def test_small_words() -> None:
    assert (plural(1, "host"), plural(0, "host"), plural(2, "entry", "entries")) == (
        "1 host",
        "0 hosts",
        "2 entries",
    )
    assert shortened("abcdef", 4) == "abc…"
    assert printable("a\tb\x1b[0m\udc80") == "a b\N{REPLACEMENT CHARACTER}[0m?"


def test_text_in_lines_never_breaks_a_word_and_never_gets_narrower_than_can_be_read() -> None:
    assert wrapped("dmesg | grep -i xid-79", 12, least=8) == ["dmesg | grep", "-i xid-79"]
    assert wrapped("0000:1b:00.0 does not answer", 3) == ["0000:1b:00.0 does not", "answer"]
    assert wrapped("", 80) == []
