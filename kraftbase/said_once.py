"""Something that goes on, such as a full disk, is logged when it begins, and not again before it is over."""

from __future__ import annotations


class SaidOnce:
    """Whether it goes on. `begins` and `ends` tell if that is news."""

    def __init__(self) -> None:
        self.count = 0
        """How often it has happened since it began; 0 if it does not go on."""

    def begins(self) -> bool:
        """It happens, maybe again: whether that is to be logged."""
        self.count += 1
        return self.count == 1

    def ends(self) -> bool:
        """It no longer happens: whether it did before."""
        went_on, self.count = self.count > 0, 0
        return went_on
