"""ApiVersions: which requests this broker answers, in which versions (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from kraftbase.errors import ErrorCode
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.kafka.apis import OWN_NAMES, OWN_SOFTWARE
from kraftlog.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kraftlog.kafka.notation import Versions
from kraftlog.network.requests import ClientRequest, Reply
from statemachine.words.features import SUPPORTED

FIRST_VERSION_WITH_SOFTWARE: Final = 3
FIRST_VERSION_WITH_LEVEL_0: Final = 4
"""Older Java clients close the connection if a feature may be at level 0 (KAFKA-17492)."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
"""The form of the name and the version of a client's software (KIP-511)."""


class ApiVersionsApi:
    """Handles ApiVersions."""

    def __init__(self, offered: Mapping[int, Versions], cluster: ClusterView) -> None:
        """`offered` may include our own APIs, which only our own clients get to see."""
        self._own_clients_keys = tuple(
            ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
            for key, versions in sorted(offered.items())
        )
        self._keys = tuple(key for key in self._own_clients_keys if key.api_key not in OWN_NAMES)
        self._cluster = cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer at once. A request in a version that is not offered gets an error with the offered versions."""
        if request.body is None:
            reply(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self._keys))
            return
        body = cast(ApiVersionsRequest, request.body)
        names = (body.client_software_name, body.client_software_version)
        if request.version >= FIRST_VERSION_WITH_SOFTWARE and not all(map(_SOFTWARE.match, names)):
            reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=self._keys))
            return
        least = 0 if request.version >= FIRST_VERSION_WITH_LEVEL_0 else 1
        reply(
            ApiVersionsResponse(
                api_keys=self._own_clients_keys if body.client_software_name == OWN_SOFTWARE else self._keys,
                supported_features=tuple(
                    SupportedFeatureKey(name=api.name, min_version=api.min_level, max_version=api.max_level)
                    for api in SUPPORTED
                    if api.min_level >= least
                ),
                finalized_features_epoch=self._cluster.end_offset,
                finalized_features=tuple(
                    FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                    for name, level in sorted(self._cluster.features.items())
                ),
            )
        )
