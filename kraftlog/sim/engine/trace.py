"""What happened, in lines for users, and a hash over all of it to distinguish runs."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final, Generic, TypeVar

LINES_KEPT: Final = 200

HASHED_AT_A_TIME: Final = 1_000

Line = TypeVar("Line")
"""What a world notes beside text. It becomes text when it is read: most never is."""


class Trace(Generic[Line]):
    """One line for each thing that happened."""

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: print every line as it comes."""
        self._echo = echo
        self._lines: deque[str | Line] = deque(maxlen=LINES_KEPT)
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[object] = []
        self.steps = 0

    def note(self, now_us: int, text: str) -> None:
        """Note something that is no step of a node."""
        line = f"{now_us:>12}     {text}"
        self._unhashed.append(line)
        self._add(line)

    def text_of(self, line: str | Line) -> str:
        """A line as users see it."""
        return str(line)

    def _hash_all(self) -> None:
        self._hash.update("".join(map(repr, self._unhashed)).encode())
        self._unhashed.clear()

    def _add(self, line: str | Line) -> None:
        self._lines.append(line)
        if self._echo:
            print(self.text_of(line))  # noqa: T201 (that is what it is for)

    @property
    def digest(self) -> str:
        """The same for two runs iff they went the same way."""
        self._hash_all()
        return self._hash.hexdigest()

    def last_lines(self) -> list[str]:
        """The last lines."""
        return [self.text_of(line) for line in self._lines]
