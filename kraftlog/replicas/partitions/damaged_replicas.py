"""Decides what a broker does about its replica with a damaged or missing log, so that others can take over (DB-88).

Kafka takes the whole log directory offline for one bad segment. Here the other logs in it stay online. The broker
reports to the controller, for this replica alone, that its directory is lost (KIP-858): the replica leaves the ISR, and
another one leads.

A broker copies the log again from its leader only if it found the damage at its startup. Consider a follower that is
caught up, and whose Fetch is on its way to the leader. Its log turns out to be damaged, and it starts over at offset 0.
Then the Fetch arrives, and the leader lets the follower join the ISR, although its log is empty. A Fetch from before a
restart is harmless: it has an old broker epoch, and is ignored (KIP-903).
"""

from __future__ import annotations

import enum

from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftpb.v1.metadata_pb2 import PartitionRecord


class Step(enum.Enum):
    """The next step for a damaged replica; it is decided again after each change of the metadata."""

    WAIT = enum.auto()
    """Wait for a change of the metadata."""
    LEAVE = enum.auto()
    """Report the replica's directory as lost to the controller: the replica leaves the ISR and stops leading."""
    STAND_DOWN = enum.auto()
    """Report the replica as damaged to the controller: no other replica leads, or none surely has its records. The
    replica is elected only uncleanly, and after all others, so an operator or the topic's config decides. If its files
    are restored, the replica is sound again."""
    ACCEPT_LOSS = enum.auto()
    """The replica was elected uncleanly: continue with the log's remaining records."""
    GIVE_UP_RECORDS = enum.auto()
    """Report to the controller that the replica is in a directory again: it starts empty, and is no longer eligible to
    lead."""
    COPY_ANEW = enum.auto()
    """Set the files aside, create an empty log, and follow the leader."""


def next_step(record: PartitionRecord, broker_id: int, directory: bytes, *, was_damaged_at_start: bool) -> Step:
    """Return the next step for this broker's damaged replica; `directory` is the replica's in the metadata."""
    may_lead_instead = {*record.isr, *record.eligible_leader_replicas} - {broker_id}
    is_eligible = broker_id in record.eligible_leader_replicas
    is_lost = directory == LOST_DIRECTORY
    if directory == DAMAGED_DIRECTORY and record.leader == broker_id:
        return Step.ACCEPT_LOSS  # the controller elects it only uncleanly
    if not may_lead_instead or record.leader == NO_LEADER:
        return Step.WAIT if directory == DAMAGED_DIRECTORY else Step.STAND_DOWN
    if broker_id in record.isr or (is_eligible and not is_lost):
        return Step.WAIT if is_lost else Step.LEAVE
    if record.leader == broker_id:
        return Step.WAIT
    if is_eligible:
        return Step.GIVE_UP_RECORDS
    return Step.COPY_ANEW if was_damaged_at_start else Step.WAIT
