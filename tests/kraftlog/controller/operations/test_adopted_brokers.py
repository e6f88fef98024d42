"""Brokers come to a cluster that was restored from a snapshot (CT-39)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftbase.types import Offset
from kraftlog.controller.operations.brokers import Registration, register_broker
from kraftpb.v1.admin_pb2 import RegisterBrokerRequest
from statemachine.words.adopted_brokers import LEFT_OUT, adopted_as, is_awaited
from tests.statemachine.builders import CLUSTER_ID, an_id, broker, registration
from tests.statemachine.states import Metadata, metadata

ADOPTED = adopted_as(UUID(int=2**127 + 5))
EPOCH = 1_000_000
"""Of the broker in the restored metadata."""
DIRECTORY = 901


def restored(incarnation_id: bytes) -> Metadata:
    awaited = broker(1, EPOCH, fenced=True)
    awaited.register_broker.incarnation_id = incarnation_id
    return metadata(awaited)


def request(incarnation_id: bytes, *epochs: int) -> RegisterBrokerRequest:
    asked = registration(1, 1, (DIRECTORY,) * len(epochs) if len(epochs) < 2 else (DIRECTORY, DIRECTORY + 50))
    asked.incarnation_id = incarnation_id
    asked.log_dir_epochs.extend(epochs)
    return asked


def registered(state: Metadata, asked: RegisterBrokerRequest) -> Registration:
    found = register_broker(state, asked, CLUSTER_ID, Offset(EPOCH + 500), has_session=False)
    state.append(found.records)
    return found


def test_ct39_an_adopted_broker_keeps_its_place_and_its_epoch() -> None:
    state = restored(ADOPTED)
    found = registered(state, request(ADOPTED, 300))
    assert (found.is_new_incarnation, found.response.broker_epoch) == (False, EPOCH)
    stored = state.broker(1)
    assert stored is not None
    assert (stored.fenced, stored.broker_epoch) == (True, EPOCH)


def test_ct39_its_next_process_is_known_by_what_its_directories_have() -> None:
    """As one may end before it has forgotten as whom it was adopted, and after."""
    state = restored(ADOPTED)
    registered(state, request(ADOPTED, 300))
    again = registered(state, request(an_id(7), EPOCH, UNKNOWN_EPOCH))
    assert again.response.broker_epoch == EPOCH + 500
    registered(state, request(an_id(8), EPOCH, EPOCH + 500))


@pytest.mark.parametrize("awaited", [ADOPTED, LEFT_OUT])
@pytest.mark.parametrize("epochs", [(300,), (UNKNOWN_EPOCH,), (EPOCH - 1, 300), ()])
def test_ct39_other_disks_are_refused_until_the_broker_is_given_up(awaited: bytes, epochs: tuple[int, ...]) -> None:
    asked = request(an_id(7), *epochs)
    if not epochs:
        asked.log_dirs[:] = [an_id(DIRECTORY)]
    with pytest.raises(ApiError, match="broker 1 is not adopted") as refused:
        registered(restored(awaited), asked)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    assert "brokers unregister --id 1" in str(refused.value)
    registered(metadata(), asked)


def test_ct39_no_process_has_such_an_incarnation() -> None:
    for number in range(200):
        assert not is_awaited(UUID(bytes=number.to_bytes(1, "big") * 16, version=4).bytes)
        assert not is_awaited(UUID(bytes=b"restored" + bytes(8), version=4).bytes)
    assert is_awaited(LEFT_OUT)
    assert is_awaited(ADOPTED)
    assert ADOPTED != LEFT_OUT
