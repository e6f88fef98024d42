"""When the log start advances, and for which readers it waits (SN-40 to SN-43, SN-50 to SN-55).

Rules that tests here are named after: SN-41, SN-52.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kraftbase.errors import ConfigurationError
from kraftbase.types import Epoch, Offset
from raft.core.types import OffsetAndEpoch
from snapshot.log_start_policy import (
    Holder,
    LogStartConfig,
    LogStartDecision,
    LogStartPolicy,
    LogStartView,
    ReaderKind,
    ReaderPosition,
    StoredSnapshot,
    decide,
)
from tests.effort import examples
from tests.snapshot.builders import an_id

NOW_MS = 1_000_000
WALL_CLOCK_MS = 1_700_000_000_000
REPLICATED = LogStartConfig(
    retention_bytes=1000, retention_ms=10_000, lag_time_max_ms=500_000, replica_restart_grace_ms=0
)
EAGER = replace(REPLICATED, policy=LogStartPolicy.EAGER)
BEGINNING = OffsetAndEpoch(epoch=Epoch(0), offset=Offset(0))
STAY = LogStartDecision(None, ())


def to(offset: int, epoch: int = 1) -> LogStartDecision:
    return LogStartDecision(an_id(offset, epoch), ())


def held(*holders: Holder) -> LogStartDecision:
    return LogStartDecision(None, holders)


def stored(*offsets: int, age_ms: int = 100, eligible_for_ms: int = 1) -> tuple[StoredSnapshot, ...]:
    """Snapshots of 100 bytes each, of the same age."""
    return tuple(
        StoredSnapshot(
            an_id(offset, 1), 100, WALL_CLOCK_MS - age_ms, None if offset == offsets[-1] else NOW_MS - eligible_for_ms
        )
        for offset in offsets
    )


def replica(name: str, next_offset: int, seen_ago_ms: int | None = 0) -> ReaderPosition:
    seen_ms = None if seen_ago_ms is None else NOW_MS - seen_ago_ms
    return ReaderPosition(ReaderKind.REPLICA, name, Offset(next_offset), seen_ms)


def listener(name: str, next_offset: int) -> ReaderPosition:
    return ReaderPosition(ReaderKind.LISTENER, name, Offset(next_offset), None)


def holder(reader: ReaderPosition) -> Holder:
    return Holder(reader.kind, reader.name, reader.next_offset)


def leader(
    *offsets: int,
    start: int = 0,
    log_size_bytes: int = 5000,
    high_watermark: int = 10_000,
    readers: tuple[ReaderPosition, ...] = (),
    leads_for_ms: int = 100_000,
) -> LogStartView:
    """A leader whose log is too large."""
    return LogStartView(
        now_ms=NOW_MS,
        wall_clock_ms=WALL_CLOCK_MS,
        start=an_id(start, 1) if start else BEGINNING,
        log_size_bytes=log_size_bytes,
        high_watermark=Offset(high_watermark),
        snapshots=stored(*offsets),
        leading_since_ms=NOW_MS - leads_for_ms,
        leader_log_start_offset=Offset(-1),
        readers=readers,
    )


def follower(
    *offsets: int,
    leader_start: int,
    start: int = 0,
    high_watermark: int = 10_000,
    readers: tuple[ReaderPosition, ...] = (),
) -> LogStartView:
    """A follower with a small and young log."""
    view = leader(*offsets, start=start, log_size_bytes=1, high_watermark=high_watermark, readers=readers)
    return replace(view, leading_since_ms=None, leader_log_start_offset=Offset(leader_start))


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_defaults_are_kafkas() -> None:
    config = LogStartConfig()
    assert (config.retention_bytes, config.retention_ms, config.lag_time_max_ms) == (
        100 * 2**20,
        604_800_000,
        604_800_000,
    )
    assert (config.policy, config.replica_session_timeout_ms) == ("replicated", 9_000)
    assert config.replica_restart_grace_ms == 60_000, "of our own"


@pytest.mark.parametrize(
    ("name", "low"),
    [
        ("retention_bytes", 0),
        ("retention_ms", 0),
        ("lag_time_max_ms", 0),
        ("replica_session_timeout_ms", 1),
        ("replica_restart_grace_ms", 0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(name: str, low: int) -> None:
    values: dict[str, int] = {name: low}
    LogStartConfig(**values)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"{name} is {low - 1}; it must be at least {low}"):
        LogStartConfig(**{name: low - 1})  # type: ignore[arg-type]


# --- retention: common to both policies -------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize(
    ("config", "expected"), [(REPLICATED, to(10)), (EAGER, to(20))], ids=["replicated", "eager"]
)
"""From 0, with snapshots at 10, 20, 30: one policy goes to the oldest, the other deletes it and goes to the next."""


@BOTH
def test_sn41_the_log_start_moves_if_log_and_snapshots_are_too_large(
    config: LogStartConfig, expected: LogStartDecision
) -> None:
    assert decide(config, leader(10, 20, 30, log_size_bytes=700)) == STAY, "1000 bytes in all are not more than 1000"
    assert decide(config, leader(10, 20, 30, log_size_bytes=701)) == expected


@BOTH
def test_sn41_the_log_start_moves_if_the_oldest_snapshot_is_too_old(
    config: LogStartConfig, expected: LogStartDecision
) -> None:
    view = leader(10, 20, 30, log_size_bytes=0)
    assert decide(config, replace(view, snapshots=stored(10, 20, 30, age_ms=10_000))) == STAY
    assert decide(config, replace(view, snapshots=stored(10, 20, 30, age_ms=10_001))) == expected
    young = stored(10, age_ms=1) + stored(20, 30, age_ms=10_001)
    assert decide(config, replace(view, snapshots=young)) == STAY, "the oldest counts"


@pytest.mark.parametrize("config", [REPLICATED, EAGER])
@pytest.mark.parametrize("offsets", [(), (10,)])
def test_sn41_both_limits_are_soft_the_newest_snapshot_stays(config: LogStartConfig, offsets: tuple[int, ...]) -> None:
    view = replace(leader(*offsets, log_size_bytes=10**9), wall_clock_ms=2 * WALL_CLOCK_MS)
    assert decide(config, view) == STAY
    assert decide(config, replace(view, start=an_id(10, 1))) == STAY


@BOTH
def test_sn43_the_log_start_is_never_past_the_high_watermark(
    config: LogStartConfig, expected: LogStartDecision
) -> None:
    assert expected.start is not None
    reached = expected.start.offset
    assert decide(config, leader(10, 20, 30, high_watermark=reached)) == expected
    assert decide(config, leader(10, 20, 30, high_watermark=reached - 1)) == STAY
    assert decide(config, leader(10, 20, 30, high_watermark=-1)) == STAY


@pytest.mark.parametrize("config", [REPLICATED, EAGER])
def test_snapshots_below_the_log_start_do_not_count(config: LogStartConfig) -> None:
    view = leader(10, 20, 30, 40, 50, start=30, log_size_bytes=700)
    assert decide(config, view) == STAY, "those from 30 on have 300 bytes"
    assert decide(config, replace(view, log_size_bytes=701)) == to(40)
    old = stored(10, 20, age_ms=20_000) + stored(30, 40, 50)
    assert decide(config, replace(view, snapshots=old)) == STAY


# --- eager ------------------------------------------------------------------------------------------------------------


def test_sn40_every_node_moves_its_log_start_and_nobody_is_asked() -> None:
    readers = (replica("2", -1), replica("3", 5), listener("tables", 0))
    for view in (leader(10, 20, readers=readers), leader(10, 20, readers=readers, leads_for_ms=0)):
        assert decide(EAGER, view) == to(20)
        assert decide(EAGER, replace(view, leading_since_ms=None)) == to(20)


def test_sn42_the_log_start_goes_to_the_next_snapshot_one_step_at_a_time() -> None:
    assert decide(EAGER, leader(10, 20, 30, 40, start=10)) == to(20)
    assert decide(EAGER, leader(20, 30, 40, start=20)) == to(30)
    assert decide(EAGER, leader(30, 40, start=30)) == to(40), "the newest may remain alone"
    assert decide(EAGER, leader(40, start=40)) == STAY


# --- replicated, leader -----------------------------------------------------------------------------------------------


def test_sn51_a_leader_goes_where_all_live_replicas_and_all_listeners_have_been() -> None:
    readers = (replica("2", 10), replica("3", 11), listener("tables", 10))
    assert decide(REPLICATED, leader(10, 20, readers=readers)) == to(10)


@pytest.mark.parametrize("next_offset", [-1, 0, 9])
def test_sn51_a_leader_waits_for_whoever_is_behind_and_names_them_in_order(next_offset: int) -> None:
    slow_replica, slow_listener = replica("2", next_offset), listener("tables", next_offset)
    readers = (slow_listener, replica("3", 15), listener("exports", 15), slow_replica)
    assert decide(REPLICATED, leader(10, 20, readers=readers)) == held(holder(slow_listener), holder(slow_replica))
    assert decide(REPLICATED, leader(10, 20, readers=readers[:3])) == held(holder(slow_listener))
    assert decide(REPLICATED, leader(10, 20, readers=readers[1:])) == held(holder(slow_replica))


def test_sn51_a_leader_does_not_wait_for_replicas_that_are_not_live() -> None:
    assert decide(REPLICATED, leader(10, 20, readers=(replica("2", 5, seen_ago_ms=8_999),))) == held(
        Holder(ReaderKind.REPLICA, "2", Offset(5))
    )
    assert decide(REPLICATED, leader(10, 20, readers=(replica("2", 5, seen_ago_ms=9_000),))) == to(10)
    assert decide(REPLICATED, leader(10, 20, readers=(replica("2", -1, seen_ago_ms=None),))) == to(10)


def test_sn51_a_new_leader_waits_until_all_have_had_time_to_come() -> None:
    unseen, slow, fast = replica("2", -1, seen_ago_ms=None), replica("3", 5), replica("4", 15)
    for readers, holders in [((unseen, slow), [unseen, slow]), ((unseen, fast), [unseen]), ((fast,), [])]:
        view = leader(10, 20, readers=readers, leads_for_ms=8_999)
        assert decide(REPLICATED, view) == held(*map(holder, holders))
    assert decide(REPLICATED, leader(10, 20, readers=(unseen, fast), leads_for_ms=9_000)) == to(10)


def test_sn51_a_new_leader_does_not_go_for_the_time_limit_either() -> None:
    view = replace(
        leader(10, 20, readers=(replica("2", 15),), leads_for_ms=0), snapshots=stored(10, 20, eligible_for_ms=900_000)
    )
    assert decide(REPLICATED, view) == STAY


def test_sn51_the_only_replica_waits_for_its_listeners_alone() -> None:
    assert decide(REPLICATED, leader(10, 20, leads_for_ms=0)) == to(10)
    assert decide(REPLICATED, leader(10, 20, readers=(listener("tables", 10),), leads_for_ms=0)) == to(10)
    slow = listener("tables", 9)
    assert decide(REPLICATED, leader(10, 20, readers=(slow,), leads_for_ms=0)) == held(holder(slow))


def test_sn51_a_leader_waits_no_longer_than_the_time_limit() -> None:
    slow = replica("2", 5), listener("tables", 5)
    view = leader(10, 20, 30, readers=slow)
    waiting = replace(view, snapshots=stored(10, 20, 30, eligible_for_ms=499_999))
    assert decide(REPLICATED, waiting) == held(*map(holder, slow))
    assert decide(REPLICATED, replace(view, snapshots=stored(10, 20, 30, eligible_for_ms=500_000))) == to(10)


def test_sn51_the_time_limit_is_each_snapshots_own() -> None:
    slow = replica("2", 5)
    snapshots = stored(10, 20, eligible_for_ms=600_000)[:1] + stored(20, 30, eligible_for_ms=400_000)
    view = replace(leader(readers=(slow,)), snapshots=snapshots)
    assert decide(REPLICATED, view) == to(10)
    assert decide(REPLICATED, replace(view, start=an_id(10, 1))) == held(holder(slow))


def test_sn51_nobody_holds_a_log_start_that_retention_does_not_want_to_move() -> None:
    assert decide(REPLICATED, leader(10, 20, log_size_bytes=1, readers=(replica("2", 5),))) == STAY


def test_sn51_the_next_step_is_the_smallest_one() -> None:
    readers = (replica("2", 25),)
    assert decide(REPLICATED, leader(10, 20, 30, 40, readers=readers)) == to(10)
    assert decide(REPLICATED, leader(10, 20, 30, 40, start=10, readers=readers)) == to(20)
    assert decide(REPLICATED, leader(10, 20, 30, 40, start=20, readers=readers)) == held(holder(readers[0]))


def test_sn53_a_leader_never_goes_to_its_newest_snapshot() -> None:
    assert decide(REPLICATED, leader(10, 20, start=10)) == STAY
    assert decide(REPLICATED, leader(10)) == STAY
    overdue = replace(leader(10, 20, start=10), snapshots=stored(10, 20, eligible_for_ms=900_000))
    assert decide(REPLICATED, overdue) == STAY


def test_sn53_the_age_is_that_of_the_snapshot_at_the_log_start() -> None:
    view = leader(10, 20, 30, start=10, log_size_bytes=0)
    assert decide(REPLICATED, replace(view, snapshots=stored(10, age_ms=10_001) + stored(20, 30))) == to(20)
    assert decide(REPLICATED, replace(view, snapshots=stored(10) + stored(20, 30, age_ms=10_001))) == STAY


# --- replicated, follower ---------------------------------------------------------------------------------------------


def test_sn52_a_follower_goes_as_far_as_its_leader_whatever_retention_says() -> None:
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=20)) == to(20)
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=20, start=10)) == to(20)
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=20, start=20)) == STAY
    large = replace(follower(10, 20, 30, leader_start=0), log_size_bytes=10**9)
    assert decide(REPLICATED, large) == STAY


@pytest.mark.parametrize(
    ("leader_start", "expected"),
    [(-1, STAY), (0, STAY), (9, STAY), (10, to(10)), (19, to(10)), (20, to(20)), (29, to(20)), (30, STAY), (99, STAY)],
)
def test_sn52_a_follower_goes_to_its_own_snapshots_and_never_ahead(
    leader_start: int, expected: LogStartDecision
) -> None:
    """From 30 on it has no snapshot past the leader's log start."""
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=leader_start)) == expected


def test_sn51_a_replica_that_restarts_is_waited_for_as_long_as_the_grace_lasts() -> None:
    config = replace(REPLICATED, replica_restart_grace_ms=60_000)
    for seen_ago_ms, expected in [(59_999, False), (60_000, True)]:
        silent = replica("2", 5, seen_ago_ms=seen_ago_ms)
        assert decide(config, leader(10, 20, readers=(silent,))) == (to(10) if expected else held(holder(silent)))
    brief = replace(REPLICATED, replica_restart_grace_ms=1)
    silent = replica("2", 5, seen_ago_ms=8_999)
    assert decide(brief, leader(10, 20, readers=(silent,))) == held(holder(silent)), "no shorter than the session"


def test_sn51_a_replica_that_restarts_while_another_leader_is_elected_has_the_grace_from_then_on() -> None:
    config = replace(REPLICATED, replica_restart_grace_ms=60_000)
    unseen, fast = replica("2", -1, seen_ago_ms=None), replica("3", 15)
    view = leader(10, 20, readers=(unseen, fast), leads_for_ms=59_999)
    assert decide(config, view) == held(holder(unseen))
    assert decide(config, leader(10, 20, readers=(unseen, fast), leads_for_ms=60_000)) == to(10)


def test_sn52_a_follower_waits_for_its_listeners_no_longer_than_the_time_limit() -> None:
    slow, fast = listener("tables", 19), listener("exports", 20)
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=25, readers=(fast, slow))) == to(10)
    view = follower(10, 20, 30, leader_start=25, start=10, readers=(fast, slow))
    assert decide(REPLICATED, view) == held(holder(slow))
    waiting = replace(view, snapshots=stored(10, 20, 30, eligible_for_ms=499_999))
    assert decide(REPLICATED, waiting) == held(holder(slow))
    assert decide(REPLICATED, replace(view, snapshots=stored(10, 20, 30, eligible_for_ms=500_000))) == to(20)
    assert decide(REPLICATED, replace(view, readers=(fast,))) == to(20)


def test_sn52_a_follower_does_not_wait_for_other_replicas() -> None:
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=20, readers=(replica("2", 1),))) == to(20)


def test_sn52_a_follower_does_not_go_past_its_own_high_watermark() -> None:
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=20, high_watermark=19)) == to(10)
    assert decide(REPLICATED, follower(10, 20, 30, leader_start=20, high_watermark=-1)) == STAY


# --- invariants ------------------------------------------------------------------------------------------------------

OFFSETS = st.integers(0, 60)
READERS = st.builds(
    ReaderPosition,
    st.sampled_from(ReaderKind),
    st.sampled_from(["a", "b", "c"]),
    st.integers(-1, 60) | st.just(60),
    st.none() | st.integers(NOW_MS - 20_000, NOW_MS),
)
CONFIGS = st.builds(
    LogStartConfig,
    policy=st.sampled_from(LogStartPolicy),
    retention_bytes=st.sampled_from([0, 0, 300, 10_000]),
    retention_ms=st.sampled_from([0, 1000, 10_000]),
    lag_time_max_ms=st.sampled_from([0, 1000, 10_000]),
    replica_session_timeout_ms=st.sampled_from([1, 9_000]),
    replica_restart_grace_ms=st.sampled_from([0, 12_000]),
)


@st.composite
def views(draw: st.DrawFn) -> LogStartView:
    """Possible states of nodes, most of them with a log that is too large."""
    offsets = sorted(draw(st.sets(st.integers(1, 50), max_size=6)))
    snapshots = tuple(
        StoredSnapshot(
            an_id(offset, 1 + offset // 20),
            draw(st.integers(0, 200)),
            WALL_CLOCK_MS - draw(st.integers(0, 20_000)),
            None if offset == offsets[-1] else NOW_MS - draw(st.integers(0, 20_000)),
        )
        for offset in offsets
    )
    return LogStartView(
        now_ms=NOW_MS,
        wall_clock_ms=WALL_CLOCK_MS,
        start=draw(st.sampled_from([BEGINNING, *[found.snapshot_id for found in snapshots]])),
        log_size_bytes=draw(st.integers(0, 2000)),
        high_watermark=Offset(draw(st.just(60) | st.integers(-1, 60))),
        snapshots=snapshots,
        leading_since_ms=draw(st.none() | st.integers(NOW_MS - 20_000, NOW_MS)),
        leader_log_start_offset=Offset(draw(st.integers(-1, 60))),
        readers=tuple(draw(st.lists(READERS, max_size=4))),
    )


def live_readers(config: LogStartConfig, view: LogStartView) -> list[ReaderPosition]:
    """The readers from which no record may be taken."""
    return [
        reader
        for reader in view.readers
        if reader.kind is ReaderKind.LISTENER
        or (
            view.leading_since_ms is not None
            and reader.last_seen_ms is not None
            and view.now_ms - reader.last_seen_ms
            < max(config.replica_session_timeout_ms, config.replica_restart_grace_ms)
        )
    ]


def assert_safe(config: LogStartConfig, view: LogStartView, start: OffsetAndEpoch) -> None:
    chosen = next(found for found in view.snapshots if found.snapshot_id == start)
    assert view.start.offset < start.offset <= view.high_watermark
    if config.policy is LogStartPolicy.EAGER:
        return
    assert chosen != view.snapshots[-1], "one is above it"
    if view.leading_since_ms is None:
        assert start.offset <= view.leader_log_start_offset < view.snapshots[-1].snapshot_id.offset
    elif view.now_ms - view.leading_since_ms < config.replica_session_timeout_ms:
        assert all(reader.kind is ReaderKind.LISTENER for reader in view.readers), "other replicas may still fetch"
    assert chosen.eligible_since_ms is not None
    is_overdue = view.now_ms - chosen.eligible_since_ms >= config.lag_time_max_ms
    if not is_overdue:
        assert all(reader.next_offset >= start.offset for reader in live_readers(config, view))


@settings(max_examples=examples(500))
@given(CONFIGS, views(), st.integers(0, 500))
def test_every_step_is_safe_and_after_some_the_log_start_stays(
    config: LogStartConfig, view: LogStartView, freed_bytes: int
) -> None:
    steps = 0
    while (decision := decide(config, view)).start is not None:
        assert decision.holders == ()
        assert_safe(config, view, decision.start)
        start = decision.start
        view = replace(
            view,
            start=start,
            snapshots=tuple(found for found in view.snapshots if found.snapshot_id.offset >= start.offset),
            log_size_bytes=max(0, view.log_size_bytes - freed_bytes),
        )
        steps += 1
        assert steps <= 6, "each step goes to another snapshot"
    event(f"{config.policy} {view.leading_since_ms is not None} {min(steps, 2)} {bool(decision.holders)}")
    ends = [found.snapshot_id.offset for found in view.snapshots]
    for found in decision.holders:
        assert config.policy is LogStartPolicy.REPLICATED
        assert found.next_offset < max(ends), "it lacks records below a snapshot"
        assert found in map(holder, view.readers)


@settings(max_examples=examples(300))
@given(CONFIGS, views())
def test_what_is_decided_follows_from_the_view_alone(config: LogStartConfig, view: LogStartView) -> None:
    """A clock that is set, and a monotonic one that starts elsewhere, change nothing."""
    moved = replace(
        view,
        now_ms=view.now_ms + 7,
        wall_clock_ms=view.wall_clock_ms + 11,
        leading_since_ms=None if view.leading_since_ms is None else view.leading_since_ms + 7,
        snapshots=tuple(
            replace(
                found,
                timestamp_ms=found.timestamp_ms + 11,
                eligible_since_ms=None if found.eligible_since_ms is None else found.eligible_since_ms + 7,
            )
            for found in view.snapshots
        ),
        readers=tuple(
            replace(reader, last_seen_ms=None if reader.last_seen_ms is None else reader.last_seen_ms + 7)
            for reader in view.readers
        ),
    )
    assert decide(config, moved) == decide(config, view)
