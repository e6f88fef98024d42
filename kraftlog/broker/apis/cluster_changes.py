"""UpdateFeatures (KIP-584, KIP-778) and UnregisterBroker, forwarded to the controller."""

from __future__ import annotations

from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.refusals import text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.controller_channel import TIMEOUT_MS_DEFAULT
from kraftlog.kafka.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kraftlog.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2

FIRST_VERSION_WITH_UPGRADE_TYPE: Final = 1
LAST_VERSION_WITH_RESULTS: Final = 1
"""The last version of UpdateFeatures whose answer lists each feature if all are updated."""


class UpdateFeaturesApi:
    """Handles UpdateFeatures."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered: all levels are set, or none."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(UpdateFeaturesRequest, request.body)

        def answer(result: admin_pb2.OperationResult | ApiError) -> Steps:
            if isinstance(result, ApiError):
                reply(UpdateFeaturesResponse(error_code=result.code, error_message=text_of(result), results=()))
                return
            refused = next((feature for feature in result.update_features.features if feature.error_code), None)
            if refused is not None:
                reply(
                    UpdateFeaturesResponse(
                        error_code=refused.error_code, error_message=refused.error_message, results=()
                    )
                )
                return
            results = []
            for update in body.feature_updates if request.version <= LAST_VERSION_WITH_RESULTS else ():
                results.append(
                    UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.NONE, error_message=None)
                )
                yield
            reply(UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=tuple(results)))

        updates = []
        for update in body.feature_updates:
            updates.append(_update(update, request.version))
            yield
        change = admin_pb2.UpdateFeaturesRequest(updates=updates, validate_only=body.validate_only)
        operation = admin_pb2.Operation(client_id=request.context.client_id, update_features=change)
        self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))


def _update(update: FeatureUpdateKey, version: int) -> admin_pb2.FeatureUpdate:
    upgrade_type = update.upgrade_type
    if version < FIRST_VERSION_WITH_UPGRADE_TYPE:
        kinds = admin_pb2.FeatureUpdate
        upgrade_type = kinds.SAFE_DOWNGRADE if update.allow_downgrade else kinds.UPGRADE
    return admin_pb2.FeatureUpdate(
        name=update.feature,
        level=update.max_version_level,
        upgrade_type=upgrade_type,  # type: ignore[arg-type]  # the numbers are Kafka's
    )


class UnregisterBrokerApi:
    """Handles UnregisterBroker."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered."""
        body = cast(UnregisterBrokerRequest, request.body)

        def answer(result: admin_pb2.OperationResult | ApiError) -> None:
            if isinstance(result, ApiError):
                reply(UnregisterBrokerResponse(error_code=result.code, error_message=text_of(result)))
            else:
                reply(UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None))

        operation = admin_pb2.Operation(
            client_id=request.context.client_id,
            unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=body.broker_id),
        )
        self._controller.submit(operation, TIMEOUT_MS_DEFAULT, answer)
