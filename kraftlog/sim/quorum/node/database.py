"""A machine's metadata database: production tables on an in-memory SQLite connection, with images that survive it.

SQLite is derived data and is written without waiting for the disk, so a power cut may bring back any earlier commit,
and the file may be lost or damaged. The log fills it again.
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
from statemachine.store.scrub import RottenDatabase, check_rows
from statemachine.store.snapshot_worker import TakenSnapshot
from statemachine.tables.catalogue import TABLES
from statemachine.tables.database import UnusableDatabase, check_tables, read_sums
from statemachine.words.resources import ResourceType

IMAGE_RATE: Final = 0.05
"""How often a commit is remembered as one that a power cut may bring back."""

DIGEST_INTERVAL: Final = 10
"""State machines are compared often here: runs are short."""

_IMAGES_MAX: Final = 4


class Database:
    """What is on the disk is an image; a process works on a connection."""

    def __init__(self, cluster_id: str, random: Random, marks: Marks) -> None:
        self._cluster_id = cluster_id
        self._random = random
        self._marks = marks
        self._images: deque[bytes] = deque(maxlen=_IMAGES_MAX)
        self._tables: MetadataTables | None = None
        self.is_set_aside = False
        """Whether its digest was not the quorum's: the next process begins with an empty one."""
        self.is_rotten = False
        """Whether that is because it rotted: no snapshot was taken of the damage."""
        self.must_forget_snapshots = False
        """Whether the snapshots were taken of a database that diverged."""
        self._may_be_damaged = False
        """Whether a fault has touched the image: what this program wrote is sound, and to look takes a while."""
        self.is_locked = False
        """Whether nothing can be written: another process has locked it, or there is no room."""
        self.is_held = False
        """Whether a reader keeps the write-ahead log from starting over."""

    def open(self) -> MetadataTables:
        """The tables as the last process left them, new ones if the image is lost or cannot be used."""
        if self.is_set_aside:
            self._marks.hit(f"recovery: a {'rotten' if self.is_rotten else 'diverged'} database was rebuilt")
            self.must_forget_snapshots = not self.is_rotten
            self.lose()
        image = self._images[-1] if self._images else self._template()
        if self._may_be_damaged and not _is_sound(image):
            self._marks.hit("recovery: a damaged database was rebuilt")
            self.lose()
            image = self._template()
        self._tables = tables_in_memory(image, digest_interval=DIGEST_INTERVAL)
        return self._tables

    def filled(self, reader: SnapshotReader) -> MetadataTables:
        """New tables with what a snapshot holds, beside the others."""
        tables = tables_in_memory(self._template(), digest_interval=DIGEST_INTERVAL)
        load_image(reader, tables)
        return tables_in_memory(tables.connection.serialize(), digest_interval=DIGEST_INTERVAL)

    def put_in_place(self, tables: MetadataTables) -> MetadataTables:
        """Let such tables take the place of the others, durably."""
        if self._open is not None:
            self._open.close()
        self._tables = tables
        self._images.clear()
        self._images.append(tables.connection.serialize())
        return tables

    def set_aside(self, *, is_rotten: bool) -> None:
        """Have the next process begin with an empty one."""
        self.is_set_aside, self.is_rotten = True, is_rotten

    def committed(self) -> None:
        """A transaction was committed."""
        if self._open is not None and self._random.random() < IMAGE_RATE:
            self._images.append(self._open.serialize())

    def crash(self, crash: Crash) -> None:
        """The process has ended. After a power cut the file holds one of the last commits."""
        if self._open is None:
            return
        self._images.append(self._open.serialize())
        self._open.close()
        self._tables = None
        if crash is not Crash.KILLED:
            for _ in range(self._random.randrange(len(self._images))):
                self._images.pop()

    def value(self, tables: MetadataTables, key: str) -> str | None:
        """What the tables hold for a client's key."""
        row = tables.connection.execute(
            "SELECT value FROM configs WHERE resource_type = ? AND resource_name = ? AND name = ?",
            (int(ResourceType.TOPIC), key, CONFIG_NAME),
        ).fetchone()
        return None if row is None else str(row[0])

    def heal(self) -> None:
        """Nobody else uses it any more; what rotted stays rotten."""
        self.is_locked = self.is_held = False

    def lose(self) -> None:
        """The file is lost."""
        self._images.clear()
        self.is_set_aside = self.is_rotten = self._may_be_damaged = False

    def diverge(self) -> None:
        """The digest of the tables differs from the others', as after a record that was applied wrongly."""
        if self._open is not None:
            sums = read_sums(self._open)
            columns = "cluster_id, end_offset, epoch, digest, timestamp_ms, state_digest_end_offset, state_digest"
            applied = list(self._open.execute(f"SELECT {columns} FROM applied").fetchone())  # noqa: S608
            applied[3] = "d" * 32
            self._open.execute(
                "UPDATE applied SET digest = ?, row_sums = ?", (applied[3], sums.encoded(tuple(applied)))
            )

    def rot(self) -> str | None:
        """A value of a stored row changes by itself, where SQLite does not look. Which one; None if there is no row."""
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
        self._images.clear()  # no power cut brings it back
        return f"{table.name}.{column} of {row_key}"

    def find_rot(self) -> str | None:
        """What a scrub finds."""
        if self._open is None:
            return None
        try:
            check_rows(self._open)
        except RottenDatabase as error:
            return str(error)
        return None

    def damage(self) -> None:
        """Enough bits rot to be detected; one in the middle of a value would not be (docs/faults/not-covered.md)."""
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
        """What the process works on, while there is one."""
        return None if self._tables is None else self._tables.connection

    def _template(self) -> bytes:
        """An empty database."""
        return empty_image(self._cluster_id)


def take_snapshot(image: bytes, snapshots: SnapshotStore) -> TakenSnapshot:
    """A snapshot of what a database held when its `image` was made. Raises StorageError, RottenDatabase."""
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
        except (sqlite3.Error, UnicodeDecodeError, UnusableDatabase):  # SQLite's complaint quotes what is damaged
            return False
