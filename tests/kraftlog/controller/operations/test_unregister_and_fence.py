"""UnregisterBroker, FenceBroker, and the records by which a broker's state changes (CT-36, CT-31)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.brokers import (
    check_broker_epoch,
    controlled_shutdown_record,
    fence_broker,
    fence_record,
    registered_broker,
    unfence_record,
    unregister_broker,
)
from kraftpb.v1.admin_pb2 import FenceBrokerRequest, UnregisterBrokerRequest
from kraftpb.v1.metadata_pb2 import BrokerRegistrationChangeRecord, MetadataRecord, RegisterBrokerRecord
from tests.statemachine.builders import an_id, broker
from tests.statemachine.states import Metadata, metadata

Record = Callable[[RegisterBrokerRecord, int], MetadataRecord]


def after(record: Record, *, fenced: bool, in_controlled_shutdown: bool = False) -> RegisterBrokerRecord:
    """Broker 1, of epoch 5, once `record` is replayed."""
    state = metadata(broker(1, 5, fenced, in_controlled_shutdown=in_controlled_shutdown))
    state.append([record(registered_broker(state, 1), state.metadata_version)])
    return registered_broker(state, 1)


# --- UnregisterBroker and FenceBroker ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [False, True])
def test_a_broker_is_unregistered(fenced: bool) -> None:
    state = metadata(broker(1, 5, fenced), broker(2, 6))
    records, _ = unregister_broker(state, UnregisterBrokerRequest(broker_id=1))
    (record,) = records
    assert (record.unregister_broker.broker_id, record.unregister_broker.broker_epoch) == (1, 5)
    assert list(state.append(records).brokers()) == [2]


def test_an_operator_fences_a_broker() -> None:
    state = metadata(broker(1, 5), broker(2, 6))
    records, _ = fence_broker(state, FenceBrokerRequest(broker_id=1))
    state.append(records)
    assert {broker_id: found.fenced for broker_id, found in state.brokers().items()} == {1: True, 2: False}


def test_a_broker_that_is_fenced_already_makes_no_record() -> None:
    state = metadata(broker(1, 5, fenced=True))
    records, _ = fence_broker(state, FenceBrokerRequest(broker_id=1))
    assert records == []


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        (unregister_broker, UnregisterBrokerRequest(broker_id=7)),
        (fence_broker, FenceBrokerRequest(broker_id=7)),
    ],
    ids=["unregister", "fence"],
)
def test_a_broker_that_is_not_registered_is_named(operation: Callable[[Metadata, Any], Any], request_: Any) -> None:
    state = metadata(broker(1))
    with pytest.raises(ApiError, match="broker 7 is not registered; registered are ") as caught:
        operation(state, request_)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert list(state.brokers()) == [1]


# --- changes of the registration --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_controlled_shutdown", [False, True])
def test_ct31_fencing_says_only_that(in_controlled_shutdown: bool) -> None:
    found = after(fence_record, fenced=False, in_controlled_shutdown=in_controlled_shutdown)
    assert found.fenced
    assert found.in_controlled_shutdown is in_controlled_shutdown
    assert found.broker_epoch == 5 and list(found.log_dirs) == [an_id(901)]


def test_ct31_unfencing_says_only_that() -> None:
    registered = broker(1, 5, fenced=True).register_broker
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=False)
    assert unfence_record(registered, 29) == MetadataRecord(broker_registration_change=change, version=2)
    assert not after(unfence_record, fenced=True).fenced


def test_a_broker_that_is_unfenced_is_no_longer_shutting_down() -> None:
    found = after(unfence_record, fenced=True, in_controlled_shutdown=True)
    assert not found.fenced and not found.in_controlled_shutdown


def test_ct31_a_broker_in_controlled_shutdown_is_not_fenced_yet() -> None:
    found = after(controlled_shutdown_record, fenced=False)
    assert found.in_controlled_shutdown and not found.fenced


@pytest.mark.parametrize(("metadata_version", "version"), [(7, 1), (16, 1), (17, 2), (29, 2), (30, 3)])
@pytest.mark.parametrize("record", [fence_record, unfence_record, controlled_shutdown_record])
def test_a_change_has_the_version_that_the_cluster_writes(record: Record, metadata_version: int, version: int) -> None:
    assert record(broker(1).register_broker, metadata_version).version == version


# --- broker epochs ----------------------------------------------------------------------------------------------------


def test_the_epoch_that_a_broker_names_must_be_its_own() -> None:
    state = metadata(broker(1, 5))
    assert check_broker_epoch(state, 1, 5) == registered_broker(state, 1)
    for broker_id, broker_epoch, words in (
        (1, 4, "broker 1 names the epoch 4, and its registration has 5; register it again"),
        (1, 6, "broker 1 names the epoch 6"),
        (2, 5, "broker 2 names the epoch 5, and it is not registered"),
    ):
        with pytest.raises(ApiError, match=words) as caught:
            check_broker_epoch(state, broker_id, broker_epoch)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
