"""The handlers of the requests that administrate a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlog.broker.apis.config_changes import AlterConfigsApi, ConfigChanges, IncrementalAlterConfigsApi
from kraftlog.broker.apis.configs import DescribeConfigsApi
from kraftlog.broker.apis.topic_changes import CreatePartitionsApi, CreateTopicsApi, DeleteTopicsApi
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect
from kraftlog.broker.requests import Handler
from kraftlog.broker.settings import BrokerSettings


def administration(
    settings: BrokerSettings, cluster: ClusterView, controller: ControllerChannel
) -> Mapping[str, Handler]:
    """By the names of their APIs. Changes are the controller's; what is read is what this broker has applied."""
    configs = ConfigsInEffect(settings, cluster)
    changes = ConfigChanges(settings.broker_id, cluster, controller)
    return {
        "CreateTopics": CreateTopicsApi(controller, configs).handle,
        "DeleteTopics": DeleteTopicsApi(controller).handle,
        "CreatePartitions": CreatePartitionsApi(controller).handle,
        "DescribeConfigs": DescribeConfigsApi(settings.broker_id, cluster, configs).handle,
        "IncrementalAlterConfigs": IncrementalAlterConfigsApi(changes).handle,
        "AlterConfigs": AlterConfigsApi(changes, configs).handle,
    }
