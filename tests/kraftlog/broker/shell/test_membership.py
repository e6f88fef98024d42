"""A broker's membership: `transcripts/*.txt` (`pytest --rewrite-transcripts`), and what they cannot show."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ErrorCode, FlushFailed, InvariantViolation
from kraftlog.broker.shell import membership_messages
from kraftlog.broker.shell.membership_states import MEMBERSHIP_EDGES, Accepted, Registered, Stopped, check_edge
from kraftlog.telemetry.observer import Decision, RegistrationAsked, RegistrationLost, RegistrationRefused
from tests import transcripts
from tests.kraftlog.broker.shell.membership_commands import Commands, Stage

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_transcript_is_what_happens(path: Path, pytestconfig: pytest.Config) -> None:
    await transcripts.check(path, Commands().run, rewrite=pytestconfig.getoption("rewrite_transcripts"))


async def happened(*commands: str) -> list[str]:
    """What the last of these commands shows."""
    several, lines = Commands(), list[str]()
    for command in commands:
        lines = await several.run(command)
    return lines


REGISTERED = ("start", "cluster found", "accept 7", "disk", "answer unfenced")


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, True),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.NOT_CONTROLLER, False),
        (ErrorCode.STALE_BROKER_EPOCH, False),
    ],
)
async def test_what_ends_a_broker_that_was_never_let_in(code: ErrorCode, ends: bool) -> None:
    lines = await happened("start", "cluster found", f"refuse {code.name}")
    assert (f"cannot go on: {code.name}: refused" in lines) == ends


@pytest.mark.parametrize("code", [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_a_node_that_fails_does_not_end_one_that_was(code: ErrorCode) -> None:
    lines = await happened(*REGISTERED, "advance 2000 ms", f"refuse {code.name}", "advance 200 ms")
    assert lines == ["heartbeat of epoch 7, metadata applied to 0"]


async def told_after(*commands: str) -> list[Decision]:
    """What its broker is told of."""
    several = Commands()
    for command in commands:
        await several.run(command)
    return several.decisions


async def test_each_registration_that_is_asked_for_and_each_refusal_is_told() -> None:
    first = UUID(int=1)
    refused = RegistrationRefused(first, "DUPLICATE_BROKER_REGISTRATION", "refused", is_final=False)
    ended = RegistrationRefused(first, "INCONSISTENT_CLUSTER_ID", "refused", is_final=True)
    asked = RegistrationAsked(first, None)
    again = ("refuse DUPLICATE_BROKER_REGISTRATION", "advance 200 ms", "refuse INCONSISTENT_CLUSTER_ID")
    assert await told_after("start", "cluster found", *again) == [asked, refused, asked, ended]


async def test_what_a_clean_shutdown_leaves_is_told_with_the_next_registration() -> None:
    commands = (*REGISTERED, "shut down", "advance 2000 ms", "answer may go", "end", "start")
    assert await told_after(*commands) == [RegistrationAsked(UUID(int=1), None), RegistrationAsked(UUID(int=2), 7)]


async def test_a_lost_registration_is_told_and_a_heartbeat_without_an_answer_is_none() -> None:
    commands = (*REGISTERED, "advance 2000 ms", "refuse REQUEST_TIMED_OUT", "advance 200 ms")
    assert await told_after(*commands, "refuse STALE_BROKER_EPOCH", "advance 200 ms") == [
        RegistrationAsked(UUID(int=1), None),
        RegistrationLost(7, "STALE_BROKER_EPOCH"),
        RegistrationAsked(UUID(int=2), None),
    ]


async def test_nothing_is_sent_by_one_that_is_stopped() -> None:
    assert await happened(*REGISTERED, "advance 2000 ms", "end", "answer unfenced") == []
    assert await happened(*REGISTERED, "end", "advance 60000 ms") == []
    assert await happened("start", "cluster found", "accept 7", "end", "disk") == []


@pytest.mark.parametrize("error", [FlushFailed("input/output error"), InvariantViolation("a bug"), KeyError("a bug")])
def test_a_step_that_fails_ends_it(error: BaseException) -> None:
    """Unseen it would send no heartbeat any more, and live on."""
    stage = Stage()
    stage.start()

    def claim(*_: object) -> None:
        raise error

    assert stage.directory is not None
    stage.directory.claim = claim  # type: ignore[method-assign]
    assert stage.on_cluster is not None
    stage.on_cluster("kraftlogTestClusterAAA")
    assert stage.lines[-1] == f"cannot go on: {error}"


async def test_a_lost_controller_is_reported_once_and_when_it_is_back() -> None:
    commands = Commands()
    for command in REGISTERED:
        await commands.run(command)
    with capture_logs() as logs:
        await commands.run("advance 2000 ms")
        for _ in range(30):
            await commands.run("refuse REQUEST_TIMED_OUT")
            await commands.run("advance 200 ms")
        await commands.run("answer unfenced")
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warnings == [membership_messages.CONTROLLER_LOST, membership_messages.CONTROLLER_BACK]


def test_a_state_follows_only_where_the_table_says_so() -> None:
    check_edge(Accepted(7), Registered(7))
    with pytest.raises(InvariantViolation, match=r"from Stopped\(.*\) to Registered"):
        check_edge(Stopped(7), Registered(7))
    assert all(Stopped in entered for left, entered in MEMBERSHIP_EDGES.items() if left is not Stopped)
