"""The high watermark: how a leader advances it, and how other replicas adopt it (RF-41 to RF-46)."""

from __future__ import annotations

from kraftbase.checks import check
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import Offset
from raft.core.actions import AdvanceHighWatermark, CompleteAppend
from raft.core.environment import Environment
from raft.core.fetch_answers import release_behind
from raft.core.output import Output
from raft.core.quorum import majority_end_offset
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader


def advance(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """Advance the high watermark to the offset that a majority has, if it is past the epoch's start (RF-41 to RF-43).

    For itself the leader counts only flushed records, so it cannot lose what it counts as committed (RF-45). Observers
    do not count (RF-44). If the high watermark moves, appends are completed, parked fetches released, and the new value
    is announced (PK-08).
    """
    end_offsets = [
        UNKNOWN_OFFSET if progress.is_recovering else progress.end_offset for progress in leader.voters.values()
    ]
    if environment.is_voter:
        # Written records that are not flushed do not count, on a leader or a follower. Consider a leader with a log to
        # 110, flushed to 100, and two followers that fetch from 110 and from 90: the high watermark is 100, by the
        # leader and the first follower. When the second follower reaches 110, the two followers commit it, and the
        # leader's own flush may come later.
        end_offsets.append(replica.log.flushed_end_offset)
    reached = min(majority_end_offset(end_offsets), replica.log.end_offset)
    if reached <= leader.epoch_start_offset or reached <= leader.high_watermark:
        return
    check(reached >= replica.high_watermark, "the high watermark never decreases", reached=reached)
    # Why the offset must be past the start of the epoch: consider five voters, and record 10 of epoch 2, which its
    # leader, 1, has sent to 2 only. 1 crashes; 5 leads epoch 3 by the votes of 3, 4 and 5, writes another record 10,
    # and crashes. 1 is back, leads epoch 4, and sends its record 10 to 3: now it is on three of five. If that committed
    # it, 5 could still win epoch 5, since its log ends in epoch 3 and those of 2 and 3 end in epoch 2, and would cut
    # it. With a record of epoch 4 on the same three, 5 can no longer win: their logs end in a later epoch than its own.
    # So only the leader change at 11 commits record 10 (RF-42).
    leader.high_watermark = reached
    # Why the order of PK-08: consider a client that waits for record 100, a follower with a parked fetch, and a
    # listener that takes a second to apply a batch. The client and the follower, whose fetch commits the next record,
    # do not wait for the listener.
    for append_id in leader.accumulator.take_committed(reached):
        output.order(CompleteAppend(append_id))
    release_behind(environment, replica, output, leader)
    _announce(replica, output, reached)


def take(replica: ReplicaState, output: Output, high_watermark: Offset) -> None:
    """Adopt the leader's high watermark, up to the end of this log (RF-46).

    A new leader's high watermark is below its followers' until a record of its epoch is committed: a lower one changes
    nothing. While this log lacks applied records, the leader has not shown that its own log holds it, and its high
    watermark is ignored.
    """
    # Consider a replica that has applied everything below 20, whose log is damaged from 10 on, and a leader whose log
    # is another one from 10 to 19. Its answers look correct until 19 arrives, so until then its high watermark is
    # ignored.
    if replica.recovering is not None and not replica.log.holds(replica.applied):
        return
    known = Offset(min(high_watermark, replica.log.end_offset))
    if known > replica.high_watermark:
        _announce(replica, output, known)


def take_snapshot_end(replica: ReplicaState, output: Output, end_offset: Offset) -> None:
    """Raise the high watermark to the end of a snapshot that has replaced the log: everything in it is committed."""
    _announce(replica, output, end_offset)  # it was lower, or the snapshot would not replace the log


def _announce(replica: ReplicaState, output: Output, high_watermark: Offset) -> None:
    replica.high_watermark = high_watermark
    output.order(AdvanceHighWatermark(high_watermark))
