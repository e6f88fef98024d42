"""AllocateProducerIds (CT-28): blocks that no other broker gets, until there are none left."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.producer_ids import BLOCK_SIZE, allocate_producer_ids
from kraftpb.v1.admin_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftpb.v1.metadata_pb2 import MetadataRecord, ProducerIdsRecord
from tests.statemachine.builders import broker
from tests.statemachine.states import Metadata, metadata

INT64_MAX = 2**63 - 1


def asking(broker_id: int, broker_epoch: int) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)


def given_away(next_producer_id: int) -> Metadata:
    """Broker 1 of epoch 5, and every producer id below that one allocated."""
    record = ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=next_producer_id)
    return metadata(broker(1, 5), broker(2, 6, fenced=True), MetadataRecord(producer_ids=record))


def test_each_block_begins_where_the_one_before_ended() -> None:
    state = metadata(broker(1, 5), broker(2, 6, fenced=True))
    for start, (broker_id, broker_epoch) in zip((0, 1_000, 2_000), ((1, 5), (2, 6), (1, 5)), strict=True):
        records, response = allocate_producer_ids(state, asking(broker_id, broker_epoch))
        assert response == AllocateProducerIdsResponse(producer_id_start=start, producer_id_count=1_000)
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=start + 1_000)
        assert records == [MetadataRecord(producer_ids=record)]
        state.append(records)
    assert state.next_producer_id() == 3_000


def test_the_last_block_ends_with_the_last_number_of_64_bits() -> None:
    state = given_away(INT64_MAX - BLOCK_SIZE)
    records, response = allocate_producer_ids(state, asking(1, 5))
    assert response.producer_id_start == INT64_MAX - BLOCK_SIZE
    state.append(records)
    assert state.next_producer_id() == INT64_MAX


@pytest.mark.parametrize("next_producer_id", [INT64_MAX - BLOCK_SIZE + 1, INT64_MAX])
def test_when_no_whole_block_is_left_the_error_says_why(next_producer_id: int) -> None:
    state = given_away(next_producer_id)
    with pytest.raises(ApiError) as caught:
        allocate_producer_ids(state, asking(1, 5))
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    for words in ("broker 1", f"the next one is {next_producer_id}", "overflows 64 bits"):
        assert words in caught.value.args[0]
    assert state.next_producer_id() == next_producer_id


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "words"),
    [
        (1, 4, "broker 1 names the epoch 4, and its registration has 5"),
        (1, 6, "broker 1 names the epoch 6"),
        (3, 5, "broker 3 names the epoch 5, and it is not registered"),
    ],
)
def test_who_is_not_the_registered_broker_gets_nothing(broker_id: int, broker_epoch: int, words: str) -> None:
    state = given_away(7_000)
    with pytest.raises(ApiError) as caught:
        allocate_producer_ids(state, asking(broker_id, broker_epoch))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert words in caught.value.args[0]
    assert state.next_producer_id() == 7_000
