"""Lines of a file or of standard input, each of bounded length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from kraftlog.clients.records import InvalidLine

LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""A line is held in memory as a whole; brokers accept records of 1 MiB by default."""


def lines(stream: BinaryIO, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """Each line as it comes, without its end, which is a line feed, or one after a carriage return.

    Raises InvalidLine for one that is too long.
    """
    while line := stream.readline(line_bytes_max + 1):
        if len(line) > line_bytes_max and not line.endswith(b"\n"):
            raise InvalidLine(f"it is longer than {line_bytes_max} bytes; split it")
        yield line.removesuffix(b"\n").removesuffix(b"\r")
