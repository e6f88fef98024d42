"""The metadata as decisions read it: by the names and ids that requests use, in the latest state, committed or not.

Everything that turns a request into records (`kraftlog.controller.operations`) takes a `MetadataState` and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    TopicRecord,
)
from statemachine.replay.view import View
from statemachine.tables.cluster_tables import (
    ACLS,
    ACLS_BY_CONTENT,
    BROKERS,
    CLIENT_QUOTAS,
    CONFIGS,
    CONTROLLERS,
    FEATURES,
    PRODUCER_IDS,
    acl_content,
)
from statemachine.tables.remote_log_tables import REMOTE_PARTITION_DELETES, REMOTE_SEGMENTS
from statemachine.tables.table import Condition, Key, Page
from statemachine.tables.topic_tables import (
    PARTITIONS,
    PARTITIONS_BY_LEADER,
    PARTITIONS_WITH_ELR,
    TOPICS,
    TOPICS_BY_COLLISION,
    TOPICS_BY_NAME,
    holding,
)
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_MIN
from statemachine.words.names import collision_key, may_collide
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType


class MetadataState:
    """A `View` with the queries that decisions need. Records that it returns must not be changed."""

    def __init__(self, view: View) -> None:
        self._view = view

    # --- topics and partitions ----------------------------------------------------------------------------------------

    def topic_id(self, name: str) -> bytes | None:
        """The id of the topic of that name."""
        found = self._view.get(TOPICS_BY_NAME, (name,))
        return None if found is None else found.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic of that id."""
        found = self._view.get(TOPICS, (topic_id,))
        return None if found is None else found.name

    def topics(self) -> Iterator[TopicRecord]:
        """All topics by name."""
        return (topic for _, topic in self._view.find(TOPICS_BY_NAME))

    def colliding_topic(self, name: str) -> str | None:
        """Another topic whose name collides with `name`, if one exists."""
        if not may_collide(name):
            return None
        found = self._view.find(TOPICS_BY_COLLISION, (collision_key(name),), limit=2)
        return next((topic.name for _, topic in found if topic.name != name), None)

    def partition(self, topic_id: bytes, partition_id: int) -> PartitionRecord | None:
        """One partition. The id must have 16 bytes."""
        return self._view.get(PARTITIONS, (topic_id, partition_id))

    def partitions(self, topic_id: bytes) -> list[PartitionRecord]:
        """The partitions of a topic, by id."""
        return [partition for _, partition in self._view.find(PARTITIONS, (topic_id,))]

    def all_partitions(self, after: Key | None = None, limit: int = -1) -> list[PartitionRecord]:
        """Partitions by topic id and partition id, those above the key `after`: a page of all of them."""
        return [partition for _, partition in self._view.find(PARTITIONS, (), after, limit)]

    def partitions_led_by(self, broker_id: int, after: Key | None = None, limit: int = -1) -> list[PartitionRecord]:
        """Partitions that a broker leads (-1: no leader), by topic id and partition id, those above the key `after`."""
        key = None if after is None else (broker_id, *after)
        return [partition for _, partition in self._view.find(PARTITIONS_BY_LEADER, (broker_id,), key, limit)]

    def partitions_with_elr(
        self, topic_id: bytes | None = None, after: Key | None = None, limit: int = -1
    ) -> list[PartitionRecord]:
        """Partitions with replicas that may lead though not in sync, or led last (KIP-966), of one topic or of all.

        By topic id and partition id, those above the key `after`.
        """
        prefix = () if topic_id is None else (topic_id,)
        return [partition for _, partition in self._view.find(PARTITIONS_WITH_ELR, prefix, after, limit)]

    def leads_any(self, broker_id: int) -> bool:
        """Whether a broker leads a partition."""
        return bool(self.partitions_led_by(broker_id, limit=1))

    def partitions_on(self, broker_id: int, after: Key | None, limit: int) -> Page[PartitionRecord]:
        """A page of the partitions of which a broker has a replica: of those above the key `after`, at most `limit`.

        A departure searches all partitions, some milliseconds a page, so that partitions need not keep
        rows for their brokers.
        """
        return self._view.scan(PARTITIONS, holding(broker_id), after, limit)

    def partitions_where(
        self, condition: Condition[PartitionRecord], after: Key | None, limit: int
    ) -> Page[PartitionRecord]:
        """A page of the partitions that meet a condition, as `partitions_on`."""
        return self._view.scan(PARTITIONS, condition, after, limit)

    # --- brokers and controllers --------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> RegisterBrokerRecord | None:
        """The registration of a broker."""
        return self._view.get(BROKERS, (broker_id,))

    def brokers(self) -> dict[int, RegisterBrokerRecord]:
        """All registrations by broker id, ascending."""
        return {broker.broker_id: broker for _, broker in self._view.find(BROKERS)}

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, and neither fenced nor shutting down."""
        broker = self.broker(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def controllers(self) -> dict[int, RegisterControllerRecord]:
        """All registered controllers by id."""
        return {controller.controller_id: controller for _, controller in self._view.find(CONTROLLERS)}

    # --- configs, features, quotas, access control --------------------------------------------------------------------

    def configs(self, resource_type: ResourceType, resource_name: str) -> dict[str, str]:
        """The configs that are set for a resource."""
        found = self._view.find(CONFIGS, (resource_type.value, resource_name))
        return {config.name: config.value for _, config in found}

    def brokers_with_own(self, name: str) -> list[str]:
        """The names of the brokers, registered or not, that have a value of their own of a config."""
        found = (config for _, config in self._view.find(CONFIGS, (ResourceType.BROKER.value,)))
        return [
            config.resource_name for config in found if config.name == name and config.resource_name != CLUSTER_DEFAULT
        ]

    def topic_config(self, topic_name: str, name: str, default: str) -> str:
        """A topic's config: its own, or the cluster's default for it, or else `default`."""
        for resource_type, resource_name in ((ResourceType.TOPIC, topic_name), (ResourceType.BROKER, CLUSTER_DEFAULT)):
            config = self._view.get(CONFIGS, (resource_type.value, resource_name, name))
            if config is not None:
                return config.value
        return default

    def features(self) -> dict[str, int]:
        """The finalized level of each feature that is on."""
        return {feature.name: feature.level for _, feature in self._view.find(FEATURES)}

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version; a log without a record of it has the oldest."""
        found = self._view.get(FEATURES, (METADATA_VERSION,))
        return METADATA_VERSION_MIN if found is None else found.level

    def client_quotas(self, entity_key: str) -> dict[str, float]:
        """The quotas of one entity, as `cluster_tables.quota_entity_key` names it."""
        return {quota.key: quota.value for _, quota in self._view.find(CLIENT_QUOTAS, (entity_key,))}

    def client_quota(self, entity_key: str, key: str) -> float | None:
        """One quota of one entity; None: it has none of that kind."""
        found = self._view.get(CLIENT_QUOTAS, (entity_key, key))
        return None if found is None else found.value

    def all_client_quotas(self) -> list[ClientQuotaRecord]:
        """All quotas."""
        return [quota for _, quota in self._view.find(CLIENT_QUOTAS)]

    def acl_with_id(self, entry_id: bytes) -> AccessControlEntryRecord | None:
        """One access control entry."""
        return self._view.get(ACLS, (entry_id,))

    def acl_like(self, entry: AccessControlEntryRecord) -> AccessControlEntryRecord | None:
        """An access control entry that differs from `entry` in its id at most."""
        found = self._view.find(ACLS_BY_CONTENT, acl_content(entry), limit=1)
        return next((like for _, like in found), None)

    def acls_by_content(self, prefix: Key, after: Key | None, limit: int) -> list[tuple[Key, AccessControlEntryRecord]]:
        """A page of the access control entries whose content begins with `prefix`, in order, above the key `after`."""
        return list(self._view.find(ACLS_BY_CONTENT, prefix, after, limit))

    def next_producer_id(self) -> int:
        """The first producer id that was not allocated."""
        found = self._view.get(PRODUCER_IDS, (1,))
        return 0 if found is None else found.next_producer_id

    # --- tiered storage -----------------------------------------------------------------------------------------------

    def remote_segment(
        self, topic_id: bytes, partition_id: int, segment_id: bytes
    ) -> RemoteLogSegmentMetadataRecord | None:
        """One remote segment."""
        return self._view.get(REMOTE_SEGMENTS, (topic_id, partition_id, segment_id))

    def remote_segments(
        self, topic_id: bytes, partition_id: int, limit: int = -1
    ) -> list[RemoteLogSegmentMetadataRecord]:
        """The remote segments of a partition, by id."""
        return [segment for _, segment in self._view.find(REMOTE_SEGMENTS, (topic_id, partition_id), limit=limit)]

    def has_remote_segments(self, topic_id: bytes) -> bool:
        """Whether a topic has remote segments."""
        return next(iter(self._view.find(REMOTE_SEGMENTS, (topic_id,), limit=1)), None) is not None

    def remote_partition_delete(self, topic_id: bytes, partition_id: int) -> RemotePartitionDeleteMetadataRecord | None:
        """The state of the deletion of a partition's remote data; None if it is not being deleted."""
        return self._view.get(REMOTE_PARTITION_DELETES, (topic_id, partition_id))
