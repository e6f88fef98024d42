"""Who votes, as a node knows it when it starts (RF-84).

By the bootstrap checkpoint if the node has one: then voters are known by their directory ids. Else by the
configuration, by node ids alone: so it was before there were such checkpoints, and observers, who count nobody, may go
on so.

Who votes is not changed by anybody yet, but where a voter listens is, in the configuration. So the configuration says
where a voter is reached that it names, whatever the checkpoint says. Kafka ignores it altogether, because its voters
say themselves where they listen (RF-88).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from raft.core.voters import Voter, VoterSet
from raft.storage.directory import DataDirectory
from snapshot.bootstrap import read_bootstrap


class VotersSource(StrEnum):
    """Where a node has its voter set from."""

    BOOTSTRAP = "bootstrap checkpoint"
    CONFIGURATION = "configuration"


class StartingVoters(NamedTuple):
    """The voter set of a node that starts."""

    voters: VoterSet
    source: VotersSource


def starting_voters(directory: DataDirectory, configured: VoterSet) -> StartingVoters:
    """Who votes, for the node of `directory`, if its configuration says `configured`.

    Raises StorageError if its bootstrap checkpoint is damaged, or another cluster's.
    """
    found = read_bootstrap(directory.files, directory.snapshots_path, directory.identity.cluster_id)
    if found is None:
        return StartingVoters(configured, VotersSource.CONFIGURATION)
    named = {voter.key.node_id: voter.endpoint for voter in configured.voters()}
    voters = VoterSet(Voter(voter.key, named.get(voter.key.node_id, voter.endpoint)) for voter in found.voters())
    return StartingVoters(voters, VotersSource.BOOTSTRAP)
