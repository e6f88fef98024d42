"""What a start finds missing of a log, after a clean shutdown and after a kill, and what is no damage (DB-89)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.findings import Finding
from kraftlog.storage.formats.checkpoints import encode_partition_metadata
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.set_aside import set_damaged_aside, set_strays_aside
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import (
    CLICKS,
    CLUSTER_ID,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    all_batches,
    append,
    batch,
    checkpoint,
    delete_log,
)

NEW_ID = UUID(int=99)
CONFIG = PartitionLogConfig(segment_bytes=160, index_interval_bytes=0, retention_bytes=300)
INVENTORY = "a/kraftlog-inventory"
STARTS = "a/log-start-offset-checkpoint"
RECOVERY_POINTS = "a/recovery-point-offset-checkpoint"
METADATA = "a/clicks-0/partition.metadata"
ENDS = ["clean", "kill", "power"]
GONE = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is elsewhere")


def open_manager(files: MemoryFileSystem) -> LogManager:
    ids = iter(range(1, 10))
    return LogManager.open(
        files, ["a", "b"], StepRuntime(), cluster_id=CLUSTER_ID, node_id=1, config_of=lambda partition: CONFIG,
        new_id=lambda: UUID(int=next(ids)),
    )  # fmt: skip


class Broker:
    """A log of segments 0, 2, 4 and 6 in directory `a`, flushed up to its end at 7, and how it ends."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.manager = open_manager(self.files)
        self.log = self.manager.create_log(CLICKS, TOPIC_ID, CONFIG)
        assert self.log.directory == "a/clicks-0"
        for _ in range(7):
            append(self.log, batch(1))
        self.log.flush()
        checkpoint(self.manager)
        self.before = all_batches(self.log)

    def end(self, how: str) -> None:
        if how == "clean":
            assert self.manager.close(broker_epoch=41)
        if how == "power":
            self.files.crash()
        self.files.end_process()

    def start(self, topic_id: UUID | None = TOPIC_ID) -> Finding:
        """The finding, in the same order as a broker that has applied its own registration asks for it."""
        self.manager = open_manager(self.files)
        run_at_once(set_strays_aside(self.manager, {}.get if topic_id is None else {CLICKS: topic_id}.get))
        if topic_id is None:
            return Finding.STRAY if self.manager.directory_of(CLICKS) is None else Finding.SOUND
        return self.manager.assess(CLICKS, topic_id)

    def found(self) -> PartitionLog:
        return self.manager.log_of(CLICKS)

    @property
    def reason(self) -> str:
        directory = self.manager.directory_of(CLICKS)
        return "" if directory is None else directory.damaged.get(CLICKS, "")

    def names(self, path: str = "a") -> list[str]:
        return self.files.list_directory(path)


def segment(base_offset: int) -> str:
    return f"a/clicks-0/{base_offset:020}.log"


def lose_segment(base_offset: int) -> Callable[[MemoryFileSystem], None]:
    return lambda files: files.remove(segment(base_offset))


def cut_segment(base_offset: int, byte_count: int) -> Callable[[MemoryFileSystem], None]:
    def cut(files: MemoryFileSystem) -> None:
        write_new_file(files, segment(base_offset), read_whole(files, segment(base_offset))[:-byte_count])

    return cut


def lose_directory(files: MemoryFileSystem) -> None:
    for name in files.list_directory("a/clicks-0"):
        files.remove(f"a/clicks-0/{name}")
    files.remove_directory("a/clicks-0")


def empty_directory(files: MemoryFileSystem) -> None:
    for name in files.list_directory("a/clicks-0"):
        files.remove(f"a/clicks-0/{name}")


# --- damaged ----------------------------------------------------------------------------------------------------------

BATCH_BYTES = len(batch(1))


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_directory, "its directory is missing"),
        (empty_directory, "its directory is missing"),
        (lose_segment(6), "the last segment, which begins at offset 6, is missing"),
        (lose_segment(0), "the segment with offsets 0 to 1 is missing"),
        (lose_segment(2), "the segment with offsets 2 to 3 is missing"),
        (cut_segment(2, 30), "the segment with offsets 2 to 3 has"),
        (cut_segment(2, BATCH_BYTES), "the segment with offsets 2 to 3 has"),
        (cut_segment(6, BATCH_BYTES), "flushed"),
    ],
)
def test_db89_what_is_missing_is_damage_and_nothing_is_deleted(
    how: str, damage: Callable[[MemoryFileSystem], None], words: str
) -> None:
    """DB-89."""
    broker = Broker()
    broker.end(how)
    damage(broker.files)
    if broker.files.exists("a/clicks-0"):
        broker.files.fsync_directory("a/clicks-0")
    left = broker.files.exists("a/clicks-0") and [name for name in broker.names("a/clicks-0") if ".log" in name]
    for _ in range(2):  # at the next start as well
        assert broker.start() is Finding.DAMAGED
        assert words in broker.reason or ".damaged" in "".join(broker.names("a/clicks-0"))
        with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
            broker.found()
        if left:
            found = [name.removesuffix(".damaged") for name in broker.names("a/clicks-0") if ".log" in name]
            assert found == left
        broker.end(how)


@pytest.mark.parametrize("how", ENDS)
def test_db89_a_segment_that_is_put_back_makes_the_log_sound(how: str) -> None:
    """DB-89."""
    broker = Broker()
    broker.end(how)
    data = read_whole(broker.files, segment(2))
    broker.files.remove(segment(2))
    assert broker.start() is Finding.DAMAGED
    broker.end(how)
    write_new_file(broker.files, segment(2), data)
    assert broker.start() is Finding.SOUND
    assert all_batches(broker.found()) == broker.before


@pytest.mark.parametrize("how", ENDS)
def test_db89_a_bit_in_a_log_start_offset_deletes_nothing_and_is_named(how: str) -> None:
    """DB-89."""
    broker = Broker()
    broker.log.advance_high_watermark(7)
    broker.log.delete_records(1)
    broker.end(how)
    changed = read_whole(broker.files, STARTS).replace(b"clicks 0 1", b"clicks 0 9")
    write_new_file(broker.files, STARTS, changed)
    with capture_logs() as lines:
        assert broker.start() is Finding.SOUND
    assert [line for line in lines if "the inventory is used" in line["event"]]
    assert broker.found().log_start_offset == 1
    assert all_batches(broker.found()) == broker.before[1:]
    checkpoint(broker.manager)
    assert b"clicks 0 1\n" in read_whole(broker.files, STARTS)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("first_offset", [6, 9])
def test_db89_a_last_segment_in_whose_place_is_another_one_is_damage(how: str, first_offset: int) -> None:
    """It ends where the log did, or behind; the one of another partition has other batches."""
    broker = Broker()
    broker.end(how)
    other = bytearray(batch(1, key=b"elsewhere"))
    other[:8] = first_offset.to_bytes(8, "big")
    write_new_file(broker.files, segment(6), bytes(other))
    assert broker.start() is Finding.DAMAGED
    assert "the batch that ends at offset 6 is not the one that was flushed there" in broker.reason
    assert read_whole(broker.files, segment(6)) == other


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("name", [STARTS, RECOVERY_POINTS])
@pytest.mark.parametrize("offset", [0, 2, 9000])
def test_db89_a_start_writes_the_checkpoints_as_the_inventory_has_them(how: str, name: str, offset: int) -> None:
    """Consider another damage soon, of the inventory: then the checkpoints hold."""
    broker = Broker()
    checkpoint(broker.manager)
    broker.end(how)
    right = read_whole(broker.files, name)
    write_new_file(broker.files, name, f"0\n1\nclicks 0 {offset}\n".encode())
    assert broker.start() is Finding.SOUND
    assert read_whole(broker.files, name) == right


@pytest.mark.parametrize("how", ENDS)
def test_db89_without_an_inventory_a_log_start_beyond_the_end_is_damage(how: str) -> None:
    """DB-89."""
    broker = Broker()
    broker.end(how)
    broker.files.remove(INVENTORY)
    write_new_file(broker.files, STARTS, b"0\n1\nclicks 0 9000\n")
    assert broker.start() is Finding.DAMAGED
    assert "the checkpoint says that it starts at 9000" in broker.reason
    assert len([name for name in broker.names("a/clicks-0") if name.endswith(".log")]) == 4


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("has_inventory", [True, False])
def test_db89_one_character_of_a_topic_id_does_not_make_a_stray_of_a_log(how: str, has_inventory: bool) -> None:
    """DB-89; without an inventory it is set aside, as in Kafka."""
    broker = Broker()
    broker.end(how)
    write_new_file(broker.files, METADATA, encode_partition_metadata(UUID(int=TOPIC_ID.int ^ 1 << 40)))
    if not has_inventory:
        broker.files.remove(INVENTORY)
        assert broker.start() is Finding.NEW
        return
    assert broker.start() is Finding.SOUND
    assert all_batches(broker.found()) == broker.before
    assert read_whole(broker.files, METADATA) == encode_partition_metadata(TOPIC_ID)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("garbage", [b"", b"version: 0\ntopic_id: ?\n", None])
def test_db89_a_topic_id_that_is_missing_or_not_readable_is_written_again(how: str, garbage: bytes | None) -> None:
    """DB-89; also with no room for it, when it is written by the next start."""
    broker = Broker()
    broker.end(how)
    if garbage is None:
        broker.files.remove(METADATA)
    else:
        write_new_file(broker.files, METADATA, garbage)
    broker.files.space_limit = 0
    assert broker.start() is Finding.SOUND
    broker.files.space_limit = None
    broker.end("kill")
    assert broker.start() is Finding.SOUND
    assert all_batches(broker.found()) == broker.before
    assert read_whole(broker.files, METADATA) == encode_partition_metadata(TOPIC_ID)


def test_db89_a_log_with_a_wrong_topic_id_that_also_lacks_a_segment_is_damaged() -> None:
    """DB-89."""
    broker = Broker()
    broker.end("clean")
    write_new_file(broker.files, METADATA, encode_partition_metadata(NEW_ID))
    broker.files.remove(segment(2))
    assert broker.start() is Finding.DAMAGED
    assert "offsets 2 to 3 is missing" in broker.reason


def test_db89_damage_that_is_set_aside_or_whose_topic_is_gone_is_not_found_again() -> None:
    """DB-89."""
    broker = Broker()
    broker.end("kill")
    lose_directory(broker.files)
    assert broker.start() is Finding.DAMAGED
    set_damaged_aside(broker.manager, CLICKS)
    assert broker.manager.assess(CLICKS, TOPIC_ID) is Finding.NEW
    broker.end("kill")
    assert broker.start() is Finding.NEW


# --- not damaged ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("has_topic_id", [True, False])
@pytest.mark.parametrize("has_files", [True, False])
def test_db89_a_topic_that_was_made_again_begins_empty(how: str, has_topic_id: bool, has_files: bool) -> None:
    """DB-89. Without its own file a log is of the topic that the inventory names: so it is not the new one's."""
    broker = Broker()
    broker.end(how)
    if not has_topic_id:
        broker.files.remove(METADATA)
    if not has_files:
        lose_directory(broker.files)
    assert broker.start(NEW_ID) is Finding.NEW
    strays = [name for name in broker.names() if name.endswith("-stray")]
    assert len(strays) == has_files
    assert broker.manager.create_log(CLICKS, NEW_ID, CONFIG).log_end_offset == 0
    broker.end(how)
    # Nothing of the new log was flushed: a loss of power may take its directory, and it is made again.
    assert broker.start(NEW_ID) is (Finding.NEW if how == "power" else Finding.SOUND)


@pytest.mark.parametrize("how", ENDS)
def test_db89_a_partition_that_was_reassigned_away_and_back_is_new(how: str) -> None:
    """DB-89."""
    broker = Broker()
    delete_log(broker.manager, CLICKS, GONE)
    broker.end(how)
    assert broker.start() is Finding.NEW


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("has_files", [True, False])
def test_db89_a_partition_that_went_away_and_came_back_while_the_broker_was_down(how: str, has_files: bool) -> None:
    """DB-89. Its log may have been deleted by hand since, as a stray."""
    broker = Broker()
    broker.end(how)
    if not has_files:
        lose_directory(broker.files)
    assert broker.start(None) is Finding.STRAY
    broker.end(how)
    assert broker.start() is Finding.NEW


@pytest.mark.parametrize("operations", range(12))
@pytest.mark.parametrize("loses_power", [False, True])
def test_db89_a_deletion_that_is_killed_half_way_leaves_no_damage(operations: int, loses_power: bool) -> None:
    """DB-89."""
    broker = Broker()
    left = operations

    class Killed(BaseException):
        """The process ends here."""

    def stop(_: str, __: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    broker.files.before_operation = stop
    with suppress(Killed):
        delete_log(broker.manager, CLICKS, GONE)
        broker.manager.maintain()
    broker.files.before_operation = None
    broker.end("power" if loses_power else "kill")
    assert broker.start() in (Finding.NEW, Finding.SOUND)
    broker.end("kill")
    assert broker.start(None) is Finding.STRAY


def test_db89_a_log_shorter_than_the_high_watermark_of_the_checkpoint_is_sound() -> None:
    """DB-89: `flush.before.ack=false`, or a stock Kafka that has lost its power."""
    broker = Broker()
    append(broker.log, batch(3))
    broker.log.advance_high_watermark(10)
    checkpoint(broker.manager, high_watermarks=True)
    broker.end("power")
    assert b"clicks 0 10" in read_whole(broker.files, "a/replication-offset-checkpoint")
    assert broker.start() is Finding.SOUND
    assert broker.found().log_end_offset == 7


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("has_topic_id", [True, False])
def test_db89_without_an_inventory_a_gap_is_no_damage_and_one_is_made(how: str, has_topic_id: bool) -> None:
    """DB-89: the first start of this version, with a topic that was once compacted."""
    broker = Broker()
    broker.end(how)
    broker.files.remove(INVENTORY)
    if not has_topic_id:
        broker.files.remove(METADATA)
    for suffix in ("log", "index", "timeindex"):
        broker.files.remove(segment(2).removesuffix("log") + suffix)
    broker.files.fsync_directory("a/clicks-0")
    assert broker.start() is Finding.SOUND
    assert all_batches(broker.found()) == broker.before[:2] + broker.before[4:]
    checkpoint(broker.manager)
    broker.end(how)
    broker.files.remove(segment(4))
    assert broker.start() is Finding.DAMAGED, "the inventory proves what is missing from now on"


def test_db89_what_a_stock_kafka_has_done_is_no_damage() -> None:
    """DB-89."""
    broker = Broker()
    broker.end("clean")
    broker.files.remove(segment(0))
    write_new_file(broker.files, "a/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":57}')
    assert broker.start() is Finding.SOUND
    assert broker.found().log_start_offset == 2


@pytest.mark.parametrize("how", ENDS)
def test_db89_an_inventory_that_is_damaged_proves_nothing(how: str) -> None:
    """DB-89."""
    broker = Broker()
    broker.end(how)
    broker.files.damage(INVENTORY, 150, b"\x07")
    with capture_logs() as lines:
        assert broker.start() is Finding.SOUND
    assert [line for line in lines if "rebuilt from" in line["event"]]
    assert all_batches(broker.found()) == broker.before


@pytest.mark.parametrize("how", ENDS)
def test_db89_retention_and_cuts_and_new_starts_are_no_damage(how: str) -> None:
    """DB-89."""
    broker = Broker()
    log = broker.log
    log.advance_high_watermark(7)
    log.delete_old_segments(NOW_MS)
    log.delete_records(5)
    log.truncate(6)
    append(log, batch(1))
    log.flush()
    broker.end(how)
    assert broker.start() is Finding.SOUND
    log = broker.found()
    assert (log.log_start_offset, log.log_end_offset) == (5, 7)
    log.truncate_fully_and_start_at(90)
    broker.end(how)
    assert broker.start() is Finding.SOUND
    assert (broker.found().log_start_offset, broker.found().log_end_offset) == (90, 90)
