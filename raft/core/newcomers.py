"""A voter with a new directory: it cannot know whether it voted and acknowledged with an earlier one (RF-112).

Consider six voters, known by node ids alone. Voters 1 to 4 hold a record that was acknowledged; 5 and 6 lag. Now the
disks of 2, 3 and 4 are replaced by empty ones, and 1 is down. By Raft's rule 2, 3 and 4 may vote for 5, whose log is
longer than theirs: 5 leads, and the record is lost. So a voter in a new directory takes no part until it holds
everything that its node may have acknowledged before:

- It grants votes only to candidates with an empty log, and is elected only with an empty log itself. Its fetches are
  marked as recovering, so that it does not count for the high watermark. Above, 5 gets two votes of the four that it
  needs, and 2 gets three: there is no leader until two of the old disks are back.
- It founds: when it becomes a candidate, or votes for a candidate, it is no longer new. A candidate has won a pre-vote,
  so a majority of the voters had nothing. A voter that has once followed a leader may not found, so that one whose disk
  was lost does not found a second quorum with one that has not caught up in the first. One case remains: the records
  are on 1 and 2 of three voters, 2 loses its disk and is formatted as new while 1 is down, and 3 was never reached by a
  leader. `format` asks the other voters, and then none reports a record; `format --replace` is right, and founds
  nothing.
- It joins: it is no longer new when it is level with the end of a leader's log, after enough other voters have sent
  their epochs. Consider three voters. Voter 1 leads epoch 5, is cut off, and still leads for a while. Voters 2 and 3
  elect 2 in epoch 6 and commit a record. Now 3 gets a new disk, 2 is cut off, and 1 is reachable again: it is a leader,
  but being level with it proves nothing. Every leader was elected by a majority. Of any `count - majority + 1` other
  voters, at least one is in each majority that this voter may have been part of. A voter that voted in an epoch answers
  with that epoch or a higher one, and a higher one is entered. (A voter that has a new disk, too, may have lost its
  epoch.)

Why a new quorum elects: until a candidate is elected no log has a record, so any voter may vote for any other. The
leader has the votes of a majority, and those voters have founded: from then on they vote, are elected and count as in
Raft, and they are a majority. The others join behind the leader. A constant load does not keep them out for ever: a
load that cannot be committed without them stops.

Why nothing is lost: except for founding, the rule only withholds votes. It is stricter than RF-14 and RF-17, by which
such a voter votes for any candidate whose log is no shorter. The cost: while a voter is new, it cannot stand in for
another one that is down. That case cannot be distinguished from the loss above.
"""

from __future__ import annotations

from raft.core.actions import EndFounding, EndRecovering
from raft.core.connections import Pending
from raft.core.environment import Environment
from raft.core.messages import Response, VoteRequest
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Follower


def may_vote_for(replica: ReplicaState, request: VoteRequest) -> bool:
    """Whether a replica that may have forgotten a vote may vote for that candidate; the logs are compared elsewhere."""
    return replica.recovering is None or (replica.may_found and request.last_offset == 0)


def end(replica: ReplicaState, output: Output) -> None:
    """End the recovery: the replica has what it lacked, or has founded a new quorum."""
    if replica.recovering is not None:
        replica.recovering = None
        output.order(EndRecovering())


def end_founding(replica: ReplicaState, output: Output) -> None:
    """A leader exists or existed: a quorum was founded, and its founders are a majority without this replica."""
    if replica.recovering is not None and replica.recovering.may_found:
        replica.recovering = replica.recovering._replace(may_found=False)
        output.order(EndFounding())


def note_answer(environment: Environment, replica: ReplicaState, pending: Pending, response: Response) -> None:
    """Record that a voter answered: its epoch is known, and entered if it was higher."""
    if replica.recovering is None or not replica.recovering.has_forgotten or response.leader.epoch > replica.epoch:
        return
    for voter in environment.voters.voters():
        if voter.endpoint == pending.endpoint and voter.key.node_id != environment.own_id:
            replica.heard.add(voter.key.node_id)


def has_heard_enough(environment: Environment, replica: ReplicaState) -> bool:
    """Whether the voters that answered include one of every majority that this voter may have been part of."""
    #     3 voters: a majority with this one has 1 of the 2 others; 2 answered, so it is among them
    #     4 voters: a majority with this one has 2 of the 3 others; 2 answered, so one of it is among them
    #     5 voters: a majority with this one has 2 of the 4 others; 3 answered, so one of it is among them
    return len(replica.heard) > len(environment.voters) - environment.voters.majority


def ask_for_epochs(environment: Environment, replica: ReplicaState, output: Output, state: Follower) -> None:
    """Send a pre-vote to voters that have not answered yet; the vote is not counted."""
    recovering, key = replica.recovering, environment.key
    if recovering is None or not recovering.has_forgotten or key is None or has_heard_enough(environment, replica):
        return
    for voter in environment.voters.voters():
        if voter.key.node_id in replica.heard or voter.key.node_id == environment.own_id:
            continue
        if voter.endpoint == state.leader_endpoint or not output.connections.is_ready(voter.endpoint):
            continue
        # A pre-vote: every voter answers it in every state, with its own epoch, and it has no effect but the epoch that
        # it names (RF-15, RF-16). A real vote would open an epoch, and only the leader would answer a fetch.
        request = VoteRequest(
            cluster_id=environment.cluster_id,
            voter_key=voter.key,
            replica_key=key,
            replica_epoch=replica.epoch,
            last_epoch=replica.log.last_epoch,
            last_offset=replica.log.end_offset,
            pre_vote=True,
        )
        output.send(voter.endpoint, request, replica.epoch, environment.now_ms)
