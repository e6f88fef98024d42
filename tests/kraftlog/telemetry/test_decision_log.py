"""A broker's debug log: each decision in one line, with its reason, and none that floods it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.line_rate import INTERVAL_SECONDS, LINES_MAX
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_to_text
from kraftlog.telemetry import decision_log
from kraftlog.telemetry.decision_log import BrokerDecisionLog
from kraftlog.telemetry.observer import (
    BrokerStateEntered,
    CleanShutdownMarked,
    Decision,
    DirectoryLost,
    FencingChanged,
    FetchEnd,
    IsrChangeAsked,
    IsrChanged,
    IsrChangeRefused,
    LeadershipBegun,
    LeadershipEnded,
    LeadershipRefused,
    LogsClosed,
    LogStartedOver,
    LogTruncated,
    Registered,
    RegistrationAsked,
    RegistrationLost,
    RegistrationRefused,
    ReplicaStaysOut,
    ShutdownAllowed,
    ShutdownAsked,
    ShutdownTimedOut,
)

ID = uuid_to_text(UUID(int=1))
PARTITION = TopicPartition("t", 0)


class Log:
    """A log whose clock a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.observer = BrokerDecisionLog(lambda: self.now)

    def lines(self, *decisions: Decision) -> list[MutableMapping[str, Any]]:
        with capture_logs() as lines:
            for decision in decisions:
                self.observer.decided(decision)
        assert all(line.pop("log_level") == "debug" for line in lines)
        return lines


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (BrokerStateEntered("A", "B"), {"event": "broker state entered", "left": "A", "entered": "B"}),
        (Registered(7), {"event": "registration accepted", "broker_epoch": 7}),
        (FencingChanged(is_fenced=True), {"event": "broker fenced"}),
        (FencingChanged(is_fenced=False), {"event": "broker unfenced"}),
        (
            RegistrationAsked(UUID(int=1), 7),
            {"event": "registration asked for", "incarnation_id": ID, "previous_broker_epoch": 7},
        ),
        (
            RegistrationRefused(UUID(int=1), "E", "why", True),
            {"event": "registration refused", "incarnation_id": ID, "error": "E", "reason": "why", "is_final": True},
        ),
        (RegistrationLost(7, "E"), {"event": "registration lost", "broker_epoch": 7, "error": "E"}),
        (ShutdownAsked(10_000), {"event": "controlled shutdown asked for", "timeout_ms": 10_000}),
        (ShutdownAllowed(), {"event": "controlled shutdown allowed"}),
        (LogsClosed(is_clean=True), {"event": "log directories closed", "is_clean": True}),
        (CleanShutdownMarked(7), {"event": "clean shutdown marked", "broker_epoch": 7}),
        (DirectoryLost("/d", "gone"), {"event": "log directory lost", "path": "/d", "reason": "gone"}),
        (
            LeadershipBegun(PARTITION, 4, 9),
            {"event": "leadership begun", "partition": "t-0", "leader_epoch": 4, "start_offset": 9},
        ),
        (
            LeadershipRefused(PARTITION, 4, "offline"),
            {"event": "leadership refused", "partition": "t-0", "leader_epoch": 4, "reason": "offline"},
        ),
        (LeadershipEnded(PARTITION, 4), {"event": "leadership ended", "partition": "t-0", "leader_epoch": 4}),
        (
            IsrChanged("t-0", (1, 2), (1,)),
            {"event": "ISR changed", "partition": "t-0", "isr": [1, 2], "changed": [1]},
        ),
        (
            LogTruncated(PARTITION, 4, 9, 5, 6, True, "why"),
            {"event": "log truncated", "partition": "t-0", "leader_epoch": 4, "from_offset": 9, "to_offset": 5},
        ),
        (
            LogStartedOver(PARTITION, 4, 9, 20, 6, "why"),
            {"event": "log started over", "partition": "t-0", "leader_epoch": 4, "from_offset": 9, "to_offset": 20},
        ),
    ],
)  # fmt: skip
def test_a_decision_has_a_line(decision: Decision, line: dict[str, Any]) -> None:
    assert Log().lines(decision) == [line]


@pytest.mark.parametrize(
    "decision",
    [IsrChangeAsked("t-0", (1,), (1, 2)), IsrChangeRefused("t-0", (1,), "E", "why"), ShutdownTimedOut()],
)
def test_what_a_line_at_info_says_is_not_said_twice(decision: Decision) -> None:
    assert Log().lines(decision) == []


def test_why_a_replica_stays_out_is_said_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    lagging, fenced = ReplicaStaysOut(PARTITION, 2, ("lagging",)), ReplicaStaysOut(PARTITION, 2, ("fenced",))
    (line,) = log.lines(lagging, lagging)
    assert line == {
        "event": "replica stays out of the ISR", "partition": "t-0", "replica": 2, "reasons": ["lagging"]
    }  # fmt: skip
    assert [line["reasons"] for line in log.lines(lagging, fenced, lagging)] == [["fenced"], ["lagging"]]
    monkeypatch.setattr(decision_log, "REPLICAS_MAX", 1)
    assert len(log.lines(ReplicaStaysOut(PARTITION, 3, ("lagging",)), lagging)) == 2


@pytest.mark.parametrize(
    "decision",
    [
        RegistrationAsked(UUID(int=1), 7),
        RegistrationRefused(UUID(int=1), "E", "why", False),
        RegistrationLost(7, "E"),
    ],
)
def test_registrations_that_are_tried_for_long_are_logged_a_few_times_in_a_minute(decision: Decision) -> None:
    assert len(Log().lines(*[decision] * (LINES_MAX + 5))) == LINES_MAX


def test_fetches_are_logged_with_their_reasons_and_a_few_in_a_minute() -> None:
    log = Log()
    with capture_logs() as lines:
        log.observer.fetch_parked(2, 0, 1, 500)
        log.observer.fetch_completed(2, 70, FetchEnd.ENOUGH)
        for _ in range(LINES_MAX + 5):
            log.observer.fetch_parked(-1, 3, 9, 500)
        log.now += INTERVAL_SECONDS
        log.observer.fetch_parked(2, 0, 1, 500)
    assert len(lines) == 1 + 1 + (LINES_MAX - 1) + 1
    assert lines[0] == {
        "event": "fetch parked", "log_level": "debug", "replica_id": 2, "wait_ms": 500,
        "reason": "0 bytes are available, of 1 to wait for",
    }  # fmt: skip
    assert lines[1] == {
        "event": "fetch completed", "log_level": "debug", "replica_id": 2, "byte_count": 70,
        "reason": "enough bytes are available",
    }  # fmt: skip
    assert lines[-1]["left_out_before"] == 6


def test_a_fetch_that_waits_for_reads_is_logged_with_how_many() -> None:
    log = Log()
    with capture_logs() as lines:
        log.observer.fetch_reads_later(2, 500)
    assert lines == [
        {
            "event": "fetch parked", "log_level": "debug", "read_count": 2, "wait_ms": 500,
            "reason": "some records are not on this broker's disks",
        }
    ]  # fmt: skip
