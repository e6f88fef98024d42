"""A client's request as the broker's handlers get it, and how it is answered.

The network hands every request to one function, a `Handler`, in the order in which a connection brings them. The
handler answers by a callback: at once, or later, from the event loop's thread. The network sends the answers of a
connection in the order of its requests, whatever order the callbacks come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from kraftlog.kafka.apis import Api
from kraftlog.kafka.notation import Message

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of everybody, until there is authentication."""


class QuotaClient(NamedTuple):
    """A client as quotas know it."""

    user: str
    """Kafka's name of the principal: ANONYMOUS of User:ANONYMOUS."""
    client_id: str


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose request it is. All requests of a connection share one value, as long as they name the same client id."""

    address: str
    """The IP address that the connection comes from."""
    listener_name: str
    """The listener that it came to: metadata answers name that listener's endpoints."""
    client_id: str = ""
    """Empty if the client gave none."""
    principal: str = ANONYMOUS
    quota_client: QuotaClient = field(init=False)
    """By what its use is counted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "quota_client", QuotaClient(self.principal.partition(":")[2], self.client_id))

    def with_client_id(self, client_id: str) -> RequestContext:
        """The same connection's, for a request that names another client id."""
        return replace(self, client_id=client_id)


Steps = Iterator[Any]
"""Work in steps, several of which are done in a slice; between two slices others go on, so that the loop turns.

A step that gives True waits for what others hold, which ends the slice. Closed if nobody wants it any more.
"""


FREED_PER_STEP: Final = 64


def let_go(*lists: list[Any]) -> Steps:
    """Empty lists that are not needed any longer, in slices: what is made of 100,000 elements is not freed at once."""
    for items in lists:
        while items:
            del items[-FREED_PER_STEP:]
            yield


class Slices(Protocol):
    """Does work in slices, for one connection."""

    def run(self, steps: Steps) -> None:
        """Go through `steps`, now or later. Until they end no further request of the connection is handled.

        If the connection is closed before, they are closed, or not begun. What they raise closes the connection.
        """
        ...

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes of answers there is room for now, of all clients; not above 0 if there is none."""
        ...


class AtOnce:
    """Does all of it at once: for the simulator, and for tests."""

    answer_room_bytes: Final = 2**63 - 1

    def run(self, steps: Steps) -> None:
        """Go through `steps`."""
        for _ in steps:
            pass


AT_ONCE: Final = AtOnce()


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request. Nobody changes it; it is not frozen, for speed."""

    api: Api
    version: int
    body: Message | None
    """None for a version of ApiVersions that is not offered: its answer names those that are (KIP-511)."""
    context: RequestContext
    """Who asks."""
    size_bytes: int
    """Its size on the wire."""
    on_client_done: list[Callable[[], None]] = field(default_factory=list)
    """Called if the client sends nothing more, or is gone, before the answer: what waits for more is answered now."""
    slices: Slices = AT_ONCE
    """Where a handler does work that grows with the request, or with the cluster."""
    is_large: bool = False
    """Whether it has more array elements than are worth a moment: handlers go through such a request in slices."""
    on_memory_wanted: list[Callable[[], None]] = field(default_factory=list)
    """Called if other large requests wait for the memory of this one: what may be answered early is answered now."""


class Reply(Protocol):
    """Answers one request. Called exactly once, also if the client is gone; not if steps of the request were closed."""

    def __call__(self, response: Message | None, throttle_ms: int = 0) -> None:
        """Send `response`; None sends none, for a Produce with acks=0.

        With `throttle_ms` nothing more is read from the connection for that long (KIP-219). The response is not kept
        back for that, and has the same time in its field.
        """
        ...


class ConnectionRefused(Exception):
    """Raised by a handler: the connection is to be closed, without an answer and without an alarm.

    So is told that a Produce with acks=0 has failed (DB-64).
    """


Handler = Callable[[ClientRequest, Reply], None]
"""Handles a request. May raise: the connection is then closed, and the error logged."""
