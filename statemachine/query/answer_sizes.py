"""The size of one answer. A larger one is refused while it is built, with a hint at what to request instead.

Reads share a thread: an answer that cannot be sent must not cost more than the largest that can.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final, TypeVar

from google.protobuf.message import Message

from kraftbase.errors import ApiError, ErrorCode
from raft.rpc.options import MESSAGE_BYTES_MAX

ANSWER_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 1024
"""The bytes of all parts of an answer; the rest is for its other fields: an offset, a sum."""

_HEADER_BYTES_MAX: Final = 5
"""A part's tag, and its length."""

Part = TypeVar("Part", bound=Message)


def fitting(parts: Generator[Part, None, None], instead: str) -> Iterator[Part]:
    """Collect `parts` while they fit one answer, then close them: an open cursor would hold an old state.

    Raises ApiError(RECORD_LIST_TOO_LARGE), whose message says what to request `instead`.
    """
    size_bytes = 0
    with closing(parts):
        for part in parts:
            size_bytes += part.ByteSize() + _HEADER_BYTES_MAX
            check_answer_bytes(size_bytes, instead)
            yield part


def check_answer_bytes(size_bytes: int, instead: str) -> None:
    """Raise ApiError(RECORD_LIST_TOO_LARGE) if an answer with this many bytes, or more, fits no message."""
    if size_bytes > ANSWER_BYTES_MAX:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the answer has {size_bytes} bytes or more, at most {ANSWER_BYTES_MAX} fit one message: {instead}",
        )
