"""The source of a node's voter set when it starts (RF-84)."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import NodeId
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.shell.starting_voters import VotersSource, starting_voters
from raft.storage.directory import DataDirectory
from snapshot.bootstrap import write_bootstrap

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONFIGURED = VoterSet(Voter(ReplicaKey(NodeId(node_id)), Endpoint(f"new-{node_id}", 9093)) for node_id in (1, 2, 3))
KNOWN = VoterSet(
    Voter(ReplicaKey(NodeId(node_id), UUID(int=node_id)), Endpoint(f"old-{node_id}", 9093)) for node_id in (1, 2, 3)
)
KNOWN_AT_NEW_ADDRESSES = VoterSet(
    Voter(ReplicaKey(NodeId(node_id), UUID(int=node_id)), Endpoint(f"new-{node_id}", 9093)) for node_id in (1, 2, 3)
)


def directory_of(node_id: int) -> DataDirectory:
    files = MemoryFileSystem()
    DataDirectory.format(files, "data", cluster_id=CLUSTER_ID, node_id=NodeId(node_id), directory_id=UUID(int=node_id))
    return DataDirectory.open(files, "data")


def test_an_old_directory_goes_by_its_configuration() -> None:
    directory = directory_of(1)
    found = starting_voters(directory, CONFIGURED)
    assert found == (CONFIGURED, VotersSource.CONFIGURATION)
    assert not found.voters.has_directory_ids


def test_the_bootstrap_checkpoint_says_who_votes_and_the_configuration_where() -> None:
    directory = directory_of(1)
    write_bootstrap(directory.files, directory.snapshots_path, CLUSTER_ID, KNOWN)
    found = starting_voters(directory, CONFIGURED)
    assert found == (KNOWN_AT_NEW_ADDRESSES, VotersSource.BOOTSTRAP)
    assert found.voters.has_directory_ids


def test_a_voter_that_the_configuration_does_not_name_is_reached_where_the_checkpoint_says() -> None:
    directory = directory_of(1)
    write_bootstrap(directory.files, directory.snapshots_path, CLUSTER_ID, KNOWN)
    fewer = VoterSet(CONFIGURED.voters()[:2])
    voter = starting_voters(directory, fewer).voters.get(NodeId(3))
    assert voter == KNOWN.get(NodeId(3))


def test_a_checkpoint_of_another_cluster_is_refused() -> None:
    directory = directory_of(1)
    write_bootstrap(directory.files, directory.snapshots_path, "bx2cUjsKTo-aVwxNLoGz9g", KNOWN)
    with pytest.raises(StorageError, match="is of cluster"):
        starting_voters(directory, CONFIGURED)
