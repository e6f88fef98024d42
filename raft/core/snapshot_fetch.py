"""How a replica fetches a snapshot from the leader when it is behind the leader's log (SN-10 to SN-14).

While it does, it fetches no records. An interrupted transfer resumes at the byte where it stopped, also with another
leader that offers the same snapshot.
"""

from __future__ import annotations

from kraftbase.checks import check
from kraftbase.errors import ErrorCode
from raft.core import high_watermark
from raft.core.actions import (
    AppendSnapshot,
    DropSnapshot,
    FreezeSnapshot,
    TruncateFullyAndStartAt,
)
from raft.core.committed import holds_committed
from raft.core.environment import Environment
from raft.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.snapshot_fetch_state import SnapshotFetch
from raft.core.states import Follower, Leader
from raft.core.types import OffsetAndEpoch


def on_offer(replica: ReplicaState, output: Output, snapshot_id: OffsetAndEpoch) -> bool:
    """Fetch the snapshot that the leader offers. False: this replica cannot use it, and nothing was changed."""
    if snapshot_id.offset < 1 or not 0 <= snapshot_id.epoch <= replica.epoch:
        return False
    if not holds_committed(replica, snapshot_id) or not replica.log.is_replaced_by(snapshot_id):
        return False
    if snapshot_id == replica.log.latest_snapshot:
        abandon(replica, output)
        _take(replica, output, snapshot_id)
        return True
    # Consider a snapshot of 40 MB, of which 30 have arrived when the leader crashes. Its successor takes its own
    # snapshots; those with the same id are the same bytes on every node. If it offers this one, the transfer resumes
    # at byte 30,000,000.
    if replica.snapshot_fetch is not None and replica.snapshot_fetch.snapshot_id == snapshot_id:
        replica.snapshot_fetch.offered_in = replica.epoch
        return True
    abandon(replica, output)
    replica.snapshot_fetches += 1
    replica.snapshot_fetch = SnapshotFetch(replica.snapshot_fetches, snapshot_id, replica.epoch)
    return True


def next_request(environment: Environment, replica: ReplicaState) -> FetchSnapshotRequest | None:
    """The next request to the leader; None if no snapshot of that leader is being fetched."""
    fetch = replica.snapshot_fetch
    # A new leader is asked for records first: its log may start at a lower offset, and have everything that this
    # replica lacks. Then it answers with records, and the transfer is abandoned. Else it offers a snapshot, this one or
    # a newer one.
    if fetch is None or fetch.offered_in != replica.epoch:
        return None
    return FetchSnapshotRequest(
        cluster_id=environment.cluster_id,
        replica_key=environment.key,
        current_leader_epoch=replica.epoch,
        snapshot_id=fetch.snapshot_id,
        position=fetch.position,
        max_bytes=environment.config.fetch_snapshot_max_bytes,
    )


def on_fetch_snapshot_response(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    request: FetchSnapshotRequest,
    response: FetchSnapshotResponse,
) -> bool:
    """Write the next bytes. Return False to back off from that peer (SN-13)."""
    state, fetch = replica.state, replica.snapshot_fetch
    if not isinstance(state, Follower) or request.current_leader_epoch != state.epoch:
        return True
    if fetch is None or fetch.snapshot_id != request.snapshot_id or fetch.position != request.position:
        return True
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        abandon(replica, output)
        return False
    if response.error is not ErrorCode.NONE:
        return False
    if not _follows(fetch, response):
        abandon(replica, output)
        return False
    fetch.size = response.size
    fetch.is_writing = True
    output.order(AppendSnapshot(fetch.fetch_id, fetch.snapshot_id, response.data))
    state.fetched(environment.now_ms + environment.config.fetch_timeout_ms)  # SN-11
    return True


def _follows(fetch: SnapshotFetch, response: FetchSnapshotResponse) -> bool:
    """Whether these are the next bytes of that snapshot, and its size has not changed."""
    # Consider an answer with the bytes from 2,000,000 on to a request for those from 4,000,000 on. If those bytes were
    # written, the file would be damaged in the middle, and only its digest would show the damage, at the end. A size
    # that changes within a transfer is another file under the same name, which no correct leader has.
    return (
        response.snapshot_id == fetch.snapshot_id
        and response.position == fetch.position
        and fetch.size in (None, response.size)
        and 0 < len(response.data) <= response.size - fetch.position
    )


def on_appended(replica: ReplicaState, output: Output, fetch_id: int, position: int) -> None:
    """Record that some bytes are written. After the last ones, order the freeze."""
    fetch = replica.snapshot_fetch
    if fetch is None or fetch.fetch_id != fetch_id:
        return
    fetch.position = position
    fetch.is_writing = False
    if position == fetch.size:
        fetch.is_writing = True
        output.order(FreezeSnapshot(fetch_id, fetch.snapshot_id))


def on_received(replica: ReplicaState, output: Output, fetch_id: int) -> None:
    """The snapshot is whole and durable: replace the log by it if it is past the log (SN-14)."""
    fetch = replica.snapshot_fetch
    if fetch is None or fetch.fetch_id != fetch_id:
        return
    replica.snapshot_fetch = None
    latest = replica.log.latest_snapshot
    if latest is None or latest < fetch.snapshot_id:
        replica.log.latest_snapshot = fetch.snapshot_id
    if replica.log.is_replaced_by(fetch.snapshot_id) and holds_committed(replica, fetch.snapshot_id):
        _take(replica, output, fetch.snapshot_id)


def on_refused(replica: ReplicaState, fetch_id: int) -> None:
    """The snapshot was damaged, or the disk had no room: fetch records again, and accept the leader's next offer."""
    if replica.snapshot_fetch is not None and replica.snapshot_fetch.fetch_id == fetch_id:
        replica.snapshot_fetch = None


def abandon(replica: ReplicaState, output: Output) -> None:
    """Abandon the transfer."""
    if replica.snapshot_fetch is not None:
        output.order(DropSnapshot(replica.snapshot_fetch.fetch_id))
        replica.snapshot_fetch = None


def _take(replica: ReplicaState, output: Output, snapshot_id: OffsetAndEpoch) -> None:
    check(not isinstance(replica.state, Leader), "a leader fetches no snapshot (SN-15)", snapshot_id=snapshot_id)
    # Consider a log that starts at 300 and ends at 900, and a snapshot (1500, epoch 6): the log is empty afterwards,
    # starts and ends at 1500 behind epoch 6, and the next fetch is from 1500 in epoch 6. The snapshot has every
    # committed record that the log held from 300 on.
    replica.log.truncate_fully_and_start_at(snapshot_id)
    output.order(TruncateFullyAndStartAt(snapshot_id))
    high_watermark.take_snapshot_end(replica, output, snapshot_id.offset)
