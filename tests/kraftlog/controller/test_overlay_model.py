"""Whatever happens, an overlay with a cache says what one without says: at any bound, at any time.

Three overlays over one store, one of them without a cache, take part in the life of a controller: it appends, the store
applies, leadership is lost, another controller's records come, one by one or as a snapshot, with transactions that are
left open, and it leads again. In between they are read, so that their caches hold something of each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.types import Offset
from kraftlog.controller.overlay import Overlay
from kraftlog.controller.read_cache import ReadCache
from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    BrokerIds,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    UnregisterBrokerRecord,
)
from raft.listener import CommittedBatch
from statemachine.replay.replay import ReplayError
from statemachine.store.store import MetadataStore
from statemachine.tables.catalogue import TABLES
from statemachine.tables.cluster_tables import ACLS, ACLS_BY_CONTENT, BROKERS, CONFIGS, FEATURES
from statemachine.tables.table import Key, Table
from statemachine.tables.topic_tables import (
    PARTITIONS,
    PARTITIONS_BY_LEADER,
    PARTITIONS_WITH_ELR,
    TOPICS,
    TOPICS_BY_COLLISION,
    TOPICS_BY_NAME,
    holding,
)
from tests.effort import examples
from tests.statemachine.builders import (
    BROKER,
    CLUSTER_ID,
    TOPIC,
    an_id,
    batch,
    broker,
    config,
    no_op,
    partition,
    remove_topic,
    topic,
)
from tests.statemachine.remote_logs import COPY_FINISHED, DELETE_FINISHED, DELETE_STARTED, added, segment, updated
from tests.statemachine.replay.test_transactions import ABORT, BEGIN, END
from tests.statemachine.snapshots import load, posix_snapshots, snapshot_of

INDEXES: Final = (TOPICS_BY_NAME, TOPICS_BY_COLLISION, PARTITIONS_BY_LEADER, PARTITIONS_WITH_ELR, ACLS_BY_CONTENT)
ALL_TABLES: Final[tuple[Table[Any], ...]] = (*TABLES, *INDEXES)

NUMBERS = st.integers(0, 1)
NAMES = st.sampled_from(["a.b", "a_b"])
BROKERS_EPOCH: Final = 0
FEATURE: Final = "eligible.leader.replicas.version"

KEYS: Final[dict[Table[Any], list[Key]]] = {
    TOPICS: [(an_id(number),) for number in range(2)],
    TOPICS_BY_NAME: [("a.b",), ("a_b",)],
    PARTITIONS: [(an_id(number), partition_id) for number in range(2) for partition_id in range(2)],
    CONFIGS: [(kind, name, of) for kind in (TOPIC, BROKER) for name in ("a.b", "a_b") for of in "xy"],
    BROKERS: [(number,) for number in range(2)],
    FEATURES: [(FEATURE,)],
    ACLS: [(an_id(700 + number),) for number in range(2)],
}
"""Keys that are looked up before there is a row; others once there was one."""


def partition_change(number: int, partition_id: int, leader: int, eligible: int) -> MetadataRecord:
    change = PartitionChangeRecord(topic_id=an_id(number), partition_id=partition_id, leader=leader)
    change.eligible_leader_replicas.CopyFrom(BrokerIds(ids=range(eligible)))
    return MetadataRecord(partition_change=change)


def broker_change(number: int, *, fenced: bool) -> MetadataRecord:
    change = BrokerRegistrationChangeRecord(broker_id=number, broker_epoch=BROKERS_EPOCH, fenced=fenced)
    return MetadataRecord(broker_registration_change=change)


def unregistered(number: int) -> MetadataRecord:
    return MetadataRecord(unregister_broker=UnregisterBrokerRecord(broker_id=number, broker_epoch=BROKERS_EPOCH))


def controller(number: int) -> MetadataRecord:
    return MetadataRecord(register_controller=RegisterControllerRecord(controller_id=number, incarnation_id=an_id(6)))


def quota(name: str, value: int, *, remove: bool) -> MetadataRecord:
    entity = [QuotaEntity(entity_type="user", entity_name=name)]
    return MetadataRecord(
        client_quota=ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=value, remove=remove)
    )


def acl(number: int, name: str) -> MetadataRecord:
    return MetadataRecord(
        access_control_entry=AccessControlEntryRecord(
            id=an_id(700 + number),
            resource_type=2,
            resource_name=name,
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=4,
            permission_type=3,
        )
    )


def removed_acl(number: int) -> MetadataRecord:
    return MetadataRecord(remove_access_control_entry=RemoveAccessControlEntryRecord(id=an_id(700 + number)))


def level(number: int) -> MetadataRecord:
    return MetadataRecord(feature_level=FeatureLevelRecord(name=FEATURE, level=number))


def producer_ids(number: int) -> MetadataRecord:
    return MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=1_000 * (number + 1)))


STATES = st.sampled_from([COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED])
TYPES = st.sampled_from([TOPIC, BROKER])
RECORDS = st.one_of(
    *[st.builds(topic, NAMES, NUMBERS)] * 4,
    *[st.builds(partition, NUMBERS, NUMBERS, st.sampled_from([(1,), (2, 1), (0, 1, 2)]))] * 2,
    st.builds(partition_change, NUMBERS, NUMBERS, st.integers(-1, 2), st.integers(0, 2)),
    *[st.builds(remove_topic, NUMBERS)] * 2,
    *[st.builds(config, NAMES, st.sampled_from(["x", "y"]), st.sampled_from([None, "1", "2" * 50]), TYPES)] * 3,
    st.builds(broker, NUMBERS, st.just(BROKERS_EPOCH)),
    st.builds(broker_change, NUMBERS, fenced=st.booleans()),
    st.builds(unregistered, NUMBERS),
    st.builds(controller, NUMBERS),
    st.builds(quota, NAMES, NUMBERS, remove=st.booleans()),
    st.builds(acl, NUMBERS, NAMES),
    st.builds(removed_acl, NUMBERS),
    st.builds(level, st.integers(0, 1)),
    st.builds(producer_ids, NUMBERS),
    st.builds(lambda number, of: added(segment(number, 0, 9, topic=of)), NUMBERS, NUMBERS),
    st.builds(lambda number, state, of: updated(number, state, topic=of), NUMBERS, STATES, NUMBERS),
    st.builds(no_op),
)
RUN = st.lists(RECORDS, min_size=1, max_size=6)
SEVERAL = st.integers(1, 4)
READS = st.lists(
    st.tuples(st.sampled_from(ALL_TABLES), st.integers(0, 50), st.integers(0, 6), st.integers(0, 3)),
    min_size=1,
    max_size=15,
)
STEP = st.one_of(
    *[st.tuples(st.just("append"), RUN)] * 4,
    st.tuples(st.just("append in a transaction"), RUN),
    st.tuples(st.just("append what cannot be applied"), RUN),
    *[st.tuples(st.just("apply"), SEVERAL)] * 2,
    st.tuples(st.just("drain")),
    st.tuples(st.just("lose leadership"), st.integers(0, 4)),
    st.tuples(st.just("follow"), RUN, st.sampled_from(["", "", "a transaction", "an open transaction"])),
    st.tuples(st.just("load a snapshot"), RUN),
    *[st.tuples(st.just("lead"))] * 3,
)
STEPS = st.lists(st.tuples(STEP, st.one_of(READS, st.none())), min_size=10, max_size=40)
"""Each with what is read then; None: everything."""


class Life:
    """A controller's overlays over its store, and the log."""

    def __init__(self, directory: Path, rows_max: int, bytes_max: int) -> None:
        self.directory = directory
        self.store = MetadataStore.open(directory / "metadata.db", CLUSTER_ID)
        self.uncached = Overlay(self.store, ReadCache(rows_max=0))
        self.cached = [Overlay(self.store), Overlay(self.store, ReadCache(rows_max, bytes_max))]
        self.overlays = [self.uncached, *self.cached]
        self.log: list[CommittedBatch] = []
        """All of it; the store has its beginning."""
        self.own_records: list[tuple[list[MetadataRecord], Offset]] = []
        """What entered the overlays since this controller leads."""
        self.is_active = False
        self.keys = {table: list(KEYS.get(table, ())) for table in ALL_TABLES}
        """With every key that there ever was."""

    @property
    def end_offset(self) -> Offset:
        return self.log[-1].end_offset if self.log else Offset(0)

    def step(self, *step: Any) -> None:
        match step:
            case ("append", run) if self.is_active:
                self.append(self.possible(run))
            case ("append in a transaction", run) if self.is_active:
                self.append([BEGIN, *self.possible(run)])
                self.append([END])
            case ("append what cannot be applied", run) if self.is_active:
                self.fail_to_append([*self.possible(run), remove_topic(99)])
            case ("apply", count):
                self.apply(count)
            case ("drain",):
                self.drain()
            case ("lose leadership", count) if self.is_active:
                self.lose(count)
            case ("follow", run, transaction) if not self.is_active:
                self.follow(run, transaction)
            case ("load a snapshot", run) if not self.is_active:
                self.load_snapshot(run)
            case ("lead",) if not self.is_active:
                self.lead()

    # --- while it leads -----------------------------------------------------------------------------------------------

    def append(self, records: list[MetadataRecord]) -> None:
        self.log.append(batch(self.end_offset, records))
        for overlay in self.overlays:
            overlay.replay(records, self.end_offset)
        self.own_records.append((records, self.end_offset))
        self.note_keys(self.uncached)

    def fail_to_append(self, records: list[MetadataRecord]) -> None:
        """Nothing is written, and the controller resigns."""
        for overlay in self.overlays:
            with pytest.raises(ReplayError):
                overlay.replay(records, Offset(self.end_offset + len(records)))
        self.read_all()
        self.lose(len(self.log))

    def lose(self, count: int) -> None:
        """What was not committed is truncated: all of the appends that are not applied except `count`."""
        self.is_active = False
        self.own_records.clear()
        for overlay in self.overlays:
            overlay.clear()
        del self.log[self.applied + count :]

    # --- while another does -------------------------------------------------------------------------------------------

    def follow(self, run: list[MetadataRecord], transaction: str) -> None:
        self.apply(len(self.log))
        records = self.possible(run)
        if self.store.has_open_transaction:
            records = [ABORT, *records] if transaction == "a transaction" else [no_op()]
        elif transaction:
            records = [BEGIN, *records, *([END] if transaction == "a transaction" else [])]
        self.log.append(batch(self.end_offset, records))
        self.apply(1)

    def load_snapshot(self, run: list[MetadataRecord]) -> None:
        """Of another node that has applied the same log, and more of it."""
        self.follow(run, "a transaction")
        self.log.append(batch(self.end_offset, self.possible(run)))
        with closing(MetadataStore.open(self.directory / "other.db", CLUSTER_ID)) as other:
            other.apply(self.log)
            snapshots = posix_snapshots(self.directory / "snapshots")
            if not other.has_open_transaction:
                with snapshots.open(snapshot_of(other, snapshots)) as reader:
                    load(self.store, reader)
        self.drain()

    def lead(self) -> None:
        """A controller leads when its store has everything in the log, and aborts what its predecessor left open."""
        self.log.append(batch(self.end_offset, [no_op()], is_control=True))
        self.apply(len(self.log))
        for overlay in self.overlays:
            overlay.clear()
        self.is_active = True
        if self.store.has_open_transaction:
            self.append([ABORT])

    # --- the store ----------------------------------------------------------------------------------------------------

    @property
    def applied(self) -> int:
        """How many batches of the log are applied, or wait in the store for the end of their transaction."""
        last = self.store._tables._open_transaction
        end_offset = self.store.applied_end_offset if last is None else last.last_batch.end_offset
        return sum(each.end_offset <= end_offset for each in self.log)

    def apply(self, count: int) -> None:
        self.store.apply(self.log[self.applied : self.applied + count])
        self.note_keys(Overlay(self.store, ReadCache(rows_max=0)))

    def drain(self) -> None:
        for overlay in self.overlays:
            overlay.drain(self.store.applied_end_offset)

    def possible(self, run: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """Those of `run` that can be true in the latest state, after what waits in the store; at least one record."""
        overlay = Overlay(self.store, ReadCache(rows_max=0))
        for records, end_offset in self.own_records:
            if end_offset > self.store.applied_end_offset:
                overlay.replay(records, end_offset)
        found = []
        for number, record in enumerate(run):
            try:
                overlay.replay([record], Offset(self.end_offset + number + 1))
            except ReplayError:
                continue
            found.append(record)
        return found or [no_op()]

    # --- reads --------------------------------------------------------------------------------------------------------

    def note_keys(self, overlay: Overlay) -> None:
        for table, keys in self.keys.items():
            keys += [key for key, _ in overlay.find(table) if key not in keys]

    def read_all(self) -> None:
        for table, keys in self.keys.items():
            for key in keys:
                self.read(table, key, len(key), 0)
            for prefix in dict.fromkeys(key[:size] for key in keys for size in range(len(key) + 1)):
                self.read(table, prefix, len(prefix), 1)

    def read_some(self, reads: Sequence[tuple[Table[Any], int, int, int]]) -> None:
        for table, at, size, how in reads:
            if keys := self.keys[table]:
                self.read(table, keys[at % len(keys)], size, how)

    def read(self, table: Table[Any], key: Key, size: int, how: int) -> None:
        """A lookup, a range below the beginning of a key, a bounded range, or a scan."""
        prefix = key[:size]
        expected, *answers = [_answer(overlay, table, key, prefix, how) for overlay in self.overlays]
        for answer in answers:
            assert answer == expected, (table, key, prefix, how)


def _answer(overlay: Overlay, table: Table[Any], key: Key, prefix: Key, how: int) -> Any:
    match how:
        case 0:
            return overlay.get(table, key)
        case 1:
            return list(overlay.find(table, prefix))
        case 2 if len(prefix) < len(key):
            return list(overlay.find(table, prefix, key, limit=2))
        case _:
            return overlay.scan(PARTITIONS, holding(1), None, 3)


@settings(max_examples=examples(80), deadline=None)
@given(steps=STEPS, rows_max=st.integers(1, 12), bytes_max=st.integers(1, 600))
def test_a_cache_changes_no_answer(steps: list[tuple[Any, Any]], rows_max: int, bytes_max: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        life = Life(Path(directory), rows_max, bytes_max)
        with closing(life.store):
            life.lead()
            for step, reads in steps:
                life.step(*step)
                if reads is None:
                    life.read_all()
                else:
                    life.read_some(reads)
            life.read_all()
