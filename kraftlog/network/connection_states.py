"""Which states a connection has from its beginning to its end, which may follow which, and why it is not read.

**From beginning to end.** `Open`, until its client sends nothing more. That shows in one of two ways. If the connection
is read, its last byte has been read, and it is `AtEnd`. If it is not read, epoll tells that an end lies behind bytes
which are not read yet, and it is `Deserted`; `AtEnd` follows when these have been read. In both, requests are answered,
but none waits for more, such as a Fetch. `Closing` sends what is written, and nothing else.

**Whether it is read** is worked out from what it waits for after each event, by the first `Pause` that holds. There is
no table for that: each reason may come and go by itself, and any may follow any other.

**Turns.** All connections share the event loop (`kraftlog.network.turns`), so a request may have to wait for a turn.

docs/internals/broker-network.md has the tables as drawings, which a test compares.
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
    """The event loop has not said yet that it is there."""

    is_open: ClassVar[bool] = False
    is_deserted: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not let in."""

    is_open: ClassVar[bool] = False
    is_deserted: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Open:
    """Requests are read, handled and answered."""

    is_open: ClassVar[bool] = True
    is_deserted: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Deserted:
    """The client sends nothing more, or is gone; something that it sent before is not read yet."""

    is_open: ClassVar[bool] = True
    is_deserted: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Everything that the client has sent was read; it is closed when all of it is answered."""

    is_open: ClassVar[bool] = True
    is_deserted: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Closing:
    """Answers that were written are sent; nothing is read or handled."""

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
            Deserted,  # while it is not read
            AtEnd,
            Closing,  # an error, idle, slow, or the broker ends
            Gone,  # the client has reset it
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
        raise InvariantViolation(f"a connection goes from {left} to {entered}")


class Turn(Enum):
    """Whether a connection works, or waits for its turn to."""

    NOT_DUE = auto()
    """It has nothing to do, or waits for something else."""
    DUE = auto()
    """It waits for its turn."""
    TAKING = auto()
    """It works."""
    TAKING_AND_DUE = auto()
    """It works; there is room now for what it could not do before, so there will be another turn."""


NOT_DUE: Final = Turn.NOT_DUE
DUE: Final = Turn.DUE
TAKING: Final = Turn.TAKING
TAKING_AND_DUE: Final = Turn.TAKING_AND_DUE
# Names of the module, and not of the class: Python 3.11 calls a function for those, and each request looks at them.

TURN_EDGES: Final[Mapping[Turn, frozenset[Turn]]] = {
    Turn.NOT_DUE: frozenset(
        {
            Turn.DUE,
            Turn.TAKING,  # bytes have come, and others have left time in this turn of the event loop
        }
    ),
    Turn.DUE: frozenset(
        {
            Turn.TAKING,
            Turn.NOT_DUE,  # it was closed in between
        }
    ),
    Turn.TAKING: frozenset({Turn.NOT_DUE, Turn.TAKING_AND_DUE}),
    Turn.TAKING_AND_DUE: frozenset({Turn.DUE}),
}
"""From, to. Tests check it; to do so for each request would cost too much."""


class Pause(Enum):
    """Why a connection is not read, or no request of it is handled."""

    NONE = auto()
    """It is read, and its next request may be handled."""
    SLICES = auto()
    """A request or an answer is worked on in slices; what comes after it waits."""
    TURN = auto()
    """A whole request is there, and has its turn soon."""
    THROTTLED = auto()
    """The client is over a quota."""
    LARGE_REQUEST = auto()
    """A large request waits for memory."""
    REQUESTS = auto()
    """Too many of its requests are not answered."""
    ANSWERS = auto()
    """The client has not taken its answers."""
    ALL_ANSWERS = auto()
    """All clients together have not taken theirs."""
    QUEUE = auto()
    """Its requests have too many bytes, or those of all clients have."""
    AT_END = auto()
    """There is nothing more to read."""


READ: Final = Pause.NONE
"""As `NOT_DUE`, a name that costs little."""
