"""The table of a broker's APIs: which class handles which. An API that is not in it is not offered.

ApiVersions, which tells of the others, is answered by `kraftlog.broker.dispatch`.
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
    """A handler's class, once it is made."""

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
"""Those that read and write records: the simulator's brokers have them, too."""

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
"""Those that administrate a cluster. Changes are the controller's; what is read is what this broker has applied."""

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
"""All of a broker's."""

Services = TypeVar("Services", bound=RecordServices)


def handlers(apis: Mapping[str, Callable[[Services], Handles]], services: Services) -> Mapping[str, Handler]:
    """The handlers of some APIs, by the same names."""
    return {name: api(services).handle for name, api in apis.items()}
