"""Writes one connection's answers, and counts the bytes that its client has not taken in the total of all clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kraftbase.shared_bytes import SharedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.network.conversation import Conversation
from kraftlog.network.counters import Counters


class Transport(Protocol):
    """The part of asyncio's transport that is used."""

    def is_closing(self) -> bool:
        """Whether the transport is closed, or will be when all bytes are sent."""
        ...

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send bytes, or buffer them until the client takes them."""
        ...

    def get_write_buffer_size(self) -> int:
        """The number of buffered bytes."""
        ...

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Set at how many buffered bytes the transport calls `pause_writing` (above `high`) and `resume_writing`."""
        ...


class Output:
    """The output of one connection, from `begin` on."""

    def __init__(
        self,
        shared: SharedBytes,
        counters: Counters,
        conversation: Conversation,
        on_unsent: Callable[[bool], None],
    ) -> None:
        """`on_unsent` is called when the number of unsent bytes has changed, with whether it is above 0."""
        self.unsent_bytes = 0
        """The number of unsent bytes, as last measured."""
        self.is_left_out = False
        """Whether an answer was dropped: then the answers after it are dropped, too."""
        self._written_bytes = 0
        self._shared = shared
        self._counters = counters
        self._conversation = conversation
        self._on_unsent = on_unsent
        self._transport: Transport

    def begin(self, transport: Transport) -> None:
        """The connection is made: write to `transport`."""
        self._transport = transport
        # With both limits 0 the protocol is called when bytes are left unsent, and again when none is left.
        transport.set_write_buffer_limits(high=0, low=0)

    def write(self) -> None:
        """Write the answers whose turn has come."""
        size_bytes = self._conversation.outgoing_bytes
        if not size_bytes or self._transport.is_closing():
            return
        if self.is_left_out:
            self._conversation.take_outgoing()
            return
        self._written_bytes += size_bytes
        self._counters.bytes_out += size_bytes
        self._transport.writelines(self._conversation.take_outgoing())
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self.unsent_bytes:
            self._count(unsent_bytes)
            if unsent_bytes:
                # asyncio's writelines never calls pause_writing in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1
                # (CVE-2024-12254), and so never resume_writing. Setting the limits has every version compare them.
                self._transport.set_write_buffer_limits(high=0, low=0)

    def measure(self) -> None:
        """Count the bytes that are not sent yet; other connections may use what has become free."""
        self._count(self._transport.get_write_buffer_size())

    def end(self) -> None:
        """The connection is closed: give back all that is counted."""
        self._count(0)

    def _count(self, unsent_bytes: int) -> None:
        more_bytes = unsent_bytes - self.unsent_bytes
        if not more_bytes:
            return
        self.unsent_bytes = unsent_bytes
        if more_bytes > 0:
            self._shared.hold(more_bytes)
        else:
            self._shared.give_back(-more_bytes)
        self._on_unsent(unsent_bytes > 0)

    @property
    def taken_bytes(self) -> int:
        """How many bytes the client has taken, as last measured."""
        return self._written_bytes - self.unsent_bytes
