"""The purgatory alone: what it keeps, returns and removes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.core.messages import FetchRequest
from raft.core.purgatory import ParkedFetch, Purgatory
from tests.raft.core.builders import fetch


def parked(request_id: int, deadline_ms: int = 500, fetch_offset: int = 0) -> ParkedFetch:
    return ParkedFetch(request_id, fetch(2, 1, fetch_offset, 1), deadline_ms)


def purgatory(*fetches: ParkedFetch, capacity: int = 100) -> Purgatory:
    made = Purgatory(capacity)
    for one in fetches:
        made.park(one)
    return made


def request_ids(fetches: list[ParkedFetch]) -> list[int]:
    return [one.request_id for one in fetches]


def test_it_is_full_at_its_capacity() -> None:
    made = purgatory(parked(1), capacity=2)
    assert (len(made), made.is_full) == (1, False)
    made.park(parked(2))
    assert (len(made), made.is_full) == (2, True)
    made.forget(1)
    assert not made.is_full


def test_all_are_taken_in_the_order_of_arrival() -> None:
    made = purgatory(parked(3, 30), parked(1, 10), parked(2, 20))
    assert request_ids(made.take_all()) == [3, 1, 2]
    assert (len(made), made.next_deadline_ms) == (0, None)
    assert made.take_all() == []


def test_those_that_are_wanted_are_taken_and_the_others_stay() -> None:
    made = purgatory(parked(1, fetch_offset=5), parked(2, fetch_offset=6), parked(3, fetch_offset=5))
    assert made.take_if(lambda request: request.fetch_offset < 5) == []
    assert request_ids(made.take_if(lambda request: request.fetch_offset < 6)) == [1, 3]
    assert request_ids(made.take_all()) == [2]


def test_those_whose_wait_is_over_are_taken_in_the_order_of_their_deadlines() -> None:
    made = purgatory(parked(1, 30), parked(2, 10), parked(3, 20), parked(4, 20))
    assert made.take_expired(9) == []
    assert request_ids(made.take_expired(20)) == [2, 3, 4]
    assert made.next_deadline_ms == 30


def test_the_deadline_of_one_that_was_forgotten_wakes_nobody() -> None:
    made = purgatory(parked(1, 10), parked(2, 20))
    made.forget(1)
    made.forget(99)
    assert made.next_deadline_ms == 20
    assert made.take_expired(15) == []


def test_a_fetch_that_comes_and_goes_leaves_nothing_behind() -> None:
    made = purgatory(parked(0, 10))
    for request_id in range(1, 5_000):
        made.park(parked(request_id, 2**40))
        made.forget(request_id)
    assert len(made._deadlines) < 100


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("park"), st.integers(0, 50), st.integers(0, 5)),
        st.tuples(st.just("forget"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("below"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("all"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_it_does_what_a_list_does(operations: list[tuple[str, int, int]]) -> None:
    made, model, next_id = purgatory(), list[ParkedFetch](), 0
    for name, first, second in operations:
        taken: list[ParkedFetch] = []
        expected: list[ParkedFetch] = []
        match name:
            case "park":
                one = parked(next_id, first, second)
                made.park(one)
                model.append(one)
                next_id += 1
            case "forget":
                made.forget(first)
                model = [one for one in model if one.request_id != first]
            case "below":

                def is_below(request: FetchRequest, end: int = first) -> bool:
                    return request.fetch_offset < end

                taken, expected = made.take_if(is_below), [one for one in model if is_below(one.request)]
            case "expire":
                due = [one for one in model if one.deadline_ms <= first]
                taken, expected = made.take_expired(first), sorted(due, key=lambda o: (o.deadline_ms, o.request_id))
            case "all":
                taken, expected = made.take_all(), model
        assert taken == expected
        model = [one for one in model if one not in expected]
        assert len(made) == len(model)
        assert made.next_deadline_ms == min((one.deadline_ms for one in model), default=None)
