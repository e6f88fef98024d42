"""A replica whose log lacks what it once had: when it takes part again (RF-110; `raft.core.newcomers` for RF-112)."""

from __future__ import annotations

from raft.core import newcomers
from raft.core.environment import Environment
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Follower, Unattached
from raft.core.types import RecoveringLog


def poll(environment: Environment, replica: ReplicaState, output: Output, recovering: RecoveringLog) -> None:
    """End recovery if the log has everything again; else send requests for what is missing to know that."""
    _check_recovered(environment, replica, output, recovering)
    if isinstance(replica.state, Follower):  # other replicas ask the voters anyway, for a leader or for votes
        newcomers.ask_for_epochs(environment, replica, output, replica.state)


def _check_recovered(
    environment: Environment, replica: ReplicaState, output: Output, recovering: RecoveringLog
) -> None:
    """End recovery once the log has everything again that this replica may have acknowledged (RF-110).

    That is when the log reaches as far as it once did; or as far as a leader's log, which holds everything that this
    replica fetched from it or may have helped to commit before; or up to the high watermark of a leader of a later
    epoch than the one in which the damage was found. In the same epoch the leader may still count a fetch from before
    the damage. A replica in a new directory knows no epoch: it must reach the leader's log end, after other voters have
    answered (`raft.core.newcomers`).
    """
    state, flushed = replica.state, replica.log.flushed_end_offset
    if recovering.has_forgotten and not newcomers.has_heard_enough(environment, replica):
        return
    if flushed < replica.applied.offset or not replica.log.holds(replica.applied):
        return  # it lacks records that it applied
    # Consider voters 1, 2 and 3. Voter 1 had records up to 8, and damage leaves it those up to 4: it recovers until 9,
    # and the damage was found in epoch 4. While it recovers it grants no vote and counts for no commit. It may take
    # part again when its vote can elect no leader that lacks what its acknowledgments have committed, or may still
    # commit. Until then it fetches from leaders of epoch 4 or later, since it follows no lower one.
    #
    # It has 9 again: enough. It never acknowledged more, and all of it that was committed is in the logs of those
    # leaders.
    #
    # It is level with a leader's log: enough. Say the leader of epoch 4 had no record for it when it fetched from 7. A
    # leader's log only grows, so whatever 1 acknowledged to this leader is below 7. If it once had 7 and 8 it had them
    # from an older leader, and as this one lacks them they were not committed. (An answer that is empty because this
    # replica has no room for its records, `ResponseReceived.is_without_room`, does not show the leader's end.)
    #
    # It has all that a leader of epoch 5 or later knows as committed: enough. Such a leader's high watermark comes from
    # its own epoch, so it covers everything committed before, with or without an acknowledgment of 1, and in epoch 5 no
    # acknowledgment of 1 counts yet.
    #
    # It has all that the leader of epoch 4 knows as committed: not enough. Let 2 lead epoch 4 with a log that ends at 9
    # and a high watermark of 8, and let a fetch of 1 from 9, sent before the damage, still be on its way. 1 fetches up
    # to 8, ends its recovery, and in epoch 5 votes for 3, whose log ends at 8. Then the old fetch reaches 2, which
    # commits record 8 with it. The leader of epoch 5 does not have that record.
    is_past = flushed >= recovering.until_offset
    if isinstance(state, Follower):
        is_past = is_past or 0 <= state.leader_end_offset <= flushed
        if state.epoch > recovering.epoch and not recovering.has_forgotten:
            is_past = is_past or 0 <= state.leader_high_watermark <= flushed
    if not is_past:
        return
    newcomers.end(replica, output)
    if isinstance(state, Unattached) and replica.may_be_elected(environment) and not replica.shutdown.is_requested:
        state.election_deadline_ms = environment.now_ms + environment.election_timeout_ms()
