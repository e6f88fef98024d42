"""SQL statements of clients in processes of their own: the node's resources are protected, and how statements end."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import socket, socketpair
from subprocess import Popen
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store import query_process
from statemachine.store.background import start_module
from statemachine.store.priority import STATEMENT_NICENESS
from statemachine.store.query_messages import Outcome, Statement, receive_outcome, send_abandoned, send_statement
from statemachine.store.query_process import MODULE, QueryProcess, StatementRun
from statemachine.store.query_worker import GRACE_SECONDS, MEMORY_BYTES_MAX, ROWS_MAX
from statemachine.store.sql import took_too_long
from statemachine.store.store import MetadataStore
from statemachine.words.limits import STATEMENT_START_SECONDS_MAX
from tests.statemachine.builders import CLUSTER_ID, batch, log_of, topic
from tests.statemachine.store.query_processes import children_of, is_there, wait_for
from tests.statemachine.store.test_sql import ENDLESS

SECONDS = 60.0
HOUR = 3_600.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)) as opened:
        opened.apply(log_of([[topic("orders", 1), topic("clicks", 2)]]))
        yield opened


class Started(NamedTuple):
    """A process that was started."""

    pid: int
    niceness: int


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    processes: list[Started] = []

    def noting(*arguments: Any, niceness: int, **others: Any) -> Popen[bytes]:
        process = start_module(*arguments, niceness=niceness, **others)
        processes.append(Started(process.pid, niceness))
        return process

    monkeypatch.setattr(query_process, "start_module", noting)
    return processes


@pytest.fixture
def process(store: MetadataStore, started: list[Started]) -> Iterator[QueryProcess]:
    process = QueryProcess(store.path)
    yield process
    process.end()


def answer(process: QueryProcess, sql: str, timeout_seconds: float = SECONDS) -> list[QueryResponse]:
    return process.run(StatementRun(Statement(sql, timeout_seconds)))


def refusal(process: QueryProcess, sql: str, timeout_seconds: float = SECONDS) -> str:
    (piece,) = answer(process, sql, timeout_seconds)
    assert piece.error_code == ErrorCode.INVALID_REQUEST
    return piece.error_message


# --- answers ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_what_is_applied_with_its_offset(store: MetadataStore, process: QueryProcess) -> None:
    (piece,) = answer(process, "SELECT name, 1, 0.5, x'00ff', NULL FROM topics ORDER BY name")
    assert list(piece.columns) == ["name", "1", "0.5", "x'00ff'", "NULL"]
    assert piece.applied_end_offset == store.applied_end_offset == 2
    (first, *_), names = piece.rows[0].values, [row.values[0].text for row in piece.rows]
    assert (names, first.text) == (["clicks", "orders"], "clicks")
    kinds = [value.WhichOneof("value") for value in piece.rows[0].values]
    assert kinds == ["text", "integer", "real", "blob", None]


def test_the_next_answer_has_what_was_applied_since(store: MetadataStore, process: QueryProcess) -> None:
    (before,) = answer(process, "SELECT count(*) FROM topics")
    store.apply([batch(store.applied_end_offset, [topic("views", 3)])])
    (after,) = answer(process, "SELECT count(*) FROM topics")
    assert [piece.rows[0].values[0].integer for piece in (before, after)] == [2, 3]


def test_many_rows_come_in_pieces_of_which_the_first_has_the_columns(
    store: MetadataStore, process: QueryProcess
) -> None:
    pieces = answer(process, f"{ENDLESS} x, zeroblob(1000) AS filling FROM n LIMIT 3000")
    assert len(pieces) > 3
    assert [list(piece.columns) for piece in pieces] == [["x", "filling"], *[[] for _ in pieces[1:]]]
    assert {piece.applied_end_offset for piece in pieces} == {store.applied_end_offset}
    assert len({row.values[0].integer for piece in pieces for row in piece.rows}) == 3000


def test_what_is_wrong_with_the_statement_is_told(process: QueryProcess) -> None:
    assert "did you mean topics" in refusal(process, "SELECT * FROM topisc")
    assert "it may only read" in refusal(process, "PRAGMA temp_store = 1")
    assert f"more than {ROWS_MAX} rows" in refusal(process, f"{ENDLESS} x FROM n")
    assert "is no statement" in refusal(process, "")
    assert "at most 100000 are accepted" in refusal(process, f"SELECT '{'x' * 1_000_000}'")


def test_a_database_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    process = QueryProcess(tmp_path / "none.db")
    (piece,) = answer(process, "SELECT 1")
    assert piece.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    process.end()


# --- limits ---------------------------------------------------------------------------------------------------------

TABLES_DOUBLED = 22


def doubling() -> str:
    """A statement that is as large as two to that power once SQLite has unfolded it, before it runs."""
    levels = [f"c{n} AS (SELECT a.x FROM c{n - 1} a, c{n - 1} b)" for n in range(1, TABLES_DOUBLED)]
    return f"WITH c0 AS (SELECT 1 AS x), {', '.join(levels)} SELECT count(*) FROM c{TABLES_DOUBLED - 1}"


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(
            f"{ENDLESS} length(json_group_array(printf('%.*c', 1000000, 'x'))) FROM (SELECT x FROM n LIMIT 2000)",
            marks=pytest.mark.slow,  # the statement's own memory has the same bound
        ),
        pytest.param(
            doubling(),
            marks=pytest.mark.slow,  # it is refused in `test_a_statement_that_is_ended_leaves_the_process_for_the_next`
        ),
        f"{ENDLESS} DISTINCT zeroblob(900000) || x FROM n LIMIT 1 OFFSET 2000",
        f"{ENDLESS} printf('%.*c', 900000, 'x') FROM (SELECT x FROM n LIMIT 2000) ORDER BY x DESC",
    ],
    ids=["an aggregate", "the statement itself", "a temporary table", "a sorter"],
)
def test_no_statement_takes_more_memory_than_it_may_nor_the_disk(process: QueryProcess, sql: str) -> None:
    message = refusal(process, sql, HOUR)
    assert f"more than the {MEMORY_BYTES_MAX >> 20} MiB of memory" in message


def test_one_step_of_sqlite_that_takes_minutes_is_ended(process: QueryProcess) -> None:
    endless = "SELECT trim(printf('%.*c', 1000000, 'x'), printf('%.*c', 87000, 'y') || 'x')"
    with pytest.raises(ApiError, match=r"the query took longer than 0\.1 s") as ended:
        answer(process, endless, 0.1)
    assert ended.value.code is ErrorCode.INVALID_REQUEST


def test_the_start_of_the_process_takes_nothing_of_a_statements_time(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def noting(connection: socket, seconds: float) -> Outcome:
        waits.append(seconds)
        return receive_outcome(connection, seconds)

    monkeypatch.setattr(query_process, "receive_outcome", noting)
    process = QueryProcess(store.path)
    answer(process, "SELECT 1", 7.0)
    assert waits == [STATEMENT_START_SECONDS_MAX, 7.0 + GRACE_SECONDS]
    process.end()


def test_statements_give_way_to_the_node_and_the_start_of_their_process_does_not(
    store: MetadataStore, started: list[Started]
) -> None:
    process = QueryProcess(store.path)
    assert started[0].niceness == 0
    own, its = (os.getpriority(os.PRIO_PROCESS, process_id) for process_id in (os.getpid(), started[0].pid))
    assert its == min(19, own + STATEMENT_NICENESS)
    if (autogroup := Path(f"/proc/{started[0].pid}/autogroup")).exists() and os.geteuid() == 0:
        assert autogroup.read_text().endswith(f" nice {STATEMENT_NICENESS}\n")
    process.end()


def test_a_process_that_does_not_get_ready_is_ended(
    store: MetadataStore, started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_process, "STATEMENT_START_SECONDS_MAX", 0.0)
    with pytest.raises(ApiError, match=r"did not start in 0 s: .* ask another node") as late:
        QueryProcess(store.path)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert not is_there(started[0].pid)


def test_a_process_that_cannot_be_started_is_told(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, connection: socket, **others: Any) -> Popen[bytes]:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(query_process, "start_module", failing)
    with pytest.raises(ApiError, match="Resource temporarily unavailable; try again later, or ask another node"):
        QueryProcess(store.path)


def test_a_process_that_ends_before_it_is_ready_is_told(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_process, "MODULE", "statemachine.store.nowhere")
    with capture_logs() as logs, pytest.raises(ApiError, match="process ended with 1; see this node's log"):
        QueryProcess(store.path)
    assert "No module named statemachine.store.nowhere" in logs[0]["complaint"]


# --- effects on the next statement ------------------------------------------------------------------------------------


def test_a_statement_that_is_ended_leaves_the_process_for_the_next(
    store: MetadataStore, process: QueryProcess, started: list[Started]
) -> None:
    """Its memory is free again, and its random numbers are not repeated."""
    assert "took longer" in refusal(process, f"{ENDLESS} count(*) FROM n", 0.1)
    assert "of memory" in refusal(process, doubling(), HOUR)
    for number in (signal.SIGXCPU, signal.SIGKILL):
        thread, _ = run_in_thread(process, StatementRun(Statement(f"{ENDLESS} count(*) FROM n", HOUR)))
        os.kill(child_of(started[0].pid), number)
        thread.join()
    drawn = {answer(process, "SELECT hex(randomblob(16))")[0].rows[0].values[0].text for _ in range(3)}
    assert len(drawn) == 3
    assert process.is_running
    assert len(started) == 1
    assert children_of(started[0].pid) == []


def test_between_statements_the_process_has_no_file_of_the_nodes_open(
    store: MetadataStore, process: QueryProcess, started: list[Started]
) -> None:
    """A connection would hold the write-ahead log, and be inherited by every child."""
    answer(process, "SELECT * FROM topics")
    opened = [link.readlink() for link in Path(f"/proc/{started[0].pid}/fd").iterdir()]
    assert [path for path in opened if path.is_relative_to(store.path.parent)] == []


# --- how it ends ------------------------------------------------------------------------------------------------------


def run_in_thread(process: QueryProcess, run: StatementRun) -> tuple[threading.Thread, list[object]]:
    outcomes: list[object] = []

    def note() -> None:
        try:
            outcomes.append(process.run(run))
        except ApiError as error:
            outcomes.append((error.code, error.args[0]))

    thread = threading.Thread(target=note)
    thread.start()
    return thread, outcomes


def child_of(process_id: int) -> int:
    """The process that runs a statement, as soon as there is one."""
    wait_for(lambda: bool(children_of(process_id)))
    (child,) = children_of(process_id)
    return child


GONE = (ErrorCode.REQUEST_TIMED_OUT, "the query was ended because its caller left")


def test_one_that_is_abandoned_ends_at_once(process: QueryProcess, started: list[Started]) -> None:
    run = StatementRun(Statement(f"{ENDLESS} count(*) FROM n", HOUR))
    thread, outcomes = run_in_thread(process, run)
    child = child_of(started[0].pid)
    run.abandon()
    thread.join()
    assert outcomes == [GONE]
    assert not is_there(child)
    assert len(answer(process, "SELECT 1")) == 1


def test_one_that_is_abandoned_before_does_not_begin(process: QueryProcess) -> None:
    run = StatementRun(Statement("SELECT 1", SECONDS))
    run.abandon()
    with pytest.raises(ApiError, match="its caller left"):
        process.run(run)
    assert process.is_running


def test_one_that_has_ended_may_be_abandoned(process: QueryProcess) -> None:
    run = StatementRun(Statement("SELECT 1", SECONDS))
    assert len(process.run(run)) == 1
    run.abandon()
    assert len(answer(process, "SELECT 2")) == 1


def test_that_it_is_abandoned_may_arrive_after_its_end(process: QueryProcess) -> None:
    """The node learns of the end later than the process knows it."""
    for _ in range(3):
        send_abandoned(process._connection)
    assert len(answer(process, "SELECT 1")) == 1


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGXCPU, ErrorCode.INVALID_REQUEST), (signal.SIGKILL, ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_one_that_is_ended_by_the_system_is_told(
    process: QueryProcess, started: list[Started], number: signal.Signals, code: ErrorCode
) -> None:
    thread, outcomes = run_in_thread(process, StatementRun(Statement(f"{ENDLESS} count(*) FROM n", HOUR)))
    os.kill(child_of(started[0].pid), number)
    thread.join()
    assert [outcome[0] for outcome in outcomes] == [code]  # type: ignore[index]
    assert process.is_running


def test_when_the_process_is_ended_by_the_system_so_is_its_statement(
    process: QueryProcess, started: list[Started]
) -> None:
    thread, outcomes = run_in_thread(process, StatementRun(Statement(f"{ENDLESS} count(*) FROM n", HOUR)))
    child = child_of(started[0].pid)
    os.kill(started[0].pid, signal.SIGKILL)
    thread.join()
    assert [outcome[0] for outcome in outcomes] == [ErrorCode.UNKNOWN_SERVER_ERROR]  # type: ignore[index]
    assert not process.is_running
    wait_for(lambda: not is_there(child))


def test_one_that_does_not_end_in_its_time_is_ended_with_its_process(
    process: QueryProcess, started: list[Started]
) -> None:
    """It is stopped here: it reads no clock."""
    run = StatementRun(Statement(f"{ENDLESS} count(*) FROM n", 0.5))
    thread, outcomes = run_in_thread(process, run)
    child = child_of(started[0].pid)
    os.kill(child, signal.SIGSTOP)
    thread.join()
    assert outcomes == [(ErrorCode.INVALID_REQUEST, took_too_long(0.5).args[0])]
    assert not process.is_running
    wait_for(lambda: not is_there(child))


def test_it_ends_with_the_node(store: MetadataStore) -> None:
    """Also when the node is killed: all that the process sees of it is that the connection is closed."""
    connection, its_connection = socketpair()
    with its_connection:
        process = start_module(MODULE, (str(store.path),), connection=its_connection)
    assert receive_outcome(connection, SECONDS) == Outcome(0, b"")
    send_statement(connection, Statement(f"{ENDLESS} count(*) FROM n", HOUR))
    child = child_of(process.pid)
    connection.close()
    _, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, b"")
    assert not is_there(child)
