"""Idle and slow connections, by a clock that the tests move."""

from __future__ import annotations

from typing import NamedTuple

from kraftlog.network.watch import PROGRESS_BYTES, STALLED_BYTES, STALLED_DIVISOR, PendingIo, Watch

IDLE, SLOW = 600.0, 30.0
TAKE, REST = PendingIo.RECEIVE_RESPONSES, PendingIo.SEND_REQUEST


class Client:
    """What a connection tells of its client."""

    def __init__(self) -> None:
        self.is_busy = False
        self.will_have_moved = self.moved = 0
        self.held = 0
        self.closed: list[str] = []

    def measure(self) -> None:
        self.moved = self.will_have_moved

    def moved_bytes(self, pending: PendingIo) -> int:
        return self.moved

    def held_bytes(self, pending: PendingIo) -> int:
        return self.held

    def close_idle(self) -> None:
        self.closed.append("idle")

    def close_slow(self, pending: PendingIo) -> None:
        self.closed.append(pending.name)


class Room(NamedTuple):
    """What is held together."""

    has_waiting: bool
    excess_bytes: int


class Clocked:
    """A watch with its clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.watch = Watch(lambda: self.now, IDLE, SLOW)

    def after(self, seconds: float, *pressed: PendingIo, excess_bytes: int = 2**60) -> None:
        self.now += seconds
        self.watch.check({pending: Room(pending in pressed, excess_bytes) for pending in PendingIo})


def test_who_is_idle_is_closed_and_not_who_was_active_since() -> None:
    clocked, idle, active = Clocked(), Client(), Client()
    for client in (active, idle):
        clocked.watch.active(client, clocked.now)
    clocked.after(IDLE - 1)
    clocked.watch.active(active, clocked.now)
    clocked.after(1)
    assert (idle.closed, active.closed) == (["idle"], [])
    clocked.after(IDLE - 2)
    assert active.closed == []
    clocked.after(1)
    assert active.closed == ["idle"]


def test_who_waits_for_the_broker_is_not_idle() -> None:
    clocked, busy, idle = Clocked(), Client(), Client()
    clocked.watch.active(busy, clocked.now)
    clocked.watch.active(idle, clocked.now)
    busy.is_busy = True
    clocked.after(IDLE)
    assert (busy.closed, idle.closed) == ([], ["idle"])
    busy.is_busy = False
    clocked.after(IDLE - 1)
    assert busy.closed == []
    clocked.after(1)
    assert busy.closed == ["idle"]


def test_who_does_not_move_enough_in_its_time_is_slow() -> None:
    clocked, slow, quick = Clocked(), Client(), Client()
    for client in (slow, quick):
        clocked.watch.start_pending(client, TAKE)
    clocked.after(SLOW - 1)
    slow.will_have_moved, quick.will_have_moved = PROGRESS_BYTES - 1, PROGRESS_BYTES
    clocked.watch.start_pending(slow, TAKE)
    clocked.after(1)
    assert (slow.closed, quick.closed) == (["RECEIVE_RESPONSES"], [])


def test_each_progress_gives_new_time() -> None:
    clocked, client = Clocked(), Client()
    clocked.watch.start_pending(client, REST)
    for _ in range(5):
        client.will_have_moved += PROGRESS_BYTES
        clocked.after(SLOW - 1)
    assert client.closed == []
    clocked.after(SLOW)
    assert client.closed == ["SEND_REQUEST"]


def test_while_others_wait_for_its_memory_a_client_has_to_be_quicker() -> None:
    clocked, holds_answers, holds_request = Clocked(), Client(), Client()
    clocked.watch.start_pending(holds_answers, TAKE)
    clocked.watch.start_pending(holds_request, REST)
    clocked.after(SLOW / 10, REST)
    assert (holds_answers.closed, holds_request.closed) == ([], ["SEND_REQUEST"])


def test_while_others_wait_for_its_memory_a_client_has_to_free_a_part_of_it() -> None:
    clocked, little, enough = Clocked(), Client(), Client()
    for client in (little, enough):
        client.held = 100 * PROGRESS_BYTES
        clocked.watch.start_pending(client, TAKE)
    little.will_have_moved, enough.will_have_moved = 10 * PROGRESS_BYTES - 1, 10 * PROGRESS_BYTES
    clocked.after(SLOW / 10, TAKE)
    assert (little.closed, enough.closed) == (["RECEIVE_RESPONSES"], [])


def test_while_others_wait_who_has_stalled_is_closed_soon_those_first_that_hold_most() -> None:
    clocked, moving, little, much, most = Clocked(), Client(), Client(), Client(), Client()
    for client, held in ((little, 1), (most, 4), (moving, 3), (much, 2)):
        client.held = held * PROGRESS_BYTES
        clocked.watch.start_pending(client, TAKE)
    little.will_have_moved = STALLED_BYTES - 1
    moving.will_have_moved = STALLED_BYTES
    clocked.after(SLOW / STALLED_DIVISOR, REST)
    assert not (little.closed or much.closed or most.closed), "nobody waits for what they hold"
    moving.will_have_moved += STALLED_BYTES
    clocked.after(SLOW / STALLED_DIVISOR, TAKE, excess_bytes=4 * PROGRESS_BYTES + 1)
    assert (most.closed, much.closed) == (["RECEIVE_RESPONSES"], ["RECEIVE_RESPONSES"])
    assert (moving.closed, little.closed) == ([], []), "one moves, and there is room without the other"


def test_who_has_done_it_or_is_gone_is_not_looked_at() -> None:
    clocked, done, gone = Clocked(), Client(), Client()
    for client in (done, gone):
        clocked.watch.active(client, clocked.now)
        clocked.watch.start_pending(client, TAKE)
    clocked.watch.stop_pending(done, TAKE)
    clocked.watch.remove(gone)
    clocked.after(SLOW)
    assert (done.closed, gone.closed) == ([], [])
    clocked.after(IDLE)
    assert (done.closed, gone.closed) == (["idle"], [])
