"""The admin client's calls about configs of topics and brokers."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlog.admin.client.core import ClientCore
from kraftlog.admin.client.refusals import raise_first, resource_named
from kraftpb.v1 import admin_pb2
from statemachine.query.cluster_descriptions import ConfigChange, DescribedSourcedConfigs, SourcedConfig
from statemachine.query.conversions import alteration_to_proto, config_from_proto
from statemachine.query.descriptions import Alteration, DescribedConfigs


class ConfigCalls(ClientCore):
    """Configs, and where each is set."""

    async def alter_configs(
        self,
        alterations: Iterable[Alteration | ConfigChange | admin_pb2.ConfigAlteration],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set, delete, append and subtract, all of a resource or none. Raises ApiError for the first refused resource.
        The other resources are still altered.
        """
        request = admin_pb2.AlterConfigsRequest(alterations=map(_alteration, alterations), validate_only=validate_only)
        result = await self.change(admin_pb2.Operation(alter_configs=request))
        raise_first(
            (resource_named(of.resource_type, of.resource_name), of.error_code, of.error_message)
            for of in result.alter_configs.resources
        )

    async def describe_configs(
        self, resource_type: int, resource_name: str, *, min_applied_end_offset: int = 0
    ) -> DescribedConfigs:
        """The configs that were set for a topic (2) or a broker (4), by name. Raises ApiError."""
        request = admin_pb2.DescribeConfigsRequest(
            consistency=self._consistency(min_applied_end_offset),
            resource_type=resource_type,
            resource_name=resource_name,
        )
        response = await self._reader.read(lambda stub: stub.DescribeConfigs, request, self._timeout_ms)
        return DescribedConfigs(response.applied_end_offset, tuple(map(config_from_proto, response.configs)))

    async def describe_sourced_configs(
        self,
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
        response = await self.read(
            lambda stub: stub.DescribeConfigs, request, min_applied_end_offset=min_applied_end_offset
        )
        configs = (SourcedConfig(of.name, of.value, _source(of.source)) for of in response.configs)
        return DescribedSourcedConfigs(response.applied_end_offset, tuple(configs))


def _alteration(change: Alteration | ConfigChange | admin_pb2.ConfigAlteration) -> admin_pb2.ConfigAlteration:
    if isinstance(change, Alteration):
        return alteration_to_proto(change)
    if isinstance(change, admin_pb2.ConfigAlteration):
        return change
    return admin_pb2.ConfigAlteration(
        resource_type=change.resource_type,
        resource_name=change.resource_name,
        name=change.name,
        kind=admin_pb2.ConfigAlteration.Kind.ValueType(change.kind),
        value=change.value,
    )


def _source(number: int) -> str:
    known = admin_pb2.DescribedConfig.Source.DESCRIPTOR.values_by_number
    return known[number].name if number in known else known[0].name
