"""The follower's end of fetch sessions (KIP-227), by itself and with the leader's end."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.fetch import FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData
from kraftlog.replicas.partitions.fetch_contexts import FetchIntent, fetch_context
from kraftlog.replicas.partitions.fetch_sessions import FetchPosition, FetchSessionCache
from kraftlog.replicas.partitions.fetch_sessions import PartitionKey as LeadersKey
from kraftlog.replicas.partitions.reading import Read
from kraftlog.replicas.replication.fetch_session import FetchSession, PartitionKey, SessionRequest
from tests.effort import some
from tests.statemachine.builders import an_id

SESSION_ID = 77
ONE, TWO, OTHER = PartitionKey(an_id(1), 0), PartitionKey(an_id(1), 1), PartitionKey(an_id(2), 0)


def position(key: PartitionKey, offset: int = 0, epoch: int = 0) -> FetchPartition:
    return FetchPartition(
        partition=key.number, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1_000
    )


def named(request: SessionRequest) -> dict[PartitionKey, int]:
    """The offset of each partition that a request names."""
    return {
        PartitionKey(topic.topic_id, one.partition): one.fetch_offset
        for topic in request.topics
        for one in topic.partitions
    }


def forgotten(request: SessionRequest) -> set[PartitionKey]:
    return {PartitionKey(topic.topic_id, number) for topic in request.forgotten for number in topic.partitions}


def response(*keys: PartitionKey, session_id: int = SESSION_ID, code: int = 0) -> FetchResponse:
    topics = tuple(
        FetchableTopicResponse(topic_id=key.topic_id, partitions=(PartitionData(partition_index=key.number),))
        for key in keys
    )
    return FetchResponse(session_id=session_id, error_code=code, responses=topics)


def begun(*keys: PartitionKey) -> FetchSession:
    """A session of these partitions."""
    session = FetchSession()
    for key in keys:
        session.want(key, position(key))
    session.next_request()
    assert not session.answered(response(*keys))
    return session


def test_the_first_request_names_everything_and_the_next_ones_only_what_has_changed() -> None:
    session = FetchSession()
    for key in (ONE, TWO, OTHER):
        session.want(key, position(key))
    request = session.next_request()
    assert (request.session_id, request.epoch) == (0, 0)
    assert named(request) == {ONE: 0, TWO: 0, OTHER: 0}
    assert len(request.topics) == 2
    assert not session.answered(response(ONE, TWO, OTHER))
    request = session.next_request()
    assert (request.session_id, request.epoch, request.topics, request.forgotten) == (SESSION_ID, 1, (), ())
    assert not session.answered(response())
    session.want(TWO, position(TWO, 5))
    request = session.next_request()
    assert (request.epoch, named(request)) == (2, {TWO: 5})


def test_a_position_that_the_leader_has_is_not_named_again() -> None:
    session = begun(ONE)
    session.want(ONE, position(ONE, 5))
    session.want(ONE, position(ONE))
    assert named(session.next_request()) == {}


def test_what_is_forgotten_is_named_so_once() -> None:
    session = begun(ONE, TWO)
    session.remove(TWO)
    session.remove(OTHER)
    request = session.next_request()
    assert (named(request), forgotten(request)) == ({}, {TWO})
    assert session.asked(TWO) is None
    assert not session.answered(response())
    assert forgotten(session.next_request()) == set()


def test_what_is_forgotten_and_wanted_again_stays() -> None:
    session = begun(ONE, TWO)
    session.remove(TWO)
    session.want(TWO, position(TWO, 9, epoch=2))
    request = session.next_request()
    assert (named(request), forgotten(request)) == ({TWO: 9}, set())


def test_what_was_asked_is_what_the_request_in_flight_has() -> None:
    session = begun(ONE)
    session.want(ONE, position(ONE, 5, epoch=1))
    asked = session.asked(ONE)
    assert asked is not None
    assert (asked.fetch_offset, asked.current_leader_epoch) == (0, 0)
    session.next_request()
    asked = session.asked(ONE)
    assert asked is not None
    assert (asked.fetch_offset, asked.current_leader_epoch) == (5, 1)


@pytest.mark.parametrize(
    ("code", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION_ID)],
)
def test_after_an_error_of_the_session_a_new_one_begins_which_closes_the_old(code: ErrorCode, session_id: int) -> None:
    session = begun(ONE, TWO)
    session.want(ONE, position(ONE, 3))
    session.next_request()
    assert session.answered(response(session_id=0, code=code))
    request = session.next_request()
    assert (request.session_id, request.epoch) == (session_id, 0)
    assert named(request) == {ONE: 3, TWO: 0}


def test_after_a_request_without_an_answer_a_new_one_begins() -> None:
    session = begun(ONE)
    session.next_request()
    session.lost()
    request = session.next_request()
    assert (request.session_id, request.epoch, named(request)) == (SESSION_ID, 0, {ONE: 0})


def test_what_was_told_and_not_used_is_asked_for_by_a_new_session() -> None:
    session = begun(ONE)
    session.reset()
    assert session.next_request().epoch == 0
    assert not session.answered(response(ONE))
    assert session.next_request().epoch == 1


def test_a_leader_without_room_for_a_session_is_told_everything_each_time() -> None:
    session = FetchSession()
    session.want(ONE, position(ONE))
    for _ in range(3):
        request = session.next_request()
        assert (request.session_id, request.epoch, named(request)) == (0, 0, {ONE: 0})
        assert not session.answered(response(ONE, session_id=0))


@pytest.mark.parametrize("told", [response(OTHER), response(session_id=SESSION_ID + 1)])
def test_an_answer_that_is_not_of_the_session_is_not_used(told: FetchResponse) -> None:
    session = begun(ONE)
    session.next_request()
    assert session.answered(told)
    assert session.next_request().epoch == 0


def test_epochs_go_round_and_leave_out_that_of_a_full_request() -> None:
    session = begun(ONE)
    session._epoch = 2**31 - 1
    assert session.next_request().epoch == 2**31 - 1
    assert not session.answered(response())
    assert session.next_request().epoch == 1


@pytest.mark.parametrize("seed", some(range(20), part=4))
def test_both_ends_agree_on_what_is_fetched_whatever_happens(seed: int) -> None:
    """The leader's end reads what the follower's wants, in each request; requests and answers get lost."""
    random = Random(seed)
    keys = [PartitionKey(an_id(topic), number) for topic in range(3) for number in range(3)]
    follower, cache = FetchSession(), FetchSessionCache(itertools.count(1).__next__)
    wanted: dict[PartitionKey, int] = {}
    for _ in range(200):
        for key in random.sample(keys, random.randrange(4)):
            if random.random() < 0.3:
                follower.remove(key)
                wanted.pop(key, None)
            else:
                wanted[key] = random.randrange(5)
                follower.want(key, position(key, wanted[key]))
        if not wanted:
            continue
        if random.random() < 0.05:
            follower.reset()
        request = follower.next_request()
        if random.random() < 0.1:
            follower.lost()  # before the leader has seen it
            continue
        context = fetch_context(cache, _intent(request), 0.0)
        if isinstance(context, ErrorCode):
            assert follower.answered(response(session_id=0, code=context))
            continue
        read = {PartitionKey(key.topic_id, key.number): at.offset for key, at in context.wanted.items()}
        assert read == wanted
        told = context.commit([(key, Read(None, 1, 1, 0)) for key in context.wanted], 0.0)
        if random.random() < 0.1:
            follower.lost()  # after the leader has answered
        elif random.random() < 0.05:
            cache.remove(told.session_id)
            follower.answered(response(session_id=told.session_id, code=told.error))
        else:
            found = [PartitionKey(key.topic_id, key.number) for key, _ in told.results]
            assert not follower.answered(response(*found, session_id=told.session_id, code=told.error))


def _intent(request: SessionRequest) -> FetchIntent:
    return FetchIntent(
        session_id=request.session_id,
        epoch=request.epoch,
        requested={
            LeadersKey("", topic.topic_id, one.partition): FetchPosition(one.fetch_offset, one.partition_max_bytes)
            for topic in request.topics
            for one in topic.partitions
        },
        forgotten=[
            LeadersKey("", topic.topic_id, number) for topic in request.forgotten for number in topic.partitions
        ],
        has_topic_ids=True,
        is_from_follower=True,
    )
