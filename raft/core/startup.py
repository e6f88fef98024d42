"""The state in which a replica starts, from what is on disk."""

from __future__ import annotations

from raft.core.context import Context
from raft.core.election_state import ElectionState
from raft.core.elections import candidate_again
from raft.core.states import Follower, Resigned, State, Unattached


def initial_state(context: Context, found: ElectionState | None) -> State:
    """The first state (RF-104); `context.epoch` is the larger of the epoch found and the last one in the log.

    A leader starts as Resigned in its epoch, never as its leader: it might use offsets twice.
    """
    if found is None or found.epoch < context.epoch:
        return _unattached(context, None)
    own_id = context.own_id
    if context.is_voter and own_id is not None:
        if found.leader_id == own_id:
            others = context.other_voters()
            # Consider voter 1, which led epoch 5, wrote records 100 to 104, and crashed when they were flushed up to
            # 102. Voter 2 had fetched all five. If 1 continued as the leader of epoch 5, it would write another record
            # 102 of epoch 5. Then two records have the same epoch and the same offset, which no comparison of logs can
            # distinguish (`LogState.divergence`), and 2 would keep the old one for good. In epoch 6 or later, under any
            # leader, the logs are compared as usual.
            #
            # It may still send EndQuorumEpoch, so that the others need not wait for their fetch timeouts.
            return Resigned(
                epoch=context.epoch,
                voted_key=found.voted_key,
                election_deadline_ms=context.now_ms + context.election_timeout_ms(),
                unacknowledged=dict.fromkeys(others),
                preferred_candidates=tuple(key for key in context.voters.replica_keys() if key.node_id != own_id),
            )
        if found.leader_id is None and found.voted_key == context.key and context.may_be_elected:
            return candidate_again(context)
    if found.leader_id is not None and found.leader_id != own_id:
        endpoint = context.endpoint_of(found.leader_id)
        if endpoint is not None:
            return Follower(
                epoch=context.epoch,
                leader_id=found.leader_id,
                leader_endpoint=endpoint,
                voted_key=found.voted_key,
                fetch_deadline_ms=context.now_ms + context.config.fetch_timeout_ms,
            )
    return _unattached(context, found)


def _unattached(context: Context, found: ElectionState | None) -> Unattached:
    return Unattached(
        epoch=context.epoch,
        leader_id=None if found is None or found.leader_id == context.own_id else found.leader_id,
        voted_key=None if found is None else found.voted_key,
        election_deadline_ms=context.now_ms + context.election_timeout_ms() if context.may_be_elected else None,
    )
