"""Fencings that the logs tell of are compared with what the harness did to the brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from kraftbase.types import NodeId
from kraftlog.broker.shell.membership_messages import REGISTERED
from kraftlog.chaos.brokers.fencings import Fencings, Told, read_logs
from kraftlog.chaos.chronicle import Chronicle, Span
from kraftlog.controller.dead_brokers import FENCED_BY_EVIDENCE
from kraftlog.controller.periodic_tasks import FENCED_BY_SESSION
from kraftlog.process.logs import configure_logging, flush_logging

BROKER, VOTER, OTHER = NodeId(101), NodeId(1), NodeId(102)
SESSION_SECONDS = 2.5


def at(seconds: float, event: str, epoch: int = 7) -> Told:
    return Told(seconds, event, BROKER, epoch)


def compared(*lines: Told, lives: list[Span], ailments: list[Span] = [], refusals: list[Span] = []) -> Fencings:  # noqa: B006
    chronicle = Chronicle(lambda: 0.0)
    chronicle.lives, chronicle.ailments, chronicle.refusals = lives, ailments, refusals
    fencings = Fencings(chronicle, [VOTER], SESSION_SECONDS)
    fencings.compare(lines)
    return fencings


def test_a_broker_whose_process_was_ended_is_fenced_by_evidence() -> None:
    found = compared(
        at(2.0, REGISTERED), at(10.3, FENCED_BY_EVIDENCE), lives=[Span(BROKER, 1.0, 10.0), Span(BROKER, 10.1)]
    )
    assert found.violations == []
    assert found.counts == {"by evidence": 1}
    assert found.longest_seconds == pytest.approx(0.3)


@pytest.mark.parametrize(
    "lives", [[Span(BROKER, 1.0)], [Span(BROKER, 1.0, 10.4)], [Span(OTHER, 0, 1), Span(BROKER, 1)]]
)
def test_one_that_lives_is_a_violation(lives: list[Span]) -> None:
    found = compared(at(2.0, REGISTERED), at(10.3, FENCED_BY_EVIDENCE), lives=lives)
    (story,) = found.violations
    assert story.startswith("broker 101 with epoch 7 was fenced at 1970-01-01T")
    assert story.endswith(" by evidence, although its process lived")


def test_the_process_that_had_the_epoch_counts() -> None:
    """The broker was started again at once: the evidence about its former process is good, about its new one bad."""
    lives = [Span(BROKER, 1.0, 10.0), Span(BROKER, 10.05)]
    registrations = at(2.0, REGISTERED), at(10.2, REGISTERED, epoch=9)
    assert compared(*registrations, at(10.3, FENCED_BY_EVIDENCE), lives=lives).violations == []
    (story,) = compared(*registrations, at(10.3, FENCED_BY_EVIDENCE, epoch=9), lives=lives).violations
    assert "epoch 9" in story


def test_an_epoch_that_no_process_had_says_nothing() -> None:
    found = compared(at(10.3, FENCED_BY_EVIDENCE), lives=[Span(BROKER, 1.0)])
    assert (found.violations, found.counts["of a process that did not tell its epoch"]) == ([], 1)


def test_paused_and_cut_off_are_no_excuse_for_evidence() -> None:
    found = compared(
        at(2.0, REGISTERED),
        at(10.3, FENCED_BY_EVIDENCE),
        lives=[Span(BROKER, 1.0)],
        ailments=[Span(BROKER, 3.0), Span(VOTER, 3.0)],
    )
    assert len(found.violations) == 1


@pytest.mark.parametrize(
    ("began", "ended", "violations"), [(10.0, 10.05, 1), (10.0, 10.2, 0), (10.25, 10.45, 1), (5.0, 5.2, 1)]
)
def test_connections_that_were_refused_for_long_enough_explain_it(began: float, ended: float, violations: int) -> None:
    refusals = [Span(BROKER, began, ended), Span(OTHER, 10.0, 10.2)]
    found = compared(at(2.0, REGISTERED), at(10.3, FENCED_BY_EVIDENCE), lives=[Span(BROKER, 1.0)], refusals=refusals)
    assert len(found.violations) == violations


@pytest.mark.parametrize(
    ("ailments", "violations"),
    [
        ([], 1),
        ([Span(BROKER, 7.0, 10.0)], 0),
        ([Span(VOTER, 7.0, 10.0)], 0),
        ([Span(OTHER, 7.0, 10.0)], 1),
        ([Span(BROKER, 9.4, 10.0)], 1),  # it was well for 1.9 of the 2.5 s
        ([Span(BROKER, 7.0, 9.0), Span(VOTER, 9.5, 10.0)], 0),
        ([Span(BROKER, 7.0, 7.2)], 1),
        ([Span(BROKER, 1.0, 6.0)], 0),  # TCP may send again as late as after the same time
    ],
)
def test_a_session_expires_only_if_something_was_the_matter_all_the_time(ailments: list[Span], violations: int) -> None:
    found = compared(at(0.0, REGISTERED), at(10.0, FENCED_BY_SESSION), lives=[Span(BROKER, -1.0)], ailments=ailments)
    assert (len(found.violations), found.counts["by session"]) == (violations, 1)


def test_a_process_that_was_ended_needs_no_other_reason() -> None:
    assert compared(at(0.0, REGISTERED), at(9.0, FENCED_BY_SESSION), lives=[Span(BROKER, -1.0, 8.9)]).violations == []


def test_the_lines_are_those_that_processes_write(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        configure_logging("info")
        logger = structlog.get_logger("test")
        logger.info(REGISTERED, broker_id=101, epoch=5)
        logger.warning(FENCED_BY_EVIDENCE, broker_id=101, epoch=5)
        logger.warning(FENCED_BY_SESSION, broker_id=101, epoch=6, timeouts=1)
        logger.warning("something else", broker_id=101, epoch=7)
        flush_logging()
    finally:
        structlog.configure(**before)
    (tmp_path / "log").write_text(capfd.readouterr().err)
    found = read_logs([tmp_path / "log"])
    assert [(line.event, line.broker_id, line.epoch) for line in found] == [
        (REGISTERED, 101, 5),
        (FENCED_BY_EVIDENCE, 101, 5),
        (FENCED_BY_SESSION, 101, 6),
    ]
    assert [line.at for line in found] == sorted(line.at for line in found)
