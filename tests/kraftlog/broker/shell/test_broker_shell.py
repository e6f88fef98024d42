"""A broker from its start to its end: `broker_transcripts/*.txt` (`pytest --rewrite-transcripts`), and its states."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kraftbase.errors import InvariantViolation
from kraftlog.broker.metadata.own_registration import OwnRegistration
from kraftlog.broker.shell.broker_states import BROKER_EDGES, Closed, Closing, Opening, Serving, check_broker_edge
from kraftlog.broker.shell.membership import SHUTDOWN_TIMEOUT_MS
from kraftlog.telemetry.observer import (
    BrokerStateEntered,
    CleanShutdownMarked,
    Decision,
    DirectoryLost,
    FencingChanged,
    LogsClosed,
    Registered,
    RegistrationAsked,
    ShutdownAllowed,
    ShutdownAsked,
    ShutdownTimedOut,
)
from tests import transcripts
from tests.kraftlog.broker.shell.shell_commands import Commands

FILES = sorted((Path(__file__).parent / "broker_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_transcript_is_what_happens(path: Path, pytestconfig: pytest.Config) -> None:
    await transcripts.check(path, Commands().run, rewrite=pytestconfig.getoption("rewrite_transcripts"))


def test_a_state_follows_only_where_the_table_says_so() -> None:
    check_broker_edge(Opening(), Closing(None))
    with pytest.raises(InvariantViolation, match=r"from Opening\(\) to Serving\(\)"):
        check_broker_edge(Opening(), Serving())
    assert all(Closing in entered for left, entered in BROKER_EDGES.items() if left not in (Closing, Closed))


async def decisions_after(*commands: str, paths: tuple[str, ...] = ()) -> list[Decision]:
    broker = Commands(*paths)
    for command in commands:
        await broker.run(command)
    return broker.observer.decisions


STARTED = ("start", "disk", "bound", "accept 7", "disk", "answer fenced", "applied 8", "advance 200 ms")


async def test_an_observer_is_told_of_each_state_registration_and_change_of_the_fencing() -> None:
    commands = (*STARTED, "answer unfenced", "advance 2000 ms", "answer unfenced", "shut down", "advance 2000 ms")
    assert await decisions_after(*commands, "answer may go") == [
        BrokerStateEntered("Opening", "Registering"),
        RegistrationAsked(UUID(int=1), None),
        Registered(7),
        BrokerStateEntered("Registering", "CatchingUp"),
        FencingChanged(is_fenced=True),
        BrokerStateEntered("CatchingUp", "Serving"),
        FencingChanged(is_fenced=False),
        BrokerStateEntered("Serving", "ControlledShutdown"),
        ShutdownAsked(SHUTDOWN_TIMEOUT_MS),
        FencingChanged(is_fenced=True),
        ShutdownAllowed(),
        BrokerStateEntered("ControlledShutdown", "Closing"),
    ]


ENDED = ("done", "done", "done", "done", "disk")


async def test_an_observer_is_told_of_each_step_of_the_end_and_of_the_mark_for_the_next_start() -> None:
    decisions = await decisions_after(*STARTED, "shut down", "advance 2000 ms", "answer may go", *ENDED)
    assert decisions[-6:] == [
        ShutdownAsked(SHUTDOWN_TIMEOUT_MS),
        ShutdownAllowed(),
        BrokerStateEntered("ControlledShutdown", "Closing"),
        LogsClosed(is_clean=True),
        CleanShutdownMarked(7),
        BrokerStateEntered("Closing", "Closed"),
    ]


async def test_an_end_that_is_not_allowed_in_time_is_told_as_such() -> None:
    asked_for = f"advance {SHUTDOWN_TIMEOUT_MS} ms"
    decisions = await decisions_after(*STARTED, "shut down", "advance 2000 ms", asked_for, *ENDED)
    assert ShutdownTimedOut() in decisions
    assert ShutdownAllowed() not in decisions
    assert decisions[-3:-1] == [LogsClosed(is_clean=True), CleanShutdownMarked(7)], "all has been flushed (KIP-966)"


@pytest.mark.parametrize("asked", ["close", "fail", "logs lost"])
async def test_an_end_without_a_clean_shutdown_is_told_of_no_mark(asked: str) -> None:
    decisions = await decisions_after(*STARTED, asked, *ENDED)
    assert decisions[-2] == LogsClosed(is_clean=asked != "logs lost")


async def test_an_observer_is_told_once_of_each_directory_that_is_lost() -> None:
    decisions = await decisions_after(*STARTED, "one lost", "other lost", paths=("one", "other"))
    lost = [decision for decision in decisions if isinstance(decision, DirectoryLost)]
    assert [(of.path, "input/output error" in of.reason) for of in lost] == [("one", True), ("other", True)]


async def test_who_looks_at_its_registration_knows_of_its_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[OwnRegistration] = []
    monkeypatch.setattr(OwnRegistration, "leave", lambda registration: told.append(registration))
    await decisions_after(*STARTED, "shut down")
    assert len(told) == 1
