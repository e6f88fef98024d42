"""The processes, links and disks of one cluster, on which faults act, with their true state and a journal.

Several faults may be active at once. Only one of them at a time starts, kills or stops the same node; all other
overlaps are intended.
"""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.chaos.chronicle import Chronicle
from kraftlog.chaos.disk import SmallDisk
from kraftlog.chaos.network import Network
from kraftlog.chaos.truth import Truth
from kraftlog.local.cluster import POLL_SECONDS, START_TIMEOUT_SECONDS, LocalCluster, NodeDied
from raft.storage.directory import METADATA_DATABASE_NAME

LEADER_TIMEOUT_SECONDS: Final = 3.0
WATCH_SECONDS: Final = 0.2
STARVED_SHARE: Final = 0.5
"""A process that waits for a processor for this share of the time is starved."""
STARVED_SECONDS: Final = 1.0
"""How long after that a process may still act late."""
ENDING_SECONDS: Final = 5.0
"""How long a process may take to end after its disk was full: the disk may have room again by then."""
LOG_TAIL_LINES: Final = 8


@dataclass(slots=True)
class Reading:
    """A read transaction of another process on a node's metadata database, from when to when, in the arena's time."""

    node_id: NodeId
    began: float
    ended: float = math.inf


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a node."""

    node_id: NodeId
    began: float
    """When, in the arena's time."""
    seconds: float
    """From the start of the process until it answered, without the time in which it was paused."""
    waited_seconds: float
    """How much of that time its main thread waited for a free processor: delays that the node did not cause."""


class Arena:
    """One cluster under faults."""

    def __init__(self, cluster: LocalCluster, network: Network, disks: Sequence[SmallDisk], journal: Path) -> None:
        """`disks` are the disks that can be filled. The journal is a new file."""
        self.cluster = cluster
        self.network = network
        self.disks = {disk.node_id: disk for disk in disks}
        """The disks that can be filled, by their nodes."""
        self.truth = Truth(frozenset(cluster.voter_ids), time.monotonic)
        self.chronicle = Chronicle(time.time)
        self.counts: Counter[str] = Counter()
        """Kills, pauses and so on, by name."""
        self.killed: Counter[NodeId] = Counter()
        """How often each node was killed."""
        self.deaths: list[str] = []
        """A message for each node that ended although no fault ended it."""
        self.starts: list[Start] = []
        """The starts of nodes that answered, and whose disk had room."""
        self.readings: list[Reading] = []
        """Every slow reader of a database that the harness started."""
        self._waited: dict[NodeId, float] = {}
        """How many seconds each process had waited for a processor at the last check."""
        self._starved: dict[NodeId, float] = {}
        """When each starved process last waited for a processor."""
        self._full_until: dict[NodeId, float] = {}
        """Until when the end of a node counts as an effect of its full disk."""
        self._paused_at: dict[NodeId, float] = {}
        self._paused_seconds: defaultdict[NodeId, float] = defaultdict(float)
        """How long each node's processes were paused in all."""
        self._began = time.monotonic()
        self._journal = journal
        self._locks: defaultdict[NodeId, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def elapsed_seconds(self) -> float:
        """The seconds since the start of the run."""
        return time.monotonic() - self._began

    def note(self, text: str) -> None:
        """Write one line to the journal."""
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{self.elapsed_seconds:9.3f} {text}\n")

    # --- processes ----------------------------------------------------------------------------------------------------

    async def kill(self, node_id: NodeId) -> bool:
        """SIGKILL a running or paused node; return whether it ran."""
        async with self._locks[node_id]:
            if not self.cluster.is_running(node_id):
                return False
            self._ended(node_id)
            self.chronicle.end(node_id)
            self.note(f"kill {node_id}")
            await self.cluster.kill(node_id)
            self.counts["kills"] += 1
            self.killed[node_id] += 1
            return True

    async def lose_database(self, node_id: NodeId) -> None:
        """Remove the metadata database of a node, unless another fault has started the node."""
        async with self._locks[node_id]:
            if self.cluster.is_running(node_id):
                return
            self.note(f"lose the database of {node_id}")
            for path in self.cluster.directory.data_path(node_id).glob(f"{METADATA_DATABASE_NAME}*"):
                path.unlink()
            self.counts["databases lost"] += 1

    async def terminate(self, node_id: NodeId) -> None:
        """SIGTERM a node: it resigns if it leads, and stops. SIGKILL it if it does not stop within 10 s."""
        async with self._locks[node_id]:
            if self.cluster.is_running(node_id):
                self._ended(node_id)
                self.chronicle.end(node_id)
                self.note(f"terminate {node_id}")
                self.cluster.send_signal(node_id, signal.SIGCONT)
                await self.cluster.stop([node_id])
                self.counts["graceful restarts"] += 1

    async def start(self, node_id: NodeId) -> None:
        """Start a node unless it runs, and wait until it answers. A node whose disk is full may fail to start.

        If this is cancelled while it waits, the process keeps running.
        """
        async with self._locks[node_id]:
            if self.cluster.is_running(node_id) and node_id in self.truth.running:
                return
            self.note(f"start {node_id}")
            began, was_full = self.elapsed_seconds, node_id in self.truth.full
            paused_before = self._paused_seconds[node_id]
            try:
                await self._start(node_id)
            except NodeDied as death:
                self._died(node_id, str(death))
                return
            except TimeoutError:
                self.deaths.append(f"node {node_id} was started and does not answer after {START_TIMEOUT_SECONDS:g} s")
                return
            self.truth.running.add(node_id)
            self._changed()
            paused = self._paused_seconds[node_id] - paused_before
            seconds = self.elapsed_seconds - began - paused
            waited = _waited_for_processor(self.cluster.pid(node_id))
            if not was_full:
                self.starts.append(Start(node_id, began, seconds, min(waited, seconds)))
            besides = f", and {paused:.2f} s in which it was paused" if paused else ""
            self.note(f"up {node_id} after {seconds:.2f} s, of which {waited:.2f} s it waited for a processor{besides}")

    async def _start(self, node_id: NodeId) -> None:
        if not self.cluster.is_running(node_id):
            self.chronicle.begin(node_id)
            try:
                await self.cluster.start([node_id])
                return
            except NodeDied:
                raise
            except ApiError as error:  # a connection broke while the node started; its process runs
                self.note(f"{node_id} does not answer yet: {error}")
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            while self.cluster.is_running(node_id):
                if await self.cluster.answers(node_id):
                    return
                await asyncio.sleep(POLL_SECONDS)
        last_lines = " / ".join(self._last_lines(node_id))
        raise NodeDied(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} ended while it came up: {last_lines}")

    def pause(self, node_id: NodeId) -> None:
        """SIGSTOP."""
        if self.cluster.is_running(node_id):
            self.truth.paused.add(node_id)
            self._paused_at[node_id] = self.elapsed_seconds
            self._changed()
            self.note(f"pause {node_id}")
            self.cluster.send_signal(node_id, signal.SIGSTOP)
            self.counts["pauses"] += 1

    def resume(self, node_id: NodeId) -> None:
        """SIGCONT."""
        if node_id in self.truth.paused:
            self.cluster.send_signal(node_id, signal.SIGCONT)
            self.note(f"resume {node_id}")
            self._paused_seconds[node_id] += self.elapsed_seconds - self._paused_at[node_id]
            self.truth.paused.discard(node_id)
            self._changed()

    @contextmanager
    def reading(self, node_id: NodeId) -> Iterator[None]:
        """Hold a read transaction on a node's metadata database within the block."""
        reading = Reading(node_id, self.elapsed_seconds)
        self.readings.append(reading)
        self.counts["slow readers"] += 1
        self.note(f"read {node_id}")
        try:
            yield
        finally:
            reading.ended = self.elapsed_seconds
            self.note(f"no longer read {node_id}")

    async def watch(self) -> None:
        """Detect nodes that end by themselves, and start them again, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._note_starved()
            for node_id in sorted(self.truth.running):
                if not self.cluster.is_running(node_id) and not self._locks[node_id].locked():
                    self._ended(node_id)
                    self._died(node_id, f"node {node_id} ended: {' / '.join(self._last_lines(node_id))}")
                    await self.start(node_id)

    async def leader(self) -> NodeId | None:
        """Return the leader, or None if it is not found within a few seconds."""
        with suppress(ApiError):
            return await self.cluster.wait_for_leader(LEADER_TIMEOUT_SECONDS)
        return None

    # --- links and disks ----------------------------------------------------------------------------------------------

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """Cut a link: from now on nothing that `source` sends reaches `target`."""
        self.truth.cuts.add((source, target))
        self._changed()
        await self.network.cut(source, target)

    async def mend(self, source: NodeId, target: NodeId) -> None:
        """Undo `cut`."""
        await self.network.mend(source, target)
        self.truth.cuts.discard((source, target))
        self._changed()

    async def slow(self, node_id: NodeId) -> None:
        """Make all links of a node slow."""
        self.truth.slow.add(node_id)
        self._changed()
        self.note(f"slow {node_id}")
        self.counts["slow links"] += 1
        await self.network.slow(node_id)

    async def restore(self, node_id: NodeId) -> None:
        """Undo `slow`."""
        await self.network.restore(node_id)
        if node_id in self.truth.slow:
            self.note(f"no longer slow: {node_id}")
            self.truth.slow.discard(node_id)
            self._changed()

    async def fill_disk(self, node_id: NodeId) -> None:
        """Fill a node's disk, which must be one of `disks`."""
        self.truth.full.add(node_id)
        self._changed()
        self.note(f"fill the disk of {node_id}")
        await asyncio.to_thread(self.disks[node_id].fill)
        self.counts["disks filled"] += 1

    async def free_disk(self, node_id: NodeId) -> None:
        """Undo `fill_disk`."""
        if node_id in self.truth.full:
            self._full_until[node_id] = self.elapsed_seconds + ENDING_SECONDS
        await asyncio.to_thread(self.disks[node_id].free)
        self.note(f"free the disk of {node_id}")
        self.truth.full.discard(node_id)
        self._changed()

    async def heal(self) -> None:
        """Repair everything and start every node. Raises ApiError if a node does not answer."""
        self.note("heal")
        for source, target in sorted(self.truth.cuts):
            await self.mend(source, target)
        for node_id in self.cluster.node_ids:
            await self.restore(node_id)
            self.resume(node_id)
        for node_id in self.disks:
            await self.free_disk(node_id)
        await asyncio.gather(*(self.start(node_id) for node_id in self.cluster.node_ids))

    # --- how ----------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Record a change of the truth, made or about to be made."""
        self.truth.changed()
        self.chronicle.note_ailing(self.truth.ailing(self.cluster.node_ids) | self._starved.keys())

    def _note_starved(self) -> None:
        """Record which processes wait for a processor: the machine causes their delays."""
        before, self._waited = self._waited, {}
        for node_id in sorted(self.truth.running):
            if self.cluster.is_running(node_id):
                self.chronicle.see(node_id)
                waited = self._waited[node_id] = _waited_for_processor(self.cluster.pid(node_id))
                if waited - before.get(node_id, waited) >= STARVED_SHARE * WATCH_SECONDS:
                    self._starved[node_id] = self.elapsed_seconds
        for node_id, at in list(self._starved.items()):
            if self.elapsed_seconds - at >= STARVED_SECONDS:
                del self._starved[node_id]
        self._changed()

    def _ended(self, node_id: NodeId) -> None:
        self.truth.running.discard(node_id)
        self.truth.paused.discard(node_id)
        self._changed()

    def _died(self, node_id: NodeId, story: str) -> None:
        self.chronicle.end(node_id, by_itself=True)
        self.note(f"died {node_id}: {story}")
        if node_id in self.truth.full or self.elapsed_seconds < self._full_until.get(node_id, 0.0):
            self.counts["ended on a full disk"] += 1
        else:
            self.deaths.append(f"at {self.elapsed_seconds:.1f} s node {node_id} ended without a fault: {story}")

    def _last_lines(self, node_id: NodeId) -> list[str]:
        text = self.cluster.log_path(node_id).read_text(encoding="utf-8", errors="replace")
        return text.splitlines()[-LOG_TAIL_LINES:]


def _waited_for_processor(pid: int) -> float:
    """Return how long a process's main thread has waited for a processor; 0 if the kernel does not count it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
