"""AlterConfigs through the controller: before min.insync.replicas is lowered, eligible replicas are removed (KIP-966).
With the lower value, an ISR that was too small may commit records that the eligible replicas do not have. So these
replicas are removed first, wherever the lower value will apply: page by page, if they are many (CT-12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kraftlog.controller.decisions import Decision, DecisionContext, Written
from kraftlog.controller.operations.configs import alter_configs
from kraftlog.controller.operations.elections import without_eligible
from kraftlog.controller.rules.pages import PAGE_PARTITIONS, with_eligible
from kraftpb.v1.admin_pb2 import AlterConfigsRequest, AlterConfigsResponse, OperationResult
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.tables.table import Key, Page
from statemachine.words.config_definitions import MIN_ISR, MIN_ISR_DEFAULT
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType


# Consider a topic with min.insync.replicas=2 and replicas 1, 2, 3, all in sync. Broker 3 falls behind: the ISR is 1, 2.
# Broker 2 falls behind, too: the ISR is 1, which is too small, so broker 2 becomes eligible to lead (CT-56). That is
# safe because broker 1 commits nothing alone: its high watermark stands at, say, 100 (DB-22), and broker 2 has all
# below 100. If broker 1 stops, broker 2 is elected, and nothing is lost.
#
# Now the value is set to 1. As soon as broker 1 reads that, it commits alone: 100 to 109. If broker 2 were still
# eligible and broker 1 stopped, broker 2 would be elected as if it had everything, and those ten records would be lost.
# So first comes a record that leaves no replica eligible, and then the config, in one append where they fit. From then
# on only broker 1 may lead, and if it stops, the partition waits for it.
#
# Where the ISR is empty, there is no leader and nothing is committed, so the eligible replicas stay eligible.
#
# If more partitions than fit have eligible replicas, the records before come page by page, and the config with the last
# page. While the second page is on its way, a partition of the first one may lose a member of its ISR and have an
# eligible replica again. `Written.about_eligible` counts such appends, and the pages begin again with the first.
def alter(state: MetadataState, request: AlterConfigsRequest, context: DecisionContext) -> Decision:
    """Decide on new values of configs: first the records that must precede them, then the configs' own records."""
    change = partial(alter_configs, request=request, tiering_enabled=context.config.remote_log_storage_system_enable)
    records, response = change(state)
    result = OperationResult(alter_configs=response)
    lowered = _lowered_by(state, records)
    if not lowered:
        return Decision(records, result)
    page = lowered.page(state, None)
    together = [*lowered.forgotten(state, page), *records]
    if page.end is None and len(together) <= RECORDS_PER_BATCH_MAX:
        return Decision(together, result)
    return Decision([], result, _ForgettingPages(state, change, context.written, lowered, result.alter_configs))


class _Lowered(NamedTuple):
    """Where a lower value will apply."""

    topic_ids: frozenset[bytes] = frozenset()
    is_default: bool = False
    """Also in every topic that has no value of its own."""

    def __bool__(self) -> bool:
        return bool(self.topic_ids) or self.is_default

    def is_within(self, other: _Lowered) -> bool:
        """Whether this value will apply only where the other one does."""
        return self.topic_ids <= other.topic_ids and self.is_default <= other.is_default

    def page(self, state: MetadataState, after: Key | None) -> Page[PartitionRecord]:
        """Partitions above the key that have eligible replicas, among them all those to which the value will apply."""
        only = next(iter(self.topic_ids)) if len(self.topic_ids) == 1 and not self.is_default else None
        return with_eligible(state, only)(after, PAGE_PARTITIONS)

    def forgotten(self, state: MetadataState, page: Page[PartitionRecord]) -> list[MetadataRecord]:
        """The records that remove the eligible replicas of those partitions of a page to which the value will apply."""
        holds: dict[bytes, bool] = {}
        for _, partition in page.found:
            if partition.topic_id not in holds:
                holds[partition.topic_id] = self._holds_in(state, partition.topic_id)
        return without_eligible(state, [partition for _, partition in page.found if holds[partition.topic_id]])

    def _holds_in(self, state: MetadataState, topic_id: bytes) -> bool:
        if topic_id in self.topic_ids or not self.is_default:
            return topic_id in self.topic_ids
        return MIN_ISR not in state.configs(ResourceType.TOPIC, state.topic_name(topic_id) or "")


def _lowered_by(state: MetadataState, records: Iterable[MetadataRecord]) -> _Lowered:
    """Where the value is lower after the config `records`; a single broker's own value affects none."""
    values = {
        (record.config.resource_type, record.config.resource_name): (
            record.config.value if record.config.HasField("value") else None
        )
        for record in records
        if record.config.name == MIN_ISR
    }
    if not values:
        return _Lowered()
    default = int(state.configs(ResourceType.BROKER, CLUSTER_DEFAULT).get(MIN_ISR, MIN_ISR_DEFAULT))
    new_default = int(values.get((ResourceType.BROKER, CLUSTER_DEFAULT), str(default)) or MIN_ISR_DEFAULT)
    topic_ids = set()
    for (resource_type, name), value in values.items():
        topic_id = state.topic_id(name) if resource_type == ResourceType.TOPIC else None
        present = int(state.topic_config(name, MIN_ISR, MIN_ISR_DEFAULT))
        if topic_id is not None and (new_default if value is None else int(value)) < present:
            topic_ids.add(topic_id)
    return _Lowered(frozenset(topic_ids), new_default < default)


class _ForgettingPages:
    """Eligible replicas page by page, and the configs with the last page.

    It starts over if, before its end, replicas have become eligible or the value was changed somewhere: it may have
    passed such partitions.
    """

    def __init__(
        self,
        state: MetadataState,
        change: Callable[[MetadataState], tuple[list[MetadataRecord], AlterConfigsResponse]],
        written: Written,
        lowered: _Lowered,
        response: AlterConfigsResponse,
    ) -> None:
        self._state = state
        self._change = change
        self._written = written
        self._response = response
        self._is_done = False
        self._begin(lowered)

    def _begin(self, lowered: _Lowered) -> None:
        self._lowered = lowered
        self._written_before = self._written.about_eligible
        self._after: Key | None = None
        self._on_appended: Callable[[], None] = self._stay

    def next_page(self) -> list[MetadataRecord] | None:
        """The records of the next page; the last page comes with the configs."""
        if self._is_done:
            return None
        page = self._lowered.page(self._state, self._after)
        records = self._lowered.forgotten(self._state, page)
        if page.end is None:
            records = self._close(records)
        else:
            self._on_appended = partial(self._go_on, page.end)
        if not records:
            self.appended()
        return records

    def appended(self) -> None:
        """Continue after the page."""
        self._on_appended()

    def _close(self, forgotten: list[MetadataRecord]) -> list[MetadataRecord]:
        configs, response = self._change(self._state)
        lowered = _lowered_by(self._state, configs)
        may_have_passed = self._after is not None and self._written.about_eligible != self._written_before
        if may_have_passed or not lowered.is_within(self._lowered):
            self._on_appended = partial(self._begin, lowered)
            return forgotten
        if forgotten and len(forgotten) + len(configs) > RECORDS_PER_BATCH_MAX:
            self._on_appended = self._stay
            return forgotten
        self._response.CopyFrom(response)
        self._on_appended = self._finish
        return [*forgotten, *configs]

    def _go_on(self, after: Key) -> None:
        self._after = after

    def _stay(self) -> None:
        """The page is repeated, with nothing to remove."""

    def _finish(self) -> None:
        self._is_done = True
