"""The standard streams of a command: there, able to take any text, and told apart when they fail."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Final

from raft.core.errors import ErrorCode, ProtocolError

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What files fail with that take no more. Storage names the file in an error of its own; this one has no name."""


def prepare_standard_streams() -> None:
    """Put the null device in the place of streams that are closed, and `?` in that of what a stream cannot encode.

    Whoever closes a stream does not want to hear. Were its descriptor left free, the next file or connection that is
    opened would get it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 (for the whole process)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def standard_output_failure(error: OSError) -> ProtocolError | None:
    """What to say of `error` if it is that standard output cannot be written; None if it is something else."""
    if error.filename is not None or not (error.errno in _NO_ROOM or _is_standard_output_broken()):
        return None
    return ProtocolError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"standard output cannot be written: {error.strerror}; make room or name another place, and see what was done"
        " before you do it again",
    )


def _is_standard_output_broken() -> bool:
    try:
        sys.stdout.flush()  # what could not be written is still there, and cannot be again
    except OSError:
        return True
    return False


def discard_standard_output() -> None:
    """Let what is still buffered go nowhere: it would fail again when the interpreter flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
