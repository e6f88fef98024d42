"""The facts about brokers, topics and features that partition changes depend on, read from one state, for
`kraftlog.controller.rules.partition_change`, which decides. Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftlog.controller.rules.partition_change import Conditions, Election, Target, change_partition, directory_of
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.config_definitions import MIN_ISR, MIN_ISR_DEFAULT
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS
from statemachine.words.record_versions import METADATA_VERSION_ELR, in_version

_UNKNOWN_DIRECTORIES: Final = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


@dataclass(frozen=True, slots=True)
class _Topic:
    """The facts about a topic that a change depends on."""

    min_isr: int
    allows_unclean: bool


class PartitionChanges:
    """Makes changes from one state. Reads each broker and topic once: use it for one decision only."""

    def __init__(self, state: MetadataState, *, departing: Collection[int] = ()) -> None:
        """`departing` brokers cannot lead, although they are still active in `state`."""
        self._departing = frozenset(departing)
        self._state = state
        self._brokers: dict[int, RegisterBrokerRecord] | None = None
        self._topics: dict[bytes, _Topic] = {}
        self._metadata_version = state.metadata_version
        self._elr_enabled = (
            self._metadata_version >= METADATA_VERSION_ELR and state.features().get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1
        )

    @property
    def brokers(self) -> Mapping[int, RegisterBrokerRecord]:
        """All registrations by broker id."""
        if self._brokers is None:
            self._brokers = self._state.brokers()
        return self._brokers

    def allows_unclean(self, topic_id: bytes) -> bool:
        """Whether the topic's unclean.leader.election.enable is true."""
        return self._topic(topic_id).allows_unclean

    def election(self, topic_id: bytes) -> Election:
        """The election that a partition of that topic gets when its leader may have to change."""
        return Election.UNCLEAN if self.allows_unclean(topic_id) else Election.ONLINE

    def can_lead(self, broker_id: int, directory: bytes) -> bool:
        """Whether a broker may lead a partition that it has in `directory` (CT-50)."""
        broker = self.brokers.get(broker_id)
        return self._is_active(broker_id) and broker is not None and is_online(broker, directory)

    def _is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        if broker is None or broker_id in self._departing:
            return False
        return not (broker.fenced or broker.in_controlled_shutdown)

    def change(self, partition: PartitionRecord, target: Target) -> MetadataRecord | None:
        """The record that brings `partition` to `target`; None if nothing changes."""

        def can_lead(broker_id: int) -> bool:
            if target.leaders is not None and broker_id not in target.leaders:
                return False
            directory = target.directories.get(broker_id) or directory_of(partition, broker_id)
            return self.can_lead(broker_id, directory)

        def can_lead_damaged(broker_id: int) -> bool:
            directory = target.directories.get(broker_id) or directory_of(partition, broker_id)
            return directory == DAMAGED_DIRECTORY and self._is_active(broker_id)

        def is_older(broker_id: int) -> bool:
            broker = self.brokers.get(broker_id)
            return broker is not None and is_in_older_directory(partition, broker_id, broker.older_log_dirs)

        conditions = Conditions(
            can_lead=can_lead,
            can_lead_damaged=can_lead_damaged,
            is_older=is_older,
            metadata_version=self._metadata_version,
            min_isr=self._topic(partition.topic_id).min_isr,
            elr_enabled=self._elr_enabled,
            directory_of_new=self._directory_of_new,
        )
        change = change_partition(partition, target, conditions)
        return change and in_version(MetadataRecord(partition_change=change), self._metadata_version)

    def _topic(self, topic_id: bytes) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            name = self._state.topic_name(topic_id) or ""
            min_isr = self._state.topic_config(name, MIN_ISR, MIN_ISR_DEFAULT)
            unclean = self._state.topic_config(name, "unclean.leader.election.enable", "false")
            topic = self._topics[topic_id] = _Topic(int(min_isr), unclean.lower() == "true")
        return topic

    def _directory_of_new(self, broker_id: int) -> bytes:
        broker = self.brokers.get(broker_id)
        return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def is_in_older_directory(partition: PartitionRecord, broker_id: int, older_log_dirs: Collection[bytes]) -> bool:
    """Whether a broker's replica is in one of these log directories, or may be, as its directory is not known."""
    if not older_log_dirs or broker_id not in partition.replicas:
        return False
    directory = directory_of(partition, broker_id)
    # Consider a start without the directory, which makes the replica a damaged one, and then a start with an older
    # copy.
    return directory in older_log_dirs or directory in (*_UNKNOWN_DIRECTORIES, LOST_DIRECTORY, DAMAGED_DIRECTORY)


def is_online(broker: RegisterBrokerRecord, directory: bytes) -> bool:
    """Whether a log directory of a broker is believed to work. A broker that registered before metadata.version 17 has
    not reported its directories.
    """
    is_known_offline = directory in (LOST_DIRECTORY, DAMAGED_DIRECTORY)
    if directory in _UNKNOWN_DIRECTORIES or (not broker.log_dirs and not is_known_offline):
        return True
    return directory in broker.log_dirs
