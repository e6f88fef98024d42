"""Whether a connection's next request may be handled, and whether the connection is read. `Pause` lists the reasons."""

from __future__ import annotations

from collections.abc import Callable

from kraftbase.shared_bytes import SharedBytes, Waiter
from kraftlog.network.connection_states import READ, Pause
from kraftlog.network.conversation import Conversation
from kraftlog.network.early import EarlyAnswers
from kraftlog.network.large_requests import LargeRequest
from kraftlog.network.limits import Limits
from kraftlog.network.mute import Mute
from kraftlog.network.output import Output
from kraftlog.network.queued import QueuedBytes
from kraftlog.network.reading import Reading
from kraftlog.network.work import Work


class RequestFlow:
    """The flow of one connection, `waiter`. It only reads the state of the other parts of the connection."""

    def __init__(
        self, waiter: Waiter, limits: Limits, unsent: SharedBytes, conversation: Conversation, work: Work, mute: Mute,
        output: Output, early: EarlyAnswers, queued: QueuedBytes, reading: Reading,
        on_rest_expected: Callable[[bool], None],
    ) -> None:  # fmt: skip
        """`unsent` counts the answers of all connections. `on_rest_expected` is called with whether the rest of a large
        request is expected of the client, when that changes."""
        self.large: LargeRequest | None = None
        """The newest large request: while it waits for memory, later requests wait, too."""
        self.is_rest_expected = False
        self._waiter = waiter
        self._limits = limits
        self._unsent = unsent
        self._conversation = conversation
        self._work = work
        self._mute = mute
        self._out = output
        self._early = early
        self._queued = queued
        self._reading = reading
        self._on_rest_expected = on_rest_expected

    def handling(self) -> Pause:
        """Return why no further request may be handled now; NONE if one may.

        After ALL_ANSWERS, `Waiter.has_room` is called when there is room.
        """
        conversation, limits = self._conversation, self._limits
        if self._mute.is_on:
            return Pause.THROTTLED
        if self.large is not None and self.large.is_waiting:
            return Pause.LARGE_REQUEST
        if self._work.steps:
            return Pause.SLICES
        if len(conversation.exchanges) >= limits.connection_requests_max:
            return Pause.REQUESTS
        held_bytes = self._out.unsent_bytes + self._early.held_bytes + conversation.outgoing_bytes
        if held_bytes > limits.connection_unsent_bytes_max:
            return Pause.ANSWERS
        if self._unsent.held_bytes and not self._unsent.try_hold(self._waiter, 0):
            return Pause.ALL_ANSWERS
        return READ

    def reading(self, *, is_at_end: bool) -> Pause:
        """Return the first reason not to read the connection now; NONE if it is to be read.

        After SLICES and TURN the caller schedules a turn; after any other reason an event ends the pause.
        """
        if self._work.steps:
            return Pause.SLICES
        pause = self.handling()
        if self._conversation.has_next:
            return Pause.TURN if pause is READ else pause
        if pause is not READ:
            return pause
        if is_at_end:
            return Pause.AT_END
        return READ if self._has_queue_room() else Pause.QUEUE

    def _has_queue_room(self) -> bool:
        """Whether there is room to read more. One request always has room, or it would never be complete."""
        return not self._queued.is_waiting and (
            self._queued.held_bytes <= self._limits.connection_queued_bytes_max or not self._conversation.unanswered
        )

    def is_at_rest(self) -> bool:
        """Whether the connection is read, and neither holds nor waits for anything, as it is after most requests."""
        conversation = self._conversation
        return not (
            conversation.exchanges
            or conversation.frames.waiting_bytes
            or conversation.malformed
            or self._out.unsent_bytes
            or self._queued.held_bytes
            or self._queued.is_waiting
            or self.is_rest_expected
            or self._reading.pause is not READ
            or self._mute.is_on
        )

    def expect_rest(self, is_expected: bool) -> None:
        """Set whether the client has to send the rest of a large request."""
        if is_expected != self.is_rest_expected:
            self.is_rest_expected = is_expected
            self._on_rest_expected(is_expected)
