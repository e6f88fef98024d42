"""The invariants of a transition (RF-07): its edge is in the table, the epoch never decreases, and votes are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from kraftbase.checks import check
from raft.core.environment import Environment
from raft.core.states import ROLES, Candidate, Follower, Leader, Prospective, Resigned, Role, State, Unattached

HIGHER: Final = "a higher epoch"
SAME: Final = "the same epoch"
NEXT: Final = "the next epoch"

Edges: TypeAlias = Mapping[Role, Mapping[Role, tuple[str, ...]]]
"""From, to: the epochs in which the edge may be taken, relative to the old state's."""


def check_edge(environment: Environment, edges: Edges, old: State, new: State) -> None:
    """Raises InvariantViolation for an edge that is not in the table, or a forbidden state (RF-07)."""
    old_role, new_role = ROLES[type(old)], ROLES[type(new)]
    if new.epoch == old.epoch:
        allowed = {SAME}
    elif new.epoch == old.epoch + 1:
        allowed = {HIGHER, NEXT}
    else:
        allowed = {HIGHER}
    details = {"left": old_role.value, "entered": new_role.value, "old_epoch": old.epoch, "new_epoch": new.epoch}
    check(new.epoch >= old.epoch, "an epoch never decreases", **details)
    check(not allowed.isdisjoint(edges[old_role].get(new_role, ())), "there is no such edge between states", **details)
    match new:
        case Follower() | Unattached():
            check(
                isinstance(new, Unattached) or new.leader_id != environment.own_id,
                "no replica follows itself",
                **details,
            )
        case Prospective() | Candidate() | Leader():
            check(environment.is_voter, "only a voter takes part in elections", **details)
        case Resigned():
            pass
    # A voter with others goes from Resigned to Unattached in the next epoch, and from there by way of a pre-vote
    # (RF-13). A sole voter has no other voter to ask.
    if isinstance(new, Candidate) and isinstance(old, Resigned):
        check(environment.is_only_voter, "only a sole voter skips the pre-vote after it resigned", **details)
    if isinstance(new, Leader) and isinstance(old, Candidate):
        check(old.votes.is_won, "a leader has a majority of the votes", **details)
    if new.epoch == old.epoch:
        _check_same_epoch(environment, old, new, details)


def _check_same_epoch(environment: Environment, old: State, new: State, details: Mapping[str, object]) -> None:
    # Consider voter 1, which has granted 2 its vote in epoch 5, hears nothing from 2, and asks for pre-votes. It stays
    # in epoch 5, and keeps its vote for 2. It votes for itself in epoch 6: in epoch 5 that would be its second vote.
    old_vote, new_vote = old.voted_key, new.voted_key
    check(old_vote is None or old_vote == new_vote, "a vote is kept for the whole epoch (RF-08)", **details)
    voted_for_itself = new_vote is not None and new_vote.node_id == environment.own_id and old_vote is None
    check(not voted_for_itself, "only a candidate votes for itself, in an epoch of its own", **details)
    if isinstance(old, Follower | Unattached | Prospective) and isinstance(new, Follower):
        check(old.leader_id in (None, new.leader_id), "an epoch has one leader", **details)
