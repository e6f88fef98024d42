"""One request at a time to each peer, and a back-off after a failure (RF-12, RF-63)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftbase.types import Epoch
from raft.core.connections import CONNECTIONS_MAX, Connections
from raft.core.messages import Request
from tests.raft.core.builders import endpoint, fetch, vote

PEER, OTHER = endpoint(2), endpoint(3)
VOTE: Request = vote(1, 4)
FETCH: Request = fetch(1, 4)


def connections() -> Connections:
    return Connections(request_timeout_ms=2000, retry_backoff_ms=20)


def sent(made: Connections, request: Request = VOTE, now_ms: int = 0) -> int:
    return made.sent(PEER, request, Epoch(4), now_ms)


def test_rf63_a_peer_that_was_asked_is_not_ready_until_it_answers() -> None:
    made = connections()
    assert made.is_ready(PEER)
    correlation_id = sent(made)
    assert (made.is_ready(PEER), made.is_ready(OTHER), made.is_backing_off(PEER)) == (False, True, False)
    pending = made.take(correlation_id)
    assert pending is not None
    assert (pending.endpoint, pending.request, pending.epoch) == (PEER, VOTE, 4)
    assert made.is_ready(PEER)


def test_rf63_correlation_ids_are_never_used_twice() -> None:
    made = connections()
    first = sent(made)
    made.take(first)
    assert sent(made) != first


def test_rf63_an_unexpected_correlation_id_is_nobodys() -> None:
    made = connections()
    correlation_id = sent(made)
    assert made.take(correlation_id + 1) is None
    assert not made.is_ready(PEER)
    made.take(correlation_id)
    assert made.take(correlation_id) is None


def test_rf63_a_late_answer_does_not_end_the_request_that_followed() -> None:
    made = connections()
    late = sent(made)
    made.expire(2000)
    sent(made, now_ms=2000)
    assert made.take(late) is None
    assert not made.is_ready(PEER)


def test_rf63_a_fetch_under_way_is_seen_whomever_it_went_to() -> None:
    made = connections()
    sent(made)
    assert not made.has_fetch_under_way
    correlation_id = made.sent(OTHER, FETCH, Epoch(4), 0)
    assert made.has_fetch_under_way
    made.take(correlation_id)
    assert not made.has_fetch_under_way


def test_rf63_a_peer_that_failed_is_left_alone_for_the_back_off() -> None:
    made = connections()
    made.back_off(PEER, 100)
    assert (made.is_ready(PEER), made.is_backing_off(PEER), made.next_deadline_ms) == (False, True, 120)
    assert made.expire(119) == []
    assert not made.is_ready(PEER)
    assert made.expire(120) == []
    assert (made.is_ready(PEER), made.is_backing_off(PEER), made.next_deadline_ms) == (True, False, None)


def test_rf63_a_request_that_takes_too_long_is_given_up() -> None:
    made = connections()
    correlation_id = sent(made, now_ms=100)
    assert made.next_deadline_ms == 2100
    assert made.expire(2099) == []
    (pending,) = made.expire(2100)
    assert pending.correlation_id == correlation_id
    assert made.is_ready(PEER)
    assert made.take(correlation_id) is None


def test_rf12_a_new_state_finds_every_connection_ready() -> None:
    made = connections()
    correlation_id = sent(made, FETCH)
    made.back_off(OTHER, 0)
    made.reset()
    assert made.is_ready(PEER) and made.is_ready(OTHER)
    assert (made.next_deadline_ms, made.has_fetch_under_way, made.take(correlation_id)) == (None, False, None)


def test_back_offs_are_bounded_because_addresses_come_from_peers() -> None:
    made = connections()
    for node_id in range(CONNECTIONS_MAX + 10):
        made.back_off(endpoint(node_id), 0)
    backing_off = [node_id for node_id in range(CONNECTIONS_MAX + 10) if made.is_backing_off(endpoint(node_id))]
    assert backing_off == list(range(10, CONNECTIONS_MAX + 10))


@given(st.lists(st.tuples(st.sampled_from(["send", "answer", "fail", "wait"]), st.integers(0, 3)), max_size=50))
def test_a_peer_has_one_request_and_its_answer_makes_it_ready(steps: list[tuple[str, int]]) -> None:
    made, under_way, now_ms = connections(), dict[int, int](), 0
    for step, node_id in steps:
        match step:
            case "send" if made.is_ready(endpoint(node_id)):
                assert node_id not in under_way
                under_way[node_id] = made.sent(endpoint(node_id), VOTE, Epoch(1), now_ms)
            case "answer" if node_id in under_way:
                assert made.take(under_way.pop(node_id)) is not None
                assert made.is_ready(endpoint(node_id))
            case "fail" if node_id in under_way:
                made.take(under_way.pop(node_id))
                made.back_off(endpoint(node_id), now_ms)
                assert made.is_backing_off(endpoint(node_id))
            case "wait":
                now_ms += 700 * node_id
                given_up = {pending.correlation_id for pending in made.expire(now_ms)}
                under_way = {node: sent_id for node, sent_id in under_way.items() if sent_id not in given_up}
        deadline_ms = made.next_deadline_ms
        assert deadline_ms is None or deadline_ms > now_ms
        assert all(not made.is_ready(endpoint(node)) for node in under_way)
