"""All invariants, and the checker that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kraftlog.sim.quorum.invariants.acknowledged_metadata import AcknowledgedMetadata
from kraftlog.sim.quorum.invariants.answers import ServiceAnswers, WatchersSeeTheLog
from kraftlog.sim.quorum.invariants.applied_is_kept import AppliedIsKept
from kraftlog.sim.quorum.invariants.bounds import Bounds
from kraftlog.sim.quorum.invariants.check_quorum import CheckQuorum
from kraftlog.sim.quorum.invariants.committed_immutable import CommittedImmutable
from kraftlog.sim.quorum.invariants.committed_on_quorum import CommittedOnQuorum
from kraftlog.sim.quorum.invariants.durability import Durability
from kraftlog.sim.quorum.invariants.election_safety import ElectionSafety
from kraftlog.sim.quorum.invariants.epoch_cache import EpochCache
from kraftlog.sim.quorum.invariants.epochs_bounded import EpochsBounded
from kraftlog.sim.quorum.invariants.flushed_is_durable import FlushedIsDurable
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.invariants.key_offsets import KeyOffsets
from kraftlog.sim.quorum.invariants.leader_completeness import LeaderCompleteness
from kraftlog.sim.quorum.invariants.leader_kept import LeaderIsKept
from kraftlog.sim.quorum.invariants.listener_contract import ListenerContract
from kraftlog.sim.quorum.invariants.live_brokers import LiveBrokersKeepTheirSession
from kraftlog.sim.quorum.invariants.log_matching import LogMatching
from kraftlog.sim.quorum.invariants.log_start import LogStart, LogStartWaits
from kraftlog.sim.quorum.invariants.maximal_isr import LeadersKnowTheirIsr
from kraftlog.sim.quorum.invariants.metadata_log import MetadataMakesSense
from kraftlog.sim.quorum.invariants.metadata_rows import RowsAreTheLog
from kraftlog.sim.quorum.invariants.monotonic_epoch import MonotonicEpoch
from kraftlog.sim.quorum.invariants.monotonic_high_watermark import MonotonicHighWatermark
from kraftlog.sim.quorum.invariants.not_to_oneself import NotToOneself
from kraftlog.sim.quorum.invariants.one_answer import OneAnswer
from kraftlog.sim.quorum.invariants.one_fetch import OneFetch
from kraftlog.sim.quorum.invariants.one_vote import OneVote
from kraftlog.sim.quorum.invariants.only_voters import OnlyVotersCount
from kraftlog.sim.quorum.invariants.own_epoch import OwnEpoch
from kraftlog.sim.quorum.invariants.pair_rule import PairRule
from kraftlog.sim.quorum.invariants.partition_states import BrokerEpochs, PartitionEpochs, PartitionStates
from kraftlog.sim.quorum.invariants.persist_first import PersistFirst
from kraftlog.sim.quorum.invariants.pre_vote_leaves_no_trace import PreVoteLeavesNoTrace
from kraftlog.sim.quorum.invariants.reassignments import InSyncLead, ReassignmentsAreTaken, ReplicasGoWhenDone
from kraftlog.sim.quorum.invariants.recovering import RecoveringStaysOut
from kraftlog.sim.quorum.invariants.roles import Roles
from kraftlog.sim.quorum.invariants.snapshots import SnapshotsAreEqual, SnapshotsAreWhole
from kraftlog.sim.quorum.invariants.staleness import StalenessBounded
from kraftlog.sim.quorum.invariants.state_machine import AppliedOnce, BitRotIsFound, StateMachineSafety
from kraftlog.sim.quorum.invariants.state_ordering import StateOrdering
from kraftlog.sim.quorum.invariants.tiered_data import TieredData
from kraftlog.sim.quorum.invariants.tiered_topics import TopicsTakeTheirRemoteData
from kraftlog.sim.quorum.invariants.timers import Timers
from kraftlog.sim.quorum.invariants.transfers import TransfersGoOn
from kraftlog.sim.quorum.invariants.truncation import CommittedIsKept, LeaderNeverCuts
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step

ALL: Final[tuple[type[Invariant], ...]] = (
    CommittedImmutable,
    ElectionSafety,
    OneVote,
    LogMatching,
    LeaderCompleteness,
    CommittedOnQuorum,
    OwnEpoch,
    Durability,
    Roles,
    PreVoteLeavesNoTrace,
    EpochsBounded,
    MonotonicEpoch,
    MonotonicHighWatermark,
    StateOrdering,
    LogStart,
    CommittedIsKept,
    LeaderNeverCuts,
    AppliedIsKept,
    EpochCache,
    OneFetch,
    Timers,
    PairRule,
    Bounds,
    RecoveringStaysOut,
    LeaderIsKept,
    StateMachineSafety,
    AppliedOnce,
    BitRotIsFound,
    KeyOffsets,
    ListenerContract,
    FlushedIsDurable,
    CheckQuorum,
    OneAnswer,
    PersistFirst,
    NotToOneself,
    OnlyVotersCount,
    LogStartWaits,
    StalenessBounded,
    SnapshotsAreEqual,
    SnapshotsAreWhole,
    TransfersGoOn,
    MetadataMakesSense,
    PartitionStates,
    PartitionEpochs,
    BrokerEpochs,
    LeadersKnowTheirIsr,
    LiveBrokersKeepTheirSession,
    RowsAreTheLog,
    AcknowledgedMetadata,
    InSyncLead,
    ReplicasGoWhenDone,
    ReassignmentsAreTaken,
    TieredData,
    TopicsTakeTheirRemoteData,
    ServiceAnswers,
    WatchersSeeTheLog,
)
"""In the order in which they run. The first one keeps the committed log that the others use."""

STEP_FIELDS: Final = ("is_news", "disk_changed", "started", "replies", "deliveries", "asked", "answers", "fenced")
"""The fields of steps that `looks_at` may name, besides the classes of events and actions."""

_Kind: TypeAlias = tuple[bool, int, tuple[type, ...], tuple[type, ...]]


class Checker:
    """Runs every invariant after every step that concerns it."""

    def __init__(self, world: Observed, kinds: Sequence[type[Invariant]] = ALL) -> None:
        self._world = world
        self._invariants = [kind(world) for kind in kinds]
        self._by_kind: dict[_Kind, list[Callable[[Step], None]]] = {}
        self.checks = 0
        """How often an invariant was checked."""

    def after_step(self, step: Step) -> None:
        """Check all invariants that the step concerns. Raises Violation."""
        events, actions = step.events, step.actions
        fields = step.is_news | step.disk_changed << 1 | step.started << 2  # the bits of one number, quick to compare
        if step.replies:
            fields |= 8
        if step.deliveries:
            fields |= 16
        if step.asked:
            fields |= 32
        if step.answers:
            fields |= 64
        if step.fenced:
            fields |= 128
        kind = (
            bool(self._world.brokers),
            fields,
            tuple([type(event) for event in events]) if events else (),
            tuple([type(action) for action in actions]) if actions else (),
        )
        checks = self._by_kind.get(kind)
        if checks is None:
            checks = self._by_kind[kind] = self._checks_of(step)
        for check in checks:
            check(step)
        self.checks += len(checks)

    def at_end(self) -> None:
        """Check all invariants once more, at the end of a run. Raises Violation."""
        for invariant in self._invariants:
            invariant.at_end()

    def _checks_of(self, step: Step) -> list[Callable[[Step], None]]:
        found: set[str | type] = {name for name in STEP_FIELDS if getattr(step, name)}
        found.update(map(type, step.events), map(type, step.actions))
        return [
            invariant.after_step
            for invariant in self._invariants
            if (self._world.brokers or not invariant.is_about_brokers)
            and (not invariant.looks_at or not invariant.looks_at.isdisjoint(found))
        ]
