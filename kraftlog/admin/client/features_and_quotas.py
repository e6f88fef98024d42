"""The admin client's calls about features and client quotas."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbase.errors import ApiError
from kraftlog.admin.client.core import ClientCore
from kraftlog.admin.client.refusals import raise_first
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import QuotaEntity
from raft.rpc import codec
from statemachine.query.cluster_descriptions import (
    ClientQuota,
    DescribedClientQuotas,
    DescribedFeatures,
    FeatureChange,
    FeatureState,
    QuotaAlteration,
    QuotaEntityPart,
)


class FeatureCalls(ClientCore):
    """Features of the cluster."""

    async def update_features(self, changes: Iterable[FeatureChange], *, validate_only: bool = False) -> None:
        """Set levels, all or none; `validate_only` only checks them. Raises ApiError with the reason for each."""
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
        result = await self.change(admin_pb2.Operation(update_features=request))
        refused = [feature for feature in result.update_features.features if feature.error_code]
        if refused:
            # Each reason names its feature. The first may only report that the feature was not updated because of
            # another one, and two features that exclude each other have the same reason.
            reasons = "; ".join(dict.fromkeys(feature.error_message for feature in refused))
            raise ApiError(codec.error_from_proto(refused[0].error_code), reasons)

    async def describe_features(self, *, min_applied_end_offset: int = 0) -> DescribedFeatures:
        """All features by name. Raises ApiError."""
        request = admin_pb2.DescribeFeaturesRequest()
        response = await self.read(
            lambda stub: stub.DescribeFeatures, request, min_applied_end_offset=min_applied_end_offset
        )
        features = (
            FeatureState(feature.name, feature.min_level, feature.max_level, feature.finalized_level)
            for feature in response.features
        )
        return DescribedFeatures(response.applied_end_offset, tuple(features))


class QuotaCalls(ClientCore):
    """Client quotas."""

    async def alter_client_quotas(self, alterations: Iterable[QuotaAlteration], *, validate_only: bool = False) -> None:
        """Set and remove quotas, all of an entity or none. Raises ApiError for the first refused entity."""
        request = admin_pb2.AlterClientQuotasRequest(
            alterations=[
                admin_pb2.ClientQuotaAlteration(
                    entity=[
                        QuotaEntity(entity_type=part.entity_type, entity_name=part.entity_name) for part in of.entity
                    ],
                    key=of.key,
                    value=of.value,
                )
                for of in alterations
            ],
            validate_only=validate_only,
        )
        result = await self.change(admin_pb2.Operation(alter_client_quotas=request))
        raise_first(("", of.error_code, of.error_message) for of in result.alter_client_quotas.results)

    async def describe_client_quotas(self, *, min_applied_end_offset: int = 0) -> DescribedClientQuotas:
        """All quotas. Raises ApiError."""
        request = admin_pb2.DescribeClientQuotasRequest()
        response = await self.read(
            lambda stub: stub.DescribeClientQuotas, request, min_applied_end_offset=min_applied_end_offset
        )
        quotas = (
            ClientQuota(tuple(map(_entity_part, quota.entity)), quota.key, quota.value) for quota in response.quotas
        )
        return DescribedClientQuotas(response.applied_end_offset, tuple(quotas))


def _entity_part(part: QuotaEntity) -> QuotaEntityPart:
    return QuotaEntityPart(part.entity_type, part.entity_name if part.HasField("entity_name") else None)
