"""A follower that fetches a snapshot: how tests bring it to where they begin."""

from __future__ import annotations

from typing import Any, TypeAlias

from raft.core.actions import (
    Action,
    FreezeSnapshot,
    Send,
)
from raft.core.events import (
    Event,
    SnapshotAppended,
)
from raft.core.messages import (
    FetchRequest,
    FetchSnapshotRequest,
    Request,
)
from raft.core.states import Follower
from raft.core.types import (
    OffsetAndEpoch,
)
from tests.raft.core.builders import (
    CONFIG,
    Harness,
    endpoint,
    fetch_response,
    fetch_snapshot,
    fetch_snapshot_response,
)
from tests.raft.core.fetching import follower, point, the_fetch

LEADS = 3
"""The epoch that voter 2 leads."""

SNAPSHOT = point(2, 10)
SIZE = 10

Told: TypeAlias = Action | Request


def behind(**settings: Any) -> Harness:
    """Follows voter 2 of two, with the first three records of its log; its fetch is in progress."""
    given: dict[str, Any] = {"voter_count": 2, "log": [(1, 3)], **settings}
    return follower(LEADS, **given)


def told(actions: list[Action]) -> list[Told]:
    """The ordered actions; of a Send only the request."""
    return [action.request if isinstance(action, Send) else action for action in actions]


def asks(
    position: int = 0, snapshot_id: OffsetAndEpoch = SNAPSHOT, epoch: int = LEADS, max_bytes: int | None = None
) -> FetchSnapshotRequest:
    """The request of voter 1 to the leader of that epoch."""
    wanted = CONFIG.fetch_snapshot_max_bytes if max_bytes is None else max_bytes
    return fetch_snapshot(1, epoch, snapshot_id, position, wanted)


def the_request(harness: Harness) -> Send:
    """The only request that was sent since the last call, of any kind."""
    (send,) = harness.sent
    return send


def offer(harness: Harness, snapshot_id: OffsetAndEpoch = SNAPSHOT, **changes: Any) -> list[Told]:
    """The leader answers the fetch in progress with that snapshot; return every action that is ordered then."""
    send = the_fetch(harness)
    epoch = send.request.current_leader_epoch if isinstance(send.request, FetchRequest) else LEADS
    response = fetch_response(harness.leader_id, epoch, snapshot_id=snapshot_id, **changes)
    return told(harness.answer(send, response))


def offered(snapshot_id: OffsetAndEpoch = SNAPSHOT, **settings: Any) -> Harness:
    """Asks for the first bytes of a snapshot; that request is in progress."""
    harness = behind(**settings)
    offer(harness, snapshot_id)
    return harness


def gives(harness: Harness, data: bytes, position: int = 0, size: int = SIZE, **changes: Any) -> list[Told]:
    """The leader answers with these bytes; everything that is ordered then."""
    send = the_request(harness)
    assert isinstance(send.request, FetchSnapshotRequest)
    given: dict[str, Any] = {"snapshot_id": send.request.snapshot_id, **changes}
    response = fetch_snapshot_response(
        harness.leader_id, harness.epoch, data=data, position=position, size=size, **given
    )
    return told(harness.answer(send, response))


def steps(harness: Harness, event: Event) -> list[Told]:
    return told(harness.step(event))


def halfway(**settings: Any) -> Harness:
    """Has four of ten bytes; the request for the next ones is in progress."""
    harness = offered(**settings)
    gives(harness, b"four")
    harness.step(SnapshotAppended(1, 4))
    return harness


def written(**settings: Any) -> Harness:
    """Has all bytes, and they are being made a snapshot."""
    harness = offered(**settings)
    gives(harness, b"0123456789")
    assert steps(harness, SnapshotAppended(1, 10)) == [FreezeSnapshot(1, SNAPSHOT)]
    return harness


def following(harness: Harness) -> Follower:
    assert isinstance(harness.state, Follower)
    return harness.state


def is_backing_off(harness: Harness) -> bool:
    return harness.output.connections.is_backing_off(endpoint(2))


def what_it_has(harness: Harness) -> tuple[object, ...]:
    """The state that a useless message must not change."""
    log, state, fetch = harness.replica_state.log, following(harness), harness.replica_state.snapshot_fetch
    ends = (log.start, log.end_offset, log.flushed_end_offset, log.latest_snapshot, harness.replica.high_watermark)
    under_way = None if fetch is None else (fetch.fetch_id, fetch.snapshot_id, fetch.position, fetch.size)
    return (*ends, log.epochs.entries(), state.has_fetched, state.fetch_deadline_ms, under_way)


def fetches_again(actions: list[Told], offset: int = 3, epoch: int = 1) -> bool:
    """Whether all that is ordered is a fetch from where the log ends."""
    (request,) = actions
    return isinstance(request, FetchRequest) and (request.fetch_offset, request.last_fetched_epoch) == (offset, epoch)
