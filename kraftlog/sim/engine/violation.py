"""The exception that ends a run: an invariant does not hold."""

from __future__ import annotations


class Violation(Exception):
    """An invariant does not hold. The message names it and says what was observed."""
