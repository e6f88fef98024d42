"""The bytes that all connections hold together, and the queue of waiters for room."""

from __future__ import annotations

from typing import Final, Protocol


class Waiter(Protocol):
    """A waiter for room."""

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """Called when there is room: the requested `size_bytes` are already held for the waiter."""
        ...


class SharedBytes:
    """Bytes held, up to a bound. Waiters get room in the order in which they asked.

    With `reserved_bytes`, waiters for `small_bytes_max` at most have a queue of their own, and that part of the bound
    is theirs: a waiter for many bytes that keeps them delays them no more than others of their size do.
    """

    def __init__(self, bytes_max: int, *, reserved_bytes: int = 0, small_bytes_max: int = -1) -> None:
        self.held_bytes = 0
        self.bytes_max = bytes_max
        self.unreserved_bytes: Final = bytes_max - reserved_bytes
        """The bound for a large request: it gets more only if no bytes are held."""
        self._reserved_bytes = reserved_bytes
        self._small_bytes_max = small_bytes_max
        self._waiting: dict[Waiter, int] = {}
        self._waiting_small: dict[Waiter, int] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether any waiter waits for room."""
        return bool(self._waiting or self._waiting_small)

    @property
    def excess_bytes(self) -> int:
        """How many more bytes than half of the bound are held."""
        return self.held_bytes - self.bytes_max // 2

    def hold(self, size_bytes: int) -> None:
        """Hold bytes that exist already, with or without room."""
        self.held_bytes += size_bytes

    def try_hold(self, waiter: Waiter, size_bytes: int) -> bool:
        """Hold more for `waiter` if there is room and no waiter in its queue asked before; else it waits.

        If no bytes are held, any size fits. Asking again changes the requested size, not the place in the queue.
        """
        queue, other = self._waiting, self._waiting_small
        if size_bytes <= self._small_bytes_max:
            queue, other = other, queue
        has_left = other.pop(waiter, None) is not None
        is_held = (not queue or next(iter(queue)) is waiter) and self._fits(size_bytes)
        if is_held:
            self.held_bytes += size_bytes
            has_left = queue.pop(waiter, None) is not None or has_left
        else:
            queue[waiter] = size_bytes
        if has_left:
            self._serve_waiting()
        return is_held

    def give_back(self, size_bytes: int) -> None:
        """Release so many bytes, and call the waiters for whom there is room now."""
        self.held_bytes -= size_bytes
        self._serve_waiting()

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter, which no longer wants room."""
        if self._waiting.pop(waiter, None) is not None or self._waiting_small.pop(waiter, None) is not None:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        for queue in (self._waiting_small, self._waiting):
            while queue:
                waiter, size_bytes = next(iter(queue.items()))
                if not self._fits(size_bytes):
                    break
                del queue[waiter]
                self.held_bytes += size_bytes
                waiter.has_room(self, size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        after_bytes = self.held_bytes + size_bytes
        if not self.held_bytes or size_bytes <= self._small_bytes_max:
            return not self.held_bytes or after_bytes <= self.bytes_max
        return after_bytes <= self.unreserved_bytes or (
            self.held_bytes <= self._reserved_bytes and after_bytes <= self.bytes_max
        )
