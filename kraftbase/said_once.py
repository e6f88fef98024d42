"""A lasting condition, such as a full disk, which is logged when it begins, and not again until it has ended."""

from __future__ import annotations


class SaidOnce:
    """Whether the condition lasts. `begins` and `ends` return whether this is new."""

    def __init__(self) -> None:
        self.count = 0
        """How often it has happened since it began; 0 if it does not last."""

    def begins(self) -> bool:
        """Record that it happens, maybe again; return whether this must be logged."""
        self.count += 1
        return self.count == 1

    def ends(self) -> bool:
        """Record that it no longer happens; return whether it did before."""
        went_on, self.count = self.count > 0, 0
        return went_on
