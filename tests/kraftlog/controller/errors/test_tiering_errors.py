"""The refusals that a remote log metadata manager gets (TS-56 to TS-59): illegal transitions, and invalid segments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftbase.ids import id_to_text
from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from tests.kraftlog.controller.errors.cases import Case, refused
from tests.kraftlog.controller.errors.world import World, running_world
from tests.statemachine.builders import an_id, creatable, create, delete
from tests.statemachine.remote_logs import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    MARKED,
    STARTED,
    partition_delete,
    segment,
    update,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Record = RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord | RemotePartitionDeleteMetadataRecord
NUMBERS = {COPY_STARTED: 1, COPY_FINISHED: 2, DELETE_STARTED: 3, DELETE_FINISHED: 4}
"""Which segment of "tiered" is in which state."""

PARTITIONS = {MARKED: 0, STARTED: 1, FINISHED: 2}
"""How far the deletion of which partition of "gone" is."""

DELETED_TOPICS: dict[str, bytes] = {}
"""The ids of topics that no longer exist."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Segments in each state, and partitions of a deleted topic in each state of their deletion."""
    async with running_world(tmp_path_factory.mktemp("tiering")) as world:
        await world.with_brokers(1)
        tiered = {"remote.storage.enable": "true"}
        await world.done(create(creatable("tiered", configs=tiered), creatable("gone", 3, configs=tiered)))
        await world.settle()
        for number in NUMBERS.values():
            await world.done(adding(segment(number, 100 * number, 100 * number + 9))(world))
        for state, number in NUMBERS.items():
            for passed in (COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED):
                if passed <= state:
                    await world.done(updating(update(number, passed))(world))
        for partition_id in PARTITIONS.values():
            added = segment(10 + partition_id, 0, 9, partition_id=partition_id)
            await world.done(adding(added, topic="gone")(world))
        DELETED_TOPICS["gone"] = world.topic_id("gone")
        await world.done(delete("gone"))
        await world.done(*[putting(STARTED, partition_id)(world) for partition_id in (1, 2)])
        await world.done(putting(FINISHED, 2)(world))
        await world.settle()
        yield world


def topic_id(world: World, topic: str) -> bytes:
    return DELETED_TOPICS[topic] if topic in DELETED_TOPICS else world.topic_id(topic)


Make = Callable[[World], Operation]


def adding(record: RemoteLogSegmentMetadataRecord, topic: str | None = "tiered") -> Make:
    """The topic's id replaces the record's."""

    def make(world: World) -> Operation:
        operation = Operation(add_remote_log_segment=record)
        if topic is not None:
            operation.add_remote_log_segment.topic_id = topic_id(world, topic)
        return operation

    return make


def updating(record: RemoteLogSegmentMetadataUpdateRecord, topic: str | None = "tiered") -> Make:
    def make(world: World) -> Operation:
        operation = Operation(update_remote_log_segment=record)
        if topic is not None:
            operation.update_remote_log_segment.topic_id = topic_id(world, topic)
        return operation

    return make


def putting(state: int, partition_id: int, topic: str = "gone") -> Make:
    def make(world: World) -> Operation:
        record = partition_delete(state, partition_id=partition_id)
        record.topic_id = topic_id(world, topic)
        return Operation(put_remote_partition_delete=record)

    return make


def the_topic(topic: str) -> Callable[[World], str]:
    """The topic's id, as messages show it."""
    return lambda world: id_to_text(topic_id(world, topic))


def spoilt(record: RemoteLogSegmentMetadataRecord, **fields: object) -> RemoteLogSegmentMetadataRecord:
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def unreferenced(record: RemoteLogSegmentMetadataRecord) -> RemoteLogSegmentMetadataRecord:
    record.segment_leader_epochs[0].unreferenced = True
    return record


def name_of(number: int) -> str:
    return id_to_text(an_id(300 + number))


E = ErrorCode
NEW = 50
UNKNOWN_STATE = 9
STATES = {**{int(state): state.name for state in NUMBERS}, UNKNOWN_STATE: "9"}
LEGAL = {  # the table of TS-57
    COPY_STARTED: (COPY_FINISHED, DELETE_STARTED),
    COPY_FINISHED: (COPY_FINISHED, DELETE_STARTED),
    DELETE_STARTED: (DELETE_STARTED, DELETE_FINISHED),
}
PARTITION_STATES = {**{int(state): state.name for state in PARTITIONS}, UNKNOWN_STATE: "9"}
LEGAL_DELETIONS = {None: (MARKED, FINISHED), MARKED: (MARKED, STARTED), STARTED: (STARTED, FINISHED)}

TRANSITIONS = [
    *[
        Case(
            "TS-57: illegal transition of a segment",
            E.INVALID_REQUEST,
            updating(update(NUMBERS[before], after)),
            name_of(NUMBERS[before]),
            "partition 0",
            the_topic("tiered"),
            *((before.name, name) if after != COPY_STARTED else (name,)),
        )
        for before, legal in LEGAL.items()
        for after, name in STATES.items()
        if after not in legal
    ],
    *[
        Case(
            "TS-57: illegal transition of a segment",
            E.INVALID_REQUEST,
            adding(segment(NUMBERS[before], 100 * NUMBERS[before], 100 * NUMBERS[before] + 9)),
            name_of(NUMBERS[before]),
            before.name,
            "COPY_STARTED",
        )
        for before in (COPY_FINISHED, DELETE_STARTED)
    ],
    *[
        Case(
            "TS-58: illegal transition of a partition's deletion",
            E.INVALID_REQUEST,
            # Of a deletion that is finished nothing is left.
            putting(after, 2 if before is None else PARTITIONS[before]),
            f"partition {2 if before is None else PARTITIONS[before]}",
            the_topic("gone"),
            "none" if before is None else before.name,
            name,
        )
        for before, legal in LEGAL_DELETIONS.items()
        for after, name in PARTITION_STATES.items()
        if after not in legal
    ],
]

UNKNOWN = [
    *[
        Case(
            "TS-59: update of an unknown segment", E.RESOURCE_NOT_FOUND, updating(update(number, COPY_FINISHED)), *words
        )
        for number, *words in (
            (NEW, "RemoteResourceNotFound", name_of(NEW)),
            (NUMBERS[DELETE_FINISHED], "RemoteResourceNotFound", name_of(NUMBERS[DELETE_FINISHED])),
        )
    ],
    Case(
        "TS-58: deletion of a partition without remote data",
        E.RESOURCE_NOT_FOUND,
        putting(MARKED, 2),
        "partition 2",
        the_topic("gone"),
    ),
    Case(
        "TS-71: deletion of a partition in use",
        E.INVALID_REQUEST,
        putting(MARKED, 0, "tiered"),
        "partition 0",
        "'tiered' exists",
    ),
    Case("TS-56: unknown topic", E.UNKNOWN_TOPIC_ID, adding(segment(NEW, 0, 9), None), id_to_text(an_id(1))),
    Case(
        "TS-56: unknown partition",
        E.UNKNOWN_TOPIC_OR_PARTITION,
        adding(segment(NEW, 0, 9, partition_id=7)),
        "'tiered'",
        "no partition 7",
    ),
]

ADDED = [
    *[
        Case(
            "TS-56: added in another state than COPY_STARTED",
            E.INVALID_REQUEST,
            adding(segment(NEW, 0, 9, state=state)),
            name_of(NEW),
            name,
        )
        for state, name in STATES.items()
        if state != COPY_STARTED
    ],
    *[
        Case(f"TS-56: {what}", E.INVALID_REQUEST, adding(record), name_of(NEW), *words)
        for what, record, *words in (
            ("offsets", segment(NEW, 9, 8), "from offset 9 to 8"),
            ("offsets", segment(NEW, -1, 8), "from offset -1 to 8"),
            ("size", spoilt(segment(NEW, 0, 9), segment_size_bytes=-1), "-1 bytes"),
            ("leader epochs", segment(NEW, 0, 9, {}), "0 leader epochs"),
            ("leader epochs", unreferenced(segment(NEW, 0, 9)), "unreferenced"),
            ("leader epochs", segment(NEW, 0, 9, {3: 1}), "3 begins at 1"),
            ("leader epochs", segment(NEW, 0, 9, {-1: 0}), "-1 begins at 0"),
            ("leader epochs", segment(NEW, 0, 9, {3: 0, 2: 5}), "2 begins at 5"),
            ("leader epochs", segment(NEW, 0, 9, {3: 0, 4: 10}), "4 begins at 10", "offset 9"),
            ("custom metadata", segment(NEW, 0, 9, custom_metadata=bytes(129)), "129 bytes", "128"),
        )
    ],
    Case(
        "TS-56: another segment under the id of one",
        E.INVALID_REQUEST,
        adding(segment(1, 100, 108)),
        name_of(1),
        "from 100 to 109",
    ),
    Case(
        "TS-56: custom metadata",
        E.INVALID_REQUEST,
        updating(update(1, COPY_FINISHED, custom_metadata=bytes(129))),
        name_of(1),
        "129 bytes",
    ),
    Case("TS-56: ids", E.INVALID_REQUEST, adding(spoilt(segment(NEW, 0, 9), segment_id=b"x")), "segment id", "1 bytes"),
    Case("TS-56: ids", E.INVALID_REQUEST, adding(spoilt(segment(NEW, 0, 9), topic_id=b"x"), None), "topic id", "'78'"),
]


@refused([*TRANSITIONS, *UNKNOWN, *ADDED])
async def test_ts57_what_remote_data_cannot_become_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)
