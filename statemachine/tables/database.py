"""The tables of a node's metadata database, and opening the file that holds them (docs/formats/metadata.md).

The database is derived data: everything in it can be rebuilt from the log. So a file that is damaged, of another
program or of another version, or that differs from the quorum's, is set aside and a new one begun; only a database of
another cluster is refused, because then the directory is not the one that its owner expects.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from sqlite_utils import Database, Migrations

from kraftbase.errors import DirectoryError, FlushFailed, OutOfSpace, StorageError
from statemachine.tables.row_sums import RowSums, decode_sums
from statemachine.tables.sql_views import LOG_DIRECTORIES_VIEW, VIEW_STATEMENTS
from statemachine.tables.table_definitions import OPAQUE_STATEMENTS, TABLE_STATEMENTS

APPLICATION_ID: Final = 0x6B6C6F67
"""The letters klog: marks the file as ours in its SQLite header."""

OPEN_TIMEOUT_SECONDS: Final = 5.0

PAGE_BYTES: Final = 1024
"""Of new databases. A transaction writes whole pages, and a small one touches a row or two on each: with SQLite's 4 KiB
it wrote nearly three times as much. Databases keep the page size of their creation.
"""

EMPTY_DIGEST: Final = "00" * 16

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

MIGRATIONS: Final = Migrations("kraftlog")
KNOWN_MIGRATIONS: Final = (
    "0004_tables",
    "0005_row_sums",
    "0006_records_of_a_kafka",
    "0007_log_directories",
    "0008_older_log_directories",
    "0009_unfenced_log_directories",
    "0010_full_log_directories",
)
"""The first creates all tables: derived data is rebuilt rather than migrated, unless migrating is free. 0001's digest
did not cover what records did; 0002 did not know when its last batch was appended; 0003 had topics, partitions, brokers
and configs only; 0004 kept no sums of rows; 0005 had no cordoned log directories, and no records that only Kafka uses;
0006 had no view of log directories; 0007 did not know which registration's disks a broker has; 0008 knew that of all
disks of a broker together; 0009 did not know which of them are full.
"""


CORRUPT: Final = "its rows are not those that were applied"
"""How the reason for setting a corrupted database aside begins, if nothing was derived from it."""

_APPLIED: Final = (
    "SELECT row_sums, cluster_id, end_offset, epoch, digest, timestamp_ms, state_digest_end_offset, state_digest"
    " FROM applied"
)


def _without_blanks(statement: object) -> str:
    return "".join(str(statement).split())


_STATEMENTS_WITHOUT_BLANKS: Final = frozenset(map(_without_blanks, (*TABLE_STATEMENTS, *VIEW_STATEMENTS)))


class UnusableDatabase(Exception):
    """The file cannot be used and may be replaced; the message has the reason."""


class DamagedDatabase(StorageError):
    """The file cannot be read because it is damaged, not because it cannot be opened."""


class DivergedDatabase(UnusableDatabase):
    """The content differs from the quorum's: data derived from it must not be trusted either."""


@MIGRATIONS(name=KNOWN_MIGRATIONS[0])
def create_tables(database: Database) -> None:
    """All tables, and the views over them."""
    for statement in (*TABLE_STATEMENTS, *VIEW_STATEMENTS):
        database.execute(statement)


@MIGRATIONS(name=KNOWN_MIGRATIONS[1])
def add_row_sums(database: Database) -> None:
    """The sums of a database that had none are found by the first scrub."""
    if "row_sums" not in {name for _, name, *_ in database.execute("PRAGMA table_info(applied)")}:
        database.execute("ALTER TABLE applied ADD COLUMN row_sums BLOB")


@MIGRATIONS(name=KNOWN_MIGRATIONS[2])
def add_records_of_a_kafka(database: Database) -> None:
    """An earlier version applied none of these. The sums of rows are of another layout: see `decode_sums`."""
    known = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    for statement in OPAQUE_STATEMENTS:
        if statement.split()[2] not in known:
            database.execute(statement)
    if "cordoned_log_dirs" not in {name for _, name, *_ in database.execute("PRAGMA table_info(brokers)")}:
        database.execute("ALTER TABLE brokers ADD COLUMN cordoned_log_dirs TEXT NOT NULL DEFAULT '[]'")


@MIGRATIONS(name=KNOWN_MIGRATIONS[3])
def add_log_directories(database: Database) -> None:
    """Add a view."""
    if not database["log_directories"].exists():
        database.execute(LOG_DIRECTORIES_VIEW)


@MIGRATIONS(name=KNOWN_MIGRATIONS[4])
def add_older_log_directories(database: Database) -> None:
    """Nothing is known of a broker that registered before."""
    known = {name for _, name, *_ in database.execute("PRAGMA table_info(brokers)")}
    for column in ("last_unfenced_epoch INTEGER", "older_log_dirs TEXT NOT NULL DEFAULT '[]'"):
        if column.split()[0] not in known:
            database.execute(f"ALTER TABLE brokers ADD COLUMN {column}")


@MIGRATIONS(name=KNOWN_MIGRATIONS[5])
def add_unfenced_log_directories(database: Database) -> None:
    """Nothing is known of a broker that registered before."""
    if "unfenced_log_dirs" not in {name for _, name, *_ in database.execute("PRAGMA table_info(brokers)")}:
        database.execute("ALTER TABLE brokers ADD COLUMN unfenced_log_dirs TEXT NOT NULL DEFAULT '{}'")


@MIGRATIONS(name=KNOWN_MIGRATIONS[6])
def add_full_log_directories(database: Database) -> None:
    """Brokers report full directories with their next heartbeats. The view has changed since."""
    if "full_log_dirs" not in {name for _, name, *_ in database.execute("PRAGMA table_info(brokers)")}:
        database.execute("ALTER TABLE brokers ADD COLUMN full_log_dirs TEXT NOT NULL DEFAULT '[]'")
        database.execute("DROP VIEW IF EXISTS log_directories")
        database.execute(LOG_DIRECTORIES_VIEW)


def create_in(connection: sqlite3.Connection, cluster_id: str) -> None:
    """Create the current tables, empty, and views in a database that has none, such as one in memory."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    MIGRATIONS.apply(Database(connection, strict=True, execute_plugins=False))
    _begin(connection, cluster_id)


def open_database(path: Path, cluster_id: str, *, is_known_sound: bool = False) -> Database:
    """The database at `path` with the current tables, created if it is missing. The caller closes its connection.

    A database that `is_known_sound` is not checked by reading it all. Raises UnusableDatabase, DirectoryError for
    another cluster's, and StorageError if the file cannot be opened or made, OutOfSpace if that is for want of room.
    """
    try:
        path.touch(mode=0o600)  # SQLite gives its other files the same mode
        connection = sqlite3.connect(
            path, timeout=OPEN_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except (sqlite3.Error, OSError) as error:
        raise translated(path, error) from None
    try:
        database = Database(connection, strict=True, execute_plugins=False)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        _check_usable(connection, is_known_sound=is_known_sound)
        connection.execute("PRAGMA journal_mode = WAL")
        # The log is the durable copy: after a power cut the last transactions may be lost, and are applied again.
        connection.execute("PRAGMA synchronous = NORMAL")
        # A checkpoint has to fsync; the store's owner runs it off the event loop.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        MIGRATIONS.apply(database)
        _claim(path, connection, cluster_id)
        # From here on a lock of another process is reported at once, not waited for on the event loop.
        connection.execute("PRAGMA busy_timeout = 0")
    except sqlite3.Error as error:
        connection.close()
        raise translated(path, error) from None
    except UnicodeDecodeError as error:  # SQLite's message quotes the damaged content
        connection.close()
        raise UnusableDatabase(f"it is damaged: {error}") from None
    except BaseException:
        connection.close()
        raise
    return database


def open_reader(path: Path, *, timeout_seconds: float = OPEN_TIMEOUT_SECONDS) -> sqlite3.Connection:
    """A connection that can only read.

    Raises StorageError if there is no such database, DamagedDatabase if it is corrupted.
    """
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("SELECT end_offset FROM applied")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message quotes the damaged content
        kind = DamagedDatabase if _is_damage(error) else StorageError
        raise kind(f"cannot read the metadata database {path}: {error}; is it a node's?") from None
    return connection


def install(new_path: Path, path: Path) -> None:
    """Replace the database at `path` by the closed, complete one at `new_path`, durably.

    A crash leaves the old one, perhaps without its last transactions, or the new one.
    """
    sync(new_path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)  # SQLite would mistake it for the new database's
    sync(path.parent)
    new_path.replace(path)
    sync(path.parent)


def remove(path: Path) -> None:
    """Remove the closed database at `path`, if it exists, with the files next to it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make a file or directory durable. Raises FlushFailed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise FlushFailed(f"cannot fsync {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename the database to `<name>.damaged`, in place of an older one, and return its new path."""
    target = path.with_name(path.name + ".damaged")
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.replace(target.with_name(target.name + suffix))
        else:
            target.with_name(target.name + suffix).unlink(missing_ok=True)
    path.replace(target)
    return target


def _check_usable(connection: sqlite3.Connection, *, is_known_sound: bool) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    elif application_id != APPLICATION_ID:
        raise UnusableDatabase("it belongs to another program")
    applied = MIGRATIONS.applied(Database(connection, execute_plugins=False))
    foreign = [migration.name for migration in applied if migration.name not in KNOWN_MIGRATIONS]
    if foreign:
        raise UnusableDatabase(f"it was made by another version, with {', '.join(foreign)}")
    found = "ok" if is_known_sound else connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise UnusableDatabase(f"it is damaged: {found}")


def _claim(path: Path, connection: sqlite3.Connection, cluster_id: str) -> None:
    """Check that the database is this cluster's; a new database becomes this cluster's."""
    row = connection.execute("SELECT cluster_id, diverged FROM applied").fetchone()
    if row is None:
        _begin(connection, cluster_id)
    check_tables(connection)
    if row is not None and row[0] != cluster_id:
        raise DirectoryError(
            f"{path} holds the metadata of cluster {row[0]}, not of {cluster_id};"
            " use that cluster's data directory, or move the file away to have it rebuilt"
        )
    if row is not None and row[1] is not None:
        raise UnusableDatabase(row[1]) if row[1].startswith(CORRUPT) else DivergedDatabase(row[1])


def check_tables(connection: sqlite3.Connection) -> None:
    """Raise UnusableDatabase unless tables and views are the current ones, and `applied` is what was written.

    They may be corrupted where SQLite does not check.
    """
    # The statement has other blanks around a column that was added.
    found = {_without_blanks(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_master") if sql is not None}
    if not _STATEMENTS_WITHOUT_BLANKS.issubset(found):
        raise UnusableDatabase("it is damaged: its tables and views are not those that were made")
    read_sums(connection)


def read_sums(connection: sqlite3.Connection) -> RowSums:
    """The sums of the rows, from the last transaction. Raises UnusableDatabase if they were changed since."""
    rows = connection.execute(_APPLIED).fetchall()
    if len(rows) != 1:
        raise UnusableDatabase("it is damaged: it does not say what is applied")
    data, *applied = rows[0]
    sums = decode_sums(data, tuple(applied))
    if sums is None:
        raise UnusableDatabase("it is damaged: what it says is applied, or its sums of rows, is not what was written")
    return sums


def _begin(connection: sqlite3.Connection, cluster_id: str) -> None:
    row_sums = RowSums().encoded((cluster_id, 0, 0, EMPTY_DIGEST, 0, None, None))
    connection.execute(
        "INSERT INTO applied (id, cluster_id, end_offset, epoch, timestamp_ms, digest, row_sums)"
        " VALUES (1, ?, 0, 0, 0, ?, ?)",
        (cluster_id, EMPTY_DIGEST, row_sums),
    )


def _is_damage(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CANTOPEN)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return isinstance(error, UnicodeDecodeError) or code & 0xFF in damage


def translated(path: Path, error: sqlite3.Error | OSError) -> Exception:
    """The error to raise when the database at `path` could not be opened or created."""
    code = getattr(error, "sqlite_errorcode", 0)
    if (
        code & 0xFF == sqlite3.SQLITE_FULL
        or code == sqlite3.SQLITE_IOERR_SHMSIZE  # the file beside the write-ahead log could not grow
        or (isinstance(error, OSError) and error.errno in _NO_ROOM)
    ):
        return OutOfSpace(f"no room for the metadata database {path}: {error}; make room on its file system")
    if _is_damage(error):
        return UnusableDatabase(f"it is damaged: {error}")
    return StorageError(f"cannot open the metadata database {path}: {error}; check the directory and its permissions")
