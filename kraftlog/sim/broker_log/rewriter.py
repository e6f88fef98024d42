"""Rewrites closed segments of logs from time to time: several into one or two, with the same batches.

Compaction does the same to a log's files, but also removes records. Readers must see no difference here.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, StorageError
from kraftbase.partition import TopicPartition
from kraftlog.sim.broker_log.broker import Broker
from kraftlog.sim.broker_log.checkers.rules import READ
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.storage.formats.batch_header import has_right_crc, read_headers
from kraftlog.storage.log_reader import OpenSlice
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.rewrites import Rewrite

SEGMENTS_MAX: Final = 4
"""The maximum number of segments in a rewrite."""
SPLIT_RATE: Final = 0.5
ABANDONED_RATE: Final = 0.1
_READ_BYTES: Final = 10_000_000


class _Began(NamedTuple):
    process: BrokerProcess
    log: PartitionLog
    rewrite: Rewrite
    held: OpenSlice | None
    """A slice of an old segment that is read to its end after the segment's replacement."""
    held_bytes: bytes


class Rewriter:
    """Rewrites some segments of one log after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"rewriter {world.parameters.seed}")  # a separate generator, so that nothing else changes
        self._began: _Began | None = None

    def start(self) -> None:
        """Schedule the next rewrite."""
        self._world.event_queue.after(self._random.randint(50, 3_000) * MICROSECONDS_PER_MS, self._next)

    def _next(self) -> None:
        if not self._world.is_quiet:
            self._world.step(self._act)
            self.start()

    def _act(self, broker: Broker) -> None:
        began, self._began = self._began, None
        try:
            if began is None or began.process is not broker.process:
                self._begin(broker)
                return
            if self._random.random() < ABANDONED_RATE:
                began.rewrite.abandon()
            else:
                self._finish(began)
        except (ApiError, StorageError):
            self._world.marks.hit("a rewrite was refused")
        if began is not None:
            self._release(began)

    # --- start --------------------------------------------------------------------------------------------------------

    def _begin(self, broker: Broker) -> None:
        world, random = self._world, self._random
        names = sorted(world.metadata.topics)
        if not names:
            return
        log = broker.open_log(TopicPartition(random.choice(names), random.randrange(world.parameters.partitions)))
        bases = [] if log is None else [base for base in sorted(log.segment_bytes) if base <= log.rewrites.end_offset]
        if log is None or len(bases) < 2:
            return
        first = random.randrange(len(bases) - 1)
        end = random.randint(first + 1, min(len(bases) - 1, first + SEGMENTS_MAX))
        replaced = range(bases[first], bases[end])
        rewrite = log.rewrites.begin(replaced, broker.process.wall_clock_ms())
        try:
            self._copy(rewrite, log)
            held, held_bytes = _hold(log, replaced)
        except (StorageError, ApiError):
            rewrite.abandon()
            raise
        self._began = _Began(broker.process, log, rewrite, held, held_bytes)
        world.note(f"{log.directory}: {[new.base_offset for new in rewrite.new]} are made for {bases[first:end]}")

    def _copy(self, rewrite: Rewrite, log: PartitionLog) -> None:
        """Copy all batches into one segment or two."""
        batches = [
            (header, segment.read(position, header.size_bytes))
            for segment in rewrite.old
            for position, header in segment.batches(0)
        ]
        for header, data in batches:
            if not has_right_crc(header, data):
                raise StorageError(f"a batch of {log.directory} is corrupted: it is not copied")
        start, stop = rewrite.replaced.start, rewrite.replaced.stop
        inside = [header.base_offset for header, _ in batches if header.base_offset > start]
        split = self._random.choice(inside) if inside and self._random.random() < SPLIT_RATE else stop
        for limits in (range(start, split), range(split, stop)):
            if limits:
                segment = rewrite.add(limits.start)
                for header, data in batches:
                    if header.base_offset in limits:
                        segment.append(data, (header,), log.config)

    # --- end ----------------------------------------------------------------------------------------------------------

    def _finish(self, began: _Began) -> None:
        world, log, replaced = self._world, began.log, began.rewrite.replaced
        start = max(replaced.start, log.log_start_offset)
        before = _read(log, start, replaced.stop)
        is_finished = began.rewrite.finish()
        world.marks.hit("segments were rewritten" if is_finished else "a rewrite was left")
        world.note(f"{log.directory}: the segments in {replaced} are {'' if is_finished else 'not '}replaced")
        if _read(log, start, replaced.stop) != before:
            raise Violation(f"{READ}: {log.directory}: offsets {replaced} have other batches since they were rewritten")

    def _release(self, began: _Began) -> None:
        if began.held is not None:
            try:
                found = began.held.read()
            except StorageError:
                return  # the broker is shutting down: it has closed all files
            began.held.close()
            if found != began.held_bytes:
                raise Violation(f"{READ}: {began.log.directory}: a slice changed while it was read")


def _hold(log: PartitionLog, replaced: range) -> tuple[OpenSlice | None, bytes]:
    offset = max(replaced.start, log.log_start_offset)
    found = log.reader.locate(offset, _READ_BYTES, replaced.stop) if offset < replaced.stop else None
    return (None, b"") if found is None else (log.reader.open_slice(found), log.reader.read_slice(found))


def _read(log: PartitionLog, start: int, end: int) -> bytes:
    """Return all batches with offsets in between, complete, as readers get them."""
    found, offset = b"", start
    while offset < end and (data := log.reader.read(offset, _READ_BYTES, end)):
        found += data
        offset = max(header.last_offset for _, header in read_headers(data)) + 1
    return found
