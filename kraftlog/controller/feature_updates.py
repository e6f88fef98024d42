"""UpdateFeatures through the controller: conditions on all partitions are checked first, in pages (CT-61, CT-12)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.controller.decisions import Decision, DecisionContext
from kraftlog.controller.operations.features import may_lose_directories, update_features
from kraftlog.controller.rules.pages import PartitionPages, where
from kraftpb.v1.admin_pb2 import OperationResult, UpdateFeaturesRequest
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.tables.table import Key, Page
from statemachine.tables.topic_tables import IN_DIRECTORIES


def update(state: MetadataState, request: UpdateFeaturesRequest, context: DecisionContext) -> Decision:
    """The levels that change. A partition that may forbid them is searched for first."""
    records, response = update_features(state, request, context.other_voter_ids())
    result = OperationResult(update_features=response)
    is_refused = any(answer.error_code for answer in response.features)
    if is_refused or not may_lose_directories(state, request):
        return Decision(records, result)
    find = where(state, IN_DIRECTORIES)
    written_before = context.written.into_directories
    is_found = False

    def find_first(after: Key | None, limit: int) -> Page[PartitionRecord]:
        page = find(after, 1)
        return page._replace(end=None) if page.found else page

    def note(page: Sequence[PartitionRecord]) -> list[MetadataRecord]:
        nonlocal is_found
        is_found = is_found or bool(page)
        return []

    def closing() -> list[MetadataRecord]:
        # A partition that was already checked may have been put into a directory since.
        in_directories = is_found or context.written.into_directories > written_before
        decided, answer = update_features(
            state, request, context.other_voter_ids(), partitions_in_directories=in_directories
        )
        result.update_features.CopyFrom(answer)
        return decided

    return Decision([], result, PartitionPages([find_first], note, closing), in_background=True)
