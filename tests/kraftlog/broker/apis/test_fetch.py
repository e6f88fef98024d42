"""Fetch over three partitions that this broker leads, on simulated disks: limits, waits, versions and sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.replicas.partitions.partition import Partition
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from statemachine.replay.deltas import Change, MetadataDelta
from statemachine.tables.topic_tables import PARTITIONS, TOPICS
from tests.kraftlog.broker.apis.test_produce_and_fetch import BROKER, TOPIC_ID, World
from tests.kraftlog.storage.builders import NOW_MS, batch

NEWEST = 18


class FetchWorld(World):
    """With partitions 0 to 2, into which a test appends as it likes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        added = [
            PartitionRecord(topic_id=TOPIC_ID, partition_id=number, replicas=[BROKER], isr=[BROKER], leader=BROKER)
            for number in (1, 2)
        ]
        changes = tuple(Change(None, record) for record in added)
        topic = Change(None, TopicRecord(name="clicks", topic_id=TOPIC_ID))
        self.partitions.on_delta(MetadataDelta(end_offset=Offset(2), topics=(topic,), partitions=changes))

    def partition(self, number: int) -> Partition:
        found = self.partitions.named("clicks", number)
        assert found is not None
        return found

    def append(self, number: int, data: bytes) -> int:
        """Append a batch that readers see at once, and answer those who waited for it; its size."""
        partition = self.partition(number)
        assert partition.log is not None
        partition.log.append_as_leader(data, 0, NOW_MS)
        partition.log.advance_high_watermark(partition.log.log_end_offset)
        partition.notify()
        self.runtime.run()
        return len(data)

    def roll(self, number: int) -> None:
        """Have the next batch begin a segment."""
        log = self.partition(number).log
        assert log is not None
        log.roll(NOW_MS)

    def fetch_from(
        self, offsets: dict[int, int], version: int = NEWEST, *, bytes_max: int = 1_000_000,
        partition_bytes_max: int = 1_000_000, min_bytes: int = 1, max_wait_ms: int = 0,
        session: tuple[int, int] = (0, -1), forgotten: tuple[int, ...] = (), last_fetched_epoch: int = -1,
        leader_epoch: int = -1,
    ) -> None:  # fmt: skip
        """A Fetch of partitions from offsets."""
        asked = tuple(
            FetchPartition(
                partition=number,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes_max,
                last_fetched_epoch=last_fetched_epoch,
                current_leader_epoch=leader_epoch,
            )
            for number, offset in offsets.items()
        )
        name, topic_id = ("clicks", ZERO_UUID) if version < 13 else ("", TOPIC_ID)
        topics = (FetchTopic(topic=name, topic_id=topic_id, partitions=asked),)
        away = (ForgottenTopic(topic=name, topic_id=topic_id, partitions=forgotten),)
        body = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=bytes_max, session_id=session[0],
            session_epoch=session[1], topics=topics if asked else (), forgotten_topics_data=away if forgotten else (),
        )  # fmt: skip
        self.ask(self.fetch.handle, body, version)

    @property
    def response(self) -> FetchResponse:
        """The newest answer."""
        response = self.answers[-1]
        assert isinstance(response, FetchResponse)
        return response

    def sizes(self) -> dict[int, int]:
        """How many bytes of records the newest answer has, by partition."""
        found = [one for topic in self.response.responses for one in topic.partitions]
        return {one.partition_index: len(one.records or b"") for one in found}

    def code(self) -> int:
        """The error of the only partition in the newest answer."""
        ((one,),) = [topic.partitions for topic in self.response.responses]
        return one.error_code


@pytest.fixture
def world(tmp_path: Path) -> FetchWorld:
    return FetchWorld(tmp_path)


def test_db66_the_first_partition_with_records_gives_one_batch_and_the_others_what_fits_whole(
    world: FetchWorld,
) -> None:
    large = world.append(1, batch(1, value=b"x" * 900))
    small = world.append(2, batch(1))
    everything = {0: 0, 1: 0, 2: 0}
    world.fetch_from(everything, bytes_max=10)
    assert world.sizes() == {0: 0, 1: large, 2: 0}
    world.fetch_from(everything, bytes_max=large + small - 1)
    assert world.sizes() == {0: 0, 1: large, 2: 0}, "no part of a batch"
    world.fetch_from(everything, bytes_max=large + small)
    assert world.sizes() == {0: 0, 1: large, 2: small}
    world.fetch_from(everything, partition_bytes_max=small)
    assert world.sizes() == {0: 0, 1: large, 2: small}
    world.fetch_from({2: 0, 1: 0}, partition_bytes_max=small)
    assert world.sizes() == {2: small, 1: 0}


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_limits_that_make_no_sense_give_one_batch(world: FetchWorld, limit: int) -> None:
    size = world.append(1, batch(1))
    world.append(2, batch(1))
    world.fetch_from({0: 0, 1: 0, 2: 0}, bytes_max=limit, partition_bytes_max=limit, min_bytes=limit, max_wait_ms=100)
    assert world.sizes() == {0: 0, 1: size, 2: 0}


def test_db66_a_fetch_waits_for_as_many_bytes_as_it_asks_for_in_all_partitions(world: FetchWorld) -> None:
    size = len(batch(1))
    world.fetch_from({0: 0, 1: 0}, min_bytes=2 * size, max_wait_ms=100)
    world.append(0, batch(1))
    assert world.answers == []
    world.append(1, batch(1))
    assert world.sizes() == {0: size, 1: size}


def test_db66_more_bytes_than_an_answer_may_have_are_not_waited_for(world: FetchWorld) -> None:
    world.fetch_from({0: 0}, min_bytes=1_000_000, bytes_max=50, max_wait_ms=100)
    size = world.append(0, batch(1))
    assert world.sizes() == {0: size}


def test_db66_a_reader_of_an_older_segment_does_not_wait(world: FetchWorld) -> None:
    size = world.append(0, batch(1))
    world.fetch_from({0: 0}, min_bytes=100_000, max_wait_ms=100)
    assert world.answers == []
    world.roll(0)
    world.append(0, batch(1))
    assert world.sizes() == {0: size}
    world.fetch_from({0: 0}, min_bytes=100_000, max_wait_ms=100)
    assert world.sizes() == {0: size}
    world.fetch_from({0: 1}, min_bytes=100_000, max_wait_ms=100)
    assert len(world.answers) == 2, "the newest segment is no reason"


def test_db66_an_error_or_a_diverging_epoch_is_answered_at_once(world: FetchWorld) -> None:
    world.fetch_from({0: 0, 1: 99}, max_wait_ms=100)
    assert world.sizes() == {0: 0, 1: 0}
    world.fetch_from({0: 0, 7: 0}, max_wait_ms=100)
    assert world.sizes() == {0: 0, 7: 0}
    world.append(0, batch(1))
    world.lead(BROKER, 5)
    world.fetch_from({0: 1}, max_wait_ms=100, last_fetched_epoch=3)
    assert world.sizes() == {0: 0}
    diverging = world.response.responses[0].partitions[0].diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


def test_a_partition_that_is_named_twice_is_read_as_it_is_named_last(world: FetchWorld) -> None:
    world.append(0, batch(1))
    asked = tuple(FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1_000) for at in (0, 1))
    body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic_id=TOPIC_ID, partitions=asked),))
    world.ask(world.fetch.handle, body, NEWEST)
    assert world.sizes() == {0: 0}


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER), (5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_readers_of_before_version_6_are_not_told_of_storage_errors(
    world: FetchWorld, version: int, code: ErrorCode
) -> None:
    world.partition(0).log = None
    world.fetch_from({0: 0}, version)
    assert world.code() == code


@pytest.mark.parametrize("version", [4, 11, 12, 15, 16, 18])
def test_where_the_leader_is_is_told_from_version_16_on(world: FetchWorld, version: int) -> None:
    world.metadata.execute(TOPICS.insert_sql, TOPICS.to_row(TopicRecord(name="clicks", topic_id=TOPIC_ID)))
    world.metadata.execute(PARTITIONS.insert_sql, PARTITIONS.to_row(world.record(2, 1)))
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)
    other = RegisterBrokerRecord(broker_id=2, end_points=[endpoint])
    world.cluster.on_delta(MetadataDelta(end_offset=Offset(3), brokers=(Change(None, other),)))
    world.lead(2, 1)
    world.fetch_from({0: 0}, version, leader_epoch=0 if version >= 9 else -1)
    assert world.code() == (ErrorCode.FENCED_LEADER_EPOCH if version >= 9 else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader = world.response.responses[0].partitions[0].current_leader
    nodes = [(node.node_id, node.host, node.port) for node in world.response.node_endpoints]
    if version >= 16:
        assert (leader.leader_id, leader.leader_epoch, nodes) == (2, 1, [(2, "elsewhere", 9092)])
    else:
        assert (leader.leader_id, leader.leader_epoch, nodes) == (-1, -1, [])


def test_a_topic_named_by_the_zero_id_is_unknown(world: FetchWorld) -> None:
    topics = (FetchTopic(partitions=(FetchPartition(partition=0),)),)
    world.ask(world.fetch.handle, FetchRequest(max_wait_ms=100, topics=topics), 13)
    assert world.code() == ErrorCode.UNKNOWN_TOPIC_ID


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12, 13, NEWEST])
def test_db90_a_reader_goes_on_in_its_session(world: FetchWorld, version: int) -> None:
    size = world.append(1, batch(1))
    world.fetch_from({0: 0, 1: 0, 2: 0}, version, session=(0, 0))
    assert (world.response.session_id, world.sizes()) == (1, {0: 0, 1: size, 2: 0})
    world.fetch_from({1: 1}, version, session=(1, 1))
    assert (world.response.session_id, world.response.responses) == (1, ())
    world.fetch_from({}, version, session=(1, 2), max_wait_ms=100)
    assert len(world.answers) == 2
    world.append(2, batch(1))
    assert world.sizes() == {2: size}
    world.fetch_from({}, version, session=(1, 3), forgotten=(2,))
    assert world.sizes() == {}
    world.fetch_from({}, version, session=(1, 3))
    assert world.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    world.fetch_from({0: 0}, version, session=(1, -1))
    assert (world.response.session_id, world.sizes()) == (0, {0: 0})
    world.fetch_from({}, version, session=(1, 4))
    assert world.response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_db90_the_names_of_a_sessions_topics_do_not_change_their_kind(world: FetchWorld) -> None:
    world.fetch_from({0: 0}, 12, session=(0, 0))
    world.fetch_from({}, 13, session=(1, 1))
    assert world.response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_db90_no_partition_of_a_session_starves(world: FetchWorld) -> None:
    sizes = [world.append(number, batch(1)) for number in (0, 1, 2)]
    world.fetch_from({0: 0, 1: 0, 2: 0}, session=(0, 0), bytes_max=sizes[0])
    assert world.sizes() == {0: sizes[0], 1: 0, 2: 0}
    for epoch, number in enumerate([0, 1, 2, 0], 1):
        world.fetch_from({}, session=(1, epoch), bytes_max=sizes[0])
        assert world.sizes() == {number: sizes[number]}


def test_db90_an_error_of_a_partition_is_told_in_every_answer_of_its_session(world: FetchWorld) -> None:
    world.fetch_from({0: 0, 7: 0}, session=(0, 0))
    for epoch in (1, 2):
        world.fetch_from({}, session=(1, epoch), max_wait_ms=100)
        assert world.code() == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_followers_session_is_told_by_the_field_of_its_version(world: FetchWorld) -> None:
    asked = (FetchPartition(partition=0, partition_max_bytes=1_000),)
    by_name = (FetchTopic(topic="clicks", partitions=asked),)
    world.ask(world.fetch.handle, FetchRequest(replica_id=2, session_epoch=0, topics=by_name), 12)
    by_id = FetchRequest(session_epoch=0, topics=(FetchTopic(topic_id=TOPIC_ID, partitions=asked),))
    by_id.replica_state.replica_id = 2
    world.ask(world.fetch.handle, by_id, 15)
    world.fetch_from({0: 0}, session=(0, 0))
    sessions = [world.sessions.get(session_id) for session_id in (1, 2, 3)]
    assert [session is not None and session.is_privileged for session in sessions] == [True, True, False]


def test_a_partition_that_cannot_be_read_leaves_the_others_as_they_are(world: FetchWorld) -> None:
    size = world.append(1, batch(1))
    world.partition(0).close(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone"))
    world.fetch_from({0: 0, 1: 0})
    assert world.sizes() == {0: 0, 1: size}
