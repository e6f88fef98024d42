"""What happened in a run: lines for users, and a hash of all of them that distinguishes runs."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final, Generic, TypeVar

LINES_KEPT: Final = 200

HASHED_AT_A_TIME: Final = 1_000

Line = TypeVar("Line")
"""An entry that a world adds besides text. It becomes text only when it is read, which is rare."""


class Trace(Generic[Line]):
    """One line for each thing that happened in a run."""

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: print every line as it is added."""
        self._echo = echo
        self._lines: deque[str | Line] = deque(maxlen=LINES_KEPT)
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[object] = []
        self.steps = 0

    def note(self, now_us: int, text: str) -> None:
        """Add a line about something other than a node's step."""
        line = f"{now_us:>12}     {text}"
        self._unhashed.append(line)
        self._add(line)

    def text_of(self, line: str | Line) -> str:
        """Return the text of a line."""
        return str(line)

    def _hash_all(self) -> None:
        self._hash.update("".join(map(repr, self._unhashed)).encode())
        self._unhashed.clear()

    def _add(self, line: str | Line) -> None:
        self._lines.append(line)
        if self._echo:
            print(self.text_of(line))  # noqa: T201 (`--trace` prints)

    @property
    def digest(self) -> str:
        """Equal for two runs if and only if the same things happened in the same order."""
        self._hash_all()
        return self._hash.hexdigest()

    def last_lines(self) -> list[str]:
        """Return the text of the last lines."""
        return [self.text_of(line) for line in self._lines]
