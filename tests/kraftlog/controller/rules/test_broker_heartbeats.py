"""The sessions of brokers (CT-30), and the heartbeat table of CT-35, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.controller.rules.broker_heartbeats import BrokerHeartbeats, BrokerState, next_state, state_of
from tests.effort import examples
from tests.statemachine.builders import broker

FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerState

BOTH = (False, True)
"""A column that the table leaves open."""
YES, NO = (True,), (False,)
OFFSETS_ANY = ((None, None), (None, 5), (5, None), (5, -1), (5, 4), (5, 5), (5, 6))
"""Where the controlled shutdown began, and how far the slowest active broker is."""
OFFSETS_REACHED = ((5, None), (5, 5), (5, 6))
OFFSETS_NOT_REACHED = ((5, 4), (5, -1), (None, None), (None, 5))


@dataclass(frozen=True)
class Row:
    """One row of the table: a column holds every value for which the row applies."""

    name: str
    current: BrokerState
    following: BrokerState
    want_fence: tuple[bool, ...] = BOTH
    want_shut_down: tuple[bool, ...] = BOTH
    is_caught_up: tuple[bool, ...] = BOTH
    leads_any: tuple[bool, ...] = BOTH
    offsets: tuple[tuple[int | None, int | None], ...] = OFFSETS_ANY

    def cases(self) -> list[dict[str, object]]:
        return [
            {
                "want_fence": want_fence,
                "want_shut_down": want_shut_down,
                "is_caught_up": is_caught_up,
                "leads_any": leads_any,
                "controlled_shutdown_offset": controlled_shutdown_offset,
                "lowest_active_offset": lowest_active_offset,
            }
            for want_fence in self.want_fence
            for want_shut_down in self.want_shut_down
            for is_caught_up in self.is_caught_up
            for leads_any in self.leads_any
            for controlled_shutdown_offset, lowest_active_offset in self.offsets
        ]


TABLE = [
    Row("fenced, wants to shut down", FENCED, SHUTDOWN_NOW, want_shut_down=YES),
    Row("fenced, caught up", FENCED, UNFENCED, want_fence=NO, want_shut_down=NO, is_caught_up=YES),
    Row("fenced, not caught up", FENCED, FENCED, want_fence=NO, want_shut_down=NO, is_caught_up=NO),
    Row("fenced, wants to stay so", FENCED, FENCED, want_fence=YES, want_shut_down=NO),
    Row("unfenced, wants to be fenced and shut down", UNFENCED, SHUTDOWN_NOW, want_fence=YES, want_shut_down=YES),
    Row("unfenced, wants to be fenced", UNFENCED, FENCED, want_fence=YES, want_shut_down=NO),
    Row(
        "unfenced, wants to shut down, leads",
        UNFENCED,
        CONTROLLED_SHUTDOWN,
        want_fence=NO,
        want_shut_down=YES,
        leads_any=YES,
    ),
    Row(
        "unfenced, wants to shut down, leads nothing",
        UNFENCED,
        SHUTDOWN_NOW,
        want_fence=NO,
        want_shut_down=YES,
        leads_any=NO,
    ),
    Row("unfenced, wants nothing", UNFENCED, UNFENCED, want_fence=NO, want_shut_down=NO),
    Row("shutting down, leads", CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN, leads_any=YES),
    Row(
        "shutting down, leads nothing, others do not know",
        CONTROLLED_SHUTDOWN,
        CONTROLLED_SHUTDOWN,
        leads_any=NO,
        offsets=OFFSETS_NOT_REACHED,
    ),
    Row(
        "shutting down, leads nothing, others know",
        CONTROLLED_SHUTDOWN,
        SHUTDOWN_NOW,
        leads_any=NO,
        offsets=OFFSETS_REACHED,
    ),
    Row("told to end", SHUTDOWN_NOW, SHUTDOWN_NOW),
]


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
def test_heartbeat_state(row: Row) -> None:
    for case in row.cases():
        assert next_state(row.current, **case) is row.following, case  # type: ignore[arg-type]


@pytest.mark.parametrize("current", BrokerState)
def test_the_rows_cover_each_case_of_a_state_once(current: BrokerState) -> None:
    for case in Row("everything", current, current).cases():
        rows = [row.name for row in TABLE if row.current is current and case in row.cases()]
        assert len(rows) == 1, (case, rows)


@pytest.mark.parametrize(
    ("fenced", "in_controlled_shutdown", "state"),
    [
        (True, False, FENCED),
        (True, True, FENCED),
        (False, False, UNFENCED),
        (False, True, CONTROLLED_SHUTDOWN),
    ],
)
def test_the_state_is_what_the_registration_says(
    fenced: bool, in_controlled_shutdown: bool, state: BrokerState
) -> None:
    record = broker(1, fenced=fenced, in_controlled_shutdown=in_controlled_shutdown)
    assert state_of(record.register_broker) is state


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_ct30_a_session_lasts_for_the_timeout_and_not_longer() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    assert heartbeats.next_deadline_ms is None and heartbeats.stale_broker(0) is None
    heartbeats.touch(1, 10, now_ms=1_000)
    assert heartbeats.last_contact_ms(1) == 1_000
    assert heartbeats.next_deadline_ms == 10_000
    assert heartbeats.has_session(1, 9_999) and heartbeats.stale_broker(9_999) is None
    assert not heartbeats.has_session(1, 10_000) and heartbeats.stale_broker(10_000) == 1


def test_ct30_stale_brokers_go_one_at_a_time_the_oldest_first() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    for broker_id, now_ms in ((3, 0), (1, 1), (2, 2), (3, 3)):
        heartbeats.touch(broker_id, 10, now_ms)
    fenced = []
    while (stale := heartbeats.stale_broker(9_002)) is not None:
        assert heartbeats.stale_broker(9_002) == stale  # the call changes nothing
        heartbeats.expire(stale)
        fenced.append(stale)
    assert fenced == [1, 2]
    assert heartbeats.timeouts == 2
    assert heartbeats.next_deadline_ms == 9_003


def test_ct30_a_fenced_broker_has_no_session() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    heartbeats.touch(1, 10, 0)
    heartbeats.remove(1)
    assert heartbeats.last_contact_ms(1) is None
    assert heartbeats.controlled_shutdown_offset(1) is None
    assert not heartbeats.has_session(1, 0)
    assert heartbeats.stale_broker(1_000_000) is None


def test_ct30_only_a_session_that_timed_out_is_counted() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    heartbeats.touch(1, 10, 0)
    heartbeats.remove(1)
    heartbeats.expire(1)
    heartbeats.remove(2)
    assert heartbeats.timeouts == 0


def test_where_a_controlled_shutdown_began_is_remembered_once() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    heartbeats.touch(1, 10, 0)
    heartbeats.begin_controlled_shutdown(1, 20)
    heartbeats.begin_controlled_shutdown(1, 30)
    heartbeats.touch(1, 25, 1)
    assert heartbeats.controlled_shutdown_offset(1) == 20


def test_a_controlled_shutdown_that_a_fence_has_overtaken_begins_no_session() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    heartbeats.touch(1, 10, 0)
    heartbeats.remove(1)
    heartbeats.begin_controlled_shutdown(1, 20)
    assert heartbeats.controlled_shutdown_offset(1) is None and heartbeats.next_deadline_ms is None


def test_the_slowest_active_broker_counts() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    assert heartbeats.lowest_active_metadata_offset() is None
    for broker_id, metadata_offset in ((1, 10), (2, 20), (3, 30)):
        heartbeats.touch(broker_id, metadata_offset, 0)
    assert heartbeats.active_metadata_offsets() == {1: 10, 2: 20, 3: 30}
    assert heartbeats.lowest_active_metadata_offset() == 10
    heartbeats.begin_controlled_shutdown(1, 40)
    assert heartbeats.lowest_active_metadata_offset() == 20
    heartbeats.touch(2, 35, 1)
    assert heartbeats.lowest_active_metadata_offset() == 30
    heartbeats.remove(3)
    heartbeats.begin_controlled_shutdown(2, 50)
    assert heartbeats.active_metadata_offsets() == {}
    assert heartbeats.lowest_active_metadata_offset() is None


def test_a_controller_that_takes_over_gives_each_unfenced_broker_a_whole_session() -> None:
    heartbeats = BrokerHeartbeats(9_000)
    heartbeats.touch(9, 10, 0)
    heartbeats.touch(8, 10, 0)
    heartbeats.expire(8)
    records = [broker(1), broker(2, fenced=True), broker(3, in_controlled_shutdown=True)]
    heartbeats.take_over([record.register_broker for record in records], now_ms=500)
    assert [heartbeats.has_session(broker_id, 9_499) for broker_id in (1, 2, 3, 9)] == [True, False, True, False]
    assert heartbeats.controlled_shutdown_offset(3) is None
    assert heartbeats.active_metadata_offsets() == {1: -1, 3: -1}  # nothing is known of them yet, so no broker may go
    assert heartbeats.timeouts == 1


def test_a_session_timeout_must_be_above_0() -> None:
    with pytest.raises(ValueError, match="session_timeout_ms is 0"):
        BrokerHeartbeats(0)


# --- against a naive model --------------------------------------------------------------------------------------------


@dataclass
class Naive:
    """What `BrokerHeartbeats` returns, found by reading every session each time."""

    timeout_ms: int
    contacts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By broker id: the time, and how many contacts there were before."""
    offsets: dict[int, int] = field(default_factory=dict)
    shutdowns: dict[int, int] = field(default_factory=dict)
    timeouts: int = 0

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int, count: int) -> None:
        self.contacts[broker_id] = (now_ms, count)
        self.offsets[broker_id] = metadata_offset

    def forget(self, broker_id: int) -> None:
        for of_broker in (self.contacts, self.offsets, self.shutdowns):
            of_broker.pop(broker_id, None)

    def stale(self, now_ms: int) -> int | None:
        over = [broker_id for broker_id, (at, _) in self.contacts.items() if at + self.timeout_ms <= now_ms]
        return min(over, key=lambda broker_id: self.contacts[broker_id], default=None)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["touch", "touch", "touch", "forget", "expire", "sweep", "shut down"]),
        st.integers(1, 5),
        st.integers(-1, 50),
        st.sampled_from([0, 1, 5, 10, 40]),
    ),
    max_size=60,
)


@settings(max_examples=examples(100), deadline=None)
@given(steps=STEPS)
def test_sessions_are_what_a_naive_model_says(steps: list[tuple[str, int, int, int]]) -> None:
    heartbeats, naive, now_ms = BrokerHeartbeats(20), Naive(20), 0
    for count, (action, broker_id, offset, wait_ms) in enumerate(steps):
        now_ms += wait_ms
        if action == "touch":
            heartbeats.touch(broker_id, offset, now_ms)
            naive.touch(broker_id, offset, now_ms, count)
        elif action == "forget":
            heartbeats.remove(broker_id)
            naive.forget(broker_id)
        elif action == "shut down":
            heartbeats.begin_controlled_shutdown(broker_id, offset)
            if broker_id in naive.contacts:
                naive.shutdowns.setdefault(broker_id, offset)
        elif action in ("expire", "sweep"):
            gone = broker_id if action == "expire" else naive.stale(now_ms)
            if gone is not None:
                naive.timeouts += gone in naive.contacts
                heartbeats.expire(gone)
                naive.forget(gone)
        compare(heartbeats, naive, now_ms)


def compare(heartbeats: BrokerHeartbeats, naive: Naive, now_ms: int) -> None:
    contacts = naive.contacts
    active = {broker_id: naive.offsets[broker_id] for broker_id in contacts if broker_id not in naive.shutdowns}
    assert heartbeats.timeouts == naive.timeouts
    assert heartbeats.stale_broker(now_ms) == naive.stale(now_ms)
    assert heartbeats.next_deadline_ms == min((at + 20 for at, _ in contacts.values()), default=None)
    assert heartbeats.active_metadata_offsets() == active
    assert heartbeats.lowest_active_metadata_offset() == (min(active.values()) if active else None)
    for broker_id in range(1, 6):
        contact = contacts.get(broker_id)
        assert heartbeats.last_contact_ms(broker_id) == (None if contact is None else contact[0])
        assert heartbeats.has_session(broker_id, now_ms) == (contact is not None and now_ms - contact[0] < 20)
        assert heartbeats.controlled_shutdown_offset(broker_id) == naive.shutdowns.get(broker_id)
