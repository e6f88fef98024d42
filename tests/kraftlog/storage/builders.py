"""Batches as producers send them, and log directories on some file system."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from uuid import UUID

from kraftbase.errors import ApiError
from kraftbase.files.files import FileSystem
from kraftbase.partition import TopicPartition
from kraftbase.runtime import OnDone, Timer
from kraftlog.kafka.control_records import EndTxnMarker
from kraftlog.kafka.record_batch import CONTROL, encode_batch, read_batches
from kraftlog.kafka.record_values import ControlType, encode_control_record
from kraftlog.kafka.records import Record
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.batch_header import BatchHeader, read_header
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.producer_states import Origin
from kraftlog.storage.rewrites import Rewrite
from kraftlog.storage.slices import run_at_once

CLUSTER_ID = "kraftlogTestClusterAAA"
DIRECTORY_ID = UUID("6f1d9c52-3b0a-4e8f-9a57-0c4d2e81b3f6")
TOPIC_ID = UUID("0d0c0b0a-0908-4706-8504-030201000f0e")
CLICKS = TopicPartition("clicks", 0)
NOW_MS = 1_700_000_000_000
TRANSACTIONAL = 0x10
LOG_APPEND_TIME = 0x08


class NoTimer:
    """Never fires."""

    def cancel(self) -> None:
        """Nothing to cancel."""


class StepRuntime:
    """A runtime whose callbacks run when a test asks for it."""

    def __init__(self) -> None:
        self.clock_ms = 0.0
        self.soon: list[Callable[[], None]] = []

    def now_ms(self) -> float:
        return self.clock_ms

    def wall_clock_ms(self) -> int:
        return NOW_MS + int(self.clock_ms)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return NoTimer()

    def run_on_disk(self, work: Callable[[], None], on_done: OnDone) -> None:
        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            on_done(error)

        self.soon.append(run)

    def run_aside(self, work: Callable[[], None], on_done: OnDone) -> None:
        self.run_on_disk(work, on_done)

    def run(self) -> None:
        """Run what waits, and what that asks for."""
        while self.soon:
            self.soon.pop(0)()


def checkpoint(manager: LogManager, *, high_watermarks: bool = False) -> None:
    """Write the checkpoints of a manager's directories, or the high watermarks, in one go."""
    for directory in manager.online:
        run_at_once(directory.checkpoint_high_watermarks() if high_watermarks else directory.checkpoint())


def batch(
    count: int = 1, *, value: bytes = b"value", base_offset: int = 0, epoch: int = -1, timestamp_ms: int = NOW_MS,
    producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1, attributes: int = 0,
    timestamps: Sequence[int] | None = None, key: bytes | None = None,
) -> bytes:  # fmt: skip
    """A batch of `count` records, not compressed."""
    times = [timestamp_ms + index for index in range(count)] if timestamps is None else timestamps
    records = [Record(base_offset + index, time, key, value) for index, time in enumerate(times)]
    return encode_batch(
        records, base_offset=base_offset, partition_leader_epoch=epoch, attributes=attributes, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=sequence,
    )  # fmt: skip


def produced(producer_id: int, sequence: int, count: int = 1, producer_epoch: int = 0, attributes: int = 0) -> bytes:
    """A batch of an idempotent producer."""
    return batch(
        count, producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence, attributes=attributes
    )


def marker(producer_id: int, *, aborts: bool, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    """A control batch that ends a transaction."""
    kind = ControlType.ABORT if aborts else ControlType.COMMIT
    key, value = encode_control_record(kind, EndTxnMarker(coordinator_epoch=coordinator_epoch), 0)
    return encode_batch(
        [Record(0, NOW_MS, key, value)], base_offset=0, partition_leader_epoch=-1, attributes=CONTROL | TRANSACTIONAL,
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=-1,
    )  # fmt: skip


def header_of(data: bytes) -> BatchHeader:
    return read_header(data)


def damaged(data: bytes, at: int = -1) -> bytes:
    """The same with one byte changed."""
    changed = bytearray(data)
    changed[at] ^= 0x55
    return bytes(changed)


def with_field(data: bytes, at: int, form: str, value: int) -> bytes:
    """The same with another value in a field of the header, under a CRC that is right."""
    from kraftlog.storage.formats.batch_header import crc_of

    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc_of(changed, 21, len(changed)))
    return bytes(changed)


def open_directory(
    files: FileSystem, path: str = "data", *, config: PartitionLogConfig | None = None, now_ms: int = NOW_MS,
    runtime: StepRuntime | None = None, open_files_max: int = 64,
) -> LogDirectory:  # fmt: skip
    """A log directory with what is in it loaded."""
    handles = FileHandles(files, open_files_max)
    directory = LogDirectory.open(
        files, path, handles, runtime or StepRuntime(), cluster_id=CLUSTER_ID, node_id=1, new_directory_id=DIRECTORY_ID
    )
    directory.load(lambda partition: config or PartitionLogConfig(), now_ms)
    return directory


def delete_log(manager: LogManager, partition: TopicPartition, reason: ApiError) -> None:
    """Delete a partition's log, durably."""
    run_at_once(manager.delete_logs({partition: manager.retire_log(partition, reason)}))


def log_in(directory: LogDirectory, config: PartitionLogConfig | None = None) -> PartitionLog:
    """The log of `CLICKS`, made if it is not there."""
    found = directory.logs.get(CLICKS)
    return found or directory.create_log(CLICKS, TOPIC_ID, config or PartitionLogConfig(), NOW_MS, UUID(int=7))


def open_log(files: FileSystem, config: PartitionLogConfig | None = None, path: str = "data") -> PartitionLog:
    """The log of `CLICKS` in a directory."""
    return log_in(open_directory(files, path, config=config), config)


def append(log: PartitionLog, data: bytes, epoch: int = 0, now_ms: int = NOW_MS) -> int:
    """Append as a leader, a control batch as the coordinator; returns the base offset."""
    origin = Origin.COORDINATOR if read_header(data).is_control else Origin.CLIENT
    return log.append_as_leader(data, epoch, now_ms, origin).base_offset


def all_batches(log: PartitionLog) -> list[bytes]:
    """Every batch in the log, through reads."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while data := log.reader.read(offset, 10_000, log.log_end_offset):
        whole = [bytes(read.data) for read in read_batches(data)]
        found += whole
        offset = read_header(whole[-1]).last_offset + 1
    return found


def rewrite(log: PartitionLog, replaced: range, bases: Sequence[int]) -> Rewrite:
    """Begin to rewrite segments, with the same batches in new ones that begin at `bases`."""
    under_way = log.rewrites.begin(replaced, NOW_MS)
    offset = replaced.start
    batches: list[bytes] = []
    while offset < replaced.stop and (data := log.reader.read(offset, 1_000_000, replaced.stop)):
        batches += [bytes(found.data) for found in read_batches(data)]
        offset = read_header(batches[-1]).last_offset + 1
    for base_offset, end_offset in pairwise((*bases, replaced.stop)):
        segment = under_way.add(base_offset)
        for data in batches:
            header = read_header(data)
            if base_offset <= header.base_offset < end_offset:
                segment.append(data, (header,), log.config)
    return under_way
