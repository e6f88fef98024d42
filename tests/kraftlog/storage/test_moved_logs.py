"""What a start makes of a log that was moved by hand from one log directory to another one (DB-89)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Finding
from kraftlog.storage.formats.checkpoints import encode_partition_metadata
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.set_aside import set_copies_aside
from tests.kraftlog.storage.builders import CLICKS, CLUSTER_ID, NOW_MS, TOPIC_ID, StepRuntime, all_batches
from tests.kraftlog.storage.test_damaged_starts import (
    BATCH_BYTES,
    CONFIG,
    ENDS,
    NEW_ID,
    Broker,
    cut_segment,
    lose_directory,
    lose_segment,
    segment,
)


def move_to_b(files: MemoryFileSystem) -> None:
    files.make_directories("b/clicks-0")
    for name in files.list_directory("a/clicks-0"):
        write_new_file(files, f"b/clicks-0/{name}", read_whole(files, f"a/clicks-0/{name}"))
    lose_directory(files)


@pytest.mark.parametrize("how", ENDS)
def test_db89_a_log_that_was_moved_by_hand_to_another_directory_is_sound(how: str) -> None:
    """DB-89."""
    broker = Broker()
    broker.end(how)
    move_to_b(broker.files)
    for _ in range(2):
        assert broker.start() is Finding.SOUND
        assert broker.found().directory == "b/clicks-0"
        assert all_batches(broker.found()) == broker.before
        broker.end(how)
    for name in broker.names("b/clicks-0"):
        broker.files.remove(f"b/clicks-0/{name}")
    assert broker.start() is Finding.DAMAGED, "the inventory of the other directory has it now"


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_segment(6), "the last segment, which begins at offset 6, is missing"),
        (lose_segment(0), "the segment with offsets 0 to 1 is missing"),
        (lose_segment(2), "the segment with offsets 2 to 3 is missing"),
        (cut_segment(2, BATCH_BYTES), "the segment with offsets 2 to 3 has"),
        (cut_segment(6, BATCH_BYTES), "flushed"),
    ],
)
def test_db89_what_was_lost_while_a_log_was_moved_by_hand_is_damage(
    how: str, damage: Callable[[MemoryFileSystem], None], words: str
) -> None:
    """DB-89: also at the next start, and until it is put back or the loss is accepted."""
    broker = Broker()
    broker.end(how)
    whole = {name: read_whole(broker.files, f"a/clicks-0/{name}") for name in broker.names("a/clicks-0")}
    damage(broker.files)
    kept = [name for name in broker.names("a/clicks-0") if name.endswith(".log")]
    move_to_b(broker.files)
    for _ in range(2):
        assert broker.start() is Finding.DAMAGED
        names = broker.names("b/clicks-0")
        assert words in broker.reason or ".damaged" in "".join(names)
        assert [name.removesuffix(".damaged") for name in names if ".log" in name] == kept
        broker.end("kill")
    for name in names:
        broker.files.remove(f"b/clicks-0/{name}")
    for name, data in whole.items():
        write_new_file(broker.files, f"b/clicks-0/{name}", data)
    broker.files.fsync_directory("b/clicks-0")
    assert broker.start() is Finding.SOUND
    assert all_batches(broker.found()) == broker.before


def test_db89_a_loss_that_is_accepted_of_a_moved_log_is_no_damage_any_more() -> None:
    broker = Broker()
    broker.end("clean")
    broker.files.remove(segment(2))
    move_to_b(broker.files)
    assert broker.start() is Finding.DAMAGED
    broker.end("kill")
    directory = LogDirectory.open(
        broker.files, "b", FileHandles(broker.files), StepRuntime(), cluster_id=CLUSTER_ID, node_id=1,
        new_directory_id=NEW_ID,
    )  # fmt: skip
    assert "the segment with offsets 2 to 3 is missing" in directory.findings.damaged_files(CLICKS).damage
    directory.findings.accept_loss(CLICKS, CONFIG, NOW_MS).close()
    directory.release()
    broker.end("kill")
    for _ in range(2):
        assert broker.start() is Finding.SOUND
        assert all_batches(broker.found()) == broker.before[:2] + broker.before[4:]
        broker.end("kill")


def test_db89_a_moved_log_of_which_the_disk_could_not_take_note_is_compared_at_the_next_start_as_well() -> None:
    broker = Broker()
    broker.end("clean")
    broker.files.remove(segment(2))
    move_to_b(broker.files)
    broker.files.space_limit = 0
    assert broker.start() is Finding.DAMAGED
    broker.end("kill")
    broker.files.space_limit = None
    assert broker.start() is Finding.DAMAGED


def test_db89_a_log_that_the_inventory_of_another_directory_has_is_missing_behind_a_stray() -> None:
    """The other directory's log is of a topic that was deleted; that one's own has gone."""
    broker = Broker()
    broker.end("kill")
    lose_directory(broker.files)
    broker.files.make_directories("b/clicks-0")
    write_new_file(broker.files, "b/clicks-0/partition.metadata", encode_partition_metadata(NEW_ID))
    broker.start()
    assert broker.manager.assess(CLICKS, TOPIC_ID) is Finding.DAMAGED
    assert [name for name in broker.names("b") if name.endswith("-stray")]


@pytest.mark.parametrize("assigned", [0, 1])
def test_an_empty_copy_is_not_used_in_the_place_of_one_with_records(assigned: int) -> None:
    """A start without the first directory made it."""
    broker = Broker()
    second = broker.manager.directories[1]
    second.create_log(CLICKS, TOPIC_ID, CONFIG, NOW_MS, NEW_ID)
    broker.end("clean")
    assert broker.start() is Finding.SOUND
    ids = [directory.directory_id for directory in broker.manager.directories]
    set_copies_aside(broker.manager, CLICKS, TOPIC_ID, ids[assigned])
    assert broker.manager.assess(CLICKS, TOPIC_ID) is Finding.SOUND
    assert all_batches(broker.found()) == broker.before
    assert [name for name in broker.names("b") if name.endswith("-stray")]


def test_a_copy_with_records_of_another_topic_is_not_used_in_the_place_of_an_empty_one() -> None:
    broker = Broker()
    second = broker.manager.directories[1]
    second.create_log(CLICKS, NEW_ID, CONFIG, NOW_MS, NEW_ID)
    set_copies_aside(broker.manager, CLICKS, NEW_ID, broker.manager.directories[0].directory_id)
    assert broker.found().directory == "b/clicks-0"
    assert [name for name in broker.names("a") if name.endswith("-stray")]


def test_a_whole_copy_beside_a_damaged_one_is_kept_and_can_be_used_as_the_line_says() -> None:
    broker = Broker()
    broker.end("clean")
    broker.files.make_directories("b/clicks-0")
    for name in broker.names("a/clicks-0"):
        write_new_file(broker.files, f"b/clicks-0/{name}", read_whole(broker.files, f"a/clicks-0/{name}"))
    broker.files.remove(segment(2))
    broker.start()
    with capture_logs() as lines:
        set_copies_aside(broker.manager, CLICKS, TOPIC_ID, broker.manager.directories[0].directory_id)
    assert broker.manager.assess(CLICKS, TOPIC_ID) is Finding.DAMAGED
    (line,) = lines
    assert "Keep this one" in line["event"]
    assert "delete" not in line["event"]
    broker.end("kill")
    lose_directory(broker.files)
    broker.files.rename_directory(f"b/{line['kept_as']}", "b/clicks-0")
    assert broker.start() is Finding.SOUND
    assert all_batches(broker.found()) == broker.before
