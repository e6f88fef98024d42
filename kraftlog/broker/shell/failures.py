"""Errors that end a broker."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import FlushFailed, InvariantViolation

FATAL: Final = (Exception, FlushFailed, InvariantViolation)
"""All that a step of the shell may raise. If one were ignored, the broker would do nothing more, and not end either.
The simulator's end of a process is not among them, and passes through."""
