"""Kafka's responses as answers that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlog.difftest import steps
from kraftlog.difftest.system import Answer, error_name, shown
from kraftlog.kafka.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)


def answer_of(step: steps.Step, response: Any) -> Answer:
    """Return the parts of a response that are compared."""
    return _ANSWERS[type(step)](step, response)


def _whole(_: steps.Step, response: Any) -> Answer:
    return {"": error_name(response.error_code)}


def _beats(_: steps.Step, response: broker_heartbeat.BrokerHeartbeatResponse) -> Answer:
    return {
        "": shown(
            response.error_code,
            caught_up=response.is_caught_up,
            fenced=response.is_fenced,
            shut_down=response.should_shut_down,
        )
    }


def _created(_: steps.Step, response: create_topics.CreateTopicsResponse) -> Answer:
    return {
        topic.name: shown(topic.error_code, partitions=topic.num_partitions, replicas=topic.replication_factor)
        for topic in response.topics
    }


def _deleted(_: steps.Step, response: delete_topics.DeleteTopicsResponse) -> Answer:
    return {topic.name or "": error_name(topic.error_code) for topic in response.responses}


def _grown(_: steps.Step, response: create_partitions.CreatePartitionsResponse) -> Answer:
    return {topic.name: error_name(topic.error_code) for topic in response.results}


def _configured(_: steps.Step, response: incremental_alter_configs.IncrementalAlterConfigsResponse) -> Answer:
    return {resource.resource_name: error_name(resource.error_code) for resource in response.responses}


def _reassigned(_: steps.Step, response: alter_partition_reassignments.AlterPartitionReassignmentsResponse) -> Answer:
    parts = {
        f"{topic.name}-{partition.partition_index}": error_name(partition.error_code)
        for topic in response.responses
        for partition in topic.partitions
    }
    return parts if response.error_code == 0 else {"": error_name(response.error_code)}


def _elected(_: steps.Step, response: elect_leaders.ElectLeadersResponse) -> Answer:
    parts = {
        f"{topic.topic}-{partition.partition_id}": error_name(partition.error_code)
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }
    return parts if response.error_code == 0 else {"": error_name(response.error_code)}


def _altered(step: steps.AlterPartition, response: alter_partition.AlterPartitionResponse) -> Answer:
    parts = {
        f"{step.topic}-{partition.partition_index}": shown(
            partition.error_code,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )
        for topic in response.topics
        for partition in topic.partitions
    }
    return parts if response.error_code == 0 else {"": error_name(response.error_code)}


def _assigned(step: steps.AssignDirectories, response: assign_replicas_to_dirs.AssignReplicasToDirsResponse) -> Answer:
    if response.error_code:
        return {"": error_name(response.error_code)}
    found = [
        partition for directory in response.directories for topic in directory.topics for partition in topic.partitions
    ]
    return {
        f"{name}-{number}": error_name(partition.error_code)
        for (name, number), partition in zip(step.partitions, found, strict=True)
    }


def _allocated(_: steps.Step, response: allocate_producer_ids.AllocateProducerIdsResponse) -> Answer:
    return {"": shown(response.error_code, count=response.producer_id_len)}


def _quoted(_: steps.Step, response: alter_client_quotas.AlterClientQuotasResponse) -> Answer:
    return {str(number): error_name(entry.error_code) for number, entry in enumerate(response.entries)}


def _acls_created(_: steps.Step, response: create_acls.CreateAclsResponse) -> Answer:
    return {str(number): error_name(entry.error_code) for number, entry in enumerate(response.results)}


def _acls_deleted(_: steps.Step, response: delete_acls.DeleteAclsResponse) -> Answer:
    return {
        str(number): shown(
            found.error_code,
            deleted=sorted(
                (
                    acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation,
                    acl.permission_type,
                )
                for acl in found.matching_acls
            ),
        )
        for number, found in enumerate(response.filter_results)
    }  # fmt: skip


_ANSWERS: Final[dict[type[Any], Callable[[Any, Any], Answer]]] = {
    steps.RegisterBroker: _whole,
    steps.Heartbeat: _beats,
    steps.UnregisterBroker: _whole,
    steps.CreateTopics: _created,
    steps.PlaceTopic: _created,
    steps.DeleteTopics: _deleted,
    steps.CreatePartitions: _grown,
    steps.AlterConfigs: _configured,
    steps.Reassign: _reassigned,
    steps.ElectLeaders: _elected,
    steps.AlterPartition: _altered,
    steps.AssignDirectories: _assigned,
    steps.AllocateProducerIds: _allocated,
    steps.UpdateFeature: _whole,
    steps.AlterQuotas: _quoted,
    steps.CreateAcls: _acls_created,
    steps.DeleteAcls: _acls_deleted,
}
