"""From a leader's answer to what a follower does, rule by rule: DB-30, DB-31, DB-32, DB-33, DB-34, DB-36, DB-38."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from kraftlog.replicas.replication.following import (
    Append,
    AskOffsets,
    AwaitMetadata,
    Ignore,
    LogView,
    Phase,
    Retry,
    StartOver,
    Step,
    Truncate,
    after_offsets,
    first_phase,
    next_step,
    truncation_offset,
)
from kraftlog.storage.leader_epochs import EpochEnd, LeaderEpochs
from tests.kraftlog.storage.builders import batch


def log(
    end: int = 10, high_watermark: int = 6, start: int = 0, epochs: tuple[tuple[int, int], ...] = ((1, 0), (3, 5))
) -> LogView:
    """Epoch 1 up to offset 5, epoch 3 up to 10."""
    return LogView(start, end, high_watermark, LeaderEpochs(epochs))


def asked(offset: int = 10, epoch: int = 4, last_fetched: int = 3) -> FetchPartition:
    return FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=epoch, last_fetched_epoch=last_fetched,
        partition_max_bytes=1_000,
    )  # fmt: skip


def answer(
    *, code: int = 0, high_watermark: int = 8, start: int = 0, records: bytes | None = b"",
    diverging: tuple[int, int] | None = None,
) -> PartitionData:  # fmt: skip
    data = PartitionData(
        partition_index=0, error_code=code, high_watermark=high_watermark, log_start_offset=start, records=records
    )
    if diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return data


def step_for(data: PartitionData, view: LogView | None = None) -> Step:
    view = view or log()
    return next_step(data, asked(view.log_end_offset, last_fetched=view.epochs.latest), 4, view)


def test_db30_a_log_with_an_epoch_is_fetched_from_its_end_and_one_without_is_cut_first() -> None:
    assert first_phase(log()) is Phase.FETCHING
    assert first_phase(log(epochs=())) is Phase.TRUNCATING


@pytest.mark.parametrize(
    ("leader", "cut"),
    [
        ((3, 7), 7),  # the leader has less of the last epoch
        ((1, 4), 4),  # it has less of an earlier one
        ((1, 8), 5),  # it has more of an earlier one: this log's ends at 5
        ((2, 8), 5),  # it has an epoch that is not here: the largest below it ends at 5
        ((0, 3), 0),  # it has only an epoch before all of these, which are not in it: they begin at 0
        ((9, 8), 8),  # it has a later one, and ends before
        ((9, 80), 10),  # a cut never makes a log longer
        ((-1, 8), 8),  # it names no epoch: to its offset
        ((-1, 80), 10),
        ((3, -1), 6),  # it names no offset: to the high watermark
    ],
)
def test_db31_where_a_log_is_cut(leader: tuple[int, int], cut: int) -> None:
    assert truncation_offset(EpochEnd(*leader), log()) == cut


def test_db31_with_the_largest_smaller_epoch_it_asks_again() -> None:
    """Epoch 2 is not here, so the cut is at 5, where epoch 1 ends; then epoch 1 is what the follower names."""
    view = log()
    step = step_for(answer(diverging=(2, 8)), view)
    assert isinstance(step, Truncate)
    view.epochs.truncate_end(step.end_offset)
    assert view.epochs.latest == 1


def test_db32_records_that_come_with_a_diverging_epoch_are_not_appended() -> None:
    step = step_for(answer(diverging=(1, 4), records=batch(base_offset=10)))
    assert isinstance(step, Truncate)
    assert step.end_offset == 4


def test_db32_a_leader_cannot_part_from_an_epoch_that_it_was_not_asked_for() -> None:
    assert isinstance(step_for(answer(diverging=(5, 7))), Retry)


def test_db33_records_and_what_comes_with_them_are_taken_over() -> None:
    records = batch(base_offset=10)
    assert step_for(answer(high_watermark=9, start=2, records=records)) == Append(records, 9, 2)
    assert step_for(answer(high_watermark=9, start=2, records=None)) == Append(b"", 9, 2)


@pytest.mark.parametrize("data", [answer(high_watermark=-1), answer(start=-1)])
def test_db33_offsets_that_no_log_has_are_refused(data: PartitionData) -> None:
    assert isinstance(step_for(data), Retry)


def test_db33_an_empty_log_begins_where_the_leaders_first_batch_does() -> None:
    """The leader's log starts at 7, within a batch from 5 to 9."""
    first = batch(5, base_offset=5)
    empty = log(end=7, start=7, high_watermark=7, epochs=())
    assert step_for(answer(start=7, records=first), empty) == Append(first, 8, 7, start_over_at=5)
    later = batch(5, base_offset=7)
    assert step_for(answer(start=7, records=later), empty) == Append(later, 8, 7)
    not_empty = log(end=7, start=0)
    assert step_for(answer(records=first), not_empty) == Append(first, 8, 0)  # which the log will refuse


def test_db33_a_log_that_has_only_what_the_leader_has_deleted_begins_anew_within_its_first_batch() -> None:
    """It was cut to 7, where the leader's log starts, within a batch from 5 to 9: it asked for 7 for ever."""
    first = batch(5, base_offset=5)
    assert step_for(answer(start=7, records=first), log(end=7, start=0)) == Append(first, 8, 7, start_over_at=5)
    assert step_for(answer(start=6, records=first), log(end=7, start=0)) == Append(first, 8, 6)


@pytest.mark.parametrize("epoch", [3, 5])
def test_db38_an_answer_that_was_asked_for_in_another_leader_epoch_is_ignored(epoch: int) -> None:
    assert next_step(answer(records=batch(base_offset=10)), asked(epoch=epoch), 4, log()) == Ignore()


def test_db38_an_answer_for_another_offset_than_the_logs_end_is_ignored() -> None:
    assert next_step(answer(records=batch(base_offset=9)), asked(offset=9), 4, log()) == Ignore()


def test_db34_out_of_range_the_leader_is_asked_for_its_offsets() -> None:
    assert step_for(answer(code=ErrorCode.OFFSET_OUT_OF_RANGE)) == AskOffsets()


@pytest.mark.parametrize(
    ("end", "start", "kind", "offset"),
    [(8, 0, Truncate, 8), (9, 9, Truncate, 9), (20, 11, StartOver, 11), (20, 20, StartOver, 20)],
)
def test_db34_a_log_is_cut_to_the_leaders_end_or_starts_over_at_its_start(
    end: int, start: int, kind: type[Truncate] | type[StartOver], offset: int
) -> None:
    step = after_offsets(end, start, log())
    assert isinstance(step, kind)
    assert (step.end_offset if isinstance(step, Truncate) else step.offset) == offset


@pytest.mark.parametrize(("end", "start"), [(20, 10), (10, 0), (20, 0), (-1, -1), (5, 7), (20, -1)])
def test_db34_a_leader_that_has_the_offset_after_all_or_contradicts_itself_is_asked_again_later(
    end: int, start: int
) -> None:
    assert isinstance(after_offsets(end, start, log()), Retry)


def test_db36_fenced_leader_epoch_awaits_newer_metadata() -> None:
    assert isinstance(step_for(answer(code=ErrorCode.FENCED_LEADER_EPOCH)), AwaitMetadata)


@pytest.mark.parametrize(
    ("code", "is_expected"),
    [
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (-32_768, False),
        (103, False),  # INCONSISTENT_TOPIC_ID
    ],
)
def test_db36_other_errors_are_tried_again_after_a_pause(code: int, is_expected: bool) -> None:
    step = step_for(answer(code=code, high_watermark=-1, start=-1, records=None))
    assert isinstance(step, Retry)
    assert step.is_expected == is_expected
