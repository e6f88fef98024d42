"""The APIs whose messages are in `kraftlog/kafka/messages/`: for each key, the tables of its request and its response.

A module of messages is imported at the first use of its API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from kraftlog.kafka.notation import Message, Versions

API_VERSIONS: Final = 18

NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    API_VERSIONS: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    35: "DescribeLogDirs",
    37: "CreatePartitions",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    67: "AllocateProducerIds",
    70: "ControllerRegistration",
    73: "AssignReplicasToDirs",
    75: "DescribeTopicPartitions",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
}
"""Kafka's names of the APIs by their keys."""

OWN_NAMES: Final = {10000: "DescribeReplicas", 10001: "DescribeMetrics"}
"""kraftlog's own APIs, far above Kafka's keys. Kafka's clients do not see them (docs/rules/apis.md)."""

OWN_SOFTWARE: Final = "kraftlog"
"""A client that gives this name in ApiVersions (KIP-511) is offered the APIs of `OWN_NAMES`, too."""

FREE_ELEMENTS: Final = 1_000
BYTES_PER_ELEMENT: Final = 4
"""A request may have `FREE_ELEMENTS` array elements, and one more for every 4 of its bytes, so that its value takes at
most 30 times the memory of its bytes. Real elements are larger: a partition's number takes 4 bytes, a topic's name
more."""

ELEMENTS_MAX: Final = 100_000
"""The bound for a request of any size. A Fetch of all partitions of the largest cluster fits, and one broker leads only
a part of them."""

CHANGES_MAX: Final = 50_000
"""The bound for a request that changes the metadata: the controller appends at most 10,000 records at once (CT-12)."""

CHANGING: Final = frozenset(
    {
        "AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments", "CreateAcls", "CreatePartitions",
        "CreateTopics", "DeleteAcls", "DeleteTopics", "ElectLeaders", "IncrementalAlterConfigs", "UpdateFeatures",
    }
)  # fmt: skip
"""The APIs whose requests change the metadata and have arrays."""

CHANGING_LOGS: Final = frozenset({"DeleteRecords", "Produce"})
"""The APIs whose requests change logs of the broker, one element after the other."""

_ALL_NAMES: Final = {**NAMES, **OWN_NAMES}


@dataclass(frozen=True, slots=True)
class Api:
    """An API: its messages, and the versions of their headers."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> Versions:
        """The versions in Kafka 4.3; for one of kraftlog's own APIs, all of its versions."""
        return self.request.VERSIONS

    def request_header_version(self, version: int) -> int:
        """2 if the version is flexible (KIP-482), else 1; Kafka 4 has no 0."""
        return 2 if version in self.request.FLEXIBLE else 1

    def response_header_version(self, version: int) -> int:
        """1 if the version is flexible, else 0; always 0 for ApiVersions, whose client may know no other (KIP-511)."""
        return 1 if version in self.request.FLEXIBLE and self.key != API_VERSIONS else 0


@cache
def api_of(key: int) -> Api:
    """The API of a key. Raises KeyError if it is none of `NAMES` or `OWN_NAMES`."""
    name = _ALL_NAMES[key]
    module = import_module(f"kraftlog.kafka.messages.{module_name(name)}")
    return Api(key, name, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))


def module_name(name: str) -> str:
    """The module of an API: `list_offsets` for ListOffsets."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("_")


def elements_max(name: str, size_bytes: int) -> int:
    """Return how many array elements a request of this API and size may have. One with more ends its connection."""
    return min(CHANGES_MAX if name in CHANGING else ELEMENTS_MAX, FREE_ELEMENTS + size_bytes // BYTES_PER_ELEMENT)


def all_apis() -> Iterator[Api]:
    """All of Kafka's APIs, by key."""
    return map(api_of, NAMES)


def own_apis() -> Iterator[Api]:
    """The APIs that only kraftlog has."""
    return map(api_of, OWN_NAMES)
