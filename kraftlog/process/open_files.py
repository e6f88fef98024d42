"""How many files and connections a node's process may have open."""

from __future__ import annotations

import contextlib
import resource


def allow_open_files() -> None:
    """Raise this process's soft limit to its hard limit, as far as the system lets it.

    A login gives 1,024 for the sake of old programs that use select(). Each connection takes one, and a node that has
    none left accepts no others: neither its peers nor who wants to know what is wrong.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
