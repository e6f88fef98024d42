"""A lock between the event loop and the disk's thread, for packages that know no threads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Lock


def new_lock() -> AbstractContextManager[object]:
    """One that is free; whoever enters it waits until it is. It is to be held for a moment only, never over a sync."""
    return Lock()
