"""The parts of a machine that survive its processes: a disk, clocks, a database file, an address."""

from __future__ import annotations

from random import Random
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.files.files import join
from kraftbase.types import NodeId
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.clock import Clock
from kraftlog.sim.engine.virtual.disk import DIRECTORY, Disk
from kraftlog.sim.quorum.node.database import Database
from kraftlog.sim.quorum.observation.node_view import NodeView
from raft.core.types import ReplicaKey
from raft.core.voters import VoterSet
from raft.storage.directory import SNAPSHOTS_NAME, DataDirectory
from snapshot.bootstrap import write_bootstrap

PORT = 9090


class Hardware:
    """The part of a machine that processes use. It outlives them."""

    def __init__(
        self, node_id: int, *, is_voter: bool, cluster_id: str, fetch_version: int, random: Random, marks: Marks
    ) -> None:
        self.node_id = node_id
        self.fetch_version = fetch_version
        """The highest version of Fetch that the machine's processes use."""
        self.possible_endpoints = (endpoint_of(node_id), Endpoint(f"node-{node_id}-moved", PORT))
        self.endpoint = self.possible_endpoints[0]
        """The only address at which the machine's process listens."""
        self.cluster_id = cluster_id
        self._random = random
        self.disk = Disk(Random(random.random()))
        self.database = Database(cluster_id, Random(random.random()), marks)
        self.clock = Clock(offset_ms=random.randrange(1_000_000))
        self.key = ReplicaKey(NodeId(node_id), UUID(int=random.getrandbits(128) | 1))
        self.view = NodeView(node_id, self.key, is_voter)
        self._format()

    @property
    def refuses_while_down(self) -> bool:
        """Whether connections are refused while no process runs.

        If not, the whole machine is down and no answer comes.
        """
        return (self.node_id + self.view.life) % 2 == 0

    def new_random(self) -> Random:
        """Return a random number generator for one process."""
        return Random(self._random.random())

    def new_token(self) -> str:
        """Return a random part for the name of a temporary file."""
        return f"{self._random.getrandbits(64):016x}"

    def replace_disk(self, *, is_replacement: bool = False) -> None:
        """Replace the disk with an empty one with a new directory id."""
        self.disk.wipe()
        self.database.lose()
        self.key = ReplicaKey(NodeId(self.node_id), UUID(int=self._random.getrandbits(128) | 1))
        self.view.key = self.key
        self._format(is_replacement=is_replacement)

    def write_voters(self, voters: VoterSet) -> None:
        """Write the voter set, with directory ids."""
        directory = join(DIRECTORY, SNAPSHOTS_NAME)
        write_bootstrap(self.disk.files, directory, self.cluster_id, voters, token=self.new_token())

    def move(self) -> None:
        """Let the next process listen at the other of the machine's two addresses."""
        self.endpoint = self.possible_endpoints[self.endpoint == self.possible_endpoints[0]]

    def _format(self, *, is_replacement: bool = False) -> None:
        DataDirectory.format(
            self.disk.files,
            DIRECTORY,
            cluster_id=self.cluster_id,
            node_id=self.key.node_id,
            directory_id=self.key.directory_id,
            is_replacement=is_replacement,
        )


def endpoint_of(node_id: int) -> Endpoint:
    """Return the address at which a node listens."""
    return Endpoint(f"node-{node_id}", PORT)
