"""The table of a broker's APIs and the classes that handle them. An API that is not in it is not offered.

ApiVersions, which lists the others, is handled by `kraftlog.broker.dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from kraftlog.broker.apis.acls import CreateAclsApi, DeleteAclsApi, DescribeAclsApi
from kraftlog.broker.apis.client_quotas import AlterClientQuotasApi, DescribeClientQuotasApi
from kraftlog.broker.apis.cluster import DescribeClusterApi, DescribeTopicPartitionsApi
from kraftlog.broker.apis.cluster_changes import UnregisterBrokerApi, UpdateFeaturesApi
from kraftlog.broker.apis.config_changes import AlterConfigsApi, IncrementalAlterConfigsApi
from kraftlog.broker.apis.configs import DescribeConfigsApi
from kraftlog.broker.apis.coordinators import FindCoordinatorApi, OffsetFetchApi
from kraftlog.broker.apis.delete_records import DeleteRecordsApi
from kraftlog.broker.apis.elections import ElectLeadersApi
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.broker.apis.init_producer_id import InitProducerIdApi
from kraftlog.broker.apis.logs import DescribeLogDirsApi
from kraftlog.broker.apis.metadata import MetadataApi
from kraftlog.broker.apis.metrics import DescribeMetricsApi
from kraftlog.broker.apis.offsets import ListOffsetsApi, OffsetForLeaderEpochApi
from kraftlog.broker.apis.produce import ProduceApi
from kraftlog.broker.apis.quorum import DescribeQuorumApi
from kraftlog.broker.apis.reassignments import AlterPartitionReassignmentsApi, ListPartitionReassignmentsApi
from kraftlog.broker.apis.replicas import DescribeReplicasApi
from kraftlog.broker.apis.scram_credentials import DescribeUserScramCredentialsApi
from kraftlog.broker.apis.services import BrokerServices, RecordServices
from kraftlog.broker.apis.topic_changes import CreatePartitionsApi, CreateTopicsApi, DeleteTopicsApi
from kraftlog.network.requests import ClientRequest, Handler, Reply


class Handles(Protocol):
    """An instance of a handler's class."""

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Handle a request (`kraftlog.network.requests.Handler`)."""
        ...


RECORD_APIS: Final[Mapping[str, Callable[[RecordServices], Handles]]] = {
    "Produce": ProduceApi,
    "Fetch": FetchApi,
    "ListOffsets": ListOffsetsApi,
    "DeleteRecords": DeleteRecordsApi,
    "OffsetForLeaderEpoch": OffsetForLeaderEpochApi,
}
"""The APIs that read and write records; simulated brokers have them, too."""

ADMINISTRATION: Final[Mapping[str, Callable[[BrokerServices], Handles]]] = {
    "CreateTopics": CreateTopicsApi,
    "DeleteTopics": DeleteTopicsApi,
    "CreatePartitions": CreatePartitionsApi,
    "DescribeConfigs": DescribeConfigsApi,
    "IncrementalAlterConfigs": IncrementalAlterConfigsApi,
    "AlterConfigs": AlterConfigsApi,
    "ElectLeaders": ElectLeadersApi,
    "AlterPartitionReassignments": AlterPartitionReassignmentsApi,
    "ListPartitionReassignments": ListPartitionReassignmentsApi,
    "DescribeClientQuotas": DescribeClientQuotasApi,
    "AlterClientQuotas": AlterClientQuotasApi,
    "DescribeAcls": DescribeAclsApi,
    "CreateAcls": CreateAclsApi,
    "DeleteAcls": DeleteAclsApi,
    "UpdateFeatures": UpdateFeaturesApi,
    "UnregisterBroker": UnregisterBrokerApi,
    "DescribeQuorum": DescribeQuorumApi,
}
"""The APIs that administrate a cluster: the controller makes changes, and this broker's applied metadata is read."""

APIS: Final[Mapping[str, Callable[[BrokerServices], Handles]]] = {
    **RECORD_APIS,
    **ADMINISTRATION,
    "Metadata": MetadataApi,
    "FindCoordinator": FindCoordinatorApi,
    "OffsetFetch": OffsetFetchApi,
    "InitProducerId": InitProducerIdApi,
    "DescribeLogDirs": DescribeLogDirsApi,
    "DescribeCluster": DescribeClusterApi,
    "DescribeTopicPartitions": DescribeTopicPartitionsApi,
    "DescribeUserScramCredentials": DescribeUserScramCredentialsApi,
    "DescribeReplicas": DescribeReplicasApi,
    "DescribeMetrics": DescribeMetricsApi,
}
"""All APIs of a broker."""

Services = TypeVar("Services", bound=RecordServices)


def handlers(apis: Mapping[str, Callable[[Services], Handles]], services: Services) -> Mapping[str, Handler]:
    """Make the handlers of some APIs; return them by the same names."""
    return {name: api(services).handle for name, api in apis.items()}
