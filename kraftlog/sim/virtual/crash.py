"""How a process ends in the middle of a step."""

from __future__ import annotations


class ProcessKilled(BaseException):
    """Raised at the point where a process is killed; nothing of it runs on."""
