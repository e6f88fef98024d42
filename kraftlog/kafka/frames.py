"""Frames: what a connection carries is messages, each after its length as an int32.

A FrameReader never reads a socket. It says where the next bytes may be put, and then hands out whole frames:

    reader.receive_data(data)                                    or, without a copy of a large frame:
    while (frame := reader.next_frame()) is not None: ...        count = socket.recv_into(reader.space())
                                                                 reader.received(count)

Small frames are handed out as bytes. A large one gets memory of its own, into which its rest is read, and is handed out
as a view of that. Its length alone reserves little: the memory doubles as the bytes come. A reader that `keeps_memory`
reuses that memory for the next large frame, once no view of the frame before is left: to get a megabyte of zeros from
the system takes twice as long as to read a megabyte from a socket.
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
"""What a length may reserve before any byte of its frame is there."""

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is kept for the next frame: a follower's fetch, of 10 MiB by default, and some room."""

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's `socket.request.max.bytes`."""


class FrameReader:
    """Makes frames of bytes. `frame_bytes_min` is the size of the smallest header."""

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, frame_bytes_min: int = LENGTH.size, *, keeps_memory: bool = False
    ) -> None:
        self._max = frame_bytes_max
        self._min = frame_bytes_min
        self._shared = bytearray()
        self._all_shared = memoryview(self._shared)
        # Made when the first bytes come: thousands of connections may be open that never send any.
        self._shared_bytes = 0
        self._own: bytearray | None = None
        self._own_bytes = 0
        self._own_size = 0
        self._keeps_memory = keeps_memory
        self._kept: bytearray | None = None
        """The memory of the large frame before."""
        self.whole: deque[Buffer] = deque()
        """Those that wait to be handed out, without their lengths: to be read only, `next_frame` takes them."""
        self.waiting_bytes = 0
        """Bytes of frames that wait to be handed out, and of the large one that is being read, as its length has it."""

    def space(self) -> memoryview:
        """Where the next bytes are to be put: at least one byte, until `received` says how many it were."""
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
        """Nothing comes and nothing is wanted any longer: give all memory back now, as garbage is found much later."""
        self.whole.clear()
        self.waiting_bytes = 0
        self._shared = bytearray()
        self._all_shared = memoryview(self._shared)
        self._shared_bytes = 0
        self._own = self._kept = None

    def received(self, count: int) -> None:
        """`count` bytes were put into the space.

        Raises MalformedBytes for a length that is out of range; the connection is then to be closed.
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
        """Take bytes as they came from the peer. Raises as `received`."""
        view = memoryview(data)
        while view:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next_frame(self) -> Buffer | None:
        """The oldest frame, without its length, or None."""
        if not self.whole:
            return None
        frame = self.whole.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    @property
    def is_in_large_frame(self) -> bool:
        """Whether a frame with memory of its own waits for its rest."""
        return self._own is not None

    @property
    def large_frame_bytes(self) -> int:
        """The size of the frame that waits for its rest and has memory of its own; 0 if there is none."""
        return 0 if self._own is None else self._own_size

    @property
    def is_between_frames(self) -> bool:
        """Whether no part of a frame waits for its rest."""
        return self._own is None and not self._shared_bytes

    def _take_shared(self, count: int) -> None:
        """Take the frames out of the shared space; the last one may have to go on in memory of its own."""
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
        """For a frame, or its first part: that of the frame before, if it suffices and no view of it is left."""
        kept, self._kept = self._kept, None
        if kept is not None and len(kept) >= size:
            with suppress(BufferError):  # there is a view: then it cannot be resized
                kept.append(kept.pop())
                return kept
        return bytearray(min(size, RESERVED_BYTES_MAX))
