"""Counts the bytes of one connection's queued and unanswered requests in the total of all connections."""

from __future__ import annotations

from kraftbase.shared_bytes import SharedBytes, Waiter
from kraftlog.network.conversation import Conversation


class QueuedBytes:
    """The queued bytes of one connection, `waiter`, which waits if there is no room for more of them."""

    def __init__(self, shared: SharedBytes, waiter: Waiter, conversation: Conversation) -> None:
        self.held_bytes = 0
        self.is_waiting = False
        self._shared = shared
        self._waiter = waiter
        self._conversation = conversation

    def count(self) -> None:
        """Reserve shared memory for all queued requests, or join the queue for it."""
        # A request that is larger than the bound counts as the largest that fits.
        more_bytes = min(self._conversation.queued_bytes, self._shared.unreserved_bytes) - self.held_bytes
        if more_bytes > 0:
            self.is_waiting = not self._shared.try_hold(self._waiter, more_bytes)
            if self.is_waiting:
                self._release_partial_request()
            else:
                self.held_bytes += more_bytes
            return
        if self.is_waiting:
            self.is_waiting = False
            self._shared.remove(self._waiter)
        if more_bytes < 0:
            self.held_bytes += more_bytes
            self._shared.give_back(-more_bytes)

    def _release_partial_request(self) -> None:
        """While this connection waits for room for a large request, it must hold no memory for it.

        Consider a client that still holds 100 bytes for a request that is answered by now, and waits for 70 KiB for its
        next one. Ahead of it in the queue is a request that is larger than the bound, and so waits until no bytes are
        held.
        """
        large_bytes = self._conversation.large_request_bytes
        needed_bytes = min(large_bytes, self._shared.unreserved_bytes)
        spare_bytes = self.held_bytes - (self._conversation.queued_bytes - large_bytes)
        if needed_bytes and spare_bytes > 0:
            self._shared.try_hold(self._waiter, needed_bytes)  # cannot be granted: a smaller size was not
            self.held_bytes -= spare_bytes
            self._shared.give_back(spare_bytes)

    def has_room(self, size_bytes: int) -> None:
        """The bytes that the connection waited for are held now."""
        self.held_bytes += size_bytes
        self.is_waiting = False

    def release(self) -> None:
        """The connection is closed: give back all bytes."""
        self._shared.remove(self._waiter)
        held_bytes, self.held_bytes = self.held_bytes, 0
        self._shared.give_back(held_bytes)
