"""A state machine for a program outside the nodes, which follows the log with `raft.observe.observe`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from kraftbase.runtime import AsyncioRuntime, awaited
from raft.core.types import LeaderAndEpoch
from raft.listener import BatchReader, Listener, LoadSnapshotReader
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.run_writer import OnLoop
from statemachine.store.store import MetadataStore


class MachineListener(Listener):
    """A `MetadataMachine` as a `Listener`."""

    def __init__(self, machine: MetadataMachine) -> None:
        self._machine = machine

    @property
    def name(self) -> str:
        """The machine's."""
        return self._machine.name

    async def handle_commit(self, reader: BatchReader) -> None:
        """Apply the batches, then close the reader. Raises the error that prevents a record from being applied."""
        with reader:
            await awaited(partial(self._machine.handle_commit, reader.batches))

    async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
        """Replace the database by the snapshot, then close the reader. Raises the error that prevents this."""
        with reader:
            await awaited(partial(self._machine.handle_load_snapshot, reader.snapshot))

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Pass it on."""
        await awaited(partial(self._machine.handle_leader_change, leader_and_epoch))

    async def begin_shutdown(self) -> None:
        """Fail the waiters, and finish the worker's current step."""
        await awaited(self._machine.begin_shutdown)


@contextmanager
def machine_on_loop(store: MetadataStore, on_loop: OnLoop = OnLoop()) -> Iterator[MetadataMachine]:
    """Create a state machine over `store` on the running event loop, with a thread for runs larger than `on_loop`.

    Connect it to a node (`raft.client.RaftClient.register`) or, as a `MachineListener`, to `raft.observe.observe`.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="kraftlog-apply") as executor:
        yield MetadataMachine(store, AsyncioRuntime(executor), on_loop)
