"""One line of a text file: there, or not there. Ansible's ``lineinfile`` rules, made idempotent.

:func:`edited` is the whole rule, a pure function of the text.
"""

from __future__ import annotations

from fleet.agent import files
from fleet.agent.protocol import Json
from fleet.agent.resources.base import Difference, Reporter, StepFailed, difference, is_secret
from fleet.agent.resources.file import SECRET_MODE, File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Pattern

    from fleet.agent.host import Host


class Line(File):
    """args: path, line, match, state present|absent, create, mode, owner, group, backup, insert_after,
    insert_before (BOF or a pattern), validate."""

    kind = "line"

    def read(self, host: Host, args: Json) -> Json:
        """Attributes, the text now and the text wanted."""
        state = files.attributes(host, args["path"], args)
        text = files.read_text(host, args["path"])
        state["text"] = text
        if text is None and not args.get("create") and args.get("state") != "absent":
            raise StepFailed(
                "%s does not exist, so no line of it can be changed" % args["path"],
                "set create: true if it may be made with this one line, or make it with a copy task first",
            )
        state["wanted"] = edited(text or "", host.secret(args.get("line")), args)
        return state

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        if not state["exists"] and args.get("state") == "absent":
            return []
        found = [] if state["exists"] else [difference("state", "absent", "present")]
        if state["wanted"] != (state["text"] or ""):
            before = None if state["text"] is None else state["text"].encode("utf-8", "surrogateescape")
            after = state["wanted"].encode("utf-8", "surrogateescape")
            shown = not is_secret(args.get("line")) and args.get("show_diff", True)
            found.append(files.content_difference(args["path"], before, after, shown))
        return found + (files.attribute_differences(state, args) if state["exists"] else [])

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        if not any(entry["path"] in ("state", "content") for entry in differences):
            files.set_attributes(host, args["path"], args)
            return None
        wanted = self.read(host, args)["wanted"].encode("utf-8", "surrogateescape")
        mode = SECRET_MODE if is_secret(args.get("line")) else 0o644
        kept = files.replace(
            host, args["path"], wanted, args, default_mode=mode, backup=bool(args.get("backup"))
        )
        return {"registered": {"backup": kept}} if kept else None

    def requires(self, args: Json) -> Any:
        """Its directory, owner and group; the file itself unless it may be made."""
        needed = super().requires({**args, "state": "present"})
        if not args.get("create"):
            needed.add("files", args["path"])
        return needed

    def forecast(self, args: Json, provided: Any) -> str:
        """See :meth:`File.forecast`."""
        return super().forecast({**args, "create": bool(args.get("create"))}, provided)


def edited(text: str, line: Optional[str], args: Json) -> str:
    """``text`` with the line there, or not there; ``args`` as for :class:`Line`.

    Present: the last line that ``match`` finds is replaced. Where it finds none, and the line is not
    there word for word, it is added after (before) the last line found by ``insert_after``
    (``insert_before``), else at the end. Where ``match`` does not find the new line itself, a line that
    is there word for word is enough: replacing on would eat another old line at every run.
    """
    if line is not None and "\n" in line.rstrip("\n"):
        raise StepFailed("a line cannot hold line breaks", "use one task per line, or a template")
    line = line.rstrip("\r\n") if line is not None else None
    match = _pattern(args.get("match"), "match")
    lines = text.split("\n")
    end = lines.pop()  # what follows the last line break: usually nothing
    if end:
        lines.append(end)
    if args.get("state") == "absent":
        kept = [one for one in lines if not _is_it(one, line, match)]
        return text if len(kept) == len(lines) else _joined(kept, bool(end) and kept[-1:] == [end])
    if line is None:
        raise StepFailed("line is missing", "say which line is to be there")
    return _present(text, lines, bool(end), line, match, args)


def _present(
    text: str, lines: List[str], open_end: bool, line: str, match: Optional[Pattern[str]], args: Json
) -> str:
    there = line in (one.rstrip("\r") for one in lines)
    if there and (match is None or not match.search(line)):
        return text
    found = _last(lines, match)
    if found is not None:
        old = lines[found]
        if old.rstrip("\r") == line:
            return text
        lines[found] = line + ("\r" if old.endswith("\r") else "")
        return _joined(lines, open_end)
    if there:
        return text
    line_break = "\r" if lines and all(one.endswith("\r") for one in lines) else ""
    place = _place(lines, args)
    lines.insert(place, line + line_break)
    return _joined(lines, open_end and place < len(lines) - 1)


def _place(lines: List[str], args: Json) -> int:
    """Where a new line goes."""
    before, after = args.get("insert_before"), args.get("insert_after")
    if before == "BOF" or after == "BOF":
        return 0
    if before is not None:
        found = _last(lines, _pattern(before, "insert_before"))
        return len(lines) if found is None else found
    if after not in (None, "EOF"):
        found = _last(lines, _pattern(after, "insert_after"))
        return len(lines) if found is None else found + 1
    return len(lines)


def _last(lines: List[str], pattern: Optional[Pattern[str]]) -> Optional[int]:
    if pattern is None:
        return None
    found = [place for place, one in enumerate(lines) if pattern.search(one.rstrip("\r"))]
    return found[-1] if found else None


def _is_it(one: str, line: Optional[str], match: Optional[Pattern[str]]) -> bool:
    one = one.rstrip("\r")
    return bool(match.search(one)) if match is not None else one == line


def _joined(lines: List[str], open_end: bool) -> str:
    """The lines as text. ``open_end``: without a last line break, unless the last line is empty."""
    return "\n".join(lines) + ("" if not lines or (open_end and lines[-1]) else "\n")


def _pattern(text: Optional[str], name: str) -> Optional[Pattern[str]]:
    if text is None:
        return None
    import re

    try:
        return re.compile(text)
    except re.error as error:
        raise StepFailed("%s is not a regular expression: %s: %s" % (name, error, text)) from None


RESOURCE = Line()
