"""The bytes of one connection's requests that are being read or are not answered yet, counted with those of others."""

from __future__ import annotations

from kraftbase.shared_bytes import SharedBytes, Waiter
from kraftlog.network.conversation import Conversation


class QueuedBytes:
    """Of one connection, `waiter`. If there is no room for more of them, it waits."""

    def __init__(self, shared: SharedBytes, waiter: Waiter, conversation: Conversation) -> None:
        self.held_bytes = 0
        self.is_waiting = False
        self._shared = shared
        self._waiter = waiter
        self._conversation = conversation

    def count(self) -> None:
        """Reserve shared memory for all queued requests, or join the queue for it."""
        # A request for which there never would be room counts as the largest for which there is.
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
            self._shared.forget(self._waiter)
        if more_bytes < 0:
            self.held_bytes += more_bytes
            self._shared.give_back(-more_bytes)

    def _release_partial_request(self) -> None:
        """While this connection waits for room for a large request, it must hold no memory for it.

        Consider a client that holds 100 bytes of a request that is answered by now, and waits for 70 KiB for the next,
        behind one that asks for more than all may hold together, and so waits until all is free.
        """
        large_bytes = self._conversation.large_request_bytes
        needed_bytes = min(large_bytes, self._shared.unreserved_bytes)
        spare_bytes = self.held_bytes - (self._conversation.queued_bytes - large_bytes)
        if needed_bytes and spare_bytes > 0:
            self._shared.try_hold(self._waiter, needed_bytes)  # not granted, since less was not
            self.held_bytes -= spare_bytes
            self._shared.give_back(spare_bytes)

    def has_room(self, size_bytes: int) -> None:
        """What was waited for is held."""
        self.held_bytes += size_bytes
        self.is_waiting = False

    def release(self) -> None:
        """Hold nothing: the connection is closed."""
        self._shared.forget(self._waiter)
        held_bytes, self.held_bytes = self.held_bytes, 0
        self._shared.give_back(held_bytes)
