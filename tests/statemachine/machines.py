"""State machines on the test's event loop, and waiting for the results of their calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.types import Offset
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.run_writer import OnLoop
from statemachine.store.store import MetadataStore


def worker_runtime() -> AsyncioRuntime:
    """The loop that runs, with a thread of its own for long work; it ends with the executor, which nothing keeps."""
    return AsyncioRuntime(ThreadPoolExecutor(1, thread_name_prefix="kraftlog-apply"))


def machine_on(store: MetadataStore, on_loop: OnLoop = OnLoop()) -> MetadataMachine:
    """A state machine over `store`."""
    return MetadataMachine(store, worker_runtime(), on_loop)


async def wait_applied(machine: MetadataMachine, end_offset: int, timeout_ms: float = 0) -> None:
    """Wait as a read does. Raises ApiError."""
    await awaited(partial(machine.wait_applied, Offset(end_offset), timeout_ms))


async def deliver(machine: MetadataMachine, *batches: CommittedBatch) -> None:
    """Hand over batches as a node does, and wait until they are applied. Raises the error that must stop the node."""
    await awaited(partial(machine.handle_commit, tuple(batch._batch for batch in batches)))


async def load(machine: MetadataMachine, snapshot: SnapshotReader) -> None:
    """Hand over a snapshot as a node does, and wait until it is loaded. Raises the error that must stop the node."""
    with snapshot:
        await awaited(partial(machine.handle_load_snapshot, snapshot))
