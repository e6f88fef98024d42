"""Every rule by which the controller refuses something, and the error that it names.

Each pair is provoked through gRPC by a test of this package; test_catalogue.py fails if one is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftbase.errors import ErrorCode as E

Rules = frozenset[tuple[str, E]]

ENGINE: Final[Rules] = frozenset(
    {
        ("CT-12: too many records", E.RECORD_LIST_TOO_LARGE),
        ("CT-13: not active", E.NOT_CONTROLLER),
        ("CT-15: leadership lost while it waits", E.NOT_CONTROLLER),
        ("CT-19: time is up", E.REQUEST_TIMED_OUT),
        ("CT-19: time was up before", E.REQUEST_TIMED_OUT),
        ("CT-20: CreateTopics", E.THROTTLING_QUOTA_EXCEEDED),
        ("CT-20: CreatePartitions", E.THROTTLING_QUOTA_EXCEEDED),
        ("CT-20: DeleteTopics", E.THROTTLING_QUOTA_EXCEEDED),
    }
)
"""Of the engine."""

BROKERS: Final[Rules] = frozenset(
    {
        ("RegisterBroker: cluster id", E.INCONSISTENT_CLUSTER_ID),
        ("RegisterBroker: live session of another incarnation", E.DUPLICATE_BROKER_REGISTRATION),
        ("RegisterBroker: log directories empty", E.INVALID_REGISTRATION),
        ("RegisterBroker: log directories reserved", E.INVALID_REGISTRATION),
        ("RegisterBroker: log directories repeated", E.INVALID_REGISTRATION),
        ("RegisterBroker: log directories of another", E.INVALID_REGISTRATION),
        ("RegisterBroker: finalized levels", E.UNSUPPORTED_VERSION),
        ("RegisterBroker: range of metadata.version required", E.UNSUPPORTED_VERSION),
        ("BrokerHeartbeat: epoch", E.STALE_BROKER_EPOCH),
        ("BrokerHeartbeat: unknown broker", E.BROKER_ID_NOT_REGISTERED),
        ("UnregisterBroker: unknown broker", E.BROKER_ID_NOT_REGISTERED),
        ("RegisterController: metadata.version", E.UNSUPPORTED_VERSION),
        ("CT-32: all brokers are fenced", E.INVALID_REPLICATION_FACTOR),
    }
)
"""Of brokers and controllers: CT-33, CT-34, CT-36, CT-37."""

TOPICS: Final[Rules] = frozenset(
    {
        ("CreateTopics: exists", E.TOPIC_ALREADY_EXISTS),
        ("CreateTopics: name empty", E.INVALID_TOPIC_EXCEPTION),
        ("CreateTopics: name of dots", E.INVALID_TOPIC_EXCEPTION),
        ("CreateTopics: name too long", E.INVALID_TOPIC_EXCEPTION),
        ("CreateTopics: name illegal", E.INVALID_TOPIC_EXCEPTION),
        ("CreateTopics: name collides", E.INVALID_TOPIC_EXCEPTION),
        ("CreateTopics: replication factor", E.INVALID_REPLICATION_FACTOR),
        ("CreateTopics: more replicas than brokers", E.INVALID_REPLICATION_FACTOR),
        ("CreateTopics: partitions", E.INVALID_PARTITIONS),
        ("CreateTopics: assignment not from 0 without a gap", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment to an unknown broker", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment to a broker twice", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment empty", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment of different sizes", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment to fenced brokers", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment and counts", E.INVALID_REQUEST),
        ("CreateTopics: config bad", E.INVALID_CONFIG),
        ("CreateTopics: config null", E.INVALID_CONFIG),
        ("CreateTopics: policy", E.POLICY_VIOLATION),
        ("CreateTopics: repeated", E.INVALID_REQUEST),
        ("DeleteTopics: neither name nor id, or both", E.INVALID_REQUEST),
        ("DeleteTopics: unknown name", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("DeleteTopics: unknown id", E.UNKNOWN_TOPIC_ID),
        ("DeleteTopics: disabled", E.TOPIC_DELETION_DISABLED),
        ("CreatePartitions: count", E.INVALID_PARTITIONS),
        ("CreatePartitions: assignment length", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreatePartitions: assignment replication factor", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreatePartitions: unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("ElectLeaders: needed", E.ELECTION_NOT_NEEDED),
        ("ElectLeaders: preferred leader", E.PREFERRED_LEADER_NOT_AVAILABLE),
        ("ElectLeaders: any replica", E.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ("ElectLeaders: unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("ElectLeaders: unknown partition", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("AlterPartitionReassignments: nothing to cancel", E.NO_REASSIGNMENT_IN_PROGRESS),
        ("AlterPartitionReassignments: unknown broker", E.INVALID_REPLICA_ASSIGNMENT),
        ("AlterPartitionReassignments: broker twice", E.INVALID_REPLICA_ASSIGNMENT),
        ("AlterPartitionReassignments: empty", E.INVALID_REPLICA_ASSIGNMENT),
        ("AlterPartitionReassignments: unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("AlterPartitionReassignments: unknown partition", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("AssignReplicasToDirs: metadata.version", E.UNSUPPORTED_VERSION),
        ("AllocateProducerIds: epoch", E.STALE_BROKER_EPOCH),
    }
)
"""Of topics and partitions: CT-21 to CT-28."""

PARTITIONS: Final[Rules] = frozenset(
    {
        ("CT-42 step 1: broker epoch", E.STALE_BROKER_EPOCH),
        ("CT-42 step 2: topic", E.UNKNOWN_TOPIC_ID),
        ("CT-42 step 2: partition", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("CT-42 step 3: leader epoch", E.NOT_CONTROLLER),
        ("CT-42 step 3: partition epoch", E.NOT_CONTROLLER),
        ("CT-42 step 4: leader epoch", E.FENCED_LEADER_EPOCH),
        ("CT-42 step 5: sender", E.INVALID_REQUEST),
        ("CT-42 step 6: partition epoch", E.INVALID_UPDATE_VERSION),
        ("CT-42 step 7: ISR", E.INVALID_REQUEST),
        ("CT-42 step 8: leader not in ISR", E.INVALID_REQUEST),
        ("CT-42 step 9: recovery", E.INVALID_REQUEST),
        ("CT-42 step 10: unregistered", E.INELIGIBLE_REPLICA),
        ("CT-42 step 10: fenced", E.INELIGIBLE_REPLICA),
        ("CT-42 step 10: shutting down", E.INELIGIBLE_REPLICA),
        ("CT-42 step 10: broker epoch", E.INELIGIBLE_REPLICA),
        ("CT-41: reassignment completed, leader moved", E.NEW_LEADER_ELECTED),
        ("CT-54: nobody in sync", E.INVALID_REPLICA_ASSIGNMENT),
    }
)
"""Of AlterPartition, and of changes to partitions."""

CONFIGS: Final[Rules] = frozenset(
    {
        ("CT-60: APPEND to no list", E.INVALID_CONFIG),
        ("CT-60: SUBTRACT from no list", E.INVALID_CONFIG),
        ("CT-60: unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("CT-61: unknown feature", E.INVALID_UPDATE_VERSION),
        ("CT-61: out of range", E.INVALID_UPDATE_VERSION),
        ("CT-61: downgrade without the flag", E.INVALID_UPDATE_VERSION),
        ("CT-61: loses metadata", E.INVALID_UPDATE_VERSION),
        ("CT-61: not supported by a broker", E.INVALID_UPDATE_VERSION),
        ("CT-61: not supported by a controller", E.INVALID_UPDATE_VERSION),
        ("CT-61: unsafe downgrade", E.INVALID_UPDATE_VERSION),
        ("CT-61: below 3.3-IV0", E.INVALID_UPDATE_VERSION),
        ("CT-63: deletion of too many", E.RECORD_LIST_TOO_LARGE),
        ("CT-63: quota of no entity", E.INVALID_REQUEST),
        ("CT-63: quota of an unknown type", E.INVALID_REQUEST),
        ("CT-63: quota of an empty name", E.INVALID_REQUEST),
        ("CT-63: quota of two of a type", E.INVALID_REQUEST),
        ("CT-63: quota of an ip and others", E.INVALID_REQUEST),
        ("CT-63: quota of no address", E.INVALID_REQUEST),
        ("CT-63: quota of an unknown key", E.INVALID_REQUEST),
        ("CT-63: quota of a bad value", E.INVALID_REQUEST),
    }
)
"""Of configs, features, quotas and access control."""

TIERING: Final[Rules] = frozenset(
    {
        ("TS-56: added in another state than COPY_STARTED", E.INVALID_REQUEST),
        ("TS-57: illegal transition of a segment", E.INVALID_REQUEST),
        ("TS-58: illegal transition of a partition's deletion", E.INVALID_REQUEST),
        ("TS-59: update of an unknown segment", E.RESOURCE_NOT_FOUND),
    }
)
"""Of remote log metadata. Where Kafka logs and drops, this controller answers."""

BEYOND: Final[Rules] = frozenset(
    {
        ("any operation: says nothing", E.INVALID_REQUEST),
        ("any operation: timeout", E.INVALID_REQUEST),
        ("CT-20: client id too long", E.INVALID_REQUEST),
        ("RegisterBroker: identity and rack", E.INVALID_REQUEST),
        ("RegisterBroker: listeners and features", E.INVALID_REGISTRATION),
        ("BrokerHeartbeat: what it says", E.INVALID_REQUEST),
        ("FenceBroker: unknown broker", E.BROKER_ID_NOT_REGISTERED),
        ("RegisterController: finalized levels", E.UNSUPPORTED_VERSION),
        ("RegisterController: identity", E.INVALID_REQUEST),
        ("RegisterController: listeners and features", E.INVALID_REGISTRATION),
        ("CreateTopics: name of the metadata", E.INVALID_REQUEST),
        ("CreateTopics: assignment of a partition twice", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreateTopics: assignment to more brokers than there are", E.INVALID_REPLICA_ASSIGNMENT),
        ("DeleteTopics: repeated", E.INVALID_REQUEST),
        ("CreatePartitions: assignment brokers", E.INVALID_REPLICA_ASSIGNMENT),
        ("CreatePartitions: repeated", E.INVALID_REQUEST),
        ("AlterPartition: repeated", E.INVALID_REQUEST),
        ("ElectLeaders: kind", E.INVALID_REQUEST),
        ("ElectLeaders: repeated", E.INVALID_REQUEST),
        ("AlterPartitionReassignments: repeated", E.INVALID_REQUEST),
        ("AssignReplicasToDirs: epoch", E.STALE_BROKER_EPOCH),
        ("AssignReplicasToDirs: topic", E.UNKNOWN_TOPIC_ID),
        ("AssignReplicasToDirs: partition", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("AssignReplicasToDirs: no replica", E.NOT_LEADER_OR_FOLLOWER),
        ("AssignReplicasToDirs: directory", E.INVALID_REQUEST),
        ("AssignReplicasToDirs: repeated", E.INVALID_REQUEST),
        ("CT-60: bad value", E.INVALID_CONFIG),
        ("CT-60: unknown config", E.INVALID_CONFIG),
        ("CT-60: configs that exclude each other", E.INVALID_CONFIG),
        ("CT-60: no word about remote data", E.INVALID_CONFIG),
        ("CT-56: a broker's own min.insync.replicas", E.INVALID_CONFIG),
        ("CT-60: topic without a name", E.INVALID_REQUEST),
        ("CT-60: topic name illegal", E.INVALID_TOPIC_EXCEPTION),
        ("CT-60: unknown broker", E.BROKER_ID_NOT_REGISTERED),
        ("CT-60: no broker", E.INVALID_REQUEST),
        ("CT-60: resource type", E.INVALID_REQUEST),
        ("CT-60: kind", E.INVALID_REQUEST),
        ("CT-60: repeated", E.INVALID_REQUEST),
        ("CT-61: no downgrade", E.INVALID_UPDATE_VERSION),
        ("CT-61: unknown type", E.INVALID_UPDATE_VERSION),
        ("CT-61: needs another level", E.INVALID_UPDATE_VERSION),
        ("CT-61: all or none", E.INVALID_UPDATE_VERSION),
        ("CT-61: repeated", E.INVALID_REQUEST),
        ("CT-63: quota of a key twice", E.INVALID_REQUEST),
        ("CT-63: entry with a bad resource type", E.INVALID_REQUEST),
        ("CT-63: entry with a bad resource name", E.INVALID_REQUEST),
        ("CT-63: entry with a bad pattern type", E.INVALID_REQUEST),
        ("CT-63: entry with a bad principal", E.INVALID_REQUEST),
        ("CT-63: entry with a bad host", E.INVALID_REQUEST),
        ("CT-63: entry with a bad operation", E.INVALID_REQUEST),
        ("CT-63: entry with a bad permission type", E.INVALID_REQUEST),
        ("CT-63: bad filter", E.INVALID_REQUEST),
        ("CT-63: too many filters", E.INVALID_REQUEST),
        ("TS-56: ids", E.INVALID_REQUEST),
        ("TS-56: offsets", E.INVALID_REQUEST),
        ("TS-56: size", E.INVALID_REQUEST),
        ("TS-56: leader epochs", E.INVALID_REQUEST),
        ("TS-56: custom metadata", E.INVALID_REQUEST),
        ("TS-56: another segment under the id of one", E.INVALID_REQUEST),
        ("TS-56: unknown topic", E.UNKNOWN_TOPIC_ID),
        ("TS-56: unknown partition", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("TS-58: deletion of a partition without remote data", E.RESOURCE_NOT_FOUND),
        ("TS-71: deletion of a partition in use", E.INVALID_REQUEST),
    }
)
"""What these rules leave open, and a client may still send."""

CATALOGUE: Final = (ENGINE, BROKERS, TOPICS, PARTITIONS, CONFIGS, TIERING, BEYOND)

NO_ANSWERS: Final[Mapping[str, str]] = {
    "CT-02, CT-18: what cannot be replayed": "a fault of the replica, which ends the process",
    "the active controller loads a snapshot": (
        "its log begins no later than its own snapshot does, which its state machine is past"
    ),
    "CT-14: a bootstrap left half-done by an old version": "found when a controller becomes active, by no operation",
    "CT-16: transaction markers out of place": "no operation asks for markers; a log that has them is refused",
    "CT-53, CT-58: epochs, and changes that are none": "what is written, not what is refused",
    "CT-62: Fetch 18": "a version that brokers and observers do not use before its level",
    "CT-64: the loader": "it publishes what is committed",
    "CT-34: STALE_BROKER_EPOCH of an unknown broker": "Kafka's answer; here it is BROKER_ID_NOT_REGISTERED",
    "CT-42 up to version 1: UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED, FENCED_LEADER_EPOCH of CT-41": (
        "topics are named by id, as from version 2 on"
    ),
    "CT-60: legacy AlterConfigs": "there is only the incremental one",
    "a RemoteStorageException, a missing transaction index": "the remote storage manager's, on a broker",
    "the topic of remote log metadata: timeouts, ReplicaNotAvailable, wrong partition count": (
        "of a topic of metadata, in whose place there is the log"
    ),
}
"""Rules that are no answers of the controller, and why."""
