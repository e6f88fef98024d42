"""Bugs of elections: votes that are forgotten or granted wrongly, and leaders that should not lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraftbase.types import Epoch, Offset
from kraftlog.sim.engine.mutation import instead, mutation
from raft.core import elections, leader_discovery, leading, newcomers, refusals, startup, transitions, vote_refusals
from raft.core import replica as replica_module
from raft.core.actions import PersistElectionState, TruncateLog
from raft.core.connections import Pending
from raft.core.environment import Environment
from raft.core.messages import VoteRequest, VoteResponse
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Candidate, Leader, State, Unattached
from raft.core.types import ReplicaKey
from raft.core.voters import VoterSet
from raft.storage import quorum_state
from raft.storage.quorum_state import QuorumStateStore


@mutation("a vote is not made durable", "PySyncObj #84")
def vote_not_persisted() -> list[Any]:
    """The vote is sent without a trace on disk."""
    enter = transitions.enter

    def forgetful(environment: Environment, replica: ReplicaState, output: Output, state: State) -> None:
        before = len(output.actions)
        enter(environment, replica, output, state)
        if isinstance(state, Unattached) and state.voted_key is not None:
            kept = [action for action in output.actions[before:] if not isinstance(action, PersistElectionState)]
            output.actions[before:] = kept

    return [instead(transitions, "enter", forgetful)]


@mutation("the epoch and the vote are forgotten at a restart", "PySyncObj #201")
def epoch_forgotten() -> list[Any]:
    """The quorum state exists but is not used."""
    load = QuorumStateStore.load

    def forgetful(self: QuorumStateStore) -> None:
        load(self)

    return [instead(QuorumStateStore, "load", forgetful)]


@mutation("the quorum state is not synced", "etcd #14143")
def quorum_state_not_synced() -> list[Any]:
    """The quorum state is written, but the vote is sent before it is on disk."""
    save = QuorumStateStore.save

    def hasty(self: QuorumStateStore, state: Any) -> None:
        if self._sequence == 0:
            save(self, state)
            return
        data = quorum_state.encode_copy(self._sequence + 1, state)
        for file in self._open_files or [self._files.open(path) for path in self._paths]:
            file.write_at(0, data)
        self._sequence += 1

    return [instead(QuorumStateStore, "save", hasty)]


@mutation("the directory id of a vote is forgotten", "KAFKA-16526")
def voted_directory_forgotten() -> list[Any]:
    """Only the node id of the candidate is kept."""
    encode_copy = quorum_state.encode_copy

    def forgetful(sequence: int, state: Any) -> bytes:
        if state.voted_key is not None:
            state = type(state)(
                epoch=state.epoch, leader_id=state.leader_id, voted_key=ReplicaKey(state.voted_key.node_id)
            )
        return encode_copy(sequence, state)

    return [instead(quorum_state, "encode_copy", forgetful)]


@mutation("a wiped voter is taken for the old one", "KAFKA-14077")
def directory_ids_ignored() -> list[Any]:
    """Any process with the voter's node id counts as the voter."""

    def is_voter(self: VoterSet, key: ReplicaKey) -> bool:
        return self.get(key.node_id) is not None

    return [instead(VoterSet, "is_voter", is_voter)]


@mutation(
    "a new directory votes for any candidate",
    "KAFKA-14077",
    faults=("disk: wiped under the same id", "process: the leader is killed", "network: a node is isolated"),
)
def new_directory_votes() -> list[Any]:
    """An empty voter votes for any candidate with a log, although it may have acknowledged more records."""

    def may_vote_for(replica: ReplicaState, request: VoteRequest) -> bool:
        return replica.recovering is None or replica.recovering.has_forgotten

    return [instead(newcomers, "may_vote_for", may_vote_for)]


@mutation("a vote request of an unknown id is accepted", "RF-15, RF-17", faults=("input: a stranger's claims",))
def vote_of_anybody() -> list[Any]:
    """Any process that requests a vote opens an epoch and may get the vote."""

    def may_be_voter(environment: Environment, key: ReplicaKey) -> bool:
        return True

    return [instead(elections, "may_be_voter", may_be_voter)]


@mutation("a leader of any id is followed", "RF-70", faults=("input: a stranger's claims",))
def leader_of_any_id() -> list[Any]:
    """Any process that claims to lead with a voter's id is followed, with any directory id."""

    def may_be_voter(environment: Environment, key: ReplicaKey) -> bool:
        return True

    return [instead(leader_discovery, "may_be_voter", may_be_voter)]


@mutation("a vote goes to a shorter log", "RF-14")
def log_not_compared() -> list[Any]:
    """The first candidate gets the vote, whatever its log."""

    def refuse_log(replica: ReplicaState, request: VoteRequest) -> str | None:
        return None

    return [instead(vote_refusals, "refuse_log", refuse_log)]


@mutation("a vote is given twice in an epoch", "RF-08")
def votes_twice() -> list[Any]:
    """A granted vote does not prevent another one."""

    def refuse_vote(replica: ReplicaState, request: VoteRequest) -> str | None:
        return vote_refusals.refuse_log(replica, request) if isinstance(replica.state, Unattached) else "it is busy"

    def add_vote(environment: Environment, replica: ReplicaState, output: Output, key: ReplicaKey) -> None:
        return None

    return [instead(vote_refusals, "refuse_vote", refuse_vote), instead(elections, "_add_vote", add_vote)]


@mutation("a pre-vote opens an epoch", "KIP-996")
def pre_vote_counts() -> list[Any]:
    """A pre-vote request raises the epoch of its receiver."""
    on_vote_request = elections.on_vote_request

    def eager(environment: Environment, replica: ReplicaState, output: Output, request: VoteRequest) -> VoteResponse:
        response = on_vote_request(environment, replica, output, request)
        if response.vote_granted and request.pre_vote and isinstance(replica.state, Unattached):
            transitions.become_unattached(environment, replica, output, Epoch(replica.epoch + 1))
        return replace(response, leader=replica.leader)

    return [instead(elections, "on_vote_request", eager)]


@mutation("a leader keeps its epoch after a restart", "RF-13")
def leads_on() -> list[Any]:
    """The leader assigns offsets again that it has already used, to other records of the same epoch."""
    initial_state = startup.initial_state

    def confident(environment: Environment, replica: ReplicaState, output: Output, found: Any) -> State:
        led = found is not None and found.epoch == replica.epoch and found.leader_id == environment.own_id
        if led and replica.may_be_elected(environment):
            candidate = startup._candidate_again(environment, replica, output)
            for voter_id in candidate.votes.unrecorded():
                candidate.votes.record(voter_id, True)
            return candidate
        return initial_state(environment, replica, output, found)

    poll = elections.poll

    def poll_on(environment: Environment, replica: ReplicaState, output: Output, state: Any) -> None:
        if isinstance(state, Candidate) and state.votes.is_won:
            transitions.become_leader(environment, replica, output, state)
        else:
            poll(environment, replica, output, state)

    return [instead(replica_module, "initial_state", confident), instead(elections, "poll", poll_on)]


@mutation("the log is cut when a vote is granted", "nebula #1303")
def cut_on_vote() -> list[Any]:
    """Records not known to be committed are truncated for the candidate."""
    add_vote = elections._add_vote

    def rolling_back(environment: Environment, replica: ReplicaState, output: Output, key: ReplicaKey) -> None:
        add_vote(environment, replica, output, key)
        _cut(replica, output)

    return [instead(elections, "_add_vote", rolling_back)]


@mutation("the log is cut when leadership is lost", "CCF #5674")
def cut_on_step_down() -> list[Any]:
    """Records that the former leader does not know as committed are truncated, although other voters may have them."""
    release_waiting = transitions._release_waiting

    def rolling_back(environment: Environment, replica: ReplicaState, output: Output, left: Leader) -> None:
        release_waiting(environment, replica, output, left)
        _cut(replica, output)

    return [instead(transitions, "_release_waiting", rolling_back)]


def _cut(replica: ReplicaState, output: Output) -> None:
    to = Offset(max(replica.high_watermark, replica.log.start_offset))
    if to < replica.log.end_offset:
        replica.log.truncate(to)
        output.order(TruncateLog(to))


@mutation(
    "a fetch after the check-quorum timeout counts",
    "found here, seed in tests/seeds",
    # With fewer voters one fetch is enough, and the correct replica resigns no earlier.
    voters=5,
    faults=("process: the leader is paused",),
)
def late_fetch_counts() -> list[Any]:
    """After a pause, one late fetch and the fetches from before the pause add up to a majority."""

    def note_contact(environment: Environment, leader: Leader, key: ReplicaKey) -> None:
        if key.node_id not in leader.voters or not environment.voters.is_voter(key):
            return
        leader.fetched_since_check[key.node_id] = None
        if len(leader.fetched_since_check) >= environment.voters.majority - 1:
            leader.fetched_since_check.clear()
            leader.check_quorum_deadline_ms = environment.now_ms + environment.config.check_quorum_timeout_ms

    return [instead(leading, "note_contact", note_contact)]


@mutation("a leader without a quorum does not resign", "KAFKA-15489")
def no_check_quorum() -> list[Any]:
    """No replica fetches, but the leader still believes that it leads."""
    become_leader = transitions.become_leader

    def believing(environment: Environment, replica: ReplicaState, output: Output, candidate: Candidate) -> None:
        become_leader(environment, replica, output, candidate)
        if isinstance(replica.state, Leader):
            replica.state.check_quorum_deadline_ms = None

    def note_contact(environment: Environment, leader: Leader, key: ReplicaKey) -> None:
        return None

    return [
        instead(elections, "become_leader", believing),
        instead(leading, "note_contact", note_contact),
    ]


# --- leaders that are abandoned too soon ------------------------------------------------------------------------------


@mutation("one refused connection is enough", "RF-30", faults=("network: connections are refused for a moment",))
def refused_once() -> list[Any]:
    """A flapping link costs a leader its followers."""
    return [instead(refusals, "REFUSED_MS", 0)]


@mutation("a request that fails counts as refused", "RF-30", faults=("network: batches arrive damaged",))
def failed_is_refused() -> list[Any]:
    """A failed request is no evidence of a dead leader, but the leader is abandoned."""
    on_failed = refusals.on_failed

    def careless(
        environment: Environment,
        replica: ReplicaState,
        output: Output,
        pending: Pending | None,
        *,
        is_refused: bool = False,
    ) -> None:
        on_failed(environment, replica, output, pending, is_refused=True)

    return [instead(refusals, "on_failed", careless)]
