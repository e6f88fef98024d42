"""The pending appends of a node's own clients, and the room on the disk that is reserved for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset

BATCH_OVERHEAD_BYTES: Final = 256
"""Reserved in addition to each body: more than a batch's header takes."""

OnSettled: TypeAlias = Callable[[ApiError | None], None]
"""Called once with the outcome of an append: None when it is committed, an error when the outcome is no longer certain.

It is called while the shell carries out its actions. So it must not raise, and must not call back into the node
directly; for another append, it uses `Runtime.call_soon`."""


class UnwrittenAppends:
    """Appends that hold room on the disk: from when they are prepared until they are written."""

    def __init__(self) -> None:
        self._unwritten: deque[tuple[Offset, int]] = deque()
        self.byte_count = 0
        """An upper bound of the bytes that the unwritten appends will take."""

    def add(self, end_offset: Offset, body_bytes: int) -> None:
        """Record an append that ends at `end_offset`."""
        self._unwritten.append((end_offset, body_bytes + BATCH_OVERHEAD_BYTES))
        self.byte_count += body_bytes + BATCH_OVERHEAD_BYTES

    def written(self, end_offset: Offset) -> None:
        """Release the room of all appends that were written."""
        while self._unwritten and self._unwritten[0][0] <= end_offset:
            self.byte_count -= self._unwritten.popleft()[1]

    def clear(self) -> None:
        """Release the room of all appends: leadership was lost, so they will not be written."""
        self._unwritten.clear()
        self.byte_count = 0


class PendingAppends:
    """The appends that are not settled, and the callback of each. Used on the shell's thread only."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        """`call_soon` is that of the shell's runtime."""
        self._call_soon = call_soon
        self._on_settled: dict[int, OnSettled] = {}
        self._preparing: int | None = None

    def __contains__(self, append_id: int) -> bool:
        """Whether that append is one of these, and not settled."""
        return append_id in self._on_settled

    # An append can fail while it is prepared. Consider a leader that has not heard from a majority for longer than the
    # fetch timeout, and whose timer has not fired yet. The step that prepares the append finds that the timeout has
    # expired: the leader resigns, and the append fails at once. The caller does not know the append's offsets yet, so
    # the callback is called later, on its own.
    def prepare(self, append_id: int, on_settled: OnSettled, prepare: Callable[[], Offset]) -> Offset:
        """Record an append that `prepare` prepares, and return its result; if it raises, the append is dropped.

        `on_settled` is never called within this call.
        """
        self._on_settled[append_id] = on_settled
        self._preparing = append_id
        try:
            return prepare()
        except BaseException:
            self._on_settled.pop(append_id, None)
            raise
        finally:
            self._preparing = None

    def settle(self, append_id: int, error: ApiError | None) -> None:
        """Settle an append: it is committed, or leadership was lost first. Raises KeyError if it is unknown."""
        on_settled = self._on_settled.pop(append_id)
        if append_id == self._preparing:
            self._call_soon(partial(on_settled, error))
        else:
            on_settled(error)

    def fail_all(self, message: str) -> None:
        """Drop all appends, as the node stops: it does not know their outcome."""
        for append_id in list(self._on_settled):
            self.settle(append_id, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
