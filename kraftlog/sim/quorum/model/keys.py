"""Types that the plain models of the committed log share."""

from __future__ import annotations

Key = tuple[bytes, int]
"""A partition: its topic's id and its number."""

SegmentKey = tuple[bytes, int, bytes]
"""A segment in remote storage: its partition and its id."""


class Contradiction(Exception):
    """A committed record that is impossible after the records before it."""
