"""Where a broker listens, and the limits on its clients."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from kraftbase.errors import ConfigurationError
from kraftlog.kafka.connections import REQUEST_HEADER_BYTES_MIN
from kraftlog.kafka.frames import FRAME_BYTES_MAX

_MIB: Final = 1024 * 1024
_INT_MAX: Final = 2**31 - 1

ANSWERS_THAT_FIT: Final = 2
"""Each has this part of the room that is left: the more there are, the fewer bytes has each.

A client that takes nothing holds little then, and what an honest one does not take at once mostly fits into the
kernel's buffers.
"""


class Listener(NamedTuple):
    """Where a broker listens."""

    name: str
    """What clients' endpoints in the metadata are named after, such as PLAINTEXT."""
    host: str
    """A name or an address; empty for all addresses of this machine."""
    port: int
    """0 is any port that is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may use. Where Kafka has the limit, the default is Kafka's.

    A connection that reaches a limit is not read until it is below it again. Those that say so close connections.
    Raises ConfigurationError if a value is out of range.
    """

    connections_max: int = _INT_MAX
    """Connections at a time, of all listeners; a further one is closed. Kafka's `max.connections`.

    There are never more than the process may have open files, without those that the rest of the broker needs.
    """
    address_connections_max: int = _INT_MAX
    """The same from one IP address. Kafka's `max.connections.per.ip`."""
    request_bytes_max: int = FRAME_BYTES_MAX
    """A request above this closes its connection. Kafka's `socket.request.max.bytes`."""
    connection_requests_max: int = 100
    """Requests of a connection that are not answered yet; Kafka has one."""
    connection_queued_bytes_max: int = 64 * _MIB
    """Bytes of a connection's requests that are being read or are not answered yet. One request always fits."""
    queued_bytes_max: int = 100 * _MIB
    """The same of all connections. One request always fits. Kafka's `queued.max.request.bytes` has no limit.

    A quarter is for requests of at most a sixteenth: they do not wait for larger ones, of which one that is above three
    quarters counts as so many bytes.
    """
    connection_unsent_bytes_max: int = _MIB
    """Bytes of answers that a client has not taken yet. One answer always fits."""
    unsent_bytes_max: int = 64 * _MIB
    """The same of all connections. The records of an answer to a Fetch take half of the room that is left, so that
    a few answers do not take all of it; there is one batch at least."""
    large_requests_bytes_max: int = 64 * _MIB
    """Memory for requests with many elements, of all connections, until they are answered: `held_bytes` of
    `kraftlog/network/large_requests.py`. One request always fits; others wait."""
    idle_timeout_ms: int = 600_000
    """A connection without a request for so long is closed. Kafka's `connections.max.idle.ms`."""
    slow_timeout_ms: int = 30_000
    """In this time a client has to take 64 KiB of answers that wait for it, or all, or else its connection is closed.

    The same holds for sending the rest of a large request. While other connections wait for the memory that this takes
    the time is a tenth, in which a client has to move a tenth of what it holds, too. Of those clients that have moved
    next to nothing for a sixtieth of the time, those that hold the most are then closed.
    """
    drain_timeout_ms: int = 1_000
    """How long the end waits until clients have taken the answers that were sent."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = REQUEST_HEADER_BYTES_MIN if field.name == "request_bytes_max" else 1
            value = getattr(self, field.name)
            if value < least:
                raise ConfigurationError(f"{field.name} is {value}; it must be at least {least}")
        if self.request_bytes_max > _INT_MAX:
            raise ConfigurationError(f"request_bytes_max is {self.request_bytes_max}; it must be at most {_INT_MAX}")

    def one_answer_bytes(self, held_bytes: int) -> int:
        """How many bytes of records one answer may have while all clients hold so many of answers; 0 or less: none."""
        return -((held_bytes - self.unsent_bytes_max) // ANSWERS_THAT_FIT)
