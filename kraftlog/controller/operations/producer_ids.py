"""AllocateProducerIds: a broker gets a block of ids that no other broker ever gets (CT-28). Nothing changes here."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.brokers import check_broker_epoch
from kraftpb.v1.admin_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftpb.v1.metadata_pb2 import MetadataRecord, ProducerIdsRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.record_versions import in_version

BLOCK_SIZE: Final = 1_000
"""As in Kafka. Ids of a block that a broker does not use are lost."""

NEXT_PRODUCER_ID_MAX: Final = 2**63 - 1
"""Producer ids are signed 64-bit integers, in records of messages as in the metadata."""


def allocate_producer_ids(
    state: MetadataState, request: AllocateProducerIdsRequest
) -> tuple[list[MetadataRecord], AllocateProducerIdsResponse]:
    """The record that allocates the next block, and the block.

    Raises ApiError: STALE_BROKER_EPOCH if the broker has another epoch or none, UNKNOWN_SERVER_ERROR if no whole
    block is left.
    """
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    start = state.next_producer_id()
    if start > NEXT_PRODUCER_ID_MAX - BLOCK_SIZE:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"broker {request.broker_id} gets no producer ids: the next one is {start}, and a block of {BLOCK_SIZE}"
            " more overflows 64 bits; this cluster has assigned all of them",
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK_SIZE
    )
    written = in_version(MetadataRecord(producer_ids=record), state.metadata_version)
    return [written], AllocateProducerIdsResponse(producer_id_start=start, producer_id_count=BLOCK_SIZE)
