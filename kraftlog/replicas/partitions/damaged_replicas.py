"""What a broker does about a replica here whose log is damaged or missing, so that others serve in its place (DB-88).

Kafka takes the whole log directory offline for one bad segment. Here the others in it go on. The controller is told, of
this replica alone, that its directory is lost (KIP-858): so it leaves the ISR, and another one leads.

It is copied anew from its leader only by a broker that has found the damage at its start. Consider a follower that is
caught up, and whose Fetch is on its way to the leader. Its log turns out to be damaged, and it begins anew at offset 0.
Then the Fetch arrives, and the leader has the follower enter the ISR, with nothing. A Fetch from before the start has
an old broker epoch, and counts for nothing (KIP-903).
"""

from __future__ import annotations

import enum

from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftpb.v1.metadata_pb2 import PartitionRecord


class Step(enum.Enum):
    """What to do next; when the metadata has changed, it may be another one."""

    WAIT = enum.auto()
    """Nothing can be done now."""
    LEAVE = enum.auto()
    """Tell the controller that the replica is in no directory any more: it leaves the ISR and leads no more."""
    STAND_DOWN = enum.auto()
    """No other replica leads, or none has its records for sure: tell the controller that this one is damaged. It is
    elected uncleanly only, and after all others, so an operator, or the topic's config, decides; if its files are put
    back, it is as it was."""
    ACCEPT_LOSS = enum.auto()
    """It was elected uncleanly: go on with what the log has."""
    GIVE_UP_RECORDS = enum.auto()
    """Tell the controller that it is in a directory again, and so begins anew: it is not eligible to lead any more."""
    COPY_ANEW = enum.auto()
    """Set the files aside, begin with an empty log, and follow."""


def next_step(record: PartitionRecord, broker_id: int, directory: bytes, *, was_damaged_at_start: bool) -> Step:
    """What a broker does about its damaged replica of a partition, which the metadata has in that directory."""
    may_lead_instead = {*record.isr, *record.eligible_leader_replicas} - {broker_id}
    is_eligible = broker_id in record.eligible_leader_replicas
    is_lost = directory == LOST_DIRECTORY
    if directory == DAMAGED_DIRECTORY and record.leader == broker_id:
        return Step.ACCEPT_LOSS  # the controller elects it uncleanly only
    if not may_lead_instead or record.leader == NO_LEADER:
        return Step.WAIT if directory == DAMAGED_DIRECTORY else Step.STAND_DOWN
    if broker_id in record.isr or (is_eligible and not is_lost):
        return Step.WAIT if is_lost else Step.LEAVE
    if record.leader == broker_id:
        return Step.WAIT
    if is_eligible:
        return Step.GIVE_UP_RECORDS
    return Step.COPY_ANEW if was_damaged_at_start else Step.WAIT
