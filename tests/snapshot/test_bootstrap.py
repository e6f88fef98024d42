"""The bootstrap checkpoint: the voters, by directory ids; and snapshots that repeat it (RF-84, SN-08)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import StorageError
from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import NodeId
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.storage.batch import encode_body
from snapshot.bootstrap import read_bootstrap, write_bootstrap
from snapshot.names import BOOTSTRAP_NAME
from snapshot.writer import SnapshotWriter
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, an_id, open_store, write_snapshot

CLUSTER_ID = HEADER_OF_TESTS.cluster_id
PATH = join(DIRECTORY, BOOTSTRAP_NAME)


def voters(*directory_ids: int) -> VoterSet:
    """Voters 1, 2, ... in those directories."""
    return VoterSet(
        Voter(ReplicaKey(NodeId(node_id), UUID(int=directory_id)), Endpoint(f"host-{node_id}", 9093))
        for node_id, directory_id in enumerate(directory_ids, 1)
    )


def content(files: MemoryFileSystem, path: str) -> bytes:
    file = files.open_to_read(path)
    return file.read_at(0, file.size())


def test_what_is_written_is_read() -> None:
    files = MemoryFileSystem()
    write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7, 8, 9))
    assert read_bootstrap(files, DIRECTORY, CLUSTER_ID) == voters(7, 8, 9)


def test_there_is_none_where_none_was_written() -> None:
    files = MemoryFileSystem()
    open_store(files)
    assert read_bootstrap(files, DIRECTORY) is None


def test_its_bytes_are_the_same_on_every_node() -> None:
    first, second = MemoryFileSystem(), MemoryFileSystem()
    for files in (first, second):
        write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7, 8, 9))
    assert content(first, PATH) == content(second, PATH)


def test_a_second_one_takes_the_place_of_the_first() -> None:
    files = MemoryFileSystem()
    write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7, 8, 9))
    write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7, 8, 10))
    assert read_bootstrap(files, DIRECTORY) == voters(7, 8, 10)


def test_every_damaged_byte_is_refused() -> None:
    files = MemoryFileSystem()
    write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7, 8, 9))
    whole = content(files, PATH)
    for position in range(len(whole)):
        damaged = MemoryFileSystem()
        damaged.make_directories(DIRECTORY)
        data = bytearray(whole)
        data[position] ^= 0x10
        damaged.open(PATH, create=True).write_at(0, bytes(data))
        with pytest.raises(StorageError, match="another voter"):
            read_bootstrap(damaged, DIRECTORY)


def test_one_of_another_cluster_is_refused() -> None:
    files = MemoryFileSystem()
    write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7))
    with pytest.raises(StorageError, match="is of cluster"):
        read_bootstrap(files, DIRECTORY, "bx2cUjsKTo-aVwxNLoGz9g")


def test_it_is_no_snapshot() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    write_bootstrap(files, DIRECTORY, CLUSTER_ID, voters(7, 8, 9))
    assert store.ids() == ()
    store.delete_all()
    store.clean_up()
    assert read_bootstrap(files, DIRECTORY) == voters(7, 8, 9)


def test_a_snapshot_that_names_voters_is_read_and_received_and_its_records_are_the_same() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    with SnapshotWriter(files, DIRECTORY, an_id(), HEADER_OF_TESTS, "c0ffee", voters(7, 8, 9)) as writer:
        writer.append(encode_body([b"abc", b"de"]), 2)
        writer.freeze()
    with store.open(an_id()) as reader:
        assert reader.voters() == voters(7, 8, 9)
        assert reader.verify().record_count == 2
    other = open_store(MemoryFileSystem())
    incoming = other.receive(an_id(), CLUSTER_ID)
    assert incoming is not None
    with incoming:
        for byte in content(files, writer.path):
            incoming.append(bytes([byte]))
        incoming.freeze()
    with other.open(an_id()) as reader:
        assert reader.voters() == voters(7, 8, 9)


def test_the_snapshots_of_a_node_follow_from_the_log_alone() -> None:
    known, unknown = MemoryFileSystem(), MemoryFileSystem()
    write_bootstrap(known, DIRECTORY, CLUSTER_ID, voters(7, 8, 9))
    paths = [write_snapshot(open_store(files), an_id()) for files in (known, unknown)]
    assert content(known, paths[0]) == content(unknown, paths[1])
