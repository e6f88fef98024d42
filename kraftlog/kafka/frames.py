"""Frames: a connection carries messages, each preceded by its length as an int32.

A FrameReader never reads a socket. It offers memory for the next bytes, and then returns whole frames:

    reader.receive_data(data)                                    or, without a copy of a large frame:
    while (frame := reader.next_frame()) is not None: ...        count = socket.recv_into(reader.space())
                                                                 reader.received(count)

Small frames are returned as bytes. A large one gets memory of its own, into which its rest is read, and is returned as
a view of that memory. Its length alone reserves little: the memory doubles as the bytes arrive. A reader that
`keeps_memory` reuses that memory for the next large frame, once no view of the previous frame is left: getting a
megabyte of zeros from the system takes twice as long as reading a megabyte from a socket.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from struct import Struct as Packing
from typing import Final

from kraftbase.checks import check
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer

LENGTH: Final = Packing(">i")
LENGTH_BYTES: Final = LENGTH.size
SPACE_BYTES: Final = 64 * 1024
"""Frames that fit, with their length, share this space; one read of the socket may bring many of them."""

RESERVED_BYTES_MAX: Final = 1024 * 1024
"""The most memory that a frame's length reserves before bytes of the frame arrive."""

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest memory that is kept for the next frame. The response to a follower's Fetch has 10 MiB by default."""

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's `socket.request.max.bytes`."""


class FrameReader:
    """Divides bytes into frames. `frame_bytes_min` is the size of the smallest header."""

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, frame_bytes_min: int = LENGTH.size, *, keeps_memory: bool = False
    ) -> None:
        self._max = frame_bytes_max
        self._min = frame_bytes_min
        self._shared = bytearray()
        self._all_shared = memoryview(self._shared)
        # Allocated when the first bytes arrive: thousands of connections may be open that never send any.
        self._shared_bytes = 0
        self._own: bytearray | None = None
        self._own_bytes = 0
        self._own_size = 0
        self._keeps_memory = keeps_memory
        self._kept: bytearray | None = None
        """The memory of the previous large frame."""
        self.whole: deque[Buffer] = deque()
        """Whole frames, without their lengths, that `next_frame` has not returned yet. For reading only."""
        self.waiting_bytes = 0
        """The bytes of the frames in `whole`, plus the full size of the large frame that is being read."""

    def space(self) -> memoryview:
        """Return memory for the next bytes, at least one byte, to be filled before `received` is called."""
        if self._own is None:
            if not self._shared:
                self._shared = bytearray(SPACE_BYTES)
                self._all_shared = memoryview(self._shared)
            return self._all_shared[self._shared_bytes :] if self._shared_bytes else self._all_shared
        if self._own_bytes == len(self._own) < self._own_size:
            grown = bytearray(min(2 * len(self._own), self._own_size))
            grown[: self._own_bytes] = self._own
            self._own = grown
        return memoryview(self._own)[self._own_bytes : self._own_size]

    def drop_all(self) -> None:
        """Release all memory, at the end of a connection: the garbage collector would do so much later."""
        self.whole.clear()
        self.waiting_bytes = 0
        self._shared = bytearray()
        self._all_shared = memoryview(self._shared)
        self._shared_bytes = 0
        self._own = self._kept = None

    def received(self, count: int) -> None:
        """Accept the `count` bytes that the caller put into the space.

        Raises MalformedBytes for a length that is out of range; the caller must then close the connection.
        """
        if self._own is None:
            self._take_shared(count)
            return
        check(
            count <= min(len(self._own), self._own_size) - self._own_bytes,
            "more bytes than there is space",
            count=count,
        )
        self._own_bytes += count
        if self._own_bytes == self._own_size:
            self.whole.append(memoryview(self._own)[: self._own_size])
            if self._keeps_memory and len(self._own) <= KEPT_BYTES_MAX:
                self._kept = self._own
            self._own = None

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes from the peer. Raises as `received`."""
        view = memoryview(data)
        while view:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next_frame(self) -> Buffer | None:
        """Remove and return the oldest frame, without its length, or None."""
        if not self.whole:
            return None
        frame = self.whole.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    @property
    def is_in_large_frame(self) -> bool:
        """Whether a frame with memory of its own is incomplete."""
        return self._own is not None

    @property
    def large_frame_bytes(self) -> int:
        """The size of the incomplete frame with memory of its own; 0 if there is none."""
        return 0 if self._own is None else self._own_size

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame is incomplete."""
        return self._own is None and not self._shared_bytes

    def _take_shared(self, count: int) -> None:
        """Move the whole frames out of the shared space, and a large incomplete one into memory of its own."""
        at = 0
        there = self._shared_bytes = self._shared_bytes + count
        if there > SPACE_BYTES:
            check(False, "more bytes than there is space", count=count)
        while there - at >= LENGTH_BYTES:
            (size,) = LENGTH.unpack_from(self._shared, at)
            if not self._min <= size <= self._max:
                raise MalformedBytes("frame", f"its length is {size}, and must be from {self._min} to {self._max}")
            start = at + LENGTH_BYTES
            end = start + size
            if end > there:
                if end - at > SPACE_BYTES:
                    self._begin_own(size, start)
                    return
                break
            self.whole.append(bytes(self._all_shared[start:end]))
            self.waiting_bytes += size
            at = end
        left = there - at
        if left and at:
            self._shared[:left] = self._shared[at:there]
        self._shared_bytes = left

    def _begin_own(self, size: int, start: int) -> None:
        there = self._shared_bytes - start
        self._own = self._memory(size)
        self._own[:there] = self._all_shared[start : self._shared_bytes]
        self._own_bytes = there
        self._own_size = size
        self.waiting_bytes += size
        self._shared_bytes = 0

    def _memory(self, size: int) -> bytearray:
        """Return memory for a frame or its first part: the previous frame's, if it suffices and has no view left."""
        kept, self._kept = self._kept, None
        if kept is not None and len(kept) >= size:
            with suppress(BufferError):  # memory with a view cannot be resized
                kept.append(kept.pop())
                return kept
        return bytearray(min(size, RESERVED_BYTES_MAX))
