"""The result of deciding on an operation, and the inputs of a decision besides the metadata and the request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from kraftbase.runtime import Runtime
from kraftbase.types import Offset
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.operations.quotas import stored_mutation_limit
from kraftlog.controller.rules.broker_heartbeats import BrokerHeartbeats
from kraftlog.controller.rules.disk_space import DiskSpace
from kraftlog.controller.rules.pages import Pages
from kraftlog.controller.rules.quota import Charge, MutationQuotas
from kraftpb.v1.admin_pb2 import OperationResult
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.config_definitions import MIN_ISR


def _nothing(end_offset: Offset) -> None:
    """No callback is needed."""


class Decision(NamedTuple):
    """A decision on an operation, or on work of the controller's own."""

    records: list[MetadataRecord]
    """Appended first and together; may be empty."""
    result: OperationResult = OperationResult()
    """The answer, if the records are committed."""
    pages: Pages | None = None
    """Further records."""
    answer_waits_for_pages: bool = True
    """Whether the answer waits until the pages are committed, too."""
    on_appended: Callable[[Offset], None] = _nothing
    """Called with the log end offset when `records` are appended."""
    on_done: Callable[[Offset], None] = _nothing
    """Called with the log end offset when the last page is appended, or the pages could not continue."""
    in_background: bool = False
    """Whether the pages of other decisions come first: these search all partitions, and are not urgent."""


@dataclass(slots=True)
class Written:
    """Counts of the controller's appends that matter to decisions of several pages."""

    into_directories: int = 0
    """How many appends set the log directories of partitions."""
    about_eligible: int = 0
    """How many appends made replicas eligible (KIP-966), or changed the min.insync.replicas that they depend on."""

    def count(self, records: Sequence[MetadataRecord]) -> None:
        """Count an append of `records`."""
        if any(record.partition.directories or record.partition_change.directories.ids for record in records):
            self.into_directories += 1
        if any(
            record.partition_change.eligible_leader_replicas.ids or record.config.name == MIN_ISR for record in records
        ):
            self.about_eligible += 1


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """The inputs of decisions. Only `on_appended`, `on_done` and a heartbeat's note of contact may change it."""

    cluster_id: str
    other_voter_ids: Callable[[], Collection[int]]
    """The voters except this node: each of them may become the controller."""
    random: Random
    runtime: Runtime
    heartbeats: BrokerHeartbeats
    config: ControllerConfig
    departing: Counter[int] = field(default_factory=Counter)
    """How many removals are taking a broker out of its partitions: it is not unfenced before they are done."""
    failed_directories: dict[int, frozenset[bytes]] = field(default_factory=dict)
    """The log directories of each broker that this controller has taken replicas out of, or is about to."""
    disk_space: DiskSpace = field(default_factory=DiskSpace)
    written: Written = field(default_factory=Written)
    mutation_quotas: MutationQuotas = field(default_factory=MutationQuotas)

    def charge_of(self, state: MetadataState, client_id: str) -> Charge | None:
        """The charge for a client's creations and deletions (CT-20); None if the client has no quota."""
        now_ms = int(self.runtime.now_ms())
        return self.mutation_quotas.charge_of(client_id, now_ms, lambda: stored_mutation_limit(state, client_id))
