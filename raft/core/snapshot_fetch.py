"""How a replica fetches a snapshot from the leader when it is behind the leader's log (SN-10 to SN-14).

While it does, it fetches no records. An interrupted transfer resumes at the byte where it stopped, also with another
leader that offers the same snapshot.
"""

from __future__ import annotations

from kraftbase.checks import check
from kraftbase.errors import ErrorCode
from raft.core.actions import (
    AdvanceHighWatermark,
    AppendSnapshot,
    DropSnapshot,
    FreezeSnapshot,
    TruncateFullyAndStartAt,
)
from raft.core.committed import holds_committed
from raft.core.context import Context
from raft.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raft.core.snapshot_fetch_state import SnapshotFetch
from raft.core.states import Follower, Leader
from raft.core.types import OffsetAndEpoch


def on_offer(context: Context, snapshot_id: OffsetAndEpoch) -> bool:
    """The leader answers a fetch with a snapshot. False: this replica cannot use it, nothing changed."""
    if snapshot_id.offset < 1 or not 0 <= snapshot_id.epoch <= context.epoch:
        return False
    if not holds_committed(context, snapshot_id) or not context.log.is_replaced_by(snapshot_id):
        return False
    if snapshot_id == context.log.latest_snapshot:
        abandon(context)
        _take(context, snapshot_id)
        return True
    # Consider a snapshot of 40 MB, of which 30 have arrived when the leader crashes. Its successor takes its own
    # snapshots; those with the same id are the same bytes on every node. If it offers this one, the transfer resumes
    # at byte 30,000,000.
    if context.snapshot_fetch is not None and context.snapshot_fetch.snapshot_id == snapshot_id:
        context.snapshot_fetch.offered_in = context.epoch
        return True
    abandon(context)
    context.snapshot_fetches += 1
    context.snapshot_fetch = SnapshotFetch(context.snapshot_fetches, snapshot_id, context.epoch)
    return True


def next_request(context: Context) -> FetchSnapshotRequest | None:
    """The next request to the leader; None if none of its snapshots is being fetched."""
    fetch = context.snapshot_fetch
    # A new leader is asked for records first: its log may start further back, and have all that this replica lacks.
    # Then it answers with records, and the transfer is abandoned. Else it offers a snapshot, this one or a newer one.
    if fetch is None or fetch.offered_in != context.epoch:
        return None
    return FetchSnapshotRequest(
        cluster_id=context.cluster_id,
        replica_key=context.key,
        current_leader_epoch=context.epoch,
        snapshot_id=fetch.snapshot_id,
        position=fetch.position,
        max_bytes=context.config.fetch_snapshot_max_bytes,
    )


def on_fetch_snapshot_response(
    context: Context, request: FetchSnapshotRequest, response: FetchSnapshotResponse
) -> bool:
    """Take the next bytes. False: back off from that peer (SN-13)."""
    state, fetch = context.state, context.snapshot_fetch
    if not isinstance(state, Follower) or request.current_leader_epoch != state.epoch:
        return True
    if fetch is None or fetch.snapshot_id != request.snapshot_id or fetch.position != request.position:
        return True
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        abandon(context)
        return False
    if response.error is not ErrorCode.NONE or not isinstance(response.data, bytes):
        return False
    if not _follows(fetch, response):
        abandon(context)
        return False
    fetch.size = response.size
    fetch.is_writing = True
    context.order(AppendSnapshot(fetch.fetch_id, fetch.snapshot_id, response.data))
    state.fetched(context.now_ms + context.config.fetch_timeout_ms)  # SN-11
    return True


def _follows(fetch: SnapshotFetch, response: FetchSnapshotResponse) -> bool:
    """Whether these are the next bytes of that snapshot, and its size has not changed."""
    # Consider an answer with the bytes from 2,000,000 on to a request for those from 4,000,000 on. If they were
    # written, the file would be damaged in the middle, and only its digest would show that, at the end. A size that
    # changes within a transfer is another file under the same name, which no correct leader has.
    return (
        response.snapshot_id == fetch.snapshot_id
        and response.position == fetch.position
        and fetch.size in (None, response.size)
        and 0 < len(response.data) <= response.size - fetch.position  # type: ignore[arg-type]
    )


def on_appended(context: Context, fetch_id: int, position: int) -> None:
    """Note that some bytes are written. After the last ones, order the freeze."""
    fetch = context.snapshot_fetch
    if fetch is None or fetch.fetch_id != fetch_id:
        return
    fetch.position = position
    fetch.is_writing = False
    if position == fetch.size:
        fetch.is_writing = True
        context.order(FreezeSnapshot(fetch_id, fetch.snapshot_id))


def on_received(context: Context, fetch_id: int) -> None:
    """The snapshot is whole and durable: if it is past the log, it replaces the log (SN-14)."""
    fetch = context.snapshot_fetch
    if fetch is None or fetch.fetch_id != fetch_id:
        return
    context.snapshot_fetch = None
    latest = context.log.latest_snapshot
    if latest is None or latest < fetch.snapshot_id:
        context.log.latest_snapshot = fetch.snapshot_id
    if context.log.is_replaced_by(fetch.snapshot_id) and holds_committed(context, fetch.snapshot_id):
        _take(context, fetch.snapshot_id)


def on_refused(context: Context, fetch_id: int) -> None:
    """It was damaged, or there was no room: fetch records again, and take the leader's next answer."""
    if context.snapshot_fetch is not None and context.snapshot_fetch.fetch_id == fetch_id:
        context.snapshot_fetch = None


def abandon(context: Context) -> None:
    """Give up the transfer."""
    if context.snapshot_fetch is not None:
        context.order(DropSnapshot(context.snapshot_fetch.fetch_id))
        context.snapshot_fetch = None


def _take(context: Context, snapshot_id: OffsetAndEpoch) -> None:
    check(not isinstance(context.state, Leader), "a leader is not given a snapshot (SN-15)", snapshot_id=snapshot_id)
    # Consider a log that starts at 300 and ends at 900, and a snapshot (1500, epoch 6): the log is empty afterwards,
    # starts and ends at 1500 behind epoch 6, and the next fetch is from 1500 in epoch 6. What was in it from 300 on is
    # in the snapshot, if it was committed.
    context.log.truncate_fully_and_start_at(snapshot_id)
    context.order(TruncateFullyAndStartAt(snapshot_id))
    context.high_watermark = snapshot_id.offset  # it was below: otherwise the snapshot would not replace the log
    context.order(AdvanceHighWatermark(snapshot_id.offset))
