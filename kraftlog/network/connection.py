"""One connection's socket. What is said over it is in `conversation.py`; here is when it is read, and when closed.

It is read while all that was read is handed to the handler, and more may be. Each event ends in `_settle`, which
works out anew whether that is so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from time import monotonic
from typing import Final, cast

from kraftbase.shared_bytes import SharedBytes
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Message
from kraftlog.network.connections import Connections
from kraftlog.network.conversation import Conversation, Exchange
from kraftlog.network.counters import Closed
from kraftlog.network.early import EarlyAnswers
from kraftlog.network.large_requests import LargeRequest
from kraftlog.network.mute import Mute
from kraftlog.network.queued import QueuedBytes
from kraftlog.network.reading import Reading
from kraftlog.network.requests import Client, ClientRequest, ConnectionRefused, Steps
from kraftlog.network.turns import SLICE_SECONDS, WAIT_SECONDS, SliceEnd, go_through
from kraftlog.network.watch import Duty

LONG_SECONDS: Final = 0.1
"""A slice that takes so much longer than it should is noted: the loop stands still meanwhile."""

MANY_BYTES: Final = 64 * 1024
"""To handle requests of more bytes takes long for an answer to another client that waits to be written."""


class Connection(asyncio.BufferedProtocol):
    """One connection of one client, for one event loop."""

    def __init__(self, connections: Connections, listener_name: str) -> None:
        self._connections = connections
        self._counters = connections.counted
        self._times = connections.times
        self._limits = connections.limits
        self._conversation = Conversation(connections.offered, connections.limits.request_bytes_max)
        self._client = Client("", listener_name)
        self._transport: asyncio.Transport
        self._port = 0
        self._working_on = ""
        """The name of the API whose request was handled last."""
        self._is_member = False
        self._closed: Closed | None = None
        self._is_at_end = False
        self._reading = Reading(connections.unread, connections.counted, self._deserted)
        self._is_taking_turn = False
        self._is_turn_due = False
        self._steps: deque[Steps] = deque()
        """Work in slices; what comes after it waits."""
        self._slice_end = SliceEnd.DONE
        self._large: LargeRequest | None = None
        """The newest large request: if it waits for memory, those after it wait, too."""
        self._is_deserted = False
        """Whether the client sends nothing more, or is gone; something that it sent before may be unread."""
        self._is_unheard = False
        """Whether an answer was left out: then those after it are left out, too."""
        self._mute = Mute(connections.loop.call_at, connections.loop.time, self._unmuted)
        self._bytes_in = self._bytes_out = 0
        self._unsent_bytes = 0
        self._early = EarlyAnswers(connections.unsent, self._conversation)
        self._queued = QueuedBytes(connections.queued, self, self._conversation)
        self._is_rest_expected = False

    # --- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in, or close it at once."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._client = Client(str(peer[0]) if peer else "", self._client.listener_name)
        self._port = int(peer[1]) if peer else 0
        # Told when something is left unsent, and when nothing is: bytes are counted between the two.
        self._transport.set_write_buffer_limits(high=0, low=0)
        refusal = self._connections.admit(self, self._client.address)
        if refusal is None:
            self._is_member = True
            self._reading.begin(self._transport)
            return
        self._closed = refusal
        self._connections.complaints.log(refusal, self._client.address)
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be put."""
        return self._conversation.frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were put there."""
        if self._closed is not None:
            return
        self._bytes_in += nbytes
        self._counters.bytes_in += nbytes
        self._connections.watch.active(self)
        self._conversation.received(nbytes)
        turns = self._connections.turns
        if self._is_turn_due or ((now := monotonic()) >= turns.ends_at and not turns.may_begin(now)):
            self._settle()  # it waits for its turn
        else:
            self.take_turn()

    def eof_received(self) -> bool:
        """The client sends nothing more: close when all that it has asked is answered."""
        self._is_at_end = True
        self._deserted()
        return True

    def _deserted(self) -> None:
        """The client sends nothing more, or is gone: answer what waits for more, let go of what is only to be read."""
        self._is_deserted = True
        self._hurry()
        for exchange in list(self._conversation.exchanges):
            if isinstance(exchange.held, LargeRequest) and exchange.held.is_let_go_at_end:
                self._let_go(exchange, exchange.held)
        self._settle()

    def _hurry(self) -> None:
        """Have the requests answered that wait for more."""
        for told in self._conversation.waiting():
            self._connections.loop.call_soon(told)

    def _let_go(self, exchange: Exchange, large: LargeRequest) -> None:
        self._write()
        self._is_unheard = True
        large.let_go()
        try:
            self._conversation.let_go(exchange)
        except BaseException as error:
            self._failed(error)
            return
        self._early.count()
        self._write_large_answer()

    def pause_writing(self) -> None:
        """Some bytes could not be sent at once."""
        self.measure()

    def resume_writing(self) -> None:
        """All bytes are sent."""
        self.measure()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if not self._is_member:
            return
        self._release()
        self._count_unsent(0)
        self._is_member = False
        self._connections.left(self, self._closed or Closed.BY_CLIENT)
        self._closed = self._closed or Closed.BY_CLIENT
        self._conversation.frames.drop_all()

    # --- requests -----------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Go on with the work in hand, then handle what was read, as far as it may be handled now, for a slice."""
        self._is_turn_due = False
        if self._closed is not None:
            return
        conversation, small_answers = self._conversation, self._connections.small_answers
        if conversation.queued_bytes > MANY_BYTES:
            small_answers.write_waiting()
        ends_at = monotonic() + SLICE_SECONDS
        whole = conversation.frames.whole
        self._is_taking_turn = True
        try:
            while (
                (not self._steps or self._go_on(ends_at))
                and (whole or conversation.malformed is not None)
                and self._may_handle()
            ):
                if not self._handle_next() or (monotonic() >= ends_at and not self._steps):
                    break
        finally:
            self._is_taking_turn = False
        if monotonic() >= ends_at + LONG_SECONDS:
            request = f"{self._working_on} from {self._client.address}:{self._port}"
            self._connections.note_long(monotonic() - ends_at, request)
        small_answers.write(self, conversation.outgoing_bytes)
        if self._is_deserted:
            self._hurry()  # what waits since
        self._settle(is_fresh=False)

    def _go_on(self, ends_at: float) -> bool:
        """Work in slices until the time is over; whether all of it is done."""
        try:
            self._slice_end = go_through(self._steps, lambda: monotonic() < ends_at and self._closed is None)
            if self._slice_end is SliceEnd.DONE:
                return self._closed is None
            self._counters.slices += 1
        except BaseException as error:
            self._failed(error)
        return False

    def run(self, steps: Steps) -> None:
        """Work in slices (`kraftlog.network.requests.Slices`)."""
        if self._closed is not None:
            return
        self._steps.append(steps)
        if not self._is_taking_turn:
            self._schedule_turn(is_fresh=True)

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes of answers one may have now (`kraftlog.network.requests.Slices`)."""
        held_bytes = self._connections.unsent.held_bytes + self._conversation.outgoing_bytes
        return self._limits.one_answer_bytes(held_bytes)

    def _may_handle(self) -> bool:
        """Whether the client may have one more request handled. If all clients together may not, it will be told."""
        unsent = self._connections.unsent
        return (
            self._closed is None
            and not self._mute.is_on
            and (self._large is None or not self._large.is_waiting)
            and not self._steps
            and len(self._conversation.exchanges) < self._limits.connection_requests_max
            and self._unsent_bytes + self._early.held_bytes + self._conversation.outgoing_bytes
            <= self._limits.connection_unsent_bytes_max
            and (not unsent.held_bytes or unsent.try_hold(self, 0))
        )

    def _handle_next(self) -> bool:
        """Hand the next request to the handler, if there is one."""
        try:
            exchange = self._conversation.next_exchange()
            if exchange is None:
                return False
            asked = exchange.request
            self._working_on = asked.api.name
            self._counters.requests += 1
            exchange.began_seconds = monotonic()
            if asked.unread is None:
                self._connections.handler(
                    ClientRequest(
                        asked.api,
                        asked.version,
                        asked.client_id or "",
                        asked.body,
                        self._client,
                        asked.size_bytes,
                        exchange.on_client_done,
                        self,
                    ),
                    partial(self.answer, exchange),
                )
            else:
                self._begin_large(exchange)
        except BaseException as error:
            self._failed(error)
        return self._closed is None

    def _begin_large(self, exchange: Exchange) -> None:
        large = self._large = LargeRequest(self._connections.large, self, self._client, exchange)
        exchange.held = large
        if self._is_deserted and large.is_let_go_at_end:
            self._let_go(exchange, large)
        else:
            large.begin()

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, exchange: Exchange, response: Message | None, throttle_ms: int = 0) -> None:
        """Answer a request. If its turn has come it is sent with those that waited for it: at once, or within a moment
        if the handler of the request answers it (`SmallAnswers`).

        Never raises: what cannot be written closes the connection.
        """
        if self._closed is not None:
            self._counters.answers_unwanted += 1
            return
        try:
            self._conversation.answer(exchange, response)
        except BaseException as error:
            self._failed(error)
            return
        self._times[exchange.request.api.key].observe((monotonic() - exchange.began_seconds) * 1_000)
        self._early.count()
        self._write_large_answer()
        if throttle_ms > 0:
            self._mute.extend(throttle_ms)
        if not self._is_taking_turn:
            self._connections.watch.active(self)
            self._write()
            self._settle()

    def _write_large_answer(self) -> None:
        if self._conversation.unwritten is not None:
            self.run(self._conversation.take_unwritten())

    def write(self) -> None:
        """Write the answers whose turn has come. Raises only what must end the process."""
        try:
            self._write()
            if self._unsent_bytes or not self._reading.is_on:
                self._settle()
        except BaseException as error:
            self._failed(error)

    def _write(self) -> None:
        size_bytes = self._conversation.outgoing_bytes
        if not size_bytes or self._transport.is_closing():
            return
        if self._is_unheard:
            self._conversation.take_outgoing()
            return
        self._bytes_out += size_bytes
        self._counters.bytes_out += size_bytes
        self._transport.writelines(self._conversation.take_outgoing())
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._count_unsent(unsent_bytes)
            if unsent_bytes:
                # asyncio's writelines never calls pause_writing in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1
                # (CVE-2024-12254), and so never resume_writing. Setting the limits has every version compare them.
                self._transport.set_write_buffer_limits(high=0, low=0)

    def measure(self) -> None:
        """Count the bytes that are not sent yet; others may use the room of those that are."""
        self._count_unsent(self._transport.get_write_buffer_size())

    def _count_unsent(self, unsent_bytes: int) -> None:
        more_bytes = unsent_bytes - self._unsent_bytes
        if not more_bytes:
            return
        self._unsent_bytes = unsent_bytes
        if more_bytes > 0:
            self._connections.unsent.hold(more_bytes)
        else:
            self._connections.unsent.give_back(-more_bytes)
        self._watch_for(Duty.TAKE_ANSWERS, self._unsent_bytes > 0)

    def hurry_early(self) -> None:
        """Others wait for the room of answers that are there before their turn: answer what those wait for."""
        if self._early.held_bytes:
            self._hurry()

    def _unmuted(self) -> None:
        self._connections.watch.active(self)
        self._settle()

    # --- whether to read ----------------------------------------------------------------------------------------------

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """Others hold fewer bytes now, and this connection may go on."""
        if bound is self._connections.queued:
            self._queued.has_room(size_bytes)
        self._schedule_turn(is_fresh=True)

    def _schedule_turn(self, *, is_fresh: bool) -> None:
        """Never at once: a handler is not to be called by what it, or another one, calls."""
        if not self._is_turn_due and self._closed is None:
            self._is_turn_due = True
            take_turn = partial(self._connections.turns.wait, self, is_fresh=is_fresh)
            if self._steps and self._slice_end is SliceEnd.WAITS:
                self._connections.loop.call_later(WAIT_SECONDS, take_turn)
            else:
                take_turn()

    def _settle(self, *, is_fresh: bool = True) -> None:
        """Go on with what can go on, now that something has changed; `is_fresh`: it has had no slice just now."""
        conversation = self._conversation
        if self._closed is not None or not (
            conversation.exchanges
            or conversation.frames.waiting_bytes
            or conversation.malformed
            or self._unsent_bytes
            or self._queued.held_bytes
            or self._queued.is_waiting
            or self._is_rest_expected
            or self._is_at_end
            or not self._reading.is_on
            or self._mute.is_on
        ):
            return  # it is read, and neither holds nor waits for anything: so it is after most requests
        self._queued.count()
        if self._is_at_end and not self._conversation.has_next and not self._conversation.unanswered:
            self.close(Closed.BY_CLIENT)
            return
        if self._steps:
            self._schedule_turn(is_fresh=is_fresh)
            self._read(False)
            return
        may_handle = self._may_handle()
        if self._conversation.has_next:
            if may_handle:
                self._schedule_turn(is_fresh=is_fresh)
            self._read(False)
        else:
            self._read(may_handle and not self._is_at_end and self._has_queue_room())

    def _has_queue_room(self) -> bool:
        """One request always has, or it would never be whole."""
        return not self._queued.is_waiting and (
            self._queued.held_bytes <= self._limits.connection_queued_bytes_max or not self._conversation.unanswered
        )

    def _read(self, is_reading: bool) -> None:
        if not self._is_at_end:
            self._reading.turn(is_on=is_reading, is_deserted=self._is_deserted)
        self._expect_rest(self._reading.is_on and not self._is_at_end and self._conversation.is_in_large_request)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        """What a request or an answer has raised closes its connection only, unless it must end the process."""
        match error:
            case KeyboardInterrupt() | SystemExit():
                raise error
            case ConnectionRefused():
                self.close(Closed.BY_HANDLER)
            case MalformedBytes():
                self.close(Closed.MALFORMED, error)
            case Exception() | asyncio.CancelledError():
                self.close(Closed.FAILED, error)
            case _:
                self.close(Closed.FAILED, error)
                self._connections.on_fatal(error)

    def close(self, reason: Closed, error: BaseException | None = None) -> None:
        """Handle and read nothing more, and close the connection when all that is written is sent."""
        if self._closed is not None:
            return
        self._write()
        self._closed = reason
        if error is not None:
            self._connections.complaints.log(reason, self._client.address, error)
        self._release()
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def _release(self) -> None:
        """Give back what it holds of what is shared, but for bytes that are still being sent."""
        self._mute.cancel()
        for exchange in self._conversation.exchanges:
            if isinstance(exchange.held, LargeRequest):
                exchange.held.let_go(is_closed=True)
        self._large = None
        steps, self._steps = self._steps, deque()
        del steps  # what was begun is closed
        self._queued.release()
        self._connections.unsent.forget(self)
        self._reading.end()
        self._hurry()
        self._conversation.forget()
        self._early.count()
        self._expect_rest(False)

    # --- idle and slow ------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the broker has to do something before the client can."""
        return bool(self._conversation.unanswered) or not self._reading.is_on

    def held_bytes(self, duty: Duty) -> int:
        """What is held until the client has done its duty."""
        return self._queued.held_bytes if duty is Duty.SEND_REST else self._unsent_bytes

    def moved_bytes(self, duty: Duty) -> int:
        """How much of its duty the client has done."""
        return self._bytes_in if duty is Duty.SEND_REST else self._bytes_out - self._unsent_bytes

    def close_idle(self) -> None:
        """Nothing was asked for too long."""
        self.close(Closed.IDLE)

    def close_slow(self, duty: Duty) -> None:
        """Others cannot have the memory that it holds: drop what it does not take."""
        what = "has not taken its answers" if duty is Duty.TAKE_ANSWERS else "has not sent the rest of its request"
        self._connections.complaints.log(Closed.SLOW, self._client.address, what=what)
        self.close(Closed.SLOW)
        self._transport.abort()

    def _expect_rest(self, is_expected: bool) -> None:
        if is_expected != self._is_rest_expected:
            self._is_rest_expected = is_expected
            self._watch_for(Duty.SEND_REST, is_expected)

    def _watch_for(self, duty: Duty, has_to: bool) -> None:
        if has_to:
            self._connections.watch.has_to(self, duty)
        else:
            self._connections.watch.is_free(self, duty)
