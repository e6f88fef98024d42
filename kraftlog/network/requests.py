"""A client's request as the broker's handlers get it, and how it is answered.

The network passes each request to one function, a `Handler`, in the order in which the connection brings them. The
handler answers with a callback: at once, or later from the event loop's thread. The network sends the answers of a
connection in the order of its requests, in whatever order the callbacks are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from kraftlog.kafka.apis import Api
from kraftlog.kafka.notation import Message

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of every client, until there is authentication."""


class QuotaClient(NamedTuple):
    """A client, as quotas count it."""

    user: str
    """The principal's name without its type: ANONYMOUS for User:ANONYMOUS."""
    client_id: str


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Where a request comes from. Requests of a connection share one value while they name the same client id."""

    address: str
    """The IP address that the connection comes from."""
    listener_name: str
    """The listener of the connection: metadata answers name that listener's endpoints."""
    client_id: str = ""
    """Empty if the client gave none."""
    principal: str = ANONYMOUS
    quota_client: QuotaClient = field(init=False)
    """The client whose quotas count the request."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "quota_client", QuotaClient(self.principal.partition(":")[2], self.client_id))

    def with_client_id(self, client_id: str) -> RequestContext:
        """Return the context of a request of the same connection that names another client id."""
        return replace(self, client_id=client_id)


Steps = Iterator[Any]
"""Work in steps. A slice does several of them; between slices the event loop can serve other connections.

A step that yields True waits for a resource that others hold, which ends the slice. If the work is no longer wanted the
iterator is closed.
"""


FREED_PER_STEP: Final = 64


def let_go(*lists: list[Any]) -> Steps:
    """Empty lists that are no longer needed, in steps: to free 100,000 elements at once takes long."""
    for items in lists:
        while items:
            del items[-FREED_PER_STEP:]
            yield


class Slices(Protocol):
    """Does work in slices, for one connection."""

    def run(self, steps: Steps) -> None:
        """Go through `steps`, now or later. Until they end, no further request of the connection is handled.

        If the connection is closed before, the steps are closed, or not begun. What they raise closes the connection.
        """
        ...

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes of answers there is room for now, counting all clients; 0 or less if there is none."""
        ...


class AtOnce:
    """Does all steps at once: for the simulator and for tests."""

    answer_room_bytes: Final = 2**63 - 1

    def run(self, steps: Steps) -> None:
        """Go through `steps`."""
        for _ in steps:
            pass


AT_ONCE: Final = AtOnce()


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request. Do not change it; it is not frozen only because frozen classes are slower to make."""

    api: Api
    version: int
    body: Message | None
    """None for a version of ApiVersions that is not offered: the answer names the versions that are (KIP-511)."""
    context: RequestContext
    """The client and its connection."""
    size_bytes: int
    """Its size on the wire."""
    on_client_done: list[Callable[[], None]] = field(default_factory=list)
    """Called if the client sends nothing more, or is gone, before the answer: a parked request is then answered."""
    slices: Slices = AT_ONCE
    """Runs work of a handler that grows with the request or with the cluster."""
    is_large: bool = False
    """Whether the request has so many array elements that handlers must go through it in slices."""
    on_memory_wanted: list[Callable[[], None]] = field(default_factory=list)
    """Called if other large requests wait for this one's memory: the handler answers as soon as it may."""


class Reply(Protocol):
    """Answers one request. Call it exactly once, even if the client is gone, unless the request's steps were closed."""

    def __call__(self, response: Message | None, throttle_ms: int = 0) -> None:
        """Send `response`; None sends nothing, for a Produce with acks=0.

        With `throttle_ms`, nothing is read from the connection for that long (KIP-219). The response is sent without
        delay; its own throttle time field has the same value.
        """
        ...


class ConnectionRefused(Exception):
    """Raised by a handler: the connection is closed without an answer and without an error in the log.

    This is how a failed Produce with acks=0 shows (DB-64).
    """


Handler = Callable[[ClientRequest, Reply], None]
"""Handles a request. If it raises, the connection is closed and the error is logged."""
