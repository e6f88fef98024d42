"""Bugs of replication: early commits, double fetches, wrong truncations, followers that never look for a new leader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraftbase.endpoint import Endpoint
from kraftbase.types import Offset
from kraftlog.sim.engine.mutation import instead, mutation
from raft.core import committed, following, high_watermark, leading, serving
from raft.core.actions import AdvanceHighWatermark
from raft.core.connections import Connections
from raft.core.environment import Environment
from raft.core.epochs import EpochCache
from raft.core.log import LogState
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Follower, Leader, Unattached
from raft.core.types import Batch, ReplicaKey


@mutation("records of an older epoch are committed by counting", "logcabin #44")
def no_own_epoch_rule() -> list[Any]:
    """The high watermark moves before a record of the leader's own epoch is on a majority."""
    advance = high_watermark.advance

    def hasty(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
        epoch_start_offset, leader.epoch_start_offset = leader.epoch_start_offset, Offset(-1)
        try:
            advance(environment, replica, output, leader)
        finally:
            leader.epoch_start_offset = epoch_start_offset

    return [instead(high_watermark, "advance", hasty)]


@mutation("less than a majority commits", "openraft #1802")
def wrong_index() -> list[Any]:
    """The end offsets are sorted, but the wrong one is used."""

    def majority_end_offset(end_offsets: Iterable[Offset]) -> Offset:
        descending = sorted(end_offsets, reverse=True)
        return descending[max(0, len(descending) // 2 - 1)]

    return [instead(high_watermark, "majority_end_offset", majority_end_offset)]


@mutation(
    "fetches of a non-voter key count",
    "KAFKA-14077",
    faults=("input: a stranger's claims", "network: the leader is isolated"),
)
def anybody_counts() -> list[Any]:
    """Any process with a voter's node id counts as the voter, for the high watermark and for check quorum."""

    def may_be_voter(environment: Environment, key: ReplicaKey) -> bool:
        return environment.voters.get(key.node_id) is not None

    return [instead(module, "may_be_voter", may_be_voter) for module in (serving, leading)]


@mutation("the leader counts what it has not flushed", "etcd #14370")
def leader_counts_unflushed() -> list[Any]:
    """The leader's own log end counts at once."""
    advance = high_watermark.advance

    def hasty(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
        log = replica.log
        flushed_end_offset, log.flushed_end_offset = log.flushed_end_offset, log.end_offset
        try:
            advance(environment, replica, output, leader)
        finally:
            log.flushed_end_offset = flushed_end_offset

    return [instead(high_watermark, "advance", hasty)]


@mutation("a follower acknowledges what it has not flushed", "NATS 2.12.1 (Jepsen)")
def follower_fetches_unflushed() -> list[Any]:
    """The follower's next fetch does not wait for the flush."""
    append_batches = LogState.append_batches

    def hasty(self: LogState, batches: tuple[Batch, ...]) -> None:
        append_batches(self, batches)
        self.flushed_end_offset = self.end_offset

    return [instead(LogState, "append_batches", hasty)]


@mutation("a follower believes a high watermark above its log", "RF-46")
def high_watermark_above_log() -> list[Any]:
    """The follower adopts the leader's high watermark unchanged."""

    def take(replica: ReplicaState, output: Output, leaders: Offset) -> None:
        if leaders > replica.high_watermark:
            replica.high_watermark = leaders
            output.order(AdvanceHighWatermark(leaders))

    return [instead(high_watermark, "take", take)]


@mutation("a high watermark goes back", "RF-43")
def high_watermark_goes_back() -> list[Any]:
    """A high watermark of a new leader with less knowledge replaces a higher one."""

    def take(replica: ReplicaState, output: Output, leaders: Offset) -> None:
        known = Offset(min(leaders, replica.log.end_offset))
        if known != replica.high_watermark:
            replica.high_watermark = known
            output.order(AdvanceHighWatermark(known))

    return [instead(high_watermark, "take", take)]


@mutation("two fetches are under way at a time", "Kafka's RequestManager")
def two_fetches() -> list[Any]:
    """The replica does not check whether a fetch is unanswered."""
    never = property(lambda self: False)
    return [instead(Connections, "has_fetch_under_way", never), instead(Connections, "is_ready", _always_ready)]


def _always_ready(self: Connections, endpoint: Endpoint) -> bool:
    return endpoint not in self._backing_off and sum(1 for _ in self._by_correlation) < 3


@mutation("the epoch cache keeps what was cut", "KAFKA-7415")
def epoch_cache_not_cut() -> list[Any]:
    """The epochs of truncated records stay in the cache."""

    def truncate(self: EpochCache, end_offset: Offset) -> None:
        return None

    return [instead(EpochCache, "truncate", truncate)]


@mutation("a diverging log is not cut", "RF-51")
def divergence_ignored() -> list[Any]:
    """The follower continues from its own end, whatever the leader has there."""

    def divergence(self: LogState, fetch_offset: Offset, last_fetched_epoch: int) -> None:
        return None

    return [instead(LogState, "divergence", divergence)]


@mutation("an observer stays with a dead leader", "KAFKA-20514")
def no_fallback() -> list[Any]:
    """The observer never asks the bootstrap servers again."""
    whom_to_ask = following._whom_to_ask

    def loyal(
        environment: Environment, replica: ReplicaState, output: Output, state: Follower | Unattached
    ) -> Endpoint | None:
        if isinstance(state, Follower):
            return state.leader_endpoint if output.connections.is_ready(state.leader_endpoint) else None
        return whom_to_ask(environment, replica, output, state)

    return [instead(following, "_whom_to_ask", loyal)]


@mutation("committed records are truncated if a leader says so", "Kafka: a follower truncates below its high watermark")
def cuts_committed() -> list[Any]:
    """The follower believes a leader's answer that its log diverges below the committed end."""
    return [instead(committed, "find_gap", lambda replica, response, is_without_room: None)]
