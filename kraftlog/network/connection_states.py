"""The states of a connection from its beginning to its end, their transitions, and why a connection is not read.

**From beginning to end.** A connection is `Open` until its client sends nothing more, which shows in one of two ways.
If the connection is read, its last byte has been read, and it is `AtEnd`. If it is not read, epoll reports an end
behind bytes that are not read yet, and it is `Deserted`; `AtEnd` follows when these bytes have been read. In both
states requests are answered, but none is parked, not even a Fetch. `Closing` only sends what is written already.

**Whether it is read** is computed after each event, as the first `Pause` that holds. There is no table of transitions
for it: each reason comes and goes by itself, and any may follow any other.

**Turns.** All connections share the event loop (`kraftlog.network.turns`), so a request may have to wait for a turn.

docs/internals/broker-network.md has the tables as drawings, which a test compares with the tables here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Final

from kraftbase.errors import InvariantViolation
from kraftlog.network.counters import Closed


@dataclass(frozen=True, slots=True)
class Connecting:
    """The event loop has not called `connection_made` yet."""

    is_open: ClassVar[bool] = False
    is_deserted: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The connection was not admitted."""

    is_open: ClassVar[bool] = False
    is_deserted: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Open:
    """Requests are read, handled and answered."""

    is_open: ClassVar[bool] = True
    is_deserted: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Deserted:
    """The client sends nothing more, or is gone; some bytes that it sent earlier are not read yet."""

    is_open: ClassVar[bool] = True
    is_deserted: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Everything that the client has sent was read; the connection is closed when all of it is answered."""

    is_open: ClassVar[bool] = True
    is_deserted: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Closing:
    """Written answers are sent; no request is read or handled."""

    is_open: ClassVar[bool] = False
    is_deserted: ClassVar[bool] = False
    reason: Closed


@dataclass(frozen=True, slots=True)
class Gone:
    """The socket is closed."""

    is_open: ClassVar[bool] = False
    is_deserted: ClassVar[bool] = False
    reason: Closed


ConnectionState = Connecting | Refused | Open | Deserted | AtEnd | Closing | Gone

CONNECTING: Final = Connecting()
REFUSED: Final = Refused()
OPEN: Final = Open()
DESERTED: Final = Deserted()
AT_END: Final = AtEnd()

CONNECTION_EDGES: Final[Mapping[type[ConnectionState], frozenset[type[ConnectionState]]]] = {
    Connecting: frozenset({Open, Refused}),
    Refused: frozenset(),
    Open: frozenset(
        {
            Deserted,  # the client ended while the connection was not read
            AtEnd,
            Closing,  # an error, an idle or slow client, or the broker stops
            Gone,  # the client has reset the connection
        }
    ),
    Deserted: frozenset({AtEnd, Closing, Gone}),
    AtEnd: frozenset({Closing, Gone}),
    Closing: frozenset({Gone}),
    Gone: frozenset(),
}
"""From, to."""


def check_connection_edge(left: ConnectionState, entered: ConnectionState) -> None:
    """Raise InvariantViolation for an edge that is not in the table."""
    if type(entered) not in CONNECTION_EDGES[type(left)]:
        raise InvariantViolation(f"a connection may not go from {left} to {entered}")


class Turn(Enum):
    """Whether a connection works now, or waits for its turn."""

    NOT_DUE = auto()
    """It has no work, or waits for an event."""
    DUE = auto()
    """It waits for its turn."""
    TAKING = auto()
    """It works now."""
    TAKING_AND_DUE = auto()
    """It works now, and there is room for what it could not do before, so it gets another turn."""


NOT_DUE: Final = Turn.NOT_DUE
DUE: Final = Turn.DUE
TAKING: Final = Turn.TAKING
TAKING_AND_DUE: Final = Turn.TAKING_AND_DUE
# Module constants, not members: in Python 3.11 an access to a member calls a function, and each request makes several.

TURN_EDGES: Final[Mapping[Turn, frozenset[Turn]]] = {
    Turn.NOT_DUE: frozenset(
        {
            Turn.DUE,
            Turn.TAKING,  # bytes have arrived, and there is time left in this turn of the event loop
        }
    ),
    Turn.DUE: frozenset(
        {
            Turn.TAKING,
            Turn.NOT_DUE,  # the connection was closed in between
        }
    ),
    Turn.TAKING: frozenset({Turn.NOT_DUE, Turn.TAKING_AND_DUE}),
    Turn.TAKING_AND_DUE: frozenset({Turn.DUE}),
}
"""From, to. Tests check each transition; a check for each request would cost too much."""


class Pause(Enum):
    """Why a connection is not read, or why none of its requests is handled."""

    NONE = auto()
    """The connection is read, and its next request may be handled."""
    SLICES = auto()
    """A request or an answer is processed in slices; later requests wait."""
    TURN = auto()
    """A whole request has been read, and gets its turn soon."""
    THROTTLED = auto()
    """The client is over a quota."""
    LARGE_REQUEST = auto()
    """A large request waits for memory."""
    REQUESTS = auto()
    """Too many requests of this connection are not answered."""
    ANSWERS = auto()
    """The client has not taken its answers."""
    ALL_ANSWERS = auto()
    """All clients together have left too many bytes of answers untaken."""
    QUEUE = auto()
    """The queued requests of this connection, or of all connections, have too many bytes."""
    AT_END = auto()
    """There is nothing more to read."""


READ: Final = Pause.NONE
"""Like `NOT_DUE`, a module constant that is cheap to access."""
