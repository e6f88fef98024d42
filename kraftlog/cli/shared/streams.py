"""The standard streams of a command: open, able to take any text, and distinguishable when they fail."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kraftbase.errors import ApiError, ErrorCode

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The errors of a full disk. Storage names the file in an error of its own; standard output has no name."""


def prepare_standard_streams() -> None:
    """Replace closed streams by the null device, and characters that a stream cannot encode by `?`.

    A user who closes a stream wants no output. If the closed descriptor stayed free, the next file or connection to be
    opened would get its number.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 (for the whole process)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def standard_output_failure(error: OSError) -> ApiError | None:
    """The message if `error` is that standard output cannot be written; None if it is something else."""
    if error.filename is not None or not (error.errno in _NO_ROOM or _is_standard_output_broken()):
        return None
    return ApiError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"standard output cannot be written: {error.strerror}; make room or redirect it elsewhere, and check what"
        " the command did before you run it again",
    )


def _is_standard_output_broken() -> bool:
    try:
        sys.stdout.flush()  # the unwritten text is still buffered, and would fail again
    except OSError:
        return True
    return False


def discard_standard_output() -> None:
    """Discard the buffered text: the interpreter would fail to flush it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_reader() -> None:
    """Raise BrokenPipeError if the reader of standard output has closed it: for a command that waits in a loop."""
    watching = select.poll()
    try:
        watching.register(sys.stdout.fileno(), 0)  # with no events requested, it still reports errors
    except (OSError, ValueError):  # a test's text in memory has no descriptor
        return
    if any(event & select.POLLERR for _, event in watching.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@contextmanager
def ended_with_reader() -> Iterator[None]:
    """Cancel this task's work in the block when the reader closes standard output; then raise BrokenPipeError.

    A command that waits for something to print would notice it only with the next line: `kraftlog watch | head -1`
    on an idle log would wait for ever.
    """
    task, loop, is_gone = asyncio.current_task(), asyncio.get_running_loop(), False

    def cancel() -> None:
        nonlocal is_gone
        is_gone = True
        loop.remove_reader(watching.fileno())
        if task is not None:
            task.cancel()

    with select.epoll() as watching:
        try:
            watching.register(sys.stdout.fileno(), 0)  # with no events requested, it still reports errors
        except (OSError, ValueError):  # a file has no reader, and a test's text in memory no descriptor
            yield
            return
        loop.add_reader(watching.fileno(), cancel)
        try:
            yield
        except asyncio.CancelledError:
            if is_gone:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
            raise
        finally:
            loop.remove_reader(watching.fileno())
