"""What a start makes of a log's files: every row of the table (DB-89)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kraftlog.storage.findings import Finding, Known, LogFiles, assess, lost_end, missing_segments
from kraftlog.storage.formats.inventory import ClosedSegment, LogEntry

THIS, OLD = UUID(int=1), UUID(int=2)
ENTRY = LogEntry(THIS, 1180, 100, 1000, (ClosedSegment(0, 500, 700), ClosedSegment(500, 1000, 900)))
OF_OLD = replace(ENTRY, topic_id=OLD)
WHOLE = {0: 700, 500: 900, 1000: 40}


def having(topic_id: UUID | None, segments: dict[int, int] | None = None) -> LogFiles:
    return LogFiles(topic_id, WHOLE if segments is None else segments)


@pytest.mark.parametrize(
    ("topic_id", "entry", "files", "finding"),
    [
        # The metadata has no such partition here, or has it elsewhere.
        (None, None, having(THIS), Finding.STRAY),
        (None, ENTRY, having(THIS), Finding.STRAY),
        (None, ENTRY, None, Finding.STRAY),
        (None, ENTRY, having(THIS, {}), Finding.STRAY),
        # No inventory, or it has nothing of the partition: it proves nothing.
        (THIS, None, None, Finding.NEW),
        (THIS, None, having(THIS), Finding.SOUND),
        (THIS, None, having(THIS, {0: 700, 1000: 40}), Finding.SOUND),
        (THIS, None, having(None), Finding.SOUND),
        (THIS, None, having(OLD), Finding.STRAY),
        # It is about another topic of the name: the topic was made again.
        (THIS, OF_OLD, None, Finding.NEW),
        (THIS, OF_OLD, having(THIS), Finding.SOUND),
        (THIS, OF_OLD, having(THIS, {}), Finding.SOUND),
        (THIS, OF_OLD, having(OLD), Finding.STRAY),
        (THIS, OF_OLD, having(None), Finding.STRAY),
        # It is about this one.
        (THIS, ENTRY, having(THIS), Finding.SOUND),
        (THIS, ENTRY, having(None), Finding.SOUND),
        (THIS, ENTRY, having(OLD), Finding.SOUND),
        (THIS, ENTRY, None, Finding.DAMAGED),
        (THIS, ENTRY, having(THIS, {}), Finding.DAMAGED),
        (THIS, ENTRY, having(THIS, {500: 900, 1000: 40}), Finding.DAMAGED),
        (THIS, ENTRY, having(THIS, {0: 700, 1000: 40}), Finding.DAMAGED),
        (THIS, ENTRY, having(THIS, {0: 700, 500: 600, 1000: 40}), Finding.DAMAGED),
        (THIS, ENTRY, having(THIS, {0: 700, 500: 901, 1000: 40}), Finding.DAMAGED),
        (THIS, ENTRY, having(THIS, {0: 700, 500: 900}), Finding.DAMAGED),
        # More segments than it has: before the log's start, or since.
        (THIS, replace(ENTRY, closed=ENTRY.closed[1:]), having(THIS), Finding.SOUND),
        (THIS, ENTRY, having(THIS, {**WHOLE, 1400: 3}), Finding.SOUND),
        # The log was starting over: its files may be any.
        (THIS, replace(ENTRY, last_base_offset=None, closed=()), having(THIS, {}), Finding.SOUND),
        (THIS, replace(ENTRY, last_base_offset=None, closed=()), None, Finding.DAMAGED),
    ],
)
def test_db89_what_a_log_is(
    topic_id: UUID | None, entry: LogEntry | None, files: LogFiles | None, finding: Finding
) -> None:
    """DB-89."""
    found, reason = assess(topic_id, entry, files)
    assert found is finding
    assert bool(reason) == (finding is Finding.DAMAGED)


@pytest.mark.parametrize(
    ("segments", "reason"),
    [
        (WHOLE, ""),
        ({0: 700, 1000: 40}, "the segment with offsets 500 to 999 is missing"),
        ({0: 700, 500: 600, 1000: 40}, "the segment with offsets 500 to 999 has 600 bytes, and had 900"),
        ({0: 700, 500: 900}, "the last segment, which begins at offset 1000, is missing"),
    ],
)
def test_db89_which_segment_is_missing(segments: dict[int, int], reason: str) -> None:
    """DB-89."""
    assert missing_segments(ENTRY, segments) == reason


@pytest.mark.parametrize(
    ("known", "end_offset", "words"),
    [
        (Known(recovery_point=10, entry=ENTRY), 10, ""),
        (Known(recovery_point=10, entry=ENTRY), 9, "ends at offset 9, and was flushed up to 10"),
        (Known(recovery_point=10), 9, ""),  # the checkpoint alone may be a stock Kafka's
        (Known(recovery_point=0, log_start_offset=9000), 2000, "checkpoint says that it starts at 9000"),
        (Known(recovery_point=0, log_start_offset=2000), 2000, ""),
        # Not flushed, committed by others, deleted by DeleteRecords, and then the power was lost.
        (Known(recovery_point=3, log_start_offset=9, entry=ENTRY), 4, ""),
        (Known(recovery_point=10, log_start_offset=9, entry=replace(ENTRY, last_base_offset=None)), 4, ""),
    ],
)
def test_db89_an_end_that_is_lost(known: Known, end_offset: int, words: str) -> None:
    """DB-89."""
    reason = lost_end(known, end_offset)
    assert words in reason
    assert bool(reason) == bool(words)
