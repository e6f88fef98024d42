"""What the checkers see of the snapshots and the quorum state on a disk."""

from __future__ import annotations

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId
from kraftlog.sim.quorum.observation.durable_state import DurableSnapshots, durable_election_state, snapshot_fault
from raft.core.election_state import ElectionState
from raft.core.types import ReplicaKey
from raft.storage.quorum_state import QuorumStateStore
from tests.kraftlog.sim.quorum.invariants.builders import at
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, open_store, snapshot_bytes


def test_the_durable_vote_is_the_one_that_was_synced() -> None:
    files = MemoryFileSystem()
    files.make_directories("node")
    store = QuorumStateStore(files, "node")
    store.load()
    assert durable_election_state(files, "node") is None
    voted = ElectionState(epoch=Epoch(3), voted_key=ReplicaKey(NodeId(2)))
    store.save(voted)
    assert durable_election_state(files, "node") == voted


def test_snapshots_are_seen_once_they_are_durable_and_new_once() -> None:
    files = MemoryFileSystem()
    seen = DurableSnapshots()
    seen.refresh(files, DIRECTORY)
    assert (seen.found, seen.new) == ({}, [])
    store = open_store(files)
    writer = store.create(at(5), HEADER_OF_TESTS)
    assert writer is not None
    seen.refresh(files, DIRECTORY)
    assert seen.found == {}
    writer.freeze()
    seen.refresh(files, DIRECTORY)
    assert (list(seen.found), seen.new) == ([at(5)], [at(5)])
    seen.refresh(files, DIRECTORY)
    assert seen.new == []
    files.damage(store.path_of(at(5)), 3, b"?")
    seen.refresh(files, DIRECTORY)
    assert seen.new == [at(5)]
    assert snapshot_fault(at(5), seen.found[at(5)]) is not None
    store.delete(at(5))
    seen.refresh(files, DIRECTORY)
    assert (seen.found, seen.new) == ({}, [])


def test_a_whole_snapshot_has_no_fault() -> None:
    assert snapshot_fault(at(5), snapshot_bytes(at(5))) is None
    assert snapshot_fault(at(6), snapshot_bytes(at(5))) is not None
