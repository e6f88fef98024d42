"""A lock between the event loop and the disk's thread, for packages without threads of their own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Lock


def new_lock() -> AbstractContextManager[object]:
    """A lock that is free; entering it waits until it is. Hold it for a moment only, never over a sync."""
    return Lock()
