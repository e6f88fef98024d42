"""The voter set of a node that starts (RF-84).

It is in the bootstrap checkpoint, if the node has one: then voters are known by their directory ids. Else it is in the
configuration, by node ids alone. This was the rule before such checkpoints existed, and still is for observers, which
count no votes.

The set of voters does not change yet, but the address of a voter may, in the configuration. So for a voter in the
configuration, the address in the configuration is used, not the one in the checkpoint. Kafka ignores the configuration
then, because its voters send their own addresses (RF-88).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from raft.core.voters import Voter, VoterSet
from raft.storage.directory import DataDirectory
from snapshot.bootstrap import read_bootstrap


class VotersSource(StrEnum):
    """The source of a node's voter set."""

    BOOTSTRAP = "bootstrap checkpoint"
    CONFIGURATION = "configuration"


class StartingVoters(NamedTuple):
    """The voter set of a node that starts."""

    voters: VoterSet
    source: VotersSource


def starting_voters(directory: DataDirectory, configured: VoterSet) -> StartingVoters:
    """Return the voter set of the node of `directory`; `configured` is that of its configuration.

    Raises StorageError if its bootstrap checkpoint is damaged, or another cluster's.
    """
    found = read_bootstrap(directory.files, directory.snapshots_path, directory.identity.cluster_id)
    if found is None:
        return StartingVoters(configured, VotersSource.CONFIGURATION)
    named = {voter.key.node_id: voter.endpoint for voter in configured.voters()}
    voters = VoterSet(Voter(voter.key, named.get(voter.key.node_id, voter.endpoint)) for voter in found.voters())
    return StartingVoters(voters, VotersSource.BOOTSTRAP)
