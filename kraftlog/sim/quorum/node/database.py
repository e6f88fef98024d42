"""A machine's metadata database: production tables on an in-memory SQLite connection, with images that survive it.

The database is derived data, and SQLite writes it without waiting for the disk. So a power cut may bring back any
earlier commit, and the file may be lost or damaged. The log fills it again.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from contextlib import closing
from random import Random
from typing import Final

from kraftbase.errors import StorageError
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.tables_in_memory import connect, empty_image, tables_in_memory
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.quorum.registers.records import CONFIG_NAME
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine.store.image import load_image, snapshot_point, write_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.store.scrub import CorruptDatabase, check_rows
from statemachine.store.snapshot_worker import TakenSnapshot
from statemachine.tables.catalogue import TABLES
from statemachine.tables.database import UnusableDatabase, check_tables, read_sums
from statemachine.words.resources import ResourceType

IMAGE_RATE: Final = 0.05
"""The share of commits that are kept as images which a power cut may bring back."""

DIGEST_INTERVAL: Final = 10
"""The digests of state machines are compared often here, because runs are short."""

_IMAGES_MAX: Final = 4


class Database:
    """A database file. The disk holds images of it, and a process works on a connection."""

    def __init__(self, cluster_id: str, random: Random, marks: Marks) -> None:
        self._cluster_id = cluster_id
        self._random = random
        self._marks = marks
        self._images: deque[bytes] = deque(maxlen=_IMAGES_MAX)
        self._tables: MetadataTables | None = None
        self.is_set_aside = False
        """Whether its digest differed from the quorum's. The next process starts with an empty database."""
        self.is_corrupt = False
        """Whether it was set aside because of bit rot: then no snapshot contains the damage."""
        self.must_forget_snapshots = False
        """Whether the snapshots must be deleted, because they were taken of a diverged database."""
        self._may_be_damaged = False
        """Whether a fault has changed the image. Images without faults need no check, which takes a while."""
        self.is_locked = False
        """Whether writes fail, as when another process has locked the file or the disk is full."""
        self.is_held = False
        """Whether a reader prevents the write-ahead log from starting over."""

    def open(self) -> MetadataTables:
        """Return the tables that the last process left; new tables if the image is lost or unusable."""
        if self.is_set_aside:
            self._marks.hit(f"recovery: a {'rotten' if self.is_corrupt else 'diverged'} database was rebuilt")
            self.must_forget_snapshots = not self.is_corrupt
            self.lose()
        image = self._images[-1] if self._images else self._template()
        if self._may_be_damaged and not _is_sound(image):
            self._marks.hit("recovery: a damaged database was rebuilt")
            self.lose()
            image = self._template()
        self._tables = tables_in_memory(image, digest_interval=DIGEST_INTERVAL)
        return self._tables

    def filled(self, reader: SnapshotReader) -> MetadataTables:
        """Return new tables with the content of a snapshot, next to the open ones."""
        tables = tables_in_memory(self._template(), digest_interval=DIGEST_INTERVAL)
        load_image(reader, tables)
        return tables_in_memory(tables.connection.serialize(), digest_interval=DIGEST_INTERVAL)

    def put_in_place(self, tables: MetadataTables) -> MetadataTables:
        """Replace the open tables with `tables`, durably."""
        if self._open is not None:
            self._open.close()
        self._tables = tables
        self._images.clear()
        self._images.append(tables.connection.serialize())
        return tables

    def set_aside(self, *, is_corrupt: bool) -> None:
        """Make the next process start with an empty database."""
        self.is_set_aside, self.is_corrupt = True, is_corrupt

    def committed(self) -> None:
        """Keep an image of some commits, for a power cut to bring back."""
        if self._open is not None and self._random.random() < IMAGE_RATE:
            self._images.append(self._open.serialize())

    def crash(self, crash: Crash) -> None:
        """Handle the end of the process. After a power cut the file holds one of the last commits."""
        if self._open is None:
            return
        self._images.append(self._open.serialize())
        self._open.close()
        self._tables = None
        if crash is not Crash.KILLED:
            for _ in range(self._random.randrange(len(self._images))):
                self._images.pop()

    def value(self, tables: MetadataTables, key: str) -> str | None:
        """Return the value of a client's key; None if it has none."""
        row = tables.connection.execute(
            "SELECT value FROM configs WHERE resource_type = ? AND resource_name = ? AND name = ?",
            (int(ResourceType.TOPIC), key, CONFIG_NAME),
        ).fetchone()
        return None if row is None else str(row[0])

    def heal(self) -> None:
        """End the faults of the database: no other process locks or reads it. Corrupted rows stay corrupted."""
        self.is_locked = self.is_held = False

    def lose(self) -> None:
        """Lose the file."""
        self._images.clear()
        self.is_set_aside = self.is_corrupt = self._may_be_damaged = False

    def diverge(self) -> None:
        """Change the digest of the tables, as a wrongly applied record would."""
        if self._open is not None:
            sums = read_sums(self._open)
            columns = "cluster_id, end_offset, epoch, digest, timestamp_ms, state_digest_end_offset, state_digest"
            applied = list(self._open.execute(f"SELECT {columns} FROM applied").fetchone())  # noqa: S608
            applied[3] = "d" * 32
            self._open.execute(
                "UPDATE applied SET digest = ?, row_sums = ?", (applied[3], sums.encoded(tuple(applied)))
            )

    def corrupt(self) -> str | None:
        """Change a value of a stored row where SQLite does not check it. Return which; None if there is no row."""
        if self._open is None:
            return None
        filled = [table for table in TABLES if self._open.execute(f"SELECT 1 FROM {table.name} LIMIT 1").fetchone()]  # noqa: S608
        choices = [(table, column) for table in filled for column in table.columns if column not in table.key]
        if not choices:
            return None
        table, column = self._random.choice(choices)
        key = ", ".join(table.key)
        rows = self._open.execute(f"SELECT {key}, {column} FROM {table.name}").fetchall()  # noqa: S608
        if not rows:
            return None
        *row_key, value = self._random.choice(rows)
        if not isinstance(value, int | str):
            return None
        changed = value ^ 1 if isinstance(value, int) else value[:-1] + chr(ord(value[-1:] or "a") ^ 1)
        conditions = " AND ".join(f"{part} = ?" for part in table.key)
        self._open.execute(f"UPDATE {table.name} SET {column} = ? WHERE {conditions}", (changed, *row_key))  # noqa: S608
        self._images.clear()  # no power cut may bring back an intact image
        return f"{table.name}.{column} of {row_key}"

    def find_corruption(self) -> str | None:
        """Scrub the tables; return the corruption found."""
        if self._open is None:
            return None
        try:
            check_rows(self._open)
        except CorruptDatabase as error:
            return str(error)
        return None

    def damage(self) -> None:
        """Flip enough bits to be detected. One in the middle of a value would not be (docs/faults/not-covered.md)."""
        if not self._images:
            return
        image = bytearray(self._images.pop())
        while _is_sound(bytes(image)):
            for _ in range(20):
                image[self._random.randrange(len(image))] ^= 1 << self._random.randrange(8)
        self._images.append(bytes(image))
        self._may_be_damaged = True

    @property
    def _open(self) -> sqlite3.Connection | None:
        """The connection of the process; None while no process runs."""
        return None if self._tables is None else self._tables.connection

    def _template(self) -> bytes:
        """Return an empty database."""
        return empty_image(self._cluster_id)


def take_snapshot(image: bytes, snapshots: SnapshotStore) -> TakenSnapshot:
    """Take a snapshot of the database that `image` holds. Raises StorageError or CorruptDatabase."""
    with closing(connect(image)) as connection:
        point = snapshot_point(connection)
        if point is None:
            raise StorageError("nothing is applied yet")
        writer = snapshots.create(*point)
        if writer is not None:
            with writer:
                check_rows(connection)
                write_image(connection, writer)
                writer.freeze()
        return TakenSnapshot(point.snapshot_id, snapshots.path_of(point.snapshot_id), 0, writer is not None)


def _is_sound(image: bytes) -> bool:
    with closing(connect(image)) as connection:
        try:
            check_tables(connection)
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]) == "ok"
        except (sqlite3.Error, UnicodeDecodeError, UnusableDatabase):  # SQLite's message may quote the damaged bytes
            return False
