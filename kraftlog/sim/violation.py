"""What ends a run: something does not hold that must."""

from __future__ import annotations


class Violation(Exception):
    """An invariant does not hold. The message tells which and what was seen."""
