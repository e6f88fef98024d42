"""Invariants that are checked in production, too. A violated one ends the process: see `InvariantViolation`.

Where requests arrive in tens of thousands a second a call is too expensive; use `if bad: check(False, ...)` there.
"""

from __future__ import annotations

from kraftbase.errors import InvariantViolation


def check(condition: bool, message: str, **context: object) -> None:
    """Raise InvariantViolation with `message` and the values in `context` unless `condition` holds."""
    if not condition:
        details = ", ".join(f"{name}={value!r}" for name, value in context.items())
        raise InvariantViolation(f"{message} ({details})" if details else message)
