"""Records known as committed are never truncated: a leader that lacks them is refused (RF-111).

A correct leader holds all committed records, so it is never refused. A gap appears only when a disk loses data.
Consider voters A, B and C with record 9 committed on A and B, and applied by them. A's directory is replaced by a copy
from last week; A and C elect A, whose log ends at 5, and it writes another record 6. Kafka's B would cut record 9 and
continue, with a state machine that holds what no log has. Our B keeps its log and refuses A: it cuts nothing, does not
follow, votes for no candidate that lacks record 9, and reports LEADER_LACKS_COMMITTED. Then:

- B stays Unattached, so its election timer runs. Once A is silent, other voters compare only logs when B asks for
  pre-votes; if B's log is up to date, B leads, with record 9.
- In the next epoch it follows any leader that does not lack record 9.
- It keeps fetching from A. A leader's log only grows, so an answer without a gap proves that the first answer was
  wrong, and B follows A again.

There are two deviations from RF-14, which requires only a log that is up to date.

- A voter refuses a candidate whose log ends below what the voter knows as committed. Every candidate that must be able
  to win holds all committed records, so this rule refuses none of them, and elections end as they would without it.
- It refuses a candidate whose log ends with a record of a leader that has shown a gap twice: such a log is that
  leader's log, with the gap. If no other voter has the missing record the cluster stops, rather than lose it. One
  answer is not enough: a damaged or forged one must not cost a candidate its vote.
"""

from __future__ import annotations

from kraftbase.types import Offset
from raft.core.actions import ReportRefusedLeader
from raft.core.messages import FetchResponse, VoteRequest
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.types import Batch, CommittedGap, LeaderAndEpoch, OffsetAndEpoch, RefusedLeader


def find_gap(replica: ReplicaState, response: FetchResponse, *, is_without_room: bool) -> CommittedGap | None:
    """Return the gap that a leader's answer to a fetch from the log's end shows; None if it shows none."""
    agreed_offset = _agreed_offset(replica, response, is_without_room=is_without_room)
    return None if agreed_offset is None else CommittedGap(agreed_offset, replica.committed_offset)


def _agreed_offset(replica: ReplicaState, response: FetchResponse, *, is_without_room: bool) -> Offset | None:
    log, snapshot_id, diverging = replica.log, response.snapshot_id, response.diverging_epoch
    if snapshot_id is not None:
        is_possible = snapshot_id.offset > 0 and 0 <= snapshot_id.epoch <= replica.epoch
        if not is_possible or holds_committed(replica, snapshot_id):
            return None
        return Offset(min(snapshot_id.offset, replica.kept_offset - 1))
    if diverging is not None:
        point = log.truncation_point(diverging)
        is_possible = diverging.epoch >= 0 and diverging.offset >= 0
        return point if is_possible and point < replica.kept_offset else None
    if replica.recovering is None or log.holds(replica.applied):
        return None
    return _agreed_while_recovering(replica, response.records, is_without_room=is_without_room)


def _agreed_while_recovering(
    replica: ReplicaState, batches: tuple[Batch, ...], *, is_without_room: bool
) -> Offset | None:
    """Whether the leader's log continues this one, which lacks applied records: the leader must send exactly those."""
    log, applied = replica.log, replica.applied
    # Consider a replica that applied everything below 20, the last record of epoch 4, and whose log was replaced by a
    # copy that ends at 12. It fetches from 12. What the leader must bring is a batch that ends at 20 in epoch 4:
    #
    #     batches that end before 20            more batches must come: nothing is known yet
    #     a batch that ends at 20 in epoch 4    this is what was applied
    #     a batch that ends at 25               20 is not where a batch ends, as it was when it was applied: a gap
    #     a batch that ends at 20 in epoch 5    another record 19: a gap
    #     no records at all                     the leader ends at 12 and lacks 12 to 19: a gap
    if log.end_offset >= applied.offset:
        return Offset(applied.offset - 1)  # the database agrees with a log that has other records there
    for batch in batches:
        if batch.end_offset >= applied.offset:
            is_applied = OffsetAndEpoch(epoch=batch.epoch, offset=batch.end_offset) == applied
            return None if is_applied else Offset(applied.offset - 1)
    return None if batches or is_without_room else log.end_offset


def holds_committed(replica: ReplicaState, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether a snapshot of a leader's log may hold everything that this replica knows as committed."""
    kept_offset = replica.kept_offset
    if kept_offset <= 0:
        return True
    # Consider a replica that knows 120 as committed, with record 119 of epoch 4. A snapshot that ends at 100 lacks
    # records. One at 120 must be of epoch 4, since it ends with the same record. One at 150 may be of epoch 4 or
    # higher; in epoch 3 it holds another record 119, since epochs do not fall along a log.
    epoch = replica.log.epochs.epoch_before(kept_offset)
    if snapshot_id.offset == kept_offset:
        return snapshot_id.epoch == epoch
    return snapshot_id.offset > kept_offset and snapshot_id.epoch >= epoch


def goes_on_with_refused(replica: ReplicaState, request: VoteRequest) -> bool:
    """Whether the candidate's log ends with a record of a leader whose log lacks records known here as committed."""
    # Consider voters 1, 2 and 3, and leader 1 in epoch 5 whose log lacks record 9, which 2 has applied. A candidate
    # whose log ends at 9 or below is refused by its length. If 3 has fetched from 1, its log may end at 12, with a
    # record of epoch 5 at the end: such a log is that of 1, gap and all, and 2 refuses it, too, once 1 has shown the
    # gap twice.
    refused = replica.refused_leader
    return refused is not None and refused.answers > 1 and request.last_epoch == refused.leader.epoch


def is_refused(replica: ReplicaState, leader: LeaderAndEpoch) -> bool:
    """Whether the leader of that epoch has shown a gap."""
    return replica.refused_leader is not None and replica.refused_leader.leader == leader


def note_gap(replica: ReplicaState, output: Output, gap: CommittedGap) -> None:
    """Note that the leader of this epoch has shown a gap."""
    refused = replica.refused_leader
    if refused is not None and refused.leader == replica.leader:
        replica.refused_leader = refused._replace(answers=refused.answers + 1)
        return
    replica.refused_leader = RefusedLeader(replica.leader, gap, answers=1)
    output.order(ReportRefusedLeader(replica.refused_leader))


def note_no_gap(replica: ReplicaState, output: Output) -> None:
    """Note that a leader's log continues this one, or that this replica leads."""
    if replica.refused_leader is not None:
        replica.refused_leader = None
        output.order(ReportRefusedLeader(None))
