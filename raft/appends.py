"""The appends of a node's own clients that are not settled yet, and the room that is kept for them on the disk."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from raft.core.errors import ErrorCode, ProtocolError
from raft.core.types import Offset

BATCH_OVERHEAD_BYTES: Final = 256
"""More than a batch's header takes: what is reserved on top of each body."""


class PendingAppends:
    """Who waits for which append. Room is kept from when an append is prepared until it is written."""

    def __init__(self) -> None:
        self._committed: dict[int, asyncio.Future[None]] = {}
        self._unwritten: deque[tuple[Offset, int]] = deque()
        self.unwritten_bytes = 0
        """How much room the appends that are not written yet take at most."""

    def add(self, append_id: int, end_offset: Offset, body_bytes: int) -> asyncio.Future[None]:
        """Note an append that ends at `end_offset`; returns what tells when it is committed."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committed[append_id] = committed
        self._unwritten.append((end_offset, body_bytes + BATCH_OVERHEAD_BYTES))
        self.unwritten_bytes += body_bytes + BATCH_OVERHEAD_BYTES
        return committed

    def written(self, end_offset: Offset) -> None:
        """Let go of the room of everything that was written."""
        while self._unwritten and self._unwritten[0][0] <= end_offset:
            self.unwritten_bytes -= self._unwritten.popleft()[1]

    def complete(self, append_id: int) -> None:
        """Tell that an append is committed."""
        committed = self._committed.pop(append_id)
        if not committed.done():
            committed.set_result(None)

    def fail(self, append_id: int, error: ProtocolError) -> None:
        """Tell that leadership was lost before an append was committed; nothing more of this leadership is written."""
        self._unwritten.clear()
        self.unwritten_bytes = 0
        committed = self._committed.pop(append_id)
        if not committed.done():
            committed.set_exception(error)
            committed.exception()  # whoever prepared it may be gone: that is no error of the loop's

    def fail_all(self, message: str) -> None:
        """Fail whatever is left: the node stops."""
        for append_id in list(self._committed):
            self.fail(append_id, ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
