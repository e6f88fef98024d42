"""The fault atlas records whose durable data faults have destroyed, so that they never destroy the last good copy.

A machine is harmed from the time its disk is corrupted or wiped until it has recovered everything that was committed
then. A voter that has not joined the quorum yet cannot replace another one, so it counts as harmed. Faults may harm a
minority of the voters at a time. In a run with `may_lose_quorum` they may harm more: the cluster must then stop rather
than give wrong answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftbase.files.files import join
from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.disk import DIRECTORY
from kraftlog.sim.quorum.node.hardware import Hardware
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.storage.directory import LOG_NAME
from raft.storage.new_directory import NEW_DIRECTORY_NAME

NEW_DIRECTORY: Final = join(join(DIRECTORY, LOG_NAME), NEW_DIRECTORY_NAME)


class _Harm(NamedTuple):
    """The state when durable data of a machine was destroyed."""

    committed_end_offset: Offset
    durable_end_offset: Offset
    life: int


class FaultAtlas:
    """The atlas of one cluster."""

    def __init__(self, cluster: Observed, machines: Mapping[int, Machine], *, may_lose_quorum: bool) -> None:
        self._cluster = cluster
        self._machines = machines
        self._may_lose_quorum = may_lose_quorum
        self._harmed: dict[int, _Harm] = {}
        self._lost: set[int] = set()
        """Voters whose disk was wiped. They are no longer voters."""

    def is_harmed(self, machine: Hardware) -> bool:
        """Whether a fault destroyed durable data of the machine that it has not recovered."""
        return machine.node_id in self._harmed or machine.node_id in self._lost or _may_lose_log(machine)

    def may_harm(self, machine: Hardware) -> bool:
        """Whether a fault may destroy durable data of the machine now."""
        cluster = self._cluster
        if machine.node_id in self._harmed or _may_lose_log(machine):
            return False  # one at a time: damage to a log and to the data that reveals it is a double fault
        if not machine.view.is_voter or self._may_lose_quorum:
            return True
        harmed = {node_id for node_id in self._harmed if node_id in cluster.voter_ids} | self._lost
        harmed |= {node_id for node_id in cluster.voter_ids if _may_lose_log(self._machines[node_id])}
        new = {node_id for node_id in cluster.voter_ids if has_not_joined(self._machines[node_id])}
        # While all voters are new, any majority may form a quorum. Consider voters 1, 2 and 3, of which 1 and 3 have
        # formed one and 3 has its leader's first record: without 1, 3 gets no vote, as 2 is new and 3 has a record.
        if len(new) < len(cluster.voter_ids):
            harmed |= new
        return len(harmed | {machine.node_id}) <= len(cluster.voter_ids) - cluster.majority

    def may_lose_database(self, machine: Machine) -> bool:
        """Whether the machine's database may be lost. It may not while only the database shows damage of the log.

        From its start on a process knows that its log recovers, and so does the disk.
        """
        return machine.process is not None or machine.node_id not in self._harmed

    def harm(self, machine: Hardware) -> None:
        """Record that durable data of the machine was destroyed."""
        view = machine.view
        self._harmed[machine.node_id] = _Harm(
            self._cluster.committed_end_offset, view.durable_log.end_offset, view.life
        )
        machine.view.has_lost_data = True

    def lose(self, machine: Hardware) -> None:
        """Record that the machine's disk was wiped. The quorum loses a voter's disk for good."""
        self.harm(machine)
        if machine.view.is_voter:
            self._lost.add(machine.node_id)
            machine.view.is_voter = False

    def note_start(self, machine: Hardware, *, is_recovering: bool) -> None:
        """Handle a start.

        The process may have discarded its log, because no intact snapshot holds what is below its start.
        """
        if is_recovering and _may_lose_log(machine) and machine.node_id not in self._harmed:
            self.harm(machine)

    def after_step(self, step: Step) -> None:
        """Record when a harmed machine has recovered everything."""
        node = step.node
        if node.node_id not in self._harmed or node.replica is None or node.replica.is_recovering:
            return
        if self._machines[node.node_id].disk.files.failing_reads:
            return
        harm, end_offset = self._harmed[node.node_id], node.durable_log.end_offset
        # A process that was started since then has detected the damage. Uncommitted records need not come back.
        is_mended = end_offset >= harm.durable_end_offset or node.life > harm.life
        if is_mended and end_offset >= harm.committed_end_offset:
            del self._harmed[node.node_id]
            node.has_lost_data = False


def _may_lose_log(machine: Hardware) -> bool:
    """Whether the next process may find that no intact snapshot holds what is below the log's start."""
    return machine.view.has_diverged or machine.view.has_damaged_snapshots


def has_not_joined(machine: Hardware) -> bool:
    """Whether the machine's voter is new: it does not count, and votes only for a voter without records."""
    return machine.disk.files.exists(NEW_DIRECTORY)
