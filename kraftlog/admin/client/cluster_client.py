"""Admin calls about a cluster as a whole: features, client quotas, access control, and configs with sources.

And topics, many at a time. All take an AdminClient. Changes go to the leader and raise ApiError for what is
refused; reads are answered by any node, from at least the offset that they name. As in the client itself,
OutcomeUnknown means that a change may have been carried out: look before trying again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import id_to_text
from kraftlog.admin.client.client import AdminClient
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, QuotaEntity
from raft.rpc import codec
from statemachine.query.cluster_descriptions import (
    AccessControlEntry,
    AccessControlFilter,
    ClientQuota,
    ConfigChange,
    DescribedAccessControl,
    DescribedClientQuotas,
    DescribedFeatures,
    DescribedSourcedConfigs,
    FeatureChange,
    FeatureState,
    QuotaAlteration,
    QuotaEntityPart,
    SourcedConfig,
)
from statemachine.query.conversions import new_topic_to_proto
from statemachine.query.descriptions import NewTopic
from statemachine.words.names import quoted
from statemachine.words.resources import ResourceType

Refusal = tuple[str, int, str]
"""What was refused, as a message names it; the error code; the reason."""

# --- features ---------------------------------------------------------------------------------------------------------


async def update_features(
    client: AdminClient, changes: Iterable[FeatureChange], *, validate_only: bool = False
) -> None:
    """Set levels, all or none, or with `validate_only` only check them. Raises ApiError with the reason for each."""
    request = admin_pb2.UpdateFeaturesRequest(
        updates=[
            admin_pb2.FeatureUpdate(
                name=change.name,
                level=change.level,
                upgrade_type=admin_pb2.FeatureUpdate.UpgradeType.ValueType(change.upgrade_type),
            )
            for change in changes
        ],
        validate_only=validate_only,
    )
    result = await client.change(admin_pb2.Operation(update_features=request))
    refused = [feature for feature in result.update_features.features if feature.error_code]
    if refused:
        # Each names its feature. The first may only report that it was not updated because of another, and two that do
        # not go together have the same reason.
        reasons = "; ".join(dict.fromkeys(feature.error_message for feature in refused))
        raise ApiError(codec.error_from_proto(refused[0].error_code), reasons)


async def describe_features(client: AdminClient, *, min_applied_end_offset: int = 0) -> DescribedFeatures:
    """All features by name. Raises ApiError."""
    request = admin_pb2.DescribeFeaturesRequest()
    response = await client.read(
        lambda stub: stub.DescribeFeatures, request, min_applied_end_offset=min_applied_end_offset
    )
    features = (
        FeatureState(feature.name, feature.min_level, feature.max_level, feature.finalized_level)
        for feature in response.features
    )
    return DescribedFeatures(response.applied_end_offset, tuple(features))


# --- client quotas ----------------------------------------------------------------------------------------------------


async def alter_client_quotas(
    client: AdminClient, alterations: Iterable[QuotaAlteration], *, validate_only: bool = False
) -> None:
    """Set and remove quotas, all of an entity or none. Raises ApiError for the first entity that was refused."""
    request = admin_pb2.AlterClientQuotasRequest(
        alterations=[
            admin_pb2.ClientQuotaAlteration(
                entity=[QuotaEntity(entity_type=part.entity_type, entity_name=part.entity_name) for part in of.entity],
                key=of.key,
                value=of.value,
            )
            for of in alterations
        ],
        validate_only=validate_only,
    )
    result = await client.change(admin_pb2.Operation(alter_client_quotas=request))
    _raise_first(("", of.error_code, of.error_message) for of in result.alter_client_quotas.results)


async def describe_client_quotas(client: AdminClient, *, min_applied_end_offset: int = 0) -> DescribedClientQuotas:
    """All quotas. Raises ApiError."""
    request = admin_pb2.DescribeClientQuotasRequest()
    response = await client.read(
        lambda stub: stub.DescribeClientQuotas, request, min_applied_end_offset=min_applied_end_offset
    )
    quotas = (ClientQuota(tuple(map(_entity_part, quota.entity)), quota.key, quota.value) for quota in response.quotas)
    return DescribedClientQuotas(response.applied_end_offset, tuple(quotas))


def _entity_part(part: QuotaEntity) -> QuotaEntityPart:
    return QuotaEntityPart(part.entity_type, part.entity_name if part.HasField("entity_name") else None)


# --- access control ---------------------------------------------------------------------------------------------------


async def create_acls(client: AdminClient, entries: Iterable[AccessControlEntry]) -> list[str]:
    """Create entries; returns their ids, in that order. An entry that existed already keeps its id.

    Raises ApiError for the first that was refused; the others are created.
    """
    request = admin_pb2.CreateAclsRequest(entries=map(_entry_to_record, entries))
    result = await client.change(admin_pb2.Operation(create_acls=request))
    _raise_first(("", of.error_code, of.error_message) for of in result.create_acls.results)
    return [id_to_text(of.id) for of in result.create_acls.results]


async def delete_acls(client: AdminClient, filters: Iterable[AccessControlFilter]) -> list[AccessControlEntry]:
    """Delete all entries that one of the filters matches; returns them, each once.

    Raises ApiError for the first filter that was refused; what the others match is deleted.
    """
    request = admin_pb2.DeleteAclsRequest(filters=map(_filter_to_proto, filters))
    result = await client.change(admin_pb2.Operation(delete_acls=request))
    _raise_first(("", of.error_code, of.error_message) for of in result.delete_acls.filters)
    deleted = (_entry_from_record(entry) for of in result.delete_acls.filters for entry in of.deleted)
    return list(dict.fromkeys(deleted))


async def describe_acls(
    client: AdminClient, wanted: AccessControlFilter | None = None, *, min_applied_end_offset: int = 0
) -> DescribedAccessControl:
    """The entries that the filter matches, or all. Raises ApiError."""
    request = admin_pb2.DescribeAclsRequest(filter=_filter_to_proto(wanted or AccessControlFilter()))
    response = await client.read(lambda stub: stub.DescribeAcls, request, min_applied_end_offset=min_applied_end_offset)
    return DescribedAccessControl(response.applied_end_offset, tuple(map(_entry_from_record, response.entries)))


def _entry_to_record(entry: AccessControlEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _entry_from_record(record: AccessControlEntryRecord) -> AccessControlEntry:
    return AccessControlEntry(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
        acl_id=id_to_text(record.id),
    )


def _filter_to_proto(wanted: AccessControlFilter) -> admin_pb2.AclFilter:
    return admin_pb2.AclFilter(
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        pattern_type=wanted.pattern_type,
        principal=wanted.principal,
        host=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


# --- configs ----------------------------------------------------------------------------------------------------------


async def change_configs(client: AdminClient, changes: Iterable[ConfigChange], *, validate_only: bool = False) -> None:
    """Set, delete, append and subtract, all of a resource or none. Raises ApiError for the first that was refused.

    The other resources are altered all the same.
    """
    alterations = (
        admin_pb2.ConfigAlteration(
            resource_type=change.resource_type,
            resource_name=change.resource_name,
            name=change.name,
            kind=admin_pb2.ConfigAlteration.Kind.ValueType(change.kind),
            value=change.value,
        )
        for change in changes
    )
    request = admin_pb2.AlterConfigsRequest(alterations=alterations, validate_only=validate_only)
    result = await client.change(admin_pb2.Operation(alter_configs=request))
    _raise_first(
        (_resource(of.resource_type, of.resource_name), of.error_code, of.error_message)
        for of in result.alter_configs.resources
    )


async def describe_sourced_configs(
    client: AdminClient,
    resource_type: int,
    resource_name: str,
    *,
    include_defaults: bool = True,
    min_applied_end_offset: int = 0,
) -> DescribedSourcedConfigs:
    """The configs of a topic (2) or a broker (4) by name, with where each is set. Raises ApiError.

    With `include_defaults` also those that are not set for it, with the value that applies instead.
    """
    request = admin_pb2.DescribeConfigsRequest(
        resource_type=resource_type, resource_name=resource_name, include_defaults=include_defaults
    )
    response = await client.read(
        lambda stub: stub.DescribeConfigs, request, min_applied_end_offset=min_applied_end_offset
    )
    configs = (SourcedConfig(of.name, of.value, _source(of.source)) for of in response.configs)
    return DescribedSourcedConfigs(response.applied_end_offset, tuple(configs))


def _source(number: int) -> str:
    known = admin_pb2.DescribedConfig.Source.DESCRIPTOR.values_by_number
    return known[number].name if number in known else known[0].name


# --- topics, many at a time -------------------------------------------------------------------------------------------


async def create_named_topics(client: AdminClient, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
    """Create topics. Raises ApiError for the first that was refused, by name; the others are created."""
    request = admin_pb2.CreateTopicsRequest(topics=map(new_topic_to_proto, topics), validate_only=validate_only)
    result = await client.change(admin_pb2.Operation(create_topics=request))
    _raise_first((_topic(of.name), of.error_code, of.error_message) for of in result.create_topics.topics)


async def grow_topics(client: AdminClient, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
    """Give each topic this many partitions, the present ones included.

    Raises ApiError for the first topic that was refused, by name; the others get their partitions.
    """
    request = admin_pb2.CreatePartitionsRequest(
        topics=[admin_pb2.PartitionsOfTopic(name=name, count=count) for name, count in counts.items()],
        validate_only=validate_only,
    )
    result = await client.change(admin_pb2.Operation(create_partitions=request))
    _raise_first((_topic(of.name), of.error_code, of.error_message) for of in result.create_partitions.topics)


async def delete_named_topics(client: AdminClient, names: Iterable[str]) -> None:
    """Delete topics. Raises ApiError for the first that was refused, by name; the others are deleted."""
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicReference(name=name) for name in names])
    result = await client.change(admin_pb2.Operation(delete_topics=request))
    _raise_first((_topic(of.name), of.error_code, of.error_message) for of in result.delete_topics.topics)


# --- what was refused -------------------------------------------------------------------------------------------------


def _raise_first(parts: Iterable[Refusal]) -> None:
    failed = [part for part in parts if part[1] != ErrorCode.NONE]
    if failed:
        what, code, message = failed[0]
        said = message if what in message else f"{what}: {message}"
        others = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise ApiError(codec.error_from_proto(code), said + others)


def _topic(name: str) -> str:
    return f"topic {quoted(name)}"


def _resource(resource_type: int, resource_name: str) -> str:
    if resource_type == ResourceType.TOPIC:
        return _topic(resource_name)
    return f"broker {resource_name}" if resource_name else "the brokers' default"
