"""Failover by evidence: followers abandon a leader whose address refuses connections before the fetch timeout (RF-30).

When a process ends, the kernel of its machine refuses connections to its port at once. A follower that sees this need
not wait for the fetch timeout, which is meant for a silent leader. Votes and epochs follow the usual rules; only the
time changes from which a follower asks for pre-votes and grants them.
"""

from __future__ import annotations

from typing import Final

from raft.core.connections import Pending
from raft.core.decisions import ElectionPutOff
from raft.core.environment import Environment
from raft.core.messages import FetchRequest, FetchSnapshotRequest
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Follower

REFUSED_MS: Final = 100
"""How long a leader's address must refuse every connection before its followers abandon it: a link that flaps, or a
firewall that is loaded again, refuses for less.
"""

TURN_MS: Final = 50
"""How long each further voter waits for the previous voter to be elected."""

JITTER_MS: Final = 25

PAUSE_MS: Final = 1_000
"""How long a follower that lost a pre-vote follows before refused connections count again."""


def on_failed(
    environment: Environment,
    replica: ReplicaState,
    output: Output,
    pending: Pending | None,
    *,
    is_refused: bool = False,
) -> None:
    """A request failed or timed out, unless it was abandoned. Refused: no process listens at the address."""
    if pending is None:
        return
    output.connections.back_off(pending.endpoint, environment.now_ms)
    state = replica.state
    if not isinstance(state, Follower) or not isinstance(pending.request, FetchRequest | FetchSnapshotRequest):
        return
    if pending.endpoint != state.leader_endpoint:
        return
    if not is_refused:
        state.refused_since_ms = None
        return
    if environment.now_ms < state.refusals_count_from_ms:
        return
    # Only refusals in a row count. Consider a link that flaps for a millisecond at 0 ms, and again at 320 ms. The fetch
    # that was sent at 20 ms was accepted and parked, and broke at 320 ms: the refusals after that begin a new row. So
    # does a refusal that took long to arrive, as on a slow link: there the fetch timeout decides.
    if state.refused_since_ms is None or environment.now_ms - pending.sent_ms >= REFUSED_MS:
        state.refused_since_ms = environment.now_ms
    if environment.now_ms - state.refused_since_ms < REFUSED_MS or state.is_given_up:
        return
    # Consider voters 1, 2 and 3, and the process of 1, the leader, is killed. 2 and 3 both find its address closed
    # within a millisecond, and 100 ms later both abandon it: each grants the other's pre-vote from then on. If both
    # asked at once, both would open epoch 6, vote for themselves, and wait for a second. So they take turns: 2 asks
    # first. If its log is shorter than that of 3 it is rejected, and 50 ms later 3 asks, and wins.
    #
    # Consider a firewall between 3 and the leader that refuses connections, and a leader that 2 still fetches from. 3
    # asks for pre-votes after 100 ms instead of two seconds, 2 rejects them, and the leader continues. Then 3 follows
    # for a second before refusals count again.
    state.is_given_up = True
    state.has_fetched = False
    if replica.may_be_elected(environment):
        state.fetch_deadline_ms = min(state.fetch_deadline_ms, environment.now_ms + _wait_ms(environment, state))
        reason = f"the address of leader {state.leader_id} refuses connections, and its voters take turns"
        output.decisions.append(ElectionPutOff(state.fetch_deadline_ms - environment.now_ms, reason))


def asks_only_the_leader(environment: Environment, replica: ReplicaState, state: Follower) -> bool:
    """Whether this replica checks if the leader's process has ended, and so asks no other node for the leader."""
    # Consider five voters: the leader is killed, and another one is paused. There is one fetch at a time, so a fetch to
    # the paused one would take the place of those that show that the leader is gone, until it times out.
    return state.refused_since_ms is not None and not state.is_given_up and replica.may_be_elected(environment)


def _wait_ms(environment: Environment, state: Follower) -> int:
    others = sorted(key.node_id for key in environment.voters.replica_keys() if key.node_id != state.leader_id)
    turn = others.index(environment.own_id) if environment.own_id in others else len(others)
    return turn * TURN_MS + environment.random.randrange(JITTER_MS)
