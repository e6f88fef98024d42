"""Runs one SQL statement of a client on a node's metadata database, in a process that ends with it.

SQLite's missing limits are set for the whole process: memory, which includes temporary tables, and processor time.
"""

from __future__ import annotations

import resource
from contextlib import closing
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftpb.v1.admin_pb2 import QueryResponse, QueryRow, QueryValue
from statemachine.query.metadata_queries import applied_end_offset
from statemachine.store.sql import run_query
from statemachine.tables.database import open_reader

ROWS_MAX: Final = 100_000
PIECE_BYTES_SOFT_MAX: Final = 256 * 1024
"""The size of a message of an answer: about this much, and at least one row."""

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The address space of the process, itself and the result included."""

GRACE_SECONDS: Final = 2
"""Processor time in addition to the statement's limit: for Python itself, and for steps that SQLite cannot end."""


def bound_process(timeout_seconds: float) -> None:
    """Limit this process from now on to the memory and time that a statement with that limit may use."""
    processor_seconds = int(timeout_seconds) + GRACE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


def answer(database: Path, sql: str, timeout_seconds: float) -> list[QueryResponse]:
    """The columns with the first rows, then the other rows, in messages that fit; or one message with an error."""
    try:
        return _answer(database, sql, timeout_seconds)
    except ApiError as error:
        code, message = error.code, error.args[0]
    except StorageError as error:
        code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    except MemoryError:
        code = ErrorCode.INVALID_REQUEST
        message = f"the query needs more than the {MEMORY_BYTES_MAX >> 20} MiB of memory that it may use; ask for less"
    return [QueryResponse(error_code=code, error_message=message)]


def _answer(database: Path, sql: str, timeout_seconds: float) -> list[QueryResponse]:
    with closing(open_reader(database)) as connection:
        connection.execute("PRAGMA temp_store = MEMORY")  # the node's log may need the room on the disk
        connection.execute("BEGIN")
        found = run_query(connection, sql, rows_max=ROWS_MAX, timeout_seconds=timeout_seconds)
        end_offset = applied_end_offset(connection)
    pieces = [QueryResponse(columns=found.columns, applied_end_offset=end_offset)]
    size_bytes = 0
    for row in found.rows:
        message = QueryRow(values=map(_value, row))
        size_bytes += message.ByteSize()
        if size_bytes > PIECE_BYTES_SOFT_MAX and pieces[-1].rows:
            pieces.append(QueryResponse(applied_end_offset=end_offset))
            size_bytes = message.ByteSize()
        pieces[-1].rows.append(message)
    return pieces


def _value(value: object) -> QueryValue:
    match value:
        case int():
            return QueryValue(integer=value)
        case float():
            return QueryValue(real=value)
        case str():
            return QueryValue(text=value)
        case bytes():
            return QueryValue(blob=value)
    return QueryValue()
