"""The quorum state: a saved state is loaded, despite a crash or one damaged copy; with two the node does not start.

Rules that tests here are named after: RF-06, RF-95, RF-96.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.checksum import crc32c
from kraftbase.errors import FlushFailed, InvariantViolation, StorageError
from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId
from raft.core.election_state import ElectionState
from raft.core.types import ReplicaKey
from raft.storage.quorum_state import COPY, COPY_NAMES, MAGIC, QuorumStateStore, decode_copy, encode_copy
from tests.raft.storage.builders import flip, overwrite
from tests.raft.storage.crash_points import stop_everywhere

PATHS = [f"data/{name}" for name in COPY_NAMES]

node_ids = st.integers(0, 2**31 - 1).map(NodeId)
directory_ids = st.none() | st.integers(1, 2**128 - 1).map(lambda value: UUID(int=value))
states = st.builds(
    ElectionState,
    epoch=st.integers(0, 2**31 - 1).map(Epoch),
    leader_id=st.none() | node_ids,
    voted_key=st.none() | st.builds(ReplicaKey, node_ids, directory_ids),
)


def state(epoch: int) -> ElectionState:
    return ElectionState(epoch=Epoch(epoch), voted_key=ReplicaKey(NodeId(epoch % 3), UUID(int=epoch)))


def new_store(files: FileSystem) -> QuorumStateStore:
    files.make_directories("data")
    return QuorumStateStore(files, "data")


def load(files: FileSystem) -> ElectionState | None:
    return new_store(files).load()


def saved(*epochs: int) -> MemoryFileSystem:
    """A directory in which these states were saved, one after the other."""
    files = MemoryFileSystem()
    store = new_store(files)
    store.load()
    for epoch in epochs:
        store.save(state(epoch))
    return files


@given(states, st.integers(1, 2**63))
def test_rf95_rf97_a_copy_holds_epoch_leader_and_vote_together(saved_state: ElectionState, sequence: int) -> None:
    assert decode_copy(encode_copy(sequence, saved_state), "path") == (sequence, saved_state)


def test_nothing_is_loaded_where_nothing_was_saved(files: FileSystem) -> None:
    assert load(files) is None


def test_the_last_saved_state_is_loaded(files: FileSystem) -> None:
    store = new_store(files)
    store.load()
    for epoch in (1, 2, 7):
        store.save(state(epoch))
        assert load(files) == state(epoch)
    store.close()
    store = new_store(files)
    assert store.load() == state(7)
    store.save(state(8))
    assert store.load() == state(8)
    store.save(state(9))
    assert load(files) == state(9)


def test_saving_before_loading_is_a_violation(files: FileSystem) -> None:
    with pytest.raises(InvariantViolation):
        new_store(files).save(state(1))


def test_what_save_returned_for_survives_a_crash() -> None:
    files = saved(1, 2)
    files.crash()
    assert load(files) == state(2)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flip_in_any_byte_of_one_copy_loses_nothing_and_is_mended(path: str, mask: int) -> None:
    files = saved(1, 2)
    whole = read_whole(files, path)
    for position in range(COPY.size):
        flip(files, path, position, mask)
        assert load(files) == state(2)
        assert read_whole(files, path) == whole


@pytest.mark.parametrize("path", PATHS)
def test_one_copy_that_is_missing_or_cut_loses_nothing_and_is_mended(path: str) -> None:
    for size in (0, 1, COPY.size - 1, COPY.size + 1):
        files = saved(1, 2)
        files.open(path).truncate(size)
        assert load(files) == state(2)
    files = saved(1, 2, 5)
    files.remove(path)
    assert load(files) == state(5)
    files.crash()
    assert [decode_copy(read_whole(files, each), each) for each in PATHS] == [(3, state(5))] * 2


@pytest.mark.parametrize("path", PATHS)
def test_of_two_whole_copies_the_later_one_is_taken(path: str) -> None:
    files = saved(1, 2)
    overwrite(files, path, 0, encode_copy(3, state(7)))
    assert load(files) == state(7)
    assert [decode_copy(read_whole(files, each), each) for each in PATHS] == [(3, state(7))] * 2


def test_rf06_two_damaged_copies_refuse_the_start_and_stay_as_they_are() -> None:
    for position in range(COPY.size):
        files = saved(1, 2)
        for path in PATHS:
            flip(files, path, position)
        before = [read_whole(files, path) for path in PATHS]
        with pytest.raises(StorageError, match=r"quorum-state-0 is damaged and .*quorum-state-1 is damaged") as caught:
            load(files)
        assert "does not start" in str(caught.value)
        assert [read_whole(files, path) for path in PATHS] == before


def test_rf06_one_copy_damaged_and_the_other_missing_refuses_the_start() -> None:
    files = saved(1)
    files.remove(PATHS[0])
    flip(files, PATHS[1], 20)
    with pytest.raises(StorageError, match=r"quorum-state-0 is missing and .*quorum-state-1 is damaged"):
        load(files)


def test_a_store_that_could_not_load_does_not_save() -> None:
    files = saved(1)
    for path in PATHS:
        flip(files, path, 20)
    store = new_store(files)
    with pytest.raises(StorageError):
        store.load()
    with pytest.raises(InvariantViolation):
        store.save(state(1))


@pytest.mark.parametrize(("version", "flags"), [(2, 0), (0, 0), (1, 1)])
def test_rf96_an_unknown_version_is_refused_by_name(version: int, flags: int) -> None:
    files = saved(1)
    covered = COPY.pack(0, MAGIC, version, flags, 5, 5, -1, -1, bytes(16))[4:]
    overwrite(files, PATHS[0], 0, crc32c(covered).to_bytes(4, "big") + covered)
    with pytest.raises(StorageError, match=f"quorum-state-0 has version {version} and flags {flags:#x}"):
        load(files)


@pytest.mark.parametrize("fields", [(0, 1, 1, 1), (1, -1, 1, 1), (1, 1, -2, 1), (1, 1, 1, -2)])
def test_a_copy_that_makes_no_sense_is_damaged_though_its_crc_is_right(fields: tuple[int, ...]) -> None:
    covered = COPY.pack(0, MAGIC, 1, 0, *fields, bytes(16))[4:]
    assert decode_copy(crc32c(covered).to_bytes(4, "big") + covered, "path") is None


def test_a_state_that_could_not_be_loaded_is_not_saved() -> None:
    files = saved(1)
    store = new_store(files)
    store.load()
    for wrong in (
        ElectionState(epoch=Epoch(-1)),
        ElectionState(epoch=Epoch(1), leader_id=NodeId(-1)),
        ElectionState(epoch=Epoch(1), voted_key=ReplicaKey(NodeId(-1))),
    ):
        with pytest.raises(InvariantViolation):
            store.save(wrong)
    assert load(files) == state(1)


def test_a_vote_is_saved_on_a_full_disk() -> None:
    files = saved(1)
    store = new_store(files)
    store.load()
    files.space_limit = 0
    store.save(state(2))
    files.crash()
    assert load(files) == state(2)


@pytest.mark.parametrize("path", PATHS)
def test_a_failing_sync_ends_everything(path: str) -> None:
    files = saved(1)
    store = new_store(files)
    store.load()
    files.failing_syncs = {path}
    with pytest.raises(FlushFailed):
        store.save(state(2))
    files.crash()
    assert load(files) in (state(1), state(2))


@dataclass
class Told:
    """The last saved state, and the state that is being saved."""

    promised: ElectionState | None = None
    possible: list[ElectionState | None] = field(default_factory=lambda: [None])


def save_three_states(files: MemoryFileSystem, told: Told) -> None:
    store = new_store(files)
    store.load()
    for epoch in (1, 2, 3):
        told.possible = [told.promised, state(epoch)]
        store.save(state(epoch))
        told.promised = state(epoch)
        told.possible = [told.promised]


def save_after_mending(files: MemoryFileSystem, told: Told) -> None:
    store = new_store(files)
    told.possible = [state(1)]
    told.promised = store.load()
    told.possible = [state(1), state(2)]
    store.save(state(2))
    told.possible = [state(2)]


def verify(files: MemoryFileSystem, told: Told) -> None:
    """The loaded state was saved, or was being saved; and it can be loaded and saved again."""
    files.make_directories("data")
    found = load(files)
    assert found in told.possible
    files.crash()
    store = new_store(files)
    assert store.load() == found
    store.save(state(9))
    files.crash()
    assert load(files) == state(9)


def test_whatever_operation_a_crash_comes_before_no_promised_state_is_lost() -> None:
    assert stop_everywhere(lambda files: Told(), save_three_states, verify) >= 18


@pytest.mark.parametrize("damaged", PATHS)
def test_a_crash_while_a_copy_is_mended_loses_nothing(damaged: str) -> None:
    def prepare(files: MemoryFileSystem) -> Told:
        store = new_store(files)
        store.load()
        store.save(state(1))
        flip(files, damaged, 30)
        return Told()

    assert stop_everywhere(prepare, save_after_mending, verify) >= 9
