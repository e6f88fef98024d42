"""RegisterBroker (CT-33): epochs, incarnations, features, log directories, and every error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import id_to_text
from kraftbase.types import Offset
from kraftlog.controller.operations.brokers import Registration, register_broker
from kraftpb.v1.admin_pb2 import RegisterBrokerRequest
from kraftpb.v1.metadata_pb2 import (
    BrokerEndpoint,
    FeatureLevelRecord,
    MetadataBatch,
    MetadataRecord,
    RegisterBrokerRecord,
)
from raft.listener import CommittedBatch
from statemachine.tables.cluster_tables import FEATURES
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION, METADATA_VERSION_MIN
from tests.statemachine.builders import (
    CLUSTER_ID,
    all_features,
    an_id,
    broker,
    feature,
    register,
    registration,
)
from tests.statemachine.conftest import Bench
from tests.statemachine.machines import wait_applied
from tests.statemachine.states import Metadata, metadata

WITHOUT_DIRECTORIES = 16
"""The last metadata.version whose brokers do not report which log directories they have."""


def registered(state: Metadata, request: RegisterBrokerRequest, *, has_session: bool = False) -> Registration:
    """Register at the end of the log, and apply the record to the state."""
    found = register_broker(state, request, CLUSTER_ID, Offset(state.end_offset), has_session)
    state.append(found.records)
    return found


def stored(state: Metadata, broker_id: int = 1) -> RegisterBrokerRecord:
    found = state.broker(broker_id)
    assert found is not None
    return found


# --- epochs and incarnations ------------------------------------------------------------------------------------------


def test_the_brokers_epoch_is_the_offset_of_its_record_and_it_is_fenced() -> None:
    state = metadata()
    for broker_id in (4, 5, 6):
        end_offset = state.end_offset
        found = registered(state, registration(broker_id))
        assert found.response.broker_epoch == stored(state, broker_id).broker_epoch == end_offset
        assert stored(state, broker_id).fenced
        assert found.is_new_incarnation and not found.had_unclean_shutdown
    assert list(state.brokers()) == [4, 5, 6]


def test_a_registration_says_everything_that_was_given() -> None:
    state = metadata()
    request = registration(1, log_dirs=[901, 902], features=[*all_features(), feature("group.version", 0, 1)])
    request.cluster_id = CLUSTER_ID
    request.rack = "r1"
    request.listeners.append(BrokerEndpoint(name="SSL", host="::1", port=9443, security_protocol=1))
    (record,) = registered(state, request).records
    assert record.version == 4
    assert stored(state) == RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=an_id(501),
        broker_epoch=1,
        end_points=request.listeners,
        rack="r1",
        fenced=True,
        log_dirs=[an_id(901), an_id(902)],
        features=request.features,
    )


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("in_controlled_shutdown", [False, True])
@pytest.mark.parametrize("has_session", [False, True])
def test_the_same_incarnation_keeps_its_epoch_and_state_and_writes_only_what_is_new(
    fenced: bool, in_controlled_shutdown: bool, has_session: bool
) -> None:
    state = metadata(broker(1, epoch=1, fenced=fenced, in_controlled_shutdown=in_controlled_shutdown))
    again = registered(state, registration(1), has_session=has_session)
    assert again == Registration([], again.response, False, False)
    assert again.response.broker_epoch == 1
    moved = registered(state, registration(1, log_dirs=[901, 999]), has_session=has_session)
    assert len(moved.records) == 1 and moved.response.broker_epoch == 1
    assert not moved.is_new_incarnation and not moved.had_unclean_shutdown
    after = stored(state)
    assert list(after.log_dirs) == [an_id(901), an_id(999)]
    assert (after.fenced, after.in_controlled_shutdown) == (fenced, in_controlled_shutdown)


def test_another_incarnation_has_another_epoch_and_is_fenced_and_not_shutting_down() -> None:
    state = metadata(broker(1, epoch=1, in_controlled_shutdown=True))
    found = registered(state, registration(1, incarnation=777))
    assert found.is_new_incarnation
    after = stored(state)
    assert found.response.broker_epoch == after.broker_epoch == 2
    assert after.incarnation_id == an_id(777)
    assert after.fenced and not after.in_controlled_shutdown


def test_another_incarnation_is_refused_while_the_one_before_lives() -> None:
    state = metadata(broker(1, epoch=1))
    error = refusal(state, registration(1, incarnation=777), has_session=True)
    assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "broker 1" in error.args[0] and id_to_text(an_id(501)) in error.args[0]
    assert registered(state, registration(1, incarnation=777), has_session=False).records


@pytest.mark.parametrize(
    ("previous_broker_epoch", "is_unclean"),
    [(None, True), (-1, True), (4, True), (6, True), (5, False)],
    ids=["not set", "none", "older", "newer", "the registered one"],
)
def test_a_shutdown_is_clean_only_if_the_broker_found_its_epoch(
    previous_broker_epoch: int | None, is_unclean: bool
) -> None:
    state = metadata(broker(1, epoch=5))
    request = registration(1, incarnation=777, previous_broker_epoch=previous_broker_epoch)
    assert registered(state, request).had_unclean_shutdown is is_unclean


@pytest.mark.parametrize("previous_broker_epoch", [None, 5])
def test_a_broker_that_was_not_there_has_had_no_shutdown(previous_broker_epoch: int | None) -> None:
    found = registered(metadata(), registration(1, previous_broker_epoch=previous_broker_epoch))
    assert not found.had_unclean_shutdown


def test_what_the_state_gave_out_is_not_changed() -> None:
    state = metadata(broker(1, epoch=1))
    before = RegisterBrokerRecord()
    before.CopyFrom(stored(state))
    register_broker(state, registration(1, log_dirs=[905]), CLUSTER_ID, Offset(9), False)
    assert stored(state) == before


# --- features ---------------------------------------------------------------------------------------------------------


def with_level(name: str, level: int) -> MetadataRecord:
    return MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=level))


@pytest.mark.parametrize(
    ("features", "words"),
    [
        pytest.param([], "does not give the levels of metadata.version", id="no metadata.version"),
        pytest.param([feature(METADATA_VERSION, 7, 19)], "'metadata.version' at level 20", id="too old"),
        pytest.param([feature(METADATA_VERSION, 21, 29)], "supports levels 21 to 29", id="too new"),
        pytest.param([feature(METADATA_VERSION, 7, 29)], "supports none of it", id="another feature missing"),
        pytest.param(
            [feature(METADATA_VERSION, 7, 29), feature(ELIGIBLE_LEADER_REPLICAS, 0, 0)],
            "'eligible.leader.replicas.version' at level 1",
            id="another feature too old",
        ),
    ],
)
def test_a_broker_must_support_every_finalized_level(features: list[object], words: str) -> None:
    state = metadata(with_level(ELIGIBLE_LEADER_REPLICAS, 1), version=20)
    request = registration(1)
    del request.features[:]
    request.features.extend(features)  # type: ignore[arg-type]
    error = refusal(state, request)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert words in error.args[0] and "broker 1" in error.args[0]


def test_a_range_of_one_level_is_enough_and_a_feature_that_is_off_asks_for_nothing() -> None:
    state = metadata(version=20)
    features = [feature(METADATA_VERSION, 20, 20), feature(ELIGIBLE_LEADER_REPLICAS, 5, 6)]
    assert registered(state, registration(1, features=features)).records


def test_a_log_that_says_no_metadata_version_has_the_oldest() -> None:
    state = metadata()
    state.overlay.remove(FEATURES, (METADATA_VERSION,))
    assert state.features() == {}
    newer = registration(1, features=[feature(METADATA_VERSION, METADATA_VERSION_MIN + 1, 29)])
    assert refusal(state, newer).code is ErrorCode.UNSUPPORTED_VERSION
    assert registered(state, registration(1)).records


# --- log directories --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_dirs", [[], [bytes(16)], [b"short"], [an_id(902)], [an_id(1), an_id(1)]])
def test_before_directories_came_they_are_not_looked_at_and_not_written(log_dirs: list[bytes]) -> None:
    state = metadata(broker(2), version=WITHOUT_DIRECTORIES)
    request = registration(1)
    del request.log_dirs[:]
    request.log_dirs.extend(log_dirs)
    (record,) = registered(state, request).records
    assert record.version == 1
    assert list(stored(state).log_dirs) == []
    assert registered(state, request).records == []


@pytest.mark.parametrize("version", [WITHOUT_DIRECTORIES + 1, 29])
def test_since_directories_came_a_broker_needs_one(version: int) -> None:
    error = refusal(metadata(version=version), registration(1, log_dirs=[]))
    assert error.code is ErrorCode.INVALID_REGISTRATION
    assert "broker 1 has 0 log directories" in error.args[0]


def test_when_directories_have_come_the_same_incarnation_tells_its_own() -> None:
    state = metadata(version=WITHOUT_DIRECTORIES)
    registered(state, registration(1))
    state.append([with_level(METADATA_VERSION, WITHOUT_DIRECTORIES + 1)])
    (record,) = registered(state, registration(1)).records
    assert record.version == 3
    assert list(stored(state).log_dirs) == [an_id(901)]


def test_a_broker_may_have_the_directories_that_its_incarnation_before_had() -> None:
    state = metadata(broker(1, epoch=1))
    assert registered(state, registration(1, incarnation=777)).records


def test_a_log_directory_of_a_broker_that_is_not_committed_yet_is_taken_too() -> None:
    state = metadata()
    registered(state, registration(4))
    error = refusal(state, registration(5, log_dirs=[904]))
    assert error.code is ErrorCode.INVALID_REGISTRATION
    assert "broker 4's" in error.args[0]


# --- errors -----------------------------------------------------------------------------------------------------------


def refusal(state: Metadata, request: RegisterBrokerRequest, *, has_session: bool = False) -> ApiError:
    """The error of the registration, which makes no record."""
    brokers = state.brokers()
    with pytest.raises(ApiError) as caught:
        register_broker(state, request, CLUSTER_ID, Offset(state.end_offset), has_session)
    assert state.brokers() == brokers
    return caught.value


def set_to(field: str, value: object) -> Callable[[RegisterBrokerRequest], None]:
    return lambda request: setattr(request, field, value)


def clear(field: str) -> Callable[[RegisterBrokerRequest], None]:
    return lambda request: request.ClearField(field)  # type: ignore[arg-type]


def add(field: str, *values: object) -> Callable[[RegisterBrokerRequest], None]:
    return lambda request: getattr(request, field).extend(values)


def listener(name: str, host: str, port: int) -> BrokerEndpoint:
    return BrokerEndpoint(name=name, host=host, port=port)


INVALID_REQUEST, INVALID_REGISTRATION = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (set_to("cluster_id", "another"), ErrorCode.INCONSISTENT_CLUSTER_ID, "not 'another'; check the address"),
        (set_to("cluster_id", ""), ErrorCode.INCONSISTENT_CLUSTER_ID, CLUSTER_ID),
        (set_to("broker_id", -1), INVALID_REQUEST, "the broker id is -1"),
        (set_to("incarnation_id", b""), INVALID_REQUEST, "incarnation id of broker 1"),
        (set_to("incarnation_id", b"short"), INVALID_REQUEST, b"short".hex()),
        (set_to("incarnation_id", bytes(16)), INVALID_REQUEST, "must be a random uuid"),
        (set_to("rack", ""), INVALID_REQUEST, "rack of broker 1 has 0 characters"),
        (set_to("rack", "r" * 250), INVALID_REQUEST, "has 250 characters"),
        (clear("listeners"), INVALID_REGISTRATION, "broker 1 has 0 listeners"),
        (add("listeners", *[listener("X", "h", 1)] * 100), INVALID_REGISTRATION, "has 101 listeners"),
        (add("listeners", listener("PLAINTEXT", "h", 1)), INVALID_REGISTRATION, "are named 'PLAINTEXT'"),
        (add("listeners", listener("", "h", 1)), INVALID_REGISTRATION, "a name of 0 characters"),
        (add("listeners", listener("n" * 250, "h", 1)), INVALID_REGISTRATION, "a name of 250 characters"),
        (add("listeners", listener("X", "", 1)), INVALID_REGISTRATION, "at host ''"),
        (add("listeners", listener("X", "h" * 256, 1)), INVALID_REGISTRATION, "listener 'X'"),
        (add("listeners", listener("X", "h", 0)), INVALID_REGISTRATION, "port 0"),
        (add("listeners", listener("X", "h", 65536)), INVALID_REGISTRATION, "port 65536"),
        (clear("log_dirs"), INVALID_REGISTRATION, "broker 1 has 0 log directories"),
        (add("log_dirs", *[b""] * 1_000), INVALID_REGISTRATION, "has 1001 log directories"),
        (add("log_dirs", bytes(16)), INVALID_REGISTRATION, bytes(16).hex()),
        (add("log_dirs", (99).to_bytes(16, "big")), INVALID_REGISTRATION, "is not the id of a log directory"),
        (add("log_dirs", b"short"), INVALID_REGISTRATION, b"short".hex()),
        (add("log_dirs", an_id(901)), INVALID_REGISTRATION, "more than once"),
        (add("log_dirs", an_id(902)), INVALID_REGISTRATION, "which is broker 2's"),
        (add("features", *[feature("x", 0, 1)] * 100), INVALID_REGISTRATION, "102 features"),
        (add("features", feature(METADATA_VERSION, 1, 1)), INVALID_REGISTRATION, "'metadata.version' more than once"),
        (add("features", feature("", 0, 1)), INVALID_REGISTRATION, "name has 0 characters"),
        (add("features", feature("n" * 250, 0, 1)), INVALID_REGISTRATION, "name has 250 characters"),
        (add("features", feature("x", -1, 1)), INVALID_REGISTRATION, "levels -1 to 1 for feature 'x'"),
        (add("features", feature("x", 2, 1)), INVALID_REGISTRATION, "levels 2 to 1"),
        (add("features", feature("x", 0, 2**15)), INVALID_REGISTRATION, "levels 0 to 32768"),
    ],
)
def test_each_error_has_kafkas_name_says_what_is_wrong_and_writes_nothing(
    spoil: Callable[[RegisterBrokerRequest], None], code: ErrorCode, words: str
) -> None:
    state = metadata(broker(1, epoch=1), broker(2, epoch=2))
    request = registration(1)
    spoil(request)
    error = refusal(state, request)
    assert error.code is code
    assert words in error.args[0]


# --- through the controller -------------------------------------------------------------------------------------------


async def test_brokers_registered_together_are_told_the_offsets_of_their_records(held: Bench) -> None:
    results = await held.submit(register(4), register(5), register(6))
    held.log.commit()
    await wait_applied(held.machine, held.log.log_end_offset, 20_000)
    epochs = [result.register_broker.broker_epoch for result in results]
    assert epochs == [result.end_offset - 1 for result in results]
    assert len(set(epochs)) == 3


async def test_what_a_client_says_that_no_row_keeps_is_not_written(bench: Bench) -> None:
    """Digests are over what is written; neither rows nor snapshots would have it."""
    await bench.lead()
    operation = register(1)
    (end_point,) = operation.register_broker.listeners
    end_point.MergeFromString(b"\xf8\x3e\x01")  # field 1007, which does not exist
    await bench.done(operation)
    bodies = [
        MetadataBatch.FromString(CommittedBatch(batch).body) for batch in bench.log.batches if not batch.is_control
    ]
    assert any(record.HasField("register_broker") for body in bodies for record in body.records)
    for body in bodies:
        written = body.SerializeToString()
        body.DiscardUnknownFields()
        assert body.SerializeToString() == written
