"""One connection's socket: what happens when bytes arrive, when answers are ready, and at the end.

`conversation.py` has the protocol, `output.py` what is written, `request_flow.py` whether the connection is read, and
`connection_states.py` its states. Each event ends in `_advance`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import Final, cast

from kraftbase.shared_bytes import SharedBytes
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Message
from kraftlog.network.connection_states import (
    AT_END,
    CONNECTING,
    DESERTED,
    DUE,
    NOT_DUE,
    OPEN,
    READ,
    REFUSED,
    TAKING,
    TAKING_AND_DUE,
    Closing,
    ConnectionState,
    Gone,
    Pause,
    check_connection_edge,
)
from kraftlog.network.connections import Connections
from kraftlog.network.conversation import Conversation, Exchange
from kraftlog.network.counters import Closed
from kraftlog.network.early import EarlyAnswers
from kraftlog.network.large_requests import LargeRequest
from kraftlog.network.mute import Mute
from kraftlog.network.output import Output
from kraftlog.network.queued import QueuedBytes
from kraftlog.network.reading import Reading
from kraftlog.network.request_flow import RequestFlow
from kraftlog.network.requests import ClientRequest, ConnectionRefused, RequestContext, Steps
from kraftlog.network.turns import SLICE_SECONDS
from kraftlog.network.watch import PendingIo
from kraftlog.network.work import Work

LONG_SECONDS: Final = 0.1
"""If a slice exceeds its time by this much, its request is recorded: the event loop did nothing else in that time."""

MANY_BYTES: Final = 64 * 1024
"""Before handling more bytes than this, write pending answers: they would wait too long."""


class Connection(asyncio.BufferedProtocol):
    """One connection of one client, on one event loop."""

    def __init__(self, connections: Connections, listener_name: str) -> None:
        self.state: ConnectionState = CONNECTING
        self._connections = connections
        self._counters = connections.counted
        self._times = connections.times
        self._limits = limits = connections.limits
        self._conversation = conversation = Conversation(connections.offered, limits.request_bytes_max)
        self._context = RequestContext("", listener_name)
        self._transport: asyncio.Transport
        self._port = 0
        self._working_on = ""
        """The name of the API whose request was handled last."""
        self._bytes_in = 0
        loop, unsent = connections.loop, connections.unsent
        self._work = Work(self, connections.turns, loop.call_later)
        self._mute = Mute(loop.call_at, loop.time, self._unmuted)
        self._out = Output(
            unsent, connections.counted, conversation, partial(self._watch_for, PendingIo.RECEIVE_RESPONSES)
        )
        self._early = EarlyAnswers(unsent, conversation)
        self._queued = QueuedBytes(connections.queued, self, conversation)
        self._reading = Reading(connections.unread, connections.counted, self._deserted)
        self._flow = RequestFlow(
            self, limits, unsent, conversation, self._work, self._mute, self._out, self._early, self._queued,
            self._reading, partial(self._watch_for, PendingIo.SEND_REQUEST),
        )  # fmt: skip

    def _enter(self, state: ConnectionState) -> None:
        check_connection_edge(self.state, state)
        self.state = state

    # --- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, or close it at once."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._context = RequestContext(str(peer[0]) if peer else "", self._context.listener_name)
        self._port = int(peer[1]) if peer else 0
        self._out.begin(self._transport)
        refusal = self._connections.admit(self, self._context.address)
        if refusal is None:
            self._enter(OPEN)
            self._reading.begin(self._transport)
            return
        self._enter(REFUSED)
        self._connections.closures.log(refusal, self._context.address)
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the space for the next bytes."""
        return self._conversation.frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what the client has sent: `nbytes` bytes are in the space that `get_buffer` returned."""
        if not self.state.is_open:
            return
        self._bytes_in += nbytes
        self._counters.bytes_in += nbytes
        connections, now = self._connections, monotonic()
        connections.watch.active(self, now)
        self._conversation.received(nbytes)
        turns = connections.turns
        if self._work.turn is DUE or (now >= turns.ends_at and not turns.may_begin(now)):
            self._advance()  # the connection waits for its turn
        else:
            self.take_turn()

    def eof_received(self) -> bool:
        """The client sends nothing more: close the connection when all its requests are answered."""
        if self.state.is_open and self.state is not AT_END:
            self._enter(AT_END)
            self._serve_no_longer_than_needed()
        return True

    def _deserted(self) -> None:
        """The client sends nothing more, or is gone, while the connection is not read."""
        if self.state is OPEN:
            self._enter(DESERTED)
            self._serve_no_longer_than_needed()

    def _serve_no_longer_than_needed(self) -> None:
        """Answer parked requests, and drop large requests that only read: the client expects no answer to them."""
        self._answer_waiting()
        for exchange in list(self._conversation.exchanges):
            if isinstance(exchange.held, LargeRequest) and exchange.held.is_let_go_at_end:
                self._let_go(exchange, exchange.held)
        self._advance()

    def _answer_waiting(self) -> None:
        """Have parked requests answered with what they have."""
        for on_client_done in self._conversation.waiting():
            self._connections.loop.call_soon(on_client_done)

    def _let_go(self, exchange: Exchange, large: LargeRequest) -> None:
        self._out.write()
        self._out.is_left_out = True
        large.let_go()
        try:
            self._conversation.let_go(exchange)
        except BaseException as error:
            self._failed(error)
            return
        self._early.count()
        self._write_large_answer()

    def pause_writing(self) -> None:
        """Called when the socket did not take all bytes at once."""
        self.measure()

    def resume_writing(self) -> None:
        """Called when all bytes are sent."""
        self.measure()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the socket is closed."""
        if self.state is REFUSED:
            return
        reason = self.state.reason if isinstance(self.state, Closing) else Closed.BY_CLIENT
        self._release()
        self._out.end()
        self._connections.left(self, reason)
        self._enter(Gone(reason))
        self._conversation.frames.drop_all()

    # --- requests -----------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Continue the work in progress, then handle the requests that were read, for at most one slice."""
        work, flow = self._work, self._flow
        if not self.state.is_open:
            work.turn = NOT_DUE
            return
        work.turn = TAKING
        conversation, small_answers = self._conversation, self._connections.small_answers
        try:
            if conversation.queued_bytes > MANY_BYTES:
                small_answers.write_waiting()
            now = monotonic()
            ends_at = now + SLICE_SECONDS
            whole = conversation.frames.whole
            while (
                (not work.steps or self._go_on(ends_at))
                and (whole or conversation.malformed is not None)
                and flow.handling() is READ
            ):
                if not self._handle_next(now) or ((now := monotonic()) >= ends_at and not work.steps):
                    break
        finally:
            work.end_turn()
        if monotonic() >= ends_at + LONG_SECONDS:
            request = f"{self._working_on} from {self._context.address}:{self._port}"
            self._connections.note_long(monotonic() - ends_at, request)
        small_answers.write(self, conversation.outgoing_bytes)
        if self.state.is_deserted:
            self._answer_waiting()  # requests that were parked in this turn
        self._advance(is_fresh=False)

    def _go_on(self, ends_at: float) -> bool:
        """Work in slices until `ends_at`. Return whether all of the work is done."""
        try:
            if self._work.go_on(lambda: monotonic() < ends_at and self.state.is_open):
                return self.state.is_open
            self._counters.slices += 1
        except BaseException as error:
            self._failed(error)
        return False

    def run(self, steps: Steps) -> None:
        """Work in slices (`kraftlog.network.requests.Slices`)."""
        if not self.state.is_open:
            return
        self._work.steps.append(steps)
        if self._work.turn is NOT_DUE:
            self._work.schedule(is_fresh=True)

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes one answer may have now (`kraftlog.network.requests.Slices`)."""
        held_bytes = self._connections.unsent.held_bytes + self._conversation.outgoing_bytes
        return self._limits.one_answer_bytes(held_bytes)

    def _handle_next(self, now: float) -> bool:
        """Hand the next request to the handler, if there is one. `now` is the last reading of the clock, in seconds.

        Return whether the connection may handle another request.
        """
        try:
            exchange = self._conversation.next_exchange()
            if exchange is None:
                return False
            client_request = exchange.request
            self._working_on = client_request.api.name
            self._counters.requests += 1
            exchange.began_seconds = now
            client_id = client_request.client_id or ""
            if client_id != self._context.client_id:
                self._context = self._context.with_client_id(client_id)
            if client_request.unread is None:
                request = ClientRequest(
                    client_request.api,
                    client_request.version,
                    client_request.body,
                    self._context,
                    client_request.size_bytes,
                    exchange.on_client_done,
                    self,
                )
                self._connections.handler(request, partial(self.answer, exchange))
            else:
                self._begin_large(exchange)
        except BaseException as error:
            self._failed(error)
        return self.state.is_open

    def _begin_large(self, exchange: Exchange) -> None:
        large = self._flow.large = LargeRequest(self._connections.large, self, self._context, exchange)
        exchange.held = large
        if self.state.is_deserted and large.is_let_go_at_end:
            self._let_go(exchange, large)
        else:
            large.begin()

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, exchange: Exchange, response: Message | None, throttle_ms: int = 0) -> None:
        """Answer a request. An answer whose turn has come is sent, with the later ones that waited for it: at once, or
        a moment later if the handler answers before it returns (`SmallAnswers`).

        Never raises: an answer that cannot be written closes the connection.
        """
        if not self.state.is_open:
            self._counters.answers_unwanted += 1
            return
        try:
            self._conversation.answer(exchange, response)
        except BaseException as error:
            self._failed(error)
            return
        now = monotonic()
        self._times[exchange.request.api.key].observe((now - exchange.began_seconds) * 1_000)
        if self._early.held_bytes != self._conversation.early_bytes:
            self._early.count()
        if self._conversation.unwritten is not None:
            self._write_large_answer()
        if throttle_ms > 0:
            self._mute.extend(throttle_ms)
        turn = self._work.turn
        if turn is not TAKING and turn is not TAKING_AND_DUE:
            self._connections.watch.active(self, now)
            self._out.write()
            self._advance()

    def _write_large_answer(self) -> None:
        if self._conversation.unwritten is not None:
            self.run(self._conversation.take_unwritten())

    def write(self) -> None:
        """Write the answers whose turn has come. Raises only what must end the process."""
        try:
            self._out.write()
            if self._out.unsent_bytes or self._reading.pause is not READ:
                self._advance()
        except BaseException as error:
            self._failed(error)

    def measure(self) -> None:
        """Count the bytes that are not sent yet; other connections may use what has become free."""
        self._out.measure()

    def hurry_early(self) -> None:
        """Other connections wait for memory that this one's early answers hold: answer the requests they wait for."""
        if self._early.held_bytes:
            self._answer_waiting()

    def _unmuted(self) -> None:
        self._connections.watch.active(self, monotonic())
        self._advance()

    # --- whether to read ----------------------------------------------------------------------------------------------

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """There is room now, so the connection may continue. For queued requests, `size_bytes` are held already."""
        if bound is self._connections.queued:
            self._queued.has_room(size_bytes)
        if self.state.is_open:
            self._work.schedule(is_fresh=True)

    def _advance(self, *, is_fresh: bool = True) -> None:
        """Continue whatever can continue after a change. `is_fresh`: the connection has not just had a slice."""
        if not self.state.is_open:
            return
        is_at_end = self.state is AT_END
        if self._queued.held_bytes:
            self._queued.count()  # after most answers nothing is held any longer, so the connection is at rest
        if not is_at_end and self._flow.is_at_rest():
            return
        self._queued.count()
        if is_at_end and not self._conversation.has_next and not self._conversation.unanswered:
            self.close(Closed.BY_CLIENT)
            return
        pause = self._flow.reading(is_at_end=is_at_end)
        if pause is Pause.TURN or pause is Pause.SLICES:
            self._work.schedule(is_fresh=is_fresh)
        if not is_at_end:
            self._reading.set_pause(pause, is_deserted=self.state.is_deserted)
        is_read = self._reading.pause is READ and not is_at_end
        self._flow.expect_rest(is_read and self._conversation.is_in_large_request)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        """Close the connection because of an error of a request or an answer; report what must end the process."""
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
        """Read and handle nothing more, and close the connection when all written bytes are sent."""
        if not self.state.is_open:
            return
        self._out.write()
        self._enter(Closing(reason))
        if error is not None:
            self._connections.closures.log(reason, self._context.address, error)
        self._release()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        self._transport.abort()

    def _release(self) -> None:
        """Give back the shared memory that the connection holds, except for bytes that are still being sent."""
        self._mute.cancel()
        for exchange in self._conversation.exchanges:
            if isinstance(exchange.held, LargeRequest):
                exchange.held.let_go(is_closed=True)
        self._flow.large = None
        self._work.drop()
        self._queued.release()
        self._connections.unsent.remove(self)
        self._reading.end()
        self._answer_waiting()
        self._conversation.clear()
        self._early.count()
        self._flow.expect_rest(False)

    # --- idle and slow clients ----------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the broker must do something before the client can."""
        return bool(self._conversation.unanswered) or self._reading.pause is not READ

    def held_bytes(self, pending: PendingIo) -> int:
        """How many bytes of memory are held until the client has done its duty."""
        return self._queued.held_bytes if pending is PendingIo.SEND_REQUEST else self._out.unsent_bytes

    def moved_bytes(self, pending: PendingIo) -> int:
        """How many bytes of its duty the client has done."""
        return self._bytes_in if pending is PendingIo.SEND_REQUEST else self._out.taken_bytes

    def close_idle(self) -> None:
        """Close the connection: its client has sent no request for too long."""
        self.close(Closed.IDLE)

    def close_slow(self, pending: PendingIo) -> None:
        """Close the connection and drop its unsent answers: other connections wait for the memory that it holds."""
        what = (
            "has not taken its answers"
            if pending is PendingIo.RECEIVE_RESPONSES
            else "has not sent the rest of its request"
        )
        self._connections.closures.log(Closed.SLOW, self._context.address, what=what)
        self.close(Closed.SLOW)
        self._transport.abort()

    def _watch_for(self, pending: PendingIo, is_pending: bool) -> None:
        if is_pending:
            self._connections.watch.start_pending(self, pending)
        else:
            self._connections.watch.stop_pending(self, pending)
