"""kraftlog's results as answers that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlog.difftest import steps
from kraftlog.difftest.system import Answer, error_name, shown
from kraftpb.v1.admin_pb2 import OperationResult


def answer_of(step: steps.Step, result: OperationResult) -> Answer:
    """Return the parts of a result that are compared."""
    if result.error_code:
        return {"": error_name(result.error_code)}
    return _ANSWERS[type(step)](step, result)


def _whole(_: steps.Step, result: OperationResult) -> Answer:
    return {"": error_name(result.error_code)}


def _beats(_: steps.Step, result: OperationResult) -> Answer:
    found = result.broker_heartbeat
    return {"": shown(0, caught_up=found.is_caught_up, fenced=found.is_fenced, shut_down=found.should_shut_down)}


def _created(_: steps.Step, result: OperationResult) -> Answer:
    return {
        topic.name: shown(topic.error_code, partitions=topic.num_partitions, replicas=topic.replication_factor)
        for topic in result.create_topics.topics
    }


def _deleted(_: steps.Step, result: OperationResult) -> Answer:
    return {topic.name: error_name(topic.error_code) for topic in result.delete_topics.topics}


def _grown(_: steps.Step, result: OperationResult) -> Answer:
    return {topic.name: error_name(topic.error_code) for topic in result.create_partitions.topics}


def _configured(_: steps.Step, result: OperationResult) -> Answer:
    return {resource.resource_name: error_name(resource.error_code) for resource in result.alter_configs.resources}


def _reassigned(_: steps.Step, result: OperationResult) -> Answer:
    return {
        f"{partition.topic}-{partition.partition_id}": error_name(partition.error_code)
        for partition in result.alter_partition_reassignments.partitions
    }


def _elected(_: steps.Step, result: OperationResult) -> Answer:
    return {
        f"{partition.topic}-{partition.partition_id}": error_name(partition.error_code)
        for partition in result.elect_leaders.partitions
    }


def _altered(step: steps.AlterPartition, result: OperationResult) -> Answer:
    return {
        f"{step.topic}-{partition.partition_id}": shown(
            partition.error_code,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=tuple(partition.isr),
            recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )
        for partition in result.alter_partition.partitions
    }


def _assigned(step: steps.AssignDirectories, result: OperationResult) -> Answer:
    return {
        f"{name}-{number}": error_name(found.error_code)
        for (name, number), found in zip(step.partitions, result.assign_replicas_to_dirs.assignments, strict=True)
    }


def _allocated(_: steps.Step, result: OperationResult) -> Answer:
    return {"": shown(0, count=result.allocate_producer_ids.producer_id_count)}


def _updated(_: steps.Step, result: OperationResult) -> Answer:
    (feature,) = result.update_features.features
    return {"": error_name(feature.error_code)}


def _quoted(_: steps.Step, result: OperationResult) -> Answer:
    """Return one answer for the entity, as Kafka does: the first error, if any."""
    codes = [found.error_code for found in result.alter_client_quotas.results]
    return {"0": error_name(next((code for code in codes if code), 0))}


def _acls_created(_: steps.Step, result: OperationResult) -> Answer:
    return {str(number): error_name(entry.error_code) for number, entry in enumerate(result.create_acls.results)}


def _acls_deleted(_: steps.Step, result: OperationResult) -> Answer:
    return {
        str(number): shown(
            found.error_code,
            deleted=sorted(
                (
                    acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation,
                    acl.permission_type,
                )
                for acl in found.deleted
            ),
        )
        for number, found in enumerate(result.delete_acls.filters)
    }  # fmt: skip


_ANSWERS: Final[dict[type[Any], Callable[[Any, OperationResult], Answer]]] = {
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
    steps.UpdateFeature: _updated,
    steps.AlterQuotas: _quoted,
    steps.CreateAcls: _acls_created,
    steps.DeleteAcls: _acls_deleted,
}
