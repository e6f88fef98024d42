"""AlterConfigs as a pure function: a topic or broker with what it inherits, and removals of what is not set.

Topics become tiered only where tiering is enabled (TS-81).
"""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.controller.operations.configs import alter_configs
from kraftpb.v1.admin_pb2 import AlterConfigsRequest, ConfigAlteration
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType
from tests.statemachine.builders import BROKER, alteration, broker, config, topic
from tests.statemachine.states import Metadata, metadata

MIN_ISR = "min.insync.replicas"
TIERED = config("clicks", "remote.storage.enable", "true")
ELR = MetadataRecord(feature_level=FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, level=1))

Decided = list[tuple[str, str, str | None]]


def decided(
    state: Metadata, *alterations: ConfigAlteration, tiering_enabled: bool = True
) -> tuple[Decided, list[tuple[ErrorCode, str]]]:
    """Resource, config and value of each record, and the error of each resource."""
    records, response = alter_configs(
        state, AlterConfigsRequest(alterations=alterations), tiering_enabled=tiering_enabled
    )
    configs = [record.config for record in records]
    return (
        [(of.resource_name, of.name, of.value if of.HasField("value") else None) for of in configs],
        [(ErrorCode(of.error_code), of.error_message) for of in response.resources],
    )


def written(state: Metadata, *alterations: ConfigAlteration) -> Decided:
    records, answers = decided(state, *alterations)
    assert [message for error, message in answers if error] == []
    return records


def refused(state: Metadata, *alterations: ConfigAlteration) -> tuple[ErrorCode, str]:
    """The error of the only resource, with which no record is made."""
    records, [answer] = decided(state, *alterations)
    assert records == []
    return answer


def cluster(*records: MetadataRecord) -> Metadata:
    return metadata(topic("clicks", 1), topic("visits", 2), broker(1), broker(2), *records)


# --- what goes together -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["false", None])
def test_a_topic_stops_to_be_tiered_only_with_a_word_about_what_is_in_remote_storage(value: str | None) -> None:
    state = cluster(TIERED)
    off = alteration("clicks", "remote.storage.enable", value)
    code, message = refused(state, off)
    assert code is ErrorCode.INVALID_CONFIG
    assert message.startswith("topic 'clicks'") and "remote.log.delete.on.disable=true" in message
    word = alteration("clicks", "remote.log.delete.on.disable", "true")
    assert len(written(state, off, word)) == 2
    state.commit(config("clicks", "remote.log.delete.on.disable", "true"))
    assert len(written(state, off)) == 1
    assert refused(state, off, alteration("clicks", "remote.log.delete.on.disable", None))[0] is code


def test_a_topic_that_is_not_copied_any_more_keeps_locally_what_it_keeps() -> None:
    state = cluster(TIERED, config("clicks", "local.retention.ms", "5"))
    stop = alteration("clicks", "remote.log.copy.disable", "true")
    assert "local.retention.ms=5 must be as retention.ms=604800000 (the default)" in refused(state, stop)[1]
    assert len(written(state, stop, alteration("clicks", "local.retention.ms", None))) == 2


def test_a_topic_must_go_with_the_default_of_all_brokers() -> None:
    longer = alteration("clicks", "local.retention.ms", "2592000000")
    assert refused(cluster(TIERED), longer)[0] is ErrorCode.INVALID_CONFIG
    assert len(written(cluster(TIERED, config("", "log.retention.ms", "-1", BROKER)), longer)) == 1
    compacted = cluster(config("", "log.cleanup.policy", "compact", BROKER))
    code, message = refused(compacted, alteration("clicks", "remote.storage.enable", "true"))
    assert code is ErrorCode.INVALID_CONFIG
    assert "cleanup.policy=compact (the default)" in message
    # One broker's own value does not affect a topic, which is on many.
    one = cluster(config("1", "log.cleanup.policy", "compact", BROKER))
    assert len(written(one, alteration("clicks", "remote.storage.enable", "true"))) == 1


def test_the_default_of_all_is_read_once_for_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster()
    reads = []
    configs = state.configs

    def counted(resource_type: ResourceType, name: str) -> dict[str, str]:
        reads.append(name)
        return configs(resource_type, name)

    monkeypatch.setattr(state, "configs", counted)
    written(state, *(alteration(name, "retention.ms", "5") for name in ("clicks", "visits")))
    assert reads.count(CLUSTER_DEFAULT) == 1


def test_a_broker_must_go_with_its_own_and_the_default_of_all() -> None:
    local = alteration("1", "log.local.retention.bytes", "6", BROKER)
    assert len(written(cluster(), local)) == 1
    code, message = refused(cluster(config("", "log.retention.bytes", "5", BROKER)), local)
    assert code is ErrorCode.INVALID_CONFIG
    assert message.startswith("broker 1") and "log.retention.bytes=5 (the default)" in message
    own = cluster(config("", "log.retention.bytes", "5", BROKER), config("1", "log.retention.bytes", "6", BROKER))
    assert len(written(own, local)) == 1
    both = [
        alteration("", "log.retention.ms", "5", BROKER),
        alteration("", "log.local.retention.ms", "6", BROKER),
    ]
    assert refused(cluster(), *both)[0] is ErrorCode.INVALID_CONFIG


# --- a broker's own min.insync.replicas -------------------------------------------------------------------------------


def test_ct56_no_broker_gets_its_own_while_others_may_be_eligible() -> None:
    """KIP-966: with a lower one its ISR could commit what they lack."""
    own = alteration("1", MIN_ISR, "2", BROKER)
    assert written(cluster(), own) == [("1", MIN_ISR, "2")]
    code, message = refused(cluster(ELR), own)
    assert code is ErrorCode.INVALID_CONFIG
    assert "broker 1" in message and f"{MIN_ISR}=2" in message and ELIGIBLE_LEADER_REPLICAS in message
    assert refused(cluster(ELR, config("1", MIN_ISR, "2", BROKER)), own)[0] is code


def test_ct56_the_one_that_it_has_may_go_and_the_default_of_all_may_change() -> None:
    state = cluster(ELR, config("1", MIN_ISR, "2", BROKER), config("", MIN_ISR, "2", BROKER))
    assert written(state, alteration("1", MIN_ISR, None, BROKER)) == [("1", MIN_ISR, None)]
    assert written(state, alteration("", MIN_ISR, "3", BROKER)) == [("", MIN_ISR, "3")]
    assert written(state, alteration("", MIN_ISR, None, BROKER)) == [("", MIN_ISR, None)]
    assert written(state, alteration("clicks", MIN_ISR, "3")) == [("clicks", MIN_ISR, "3")]
    assert written(state, alteration("1", "num.io.threads", "3", BROKER)) == [("1", "num.io.threads", "3")]


# --- names of topics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("", ErrorCode.INVALID_REQUEST, "the topic has no name"),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION, "'.'"),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION, "'no spaces' is illegal"),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION, "250 characters"),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'missing'"),
        ("__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'__cluster_metadata'"),
    ],
)
def test_ct60_a_topic_that_cannot_be_is_another_error_than_one_that_is_not(
    name: str, error: ErrorCode, words: str
) -> None:
    code, message = refused(cluster(), alteration(name, "retention.ms", "5"))
    assert code is error
    assert words in message


# --- a cluster without tiering ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", " TRUE"])
def test_ts81_no_topic_becomes_tiered_where_tiering_is_disabled(value: str) -> None:
    on = alteration("clicks", "remote.storage.enable", value)
    records, [(code, message)] = decided(cluster(), on, tiering_enabled=False)
    assert (records, code) == ([], ErrorCode.INVALID_CONFIG)
    assert "remote.log.storage.system.enable=false" in message


def test_ts81_a_topic_that_is_tiered_already_is_altered_and_stops_to_be_tiered() -> None:
    off = [alteration("clicks", "remote.storage.enable", None)]
    off.append(alteration("clicks", "remote.log.delete.on.disable", "true"))
    for change in (
        [alteration("clicks", "segment.ms", "5")],
        [alteration("clicks", "remote.storage.enable", "true")],
        off,
    ):
        _, [(code, message)] = decided(cluster(TIERED), *change, tiering_enabled=False)
        assert code is ErrorCode.NONE, message
