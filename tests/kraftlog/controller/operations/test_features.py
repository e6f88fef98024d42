"""UpdateFeatures (rules CT-61 and CT-62): what is written, every refusal, and what is reported about features."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftlog.controller.operations import features
from kraftlog.controller.operations.features import may_lose_directories, update_features
from kraftpb.v1.admin_pb2 import FeatureResult, FeatureUpdate, UpdateFeaturesRequest
from kraftpb.v1.metadata_pb2 import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    SupportedFeature,
)
from statemachine.query.features import describe_features
from statemachine.tables.topic_tables import IN_DIRECTORIES
from statemachine.words.features import (
    CONTROLLER_REGISTRATION,
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    METADATA_VERSION_MIN,
)
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from statemachine.words.record_versions import in_version
from tests.effort import examples
from tests.statemachine.builders import BROKER, an_id, config, topic
from tests.statemachine.states import Metadata, metadata

UPGRADE, SAFE, UNSAFE = FeatureUpdate.UPGRADE, FeatureUpdate.SAFE_DOWNGRADE, FeatureUpdate.UNSAFE_DOWNGRADE
MIN_ISR = "min.insync.replicas"
Ranges = Sequence[tuple[str, int, int]]

EVERYTHING: Ranges = (
    (METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
    (ELIGIBLE_LEADER_REPLICAS, 0, 1),
)


def supported(ranges: Ranges) -> list[SupportedFeature]:
    return [SupportedFeature(name=name, min_level=least, max_level=most) for name, least, most in ranges]


def a_broker(broker_id: int, ranges: Ranges = EVERYTHING, log_dirs: Sequence[bytes] = ()) -> MetadataRecord:
    return MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=an_id(500 + broker_id),
            log_dirs=log_dirs,
            features=supported(ranges),
        )
    )


def a_controller(controller_id: int, ranges: Ranges = EVERYTHING) -> MetadataRecord:
    return MetadataRecord(
        register_controller=RegisterControllerRecord(
            controller_id=controller_id, incarnation_id=an_id(600 + controller_id), features=supported(ranges)
        )
    )


def a_partition(partition_id: int = 0, **fields: Sequence[int] | Sequence[bytes]) -> MetadataRecord:
    partition = PartitionRecord(topic_id=an_id(1), partition_id=partition_id, replicas=[1, 2], isr=[1], leader=1)
    for name, values in fields.items():
        getattr(partition, name).extend(values)
    return MetadataRecord(partition=partition)


def level(name: str, number: int) -> MetadataRecord:
    return MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=number))


def update(name: str, number: int, kind: FeatureUpdate.UpgradeType.ValueType = UPGRADE) -> FeatureUpdate:
    return FeatureUpdate(name=name, level=number, upgrade_type=kind)


def decided(
    state: Metadata, *updates: FeatureUpdate, validate_only: bool = False, other_voter_ids: Collection[int] = ()
) -> tuple[list[tuple[str, int]], list[FeatureResult]]:
    """The levels that the records set, and the answers."""
    request = UpdateFeaturesRequest(updates=updates, validate_only=validate_only)
    in_directories = bool(state.partitions_where(IN_DIRECTORIES, None, 1).found)
    records, response = update_features(state, request, other_voter_ids, partitions_in_directories=in_directories)
    assert all(record.WhichOneof("record") == "feature_level" for record in records)
    return [(of.feature_level.name, of.feature_level.level) for of in records], list(response.features)


def written(state: Metadata, *updates: FeatureUpdate) -> list[tuple[str, int]]:
    records, answers = decided(state, *updates)
    assert [answer.error_message for answer in answers if answer.error_code] == []
    assert [answer.name for answer in answers] == [given.name for given in updates]
    return records


def refusal(state: Metadata, given: FeatureUpdate) -> str:
    """Why the only update is an INVALID_UPDATE_VERSION, with which no record is made."""
    records, [answer] = decided(state, given)
    assert records == []
    assert (answer.name, answer.error_code) == (given.name, ErrorCode.INVALID_UPDATE_VERSION)
    return answer.error_message


# --- what is written --------------------------------------------------------------------------------------------------


def test_an_upgrade_that_everybody_supports_is_one_record() -> None:
    state = metadata(a_broker(1), a_controller(1), version=20)
    assert written(state, update(METADATA_VERSION, 25)) == [(METADATA_VERSION, 25)]
    assert metadata(version=20).commit(level(METADATA_VERSION, 25)).metadata_version == 25


def test_ct56_what_brokers_have_of_their_own_goes_before_replicas_may_be_eligible() -> None:
    """KIP-966: with a lower min.insync.replicas than the controller knows, an ISR could commit what they lack."""
    state = metadata(
        a_broker(1),
        config("1", MIN_ISR, "1", BROKER),
        config("1", "num.io.threads", "3", BROKER),
        config("7", MIN_ISR, "2", BROKER),  # left over from an unregistered broker
        config("", MIN_ISR, "2", BROKER),
        config("t", MIN_ISR, "3"),
    )
    request = UpdateFeaturesRequest(updates=[update(ELIGIBLE_LEADER_REPLICAS, 1)])
    records, _ = update_features(state, request)
    assert records == [
        config("1", MIN_ISR, None, BROKER),
        config("7", MIN_ISR, None, BROKER),
        level(ELIGIBLE_LEADER_REPLICAS, 1),
    ]
    request.validate_only = True
    assert update_features(state, request)[0] == []


def test_ct56_nothing_of_brokers_goes_with_another_update() -> None:
    own = config("1", MIN_ISR, "1", BROKER)
    is_on = metadata(a_broker(1), own, level(ELIGIBLE_LEADER_REPLICAS, 1), version=24)
    assert written(is_on, update(ELIGIBLE_LEADER_REPLICAS, 1)) == []
    assert written(is_on, update(METADATA_VERSION, 25)) == [(METADATA_VERSION, 25)]
    assert written(is_on, update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE)) == [(ELIGIBLE_LEADER_REPLICAS, 0)]
    is_off = metadata(a_broker(1), own, version=24)
    assert written(is_off, update(METADATA_VERSION, 25)) == [(METADATA_VERSION, 25)]


def test_ct12_brokers_with_their_own_may_be_too_many_for_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "RECORDS_PER_BATCH_MAX", 4)
    state = metadata(*(config(str(number), MIN_ISR, "1", BROKER) for number in range(3)))
    with pytest.raises(ApiError) as refused:
        update_features(state, UpdateFeaturesRequest(updates=[update(ELIGIBLE_LEADER_REPLICAS, 1)]))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert f"3 brokers have their own {MIN_ISR}" in str(refused.value)


def test_several_features_are_updated_together() -> None:
    state = metadata(a_broker(1), version=20)
    both = (update(ELIGIBLE_LEADER_REPLICAS, 1), update(METADATA_VERSION, 23))
    assert written(state, *both) == [(ELIGIBLE_LEADER_REPLICAS, 1), (METADATA_VERSION, 23)]


@pytest.mark.parametrize("kind", [UPGRADE, SAFE])
def test_a_level_that_is_there_already_makes_no_record(kind: FeatureUpdate.UpgradeType.ValueType) -> None:
    assert written(metadata(version=20), update(METADATA_VERSION, 20, kind)) == []
    assert written(metadata(), update(ELIGIBLE_LEADER_REPLICAS, 0, kind)) == []


def test_a_feature_is_turned_off_with_level_0() -> None:
    state = metadata(level(ELIGIBLE_LEADER_REPLICAS, 1), a_broker(1, [(METADATA_VERSION, 7, 29)]))
    assert written(state, update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE)) == [(ELIGIBLE_LEADER_REPLICAS, 0)]


def test_every_node_can_do_without_a_feature() -> None:
    state = metadata(level(ELIGIBLE_LEADER_REPLICAS, 1), a_broker(1, [(ELIGIBLE_LEADER_REPLICAS, 1, 1)]))
    assert written(state, update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE)) == [(ELIGIBLE_LEADER_REPLICAS, 0)]


def test_no_updates_are_no_records() -> None:
    assert decided(metadata()) == ([], [])


def test_ct61_validate_only_gives_the_same_answer_and_no_record() -> None:
    state = metadata(version=20)
    asked = (update(METADATA_VERSION, 25), update(ELIGIBLE_LEADER_REPLICAS, 1))
    records, answers = decided(state, *asked, validate_only=True)
    assert records == []
    assert answers == decided(state, *asked)[1]
    refused = update(METADATA_VERSION, 99)
    assert decided(state, refused, validate_only=True) == decided(state, refused)


# --- CT-61, refusal by refusal ----------------------------------------------------------------------------------------


def test_ct61_an_unknown_feature_is_refused() -> None:
    message = refusal(metadata(), update("group.version", 1))
    assert "there is no feature 'group.version'" in message
    assert METADATA_VERSION in message and ELIGIBLE_LEADER_REPLICAS in message


@pytest.mark.parametrize("number", [METADATA_VERSION_LATEST + 1, 6, 3, 0, -1])
@pytest.mark.parametrize("kind", [UPGRADE, SAFE])
def test_ct61_a_metadata_version_out_of_range_is_refused(
    number: int, kind: FeatureUpdate.UpgradeType.ValueType
) -> None:
    message = refusal(metadata(), update(METADATA_VERSION, number, kind))
    assert f"metadata.version cannot be {number}" in message and "levels 7 to 30" in message
    assert "0 for off" not in message


@pytest.mark.parametrize("number", [2, -1])
def test_ct61_a_level_of_another_feature_out_of_range_is_refused(number: int) -> None:
    message = refusal(metadata(), update(ELIGIBLE_LEADER_REPLICAS, number))
    assert f"cannot be {number}" in message and "levels 1 to 1, or 0 for off" in message


def test_ct61_a_downgrade_that_is_not_asked_for_as_one_is_refused() -> None:
    message = refusal(metadata(version=25), update(METADATA_VERSION, 24))
    assert "metadata.version=24 (4.0-IV2) is below the present 25" in message and "safe downgrade" in message


def test_ct61_a_downgrade_that_is_none_is_refused() -> None:
    message = refusal(metadata(version=25), update(METADATA_VERSION, 26, SAFE))
    assert "is above the present 25" in message and "request an upgrade" in message


@pytest.mark.parametrize("number", [24, 25, 26])
def test_ct61_unsafe_downgrades_are_disabled(number: int) -> None:
    message = refusal(metadata(version=25), update(METADATA_VERSION, number, UNSAFE))
    assert "disabled" in message and "request a safe one" in message


def test_ct61_an_unsafe_downgrade_of_another_feature_goes_by_its_range_and_may_lose_what_a_safe_one_keeps() -> None:
    off = update(ELIGIBLE_LEADER_REPLICAS, 0, UNSAFE)
    state = metadata(level(ELIGIBLE_LEADER_REPLICAS, 1), topic("t", 1), a_partition(eligible_leader_replicas=[2]))
    assert "would lose metadata" in refusal(state, update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE))
    assert written(state, off) == [(ELIGIBLE_LEADER_REPLICAS, 0)]
    assert "cannot be 2" in refusal(state, update(ELIGIBLE_LEADER_REPLICAS, 2, UNSAFE))
    message = refusal(metadata(version=25), update(ELIGIBLE_LEADER_REPLICAS, 1, UNSAFE))
    assert "is above the present 0" in message and "request an upgrade" in message


@pytest.mark.parametrize("number", [19, 21])
def test_ct61_every_voter_must_have_registered(number: int) -> None:
    state = metadata(a_controller(2, [(METADATA_VERSION, 7, 29)]), version=20)
    change = update(METADATA_VERSION, number, SAFE if number < 20 else UPGRADE)
    assert decided(state, change, other_voter_ids={2})[0] == [(METADATA_VERSION, number)]
    records, [answer] = decided(state, change, other_voter_ids={2, 3})
    assert (records, answer.error_code) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert "controller 3 has not registered" in answer.error_message
    off = update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE)
    assert not decided(state, off, other_voter_ids={3})[1][0].error_code


def test_ct61_no_voter_is_waited_for_below_the_version_from_which_they_register() -> None:
    state = metadata(version=CONTROLLER_REGISTRATION - 1)
    change = update(METADATA_VERSION, CONTROLLER_REGISTRATION)
    assert decided(state, change, other_voter_ids={2, 3})[0] == [(METADATA_VERSION, CONTROLLER_REGISTRATION)]


@pytest.mark.parametrize("kind", [FeatureUpdate.UNKNOWN, 4])
def test_a_type_of_upgrade_that_is_none_is_refused(kind: FeatureUpdate.UpgradeType.ValueType) -> None:
    message = refusal(metadata(version=25), update(METADATA_VERSION, 26, kind))
    assert f"{kind} is not a type of upgrade" in message


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (a_broker(7, [(METADATA_VERSION, 7, 20)]), "broker 7 supports levels 7 to 20"),
        (a_broker(7, [(METADATA_VERSION, 26, 29)]), "broker 7 supports levels 26 to 29"),
        (a_broker(7, []), "broker 7 supports none of its levels"),
        (a_controller(3, [(METADATA_VERSION, 7, 20)]), "controller 3 supports levels 7 to 20"),
        (a_controller(3, []), "controller 3 supports none of its levels"),
    ],
)
def test_ct61_every_registered_broker_and_controller_must_support_the_level(node: MetadataRecord, shown: str) -> None:
    message = refusal(metadata(a_broker(1), a_controller(1), node, version=20), update(METADATA_VERSION, 25))
    assert "metadata.version=25 (4.0-IV3) is not possible" in message
    mend = "upgrade or unregister it first" if shown.startswith("broker") else "upgrade it first"
    assert f"{shown}; {mend}" in message


def test_ct61_a_fenced_broker_must_support_the_level_too() -> None:
    fenced = a_broker(7, [(METADATA_VERSION, 7, 20)])
    fenced.register_broker.fenced = True
    assert "broker 7" in refusal(metadata(fenced, version=20), update(METADATA_VERSION, 25))


def test_eligible_leader_replicas_need_a_metadata_version_that_records_them() -> None:
    state = metadata(version=22)
    message = refusal(state, update(ELIGIBLE_LEADER_REPLICAS, 1))
    assert "needs metadata.version=23 (4.0-IV1) at least, which would be 22" in message
    assert written(metadata(version=23), update(ELIGIBLE_LEADER_REPLICAS, 1))


def test_metadata_version_stays_where_a_feature_that_is_on_needs_it() -> None:
    state = metadata(level(ELIGIBLE_LEADER_REPLICAS, 1), version=25)
    down = update(METADATA_VERSION, 22, SAFE)
    assert "eligible.leader.replicas.version=1 needs" in refusal(state, down)
    assert len(written(state, down, update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE))) == 2


# --- safe downgrades --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "lowest", "words"),
    [
        ([a_controller(1)], 15, "controllers are registered; that needs metadata.version=15"),
        ([a_broker(1, log_dirs=[an_id(901)])], 17, "brokers have log directories; that needs metadata.version=17"),
        ([topic("t", 1), a_partition(eligible_leader_replicas=[2])], 23, "eligible leader replicas"),
        ([topic("t", 1), a_partition(last_known_elr=[2])], 23, "eligible leader replicas"),
    ],
)
def test_ct61_a_downgrade_that_would_lose_metadata_is_refused(
    records: list[MetadataRecord], lowest: int, words: str
) -> None:
    state = metadata(*records, version=25)
    message = refusal(state, update(METADATA_VERSION, lowest - 1, SAFE))
    assert f"metadata.version={lowest - 1}" in message and "would lose metadata" in message and words in message
    assert written(state, update(METADATA_VERSION, lowest, SAFE)) == [(METADATA_VERSION, lowest)]


def test_ct61_a_downgrade_that_would_lose_cordoned_directories_is_refused() -> None:
    cordoned = a_broker(1, log_dirs=[an_id(901)])
    cordoned.register_broker.cordoned_log_dirs.append(an_id(901))
    message = refusal(metadata(cordoned, version=30), update(METADATA_VERSION, 29, SAFE))
    assert "brokers have cordoned log directories; that needs metadata.version=30" in message
    assert written(metadata(a_broker(1), version=30), update(METADATA_VERSION, 29, SAFE)) == [(METADATA_VERSION, 29)]


@pytest.mark.parametrize("directory", [an_id(901), UNASSIGNED_DIRECTORY])
def test_ct61_a_downgrade_that_would_lose_directories_of_partitions_is_refused(directory: bytes) -> None:
    state = metadata(topic("t", 1), a_partition(), a_partition(1, directories=[directory]), version=25)
    request = UpdateFeaturesRequest(updates=[update(METADATA_VERSION, 16, SAFE)])
    assert may_lose_directories(state, request)
    assert len(state.partitions_where(IN_DIRECTORIES, None, 10).found) == 1
    records, response = update_features(state, request, partitions_in_directories=True)
    assert records == []
    message = response.features[0].error_message
    assert "metadata.version=16" in message and "would lose metadata: partitions are in log directories" in message
    assert len(update_features(state, request, partitions_in_directories=False)[0]) == 1


@pytest.mark.parametrize(
    ("given", "version"),
    [
        (update(METADATA_VERSION, 17, SAFE), 25),
        (update(METADATA_VERSION, 15, SAFE), 16),
        (update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE), 25),
    ],
)
def test_updates_that_lose_no_directories_take_no_look_at_partitions(given: FeatureUpdate, version: int) -> None:
    assert not may_lose_directories(metadata(version=version), UpdateFeaturesRequest(updates=[given]))


def test_a_downgrade_that_loses_nothing_is_made() -> None:
    state = metadata(topic("t", 1), a_partition(), a_broker(1), version=29)
    assert written(state, update(METADATA_VERSION, 7, SAFE)) == [(METADATA_VERSION, 7)]


def test_a_downgrade_below_what_was_lost_long_ago_is_made() -> None:
    """Directories that are recorded although the present level has none were lost with it, not now."""
    state = metadata(topic("t", 1), a_partition(directories=[an_id(901)]), version=16)
    assert written(state, update(METADATA_VERSION, 15, SAFE)) == [(METADATA_VERSION, 15)]


def test_eligible_leaders_must_not_be_forgotten() -> None:
    state = metadata(level(ELIGIBLE_LEADER_REPLICAS, 1), topic("t", 1), a_partition(eligible_leader_replicas=[2]))
    message = refusal(state, update(ELIGIBLE_LEADER_REPLICAS, 0, SAFE))
    assert "partitions have eligible leader replicas" in message


def test_eligible_leaders_are_found_among_many_partitions_and_forgotten_when_they_are_none() -> None:
    partitions = [a_partition(number) for number in range(7)]
    state = metadata(topic("t", 1), *partitions, a_partition(7, last_known_elr=[2]))
    assert "would lose" in refusal(state, update(METADATA_VERSION, 22, SAFE))
    state.append([a_partition(7)])
    assert written(state, update(METADATA_VERSION, 22, SAFE)) == [(METADATA_VERSION, 22)]


def test_uncommitted_metadata_counts() -> None:
    state = metadata(topic("t", 1), version=25)
    state.append([a_partition(last_known_elr=[2])])
    assert "would lose" in refusal(state, update(METADATA_VERSION, 22, SAFE))


@pytest.mark.parametrize(
    "record",
    [
        a_broker(1, log_dirs=[an_id(901)]),
        a_partition(directories=[an_id(901)]),
        a_partition(eligible_leader_replicas=[2]),
        a_partition(last_known_elr=[2]),
    ],
)
@pytest.mark.parametrize("number", range(METADATA_VERSION_MIN, METADATA_VERSION_LATEST))
def test_what_records_of_a_lower_level_leave_out_is_never_lost(record: MetadataRecord, number: int) -> None:
    """The list of losses is that of the fields that `in_version` leaves out."""
    written_there = MetadataRecord()
    written_there.CopyFrom(record)
    in_version(written_there, number).version = 0
    state = metadata(topic("t", 1), record)
    _, [answer] = decided(state, update(METADATA_VERSION, number, SAFE))
    assert bool(answer.error_code) == (written_there != record)


# --- the request as a whole -------------------------------------------------------------------------------------------


def test_all_features_are_updated_or_none() -> None:
    records, answers = decided(metadata(version=20), update(METADATA_VERSION, 25), update("group.version", 1))
    assert records == []
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_UPDATE_VERSION] * 2
    assert "not updated: 'group.version' is refused, and all are updated or none" in answers[0].error_message
    assert "there is no feature" in answers[1].error_message


def test_a_feature_that_is_named_twice_is_an_invalid_request() -> None:
    with pytest.raises(ApiError, match=r"'metadata.version' is updated more than once") as refused:
        decided(metadata(version=20), update(METADATA_VERSION, 25), update(METADATA_VERSION, 26))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_far_too_long_name_is_an_invalid_request() -> None:
    with pytest.raises(ApiError, match="1001 characters") as refused:
        decided(metadata(), update("x" * 1001, 1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_ct12_more_updates_than_a_batch_holds_are_refused_whole() -> None:
    with pytest.raises(ApiError, match="divide it") as refused:
        decided(metadata(), *(update(f"f{number}", 1) for number in range(RECORDS_PER_BATCH_MAX + 1)))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


# --- what is reported -------------------------------------------------------------------------------------------------


def told(state: Metadata) -> dict[str, tuple[int, int, int]]:
    found = describe_features(state.connection)
    return {of.name: (of.min_level, of.max_level, of.finalized_level) for of in found}


def test_without_nodes_this_programs_ranges_are_told() -> None:
    assert told(metadata(version=20)) == {METADATA_VERSION: (7, 30, 20), ELIGIBLE_LEADER_REPLICAS: (0, 1, 0)}


def test_the_levels_that_all_nodes_support_are_told() -> None:
    state = metadata(
        level(ELIGIBLE_LEADER_REPLICAS, 1),
        a_broker(1, [(METADATA_VERSION, 9, 29), (ELIGIBLE_LEADER_REPLICAS, 0, 1)]),
        a_broker(2, [(METADATA_VERSION, 7, 25), (ELIGIBLE_LEADER_REPLICAS, 0, 1)]),
        a_controller(1, [(METADATA_VERSION, 8, 27), (ELIGIBLE_LEADER_REPLICAS, 0, 1)]),
        version=20,
    )
    assert told(state) == {METADATA_VERSION: (9, 25, 20), ELIGIBLE_LEADER_REPLICAS: (0, 1, 1)}


def test_a_single_common_level_is_told() -> None:
    state = metadata(a_broker(1, [(METADATA_VERSION, 7, 20)]), a_broker(2, [(METADATA_VERSION, 20, 29)]))
    assert told(state)[METADATA_VERSION] == (20, 20, METADATA_VERSION_LATEST)


def test_where_there_is_no_common_level_0_to_0_is_told() -> None:
    state = metadata(a_broker(1, [(METADATA_VERSION, 7, 9)]), a_broker(2, [(METADATA_VERSION, 10, 12)]), version=9)
    assert told(state) == {METADATA_VERSION: (0, 0, 9), ELIGIBLE_LEADER_REPLICAS: (0, 0, 0)}


@settings(max_examples=examples(100), deadline=None)
@given(
    ranges=st.lists(st.tuples(st.integers(7, 30), st.integers(7, 30)).map(sorted), max_size=4),
    number=st.integers(20, 30),
)
def test_an_upgrade_is_possible_exactly_to_the_levels_that_are_told(ranges: list[list[int]], number: int) -> None:
    brokers = [a_broker(index, [(METADATA_VERSION, *of)]) for index, of in enumerate(ranges)]  # type: ignore[list-item]
    state = metadata(*brokers, version=20)
    least, most, _ = told(state)[METADATA_VERSION]
    _, [answer] = decided(state, update(METADATA_VERSION, number))
    assert (not answer.error_code) == (least <= number <= most)
