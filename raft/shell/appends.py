"""The appends of a node's own clients that are not settled yet, and the room that is kept for them on the disk."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from raft.core.types import Offset

BATCH_OVERHEAD_BYTES: Final = 256
"""More than a batch's header takes: what is reserved on top of each body."""


class UnwrittenAppends:
    """Room is kept on the disk from when an append is prepared until it is written."""

    def __init__(self) -> None:
        self._unwritten: deque[tuple[Offset, int]] = deque()
        self.byte_count = 0
        """How much room the appends that are not written yet take at most."""

    def add(self, end_offset: Offset, body_bytes: int) -> None:
        """Note an append that ends at `end_offset`."""
        self._unwritten.append((end_offset, body_bytes + BATCH_OVERHEAD_BYTES))
        self.byte_count += body_bytes + BATCH_OVERHEAD_BYTES

    def written(self, end_offset: Offset) -> None:
        """Let go of the room of everything that was written."""
        while self._unwritten and self._unwritten[0][0] <= end_offset:
            self.byte_count -= self._unwritten.popleft()[1]

    def clear(self) -> None:
        """Leadership was lost: nothing more of it is written."""
        self._unwritten.clear()
        self.byte_count = 0


class PendingAppends:
    """Who waits for which append."""

    def __init__(self) -> None:
        self._committed: dict[int, asyncio.Future[None]] = {}

    def add(self, append_id: int) -> asyncio.Future[None]:
        """Note an append; returns what tells when it is committed."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committed[append_id] = committed
        return committed

    def forget(self, append_id: int) -> None:
        """Nobody waits for an append that was never taken."""
        del self._committed[append_id]

    def complete(self, append_id: int, error: ApiError | None) -> None:
        """Tell that an append is committed, or that leadership was lost before."""
        committed = self._committed.pop(append_id)
        if committed.done():
            return
        if error is None:
            committed.set_result(None)
        else:
            committed.set_exception(error)
            committed.exception()  # whoever prepared it may be gone: that is no error of the loop's

    def fail_all(self, message: str) -> None:
        """Fail whatever is left: the node stops."""
        for append_id in list(self._committed):
            self.complete(append_id, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
