"""A shell's timer: it may fire early, because it is not moved at every step, and must not affect the replica then."""

from __future__ import annotations

from random import Random
from unittest.mock import create_autospec
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import NodeId
from raft.core.config import QuorumConfig
from raft.core.events import TimePassed
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.shell.observer import ShellObserver
from raft.shell.shell import Shell
from raft.shell.shell_host import Identity, ShellHost
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.log_start_policy import LogStartConfig
from snapshot.store import SnapshotStore
from tests.raft.by_hand import HandRuntime
from tests.raft.shell.voter_shell import Heard

VOTERS = VoterSet(
    Voter(ReplicaKey(NodeId(node_id), UUID(int=100 + node_id)), Endpoint(f"node-{node_id}", 9093)) for node_id in (1, 2)
)


def a_voter(runtime: HandRuntime, observer: ShellObserver) -> Shell:
    """One of two voters, without contact to the other."""
    files = MemoryFileSystem()
    files.make_directories("data")
    quorum_state = QuorumStateStore(files, "data")
    own = VOTERS.voters()[0]
    return Shell(
        identity=Identity(cluster_id="5L6g3nShT-eMCtK--X86sw", key=own.key, endpoint=own.endpoint, voters=VOTERS),
        config=QuorumConfig(),
        log=SegmentedLog.open(files, "data/log", config=LogConfig()),
        quorum_state=quorum_state,
        election_state=quorum_state.load(),
        snapshots=SnapshotStore(files, "data/snapshots"),
        log_start=LogStartConfig(),
        random=Random(1),
        runtime=runtime,
        host=create_autospec(ShellHost, instance=True),
        observer=observer,
    )


def test_a_timer_that_comes_early_is_set_anew_and_the_replica_hears_nothing() -> None:
    runtime, heard = HandRuntime(), Heard()
    shell = a_voter(runtime, heard)
    shell.start()
    runtime.run()
    deadline_ms = shell.replica.next_deadline_ms
    assert deadline_ms is not None
    heard.events.clear()
    early = next(timer for timer in runtime.timers if timer.callback == shell._timer._fired)
    runtime.timers.remove(early)
    runtime.time_ms = deadline_ms - 1
    early.callback()
    assert heard.events == []
    assert any(timer.callback == shell._timer._fired for timer in runtime.timers)
    runtime.advance(5)
    assert TimePassed() in heard.events
