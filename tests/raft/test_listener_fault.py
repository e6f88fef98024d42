"""A listener that raises ends its node's process, with its name, unless the program has another handler (LI-08)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raft.delivery import FAULT_LETTERS_MAX, FAULTS_KEPT_MAX
from raft.listener import BatchReader, Listener
from raft.node import EXIT_CANNOT_GO_ON
from tests.paths import ROOT
from tests.raft.snapshot_delivery.world import settled
from tests.raft.test_delivery import World

EMBEDDED = """
import asyncio, tempfile
from pathlib import Path
from kraftbase.endpoint import Endpoint
from raft.client import RaftClient
from raft.core.types import NodeId, ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.host import hosted_node
from raft.listener import Listener
from raft.node import log_listener_fault
from raft.storage.directory import DataDirectory
from kraftbase.uuids import random_cluster_id
from kraftbase.files.posix import PosixFileSystem
from tests.raft.nodes import QUICK, Recorder, free_port

class Accounts(Listener):
    async def handle_commit(self, reader):
        raise KeyError("no such account")

async def main(path, **options):
    files, at = PosixFileSystem(), Endpoint("127.0.0.1", free_port())
    voters = VoterSet([Voter(ReplicaKey(NodeId(1)), at)])
    DataDirectory.format(files, path, cluster_id=random_cluster_id(), node_id=NodeId(1))
    with DataDirectory.open(files, path) as directory:
        async with hosted_node(directory, endpoint=at, voters=voters, config=QUICK, **options) as node:
            client, recorder = RaftClient(node), Recorder()
            client.register(recorder)
            await recorder.has_leader(NodeId(1))
            client.register(Accounts())
            await client.append([b"x"])
            print("acknowledged", flush=True)
            await recorder.has_records(1)
            while not node.delivery.faults:
                await asyncio.sleep(0)
            await client.append([b"y"])
            print("goes on", node.delivery.faults, flush=True)

with tempfile.TemporaryDirectory() as base:
    asyncio.run(main(base + "/node-1", {options}))
"""

SERVED = """
import asyncio, tempfile
from pathlib import Path
from kraftbase.endpoint import Endpoint
from kraftlog.config.config import NodeConfig
from kraftlog.process.server import serve
from raft.core.types import NodeId
from raft.listener import Listener
from raft.storage.directory import DataDirectory
from kraftbase.uuids import random_cluster_id
from kraftbase.files.posix import PosixFileSystem
from tests.raft.nodes import QUICK, free_port

class Accounts(Listener):
    async def handle_commit(self, reader):
        raise KeyError("no such account")

with tempfile.TemporaryDirectory() as base:
    path, at = Path(base) / "node-1", Endpoint("127.0.0.1", free_port())
    DataDirectory.format(PosixFileSystem(), str(path), cluster_id=random_cluster_id(), node_id=NodeId(1))
    config = NodeConfig(node_id=NodeId(1), directory=path, listener=at, voters=((NodeId(1), at),), quorum=QUICK)
    asyncio.run(serve(config, extra_listeners=[Accounts()]))
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )


@pytest.mark.parametrize("program", [EMBEDDED.replace(", {options}", ""), SERVED])
def test_by_default_it_ends_the_process_with_its_name(program: str) -> None:
    ended = run(program)
    said = ended.stdout + ended.stderr
    assert ended.returncode == EXIT_CANNOT_GO_ON, said
    assert "goes on" not in said
    assert "listener Accounts raised KeyError('no such account')" in said
    assert "on_listener_fault" in said


def test_a_program_may_choose_to_go_on() -> None:
    ended = run(EMBEDDED.replace("{options}", "on_listener_fault=log_listener_fault"))
    assert ended.returncode == 0, ended
    assert "goes on {'Accounts': \"KeyError: 'no such account'\"}" in ended.stdout


class Failing(Listener):
    """Raises at once, under a name of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def handle_commit(self, reader: BatchReader) -> None:
        raise ValueError("x" * 10_000)


async def test_what_is_remembered_of_faults_has_a_bound() -> None:
    world = World()
    world.append(b"a")
    world.commit()
    for number in range(FAULTS_KEPT_MAX + 5):
        assert world.delivery.register(Failing(f"listener {number}"), None)
        await settled()
    assert len(world.faults) == FAULTS_KEPT_MAX + 5
    assert len(world.delivery.faults) == FAULTS_KEPT_MAX
    assert {len(fault) for fault in world.delivery.faults.values()} == {FAULT_LETTERS_MAX}
