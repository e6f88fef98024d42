"""Numbers that count how often they are compared, for tests of the cost of a search among keys."""

from __future__ import annotations


class Comparisons:
    """How often the numbers were compared that it has made."""

    def __init__(self) -> None:
        self.count = 0

    def number(self, value: int) -> int:
        """An int like any other."""
        return _Counted(value, self)


class _Counted(int):
    _comparisons: Comparisons

    def __new__(cls, value: int, comparisons: Comparisons) -> _Counted:
        made = super().__new__(cls, value)
        made._comparisons = comparisons
        return made

    def __eq__(self, other: object) -> bool:
        self._comparisons.count += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        self._comparisons.count += 1
        return int(self) < other

    def __le__(self, other: int) -> bool:
        self._comparisons.count += 1
        return int(self) <= other

    def __gt__(self, other: int) -> bool:
        self._comparisons.count += 1
        return int(self) > other

    def __ge__(self, other: int) -> bool:
        self._comparisons.count += 1
        return int(self) >= other

    __hash__ = int.__hash__
