"""The handlers of the requests that administrate a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from kraftbase.runtime import Runtime
from kraftlog.broker.apis.acls import CreateAclsApi, DeleteAclsApi, DescribeAclsApi
from kraftlog.broker.apis.client_quotas import AlterClientQuotasApi, DescribeClientQuotasApi
from kraftlog.broker.apis.cluster_changes import UnregisterBrokerApi, UpdateFeaturesApi
from kraftlog.broker.apis.config_changes import AlterConfigsApi, ConfigChanges, IncrementalAlterConfigsApi
from kraftlog.broker.apis.configs import DescribeConfigsApi
from kraftlog.broker.apis.elections import ElectLeadersApi
from kraftlog.broker.apis.quorum import DescribeQuorumApi
from kraftlog.broker.apis.reassignments import AlterPartitionReassignmentsApi, ListPartitionReassignmentsApi
from kraftlog.broker.apis.topic_changes import CreatePartitionsApi, CreateTopicsApi, DeleteTopicsApi
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect
from kraftlog.broker.settings import BrokerSettings
from kraftlog.network.requests import Handler


def administration(
    settings: BrokerSettings, cluster: ClusterView, controller: ControllerChannel, runtime: Runtime
) -> Mapping[str, Handler]:
    """By the names of their APIs. Changes are the controller's; what is read is what this broker has applied."""
    configs = ConfigsInEffect(settings, cluster)
    changes = ConfigChanges(settings.broker_id, cluster, controller)
    return {
        "CreateTopics": CreateTopicsApi(controller, configs).handle,
        "DeleteTopics": DeleteTopicsApi(controller, cluster, runtime).handle,
        "CreatePartitions": CreatePartitionsApi(controller).handle,
        "DescribeConfigs": DescribeConfigsApi(settings.broker_id, cluster, configs).handle,
        "IncrementalAlterConfigs": IncrementalAlterConfigsApi(changes).handle,
        "AlterConfigs": AlterConfigsApi(changes, configs).handle,
        "ElectLeaders": ElectLeadersApi(controller).handle,
        "AlterPartitionReassignments": AlterPartitionReassignmentsApi(cluster, controller).handle,
        "ListPartitionReassignments": ListPartitionReassignmentsApi(cluster, runtime).handle,
        "DescribeClientQuotas": DescribeClientQuotasApi(cluster).handle,
        "AlterClientQuotas": AlterClientQuotasApi(controller).handle,
        "DescribeAcls": DescribeAclsApi(cluster).handle,
        "CreateAcls": CreateAclsApi(controller).handle,
        "DeleteAcls": DeleteAclsApi(controller).handle,
        "UpdateFeatures": UpdateFeaturesApi(controller).handle,
        "UnregisterBroker": UnregisterBrokerApi(controller).handle,
        "DescribeQuorum": DescribeQuorumApi(controller).handle,
    }
