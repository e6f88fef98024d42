"""The states of a fetcher: each edge at work, and the table by itself."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode, InvariantViolation
from kraftlog.kafka.messages.fetch import PartitionData
from kraftlog.kafka.messages.list_offsets import ListOffsetsRequest
from kraftlog.replicas.replication import replica_fetcher
from kraftlog.replicas.replication.fetcher_states import (
    FETCH_IN_FLIGHT,
    FETCHER_EDGES,
    IDLE,
    STOPPED,
    TRUNCATING,
    WAITING_FOR_FLUSH,
    AskingOffsets,
    BackingOff,
    FetcherState,
    check_fetcher_edge,
)
from kraftlog.replicas.replication.leader_offsets import LeaderOffsets
from kraftlog.replicas.replication.replica_fetcher import RECONNECT_MS_MIN, ReplicaFetcher
from kraftlog.replicas.replication.touched_partitions import Look, TouchedPartitions
from kraftlog.storage.partition_log import PartitionLog
from tests.kraftlog.replicas.replication.cluster_world import (
    BACKOFF_MS,
    WAIT_MS,
    A,
    B,
    ClockRuntime,
    ClockTimer,
    Cluster,
    Wire,
    led_by,
    two_brokers,
)

PAGE = Path(__file__).resolve().parents[4] / "docs" / "internals" / "replication.md"


@pytest.fixture
def edges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The edges that fetchers have taken since the test has last cleared the list."""
    taken: list[tuple[str, str]] = []

    def check(left: FetcherState, entered: FetcherState) -> None:
        check_fetcher_edge(left, entered)
        taken.append((type(left).__name__, type(entered).__name__))

    monkeypatch.setattr(replica_fetcher, "check_fetcher_edge", check)
    return taken


def fetcher_of(cluster: Cluster) -> ReplicaFetcher:
    """The one by which B follows A."""
    return cluster[B].fetchers._fetchers[A]


def idle_pair(tmp_path: Path, edges: list[tuple[str, str]], partitions: int = 1) -> Cluster:
    """B follows A, and its Fetch is parked."""
    cluster = two_brokers(tmp_path, *(led_by(A, 0, index=index) for index in range(1, partitions)))
    cluster.settle()
    assert fetcher_of(cluster).state is FETCH_IN_FLIGHT
    edges.clear()
    return cluster


# --- each edge at work ------------------------------------------------------------------------------------------------


def test_a_fetch_follows_when_what_was_appended_is_flushed(tmp_path: Path, edges: list[tuple[str, str]]) -> None:
    cluster = idle_pair(tmp_path, edges)
    cluster[A].append()
    cluster.settle(10)
    assert edges[:4] == [
        ("FetchInFlight", "Idle"),
        ("Idle", "WaitingForFlush"),
        ("WaitingForFlush", "Idle"),
        ("Idle", "FetchInFlight"),
    ]


def test_a_fetch_is_given_up_for_a_partition_that_is_not_in_it(tmp_path: Path, edges: list[tuple[str, str]]) -> None:
    cluster = idle_pair(tmp_path, edges)
    cluster.settle(WAIT_MS - cluster.runtime.clock_ms % WAIT_MS + 1)
    edges.clear()
    cluster.commit(led_by(A, 0, index=1))
    cluster.settle(WAIT_MS // 2)
    assert edges == [("FetchInFlight", "Idle"), ("Idle", "FetchInFlight")]
    assert sum(wire.is_closed for wire in cluster.wires) == 1


def test_a_leader_that_is_gone_is_left_alone_for_a_while(tmp_path: Path, edges: list[tuple[str, str]]) -> None:
    cluster = idle_pair(tmp_path, edges)
    cluster.cut(B, A)
    assert edges == [("FetchInFlight", "BackingOff")]
    cluster.settle(BACKOFF_MS - 1)
    cluster.mend()
    edges.clear()
    cluster.settle(BACKOFF_MS)
    assert edges[:2] == [("BackingOff", "Idle"), ("Idle", "FetchInFlight")]


def test_a_new_leader_epoch_makes_the_pause_shorter(tmp_path: Path, edges: list[tuple[str, str]]) -> None:
    cluster = idle_pair(tmp_path, edges)
    cluster.cut(B, A)
    cluster.settle(BACKOFF_MS + RECONNECT_MS_MIN)
    assert isinstance(fetcher_of(cluster).state, BackingOff)
    edges.clear()
    cluster.mend()
    cluster.commit(led_by(A, 1))
    assert edges == [("BackingOff", "BackingOff")]
    cluster.settle(RECONNECT_MS_MIN)
    assert fetcher_of(cluster).state is FETCH_IN_FLIGHT


def out_of_range(data: PartitionData) -> None:
    """Have a leader say that a partition is out of range."""
    data.error_code, data.records = ErrorCode.OFFSET_OUT_OF_RANGE, None


def test_db34_a_leader_is_asked_for_offsets_between_two_fetches(tmp_path: Path, edges: list[tuple[str, str]]) -> None:
    cluster = idle_pair(tmp_path, edges)
    cluster.change_answers(out_of_range)
    cluster[A].append()
    cluster.settle(5)
    cluster.change_answers(None)
    assert edges[:3] == [("FetchInFlight", "Idle"), ("Idle", "AskingOffsets"), ("AskingOffsets", "Idle")]


def test_a_leader_that_does_not_answer_a_question_is_left_alone(
    tmp_path: Path, edges: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = idle_pair(tmp_path, edges)
    ask = Wire.ask

    def cut(self: Wire, request: object, version: int, on_answer: Callable[..., None]) -> None:
        ask(self, request, version, on_answer)  # type: ignore[arg-type]
        if isinstance(request, ListOffsetsRequest):
            cluster.runtime.call_soon(lambda: cluster.cut(B, A))

    monkeypatch.setattr(Wire, "ask", cut)
    cluster.change_answers(out_of_range)
    cluster[A].append()
    cluster.settle(5)
    assert edges == [("FetchInFlight", "Idle"), ("Idle", "AskingOffsets"), ("AskingOffsets", "BackingOff")]
    monkeypatch.setattr(Wire, "ask", ask)
    cluster.change_answers(None)
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].batches() == cluster[A].batches()


def diverged(tmp_path: Path) -> Cluster:
    """A has what B, which leads by now, has not: two partitions."""
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()
    cluster.cut(B, A)
    for index in (0, 1):
        cluster[A].append(b"A alone has it", index=index)
    cluster.commit(led_by(B, 1), led_by(B, 1, index=1))
    return cluster


def test_logs_are_cut_between_two_fetches(
    tmp_path: Path, edges: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "CUTS_MS", 0.0)
    cluster = diverged(tmp_path)
    edges.clear()
    cluster.settle(100)
    at = edges.index(("Idle", "Truncating"))
    assert edges[at : at + 3] == [("Idle", "Truncating"), ("Truncating", "Idle"), ("Idle", "FetchInFlight")]
    assert cluster[A].log(0).log_end_offset == cluster[A].log(1).log_end_offset == 0


def test_an_answer_that_fails_behind_a_log_that_is_to_be_cut_does_not_stop_the_fetching(
    tmp_path: Path, edges: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    next_step, calls = replica_fetcher.next_step, itertools.count()

    def fail_once(*given: object) -> object:
        if next(calls) == 1:
            raise ValueError("a bug")
        return next_step(*given)  # type: ignore[arg-type]

    truncate, truncated = PartitionLog.truncate_as_follower, []

    def count(self: PartitionLog, end_offset: int, leader_epoch: int) -> None:
        truncated.append(self.partition.partition_id)
        truncate(self, end_offset, leader_epoch)

    cluster = diverged(tmp_path)
    monkeypatch.setattr(replica_fetcher, "next_step", fail_once)
    monkeypatch.setattr(PartitionLog, "truncate_as_follower", count)
    edges.clear()
    cluster.settle(100)
    assert ("Idle", "BackingOff") in edges
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[A].log(0).log_end_offset == cluster[A].log(1).log_end_offset == 0
    assert truncated == [0, 1]  # what the first answer said is not done later


def test_nothing_happens_after_a_stop(tmp_path: Path, edges: list[tuple[str, str]]) -> None:
    cluster = idle_pair(tmp_path, edges)
    cluster.cut(B, A)
    fetcher = fetcher_of(cluster)
    cluster[B].fetchers.stop()
    fetcher.stop()
    assert edges == [("FetchInFlight", "BackingOff"), ("BackingOff", "Stopped")]
    before = len(cluster.fetches(B, A))
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert fetcher.state is STOPPED
    assert len(cluster.fetches(B, A)) == before


# --- the table --------------------------------------------------------------------------------------------------------


def a_state_of_each_type() -> list[FetcherState]:
    question = LeaderOffsets(None, B, [], lambda found: None)  # type: ignore[arg-type]
    backing_off = BackingOff(ClockTimer(lambda: None), 0.0)
    return [IDLE, FETCH_IN_FLIGHT, TRUNCATING, WAITING_FOR_FLUSH, AskingOffsets(question), backing_off, STOPPED]


@pytest.mark.parametrize(
    ("left", "entered"),
    [
        (left, entered)
        for left, entered in itertools.product(a_state_of_each_type(), repeat=2)
        if type(entered) not in FETCHER_EDGES[type(left)]
    ],
    ids=lambda state: type(state).__name__,
)
def test_every_other_edge_is_refused(left: FetcherState, entered: FetcherState) -> None:
    with pytest.raises(InvariantViolation, match=type(entered).__name__):
        check_fetcher_edge(left, entered)


def test_the_page_has_the_table() -> None:
    shown = {
        left: frozenset(entered.split(", "))
        for left, entered in re.findall(r"^ *(\w+) +-> +([A-Z][\w, ]+|nothing)$", PAGE.read_text(), re.M)
    }
    table = {
        left.__name__: frozenset(entered.__name__ for entered in found) or frozenset({"nothing"})
        for left, found in FETCHER_EDGES.items()
    }
    assert shown == table


# --- when touched partitions are looked at ----------------------------------------------------------------------------


def test_one_look_is_scheduled_however_much_is_touched() -> None:
    runtime, looks = ClockRuntime(), []
    touched: TouchedPartitions

    def look() -> None:
        touched.begin_look()
        looks.append(list(touched.take_all()))
        touched.end_look()

    touched = TouchedPartitions(runtime, look)
    one, two = (replica_fetcher.PartitionKey(b"topic", number) for number in (1, 2))
    touched.add(one)
    touched.add(two)
    touched.add(one)
    assert touched.look is Look.SCHEDULED
    runtime.run()
    assert looks == [[one, two]]
    assert touched.look is Look.NOT_DUE


def test_nothing_is_scheduled_by_what_ends_in_a_look() -> None:
    runtime, looks = ClockRuntime(), []
    touched = TouchedPartitions(runtime, lambda: looks.append(None))
    with touched:
        touched.add(replica_fetcher.PartitionKey(b"topic", 1))
        assert touched.look is Look.AT_HAND
    assert touched.look is Look.NOT_DUE
    runtime.run()
    assert not looks
    touched.add(replica_fetcher.PartitionKey(b"topic", 2))
    with pytest.raises(ValueError, match="a bug"), touched:
        raise ValueError("a bug")
    assert touched.look is Look.SCHEDULED
