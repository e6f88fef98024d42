"""The bytes that all connections hold together, and who waits until there are fewer."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """Who waits for room."""

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """There is room, and `size_bytes` of it, as many as were asked for, are already held for the waiter."""
        ...


class SharedBytes:
    """Bytes held, up to a bound. Those that wait get room in the order in which they asked."""

    def __init__(self, bytes_max: int) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._waiting: dict[Waiter, int] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether anyone waits for room."""
        return bool(self._waiting)

    def hold(self, size_bytes: int) -> None:
        """Hold bytes that are there already, room or not."""
        self.held_bytes += size_bytes

    def try_hold(self, waiter: Waiter, size_bytes: int) -> bool:
        """Hold more for `waiter` if there is room and nobody asked before it; else it waits.

        If nothing is held, any size fits. Asking again changes how much is waited for, not the place in the queue.
        """
        if not self._waiting:
            if self._fits(size_bytes):
                self.held_bytes += size_bytes
                return True
        elif next(iter(self._waiting)) is waiter and self._fits(size_bytes):
            self.held_bytes += size_bytes
            self.forget(waiter)
            return True
        self._waiting[waiter] = size_bytes
        return False

    def give_back(self, size_bytes: int) -> None:
        """Hold so many fewer, and tell those for whom there is room now."""
        self.held_bytes -= size_bytes
        self._serve_waiting()

    def forget(self, waiter: Waiter) -> None:
        """It waits no more."""
        if self._waiting.pop(waiter, None) is not None:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting:
            waiter, size_bytes = next(iter(self._waiting.items()))
            if not self._fits(size_bytes):
                return
            del self._waiting[waiter]
            self.held_bytes += size_bytes
            waiter.has_room(self, size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self._bytes_max
