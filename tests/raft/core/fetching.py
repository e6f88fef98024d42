"""Leaders and followers that the tests of replication start from, and steps for them."""

from __future__ import annotations

from typing import Any

from kraftbase.types import Epoch, Offset
from raft.core.actions import Action, LogRange, Reply, Send, SnapshotRange
from raft.core.events import AppendPrepared, AppendsScheduled
from raft.core.messages import FetchRequest, FetchResponse
from raft.core.types import OffsetAndEpoch
from tests.raft.core.builders import Harness, fetch, of_type, replica

EPOCH = 1
"""The epoch that `leader` and `committed_leader` lead."""

END = 1
"""Where their logs end: after the leader change."""


def leader(**settings: Any) -> Harness:
    """Leads epoch 1 of three voters; its leader change is at offset 0 and no replica has fetched it yet."""
    return replica(**settings).make_leader()


def committed_leader(**settings: Any) -> Harness:
    """The same, and voter 2 has fetched up to the end, so that the high watermark is 1."""
    made = leader(**settings)
    made.ask(fetch(2, EPOCH, END, EPOCH))
    assert made.replica.high_watermark == END
    return made


def follower(epoch: int = 1, **settings: Any) -> Harness:
    """Follows voter 2, which leads `epoch`; its first fetch is in progress."""
    made = replica(**settings)
    made.sent.clear()  # its requests before it knew the leader
    return made.make_follower(2, epoch)


def the_fetch(harness: Harness) -> Send:
    """The only fetch that was sent since the last call."""
    (send,) = [send for send in harness.sent if isinstance(send.request, FetchRequest)]
    return send


def fetch_request(send: Send) -> FetchRequest:
    assert isinstance(send.request, FetchRequest)
    return send.request


def prepare(harness: Harness, append_id: int = 1, record_count: int = 1, body: bytes = b"body") -> list[Action]:
    return harness.step(AppendPrepared(append_id, harness.leading.epoch, body, record_count))


def append(harness: Harness, append_id: int = 1, record_count: int = 1, body: bytes = b"body") -> list[Action]:
    """A client's append that may be written at once; everything that is ordered then."""
    prepare(harness, append_id, record_count, body)
    return harness.step(AppendsScheduled())


def fetch_replies(actions: list[Action]) -> list[FetchResponse]:
    """The answers to fetches among `actions`."""
    responses = [reply.response for reply in of_type(Reply, actions)]
    return [response for response in responses if isinstance(response, FetchResponse)]


def fetch_reads(actions: list[Action]) -> list[LogRange | SnapshotRange | None]:
    """The data to read for the answers to fetches among `actions`."""
    return [reply.reads for reply in of_type(Reply, actions) if isinstance(reply.response, FetchResponse)]


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


def point(epoch: int, offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))
