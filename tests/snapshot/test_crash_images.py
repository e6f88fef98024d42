"""A crash before any operation, with everything that it may leave: no snapshot, or the whole one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

import snapshot.writer
from kraftbase.errors import CorruptSnapshot
from kraftbase.files.memory import MemoryFile, MemoryFileSystem
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import encode_body, records
from snapshot.names import is_leftover
from snapshot.store import SnapshotStore
from snapshot.writer import SnapshotWriter
from tests.raft.storage.images import crash_everywhere
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, an_id, open_store, verify, write_snapshot

OLD, NEW = an_id(100, 2), an_id(500, 3)
CONTENT = {OLD: [[b"old"]], NEW: [[b"abc", b"de"], [b"f" * 20]]}
FOREIGN = f"{DIRECTORY}/notes.part"


@dataclass
class Told:
    """The snapshots that must exist, and those that may: a freeze or delete of them is in progress."""

    there: set[OffsetAndEpoch] = field(default_factory=set)
    in_doubt: set[OffsetAndEpoch] = field(default_factory=set)

    def begin(self, store: SnapshotStore, snapshot_id: OffsetAndEpoch) -> SnapshotWriter:
        writer = store.create(snapshot_id, HEADER_OF_TESTS)
        assert writer is not None
        for batch in CONTENT[snapshot_id]:
            writer.append(encode_body(batch), len(batch))
        return writer

    def freeze(self, writer: SnapshotWriter) -> None:
        self.in_doubt = {writer.snapshot_id}
        writer.freeze()
        self.in_doubt = set()
        self.there.add(writer.snapshot_id)

    def delete(self, store: SnapshotStore, snapshot_id: OffsetAndEpoch) -> None:
        self.there.remove(snapshot_id)
        self.in_doubt = {snapshot_id}
        store.delete(snapshot_id)
        self.in_doubt = set()


def empty(files: MemoryFileSystem) -> Told:
    open_store(files)
    files.open(FOREIGN, create=True)
    files.fsync_directory(DIRECTORY)
    return Told()


def with_an_old_one(files: MemoryFileSystem) -> Told:
    told = empty(files)
    write_snapshot(open_store(files), OLD, CONTENT[OLD])
    told.there.add(OLD)
    return told


def with_leftovers(files: MemoryFileSystem) -> Told:
    """Unsynced leftovers of a process that was stopped, and a deleted snapshot."""
    told = with_an_old_one(files)
    store = open_store(files)
    write_snapshot(store, NEW, CONTENT[NEW])
    store.delete(NEW)
    told.begin(open_store(files, token="dead"), NEW)
    return told


def verify_image(files: MemoryFileSystem, told: Told) -> None:
    """After a start there is no partial snapshot, every promised one exists, and those from before the crash stay."""
    before = open_store(files).ids()
    store = open_store(files)
    store.clean_up()
    found = set(store.ids())
    assert found == set(before)
    assert told.there <= found <= told.there | told.in_doubt
    assert files.exists(FOREIGN)
    for snapshot_id in found:
        assert verify(files, store.path_of(snapshot_id)).snapshot_id == snapshot_id
        with store.open(snapshot_id) as reader:
            assert [records(batch) for batch in reader.batches()] == CONTENT[snapshot_id]
    assert not [name for name in files.list_directory(DIRECTORY) if is_leftover(name)]
    _goes_on(files, store, found)


def _goes_on(files: MemoryFileSystem, store: SnapshotStore, found: set[OffsetAndEpoch]) -> None:
    """In any case the same snapshot can be made, once, and lasts."""
    if NEW in found:
        assert store.create(NEW, HEADER_OF_TESTS) is None
    else:
        write_snapshot(store, NEW, CONTENT[NEW])
    files.crash()
    assert set(open_store(files).ids()) == found | {NEW}
    assert verify(files, store.path_of(NEW)).batch_count == len(CONTENT[NEW])


# --- the scenarios ----------------------------------------------------------------------------------------------------


def _writes(files: MemoryFileSystem, told: Told) -> None:
    with told.begin(open_store(files), NEW) as writer:
        told.freeze(writer)


def _abandons(files: MemoryFileSystem, told: Told) -> None:
    told.begin(open_store(files), NEW).close()


def _abandons_and_writes(files: MemoryFileSystem, told: Told) -> None:
    _abandons(files, told)
    _writes(files, told)


def _two_write_the_same(files: MemoryFileSystem, told: Told) -> None:
    with told.begin(open_store(files, token="1"), NEW) as one, told.begin(open_store(files, token="2"), NEW) as other:
        told.freeze(one)
        other.freeze()


def _deletes(files: MemoryFileSystem, told: Told) -> None:
    store = open_store(files)
    told.delete(store, OLD)
    store.remove_deleted()


def _replaces(files: MemoryFileSystem, told: Told) -> None:
    """The steps of a node for every snapshot."""
    store = open_store(files)
    store.remove_deleted()
    _writes(files, told)
    told.delete(store, OLD)
    store.remove_deleted()


def _deletes_and_writes_it_again(files: MemoryFileSystem, told: Told) -> None:
    store = open_store(files)
    for _ in range(2):
        _writes(files, told)
        told.delete(store, NEW)
    store.remove_deleted()
    _writes(files, told)


def _cleans_up(files: MemoryFileSystem, told: Told) -> None:
    open_store(files).clean_up()


def _cleans_up_and_writes(files: MemoryFileSystem, told: Told) -> None:
    open_store(files).clean_up()
    _writes(files, told)


STORIES = [
    (empty, _writes, 60),
    (empty, _abandons, 40),
    (empty, _abandons_and_writes, 200),
    (empty, _two_write_the_same, 1000),
    (with_an_old_one, _writes, 60),
    (with_an_old_one, _deletes, 6),
    (with_an_old_one, _replaces, 70),
    (with_an_old_one, _deletes_and_writes_it_again, 200),
    (with_leftovers, _replaces, 1200),
    (with_leftovers, _cleans_up, 50),
    (with_leftovers, _cleans_up_and_writes, 150),
]
"""The scenarios, with the least number of images of each."""


@pytest.mark.parametrize(("prepare", "story", "images"), STORIES)
def test_whatever_a_crash_leaves_is_no_snapshot_or_a_whole_one(
    prepare: Callable[[MemoryFileSystem], Told], story: Callable[[MemoryFileSystem, Told], None], images: int
) -> None:
    coverage = crash_everywhere(prepare, story, verify_image)
    assert coverage.images >= images
    assert coverage.sampled == 0


def test_whatever_a_crash_leaves_of_a_file_of_many_sectors_is_no_snapshot_or_a_whole_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With syncs in between."""
    monkeypatch.setattr(snapshot.writer, "FLUSH_BYTES", 200)
    coverage = crash_everywhere(empty, _writes, verify_image, sector_bytes=100)
    assert coverage.images >= 90
    assert coverage.sampled == 0


def _writes_without_syncing_the_file(files: MemoryFileSystem, told: Told) -> None:
    open_file = files.open

    def open_without_sync(path: str, *, create: bool = False) -> MemoryFile:
        file = open_file(path, create=create)
        file.fsync = lambda: None  # type: ignore[method-assign]
        return file

    files.open = open_without_sync  # type: ignore[method-assign]
    _writes(files, told)


def _writes_without_syncing_the_directory(files: MemoryFileSystem, told: Told) -> None:
    files.fsync_directory = lambda path: None  # type: ignore[method-assign]
    _writes(files, told)


@pytest.mark.parametrize(
    ("story", "error"),
    [
        (_writes_without_syncing_the_file, CorruptSnapshot),
        (_writes_without_syncing_the_directory, AssertionError),
    ],
)
def test_the_images_show_when_a_sync_is_left_out(
    story: Callable[[MemoryFileSystem, Told], None], error: type[Exception]
) -> None:
    with pytest.raises(error):
        crash_everywhere(empty, story, verify_image)
