"""How a group of tests ended, in a container or on the host: the one shape that :mod:`.run` reads."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional

ENDED = "ended"
DEADLINE = "deadline"
CANCELLED = "cancelled"


class Ending:
    """``how``: ended (with ``code``, or None where a signal did it), deadline or cancelled. ``refused``: the
    engine's words where no container could be started. ``note``: what else is worth saying."""

    __slots__ = ("code", "how", "note", "out_of_host_memory", "refused")

    def __init__(
        self,
        how: str,
        code: Optional[int] = None,
        *,
        refused: Optional[str] = None,
        out_of_host_memory: bool = False,
        note: Optional[str] = None,
    ) -> None:
        self.how = how
        self.code = code
        self.refused = refused
        self.out_of_host_memory = out_of_host_memory
        self.note = note

    def words(self) -> str:
        """In words, for a message."""
        if self.refused is not None:
            return "it could not be started: %s" % self.refused
        if self.how == DEADLINE:
            return "it was ended at its deadline"
        if self.how == CANCELLED:
            return "it was cancelled"
        ending = (
            "it was killed"
            if self.code is None or self.code == 137
            else "it ended with exit code %d" % self.code
        )
        return ending + (": the host's memory was not enough" if self.out_of_host_memory else "")
