"""When an append is over, and how; DB-20, DB-64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.replicas.committed_append import ACKS_ALL, ACKS_LEADER, CommittedAppend, append_as_leader
from kraftlog.storage.producer_states import Origin
from kraftpb.v1.metadata_pb2 import MetadataRecord, RemoveTopicRecord
from tests.kraftlog.broker.broker_world import replicas
from tests.kraftlog.replicas.partitions.test_followed import LeaderWorld
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id, config

ALL = [1, 2, 3]


def append_to(world: LeaderWorld, acks: int) -> CommittedAppend:
    return append_as_leader(world.replica(), batch(1), acks, world.runtime.wall_clock_ms())


def flush(world: LeaderWorld) -> None:
    world.runtime.run()


def all_fetch(world: LeaderWorld) -> None:
    for follower in (2, 3):
        world.follow(follower, 1)


def another_leads(world: LeaderWorld) -> None:
    world.commit(replicas(on=ALL, leader=2, epoch=1))


def led_again(world: LeaderWorld) -> None:
    another_leads(world)
    world.commit(replicas(on=ALL, leader=1, epoch=2))


def led_on_in_the_next_epoch(world: LeaderWorld) -> None:
    world.commit(replicas(on=ALL, leader=1, epoch=1))


def more_are_wanted(world: LeaderWorld) -> None:
    world.commit(config("clicks", "min.insync.replicas", "3"), replicas(on=ALL, isr=[1, 2], epoch=1))


def the_topic_is_deleted(world: LeaderWorld) -> None:
    world.commit(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=an_id(1))))


def the_disk_fails(world: LeaderWorld) -> None:
    world.replica().close(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone"))


def time_passes(world: LeaderWorld) -> None:
    world.runtime.expire()


STILL_WAITS = -1000

TABLE: list[tuple[int, list[Callable[[LeaderWorld], None]], int]] = [
    (ACKS_LEADER, [], STILL_WAITS),
    (ACKS_LEADER, [flush], ErrorCode.NONE),
    (ACKS_LEADER, [led_again, flush], ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ACKS_LEADER, [led_on_in_the_next_epoch, flush], ErrorCode.NONE),
    (ACKS_LEADER, [the_topic_is_deleted, flush], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (ACKS_ALL, [flush], STILL_WAITS),
    (ACKS_ALL, [all_fetch], STILL_WAITS),
    (ACKS_ALL, [flush, time_passes], STILL_WAITS),
    (ACKS_ALL, [flush, all_fetch], ErrorCode.NONE),
    (ACKS_ALL, [all_fetch, flush], ErrorCode.NONE),
    (ACKS_ALL, [flush, another_leads], ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ACKS_ALL, [all_fetch, led_again, flush], ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ACKS_ALL, [flush, led_on_in_the_next_epoch], STILL_WAITS),
    (ACKS_ALL, [flush, the_topic_is_deleted], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (ACKS_ALL, [flush, the_disk_fails], ErrorCode.KAFKA_STORAGE_ERROR),
    (ACKS_ALL, [flush, more_are_wanted, all_fetch], STILL_WAITS),
]


@pytest.mark.parametrize(("acks", "events", "code"), TABLE)
def test_db64_an_append_is_over_once(
    tmp_path: Path, acks: int, events: list[Callable[[LeaderWorld], None]], code: int
) -> None:
    world = LeaderWorld(tmp_path)
    done: list[CommittedAppend] = []
    append = append_to(world, acks)
    append.begin(done.append)
    for event in events:
        event(world)
    assert [STILL_WAITS if not append.is_done else append.error.code if append.error else ErrorCode.NONE] == [code]
    assert done == ([append] if code != STILL_WAITS else [])
    flush(world)
    append.partition.close(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is gone"))
    assert done == [append]


def test_what_needs_no_disk_and_no_replica_is_over_when_it_is_appended(tmp_path: Path) -> None:
    directory = tmp_path / "flushed"
    directory.mkdir()
    world, flushed = LeaderWorld(tmp_path, (1,), flushes=False), LeaderWorld(directory, (1,))
    assert append_to(world, ACKS_LEADER).is_done
    assert append_to(world, ACKS_ALL).is_done
    assert not append_to(flushed, ACKS_LEADER).is_done


def test_after_it_has_stopped_waiting_nobody_is_called_back_and_readers_see_it(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1,))
    done: list[CommittedAppend] = []
    append = append_to(world, ACKS_ALL)
    append.begin(done.append)
    append.stop_waiting()
    unanswered = append_to(world, ACKS_ALL)
    unanswered.begin_unanswered()
    flush(world)
    assert (done, world.high_watermark(), world.replica().watcher_count) == ([], 2, 0)


def test_one_that_waits_for_replicas_stops_watching(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path)
    append = append_to(world, ACKS_ALL)
    append.begin(lambda append: None)
    flush(world)
    assert world.replica().watcher_count == 1
    append.stop_waiting()
    assert world.replica().watcher_count == 0


def test_it_is_first_checked_who_leads_then_the_isr_then_the_batch(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path)

    def code(acks: int) -> int:
        with pytest.raises(ApiError) as refused:
            append_as_leader(world.replica(), b"no batch", acks, 0, origin=Origin.COORDINATOR)
        return refused.value.code

    world.commit(config("clicks", "min.insync.replicas", "3"), replicas(on=ALL, isr=[1], epoch=1))
    assert [code(ACKS_ALL), code(ACKS_LEADER)] == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD]
    world.commit(replicas(on=ALL, isr=[1], leader=2, epoch=2))
    assert [code(ACKS_ALL), code(ACKS_LEADER)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert world.replica().online_log().log_end_offset == 0
