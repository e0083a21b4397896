"""Some keys of a JSON file (Docker's daemon.json): set or removed, everything else kept as it is.

A file that does not parse is never touched: :func:`parse` says where and why. A file that already
means the same is never rewritten for its looks.
"""

from __future__ import annotations

from fleet.agent import files
from fleet.agent.protocol import Json
from fleet.agent.resources.base import MASK, Difference, Reporter, StepFailed, difference, is_secret
from fleet.agent.resources.file import SECRET_MODE, File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence, Tuple, Union

    from fleet.agent.host import Host

_ABSENT = object()
_BYTE_ORDER_MARK = "begins with a byte order mark, which the programs that read it refuse"
_REMEDY = "correct the file by hand and run again; fleet did not touch it"


class JsonFile(File):
    """args: path, merge (nested; lists and plain values replace), remove (dotted keys, or lists of keys
    where a key has a dot in it), mode, owner, group, backup, validate."""

    kind = "json_file"

    def read(self, host: Host, args: Json) -> Json:
        """Attributes; ``document`` now; ``merge`` with its secrets filled in."""
        state = files.attributes(host, args["path"], args)
        data = files.read_bytes(host, args["path"])
        state["document"] = {} if data is None else parse(args["path"], data)
        state["merge"] = _filled(host, args.get("merge") or {})
        return state

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """One difference per key, by its dotted path."""
        wanted = merged(state["document"], state["merge"], args.get("remove") or ())
        secret = _secret_paths(args.get("merge") or {}, ())
        found = []
        for path, before, after in changes(state["document"], wanted, ()):
            masked = any(path == one[: len(path)] or one == path[: len(one)] for one in secret)
            shown = [MASK if masked and value is not _ABSENT else _shown(value) for value in (before, after)]
            found.append(difference(_dotted(path), *shown))
        if not state["exists"]:
            nothing_to_do = not wanted and not args.get("merge") and args.get("remove")
            return [] if nothing_to_do else [difference("state", "absent", "present"), *found]
        return found + files.attribute_differences(state, args)

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        data = files.read_bytes(host, args["path"])
        document = {} if data is None else parse(args["path"], data)
        wanted = merged(document, _filled(host, args.get("merge") or {}), args.get("remove") or ())
        if data is not None and same(document, wanted):
            files.set_attributes(host, args["path"], args)
            return None
        mode = SECRET_MODE if _secret_paths(args.get("merge") or {}, ()) else 0o644
        kept = files.replace(
            host,
            args["path"],
            spelled(wanted, indent_of((data or b"").decode("utf-8"))),
            args,
            default_mode=mode,
            backup=bool(args.get("backup", True)),
        )
        return {"registered": {"backup": kept}} if kept else None


# -- the rules, pure -----------------------------------------------------------------------------------


class NoObject(ValueError):
    """Why a file holds no JSON object: ``words``, and the place as ``line`` and ``column`` from 1."""

    def __init__(self, place: Tuple[int, int], words: str) -> None:
        super().__init__(words)
        self.line, self.column = place
        self.words = words


def parse(path: str, data: bytes) -> Json:
    """The object in ``data``; an empty file is an empty object. StepFailed names path:line:column."""
    try:
        return object_in(data)
    except NoObject as fault:
        remedy = "take it out with: sed -i '1s/^\\xEF\\xBB\\xBF//' %s" % path
        raise StepFailed(
            "%s:%d:%d: %s" % (path, fault.line, fault.column, fault.words),
            remedy if fault.words == _BYTE_ORDER_MARK else _REMEDY,
        ) from None


def object_in(data: bytes) -> Json:
    """The object in ``data``, {} where it is empty. Raises NoObject."""
    import json

    from fleet.agent import strict_json

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        head = data[: error.start].decode("utf-8")
        raise NoObject(_place(head, len(head)), "is not UTF-8 text") from None
    if text.startswith("\ufeff"):
        raise NoObject((1, 1), _BYTE_ORDER_MARK)
    if not text.strip():
        return {}
    try:
        document = strict_json.loads(text)
    except strict_json.Refused as error:
        raise NoObject(_place(text, error.pos), "is not JSON: %s" % error.msg) from None
    except json.JSONDecodeError as error:
        place, words = _diagnosis(text, error.pos, error.msg)
        raise NoObject(_place(text, place), words) from None
    except ValueError as error:  # of Python itself, such as a whole number of too many digits
        raise NoObject((1, 1), str(error)) from None
    if not isinstance(document, dict):
        kind = {list: "an array", str: "a string", bool: "true or false"}.get(
            type(document), "a single value"
        )
        place = len(text) - len(text.lstrip())
        raise NoObject(_place(text, place), "holds %s where an object in braces is needed" % kind)
    return document


def merged(document: Any, merge: Json, remove: Sequence[Union[str, Sequence[str]]]) -> Json:
    """A copy of ``document`` with ``merge`` laid over it and the keys in ``remove`` taken out."""
    result = _laid_over(document, merge)
    for key in remove:
        parts = key.split(".") if isinstance(key, str) else list(key)
        result = _without(result, parts)
    return dict(result)


def changes(before: Any, after: Any, path: Tuple[str, ...]) -> List[Tuple[Tuple[str, ...], Any, Any]]:
    """The smallest (path, before, after) that lead from one document to the other."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in [*before, *(key for key in after if key not in before)]:
            found += changes(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
        return found
    if isinstance(after, dict) and after and before is _ABSENT:
        return [found for key in after for found in changes(_ABSENT, after[key], (*path, key))]
    return [] if same(before, after) else [(path, before, after)]


def same(one: Any, other: Any) -> bool:
    """Whether two documents mean the same: unlike Python, 1, 1.0 and true are three things."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def spelled(document: Json, indent: Union[int, str]) -> bytes:
    """The bytes to write."""
    import json

    text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def indent_of(text: str) -> Union[int, str]:
    """The indent the file uses: that of its first indented line, else 4 spaces."""
    for line in text.splitlines()[1:]:
        space = line[: len(line) - len(line.lstrip(" \t"))]
        if space and line.strip():
            return space if "\t" in space else len(space)
    return 4


def _laid_over(document: Any, merge: Any) -> Any:
    if not (isinstance(document, dict) and isinstance(merge, dict)):
        return merge
    result = dict(document)
    for key, value in merge.items():
        result[key] = _laid_over(document.get(key, _ABSENT), value)
    return result


def _without(document: Any, parts: List[str]) -> Any:
    if not isinstance(document, dict) or parts[0] not in document:
        return document
    result = dict(document)
    if len(parts) == 1:
        del result[parts[0]]
    else:
        result[parts[0]] = _without(result[parts[0]], parts[1:])
    return result


def _diagnosis(text: str, place: int, said: str) -> Tuple[int, str]:
    """Where and what is wrong, in words and places that do not depend on the Python release."""
    here = text[place : place + 1]
    if text.lstrip()[:1] not in ("{", "["):
        return place, "is not JSON: it begins with %r" % text.strip()[:40]
    if said.startswith("Extra data"):
        return place, "a second value begins here; the file must hold one object"
    comma = place if here == "," else len(text[:place].rstrip()) - 1
    if text[comma : comma + 1] == "," and text[comma + 1 :].lstrip()[:1] in ("}", "]"):
        return comma, "a comma before the closing bracket is not JSON"
    if here in ("/", "#"):
        return place, "comments are not JSON"
    if here in ("\u201c", "\u201d", "\u2018", "\u2019", "'"):
        return place, "names and texts need straight double quotes, not %s" % here
    if not here:
        return place, "the file ends in the middle: a closing bracket or quote is missing"
    return place, "is not JSON: %s" % (said[:1].lower() + said[1:])


def _place(text: str, offset: int) -> Tuple[int, int]:
    head = text[:offset]
    return head.count("\n") + 1, len(head) - (head.rfind("\n") + 1) + 1


def _filled(host: Host, value: Any) -> Any:
    if is_secret(value):
        return host.secret(value)
    if isinstance(value, dict):
        return {key: _filled(host, inner) for key, inner in value.items()}
    return [_filled(host, inner) for inner in value] if isinstance(value, list) else value


def _secret_paths(value: Any, path: Tuple[str, ...]) -> List[Tuple[str, ...]]:
    """Paths of keys whose value holds a secret; a list counts as one value."""
    if is_secret(value):
        return [path]
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in _secret_paths(inner, (*path, key))]
    if isinstance(value, list) and any(_secret_paths(inner, path) for inner in value):
        return [path]
    return []


def _dotted(path: Tuple[str, ...]) -> str:
    return ".".join('"%s"' % key if "." in key else key for key in path)


def _shown(value: Any) -> Any:
    return None if value is _ABSENT else value


RESOURCE = JsonFile()
