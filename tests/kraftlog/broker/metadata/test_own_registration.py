"""A broker whose cluster is restored from an old snapshot under it, or that is unregistered (CT-39)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.broker.metadata.own_registration import OwnRegistration
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.words.adopted_brokers import LEFT_OUT, adopted_as
from tests.statemachine.builders import broker
from tests.statemachine.states import metadata

EPOCH = 500
RESTORED = 1_000_000


def awaited(incarnation_id: bytes, broker_id: int = 1) -> MetadataRecord:
    record = broker(broker_id, RESTORED - 1, fenced=True)
    record.register_broker.incarnation_id = incarnation_id
    return record


def see(*records: MetadataRecord, end_offset: int, epoch: int = EPOCH) -> None:
    state = metadata(*records)  # while it is referred to, its connection is open
    OwnRegistration(1, lambda: epoch).on_snapshot(Offset(end_offset), state.connection)


@pytest.mark.parametrize(
    "records", [(), (awaited(LEFT_OUT),), (awaited(adopted_as(UUID(int=2**127))),), (awaited(LEFT_OUT, 2),)]
)
def test_ct39_a_process_takes_nothing_over_from_metadata_that_do_not_know_it(
    records: tuple[MetadataRecord, ...],
) -> None:
    with pytest.raises(ApiError, match="changes nothing on its disks") as refused:
        see(*records, end_offset=RESTORED)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION


def test_ct39_an_adopted_broker_is_known() -> None:
    see(awaited(adopted_as(UUID(int=2**127))), end_offset=RESTORED, epoch=RESTORED - 1)


def test_a_whole_state_from_before_its_registration_is_none_without_it() -> None:
    """As when it was unregistered, has registered again, and is behind."""
    see(end_offset=EPOCH)
    see(end_offset=RESTORED, epoch=-1)
    see(broker(1, EPOCH), end_offset=EPOCH + 1)
    see(broker(1, EPOCH + 7), end_offset=EPOCH + 9)
