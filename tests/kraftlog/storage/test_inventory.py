"""The inventory: its lines, what damage and crashes make of the file, and when it counts (DB-89)."""

from __future__ import annotations

import contextlib
import itertools
import re
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_from_text
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.formats import inventory as lines
from kraftlog.storage.formats.inventory import (
    ClosedSegment,
    LogEntry,
    decode_inventory,
    encode_change,
    encode_line,
    encode_shutdown,
    encode_start,
    encode_whole,
    entry_below,
    starting_at,
    starting_over,
    without_below,
)
from kraftlog.storage.inventory import APPENDED_BYTES_MAX, Inventory, decode_clean_shutdown, encode_clean_shutdown
from kraftlog.storage.registered_epoch import note_registration
from tests.effort import some
from tests.kraftlog.storage.builders import CLICKS, DIRECTORY_ID, TOPIC_ID
from tests.paths import ROOT

BITS_PART = 5
"""`make test` changes one bit in so many: each of a byte in turn."""
ORDERS = TopicPartition("orders", 3)
PATH = "data/kraftlog-inventory"
CLEAN = "data/.kafka_cleanshutdown"
EMPTY = LogEntry(TOPIC_ID, 0, 0, 0)
SEGMENTS = (ClosedSegment(0, 100, 5200), ClosedSegment(100, 200, 5100), ClosedSegment(200, 300, 5000))
ENTRY = LogEntry(TOPIC_ID, 320, 50, 300, SEGMENTS)


def made(*changes: dict[TopicPartition, LogEntry | None]) -> tuple[MemoryFileSystem, Inventory]:
    files = MemoryFileSystem()
    files.make_directories("data")
    inventory = Inventory.read(files, "data", DIRECTORY_ID)
    inventory.begin({})
    for change in changes:
        inventory.save(change)
    return files, inventory


def entries_in(files: MemoryFileSystem) -> dict[TopicPartition, LogEntry]:
    inventory = Inventory.read(files, "data", DIRECTORY_ID)
    inventory.start()
    inventory.release()
    return inventory.entries


# --- lines ------------------------------------------------------------------------------------------------------------


def test_the_examples_of_docstring_and_page_are_right() -> None:
    page = (ROOT / "docs" / "formats" / "partition-log.md").read_text()
    for text in (lines.__doc__ or "", page):
        examples = re.findall(r"^ *([0-9a-f]{8} \[.*\])$", text, re.MULTILINE)
        assert [line.split('"')[1] for line in examples] == [
            "inventory", "log", "roll", "at", "gone", "shutdown", "start", "epoch",
        ]  # fmt: skip
        content = decode_inventory("".join(f"{line}\n" for line in examples).encode(), "example")
        assert content.entries == {}
        assert (content.shutdown_epoch, content.is_running, content.broker_epoch) == (41, True, 57)
        before_it_goes = decode_inventory("".join(f"{line}\n" for line in examples[:4]).encode(), "example")
        assert before_it_goes.entries == {
            CLICKS: LogEntry(
                uuid_from_text("MkTRi9xBQ0SR0lyFXJwFhA"), 1420, 200, 1400,
                (ClosedSegment(0, 1000, 52000), ClosedSegment(1000, 1400, 20800, 3808858755, 719885386)),
            )
        }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (None, EMPTY, ["log"]),
        (EMPTY, EMPTY, []),
        (EMPTY, None, ["gone"]),
        (EMPTY, replace(EMPTY, recovery_point=40), ["at"]),
        (EMPTY, replace(EMPTY, last_aborted_checksum=7), ["at"]),
        (EMPTY, replace(EMPTY, last_batch_checksum=7), ["at"]),
        (EMPTY, replace(EMPTY, last_snapshot_checksum=7), ["at"]),
        (ENTRY, replace(ENTRY, closed=(*SEGMENTS, ClosedSegment(300, 400, 1, 0, 8))), ["roll"]),
        (replace(ENTRY, last_batch_checksum=7), entry_below(replace(ENTRY, last_batch_checksum=7), 310), ["at"]),
        (EMPTY, replace(EMPTY, last_base_offset=100, closed=SEGMENTS[:1]), ["roll"]),
        (EMPTY, replace(EMPTY, recovery_point=120, last_base_offset=100, closed=SEGMENTS[:1]), ["roll", "at"]),
        (ENTRY, replace(ENTRY, topic_id=UUID(int=3)), ["log"]),
        (ENTRY, starting_at(ENTRY, 150), ["at"]),
        (ENTRY, starting_at(ENTRY, 20), ["at"]),
        (ENTRY, starting_over(ENTRY, 9), ["log"]),
        (starting_over(ENTRY, 9), ENTRY, ["log"]),
        (ENTRY, without_below(ENTRY, 200), ["at"]),
        (ENTRY, without_below(ENTRY, 400), ["roll", "at"]),
        (ENTRY, entry_below(ENTRY, 250), ["log"]),
        (ENTRY, entry_below(ENTRY, 310), ["at"]),
        (ENTRY, entry_below(ENTRY, 0), ["log"]),
        (ENTRY, replace(ENTRY, closed=(SEGMENTS[0], ClosedSegment(100, 200, 1), SEGMENTS[2])), ["log"]),
        (
            ENTRY,
            replace(ENTRY, last_aborted_checksum=7, closed=(*SEGMENTS, ClosedSegment(300, 400, 1, 8))),
            ["roll", "at"],
        ),
    ],
)
def test_each_change_is_read_as_it_was_written(
    before: LogEntry | None, after: LogEntry | None, kinds: list[str]
) -> None:
    change = encode_change(CLICKS, before, after)
    assert re.findall(r'\["(\w+)"', change.decode()) == kinds
    others = {ORDERS: ENTRY}
    data = encode_whole(DIRECTORY_ID, others if before is None else others | {CLICKS: before}) + change
    content = decode_inventory(data, PATH)
    assert content.entries == (others if after is None else others | {CLICKS: after})
    assert content.byte_count == len(data)


def test_what_is_true_of_a_log_while_it_is_cut() -> None:
    assert entry_below(ENTRY, 310) == replace(ENTRY, recovery_point=310)
    assert entry_below(ENTRY, 300) == replace(ENTRY, recovery_point=300, last_base_offset=200, closed=SEGMENTS[:2])
    assert entry_below(ENTRY, 101) == replace(ENTRY, recovery_point=101, last_base_offset=100, closed=SEGMENTS[:1])
    assert entry_below(ENTRY, 50) == replace(ENTRY, recovery_point=50, last_base_offset=0, closed=())
    assert entry_below(ENTRY, 0) == replace(ENTRY, recovery_point=0, last_base_offset=None, closed=())
    over = starting_over(ENTRY, 70)
    assert over == replace(ENTRY, recovery_point=70, log_start_offset=70, last_base_offset=None, closed=())
    assert entry_below(over, 10) == over


@pytest.mark.parametrize(
    "line",
    [
        encode_line(["grown", "clicks", 0]),
        encode_line(["roll", "clicks", 0, 100, []]),  # of a log that it does not have
        encode_line(["at", "clicks", 0, 1, 2, 3, 4]),
        encode_line(["epoch", "57"]),
        encode_line(["log", "clicks", 0, "no id", 0, 0, 0, 0, 0, 0, []]),
        encode_line(["log", "clicks", 0, "MkTRi9xBQ0SR0lyFXJwFhA", 0, 0, 0, 0, 0, 0, [[1]]]),
    ],
)
def test_a_line_that_has_its_checksum_and_no_meaning_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedBytes, match="cannot be read"):
        decode_inventory(encode_whole(DIRECTORY_ID, {}) + line, PATH)


@pytest.mark.parametrize("data", [b"", bytes(5000), encode_start(), encode_line(["inventory", 2, "x"])])
def test_a_file_without_a_first_line_of_this_version_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedBytes):
        decode_inventory(data, PATH)


# --- damage and crashes -----------------------------------------------------------------------------------------------

HISTORY: list[dict[TopicPartition, LogEntry | None]] = [
    {CLICKS: EMPTY, ORDERS: ENTRY},
    {CLICKS: replace(EMPTY, recovery_point=120, last_base_offset=100, closed=SEGMENTS[:1])},
    {ORDERS: starting_at(ENTRY, 250)},
    {CLICKS: starting_over(EMPTY, 7)},
    {ORDERS: None},
]


@pytest.mark.parametrize("length", range(1, len(HISTORY) + 1))
@pytest.mark.parametrize("reserved_bytes", [0, 1500])
def test_one_bit_that_changes_adds_nothing_and_brings_nothing_back(length: int, reserved_bytes: int) -> None:
    """Not of the last line, either: without it the file would claim what is gone since."""
    entries: dict[TopicPartition, LogEntry] = {}
    data = encode_whole(DIRECTORY_ID, {})
    for changes in HISTORY[:length]:
        for partition, entry in changes.items():
            data += encode_change(partition, entries.get(partition), entry)
            if entry is None:
                del entries[partition]
            else:
                entries[partition] = entry
    data += bytes(reserved_bytes)
    assert decode_inventory(data, PATH).entries == entries
    for bit in some(range(8 * len(data)), BITS_PART):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            content = decode_inventory(bytes(flipped), PATH)
        except MalformedBytes:
            continue
        assert (content.directory_id, content.entries) == (DIRECTORY_ID, entries), bit


def test_after_a_crash_it_has_each_change_up_to_one_or_counts_for_nothing() -> None:
    many = {TopicPartition("wide", index): ENTRY for index in range(40)}  # lines in several sectors
    known = [{}, {CLICKS: EMPTY}, {CLICKS: EMPTY} | many]
    counted = 0
    for seed in some(range(200), part=4):
        files, inventory = made({CLICKS: EMPTY})

        def stop(operation: str, path: str) -> None:
            if operation == "fdatasync":
                raise KeyboardInterrupt

        files.before_operation = stop
        with pytest.raises(KeyboardInterrupt):
            inventory.save(dict(many))
        files.before_operation = None
        files.crash(random=Random(seed))
        found = entries_in(files)
        counted += bool(found)
        assert found.items() <= known[2].items()
        assert not found or CLICKS in found
    assert counted


@pytest.mark.parametrize("kept_bytes", [0, 1, 30, 100, 199, 200, 10_000])
def test_a_last_line_that_is_there_in_part_is_left_out_and_the_next_ones_follow(kept_bytes: int) -> None:
    files, _ = made({CLICKS: EMPTY})
    whole = read_whole(files, PATH).rstrip(b"\0")
    line = encode_change(ORDERS, None, ENTRY)
    write_new_file(files, PATH, whole + line[:kept_bytes])
    inventory = Inventory.read(files, "data", DIRECTORY_ID)
    assert inventory.entries == {CLICKS: EMPTY} | ({ORDERS: ENTRY} if kept_bytes >= len(line) else {})
    inventory.save({CLICKS: replace(EMPTY, recovery_point=9)})
    files.crash()
    assert entries_in(files)[CLICKS].recovery_point == 9


def test_it_is_written_anew_when_much_was_appended() -> None:
    files, inventory = made({CLICKS: EMPTY, ORDERS: ENTRY})
    line_bytes = len(encode_change(CLICKS, EMPTY, replace(EMPTY, recovery_point=1)))
    sizes = set()
    for offset in range(1, 3 * APPENDED_BYTES_MAX // line_bytes):
        inventory.save({CLICKS: replace(EMPTY, recovery_point=offset)})
        sizes.add(len(read_whole(files, PATH)))
    assert max(sizes) <= 2 * APPENDED_BYTES_MAX
    assert entries_in(files) == {CLICKS: inventory.entries[CLICKS], ORDERS: ENTRY}
    assert inventory.entries[CLICKS].recovery_point == offset


def test_a_full_disk_has_room_for_what_retention_must_note() -> None:
    files, inventory = made({CLICKS: ENTRY})
    files.space_limit = 0
    for offset in range(50, 300, 10):
        inventory.save({CLICKS: starting_at(ENTRY, offset)})
    files.crash()
    assert entries_in(files) == {CLICKS: starting_at(ENTRY, 290)}


def test_without_reserved_room_a_change_is_refused_and_nothing_has_changed() -> None:
    files = MemoryFileSystem()
    files.make_directories("data")
    inventory = Inventory.read(files, "data", DIRECTORY_ID)
    files.space_limit = 300
    inventory.begin({CLICKS: EMPTY})
    with pytest.raises(OutOfSpace):
        inventory.save({ORDERS: ENTRY, TopicPartition("more", 1): ENTRY})
    assert inventory.entries == {CLICKS: EMPTY}
    files.space_limit = None
    inventory.save({CLICKS: replace(EMPTY, recovery_point=5)})
    files.crash()
    assert entries_in(files) == {CLICKS: replace(EMPTY, recovery_point=5)}


# --- when it counts ---------------------------------------------------------------------------------------------------


def shut_down(epoch: int = 41) -> MemoryFileSystem:
    files, inventory = made({CLICKS: ENTRY})
    inventory.end(epoch)
    write_new_file(files, CLEAN, encode_clean_shutdown(epoch))
    files.end_process()
    return files


def test_it_counts_after_our_own_shutdown_and_after_our_own_kill() -> None:
    assert entries_in(shut_down()) == {CLICKS: ENTRY}
    files, _ = made({CLICKS: ENTRY})
    files.end_process()
    assert entries_in(files) == {CLICKS: ENTRY}


def test_it_counts_when_a_start_was_killed_before_it_had_removed_the_note_of_the_shutdown() -> None:
    files = shut_down()
    assert entries_in(files) == {CLICKS: ENTRY}
    assert entries_in(files) == {CLICKS: ENTRY}
    files.remove(CLEAN)
    assert entries_in(files) == {CLICKS: ENTRY}


def refuse_from(files: MemoryFileSystem, first: int, error: BaseException) -> list[str]:
    """From the operation with that number on nothing happens but `error`; returns the operations, as they come."""
    operations: list[str] = []

    def note(operation: str, path: str) -> None:
        operations.append(f"{operation} {path}")
        if len(operations) > first:
            raise error

    files.before_operation = note
    return operations


class Killed(BaseException):
    """The process is killed before an operation on a file."""


@pytest.mark.parametrize("takes_power", [False, True])
def test_db89_it_counts_wherever_a_shutdown_is_cut_short(takes_power: bool) -> None:
    """Consider a log that is known to be damaged: the next start must know it, too."""
    for number in itertools.count():
        files, inventory = made({CLICKS: ENTRY})
        inventory.release()
        records = DirectoryRecords.read(files, "data", DIRECTORY_ID)
        refuse_from(files, number, Killed())
        with contextlib.suppress(Killed):
            records.end(41)
        was_whole = len(files.list_directory("data")) == 2 and files.exists(CLEAN)
        files.before_operation = None
        if takes_power:
            files.crash()
        files.end_process()
        assert entries_in(files) == {CLICKS: ENTRY}, number
        if was_whole:
            break
    assert number > 4


def test_db89_it_counts_when_a_shutdown_finds_no_room() -> None:
    for number in range(6):
        files, inventory = made({CLICKS: ENTRY})
        inventory.release()
        records = DirectoryRecords.read(files, "data", DIRECTORY_ID)
        refuse_from(files, number, OutOfSpace("no space left"))
        with contextlib.suppress(OutOfSpace):
            records.end(41)
        files.before_operation = None
        files.end_process()
        assert entries_in(files) == {CLICKS: ENTRY}, number


def test_db89_it_counts_when_a_start_finds_no_room_and_is_killed() -> None:
    files = shut_down()
    records = DirectoryRecords.read(files, "data", DIRECTORY_ID)

    def no_room(operation: str, path: str) -> None:
        if operation == "write_at":
            raise OutOfSpace("no space left")

    files.before_operation = no_room
    records.start()
    files.before_operation = None
    files.end_process()
    assert not files.exists(CLEAN), "it was not shut down cleanly"
    assert entries_in(files) == {CLICKS: ENTRY}


@pytest.mark.parametrize("content", [b'{"version":0,"brokerEpoch":41}', encode_clean_shutdown(42), b"", None])
def test_db89_it_does_not_count_when_a_stock_kafka_was_there_since(content: bytes | None) -> None:
    """DB-89. Its file has no spaces, or another epoch; it is absent if that Kafka was killed."""
    files = shut_down()
    if content is None:
        files.remove(CLEAN)
    else:
        write_new_file(files, CLEAN, content)
    assert entries_in(files) == {}
    assert not files.exists(PATH)
    write_new_file(files, CLEAN, encode_clean_shutdown(41))
    assert entries_in(files) == {}, "nor at a later start"


@pytest.mark.parametrize("epoch", [41, 42])
def test_db89_it_does_not_count_when_a_stock_kafka_was_there_after_a_kill(epoch: int) -> None:
    """DB-89."""
    files, _ = made({CLICKS: ENTRY})
    files.end_process()
    write_new_file(files, CLEAN, encode_clean_shutdown(epoch))
    assert entries_in(files) == {}


def test_db89_one_that_is_older_than_the_last_registration_does_not_count() -> None:
    """Consider an older copy: it would have the log begin where it did then."""
    files, inventory = made({CLICKS: ENTRY})
    inventory.register(40)
    older = read_whole(files, PATH)
    inventory.register(57)
    note_registration(files, "data", 57)
    files.end_process()
    assert entries_in(files) == {CLICKS: ENTRY}
    write_new_file(files, PATH, older)
    assert entries_in(files) == {}


def test_db89_a_registration_is_in_the_inventory_that_is_rewritten() -> None:
    files, inventory = made({CLICKS: ENTRY})
    inventory.register(57)
    note_registration(files, "data", 57)
    for _ in range(2):
        inventory.begin({CLICKS: ENTRY})
        files.end_process()
        inventory = Inventory.read(files, "data", DIRECTORY_ID)
        assert inventory.entries == {CLICKS: ENTRY}
    files.remove(PATH)
    inventory = Inventory.read(files, "data", DIRECTORY_ID)
    inventory.begin({CLICKS: ENTRY})
    files.end_process()
    assert entries_in(files) == {CLICKS: ENTRY}, "one that was rebuilt is not older"


def test_one_of_another_directory_is_refused() -> None:
    files = shut_down()
    with pytest.raises(StorageError, match=r"Restore directory\.id="):
        Inventory.read(files, "data", UUID(int=5))


def test_a_shutdown_ends_the_file() -> None:
    data = encode_whole(DIRECTORY_ID, {CLICKS: ENTRY}) + encode_shutdown(41)
    content = decode_inventory(data, PATH)
    assert (content.shutdown_epoch, content.is_running) == (41, False)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"brokerEpoch": -1}', b'{"brokerEpoch": "1"}', b"{}"])
def test_an_epoch_that_no_broker_has_is_none(data: bytes) -> None:
    assert decode_clean_shutdown(data) is None
