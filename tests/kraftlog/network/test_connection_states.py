"""The states of a connection: each edge at work, and the tables by themselves."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from kraftbase.errors import InvariantViolation
from kraftlog.kafka.notation import Message
from kraftlog.network import connection as connection_module
from kraftlog.network.connection import Connection
from kraftlog.network.connection_states import (
    AT_END,
    CONNECTING,
    CONNECTION_EDGES,
    DESERTED,
    OPEN,
    REFUSED,
    TURN_EDGES,
    Closing,
    ConnectionState,
    Gone,
    Pause,
    Turn,
    check_connection_edge,
)
from kraftlog.network.connections import Connections
from kraftlog.network.counters import Closed
from kraftlog.network.limits import Limits
from kraftlog.network.requests import ClientRequest, Reply
from kraftlog.network.turns import Turns
from kraftlog.network.work import Work
from tests.kraftlog.network.test_small_answers import OFFERED, _connected, _feed, _Socket, ask, named, never

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "broker-network.md"


class _ClosingSocket(_Socket):
    """One that may be closed, too."""

    def close(self) -> None:
        pass

    abort = close


class Parked:
    """One connection whose requests are answered when a test says so."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.replies: list[Reply] = []
        self.all = Connections(self._handle, limits or Limits(), OFFERED, never)
        self.socket = _ClosingSocket()
        self.connection = _connected(self.all, self.socket)

    def _handle(self, request: ClientRequest, reply: Reply) -> None:
        self.replies.append(reply)

    def feed(self, *bodies: Message) -> None:
        _feed(self.connection, *bodies)

    @property
    def pause(self) -> Pause:
        return self.connection._reading.pause


@pytest.fixture
def edges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The edges that connections have taken."""
    taken: list[tuple[str, str]] = []

    def check(left: ConnectionState, entered: ConnectionState) -> None:
        check_connection_edge(left, entered)
        taken.append((type(left).__name__, type(entered).__name__))

    monkeypatch.setattr(connection_module, "check_connection_edge", check)
    return taken


# --- from beginning to end --------------------------------------------------------------------------------------------


async def test_a_connection_too_many_is_refused(edges: list[tuple[str, str]]) -> None:
    parked = Parked(Limits(connections_max=1))
    edges.clear()
    refused = _connected(parked.all, _ClosingSocket())
    refused.connection_lost(None)
    assert edges == [("Connecting", "Refused")]
    assert parked.all.counters.connections_open == 1


async def test_at_its_end_a_connection_is_closed_when_all_is_answered(edges: list[tuple[str, str]]) -> None:
    parked = Parked()
    parked.feed(ask())
    parked.connection.eof_received()
    assert edges == [("Connecting", "Open"), ("Open", "AtEnd")]
    parked.connection.eof_received()
    parked.replies[0](named("answer"))
    parked.connection.connection_lost(None)
    assert edges[2:] == [("AtEnd", "Closing"), ("Closing", "Gone")]
    assert parked.connection.state == Gone(Closed.BY_CLIENT)


async def test_a_connection_that_is_not_read_is_deserted_before_it_is_at_its_end(edges: list[tuple[str, str]]) -> None:
    parked = Parked(Limits(connection_requests_max=1))
    parked.feed(ask(), ask())
    assert parked.pause is Pause.REQUESTS
    parked.connection._deserted()
    parked.connection._deserted()
    parked.replies[0](named("answer"))
    parked.connection.eof_received()
    assert edges == [("Connecting", "Open"), ("Open", "Deserted"), ("Deserted", "AtEnd")]


@pytest.mark.parametrize("left", [OPEN, DESERTED, AT_END])
async def test_a_connection_may_be_reset_or_closed_at_any_time(
    left: ConnectionState, edges: list[tuple[str, str]]
) -> None:
    for reason in (None, Closed.IDLE):
        parked = Parked()
        parked.feed(ask())
        if left is DESERTED:
            parked.connection._deserted()
        elif left is AT_END:
            parked.connection.eof_received()
        assert parked.connection.state is left
        if reason is not None:
            parked.connection.close(reason)
        parked.connection.connection_lost(None)
        assert parked.connection.state == Gone(reason or Closed.BY_CLIENT)
        parked.replies[0](named("answer"))
        assert parked.all.counters.answers_unwanted == 1
    name = type(left).__name__
    assert {(name, "Gone"), (name, "Closing"), ("Closing", "Gone")} <= set(edges)


def a_state_of_each_type() -> list[ConnectionState]:
    return [CONNECTING, REFUSED, OPEN, DESERTED, AT_END, Closing(Closed.IDLE), Gone(Closed.IDLE)]


@pytest.mark.parametrize(
    ("left", "entered"),
    [
        (left, entered)
        for left, entered in itertools.product(a_state_of_each_type(), repeat=2)
        if type(entered) not in CONNECTION_EDGES[type(left)]
    ],
    ids=lambda state: type(state).__name__,
)
def test_every_other_edge_is_refused(left: ConnectionState, entered: ConnectionState) -> None:
    with pytest.raises(InvariantViolation, match=type(entered).__name__):
        check_connection_edge(left, entered)


def test_the_page_has_the_tables() -> None:
    shown = {
        left: frozenset(entered.split(", "))
        for left, entered in re.findall(r"^ *(\w+) +-> +([A-Z][\w, ]+|nothing)$", PAGE.read_text(), re.M)
    }
    table = {
        left.__name__: frozenset(entered.__name__ for entered in found) or frozenset({"nothing"})
        for left, found in CONNECTION_EDGES.items()
    }
    turns = {left.name: frozenset(entered.name for entered in found) for left, found in TURN_EDGES.items()}
    assert shown == table | turns


def test_the_page_names_each_pause() -> None:
    assert [pause.name for pause in Pause if f"| {pause.name} |" not in PAGE.read_text()] == []


# --- why it is not read -----------------------------------------------------------------------------------------------


async def test_a_throttled_connection_is_not_read_until_its_time_is_over() -> None:
    parked = Parked()
    parked.feed(ask())
    parked.replies[0](named("answer"), 60_000)
    assert parked.pause is Pause.THROTTLED
    assert parked.socket.is_paused
    parked.connection._mute.cancel()
    parked.connection._mute.is_on = False
    parked.connection._unmuted()
    assert parked.pause is Pause.NONE
    assert not parked.socket.is_paused


async def test_a_request_that_waits_for_its_turn_is_handled_in_it() -> None:
    parked = Parked(Limits(connection_requests_max=1))
    parked.feed(ask(), ask())
    assert parked.pause is Pause.REQUESTS
    parked.replies[0](named("answer"))
    assert parked.pause is Pause.TURN
    assert parked.connection._work.turn is Turn.DUE
    assert len(parked.replies) == 1
    while len(parked.replies) < 2:
        await asyncio.sleep(0)
    assert parked.connection._work.turn is Turn.NOT_DUE


async def test_one_pause_may_follow_another_without_reading_in_between() -> None:
    parked = Parked(Limits(connection_requests_max=1))
    parked.feed(ask(), ask())
    parked.replies[0](named("answer"), 60_000)
    assert parked.pause is Pause.THROTTLED
    assert parked.all.counters.connections_paused == 1
    parked.connection.connection_lost(None)
    assert parked.all.counters.connections_paused == 0


# --- turns ------------------------------------------------------------------------------------------------------------


class CheckedWork(Work):
    """Checks each change of the turn."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "turn" and hasattr(self, "turn") and value is not self.turn:
            assert isinstance(value, Turn)
            assert value in TURN_EDGES[self.turn], f"from {self.turn} to {value}"
        super().__setattr__(name, value)


@pytest.fixture
def checked_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "Work", CheckedWork)


@pytest.mark.usefixtures("checked_turns")
async def test_room_that_is_found_during_a_turn_leads_to_another_one() -> None:
    turns: list[Turn] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        connection.has_room(connections.unsent, 0)
        connection.has_room(connections.unsent, 0)
        turns.append(connection._work.turn)
        reply(named("answer"))

    connections = Connections(handler, Limits(), OFFERED, never)
    connection: Connection = _connected(connections, _Socket())
    _feed(connection, ask())
    assert turns == [Turn.TAKING_AND_DUE]
    assert connection._work.turn is Turn.DUE
    while connection._work.turn is Turn.DUE:
        await asyncio.sleep(0)
    assert connection._work.turn is Turn.NOT_DUE


@pytest.mark.usefixtures("checked_turns")
async def test_a_turn_that_is_due_when_the_connection_is_closed_comes_to_nothing() -> None:
    parked = Parked(Limits(connection_requests_max=1))
    parked.feed(ask(), ask())
    parked.replies[0](named("answer"))
    assert parked.connection._work.turn is Turn.DUE
    parked.connection.close(Closed.ENDING)
    while parked.connection._work.turn is Turn.DUE:
        await asyncio.sleep(0)
    assert len(parked.replies) == 1


def test_one_turn_is_asked_for_however_often() -> None:
    calls: list[object] = []
    work = Work(None, Turns(calls.append, lambda: 0.0), lambda seconds, callback: None)  # type: ignore[arg-type]
    work.schedule(is_fresh=True)
    work.schedule(is_fresh=False)
    assert len(calls) == 1
    assert work.turn is Turn.DUE
