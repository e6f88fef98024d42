"""What a broker cannot go on after."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import FlushFailed, InvariantViolation

FATAL: Final = (Exception, FlushFailed, InvariantViolation)
"""All that a step of the shell may raise: unseen, it would leave a broker that does nothing more and does not end. The
simulator's end of a process passes through."""
