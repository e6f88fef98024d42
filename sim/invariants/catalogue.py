"""All invariants, and the checker that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sim.invariants.acknowledged_metadata import AcknowledgedMetadata
from sim.invariants.applied_is_kept import AppliedIsKept
from sim.invariants.bounds import Bounds
from sim.invariants.check_quorum import CheckQuorum
from sim.invariants.committed_immutable import CommittedImmutable
from sim.invariants.committed_on_quorum import CommittedOnQuorum
from sim.invariants.durability import Durability
from sim.invariants.election_safety import ElectionSafety
from sim.invariants.epoch_cache import EpochCache
from sim.invariants.epochs_bounded import EpochsBounded
from sim.invariants.flushed_is_durable import FlushedIsDurable
from sim.invariants.invariant import Invariant
from sim.invariants.key_offsets import KeyOffsets
from sim.invariants.leader_completeness import LeaderCompleteness
from sim.invariants.listener_contract import ListenerContract
from sim.invariants.log_matching import LogMatching
from sim.invariants.log_start import LogStart, LogStartWaits
from sim.invariants.maximal_isr import LeadersKnowTheirIsr
from sim.invariants.metadata_log import MetadataMakesSense
from sim.invariants.metadata_rows import RowsAreTheLog
from sim.invariants.monotonic_epoch import MonotonicEpoch
from sim.invariants.monotonic_high_watermark import MonotonicHighWatermark
from sim.invariants.not_to_oneself import NotToOneself
from sim.invariants.one_answer import OneAnswer
from sim.invariants.one_fetch import OneFetch
from sim.invariants.one_vote import OneVote
from sim.invariants.only_voters import OnlyVotersCount
from sim.invariants.own_epoch import OwnEpoch
from sim.invariants.pair_rule import PairRule
from sim.invariants.partition_states import BrokerEpochs, PartitionEpochs, PartitionStates
from sim.invariants.persist_first import PersistFirst
from sim.invariants.pre_vote_leaves_no_trace import PreVoteLeavesNoTrace
from sim.invariants.reassignments import InSyncLead, ReassignmentsAreTaken, ReplicasGoWhenDone
from sim.invariants.recovering import RecoveringStaysOut
from sim.invariants.roles import Roles
from sim.invariants.snapshots import SnapshotsAreEqual, SnapshotsAreWhole
from sim.invariants.staleness import StalenessBounded
from sim.invariants.state_machine import AppliedOnce, RotIsFound, StateMachineSafety
from sim.invariants.state_ordering import StateOrdering
from sim.invariants.tiered_data import TieredData
from sim.invariants.tiered_topics import TopicsTakeTheirRemoteData
from sim.invariants.timers import Timers
from sim.invariants.transfers import TransfersGoOn
from sim.invariants.truncation import CommittedIsKept, LeaderNeverCuts
from sim.observation import Observed, Step

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
    StateMachineSafety,
    AppliedOnce,
    RotIsFound,
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
    RowsAreTheLog,
    AcknowledgedMetadata,
    InSyncLead,
    ReplicasGoWhenDone,
    ReassignmentsAreTaken,
    TieredData,
    TopicsTakeTheirRemoteData,
)
"""In the order in which they run. The first one keeps the committed log that others look at."""

STEP_FIELDS: Final = ("disk_changed", "started", "events", "actions", "replies", "deliveries")
"""What steps are told apart by, of which an invariant may name some in `looks_at`."""

_Kind: TypeAlias = tuple[bool, bool, bool, bool, bool, bool, bool]


class Checker:
    """Runs every invariant after every step that it has something to look at in."""

    def __init__(self, world: Observed, kinds: Sequence[type[Invariant]] = ALL) -> None:
        self._world = world
        self._invariants = [kind(world) for kind in kinds]
        self._by_kind: dict[_Kind, list[Callable[[Step], None]]] = {}
        self.checks = 0
        """How often an invariant was checked."""

    def after_step(self, step: Step) -> None:
        """Check all that look at such a step. Raises Violation."""
        kind = (
            bool(self._world.brokers),
            step.disk_changed,
            step.started,
            not step.events,
            not step.actions,
            not step.replies,
            not step.deliveries,
        )
        checks = self._by_kind.get(kind)
        if checks is None:
            checks = self._by_kind[kind] = self._checks_of(step)
        for check in checks:
            check(step)
        self.checks += len(checks)

    def at_end(self) -> None:
        """Check all of them once more, at the end of a run. Raises Violation."""
        for invariant in self._invariants:
            invariant.at_end()

    def _checks_of(self, step: Step) -> list[Callable[[Step], None]]:
        return [
            invariant.after_step
            for invariant in self._invariants
            if (self._world.brokers or not invariant.is_about_brokers)
            and (not invariant.looks_at or any(getattr(step, name) for name in invariant.looks_at))
        ]
