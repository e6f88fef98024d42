"""Fetch sessions (KIP-227): DB-90 for what is told, DB-91 for who gets a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.replicas.partitions.fetch_contexts import FetchContext, FetchIntent, SessionResponse, fetch_context
from kraftlog.replicas.partitions.fetch_sessions import (
    EPOCH_MAX,
    EVICTABLE_AFTER_MS,
    FINAL_EPOCH,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
)
from kraftlog.replicas.partitions.reading import Read
from kraftlog.storage.leader_epochs import EpochEnd

EMPTY = Read(None, 10, 10, 0)
RECORDS = Read(None, 10, 10, 0, records=b"records")
REFUSED = Read(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads it"))
IS_FOLLOWER = True


def part(number: int) -> PartitionKey:
    return PartitionKey("clicks", ZERO_UUID, number)


def cache(slots_max: int = 10, partitions_max: int = 100, cached_partitions_max: int = 1_000) -> FetchSessionCache:
    """A cache whose sessions have the ids 1, 2, 3."""
    return FetchSessionCache(
        iter(range(1, 1_000)).__next__, slots_max, partitions_max=partitions_max,
        cached_partitions_max=cached_partitions_max,
    )  # fmt: skip


def begin(
    sessions: FetchSessionCache, session_id: int, epoch: int, asked: Iterable[int] = (), forgotten: Iterable[int] = (),
    *, has_topic_ids: bool = False, is_from_follower: bool = False, now_ms: float = 0, offset: int = 0,
) -> FetchContext | ErrorCode:  # fmt: skip
    """A request for partitions by their numbers."""
    positions = {part(number): FetchPosition(offset, 1_000) for number in asked}
    away = [part(number) for number in forgotten]
    return fetch_context(
        sessions, FetchIntent(session_id, epoch, positions, away, has_topic_ids, is_from_follower), now_ms
    )


def tell(
    context: FetchContext | ErrorCode, reads: Mapping[int, Read], default: Read = EMPTY, now_ms: float = 0
) -> SessionResponse:
    """The answer, if these are the results."""
    assert not isinstance(context, ErrorCode)
    return context.commit([(key, reads.get(key.number, default)) for key in context.wanted], now_ms)


def told_numbers(told: SessionResponse) -> list[int]:
    assert told.error is ErrorCode.NONE
    return [key.number for key, _ in told.results]


def full(sessions: FetchSessionCache, size: int, now_ms: float = 0, *, is_from_follower: bool = False) -> int:
    """A full request of `size` partitions; the id of the session that it got."""
    context = begin(sessions, 0, 0, range(size), is_from_follower=is_from_follower, now_ms=now_ms)
    return tell(context, {}, now_ms=now_ms).session_id


def use(sessions: FetchSessionCache, session_id: int, now_ms: float) -> None:
    """The next request of a session."""
    session = sessions.get(session_id)
    assert session is not None
    tell(begin(sessions, session_id, session.epoch, now_ms=now_ms), {}, now_ms=now_ms)


# --- what is told -----------------------------------------------------------------------------------------------------


def test_db90_a_full_request_is_told_everything_and_an_incremental_one_only_news() -> None:
    sessions = cache()
    first = tell(begin(sessions, 0, 0, [0, 1, 2]), {0: RECORDS})
    assert (first.session_id, told_numbers(first)) == (1, [0, 1, 2])
    assert told_numbers(tell(begin(sessions, 1, 1), {})) == []
    assert told_numbers(tell(begin(sessions, 1, 2), {1: Read(None, 11, 10, 0)})) == [1]
    assert told_numbers(tell(begin(sessions, 1, 3), {1: Read(None, 11, 10, 0)})) == []
    assert told_numbers(tell(begin(sessions, 1, 4), {1: Read(None, 11, 10, 3), 2: RECORDS})) == [1, 2]
    diverging = Read(None, 11, 10, 3, EpochEnd(1, 5))
    assert told_numbers(tell(begin(sessions, 1, 5), {1: diverging})) == [1]


def test_db90_news_are_exactly_six_fields() -> None:
    """A preferred read replica is told each time, a last stable offset and aborted transactions are not told alone."""
    sessions = cache()
    tell(begin(sessions, 0, 0, [0, 1]), {})
    elsewhere = EMPTY._replace(preferred_replica=3)
    assert told_numbers(tell(begin(sessions, 1, 1), {0: elsewhere})) == [0]
    assert told_numbers(tell(begin(sessions, 1, 2), {0: elsewhere})) == [0]
    assert told_numbers(tell(begin(sessions, 1, 3), {0: EMPTY._replace(last_stable_offset=9, aborted=())})) == []
    changed = {
        "error": ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, ""), "high_watermark": 11, "log_start_offset": 1,
        "diverging": EpochEnd(1, 5), "records": b"records", "preferred_replica": 3,
    }  # fmt: skip
    assert {*Read._fields} - {*changed} == {"last_stable_offset", "aborted"}
    for field, value in changed.items():
        sessions = cache()
        tell(begin(sessions, 0, 0, [0]), {})
        assert told_numbers(tell(begin(sessions, 1, 1), {0: EMPTY._replace(**{field: value})})) == [0], field


def test_db90_an_error_is_told_every_time_and_its_end_once() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0, 1]), {})
    assert told_numbers(tell(begin(sessions, 1, 1), {0: REFUSED})) == [0]
    assert told_numbers(tell(begin(sessions, 1, 2), {0: REFUSED})) == [0]
    assert told_numbers(tell(begin(sessions, 1, 3), {})) == [0]
    assert told_numbers(tell(begin(sessions, 1, 4), {})) == []


def test_db90_an_error_that_tells_offsets_is_followed_by_the_partition_too() -> None:
    sessions = cache()
    out_of_range = Read(ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "too far"), 10, 10, 0)
    tell(begin(sessions, 0, 0, [0]), {0: out_of_range})
    assert told_numbers(tell(begin(sessions, 1, 1), {})) == [0]


def test_db90_requests_add_change_and_forget_partitions() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0, 1]), {})
    context = begin(sessions, 1, 1, [2, 0], [1], offset=7)
    assert not isinstance(context, ErrorCode)
    assert {key.number: position.offset for key, position in context.wanted.items()} == {0: 7, 2: 7}
    assert told_numbers(tell(context, {})) == [2]
    context = begin(sessions, 1, 2, [], [5])
    assert not isinstance(context, ErrorCode)
    assert [key.number for key in context.wanted] == [0, 2]


def test_db90_partitions_that_gave_records_go_last() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0, 1, 2]), {})
    orders = []
    for epoch in range(1, 5):
        context = begin(sessions, 1, epoch)
        assert not isinstance(context, ErrorCode)
        order = [key.number for key in context.wanted]
        orders.append(order)
        tell(context, {order[0]: RECORDS})
    assert orders == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_db90_a_request_with_no_such_session_or_another_epoch_or_other_names_is_refused() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0]), {})
    assert begin(sessions, 2, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, 0, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, -1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, 1, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(sessions, 1, -2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(sessions, 1, 1, has_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert told_numbers(tell(begin(sessions, 1, 1), {})) == []
    assert begin(sessions, 1, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_db90_a_request_that_waits_while_the_sessions_next_one_comes_is_refused() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0]), {})
    waiting = begin(sessions, 1, 1)
    next_one = begin(sessions, 1, 2)
    assert tell(waiting, {0: RECORDS}) == SessionResponse(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1, ())
    assert told_numbers(tell(next_one, {0: RECORDS})) == [0]


def test_db90_a_full_request_closes_the_session_that_it_names() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0]), {})
    assert tell(begin(sessions, 1, 0, [0]), {}).session_id == 2
    assert begin(sessions, 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    last = tell(begin(sessions, 2, FINAL_EPOCH, [0]), {})
    assert (last.session_id, told_numbers(last)) == (0, [0])
    assert len(sessions) == sessions.partition_count == 0


def test_db90_a_session_that_forgets_all_partitions_is_closed() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0, 1]), {})
    assert tell(begin(sessions, 1, 1, [], [0, 1]), {}) == SessionResponse(ErrorCode.NONE, 0, [])
    assert len(sessions) == sessions.partition_count == 0


def test_a_reader_that_is_throttled_is_told_nothing_and_its_session_does_not_know_of_more() -> None:
    sessions = cache()
    tell(begin(sessions, 0, 0, [0]), {})
    context = begin(sessions, 1, 1)
    assert not isinstance(context, ErrorCode)
    assert [key.number for key, _ in context.changed([(part(0), RECORDS)])] == [0]
    assert context.empty_response() == SessionResponse(ErrorCode.NONE, 1, ())
    assert told_numbers(tell(begin(sessions, 1, 2), {0: Read(None, 11, 11, 0)})) == [0]
    throttled = begin(sessions, 0, 0, [0])
    assert not isinstance(throttled, ErrorCode)
    assert throttled.empty_response() == SessionResponse(ErrorCode.NONE, 0, ())
    assert len(sessions) == 1


def test_the_epoch_begins_again_at_its_end() -> None:
    session = FetchSession(1, 0, {}, is_privileged=False, has_topic_ids=False)
    session.epoch = EPOCH_MAX
    session.advance()
    assert session.epoch == 1


# --- who gets a slot --------------------------------------------------------------------------------------------------


def test_db91_a_full_cache_gives_no_session_until_one_was_unused_for_two_minutes() -> None:
    sessions = cache(3)
    assert [full(sessions, 1) for _ in range(4)] == [1, 2, 3, 0]
    use(sessions, 1, 60_000)
    assert full(sessions, 1, EVICTABLE_AFTER_MS) == 0
    assert full(sessions, 1, EVICTABLE_AFTER_MS + 1) == 4
    assert [sessions.get(session_id) is not None for session_id in (1, 2, 3, 4)] == [True, False, True, True]
    assert sessions.eviction_count == 1


def test_db91_a_follower_evicts_the_smallest_consumer_even_a_new_one() -> None:
    sessions = cache(3)
    assert [full(sessions, size) for size in (30, 20, 40)] == [1, 2, 3]
    assert full(sessions, 50) == 0
    assert full(sessions, 1, is_from_follower=IS_FOLLOWER) == 4
    assert sessions.get(2) is None
    assert [full(sessions, 1, is_from_follower=IS_FOLLOWER) for _ in range(3)] == [5, 6, 0]


def test_db91_a_consumer_with_more_partitions_evicts_one_with_fewer_that_is_not_new() -> None:
    sessions = cache(2)
    full(sessions, 20)
    full(sessions, 10)
    later_ms = EVICTABLE_AFTER_MS + 1
    use(sessions, 1, later_ms)
    use(sessions, 2, later_ms)
    assert full(sessions, 10, later_ms + 1) == 0, "one of the same size is worth no more"
    assert full(sessions, 11, later_ms + 1) == 3
    assert sessions.get(2) is None
    assert full(sessions, 15, later_ms + 2) == 0, "the one with 11 is new, and the other one has more"
    assert full(sessions, 21, later_ms + 2) == 4
    assert sessions.get(1) is None


def test_db91_a_follower_evicts_a_smaller_follower_that_is_not_new_and_a_consumer_never_does() -> None:
    sessions = cache(1)
    full(sessions, 5, is_from_follower=IS_FOLLOWER)
    assert full(sessions, 6, is_from_follower=IS_FOLLOWER) == 0
    use(sessions, 1, EVICTABLE_AFTER_MS + 1)
    assert full(sessions, 100, EVICTABLE_AFTER_MS + 2) == 0
    assert full(sessions, 6, EVICTABLE_AFTER_MS + 2, is_from_follower=IS_FOLLOWER) == 2


def test_db91_a_session_that_changes_its_size_changes_its_worth() -> None:
    sessions = cache(2)
    full(sessions, 3)
    full(sessions, 2)
    tell(begin(sessions, 2, 1, range(10)), {})
    assert full(sessions, 1, is_from_follower=IS_FOLLOWER) == 3
    assert [sessions.get(session_id) is not None for session_id in (1, 2)] == [False, True]
    assert sessions.partition_count == 11


def test_without_slots_there_are_no_sessions() -> None:
    sessions = cache(0)
    assert full(sessions, 1) == 0


def test_a_session_of_too_many_partitions_is_not_made_and_one_that_grows_over_the_bound_is_closed() -> None:
    sessions = cache(partitions_max=10)
    assert full(sessions, 11) == 0
    assert full(sessions, 10) == 1
    assert begin(sessions, 1, 1, [10]) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == sessions.partition_count == 0


@pytest.mark.parametrize(("now_ms", "session_id"), [(EVICTABLE_AFTER_MS, 0), (EVICTABLE_AFTER_MS + 1, 3)])
def test_over_the_bound_of_all_sessions_only_unused_ones_make_room(now_ms: int, session_id: int) -> None:
    sessions = cache(partitions_max=60, cached_partitions_max=100)
    assert [full(sessions, 50), full(sessions, 50)] == [1, 2]
    use(sessions, 2, 1)
    assert full(sessions, 60, now_ms, is_from_follower=IS_FOLLOWER) == 0
    assert full(sessions, 50, now_ms, is_from_follower=IS_FOLLOWER) == session_id


def test_an_id_is_never_given_twice_at_a_time() -> None:
    ids = iter([0, 7, 7, 0, 8])
    sessions = FetchSessionCache(ids.__next__)
    assert [full(sessions, 1), full(sessions, 1)] == [7, 8]
