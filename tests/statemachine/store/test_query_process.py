"""SQL statements of clients in processes of their own: what they cannot take from the node, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store import query_process
from statemachine.store.query_process import QueryProcess
from statemachine.store.query_worker import MEMORY_BYTES_MAX, ROWS_MAX, decode_pieces, encode_pieces
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import CLUSTER_ID, log_of, topic
from tests.statemachine.store.test_sql import ENDLESS

SECONDS = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)) as opened:
        opened.apply(log_of([[topic("orders", 1), topic("clicks", 2)]]))
        yield opened


def answer(store: MetadataStore, sql: str, timeout_seconds: float = SECONDS) -> list[QueryResponse]:
    return QueryProcess(store.path, sql, timeout_seconds).run()


def refusal(store: MetadataStore, sql: str, timeout_seconds: float = SECONDS) -> str:
    (piece,) = answer(store, sql, timeout_seconds)
    assert piece.error_code == ErrorCode.INVALID_REQUEST
    return piece.error_message


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Popen[bytes]]:
    """The processes that are started."""
    processes: list[Popen[bytes]] = []
    start = query_process.start_module

    def noting(module: str, arguments: tuple[str, ...]) -> Popen[bytes]:
        processes.append(process := start(module, arguments))
        return process

    monkeypatch.setattr(query_process, "start_module", noting)
    return processes


# --- answers ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_what_is_applied_with_its_offset(store: MetadataStore) -> None:
    (piece,) = answer(store, "SELECT name, 1, 0.5, x'00ff', NULL FROM topics ORDER BY name")
    assert list(piece.columns) == ["name", "1", "0.5", "x'00ff'", "NULL"]
    assert piece.applied_end_offset == store.applied_end_offset == 2
    (first, *_), names = piece.rows[0].values, [row.values[0].text for row in piece.rows]
    assert (names, first.text) == (["clicks", "orders"], "clicks")
    kinds = [value.WhichOneof("value") for value in piece.rows[0].values]
    assert kinds == ["text", "integer", "real", "blob", None]


def test_many_rows_come_in_pieces_of_which_the_first_has_the_columns(store: MetadataStore) -> None:
    pieces = answer(store, f"{ENDLESS} x, zeroblob(1000) AS filling FROM n LIMIT 3000")
    assert len(pieces) > 3
    assert [list(piece.columns) for piece in pieces] == [["x", "filling"], *[[] for _ in pieces[1:]]]
    assert {piece.applied_end_offset for piece in pieces} == {store.applied_end_offset}
    assert len({row.values[0].integer for piece in pieces for row in piece.rows}) == 3000


def test_what_is_wrong_with_the_statement_is_told(store: MetadataStore) -> None:
    assert "did you mean topics" in refusal(store, "SELECT * FROM topisc")
    assert "it may only read" in refusal(store, "PRAGMA temp_store = 1")
    assert f"more than {ROWS_MAX} rows" in refusal(store, f"{ENDLESS} x FROM n")


def test_a_database_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    (piece,) = QueryProcess(tmp_path / "none.db", "SELECT 1", SECONDS).run()
    assert piece.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_pieces_arrive_as_they_were(store: MetadataStore) -> None:
    pieces = [QueryResponse(columns=["a"]), QueryResponse(), QueryResponse(error_code=42, error_message="é" * 300)]
    assert list(decode_pieces(encode_pieces(pieces))) == pieces
    assert list(decode_pieces(b"")) == []


# --- what it may take -------------------------------------------------------------------------------------------------

TABLES_DOUBLED = 22


def doubling() -> str:
    """A statement that is as large as two to that power once SQLite has unfolded it, before it runs."""
    levels = [f"c{n} AS (SELECT a.x FROM c{n - 1} a, c{n - 1} b)" for n in range(1, TABLES_DOUBLED)]
    return f"WITH c0 AS (SELECT 1 AS x), {', '.join(levels)} SELECT count(*) FROM c{TABLES_DOUBLED - 1}"


@pytest.mark.parametrize(
    "sql",
    [
        f"{ENDLESS} length(json_group_array(printf('%.*c', 1000000, 'x'))) FROM (SELECT x FROM n LIMIT 2000)",
        doubling(),
        f"{ENDLESS} DISTINCT zeroblob(900000) || x FROM n LIMIT 1 OFFSET 2000",
        f"{ENDLESS} randomblob(900000) FROM (SELECT x FROM n LIMIT 2000) ORDER BY 1",
    ],
    ids=["an aggregate", "the statement itself", "a temporary table", "a sorter"],
)
def test_no_statement_takes_more_memory_than_it_may_nor_the_disk(store: MetadataStore, sql: str) -> None:
    message = refusal(store, sql, 60.0)
    assert f"more than the {MEMORY_BYTES_MAX >> 20} MiB of memory" in message


def test_one_step_of_sqlite_that_takes_minutes_is_ended(store: MetadataStore) -> None:
    endless = "SELECT trim(printf('%.*c', 1000000, 'x'), printf('%.*c', 87000, 'y') || 'x')"
    with pytest.raises(ApiError, match=r"the query took longer than 0\.1 s") as ended:
        answer(store, endless, 0.1)
    assert ended.value.code is ErrorCode.INVALID_REQUEST


# --- how it ends ------------------------------------------------------------------------------------------------------


def run_in_thread(statement: QueryProcess) -> tuple[threading.Thread, list[object]]:
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(statement.run())
        except ApiError as error:
            outcomes.append((error.code, error.args[0]))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds; the test's time limit ends it."""
    while not condition():
        threading.Event().wait(0.01)


GONE = (ErrorCode.REQUEST_TIMED_OUT, "the query was ended because its caller left")


def test_one_that_is_abandoned_ends_at_once(store: MetadataStore, started: list[Popen[bytes]]) -> None:
    statement = QueryProcess(store.path, f"{ENDLESS} count(*) FROM n", 3_600.0)
    thread, outcomes = run_in_thread(statement)
    wait_for(lambda: bool(started))
    statement.abandon()
    thread.join()
    assert outcomes == [GONE]
    assert started[0].returncode == -signal.SIGKILL


def test_one_that_is_abandoned_before_does_not_begin(store: MetadataStore, started: list[Popen[bytes]]) -> None:
    statement = QueryProcess(store.path, "SELECT 1", SECONDS)
    statement.abandon()
    with pytest.raises(ApiError, match="its caller left"):
        statement.run()
    assert started == []


def test_one_that_has_ended_may_be_abandoned(store: MetadataStore) -> None:
    statement = QueryProcess(store.path, "SELECT 1", SECONDS)
    assert len(statement.run()) == 1
    statement.abandon()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGXCPU, ErrorCode.INVALID_REQUEST), (signal.SIGKILL, ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_one_whose_process_is_ended_by_the_system_is_told(
    store: MetadataStore, started: list[Popen[bytes]], number: signal.Signals, code: ErrorCode
) -> None:
    thread, outcomes = run_in_thread(QueryProcess(store.path, f"{ENDLESS} count(*) FROM n", 3_600.0))
    wait_for(lambda: bool(started))
    os.kill(started[0].pid, number)
    thread.join()
    assert [outcome[0] for outcome in outcomes] == [code]  # type: ignore[index]


async def test_closing_the_store_ends_statements_that_run_and_wait(tmp_path: Path, started: list[Popen[bytes]]) -> None:
    store = MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)
    running = [asyncio.ensure_future(store.run_statement(f"{ENDLESS} count(*) FROM n", 3_600.0)) for _ in range(3)]
    while not started:
        await asyncio.sleep(0.01)
    store.close()
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert len(started) == 1
    assert all(isinstance(outcome, ApiError | asyncio.CancelledError) for outcome in outcomes)
