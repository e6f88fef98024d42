"""A crash while committed batches are written, flushed and applied, with all that it may leave of log and database.

The database is written without waiting for the disk, so that a crash may bring back any commit that it has seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from kraftlog.sim.engine.tables_in_memory import empty_image, tables_in_memory
from raft.listener import CommittedBatch
from raft.storage.segmented_log import LogConfig
from statemachine.store.metadata_tables import MetadataTables
from tests.raft.lone_node import CLUSTER_ID, LoneNode
from tests.raft.storage.builders import all_batches
from tests.raft.storage.images import crash_everywhere
from tests.statemachine.builders import config, partition, remove_topic, topic

LOG = LogConfig(segment_bytes=400, preallocate_bytes=1, reserve_bytes=0, tail_cache_bytes=0)


NEW_DATABASE = empty_image(CLUSTER_ID)


@dataclass
class Told:
    """Every image of the database after a commit, and the reported commits, by append."""

    images: list[bytes] = field(default_factory=lambda: [NEW_DATABASE])
    records: dict[int, bytes] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)

    def start(self, files: MemoryFileSystem) -> LoneNode:
        tables = tables_in_memory(self.images[-1])

        def apply(batches: list[CommittedBatch]) -> None:
            tables.apply(batches)
            self.images.append(tables.connection.serialize())

        return LoneNode(files, LOG, tables.applied.end_offset, apply)

    def append(self, node: LoneNode, *records: bytes) -> None:
        append_id = node.append(*records)
        node.run()
        assert node.settled.pop(append_id) is None
        self.acknowledged.update(records)


RUNS = [
    [topic("a", 1).SerializeToString(), partition(1).SerializeToString()],
    [config("a", "retention.ms", "1").SerializeToString()],
    [remove_topic(1).SerializeToString(), topic("b", 2).SerializeToString()],
]


def _commits(files: MemoryFileSystem, told: Told) -> None:
    node = told.start(files)
    for records in RUNS:
        told.append(node, *records)


def _commits_and_starts_again(files: MemoryFileSystem, told: Told) -> None:
    told.append(told.start(files), *RUNS[0])
    told.append(told.start(files), *RUNS[1])


def _verify(files: MemoryFileSystem, told: Told) -> None:
    """Whatever commit the database falls back to, the log has the records, and each is applied once."""
    for image in dict.fromkeys(told.images):
        disk = _copy(files)
        tables = tables_in_memory(image)
        applied = tables.applied.end_offset  # a log that ends before this is refused when it is opened

        def apply(batches: list[CommittedBatch], tables: MetadataTables = tables) -> None:
            tables.apply(batches)

        node = LoneNode(disk, LOG, applied, apply)
        assert applied <= node.log.flushed_end_offset
        assert tables.applied.end_offset == node.log.log_end_offset
        batches = [CommittedBatch(batch) for batch in all_batches(node.log)]
        replayed = tables_in_memory(NEW_DATABASE)
        replayed.apply(batches)
        assert tables.applied == replayed.applied
        assert _rows(tables) == _rows(replayed)
        assert told.acknowledged <= {record for batch in batches for record in batch.records}


def _copy(files: MemoryFileSystem) -> MemoryFileSystem:
    copies = MemoryFileSystem()
    for directory in ("data", "data/log"):
        if not files.exists(directory):
            continue
        copies.make_directories(directory)
        for name, file in files.durable_files(directory).items():
            copy = copies.open(f"{directory}/{name}", create=True)
            copy.write_at(0, bytes(file.data))
            copy.fsync()
        copies.fsync_directory(directory)
    return copies


def _rows(tables: MetadataTables) -> list[object]:
    names = ("topics", "partitions", "brokers", "configs")
    return [tables.connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names]


def test_whatever_a_crash_leaves_log_and_database_come_to_the_same() -> None:
    coverage = crash_everywhere(lambda _: Told(), _commits, _verify)
    assert coverage.images >= 60
    assert coverage.sampled == 0


def test_whatever_a_crash_of_a_second_life_leaves_log_and_database_come_to_the_same() -> None:
    coverage = crash_everywhere(lambda _: Told(), _commits_and_starts_again, _verify)
    assert coverage.images >= 60
    assert coverage.sampled == 0


def test_the_applied_offset_of_each_image_is_what_its_log_had_flushed() -> None:
    """Applied after the flush, never before: records in the database are on the disk."""
    files, told = MemoryFileSystem(), Told()
    _commits(files, told)
    ends = [tables_in_memory(image).applied.end_offset for image in told.images]
    assert ends == sorted(ends)
    assert ends[-1] == Offset(1 + sum(len(records) for records in RUNS))
