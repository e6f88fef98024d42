"""Who rebuilds its state machine, and when: one voter at a time, by itself.

A state machine that is fenced is of no use until it is rebuilt from a snapshot and the log, which takes its node away
for some seconds. So a fenced replica asks with each fetch, and the leader lets one voter at a time; an observer's is
never held up, because nobody counts on it.

Nobody waits for ever. Consider three voters whose databases all rotted: none may be elected, so there is no leader who
could let them. So a replica that was not let after REBUILD_WAIT_MS, and up to as much again by chance, goes ahead: it
takes from nobody what he has, because its log stays as it is. So it is with a leader of a version that lets nobody, and
a sole voter need not wait at all. One that was let and does not come back keeps the others waiting for
REBUILD_LEASE_MS at most; a new leader knows of nobody and lets the first that asks, so that two may be at it then.
"""

from __future__ import annotations

from typing import Final

from raft.core.actions import RebuildStateMachine
from raft.core.context import Context
from raft.core.membership import may_be_voter
from raft.core.messages import FetchRequest
from raft.core.states import Leader, ReplicaProgress

REBUILD_WAIT_MS: Final = 60_000
REBUILD_LEASE_MS: Final = 60_000
REBUILD_MIN_MS: Final = 1_000


def fence(context: Context) -> None:
    """Its own state machine must not be believed: it is not elected, resigns if it leads, and asks to rebuild it."""
    if context.is_fenced:
        return
    context.is_fenced = True
    wait_ms = 0 if context.is_only_voter else REBUILD_WAIT_MS + context.random.randrange(REBUILD_WAIT_MS)
    context.rebuild_deadline_ms = context.now_ms + wait_ms


def poll(context: Context) -> None:
    """Go ahead if nobody said for too long that it may."""
    if context.rebuild_deadline_ms is not None and context.rebuild_deadline_ms <= context.now_ms:
        on_allowed(context)


def on_allowed(context: Context) -> None:
    """It may rebuild its state machine now. Nothing happens if it is at it, or needs not."""
    if context.rebuild_deadline_ms is not None:
        context.rebuild_deadline_ms = None
        context.order(RebuildStateMachine())


def wants(context: Context) -> bool:
    """Whether its fetches ask."""
    return context.rebuild_deadline_ms is not None


def note_fetch(context: Context, leader: Leader, progress: ReplicaProgress, request: FetchRequest) -> None:
    """A replica fetched. The one that was let is back if its state machine came to something: the next one may then.

    Its fetches from before it goes ask no more either, and are over within a second.
    """
    progress.wants_rebuild = request.wants_rebuild
    is_back = not request.wants_rebuild and request.state_digest is not None
    if progress.key == leader.rebuilding and is_back and context.now_ms - leader.rebuilding_since_ms >= REBUILD_MIN_MS:
        leader.rebuilding = None


def may_rebuild(context: Context, leader: Leader, request: FetchRequest) -> bool:
    """Whether the answer to `request` lets its sender rebuild its state machine."""
    key = request.replica_key
    if key is None or not request.wants_rebuild:
        return False
    if not may_be_voter(context, key):
        return True
    # Consider voters 2 and 3 that are both fenced. 2 asks at 0 s and may begin; 3 asks with each of its fetches and may
    # not, until 2 is back with a digest, say at 8 s. If 2 does not come back, 3 may begin at 60 s. With both away at
    # once the leader, 1, would have no majority, and nothing would be committed until one of them is back.
    is_over = context.now_ms - leader.rebuilding_since_ms >= REBUILD_LEASE_MS
    if leader.rebuilding is not None and leader.rebuilding != key and not is_over:
        return False
    if leader.rebuilding != key or is_over:
        leader.rebuilding, leader.rebuilding_since_ms = key, context.now_ms
    return True
