"""When a replica rebuilds its state machine: without an operator, and one voter at a time.

A fenced state machine cannot serve until it is rebuilt from a snapshot and the log, which takes its node down for some
seconds. So a fenced replica asks with each fetch, and the leader permits one voter at a time; an observer never waits,
because it does not count.

No replica waits for ever. Consider three voters whose databases are all corrupted: none may be elected, so there is no
leader to permit a rebuild. So a replica without permission starts after a random wait, from REBUILD_WAIT_MS up to twice
that: no data can be lost by it, because its log stays as it is. The same holds under a leader of a version that permits
nothing, and a sole voter does not wait at all. A permitted voter that does not come back keeps the others waiting for
at most REBUILD_LEASE_MS. A new leader does not know of earlier permissions and permits the first that asks, so two may
rebuild at once then.
"""

from __future__ import annotations

from typing import Final

from raft.core.actions import RebuildStateMachine
from raft.core.environment import Environment
from raft.core.membership import may_be_voter
from raft.core.messages import FetchRequest
from raft.core.output import Output
from raft.core.replica_state import LocalStateMachine
from raft.core.states import Leader, ReplicaProgress

REBUILD_WAIT_MS: Final = 60_000
REBUILD_LEASE_MS: Final = 60_000
REBUILD_MIN_MS: Final = 1_000


def fence(environment: Environment, machine: LocalStateMachine) -> None:
    """Fence this replica's state machine: the replica is not elected, resigns if it leads, and asks to rebuild it."""
    if machine.is_fenced:
        return
    machine.is_fenced = True
    wait_ms = 0 if environment.is_only_voter else REBUILD_WAIT_MS + environment.random.randrange(REBUILD_WAIT_MS)
    machine.rebuild_deadline_ms = environment.now_ms + wait_ms


def poll(environment: Environment, machine: LocalStateMachine, output: Output) -> None:
    """Rebuild without permission if none has come for too long."""
    if machine.rebuild_deadline_ms is not None and machine.rebuild_deadline_ms <= environment.now_ms:
        on_allowed(machine, output)


def on_allowed(machine: LocalStateMachine, output: Output) -> None:
    """Start the rebuild that the leader permits. Nothing happens if one is in progress, or none is needed."""
    if machine.rebuild_deadline_ms is not None:
        machine.rebuild_deadline_ms = None
        output.order(RebuildStateMachine())


def wants(machine: LocalStateMachine) -> bool:
    """Whether this replica's fetches ask for permission."""
    return machine.rebuild_deadline_ms is not None


def note_fetch(environment: Environment, leader: Leader, progress: ReplicaProgress, request: FetchRequest) -> None:
    """A replica fetched. If it is the permitted one and has a state digest, it is rebuilt, and the next one may begin.

    Its last fetches before the rebuild no longer ask either; they end within a second.
    """
    progress.wants_rebuild = request.wants_rebuild
    is_back = not request.wants_rebuild and request.state_digest is not None
    if (
        progress.key == leader.rebuilding
        and is_back
        and environment.now_ms - leader.rebuilding_since_ms >= REBUILD_MIN_MS
    ):
        leader.rebuilding = None


def may_rebuild(environment: Environment, leader: Leader, request: FetchRequest) -> bool:
    """Whether the answer to `request` permits its sender to rebuild its state machine."""
    key = request.replica_key
    if key is None or not request.wants_rebuild:
        return False
    if not may_be_voter(environment, key):
        return True
    # Consider voters 2 and 3 that are both fenced. 2 asks at 0 s and may begin; 3 asks with each of its fetches and may
    # not, until 2 is back with a digest, say at 8 s. If 2 does not come back, 3 may begin at 60 s. With both down at
    # once the leader, 1, would have no majority, and nothing would be committed until one of them is back.
    is_over = environment.now_ms - leader.rebuilding_since_ms >= REBUILD_LEASE_MS
    if leader.rebuilding is not None and leader.rebuilding != key and not is_over:
        return False
    if leader.rebuilding != key or is_over:
        leader.rebuilding, leader.rebuilding_since_ms = key, environment.now_ms
    return True
