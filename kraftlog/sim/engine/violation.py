"""What ends a run: an invariant does not hold."""

from __future__ import annotations


class Violation(Exception):
    """An invariant does not hold. The message says which, and what was seen."""
