"""Bit rot in a metadata database: a change of any byte is detected before a snapshot serves or spreads it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from kraftbase.errors import StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionChangeRecord, RemoveTopicRecord, TopicRecord
from snapshot.store import SnapshotStore
from statemachine.store import scrubber
from statemachine.store.background import start_module
from statemachine.store.scrub import CORRUPT_EXIT_CODE, CorruptDatabase, check_rows, scrub
from statemachine.store.snapshot_worker import take_snapshot
from statemachine.store.store import MetadataStore
from statemachine.tables import row_sums
from statemachine.tables.catalogue import TABLES
from statemachine.tables.database import UnusableDatabase, open_database, open_reader, read_sums
from statemachine.tables.opaque_tables import OPAQUE_NAMES
from statemachine.tables.row_sums import ALL_SLICES, SLICES, sum_of
from tests.effort import all_cases
from tests.statemachine.builders import CLUSTER_ID, an_id, batch, config, log_of, partition, remove_topic, topic
from tests.statemachine.sample_cluster import SAMPLE

INDEXES = {"topics": "name", "partitions": "leader", "acls": "resource_type"}
DAMAGES = 400 if all_cases() else 100
CORRUPT = 100 if all_cases() else 40

ReadAll = Callable[[sqlite3.Connection], object]
BOTH_WAYS: tuple[ReadAll, ...] = (scrub, check_rows)
"""In transactions of their own, and in the current one."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database with some of everything."""
    path = tmp_path_factory.mktemp("sound") / "metadata.db"
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        store.apply([batch(0, SAMPLE)])
        at = len(SAMPLE)
        for number in range(50, 90):
            records = [topic(f"t-{number}", number), *(partition(number, at) for at in range(5))]
            store.apply([batch(at, [*records, config(f"t-{number}", "retention.ms", str(number))])])
            at = store.applied_end_offset
    return path


def content(path: Path) -> object:
    """Everything that SQL can see, by each table and by each of its indexes; the error, if there is one."""
    try:
        with closing(open_reader(path)) as connection:
            rows = [connection.execute(f"SELECT * FROM {table.name}").fetchall() for table in TABLES]
            applied = connection.execute("SELECT * FROM applied").fetchall()
            by_index = [
                sorted(map(repr, connection.execute(f"SELECT {column}, count(*) FROM {name} GROUP BY {column}")))
                for name, column in INDEXES.items()
            ]
            return rows, applied, by_index
    except (sqlite3.Error, StorageError, UnicodeDecodeError) as error:
        return str(error)


def is_found(path: Path, read_all: ReadAll) -> bool:
    """Whether opening the database as a node does, or reading it all, finds anything."""
    try:
        open_database(path, CLUSTER_ID).conn.close()
        with closing(open_reader(path)) as connection:
            read_all(connection)
    except (UnusableDatabase, CorruptDatabase):
        return True
    except StorageError:  # so damaged that it cannot be opened to read
        return True
    return False


def flip(path: Path, random: Random) -> int:
    """Change one bit of a byte that usually matters."""
    data = bytearray(path.read_bytes())
    position = random.randrange(len(data))
    while data[position] == 0 and random.random() < 0.9:
        position = random.randrange(len(data))
    data[position] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return position


def test_every_damage_that_changes_what_is_read_is_found(sound: Path, tmp_path: Path) -> None:
    random, right = Random(14), content(sound)
    assert not any(is_found(shutil.copy(sound, tmp_path / "whole.db"), read_all) for read_all in BOTH_WAYS)
    changed = missed = 0
    for _ in range(DAMAGES):
        path = Path(shutil.copy(sound, tmp_path / "metadata.db"))
        position = flip(path, random)
        is_changed = content(path) != right
        changed += is_changed
        found = [is_found(shutil.copy(path, tmp_path / "metadata.db-copy"), read_all) for read_all in BOTH_WAYS]
        assert all(found) or not is_changed, f"byte {position}"
        missed += is_changed and not _quick_check_finds(path)
        for left in tmp_path.glob("metadata.db*"):
            left.unlink()
    assert changed > DAMAGES // 4
    assert missed > DAMAGES // 10, "SQLite's own quick check finds this by itself"


def _quick_check_finds(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok"
    except (sqlite3.Error, UnicodeDecodeError):
        return True


def test_no_damage_gets_into_a_snapshot(sound: Path, tmp_path: Path) -> None:
    random, taken = Random(15), 0
    (tmp_path / "right").mkdir()
    right = Path(take_snapshot(sound, SnapshotStore(PosixFileSystem(), str(tmp_path / "right"))).path).read_bytes()
    for number in range(CORRUPT):
        path = Path(shutil.copy(sound, tmp_path / f"{number}.db"))
        flip(path, random)
        directory = tmp_path / str(number)
        directory.mkdir()
        try:
            snapshot = take_snapshot(path, SnapshotStore(PosixFileSystem(), str(directory)))
        except (CorruptDatabase, StorageError):
            assert not list(directory.iterdir())
        else:
            taken += 1
            assert Path(snapshot.path).read_bytes() == right
    assert 0 < taken < CORRUPT


@pytest.mark.parametrize("statement", [
    "UPDATE configs SET value = '50' WHERE resource_name = 't-51'",
    "UPDATE partitions SET leader = leader + 1 WHERE partition_id = 3",
    "DELETE FROM topics WHERE name = 't-60'",
    "INSERT INTO features VALUES ('a', 1)",
    "UPDATE applied SET end_offset = end_offset + 1",
    "UPDATE applied SET row_sums = zeroblob(length(row_sums))",
])  # fmt: skip
def test_what_nobody_applied_is_found_in_a_database_that_is_in_use(sound: Path, tmp_path: Path, statement: str) -> None:
    path = Path(shutil.copy(sound, tmp_path / "metadata.db"))
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(statement)
        for read_all in BOTH_WAYS:
            with pytest.raises(CorruptDatabase), closing(open_reader(path)) as reader:
                read_all(reader)
        del store


def test_an_index_that_is_not_its_tables_is_found(sound: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(sound, tmp_path / "metadata.db"))
    data = path.read_bytes()
    places = [at for at in range(len(data)) if data[at : at + 4] == b"t-77"]
    assert len(places) == 4  # topics, its indexes by name and by collision, configs
    for at in places:
        path.write_bytes(data[:at] + b"t-7x" + data[at + 4 :])
        for read_all in BOTH_WAYS:
            with pytest.raises(CorruptDatabase, match=r"table (topics|configs)"), closing(open_reader(path)) as reader:
                read_all(reader)


def test_a_scrub_agrees_while_rows_are_added_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        store.apply(log_of([[topic(f"t-{number}", number)] for number in range(50)]))
        stop, offsets = threading.Event(), []

        def write() -> None:
            random, there = Random(3), set(range(50))
            at, made = 50, 50
            while not stop.is_set():
                records: list[MetadataRecord] = []
                number = random.choice([*there])
                match random.randrange(4):
                    case 0:
                        records = [topic(f"t-{made}", made * 2**80), partition(made * 2**80)]
                        made += 1
                    case 1:
                        there.discard(number)
                        records = [remove_topic(number), topic(f"t-{number}", number)]
                        there.add(number)
                    case 2:
                        records = [config(f"t-{number}", "retention.ms", str(random.random()))]
                    case _:
                        change = PartitionChangeRecord(topic_id=an_id(number), partition_id=0, leader=2)
                        records = [partition(number), MetadataRecord(partition_change=change)]
                store.apply([batch(at, records)])
                at += len(records)
                offsets.append(at)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                before = len(offsets)
                with closing(open_reader(path)) as reader:
                    assert not any(scrub(reader))
                while len(offsets) < before + 5:
                    pass
        finally:
            stop.set()
            writer.join()


def test_sums_of_a_database_that_had_none_are_found_while_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        store.apply([batch(0, SAMPLE)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE applied DROP COLUMN row_sums")  # as 0004_tables made it
        connection.execute("DELETE FROM _sqlite_migrations WHERE name = '0005_row_sums'")
        connection.commit()
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        at = store.applied_end_offset
        assert at == len(SAMPLE)
        store.apply([batch(at, [config("orders", "retention.ms", "7")])])
        with closing(open_reader(path)) as reader:
            missing = scrub(reader)
            assert any(missing)
            store.apply([batch(at + 1, [config("orders", "retention.ms", None), topic("more", 80)])])
            assert scrub(reader) == missing
        store.complete_row_sums(missing)
        with closing(open_reader(path)) as reader:
            assert not any(scrub(reader))
            assert read_sums(reader).is_complete
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE topics SET name = 'mole' WHERE name = 'more'")
        with pytest.raises(CorruptDatabase), closing(open_reader(path)) as reader:
            scrub(reader)


def test_a_database_without_records_of_a_kafka_gets_column_tables_and_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 0005_row_sums made it: no record is applied again, and sums of the other layout are computed again."""
    path = tmp_path / "metadata.db"
    with monkeypatch.context() as before, closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        before.setattr(row_sums, "LAYOUT", 1)
        store.apply([batch(0, SAMPLE)])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP VIEW log_directories")
        for column in (
            "cordoned_log_dirs",
            "last_unfenced_epoch",
            "older_log_dirs",
            "unfenced_log_dirs",
            "full_log_dirs",
        ):
            connection.execute(f"ALTER TABLE brokers DROP COLUMN {column}")
        for name in OPAQUE_NAMES:
            connection.execute(f"DROP TABLE {name}")
        connection.execute("DELETE FROM _sqlite_migrations WHERE name >= '0006_records_of_a_kafka'")
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        assert store.applied_end_offset == len(SAMPLE)
        with closing(open_reader(path)) as reader:
            assert reader.execute("SELECT count(*) FROM log_directories").fetchone()[0]
            assert reader.execute("SELECT DISTINCT cordoned_log_dirs FROM brokers").fetchall() == [("[]",)]
            missing = scrub(reader)
        assert any(missing)
        store.complete_row_sums(missing)
        with closing(open_reader(path)) as reader:
            assert not any(scrub(reader))


def test_what_a_snapshot_holds_has_its_sums_when_it_is_loaded(sound: Path, tmp_path: Path) -> None:
    snapshots = SnapshotStore(PosixFileSystem(), str(tmp_path))
    taken = take_snapshot(sound, snapshots)
    with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)) as store:
        with snapshots.open(taken.snapshot_id) as reader:
            store.load(reader)
        with closing(open_reader(tmp_path / "metadata.db.new")) as loaded, closing(open_reader(sound)) as reader:
            assert not any(scrub(loaded))
            assert [read_sums(loaded)[part] for part in ALL_SLICES] == [read_sums(reader)[part] for part in ALL_SLICES]


def test_each_row_is_in_one_slice(sound: Path) -> None:
    with closing(open_reader(sound)) as reader:
        for table in TABLES:
            parts = [part for part in ALL_SLICES if part.table is table]
            assert len(parts) in (1, SLICES)
            every = reader.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}").fetchall()
            found = [row for part in parts for row in reader.execute(part.select_sql, part.parameters)]
            assert sorted(map(repr, found)) == sorted(map(repr, every))
            assert sum_of(every) == sum(read_sums(reader)[part] for part in parts) % 2**32


def test_as_a_process_it_says_what_it_found(sound: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(sound, tmp_path / "metadata.db"))
    command = [sys.executable, "-m", "statemachine.store.scrub", str(path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == [0] * len(ALL_SLICES)
    path.write_bytes(path.read_bytes().replace(b"t-77", b"t-7x"))
    corrupt = subprocess.run(command, capture_output=True, check=False, text=True)
    assert corrupt.returncode == CORRUPT_EXIT_CODE
    assert "its rows are not those that were applied" in corrupt.stderr


def test_rows_of_several_slices_in_one_run_are_counted_each_in_its_own(store: MetadataStore) -> None:
    ids = [bytes([first]) + bytes(15) for first in (0, 100, 255)]
    store.apply(
        [batch(0, [MetadataRecord(topic=TopicRecord(name=f"t-{at}", topic_id=of)) for at, of in enumerate(ids)])]
    )
    assert store.find_corruption() is None
    store.apply([batch(3, [MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=ids[1]))])])
    assert store.find_corruption() is None


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_new", "expected"), [(True, []), (False, ["metadata.db"])])
async def test_a_start_scrubs_a_database_unless_it_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool, expected: list[str]
) -> None:
    scrubbed = []

    def start(module: str, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        scrubbed.extend(Path(argument).name for argument in arguments)
        return start_module(module, arguments)

    monkeypatch.setattr(scrubber, "start_module", start)
    with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)) as store:
        await scrubber.Scrubber(store, 0, pytest.fail, is_new=is_new).run()
    assert scrubbed == expected
