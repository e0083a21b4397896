"""Debian version ordering in pure Python, as Debian policy 5.6.12 and dpkg define it.

Used to tell an upgrade from a downgrade before a transaction is allowed, and to sort offered versions;
a process per comparison (``dpkg --compare-versions``) would cost more than the whole check pass.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Tuple


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as ``left`` is older than, equal to or newer than ``right``."""
    left_epoch, left_upstream, left_revision = split(left)
    right_epoch, right_upstream, right_revision = split(right)
    if left_epoch != right_epoch:
        return -1 if left_epoch < right_epoch else 1
    return _compare_part(left_upstream, right_upstream) or _compare_part(left_revision, right_revision)


def split(version: str) -> Tuple[int, str, str]:
    """(epoch, upstream version, revision); an absent epoch is 0 and an absent revision is "" (equal to "0").

    Raises ValueError for an epoch that is not a number.
    """
    epoch_text, colon, rest = version.partition(":")
    if not colon:
        epoch_text, rest = "0", version
    if not (epoch_text.isascii() and epoch_text.isdigit()):
        raise ValueError("%r is not a Debian version: its epoch is not a number" % version)
    upstream, hyphen, revision = rest.rpartition("-")
    if not hyphen:
        upstream, revision = rest, ""
    return int(epoch_text), upstream, revision


def sort_newest_first(versions: "list[str]") -> "list[str]":
    """The distinct versions, newest first."""
    from functools import cmp_to_key

    return sorted(set(versions), key=cmp_to_key(compare), reverse=True)


def _order(character: str) -> int:
    """How one non-digit character sorts: ~ before the end of the text, letters before everything else."""
    if character == "~":
        return -1
    if character.isalpha():
        return ord(character)
    return ord(character) + 256


def _compare_part(left: str, right: str) -> int:
    """Alternates between runs of non-digits and runs of digits, as dpkg's verrevcmp does."""
    i = j = 0
    while i < len(left) or j < len(right):
        while (i < len(left) and not left[i].isdigit()) or (j < len(right) and not right[j].isdigit()):
            # The end of the text, and a digit, sort as 0: after "~", before any other character.
            left_order = _order(left[i]) if i < len(left) and not left[i].isdigit() else 0
            right_order = _order(right[j]) if j < len(right) and not right[j].isdigit() else 0
            if left_order != right_order:
                return -1 if left_order < right_order else 1
            i += 1
            j += 1
        left_start, right_start = i, j
        while i < len(left) and left[i].isdigit():
            i += 1
        while j < len(right) and right[j].isdigit():
            j += 1
        left_number, right_number = int(left[left_start:i] or "0"), int(right[right_start:j] or "0")
        if left_number != right_number:
            return -1 if left_number < right_number else 1
    return 0
