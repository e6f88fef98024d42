"""The pending appends of a node's own clients, and the room on the disk that is reserved for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from raft.core.types import Offset

BATCH_OVERHEAD_BYTES: Final = 256
"""Reserved in addition to each body: more than a batch's header takes."""


class UnwrittenAppends:
    """Appends that hold room on the disk: from when they are prepared until they are written."""

    def __init__(self) -> None:
        self._unwritten: deque[tuple[Offset, int]] = deque()
        self.byte_count = 0
        """An upper bound of the bytes that the unwritten appends will take."""

    def add(self, end_offset: Offset, body_bytes: int) -> None:
        """Note an append that ends at `end_offset`."""
        self._unwritten.append((end_offset, body_bytes + BATCH_OVERHEAD_BYTES))
        self.byte_count += body_bytes + BATCH_OVERHEAD_BYTES

    def written(self, end_offset: Offset) -> None:
        """Release the room of all appends that were written."""
        while self._unwritten and self._unwritten[0][0] <= end_offset:
            self.byte_count -= self._unwritten.popleft()[1]

    def clear(self) -> None:
        """Leadership was lost: nothing more will be written."""
        self._unwritten.clear()
        self.byte_count = 0


class PendingAppends:
    """The futures of pending appends."""

    def __init__(self) -> None:
        self._committed: dict[int, asyncio.Future[None]] = {}

    def add(self, append_id: int) -> asyncio.Future[None]:
        """Note an append; returns a future that ends when it is committed."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committed[append_id] = committed
        return committed

    def forget(self, append_id: int) -> None:
        """Forget an append that was refused."""
        del self._committed[append_id]

    def complete(self, append_id: int, error: ApiError | None) -> None:
        """Complete an append: it is committed, or leadership was lost first."""
        committed = self._committed.pop(append_id)
        if committed.done():
            return
        if error is None:
            committed.set_result(None)
        else:
            committed.set_exception(error)
            committed.exception()  # its caller may be gone: asyncio must not log that

    def fail_all(self, message: str) -> None:
        """Fail all pending appends: the node stops."""
        for append_id in list(self._committed):
            self.complete(append_id, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
