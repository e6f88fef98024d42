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
"""Each answer may use the free room divided by this: the more answers there are, the fewer bytes each gets.

So a client that takes nothing holds little, and most of an answer that a working client does not take at once fits into
the kernel's buffers.
"""


class Listener(NamedTuple):
    """Where a broker listens."""

    name: str
    """The name of the endpoint that clients find in the metadata, such as PLAINTEXT."""
    host: str
    """A name or an address; empty: all addresses of this machine."""
    port: int
    """0: any free port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may use. Where Kafka has the limit, the default is Kafka's.

    A connection that reaches a limit is not read until it is below the limit again, except where a field says "closed".
    Raises ConfigurationError if a value is out of range.
    """

    connections_max: int = _INT_MAX
    """Connections at a time, of all listeners; a further one is closed. Kafka's `max.connections`.

    The limit is lowered if the process may not have that many open files beside those that the rest of the broker
    needs.
    """
    address_connections_max: int = _INT_MAX
    """Connections at a time from one IP address; a further one is closed. Kafka's `max.connections.per.ip`."""
    request_bytes_max: int = FRAME_BYTES_MAX
    """The size of a request; the connection of a larger one is closed. Kafka's `socket.request.max.bytes`."""
    connection_requests_max: int = 100
    """Unanswered requests of a connection; Kafka handles one at a time."""
    connection_queued_bytes_max: int = 64 * _MIB
    """Bytes of a connection's requests that are being read or not answered yet. One request always fits."""
    queued_bytes_max: int = 100 * _MIB
    """Bytes of requests of all connections that are being read or not answered yet. One request always fits. Kafka's
    `queued.max.request.bytes` has no limit.

    A quarter is reserved for requests of at most a sixteenth, so that they do not wait for larger ones. A request of
    more than three quarters counts as three quarters.
    """
    connection_unsent_bytes_max: int = _MIB
    """Bytes of answers that a client has not taken yet. One answer always fits."""
    unsent_bytes_max: int = 64 * _MIB
    """Bytes of answers that all clients together have not taken yet. The records of an answer to a Fetch take at most
    half of the free room, so that a few answers do not take all of it, but at least one batch."""
    large_requests_bytes_max: int = 64 * _MIB
    """Memory for requests with many elements, of all connections, until they are answered, as computed by `held_bytes`
    of `kraftlog/network/large_requests.py`. One request always fits; others wait."""
    idle_timeout_ms: int = 600_000
    """A connection without a request for this long is closed. Kafka's `connections.max.idle.ms`."""
    slow_timeout_ms: int = 30_000
    """In this time a client must take 64 KiB of its waiting answers, or all of them; else its connection is closed.

    The same holds for sending the rest of a large request. While other connections wait for the memory, the time is a
    tenth, and the client must also free a tenth of the memory that it holds. Of the clients that have moved next to
    nothing for a sixtieth of the time, those that hold the most are then closed.
    """
    drain_timeout_ms: int = 1_000
    """How long a stopping broker waits for clients to take the answers that were written."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = REQUEST_HEADER_BYTES_MIN if field.name == "request_bytes_max" else 1
            value = getattr(self, field.name)
            if value < least:
                raise ConfigurationError(f"{field.name} is {value}; it must be at least {least}")
        if self.request_bytes_max > _INT_MAX:
            raise ConfigurationError(f"request_bytes_max is {self.request_bytes_max}; it must be at most {_INT_MAX}")

    def one_answer_bytes(self, held_bytes: int) -> int:
        """How many bytes of records one answer may have while all answers hold `held_bytes`; 0 or less: none."""
        return -((held_bytes - self.unsent_bytes_max) // ANSWERS_THAT_FIT)
