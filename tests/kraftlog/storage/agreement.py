"""What must hold between the files of a log, whatever happened to it."""

from __future__ import annotations

from itertools import pairwise

from kraftlog.storage.formats.batch_header import has_right_crc
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.segment import Segment


def check_agreement(log: PartitionLog) -> None:
    """Segments follow on, indexes point at batches, the time index ascends, epochs are those of the batches."""
    segments = log._segments.from_offset(0)
    for segment, later in pairwise(segments):
        assert segment.end_offset <= later.base_offset
    for segment in segments:
        check_segment(segment)
    assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
    assert log.recovery_point <= log.log_end_offset
    entries = log.epochs.entries()
    assert list(entries) == sorted(entries)
    for segment in segments:
        for place in segment.batches(0):
            if place.header.base_offset >= log.log_start_offset:
                assert log.epochs.epoch_of(place.header.base_offset) == place.header.leader_epoch


def check_segment(segment: Segment) -> None:
    """The indexes of a segment agree with its batches."""
    places = list(segment.batches(0))
    by_last_offset = {place.header.last_offset: place for place in places}
    for position, header in places:
        assert has_right_crc(header, segment.read(position, header.size_bytes))
        assert segment.locate(header.base_offset) == segment.locate(header.last_offset) == (position, header)
    offsets, times = segment.offsets.file, segment.times.file
    previous = -1
    for index in range(offsets.entry_count):
        relative, position = offsets.entry(index)
        assert relative > previous
        previous = relative
        assert by_last_offset[segment.base_offset + relative].position == position
    previous_ms = -1
    for index in range(times.entry_count):
        timestamp_ms, relative = times.entry(index)
        assert timestamp_ms > previous_ms
        previous_ms = timestamp_ms
        before = [header for _, header in places if header.last_offset <= segment.base_offset + relative]
        assert max(header.max_timestamp_ms for header in before) == timestamp_ms
    if places:
        assert segment.largest.timestamp_ms == max(place.header.max_timestamp_ms for place in places)
        assert segment.end_offset >= places[-1].header.last_offset + 1
