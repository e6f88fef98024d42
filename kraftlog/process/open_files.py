"""How many files and connections a node's process may have open."""

from __future__ import annotations

import contextlib
import resource


def allow_open_files() -> None:
    """Raise this process's soft limit to its hard limit, as far as the system allows.

    A login shell sets 1,024, for old programs that use select(). Each connection takes one descriptor, and a node that
    has none left accepts no connection: neither from its peers nor from an operator who looks for the cause.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS reports "unlimited" and accepts less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
