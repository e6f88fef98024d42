"""CT-65: what is evidence that a broker's process has ended, and what is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.endpoint import Endpoint, Reply
from kraftlog.controller.rules.broker_evidence import (
    INTERVAL_MS,
    LOOK_AGAIN_MS,
    LOOK_SLOT_MS,
    REFUSED_MS,
    SLOT_MS,
    SLOTS_AHEAD_MS,
    SUSPICION_MS,
    BrokerEvidence,
    Probe,
)
from tests.effort import examples

ACCEPTED, REFUSED, UNKNOWN = Reply
INNER, OUTER = Endpoint("inner", 9092), Endpoint("outer", 9093)
EPOCH = 70


@dataclass
class Bench:
    """The evidence, with connections that get replies at once, and take `reply_ms`."""

    replies: Callable[[Endpoint, float], Reply]
    evidence: BrokerEvidence = field(default_factory=BrokerEvidence)
    now_ms: float = 1_000.0
    reply_ms: float = 0.0
    asked: list[Probe] = field(default_factory=list)
    asked_at_ms: list[float] = field(default_factory=list)

    def beat(self, stream: int = 1, broker_id: int = 5, epoch: int = EPOCH, at: Sequence[Endpoint] = (INNER,)) -> None:
        self.execute(self.evidence.heartbeat(stream, broker_id, epoch, tuple(at), self.now_ms))

    def end(self, stream: int = 1, *, by_peer: bool = True) -> None:
        self.execute(self.evidence.stream_ended(stream, self.now_ms, by_peer=by_peer))

    def execute(self, probe: Probe | None) -> None:
        """Until nothing more is to be asked."""
        while probe is not None:
            probe = self.one(probe)

    def one(self, probe: Probe) -> Probe | None:
        assert self.evidence.is_wanted(probe)
        self.asked.append(probe)
        self.now_ms = began_ms = max(self.now_ms, probe.at_ms)
        self.asked_at_ms.append(began_ms)
        self.now_ms += self.reply_ms
        replies = {endpoint: self.replies(endpoint, began_ms) for endpoint in probe.endpoints}
        return self.evidence.replied(probe, replies, began_ms, self.now_ms)

    def has_ended(self, broker_id: int = 5, epoch: int = EPOCH) -> bool:
        return self.evidence.has_ended(broker_id, epoch, self.now_ms)


def dying(at_ms: float = 0.0) -> Callable[[Endpoint, float], Reply]:
    """Listens until then; the first connection finds it listening."""
    seen: list[Endpoint] = []

    def reply(endpoint: Endpoint, now_ms: float) -> Reply:
        if endpoint not in seen:
            seen.append(endpoint)
            return ACCEPTED
        return ACCEPTED if now_ms < at_ms else REFUSED

    return reply


def test_a_stream_that_ended_and_refusals_in_a_row_are_evidence() -> None:
    bench = Bench(dying())
    bench.beat()
    began_ms = bench.now_ms
    bench.end()
    assert bench.has_ended()
    assert REFUSED_MS <= bench.now_ms - began_ms <= REFUSED_MS + 2 * INTERVAL_MS


def test_refusals_with_an_open_stream_are_none() -> None:
    bench = Bench(dying())
    bench.beat(1)
    bench.beat(2)
    asked = len(bench.asked)
    bench.end(1)
    assert len(bench.asked) == asked
    assert not bench.has_ended()
    bench.end(2)
    assert bench.has_ended()


def test_a_stream_that_this_node_ended_is_none() -> None:
    bench = Bench(dying())
    bench.beat()
    bench.end(by_peer=False)
    assert not bench.has_ended()


@pytest.mark.parametrize("reply", [ACCEPTED, UNKNOWN])
def test_a_connection_that_is_not_refused_is_none_and_the_session_decides_after_a_second(reply: Reply) -> None:
    seen: list[Endpoint] = []
    bench = Bench(lambda endpoint, _: reply if endpoint in seen else (seen.append(endpoint), ACCEPTED)[1])
    bench.beat()
    began_ms = bench.now_ms
    bench.end()
    assert not bench.has_ended()
    assert SUSPICION_MS / 4 <= bench.now_ms - began_ms <= SUSPICION_MS
    assert len(bench.asked) <= 1 + 5
    assert not bench.evidence._incarnations  # nothing is kept of it


def test_a_listener_that_closes_a_little_after_the_stream_is_looked_at_again() -> None:
    """The kernel closes the sockets of a killed process one after the other."""
    bench = Bench(dying(at_ms=1_040.0))
    bench.beat()
    bench.end()
    assert bench.has_ended()
    assert bench.now_ms >= 1_040 + REFUSED_MS


def test_a_listener_that_refuses_for_a_moment_is_none() -> None:
    flapping = dying()
    bench = Bench(lambda endpoint, ms: ACCEPTED if (ms - 1_000) % 100 >= 60 else flapping(endpoint, ms))
    bench.now_ms = 1_090.0
    bench.beat()
    bench.end()
    assert not bench.has_ended()


def test_a_refusal_that_took_long_is_of_a_moment_ago() -> None:
    bench = Bench(dying())
    bench.beat()
    bench.reply_ms = REFUSED_MS
    bench.end()
    assert not bench.has_ended()


def test_two_refusals_are_too_few_however_late_the_controller_is() -> None:
    bench = Bench(dying())
    bench.beat()
    probe = bench.evidence.stream_ended(1, bench.now_ms, by_peer=True)
    assert probe is not None
    for late_ms in (0.0, 10 * REFUSED_MS):
        bench.now_ms += late_ms
        probe = bench.one(probe)
        if probe is None:
            break
    assert not bench.has_ended()


def test_a_heartbeat_ends_the_suspicion_over_any_stream() -> None:
    bench = Bench(dying())
    bench.beat()
    probe = bench.evidence.stream_ended(1, bench.now_ms, by_peer=True)
    assert probe is not None
    bench.one(probe)
    bench.replies = dying()
    bench.beat(2)
    assert not bench.evidence.is_wanted(probe)
    assert not bench.has_ended()
    bench.beat(3, broker_id=6)
    bench.end(2)
    assert bench.has_ended()
    bench.evidence.heartbeat(3, 5, EPOCH, (INNER,), bench.now_ms)  # a stream that carries others, too
    assert not bench.has_ended()


def test_evidence_is_about_one_incarnation() -> None:
    bench = Bench(dying())
    bench.beat(1, epoch=EPOCH)
    bench.replies = dying()
    bench.beat(2, epoch=EPOCH + 9)
    bench.end(1)
    assert not bench.has_ended(epoch=EPOCH)
    assert not bench.has_ended(epoch=EPOCH + 9)
    bench.end(2)
    assert not bench.has_ended(epoch=EPOCH)
    assert bench.has_ended(epoch=EPOCH + 9)


def test_a_listener_that_never_accepted_a_connection_says_nothing() -> None:
    bench = Bench(lambda endpoint, _: REFUSED)
    bench.beat()
    bench.end()
    assert not bench.has_ended()
    assert len(bench.asked) == 1


def test_a_listener_out_of_reach_is_left_out_and_one_that_accepts_is_not() -> None:
    inner = dying()
    bench = Bench(lambda endpoint, ms: inner(endpoint, ms) if endpoint == INNER else UNKNOWN)
    bench.beat(at=(INNER, OUTER))
    bench.end()
    assert bench.has_ended()
    bench = Bench(lambda endpoint, ms: inner(endpoint, ms) if endpoint == INNER else ACCEPTED)
    inner = dying()
    bench.beat(at=(INNER, OUTER))
    bench.end()
    assert not bench.has_ended()


def test_other_listeners_of_the_same_incarnation_have_accepted_nothing_yet() -> None:
    bench = Bench(lambda endpoint, _: ACCEPTED if endpoint == INNER else REFUSED)
    bench.beat(1, at=(INNER,))
    bench.beat(1, at=(OUTER,))
    bench.end()
    assert not bench.has_ended()


def test_a_stream_of_several_brokers_says_nothing() -> None:
    bench = Bench(dying())
    bench.beat(1, broker_id=5)
    bench.beat(1, broker_id=6)
    bench.beat(1, broker_id=5)
    bench.end()
    assert not bench.has_ended(5)
    assert not bench.has_ended(6)


def test_a_new_controller_has_no_evidence_about_streams_from_before() -> None:
    bench = Bench(dying())
    bench.beat()
    bench.evidence.clear()
    bench.end()
    assert not bench.has_ended()


def test_listeners_are_looked_at_seldom_and_connections_are_few_a_second() -> None:
    bench = Bench(lambda endpoint, _: REFUSED)
    for _ in range(50):
        bench.beat()
    assert len(bench.asked) == 1
    bench.now_ms += LOOK_AGAIN_MS
    bench.beat()
    assert len(bench.asked) == 2
    bench = Bench(lambda endpoint, _: ACCEPTED)
    for broker_id in range(100):
        bench.beat(broker_id, broker_id)
    for stream in range(100):
        bench.end(stream)
    looks, suspicions = bench.asked_at_ms[:100], bench.asked_at_ms[100:]
    assert min(later - sooner for sooner, later in pairwise(looks)) >= LOOK_SLOT_MS
    assert min(later - sooner for sooner, later in pairwise(suspicions)) >= SLOT_MS


def test_streams_without_end_delay_no_suspicion_and_have_few_orders_wait() -> None:
    bench = Bench(lambda endpoint, _: ACCEPTED)
    bench.beat(stream=1, broker_id=5)
    now_ms = bench.now_ms
    orders = list[Probe]()
    for stream in range(2, 10_000):
        probe = bench.evidence.heartbeat(stream, 6, EPOCH, (OUTER,), now_ms)
        orders.extend([] if probe is None else [probe])
        bench.evidence.stream_ended(stream, now_ms, by_peer=True)
    assert len(orders) <= SLOTS_AHEAD_MS / LOOK_SLOT_MS + 2
    assert not any(bench.evidence.is_wanted(order) for order in orders)
    bench.replies = lambda endpoint, _: REFUSED
    bench.end(stream=1)
    assert bench.has_ended()
    assert bench.now_ms - now_ms <= 2 * REFUSED_MS


@pytest.mark.parametrize("reply", [ACCEPTED, UNKNOWN])
def test_brokers_that_do_not_refuse_do_not_keep_the_evidence_about_one_that_does(reply: Reply) -> None:
    bench = Bench(lambda endpoint, _: ACCEPTED)
    others = range(100, 160)
    for broker_id in (*others, 5):
        bench.beat(broker_id, broker_id)
    began_ms = bench.now_ms
    orders = [bench.evidence.stream_ended(broker_id, began_ms, by_peer=True) for broker_id in (*others, 5)]
    waiting = [order for order in orders if order is not None]
    asked = 0
    while not bench.has_ended():  # all at the same time
        probe = min(waiting, key=lambda order: order.at_ms)
        waiting.remove(probe)
        bench.now_ms = max(bench.now_ms, probe.at_ms)
        found = REFUSED if probe.broker_id == 5 else reply
        following = bench.evidence.replied(probe, {INNER: found}, bench.now_ms, bench.now_ms)
        waiting.extend([] if following is None else [following])
        asked += 1
    assert bench.now_ms - began_ms <= SUSPICION_MS
    assert asked <= SUSPICION_MS / SLOT_MS + 5


def test_too_many_suspicions_at_once_leave_it_to_the_session() -> None:
    bench = Bench(lambda endpoint, _: ACCEPTED)
    for broker_id in range(300):
        bench.beat(broker_id, broker_id)
    orders = [bench.evidence.stream_ended(broker_id, bench.now_ms, by_peer=True) for broker_id in range(300)]
    assert 0 < sum(order is not None for order in orders) <= SUSPICION_MS / SLOT_MS + 2


def test_nothing_is_kept_of_streams_that_ended() -> None:
    bench = Bench(dying())
    for stream in range(20):
        bench.beat(stream, broker_id=stream % 3, epoch=stream)
    for stream in range(20):
        bench.end(stream, by_peer=False)
    assert not bench.evidence._streams
    assert not bench.evidence._incarnations


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(Reply)), min_size=1, max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_only_a_row_of_refusals_is_evidence(replies: list[tuple[int, Reply]]) -> None:
    """Whatever the replies and their delays: the last 100 ms were refused, four times at least."""
    bench = Bench(dying())
    bench.beat()
    probe = bench.evidence.stream_ended(1, bench.now_ms, by_peer=True)
    row: list[float] = []
    for delay_ms, reply in replies:
        if probe is None:
            break
        began_ms = bench.now_ms = max(bench.now_ms, probe.at_ms)
        bench.now_ms += delay_ms
        row = [*row, began_ms] if reply is REFUSED else []
        probe = bench.evidence.replied(probe, {INNER: reply}, began_ms, bench.now_ms)
        is_evidence = len(row) >= 4 and bench.now_ms - row[0] >= REFUSED_MS
        assert bench.has_ended() == is_evidence
